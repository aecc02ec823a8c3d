"""An index on a psycopg.AsyncConnection: searched with asyncio, the same way as a `HashIndex`."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self
from weakref import WeakKeyDictionary

import psycopg

from ..db.connection import needs_types, refuse_kind, register_types
from ..db.server_errors import translated_errors
from ..db.statements import run_async
from .search import Hit, HybridHit, Searches

AsyncConnection = psycopg.AsyncConnection[Any]

# Connections on which types are being registered, or where that was interrupted between two of
# them. Tasks register one after another, since their transaction blocks on one connection would
# nest.
_unfinished: WeakKeyDictionary[AsyncConnection, asyncio.Lock] = WeakKeyDictionary()


async def prepare_async(connection: AsyncConnection) -> None:
    """Check the server and register pgvector's types, as `pg_hashindex.db.connection.prepare` does.

    Does nothing the second time. The first time it opens a transaction block, during which no other
    task may open one on this connection.
    """
    refuse_kind(connection, psycopg.Connection)
    with translated_errors():
        needed = needs_types(connection, connection.row_factory)
        if not needed and connection not in _unfinished:
            return
        async with _unfinished.setdefault(connection, asyncio.Lock()):
            if connection not in _unfinished:
                return
            async with connection.transaction():
                await run_async(connection, register_types(connection))
            del _unfinished[connection]


class AsyncHashIndex(
    Searches[Coroutine[Any, Any, list[Hit]], Coroutine[Any, Any, list[HybridHit]]]
):
    """An index, searched on a psycopg.AsyncConnection; made by `open`, not by hand.

    Answers and errors are those of `HashIndex`, also after a swap; `HashIndex` makes and maintains
    indexes. Several tasks may search at the same time; on one connection psycopg sends their
    searches one after another.
    """

    _run: Any = staticmethod(run_async)

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        self.connection = connection
        self.name = name
        self._row = None

    @classmethod
    async def open(cls, connection: AsyncConnection, name: str) -> Self:
        """Find an index by its name; see `HashIndex.open`.

        Parameters
        ----------
        connection
            Best in autocommit mode, where a search leaves no transaction open.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        await prepare_async(connection)
        index = cls(connection, name)
        await run_async(connection, index._row_steps())
        return index
