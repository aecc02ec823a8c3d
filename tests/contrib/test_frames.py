"""Answers as data frames: the same ones, in columns of fixed types."""

import asyncio
import sys
import uuid

import psycopg
import pytest
import sqlalchemy as sa

from pg_hashindex import AsyncHashIndex, HashIndex
from pg_hashindex.contrib.pandas import to_frame
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.search import Hit

pytestmark = pytest.mark.newest

pandas = pytest.importorskip("pandas")


@pytest.fixture
def named(connection, items, model):
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name
    )
    index.encode()
    return index


def assert_frame(frame, hits, id_dtype="int64"):
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["id", "distance"]
    assert [str(dtype) for dtype in frame.dtypes] == [id_dtype, "float64"]
    assert list(frame.index) == list(range(len(hits)))
    assert list(zip(frame["id"], frame["distance"], strict=True)) == hits


def test_every_way_to_ask(named, vectors, url):
    async def in_async():
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await (await AsyncHashIndex.open(connection, named.name)).search(vectors[3], 4)

    for hits in (
        named.search(vectors[3], 4),
        named.search_like(9, 4),
        named.within(vectors[3], 3),
        named.within_like(9, 3),
        asyncio.run(in_async()),
    ):
        assert hits
        assert isinstance(hits, list)
        assert_frame(to_frame(hits), hits)


def test_without_an_answer_the_columns_are_there(named, vectors):
    nothing = named.search(vectors[3], where=sa.column("category") == "none")
    assert_frame(to_frame(nothing), [], "object")
    # It can be joined all the same.
    names = pandas.DataFrame({"id": [1], "name": ["a"]})
    assert to_frame(nothing).merge(names, on="id").empty


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
def test_keys_of_other_types(connection, model, key_type, keys, dtype):
    connection.execute(f"CREATE TABLE keyed (k {key_type} PRIMARY KEY, v vector(8))".encode())
    index = HashIndex.create(connection, "keyed", table="keyed", column="v", model="lsh")
    query = [1.0] + [0.0] * 7
    for key, first in zip(keys, (3, 6), strict=True):
        connection.execute("INSERT INTO keyed VALUES (%s, %s)", [key, f"[{first}{',0' * 7}]"])
    frame = to_frame(index.search(query))
    assert_frame(frame, [Hit(keys[0], 2.0), Hit(keys[1], 5.0)], dtype)
    assert all(
        type(found) is type(key) for found, key in zip(frame["id"].tolist(), keys, strict=True)
    )


def test_where_pandas_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HashIndexError, match=r"pip install 'pg_hashindex\[pandas\]'"):
        to_frame([])
