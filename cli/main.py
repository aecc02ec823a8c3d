"""The program ``pg-hashindex``."""

import click

from ._shared import LateGroup

# Everyday commands first.
_COMMANDS = {
    "doctor": "Say which set of vectors or codes a table needs, if any, and make no change.",
    "quickstart": "Make a table searchable by a name: install the schema, train, index, measure.",
    "search": "Search index NAME for rows near a vector or a row, or within a radius of bits.",
    "evaluate": "Compare index NAME with exact search on rows of its own table.",
    "tune": "Find the candidates and effort with which index NAME reaches a recall the fastest.",
    "index": "Create, encode, configure, swap, check, repair and drop indexes.",
    "model": "Train, list, show, drop and move models.",
    "schema": "Install, upgrade or remove the schema in a database.",
    "demo": "Train, index, search and evaluate 5,000 package descriptions.",
    "server": "Start and stop an embedded PostgreSQL with pgvector.",
    "extension": "Write the files of CREATE EXTENSION pg_hashindex, for servers that take some.",
    "dedup": "Write all pairs of near-duplicate rows of index NAME into a table.",
    "bench": "Compare methods on a data set; no database is needed.",
}

_DATABASE = """
--database-url URL is a libpq URI or string, or an SQLAlchemy URL. Without it
PG_HASHINDEX_DATABASE_URL, DATABASE_URL and then libpq's own variables name the database: PGHOST,
PGDATABASE, PGSERVICE, ... Other users of the machine see a password in an option (ps): have it in
the variable or in ~/.pgpass.
"""


@click.group(cls=LateGroup, late=_COMMANDS, epilog=_DATABASE)
@click.version_option(package_name="pg_hashindex", prog_name="pg-hashindex")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors, no notes.")
@click.option("-v", "--verbose", is_flag=True, help="Print more, and the traceback of an error.")
def main(quiet: bool, verbose: bool) -> None:
    """Learned binary codes for pgvector: train a model, index a table, search it."""
