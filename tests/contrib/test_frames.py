"""Answers as data frames: the same ones, in columns of fixed types."""

import asyncio
import sys
import uuid
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from pg_hashindex import AsyncHashIndex, HashIndex
from pg_hashindex.contrib.pandas import to_frame
from pg_hashindex.db.connection import Connection
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.search import Hit
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

pandas = pytest.importorskip("pandas")


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


def test_every_way_to_ask(named: HashIndex, vectors: NDArray[np.float32], url: str) -> None:
    async def in_async() -> list[Hit]:
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


def test_without_an_answer_the_columns_are_there(
    named: HashIndex, vectors: NDArray[np.float32]
) -> None:
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
def test_keys_of_other_types(
    connection: Connection, model: Model, key_type: str, keys: list[Any], dtype: str
) -> None:
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


def test_where_pandas_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HashIndexError, match=r"pip install 'pg_hashindex\[pandas\]'"):
        to_frame([])
