"""An index on a psycopg.AsyncConnection: searched with asyncio, the same way as a `HashIndex`."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncRawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..db.connection import (
    TYPES,
    needs_types,
    refuse_kind,
    translated_errors,
    types_of,
)
from ..errors import HashIndexError
from ..models import store
from ..models.model import Model
from .catalog import IndexRow, read_row_async
from .search import Hit, Hybrid, HybridHit, Search, Searches, Within, is_outdated

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
                found = await (await connection.execute(TYPES)).fetchall()
                for info, register in types_of(connection, found):
                    register(connection, info)
            del _unfinished[connection]


class AsyncHashIndex(
    Searches[Coroutine[Any, Any, list[Hit]], Coroutine[Any, Any, list[HybridHit]]]
):
    """An index, searched on a psycopg.AsyncConnection; made by `open`, not by hand.

    Answers and errors are those of `HashIndex`, also after a swap; `HashIndex` makes and maintains
    indexes. Several tasks may search at the same time; on one connection psycopg sends their
    searches one after another. If Python encodes the queries of an index, it does so in another
    thread.
    """

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        self.connection = connection
        self.name = name
        self._row: IndexRow | None = None
        self._loading = asyncio.Lock()

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
        await index._read_row()
        return index

    async def _ask(self, asked: Search | Within | Hybrid) -> Any:
        """Run the one statement of a search, as `HashIndex` does."""
        row = self._row
        if row is None or asked.needs_row_of_now(row):
            row = await self._read_row()
        asked_again = False
        while True:
            try:
                binary = row.binary_ids
                with translated_errors(row):
                    cursor = AsyncRawCursor(self.connection, row_factory=tuple_row)
                    ready = asked
                    if asked.like:
                        # Not prepared: the column may be given another type.
                        await cursor.execute(*asked.row_statement(row), binary=binary)
                        ready = asked.at(row, await cursor.fetchall())
                    if ready.wants_code(row):
                        model = await self._model(row)
                        ready = await asyncio.to_thread(ready.encoded, row, model)
                    await cursor.execute(*ready.statement(row), prepare=True, binary=binary)
                    return ready.hits(await cursor.fetchall())
            except HashIndexError as error:
                if self.connection.info.transaction_status == TransactionStatus.INERROR:
                    raise
                now = await self._read_row()
                if now == row and (asked_again or not is_outdated(error)):
                    raise
                row, asked_again = now, now == row

    async def _read_row(self) -> IndexRow:
        row = await read_row_async(self.connection, self.name)
        self._row = row.after(self._row)
        return self._row

    async def _model(self, row: IndexRow) -> Model:
        """Read the model of the index once, also for several tasks."""
        async with self._loading:
            if "loaded_model" not in vars(row):
                vars(row)["loaded_model"] = await store.load_async(self.connection, row.model_name)
        return row.loaded_model
