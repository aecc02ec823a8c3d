"""Whether Citus distributes a table among shards, which it takes fewer statements for."""

from psycopg import RawCursor

from .connection import Connection

__all__ = ["is_distributed"]


def is_distributed(connection: Connection, table: str) -> bool:
    """Return whether Citus distributes a table; False where it, or our schema, is not installed.

    Parameters
    ----------
    connection : psycopg.Connection
    table : str
        As SQL writes it.
    """
    cursor = RawCursor(connection)
    row = cursor.execute(
        "SELECT to_regprocedure('hashindex._distribution_of(regclass)') IS NOT NULL"
    ).fetchone()
    if row is None or not row[0]:
        return False
    row = cursor.execute(
        "SELECT d.method FROM hashindex._distribution_of(to_regclass($1)) d", [table]
    ).fetchone()
    return row is not None and row[0] == "hash"
