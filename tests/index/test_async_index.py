"""Searching with asyncio: the answers and errors of a HashIndex, by several tasks, and cut off."""

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.known import OTHERS, UNKNOWN
from psycopg.rows import dict_row

from pg_hashindex import AsyncHashIndex, operations, store
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
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows

pytestmark = pytest.mark.newest

#: The name of a method, and its arguments.

ITEMS = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)
OTHER_TABLE = sa.Table("others", sa.MetaData(), sa.Column("id", sa.BigInteger))
Result = TypeVar("Result")


def in_time(work):
    """Run a coroutine; one that blocks its own event loop, or waits for itself, fails."""

    async def limited():
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(limited())


@asynccontextmanager
async def opened(url):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield await AsyncHashIndex.open(connection, "items_idx")


def outcomes(index, questions):
    """Return the answers of each search, or the error's class and text."""
    found = []
    for method, arguments, more in questions:
        try:
            found.append(getattr(index, method)(*arguments, **more))
        except HashIndexError as error:
            found.append((type(error), str(error), type(error.__cause__)))
    return found


async def async_outcomes(index, questions):
    found = []
    for method, arguments, more in questions:
        try:
            found.append(await getattr(index, method)(*arguments, **more))
        except HashIndexError as error:
            found.append((type(error), str(error), type(error.__cause__)))
    return found


def asked_anew(url, questions):
    async def ask():
        async with opened(url) as index:
            return await async_outcomes(index, questions)

    return in_time(ask())


@pytest.fixture
def made(connection, items, model):
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name
    )
    index.encode()
    return index


@pytest.mark.parametrize("access", ["scan", "landmarks"])
def test_answers_are_those_of_a_hash_index(made, url, vectors, access):
    made.configure(access=access).encode()
    query = vectors[3] + np.float32(0.2)
    # Between all candidates the exact distance decides.
    far = np.linalg.norm(vectors - query, axis=1)
    exact = (np.argsort(far, kind="stable")[:7] + 1).tolist()
    questions = [
        ("search", (query, 7), {"candidates": 300, "probes": 1000}),
        ("search", (query.tolist(),), {}),
        ("search", (query, 3), {"candidates": 5, "probes": 2}),
        ("search", (query, 400), {"filter": "category <> 'c'"}),
        ("search", (query,), {"where": ITEMS.c.category == "b", "candidates": 20}),
        ("search", (query,), {"where": ITEMS.c.id.in_([4, 7, 9])}),
        ("search", (query,), {"where": ITEMS.c.category == "none"}),
        ("search_like", (9, 4), {"candidates": 10}),
        ("search_like", ("9",), {"where": ITEMS.c.category != "c"}),
        ("within", (query, 4), {}),
        ("within_like", (9, 3), {}),
        ("within_like", ("9", 0), {}),
    ]
    expected = outcomes(HashIndex.open(made.connection, "items_idx"), questions)
    assert [hit.id for hit in expected[0]] == exact
    assert all(isinstance(answers, list) for answers in expected)
    assert asked_anew(url, questions) == expected


def test_errors_are_those_of_a_hash_index(made, url, vectors):
    query = vectors[0]
    questions = [
        ("search", (query[:7],), {}),
        ("search", ([np.nan] * 8,), {}),
        ("search", (query, 0), {}),
        ("search", (query, "5"), {}),
        ("search", (query,), {"candidates": 0}),
        ("search", (query,), {"probes": 2.5}),
        ("search", (query,), {"filter": "absent = 1"}),
        ("search", (query,), {"where": "category = 'b'"}),
        ("search", (query,), {"where": OTHER_TABLE.c.id == 1}),
        ("search", (query,), {"where": sa.column("absent") == 1}),
        ("search", (query,), {"where": ITEMS.c.id / 0 == 1}),
        ("search_like", (5000,), {}),
        ("search_like", ("nine",), {}),
        ("search_like", (9, 0), {}),
        ("within", (query, 13), {}),
        ("within", (query, "4"), {}),
        ("within_like", (5000, 3), {}),
    ]
    expected = outcomes(made, questions)
    assert all(issubclass(error[0], HashIndexError) for error in expected)
    assert asked_anew(url, questions) == expected
    made.connection.execute("ALTER TABLE items RENAME COLUMN embedding TO moved")
    broken = outcomes(made, questions[-1:])
    assert "index check items_idx" in broken[0][1]
    assert asked_anew(url, questions[-1:]) == broken


def test_connections_that_cannot_serve(made, url, empty_url, make_database):
    bare = make_database("template1")

    def refused(kind, *connecting, **options):
        async def open_it():
            async with await psycopg.AsyncConnection.connect(*connecting, **options) as connection:
                await AsyncHashIndex.open(connection, "absent")

        with pytest.raises(kind) as caught:
            in_time(open_it())
        return str(caught.value)

    def refused_blocking(kind, *connecting, **options):
        with psycopg.connect(*connecting, **options) as connection:
            with pytest.raises(kind) as caught:
                HashIndex.open(connection, "absent")
        return str(caught.value)

    for kind, connecting, options in (
        (UnknownIndexError, url, {}),
        (InvalidInputError, url, {"row_factory": dict_row}),
        (MissingSchemaError, empty_url, {}),
        (MissingExtensionError, bare, {}),
    ):
        assert refused(kind, connecting, **options) == refused_blocking(kind, connecting, **options)

    async def mixed_up():
        with pytest.raises(InvalidInputError, match="AsyncHashIndex needs a psycopg.AsyncConn"):
            await AsyncHashIndex.open(made.connection, "items_idx")  # type: ignore[arg-type]
        async with opened(url) as index:
            with pytest.raises(InvalidInputError, match="search on it with AsyncHashIndex"):
                HashIndex.open(index.connection, "items_idx")  # type: ignore[arg-type]
            await index.connection.close()
            with pytest.raises(ConnectionFailedError, match="the connection is closed"):
                await index.search([1.0] * 8)
        closed = await psycopg.AsyncConnection.connect(url)
        await closed.close()
        with pytest.raises(ConnectionFailedError, match="the connection is closed"):
            await AsyncHashIndex.open(closed, "items_idx")

    in_time(mixed_up())


def test_an_open_that_was_cut_off_can_be_repeated(encoded, url, monkeypatch):
    """Not all types are registered then, of which some searches need the others."""
    expected = encoded.search(OTHERS[0])

    register = connections.register_vector_info

    def cut_off(*arguments):
        register(*arguments)
        raise asyncio.CancelledError

    async def ask():
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            with monkeypatch.context() as patch:
                patch.setattr(connections, "register_bit_info", lambda *_: None)
                patch.setattr(connections, "register_vector_info", cut_off)
                with pytest.raises(asyncio.CancelledError):
                    await AsyncHashIndex.open(connection, "items_idx")
            assert connection.adapters.types.get("vector") is not None
            index = await AsyncHashIndex.open(connection, "items_idx")
            # The code of the query goes as a Bit.
            assert await index.search(OTHERS[0]) == expected

    in_time(ask())


def test_in_a_transaction_and_without_pgvector_on_the_path(made, url, vectors):
    """Neither autocommit nor pgvector's types: a connection as psycopg gives it."""
    expected = made.search(vectors[0])

    async def ask():
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("SET search_path TO nowhere")
            index = await AsyncHashIndex.open(connection, "items_idx")
            assert await index.search(vectors[0]) == expected
            path = await (await connection.execute("SHOW search_path")).fetchone()
            assert path == ("nowhere",)
            with pytest.raises(InvalidInputError):
                await index.search(vectors[0], filter="absent = 1")
            await connection.rollback()
            assert await index.search(vectors[0]) == expected

    in_time(ask())


def test_several_tasks_on_one_connection(made, url, vectors):
    condition = ITEMS.c.category == "a"
    expected = [made.search(query, 5, where=condition) for query in vectors[:20]]

    async def ask():
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
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

    in_time(ask())


def test_a_task_that_is_cancelled_leaves_the_connection_in_order(made, other, url, vectors):
    expected = made.search(vectors[0])

    async def waiting(pid):
        row = made.connection.execute(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]
        ).fetchone()
        await asyncio.sleep(0.01)
        return row == (True,)

    async def ask():
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

    in_time(ask())


def test_a_swap_is_followed(made, url, vectors, connection):
    questions = [
        ("search", (vectors[5], 4), {"candidates": 10}),
        ("search", (vectors[5], 4), {"candidates": 10, "where": ITEMS.c.category == "c"}),
        ("search_like", (5,), {}),
        ("within", (vectors[5], 3), {}),
        ("within_like", (5, 3), {}),
    ]

    async def ask():
        async with opened(url) as index:
            before = await async_outcomes(index, questions)
            assert before == outcomes(made, questions)
            # Twice as many bits: 20 of them are a radius now, and were none.
            store.save(connection, LSH(n_bits=24, random_state=5).fit(vectors).to_model("longer"))
            operations.swap(made, "longer", force=True, queries=20)
            more = [*questions, ("within", (vectors[5], 20), {})]
            now = HashIndex.open(connection, "items_idx")
            assert now.n_bits == 24
            assert await async_outcomes(index, more) == outcomes(now, more)
            assert isinstance(outcomes(now, more)[-1], list)
            now.drop()
            with pytest.raises(UnknownIndexError, match="does not exist"):
                await index.search_like(5)
            with pytest.raises(HashIndexError) as gone:
                await index.search(vectors[5])
            with pytest.raises(HashIndexError) as gone_blocking:
                now.search(vectors[5])
            assert str(gone.value) == str(gone_blocking.value)

    in_time(ask())


@pytest.fixture
def reads(monkeypatch):
    """The models that were read since."""
    load_steps, read = store.load_steps, []

    def watched(reference):
        read.append(reference)
        return load_steps(reference)

    monkeypatch.setattr(store, "load_steps", watched)
    return read


def test_codes_that_are_computed_in_python(encoded, url):
    questions = [
        *(("search", (query, 5), {"candidates": 25}) for query in OTHERS[:10]),
        ("search", (OTHERS[0],), {"where": ITEMS.c.category == "b"}),
        ("search", (OTHERS[15],), {}),
        ("search_like", (7,), {"candidates": 40}),
        ("search_like", (UNKNOWN[0],), {}),
        ("within", (OTHERS[0], 4), {}),
        ("within_like", (7, 4), {}),
    ]
    expected = outcomes(encoded, questions)
    assert expected[11][0] is InvalidInputError
    assert asked_anew(url, questions) == expected


def test_the_model_is_read_once_by_all_tasks(encoded, url, reads, lsh_model, vectors):
    """Also the one that a swap brought, which all of them meet."""
    rows = np.concatenate([vectors[: UNKNOWN[0] - 1], OTHERS[:10]])
    # Codes that are all turned rank as they did; by the old code of a query nothing would be near.
    turned = np.packbits(1 - np.unpackbits(lsh_model.encode(rows), axis=1)[:, :12], axis=1)
    model = Model("turned", "byhand", 8, (), network=known_rows(rows, turned, 12))
    expected = [encoded.search(query, 5, candidates=20) for query in OTHERS[:10]]

    async def ask():
        async with opened(url) as index:

            async def search_all():
                return await asyncio.gather(
                    *(index.search(query, 5, candidates=20) for query in OTHERS[:10])
                )

            reads.clear()
            await index.search_like(7)
            assert reads == []
            assert await search_all() == expected
            assert reads == ["known:1"]
            store.save(encoded.connection, model)
            operations.swap(encoded, "turned", force=True, queries=20)
            reads.clear()
            assert await search_all() == expected
            assert reads == ["turned:1"]

    in_time(ask())


def test_the_event_loop_goes_on_while_a_model_computes(encoded, url, monkeypatch):
    """Slow functions wait here for another task: on the loop they would wait for ever."""
    going_on = threading.Event()
    waited = []

    def waiting(function):
        def wrapped(*arguments, **more):
            waited.append(going_on.wait(10))
            going_on.clear()
            return function(*arguments, **more)

        return wrapped

    monkeypatch.setattr(Model, "encode", waiting(Model.encode))
    monkeypatch.setattr(Network, "from_parts", waiting(Network.from_parts))

    async def ask():
        async with opened(url) as index:
            done = asyncio.Event()

            async def others():
                while not done.is_set():
                    going_on.set()
                    await asyncio.sleep(0.01)

            beside = asyncio.create_task(others())
            assert len(await index.search(OTHERS[0], 3)) == 3
            done.set()
            await beside

    in_time(ask())
    assert waited == [True, True]
