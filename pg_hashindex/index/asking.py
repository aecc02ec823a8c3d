"""Questions to an index that was opened before, as steps: they follow it where it was swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from numpy.typing import ArrayLike
from pgvector import Bit, Vector
from psycopg import sql
from psycopg.pq import TransactionStatus

from ..contrib import pandas as frames
from ..db.connection import translated_errors
from ..db.steps import Statement, Steps, Work
from ..errors import HashIndexError, InvalidInputError
from ..models.vectors import as_vector
from . import search as searching
from . import within as balls
from .row import IndexRow, Row, read
from .search import Asked, Hit, as_count

if TYPE_CHECKING:
    import pandas

    Answers: TypeAlias = list[Hit] | pandas.DataFrame

__all__ = ["search", "search_like", "within", "within_like"]


def search(
    opened: IndexRow,
    query: ArrayLike | Vector,
    k: int,
    as_frame: bool,
    **asked: Unpack[Asked],
) -> Steps[Answers]:
    """Find the nearest rows; see `HashIndex.search`."""
    return _answers(
        opened, lambda index: searching.nearest(index, query, k, **asked), as_frame=as_frame
    )


def search_like(
    opened: IndexRow, row_id: Any, k: int, as_frame: bool, **asked: Unpack[Asked]
) -> Steps[Answers]:
    """Find the rows nearest to another row; see `HashIndex.search_like`."""
    k = as_count("k", k)
    if (candidates := asked.get("candidates")) is not None:
        asked["candidates"] = as_count("candidates", candidates) + 1

    def ask(index: IndexRow) -> Steps[list[Hit]]:
        key, vector, code = yield from _row(index, row_id)
        # One more of each for the row itself, which would always be found.
        hits = yield from searching.nearest(index, vector, k + 1, code=code, **asked)
        return [hit for hit in hits if hit.id != key][:k]

    return _answers(opened, ask, as_frame=as_frame)


def within(
    opened: IndexRow, query: ArrayLike | Vector, radius: int, as_frame: bool
) -> Steps[Answers]:
    """Find every row within a radius; see `HashIndex.within`."""
    return _answers(opened, lambda index: balls.within(index, query, radius), as_frame=as_frame)


def within_like(opened: IndexRow, row_id: Any, radius: int, as_frame: bool) -> Steps[Answers]:
    """Find every row within a radius of another; see `HashIndex.within_like`."""

    def ask(index: IndexRow) -> Steps[list[Hit]]:
        key, vector, code = yield from _row(index, row_id)
        hits = yield from balls.within(index, vector, radius, code=code)
        return [hit for hit in hits if hit.id != key]

    return _answers(opened, ask, as_frame=as_frame)


def _answers(
    opened: IndexRow, ask: Callable[[IndexRow], Steps[list[Hit]]], *, as_frame: bool
) -> Steps[Answers]:
    if as_frame:
        # Its first import takes up to a second.
        yield Work(frames.check_pandas)
    hits = yield from _hits(opened, ask)
    return frames.to_frame(hits, opened.id_type) if as_frame else hits


def _hits(opened: IndexRow, ask: Callable[[IndexRow], Steps[list[Hit]]]) -> Steps[list[Hit]]:
    """Ask the index; once more if its model was swapped since it was opened."""
    index = _latest(opened)
    try:
        hits = yield from ask(index)
    except HashIndexError as error:
        if index.connection.info.transaction_status == TransactionStatus.INERROR:
            raise
        try:
            now = yield from _as_now(index)
        except HashIndexError:
            # A code from here is of no use to an index that was made anew.
            if index.encoded_in == "python":
                raise
            raise error from None
        if now is index:
            raise
    else:
        # SQL goes by the model that the index has; a code from here may be another's by now.
        if index.encoded_in == "sql":
            return hits
        now = yield from _as_now(index)
        if now is index:
            return hits
    # Where another task has found it too, its model is read once.
    if (latest := _latest(opened)) == now:
        now = latest
    vars(opened)["_latest"] = now
    return (yield from ask(now))


def _latest(opened: IndexRow) -> IndexRow:
    """Return what the index has become by a swap that a search met; itself before."""
    found: IndexRow = vars(opened).get("_latest", opened)
    return found


def _as_now(index: Row) -> Steps[Row]:
    """Return the index as it is now, if its model was swapped since it was read; else itself.

    Raises
    ------
    DatabaseStateError
        If it was dropped, or made anew.
    """
    found = yield from read(type(index), index.connection, "WHERE i.name = $1", [index.name])
    names = ("schema_name", "table_name", "column_name", "id_column")
    if (
        not found
        or any(getattr(found[0], name) != getattr(index, name) for name in names)
        or (found[0].storage == index.storage and found[0].model_id != index.model_id)
    ):
        raise index.made_anew()
    return index if found[0].storage == index.storage else found[0]


def _row(index: IndexRow, row_id: Any) -> Steps[tuple[Any, Vector, Bit | None]]:
    """Read a row's key and vector, and its code where searches have to bring that."""
    with translated_errors(index):
        # Is it still there? Apart from the row, which Citus may read on another node.
        yield Statement(sql.SQL("SELECT FROM hashindex.find_index($1)"), [index.name])
        rows = yield Statement(
            sql.SQL(
                "SELECT b.{id}, b.{column}, {code}::text FROM {table} b "
                "WHERE b.{id} = $1::text::{type}"
            ).format(
                id=sql.Identifier(index.id_column),
                column=sql.Identifier(index.column_name),
                # Not every reader may read it.
                code=sql.SQL("NULL") if index.encoded_in == "sql" else index.code_of_row,
                table=index.table,
                type=sql.SQL(index.key_type),
            ),
            [str(row_id)],
            binary=index.binary_ids,
        )
    if not rows or rows[0][1] is None:
        raise InvalidInputError(
            f"{index.qualified_table} has no row with {index.id_column} = {row_id} and a vector"
        )
    key, vector, code = rows[0]
    return key, as_vector(vector), None if code is None else Bit(code)
