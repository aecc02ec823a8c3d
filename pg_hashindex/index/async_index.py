"""An index on a psycopg.AsyncConnection: searched with asyncio, the same way as a `HashIndex`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Vector
from psycopg.types import TypeInfo

from ..db import preparing
from ..db.connection import translated_errors
from ..db.steps import run_async
from . import asking
from .row import IndexRow, find
from .search import Asked, Hit

if TYPE_CHECKING:
    import pandas

    from .asking import Answers

__all__ = ["AsyncConnection", "AsyncHashIndex", "prepare_async"]

AsyncConnection = psycopg.AsyncConnection[Any]

# Connections on which types are being registered, or where that was cut off between two of them.
# Transaction blocks of several tasks on one connection would nest into each other.
_unfinished: WeakKeyDictionary[AsyncConnection, asyncio.Lock] = WeakKeyDictionary()


async def prepare_async(connection: AsyncConnection) -> None:
    """Check the server and register pgvector's types, as `database.prepare` does.

    Does nothing the second time. The first time it opens a transaction block, during which no other
    task may open one on this connection.

    Raises
    ------
    InvalidInputError
        If the connection gives rows in another shape than tuples, or is no async one.
    MissingExtensionError, OldServerError
        If the server cannot serve pg_hashindex.
    """
    preparing.refuse(connection, psycopg.Connection)
    with translated_errors():
        needed = preparing.needs_types(connection, connection.row_factory)
        if not needed and connection not in _unfinished:
            return
        async with _unfinished.setdefault(connection, asyncio.Lock()):
            if connection not in _unfinished:
                return
            async with connection.transaction():
                extension = await (await connection.execute(preparing.EXTENSION)).fetchone()
                types = preparing.types_of(connection, extension)
                before = await (await connection.execute("SHOW search_path")).fetchone()
                await connection.execute(preparing.OWN_PATH)
                for name, register in types:
                    register(connection, await TypeInfo.fetch(connection, name))
                await connection.execute(preparing.RESTORED_PATH, before)
            del _unfinished[connection]


@dataclass(frozen=True)
class AsyncHashIndex(IndexRow):
    """An index that is searched on a psycopg.AsyncConnection; made by `open`, not by hand.

    Answers, errors, and what happens when the index is swapped are those of `HashIndex`, by which
    indexes are made and kept. Several tasks may search at the same time; psycopg sends what they
    ask on one connection one after another. What is computed in Python, the code of a query of an
    index that is encoded there, is computed in another thread.
    """

    connection: AsyncConnection

    @classmethod
    async def open(cls, connection: AsyncConnection, name: str) -> Self:
        """Find an index by its name; see `HashIndex.open`.

        Parameters
        ----------
        connection : psycopg.AsyncConnection
            Best in autocommit mode: a search is no transaction then.
        name : str

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        await prepare_async(connection)
        return await run_async(connection, find(cls, connection, name))

    @overload
    async def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        as_frame: Literal[False] = False,
        **asked: Unpack[Asked],
    ) -> list[Hit]: ...

    @overload
    async def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        as_frame: Literal[True],
        **asked: Unpack[Asked],
    ) -> pandas.DataFrame: ...

    async def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
        filter: str | None = None,  # noqa: A002
        as_frame: bool = False,
    ) -> Answers:
        """Find the nearest rows; see `HashIndex.search`."""
        steps = asking.search(
            self,
            query,
            k,
            as_frame,
            candidates=candidates,
            probes=probes,
            where=where,
            filter=filter,
        )
        return await run_async(self.connection, steps)

    @overload
    async def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        as_frame: Literal[False] = False,
        **asked: Unpack[Asked],
    ) -> list[Hit]: ...

    @overload
    async def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        as_frame: Literal[True],
        **asked: Unpack[Asked],
    ) -> pandas.DataFrame: ...

    async def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
        filter: str | None = None,  # noqa: A002
        as_frame: bool = False,
    ) -> Answers:
        """Find the rows nearest to another row; see `HashIndex.search_like`."""
        steps = asking.search_like(
            self,
            row_id,
            k,
            as_frame,
            candidates=candidates,
            probes=probes,
            where=where,
            filter=filter,
        )
        return await run_async(self.connection, steps)

    @overload
    async def within(
        self, query: ArrayLike | Vector, radius: int, *, as_frame: Literal[False] = False
    ) -> list[Hit]: ...

    @overload
    async def within(
        self, query: ArrayLike | Vector, radius: int, *, as_frame: Literal[True]
    ) -> pandas.DataFrame: ...

    async def within(
        self, query: ArrayLike | Vector, radius: int, *, as_frame: bool = False
    ) -> Answers:
        """Find every row within a Hamming radius; see `HashIndex.within`."""
        return await run_async(self.connection, asking.within(self, query, radius, as_frame))

    @overload
    async def within_like(
        self, row_id: Any, radius: int, *, as_frame: Literal[False] = False
    ) -> list[Hit]: ...

    @overload
    async def within_like(
        self, row_id: Any, radius: int, *, as_frame: Literal[True]
    ) -> pandas.DataFrame: ...

    async def within_like(self, row_id: Any, radius: int, *, as_frame: bool = False) -> Answers:
        """Find every row within a radius of another row's code; see `HashIndex.within_like`."""
        return await run_async(self.connection, asking.within_like(self, row_id, radius, as_frame))
