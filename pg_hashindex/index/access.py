"""The access path of an index that is being built, as the catalog has it."""

from contextlib import AbstractContextManager
from typing import LiteralString

from ..db.connection import execute
from ..db.locks import only_one
from ..errors import DatabaseStateError
from .catalog import Access, IndexRow

_TO_BUILD: LiteralString = """
    SELECT i.building FROM hashindex.index i WHERE i.name = $1 AND i.building IS NOT NULL
"""


def path_to_build(index: IndexRow, *, lock: bool = False) -> Access | None:
    """Return the path that waits to be built, None if none does; lock the index's row if asked."""
    statement: LiteralString = _TO_BUILD + "FOR UPDATE" if lock else _TO_BUILD
    row = execute(index.connection, statement, [index.name]).fetchone()
    return None if row is None else row[0]


def only_builder(index: IndexRow) -> AbstractContextManager[None]:
    """Keep other sessions from building or rebalancing the access path of an index."""
    return only_one(
        index.connection,
        "access",
        index.name,
        f"the access path of index {index.name!r} is being built by another session; its rows are "
        "encoded, wait for the path",
    )


def configured_otherwise(index: IndexRow, path: Access) -> DatabaseStateError:
    """Return the error of a build whose path is no longer wanted."""
    return DatabaseStateError(
        f"index {index.name!r} was configured otherwise while its access path {path} was built, or "
        "dropped; see: pg-hashindex index show"
    )


def end_left_rebalance(index: IndexRow) -> bool:
    """Give up a rebalance that was cut off, if nobody continues it; return whether there was one.

    `drop_unused` drops its tables.
    """
    ((ended,),) = index.change("SELECT hashindex._end_left_rebalance($1)", [index.name])
    return bool(ended)


def drop_unused(index: IndexRow) -> None:
    """Drop tables that an index no longer uses; wait for running searches."""
    index.change("SELECT hashindex.drop_unused($1)", [index.name])
