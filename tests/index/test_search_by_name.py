"""One search by an index's name."""

import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from pg_hashindex import HashIndex, search
from pg_hashindex.db.connection import Connection
from pg_hashindex.errors import InvalidInputError, UnknownIndexError

pytestmark = pytest.mark.newest


def test_the_answers_of_the_index(
    index: HashIndex, connection: Connection, vectors: NDArray[np.float32]
) -> None:
    far = np.linalg.norm(vectors - vectors[8], axis=1)
    exact = (np.argsort(far, kind="stable")[:10] + 1).tolist()
    found = search(connection, "items_idx", vectors[8], candidates=300)
    assert [hit.id for hit in found] == exact
    assert search(connection, "items_idx", vectors[8].tolist(), 3, candidates=300) == found[:3]
    category: sa.ColumnElement[str] = sa.column("category")
    for asked in (
        {"candidates": 5},
        {"candidates": 5, "where": category == "b"},
        {"candidates": 5, "filter": "category = 'b'"},
    ):
        expected = index.search(vectors[8], 4, **asked)
        assert search(connection, "items_idx", vectors[8], 4, **asked) == expected


def test_the_index_that_has_the_name_now(
    index: HashIndex, connection: Connection, vectors: NDArray[np.float32]
) -> None:
    index.drop()
    with pytest.raises(UnknownIndexError, match="index 'items_idx' does not exist; see those"):
        search(connection, "items_idx", vectors[0])
    connection.execute("CREATE TABLE two (id int PRIMARY KEY, embedding vector(8))")
    connection.execute("INSERT INTO two SELECT id, embedding FROM items WHERE id > 298")
    HashIndex.create(connection, "items_idx", table="two", column="embedding", model="lsh").encode()
    found = search(connection, "items_idx", vectors[299])
    assert [hit.id for hit in found] == [300, 299]


def test_errors_are_those_of_the_method(index: HashIndex, connection: Connection) -> None:
    for query, k in (([1.0] * 7, 10), ([1.0] * 8, 0)):
        with pytest.raises(InvalidInputError) as expected:
            index.search(query, k)
        with pytest.raises(InvalidInputError) as found:
            search(connection, "items_idx", query, k)
        assert str(found.value) == str(expected.value)
