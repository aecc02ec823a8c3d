"""Read from Citus how it distributes a table; works without schema ``hashindex``."""

from typing import LiteralString, NamedTuple

from ..errors import InvalidInputError
from .connection import Connection
from .sql_files import query
from .statements import execute, one_row

#: A shard is a plain table of its node, and Citus leaves it out of the catalog otherwise.
SHOW_SHARDS = "PGOPTIONS='-c citus.override_table_visibility=off'"

_IS_INSTALLED: LiteralString = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"

_METHOD: LiteralString = """
    SELECT p.partmethod FROM pg_catalog.pg_dist_partition p
    WHERE p.logicalrelid::oid = to_regclass($1)::oid
"""

_COLUMN = query("citus.column")

_SIZES = query("citus.sizes")


class Sizes(NamedTuple):
    """Bytes of a table's rows, of what they keep out of line, and of its indexes."""

    heap_bytes: int
    toast_bytes: int
    index_bytes: int


def is_sharded(connection: Connection, table: str) -> bool:
    """Return whether Citus keeps the rows of a table in others: shards, or a copy on each node."""
    return _method(connection, table) is not None


def is_distributed(connection: Connection, table: str) -> bool:
    """Return whether Citus distributes a table among shards by a column."""
    return _method(connection, table) == "h"


def refuse_unsuitable(connection: Connection, table: str) -> None:
    """Refuse a table that can have no index for the way that Citus keeps it."""
    method = _method(connection, table)
    if method == "h":
        column, unique = one_row(connection, _COLUMN, [table])
        if not unique:
            raise InvalidInputError(
                f"table {table} is distributed by {column!r}, which is in no key, and codes are "
                "found by a key; distribute the table by a column of its key"
            )
    elif method is not None:
        raise InvalidInputError(
            f"table {table} has no distribution column: Citus keeps all of it on one node, or a "
            "copy on each; give a local table, or one that is distributed by a column of its key"
        )


def read_sizes(connection: Connection, table: str) -> Sizes:
    """Read the sizes of a distributed table, all shards together."""
    return Sizes(*one_row(connection, _SIZES, [table]))


def _method(connection: Connection, table: str) -> str | None:
    """Return Citus's letter for how it keeps a table; None for a local one, or without Citus."""
    if not one_row(connection, _IS_INSTALLED)[0]:
        return None
    row = execute(connection, _METHOD, [table]).fetchone()
    return None if row is None else str(row[0])
