"""Searching with asyncio: the answers and errors of a HashIndex, by several tasks, and cut off."""

import asyncio
import inspect
from contextlib import asynccontextmanager

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.indexes import indexed
from fixtures.known import OTHERS
from psycopg.rows import dict_row

from pg_hashindex import AsyncHashIndex, store
from pg_hashindex.db import connection as connections
from pg_hashindex.errors import (
    ConnectionFailedError,
    HashIndexError,
    InvalidInputError,
    MissingExtensionError,
    MissingSchemaError,
    UnknownIndexError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

ITEMS = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


@asynccontextmanager
async def connected(url, **options):
    """A connection for 30 seconds: a search that waits for itself fails."""
    async with (
        asyncio.timeout(30),
        await psycopg.AsyncConnection.connect(url, **{"autocommit": True} | options) as connection,
    ):
        yield connection


@asynccontextmanager
async def opened(url):
    async with connected(url) as connection:
        yield await AsyncHashIndex.open(connection, "items_idx")


async def outcomes(index, questions):
    """Return the answers of an index of either kind, or the error's class, text and cause."""
    found = []
    for method, arguments, more in questions:
        try:
            answers = getattr(index, method)(*arguments, **more)
            found.append(await answers if inspect.isawaitable(answers) else answers)
        except HashIndexError as error:
            found.append((type(error), str(error), type(error.__cause__)))
    return found


@pytest.fixture
def made(connection, items, model):
    return indexed(connection, model=model.name)


async def test_answers_and_errors_are_those_of_a_hash_index(made, url, vectors):
    query = vectors[3] + np.float32(0.2)
    answered = [
        ("search", (query, 7), {"candidates": 300}),
        ("search", (query.tolist(),), {}),
        ("search", (query, 400), {"filter": "category <> 'c'"}),
        ("search", (query,), {"where": ITEMS.c.category == "b", "candidates": 20}),
        ("search_like", ("9",), {"where": ITEMS.c.category != "c"}),
        ("within", (query, 4), {}),
        ("within_like", ("9", 0), {}),
    ]
    refused = [
        ("search", (query[:7],), {}),
        ("search", (query, 0), {}),
        ("search", (query,), {"filter": "absent = 1"}),
        ("search", (query,), {"where": "category = 'b'"}),
        ("search", (query,), {"where": ITEMS.c.id / 0 == 1}),
        ("search_like", (5000,), {}),
        ("search_like", ("nine",), {}),
        ("within", (query, 13), {}),
        ("within_like", (5000, 3), {}),
    ]
    expected = await outcomes(made, answered + refused)
    assert [isinstance(found, list) for found in expected] == [True] * 7 + [False] * 9
    async with opened(url) as index:
        assert await outcomes(index, answered + refused) == expected
        made.connection.execute("ALTER TABLE items RENAME COLUMN embedding TO moved")
        broken = await outcomes(made, refused[-1:])
        assert "index check items_idx" in broken[0][1]
        assert await outcomes(index, refused[-1:]) == broken


async def test_connections_that_cannot_serve(made, url, empty_url, make_database):
    for kind, address, options in (
        (UnknownIndexError, url, {}),
        (InvalidInputError, url, {"row_factory": dict_row}),
        (MissingSchemaError, empty_url, {}),
        (MissingExtensionError, make_database("template1"), {}),
    ):
        with psycopg.connect(address, **options) as blocking, pytest.raises(kind) as expected:
            HashIndex.open(blocking, "absent")
        with pytest.raises(kind) as caught:
            async with connected(address, **options) as connection:
                await AsyncHashIndex.open(connection, "absent")
        assert str(caught.value) == str(expected.value)
    with pytest.raises(InvalidInputError, match="AsyncHashIndex needs a psycopg.AsyncConn"):
        await AsyncHashIndex.open(made.connection, "items_idx")  # type: ignore[arg-type]
    async with opened(url) as index:
        with pytest.raises(InvalidInputError, match="search on it with AsyncHashIndex"):
            HashIndex.open(index.connection, "items_idx")  # type: ignore[arg-type]
        await index.connection.close()
        with pytest.raises(ConnectionFailedError, match="the connection is closed"):
            await index.search([1.0] * 8)
        with pytest.raises(ConnectionFailedError, match="the connection is closed"):
            await AsyncHashIndex.open(index.connection, "items_idx")


async def test_an_open_that_was_cut_off_can_be_repeated(index, url, monkeypatch):
    """Not all types are registered then, of which some searches need the others."""
    expected = index.search(OTHERS[0])
    register = connections.register_vector_info

    def cut_off(*arguments):
        register(*arguments)
        raise asyncio.CancelledError

    async with connected(url) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(connections, "register_bit_info", lambda *_: None)
            patch.setattr(connections, "register_vector_info", cut_off)
            with pytest.raises(asyncio.CancelledError):
                await AsyncHashIndex.open(connection, "items_idx")
        assert connection.adapters.types.get("vector") is not None
        index = await AsyncHashIndex.open(connection, "items_idx")
        # The code of the query goes as a Bit.
        assert await index.search(OTHERS[0]) == expected


async def test_in_a_transaction_and_without_pgvector_on_the_path(made, url, vectors):
    """Neither autocommit nor pgvector's types: a connection as psycopg gives it."""
    expected = made.search(vectors[0])
    async with connected(url, autocommit=False) as connection:
        await connection.execute("SET search_path TO nowhere")
        index = await AsyncHashIndex.open(connection, "items_idx")
        assert await index.search(vectors[0]) == expected
        path = await (await connection.execute("SHOW search_path")).fetchone()
        assert path == ("nowhere",)
        with pytest.raises(InvalidInputError):
            await index.search(vectors[0], filter="absent = 1")
        await connection.rollback()
        assert await index.search(vectors[0]) == expected


async def test_several_tasks_on_one_connection(made, url, vectors):
    condition = ITEMS.c.category == "a"
    expected = [made.search(query, 5, where=condition) for query in vectors[:20]]
    async with connected(url) as connection:
        # Whichever comes first registers pgvector's types.
        indexes = await asyncio.gather(
            *(AsyncHashIndex.open(connection, "items_idx") for _ in range(4))
        )
        found = await asyncio.gather(
            *(
                indexes[place % 4].search(query, 5, where=condition)
                for place, query in enumerate(vectors[:20])
            )
        )
        assert found == expected


async def test_a_task_that_is_cancelled_leaves_the_connection_in_order(made, other, url, vectors):
    expected = made.search(vectors[0])

    async def waiting(pid):
        row = made.connection.execute(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]
        ).fetchone()
        await asyncio.sleep(0.01)
        return row == (True,)

    async with opened(url) as index:
        with other.transaction():
            other.execute("LOCK TABLE items")
            task = asyncio.create_task(index.search(vectors[0]))
            while not await waiting(index.connection.info.backend_pid):
                pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The server has given up too, and the connection waits for the next statement.
            await (await index.connection.execute("SELECT 1")).fetchone()
        assert await index.search(vectors[0]) == expected


async def test_a_swap_is_followed(made, url, vectors, connection):
    questions = [("search", (vectors[5], 4), {"candidates": 10}), ("within_like", (5, 3), {})]
    async with opened(url) as index:
        assert await outcomes(index, questions) == await outcomes(made, questions)
        # Twice as many bits: 20 of them are a radius now, and were none.
        store.save(connection, LSH(n_bits=24, random_state=5).fit(vectors).to_model("longer"))
        made.swap(model="longer", force=True)
        questions.append(("within", (vectors[5], 20), {}))
        now = HashIndex.open(connection, "items_idx")
        expected = await outcomes(now, questions)
        assert await outcomes(index, questions) == expected
        assert isinstance(expected[-1], list)
        now.drop()
        with pytest.raises(UnknownIndexError, match="does not exist"):
            await index.search_like(5)
        gone = await outcomes(now, questions[:1])
        assert issubclass(gone[0][0], HashIndexError)
        assert await outcomes(index, questions[:1]) == gone
