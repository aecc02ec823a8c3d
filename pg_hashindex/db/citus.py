"""Read from Citus how it keeps a table; works without schema ``hashindex``."""

from typing import LiteralString, NamedTuple

from .connection import Connection
from .sql_files import query
from .statements import one_row

#: A shard is a plain table of its node, and Citus leaves it out of the catalog otherwise.
SHOW_SHARDS = "PGOPTIONS='-c citus.override_table_visibility=off'"

_IS_INSTALLED: LiteralString = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"

_IS_SHARDED = query("citus.is_sharded")

_SIZES = query("citus.sizes")


class Sizes(NamedTuple):
    """Bytes of a table's rows, of what they keep out of line, and of its indexes."""

    heap_bytes: int
    toast_bytes: int
    index_bytes: int


def is_sharded(connection: Connection, table: str) -> bool:
    """Return whether Citus keeps the rows of a table in others: shards, or a copy on each node."""
    return bool(
        one_row(connection, _IS_INSTALLED)[0] and one_row(connection, _IS_SHARDED, [table])[0]
    )


def read_sizes(connection: Connection, table: str) -> Sizes:
    """Read the sizes of a sharded table, all shards together."""
    return Sizes(*one_row(connection, _SIZES, [table]))
