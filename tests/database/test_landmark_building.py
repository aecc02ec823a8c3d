"""Landmarks are built, given up, taken over from, and their lists brought into order."""

from typing import Any

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.landmarks import assert_listed, entries, relations, wanted
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import listing, store
from pg_hashindex.database import Connection
from pg_hashindex.errors import DatabaseStateError, InUseError, InvalidInputError
from pg_hashindex.index import HashIndex
from pg_hashindex.landmarks import Landmarks
from pg_hashindex.model import Model


@pytest.fixture
def index(listed: HashIndex) -> HashIndex:
    return listed


def test_a_run_that_was_cut_off_goes_on(
    connection: Connection, items: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    monkeypatch.setattr(listing, "_BATCH_ROWS", 100)
    assign, done = Landmarks.assign, []

    def failing(self: Landmarks, X: Any) -> NDArray[np.intp]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(len(X))
        return assign(self, X)

    monkeypatch.setattr(Landmarks, "assign", failing)
    with pytest.raises(KeyboardInterrupt):
        index.encode()
    index = HashIndex.open(connection, "items_idx")
    assert (index.access, index.building) == ("scan", "landmarks")
    # Meanwhile searches go on, and what is written is listed.
    assert len(index.search(np.ones(8), 5)) == 5
    connection.execute("INSERT INTO items VALUES (9000, 'a', '[1,1,1,1,1,1,1,1]')")
    connection.execute("DELETE FROM items WHERE id IN (3, 250)")
    read: list[int] = []

    def counting(self: Landmarks, X: Any) -> NDArray[np.intp]:
        read.append(len(X))
        return assign(self, X)

    monkeypatch.setattr(Landmarks, "assign", counting)
    assert index.encode() == 0
    # 100 rows of before, of which one went since, and the new one.
    assert sum(read) == 100
    monkeypatch.undo()
    index = HashIndex.open(connection, "items_idx")
    assert index.access == "landmarks"
    assert_listed(index)


def test_an_empty_table_has_nothing_to_train_on(connection: Connection, model: Model) -> None:
    connection.execute("CREATE TABLE nothing (id int PRIMARY KEY, v vector(8))")
    index = HashIndex.create(
        connection, "n", table="nothing", column="v", model=model.name, access="landmarks"
    )
    assert index.encode() == 0
    index = HashIndex.open(connection, "n")
    assert (index.access, index.building) == ("scan", "landmarks")
    assert index.search(np.ones(8)) == []
    connection.execute("INSERT INTO nothing VALUES (1, '[1,2,3,4,5,6,7,8]')")
    index.encode()
    index = HashIndex.open(connection, "n")
    assert index.access == "landmarks"
    assert [hit.id for hit in index.search(np.ones(8))] == [1]


def test_codes_in_a_column_have_no_lists(connection: Connection, items: str, model: Model) -> None:
    with pytest.raises(InvalidInputError, match=r"codes in a column.* layout table"):
        HashIndex.create(
            connection, "c", table=items, column="embedding", model=model.name,
            layout="column", access="landmarks",
        )  # fmt: skip
    row = connection.execute("SELECT count(*) FROM hashindex.index").fetchone()
    assert row == (0,)


def test_another_path_takes_the_lists_down(index: HashIndex) -> None:
    with pytest.raises(InvalidInputError, match="probes are of landmarks"):
        index.configure(access="scan", probes=3)
    index = index.configure(access="scan")
    assert (index.access, index.probes, index.trained_rows) == ("scan", None, None)
    assert relations(index.connection) == {"items_idx_codes", "items_idx_codes_pkey"}
    index.connection.execute("DELETE FROM items WHERE id < 100")
    index.connection.execute("INSERT INTO items VALUES (1, 'a', '[1,1,1,1,1,1,1,1]')")
    assert_fresh(index)
    assert index.lists() is None
    # And what was half built goes, too.
    index = index.configure(access="landmarks", probes=5)
    index.connection.execute("SELECT hashindex.create_landmarks('items_idx')")
    index = index.configure(access="hnsw")
    assert not any("list" in name or "landmark" in name for name in relations(index.connection))
    index.connection.execute("INSERT INTO items VALUES (2, 'a', '[1,1,1,1,1,1,1,2]')")
    assert_fresh(index)


def test_dropping_the_index_leaves_nothing(index: HashIndex) -> None:
    index.drop()
    assert relations(index.connection) == set()
    index.connection.execute("INSERT INTO items VALUES (9999, 'a', '[1,1,1,1,1,1,1,1]')")


def test_rows_encoded_in_python_are_listed(
    connection: Connection, items: str, known_model: Model, vectors: NDArray[np.float32]
) -> None:
    store.save(connection, known_model)
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model="known",
        access="landmarks",
    )  # fmt: skip
    assert index.encode() == 290
    index = HashIndex.open(connection, "items_idx")
    assert index.access == "landmarks"
    assert entries(index) == wanted(index)
    connection.execute("UPDATE items SET embedding = embedding WHERE id < 5")
    connection.execute("DELETE FROM hashindex.items_idx_codes WHERE id < 20")
    connection.execute("TRUNCATE hashindex.items_idx_lists")
    assert index.encode() == 19
    assert {key for _, key, _ in entries(index)} == set(range(1, 20))
    assert index.search(vectors[6], 1)[0].id == 7


def test_rebalance(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    connection = index.connection
    # All of them near one another, and so in the same lists.
    connection.execute(
        "INSERT INTO items SELECT n, 'close', ARRAY(SELECT 3 + 0.2 * sin(n * d) "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(10001, 12000) n"
    )
    connection.execute(
        "UPDATE items SET embedding = embedding + '[1,1,1,1,0,0,0,0]' WHERE id < 900"
    )
    before = index.lists()
    assert before is not None
    assert before.longest >= 1500
    assert before.chunks > before.landmarks
    done = index.rebalance()
    after = index.lists()
    assert after is not None
    # Rows that moved without another code, of 12 bits, stay in their old lists too.
    assert after.stale == 0
    assert 10_000 <= after.entries < 10_500
    assert done.stale == before.entries - after.entries >= before.stale > 1_000
    assert done.split > 0
    assert after.landmarks == before.landmarks + done.landmarks
    assert after.longest < before.longest / 3
    assert after.chunks <= after.landmarks
    assert_fresh(index)
    assert {key for _, key, _ in entries(index)} == {
        row[0] for row in connection.execute("SELECT id FROM items").fetchall()
    }
    for query in vectors[:3]:
        exact = connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 9)",
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 9, candidates=9000, probes=1000) == exact
    again = index.rebalance()
    assert again.stale == 0


def test_what_cannot_be_rebalanced(index: HashIndex, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('hashindex.access:items_idx', 0))")
        with pytest.raises(InUseError, match="built by another session"):
            index.rebalance()
    with (
        index.connection.transaction(),
        pytest.raises(InvalidInputError, match="many transactions"),
    ):
        index.rebalance()
    plain = index.configure(access="scan")
    with pytest.raises(InvalidInputError, match="has the access path scan"):
        plain.rebalance()


def test_listing_begins_when_bulk_encoding_has_committed(index: HashIndex, url: str) -> None:
    """Or codes that it is about to commit would be in no list."""
    with psycopg.connect(url) as encoder:
        encoder.execute("DELETE FROM hashindex.items_idx_codes WHERE id = 7")
        index.connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            index.connection.execute("SELECT hashindex.begin_listing('items_idx')")


def test_a_path_that_was_given_up_is_not_gone_on_with(
    connection: Connection, items: str, model: Model, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    train = listing.train_landmarks

    def interrupted(*arguments: Any, **options: Any) -> NDArray[np.float32]:
        with psycopg.connect(url) as other:
            other.execute("SELECT hashindex.configure_index('items_idx', 'scan')")
        return train(*arguments, **options)

    monkeypatch.setattr(listing, "train_landmarks", interrupted)
    with pytest.raises(DatabaseStateError, match="configured otherwise while its landmarks"):
        index.encode()
    assert relations(connection) == {"items_idx_codes", "items_idx_codes_pkey"}
