"""``pg-hashindex evaluate``: recall and latency of a live index."""

import click

from pg_hashindex.evaluate import CANDIDATES
from pg_hashindex.evaluate import evaluate as measure
from pg_hashindex.index import HashIndex

from ._shared import connected, database_option, json_option, print_evaluation, print_json


@click.command()
@click.argument("index")
@click.option("--queries", type=int, default=200, show_default=True, help="Rows to search for.")
@click.option("--k", "-k", type=int, default=10, show_default=True, help="Answers compared.")
@click.option(
    "--candidates",
    type=int,
    multiple=True,
    default=CANDIDATES,
    show_default=True,
    help="A number of candidates to try; may be given again.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw."
)
@database_option
@json_option
def evaluate(
    database_url: str,
    index: str,
    queries: int,
    k: int,
    candidates: tuple[int, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Compare INDEX with exact search on rows of its own table."""
    with connected(database_url) as connection:
        result = measure(
            HashIndex.open(connection, index),
            queries=queries,
            k=k,
            candidates=candidates,
            random_state=seed,
            progress=True,
        )
    if as_json:
        print_json(result.as_dict())
        return
    print_evaluation(result)
