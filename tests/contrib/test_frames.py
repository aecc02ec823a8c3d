"""Answers as data frames: the same ones, in columns of fixed types."""

import asyncio
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from pg_hashindex import AsyncHashIndex, HashIndex, search
from pg_hashindex.contrib import pandas as frames
from pg_hashindex.db.connection import Connection
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.search import Hit
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

pandas = pytest.importorskip("pandas")

Asking = Callable[..., Any]


@pytest.fixture
def named(connection: Connection, items: str, model: Model) -> HashIndex:
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name
    )
    index.encode()
    return index


def assert_frame(frame: Any, hits: list[Hit], id_dtype: str = "int64") -> None:
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["id", "distance"]
    assert [str(dtype) for dtype in frame.dtypes] == [id_dtype, "float64"]
    assert list(frame.index) == list(range(len(hits)))
    assert list(zip(frame["id"], frame["distance"], strict=True)) == hits


def asking(
    index: HashIndex, query: NDArray[np.float32], url: str
) -> list[tuple[Asking, tuple[Any, ...]]]:
    """Every way to ask, of both kinds of connection."""

    def in_async(method: str) -> Asking:
        async def ask(*arguments: Any, **more: Any) -> Any:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                opened = await AsyncHashIndex.open(connection, index.name)
                return await getattr(opened, method)(*arguments, **more)

        return lambda *arguments, **more: asyncio.run(ask(*arguments, **more))

    def by_name(*arguments: Any, **more: Any) -> Any:
        return search(index.connection, index.name, *arguments, **more)

    arguments = {
        "search": (query, 4),
        "search_like": (9, 4),
        "within": (query, 3),
        "within_like": (9, 3),
    }
    ways: list[tuple[Asking, tuple[Any, ...]]] = [(by_name, arguments["search"])]
    for method, given in arguments.items():
        ways += [(getattr(index, method), given), (in_async(method), given)]
    return ways


def test_every_way_to_ask(named: HashIndex, vectors: NDArray[np.float32], url: str) -> None:
    for ask, arguments in asking(named, vectors[3], url):
        hits = ask(*arguments)
        assert hits
        assert isinstance(hits, list)
        assert ask(*arguments, as_frame=False) == hits
        assert_frame(ask(*arguments, as_frame=True), hits)


def test_without_an_answer_the_columns_are_the_same(
    named: HashIndex, vectors: NDArray[np.float32]
) -> None:
    nothing = sa.column("category") == "none"
    assert_frame(named.search(vectors[3], where=nothing, as_frame=True), [])
    assert_frame(named.search_like(3, where=nothing, as_frame=True), [])
    named.connection.execute("DELETE FROM items WHERE id <> 3")
    assert_frame(named.within_like(3, 12, as_frame=True), [])


@pytest.mark.parametrize(
    ("key_type", "keys", "dtype"),
    [
        ("smallint", [-1, 2], "int64"),
        ("integer", [-(2**31), 2**31 - 1], "int64"),
        ("bigint", [-(2**63), 2**63 - 1], "int64"),
        ("text", ["a", "ü"], "object"),
        ("varchar(3)", ["a", "b"], "object"),
        ("uuid", [uuid.UUID(int=1), uuid.UUID(int=2)], "object"),
    ],
)
def test_keys_of_other_types(
    connection: Connection, model: Model, key_type: str, keys: list[Any], dtype: str
) -> None:
    connection.execute(f"CREATE TABLE keyed (k {key_type} PRIMARY KEY, v vector(8))".encode())
    index = HashIndex.create(connection, "keyed", table="keyed", column="v", model="lsh")
    query = [1.0] + [0.0] * 7
    assert_frame(index.search(query, as_frame=True), [], dtype)
    for key, first in zip(keys, (3, 6), strict=True):
        connection.execute("INSERT INTO keyed VALUES (%s, %s)", [key, f"[{first}{',0' * 7}]"])
    frame = index.search(query, as_frame=True)
    assert_frame(frame, [Hit(keys[0], 2.0), Hit(keys[1], 5.0)], dtype)
    assert all(
        type(found) is type(key) for found, key in zip(frame["id"].tolist(), keys, strict=True)
    )


def test_pandas_is_imported_beside_the_event_loop(
    named: HashIndex, vectors: NDArray[np.float32], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(frames, "check_pandas", lambda: threads.append(threading.current_thread()))

    async def ask() -> Any:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            opened = await AsyncHashIndex.open(connection, named.name)
            return await opened.search(vectors[3], 4, as_frame=True)

    assert_frame(asyncio.run(ask()), named.search(vectors[3], 4))
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_where_pandas_is_missing(
    named: HashIndex, vectors: NDArray[np.float32], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask, arguments in asking(named, vectors[3], url):
        assert ask(*arguments)
        with pytest.raises(HashIndexError, match=r"pip install 'pg_hashindex\[pandas\]'"):
            ask(*arguments, as_frame=True)
