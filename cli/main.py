"""The program ``pg-hashindex``."""

import click

from ._shared import CatchingGroup
from .bench import bench
from .check import check
from .demo import demo
from .distribute import distribute
from .evaluate import evaluate
from .grant import grant, revoke
from .index import index
from .jobs import jobs
from .model import model
from .repair import repair
from .report import report
from .schema import schema
from .search import search, within
from .server import server
from .swap import prune, rollback, swap
from .tune import tune

__all__ = ["main"]


@click.group(cls=CatchingGroup)
@click.version_option(package_name="pg_hashindex", prog_name="pg-hashindex")
def main() -> None:
    """Learned binary codes for pgvector: train a model, index a table, search it."""


for command in (check, swap, rollback, prune, repair, grant, revoke, distribute):
    index.add_command(command)
for command in (
    demo,
    server,
    schema,
    model,
    index,
    search,
    within,
    evaluate,
    report,
    jobs,
    tune,
    bench,
):
    main.add_command(command)
