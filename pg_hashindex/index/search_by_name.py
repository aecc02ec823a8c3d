"""One search by an index that is named, without opening it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack, overload

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Vector

from ..db.connection import Connection
from ..db.steps import run
from . import asking
from .search import Asked, Hit
from .searchable import SearchableIndex

if TYPE_CHECKING:
    import pandas

    from .asking import Answers

__all__ = ["search"]


@overload
def search(
    connection: Connection,
    index: str,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    as_frame: Literal[False] = False,
    **asked: Unpack[Asked],
) -> list[Hit]: ...


@overload
def search(
    connection: Connection,
    index: str,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    as_frame: Literal[True],
    **asked: Unpack[Asked],
) -> pandas.DataFrame: ...


def search(
    connection: Connection,
    index: str,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    candidates: int | None = None,
    probes: int | None = None,
    where: sa.ColumnElement[bool] | None = None,
    filter: str | None = None,  # noqa: A002
    as_frame: bool = False,
) -> Answers:
    """Find the rows nearest to a vector by an index that is named.

    The index is opened for it, which takes a query more, and where its codes are computed in Python
    the model is read too: for many searches open it once, with `HashIndex.open`.

    Parameters
    ----------
    connection : psycopg.Connection
    index : str
        Its name.
    query, k, candidates, probes, where, filter, as_frame
        As `HashIndex.search`.

    Returns
    -------
    list of Hit, or pandas.DataFrame

    Raises
    ------
    UnknownIndexError
        If there is no such index.
    InvalidInputError
        As `HashIndex.search`.
    """
    opened = SearchableIndex.open(connection, index)
    steps = asking.search(
        opened,
        query,
        k,
        as_frame,
        candidates=candidates,
        probes=probes,
        where=where,
        filter=filter,
    )
    return run(connection, steps)
