"""The program ``pg-hashindex``."""

import click

from ._shared import LateGroup

_COMMANDS = {
    "doctor": "Say whether pgvector's indexes serve a table, and what to do where they do not.",
    "quickstart": "Make an index of a table: install the schema, train a model, encode, measure.",
    "demo": "Train, index, search and evaluate 5,000 package descriptions.",
    "server": "Start and stop an embedded PostgreSQL with pgvector.",
    "schema": "Install, upgrade or remove the schema in a database.",
    "extension": "Write the files of CREATE EXTENSION pg_hashindex, for servers that take some.",
    "model": "Train, list, show, drop and move models.",
    "index": "Create, encode, configure, swap, check, repair and drop indexes.",
    "search": "Search INDEX for the rows nearest to a vector, or to another row.",
    "within": "Find every row of INDEX whose code is within a Hamming radius.",
    "evaluate": "Compare INDEX with exact search on rows of its own table.",
    "dedup": "Write all pairs of near-duplicate rows of index NAME into a table.",
    "jobs": "List running jobs, and dead ones with the command that continues each.",
    "tune": "Find the settings of INDEX, or codes for --table, that reach a recall the fastest.",
    "bench": "Compare methods on a data set; no database is needed.",
}
_MODULES = {"within": "search"}


@click.group(cls=LateGroup, late=_COMMANDS, modules=_MODULES)
@click.version_option(package_name="pg_hashindex", prog_name="pg-hashindex")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors, no notes.")
@click.option("-v", "--verbose", is_flag=True, help="Print the traceback of an error.")
def main(quiet: bool, verbose: bool) -> None:
    """Learned binary codes for pgvector: train a model, index a table, search it."""
