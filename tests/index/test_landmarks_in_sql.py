"""hashindex.build_landmarks: landmarks by SQL alone, in one transaction."""

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.roles import As
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex.db.connection import Connection
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model


@pytest.fixture
def index(connection: Connection, items: str, model: Model) -> HashIndex:
    """An index that is not encoded yet."""
    return HashIndex.create(
        connection,
        "items_idx",
        table="items",
        column="embedding",
        model=model.name,
        filter_columns=["category"],
    )


def build(connection: Connection) -> int:
    row = connection.execute("SELECT hashindex.build_landmarks('items_idx')").fetchone()
    assert row is not None
    return int(row[0])


def lists(connection: Connection) -> tuple[int, int, int]:
    """Count landmarks, codes, and codes whose landmark is not among them."""
    landmarks, codes = connection.execute(
        "SELECT landmark_table, code_table FROM hashindex.index"
    ).fetchone()  # type: ignore[misc]
    row = connection.execute(
        f'SELECT (SELECT count(*) FROM hashindex."{landmarks}"), count(*), count(*) FILTER '
        f'(WHERE l.landmark IS NULL) FROM hashindex."{codes}" c '
        f'LEFT JOIN hashindex."{landmarks}" l USING (landmark)'.encode()
    ).fetchone()
    assert row is not None
    return row  # type: ignore[return-value]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_it_encodes_and_builds(
    connection: Connection, items: str, model: Model, metric: str
) -> None:
    connection.execute(
        "SELECT hashindex.create_index('items_idx', 'items', 'embedding', 'lsh', metric => %s)",
        [metric],
    )
    assert build(connection) == 300
    landmarks, codes, lost = lists(connection)
    assert 4 <= landmarks <= 11
    assert (codes, lost) == (300, 0)
    shown = connection.execute(
        "SELECT access, building, probes, next_generation, trained_rows FROM hashindex.index"
    ).fetchone()
    assert shown == ("landmarks", None, 64, None, 300)
    assert_fresh(HashIndex.open(connection, "items_idx"))


def test_writes_afterwards_join_lists(
    connection: Connection, index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    build(connection)
    connection.execute("INSERT INTO items VALUES (1000, 'z', %s)", [Vector(vectors[0] * 1.01)])
    connection.execute("DELETE FROM items WHERE id = 1")
    assert lists(connection)[1:] == (300, 0)
    found = connection.execute(
        "SELECT id FROM hashindex.search('items_idx', %s, 1, filter => $$category = 'z'$$)",
        [Vector(vectors[0])],
    ).fetchall()
    assert found == [("1000",)]


def test_a_second_build_and_what_it_leaves(connection: Connection, index: HashIndex) -> None:
    build(connection)
    connection.execute("SELECT hashindex.drop_unused('items_idx')")
    connection.execute("DELETE FROM items WHERE id > 100")
    assert build(connection) == 100
    assert lists(connection)[1:] == (100, 0)
    left = connection.execute("SELECT hashindex.drop_unused('items_idx')").fetchall()
    assert len(left) == 4
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []


def test_rows_without_a_direction(connection: Connection, items: str, model: Model) -> None:
    """No mean of them is a landmark; then one that does not depend on the rows is."""
    connection.execute("UPDATE items SET embedding = array_fill(0, ARRAY[8])::vector")
    connection.execute(
        "SELECT hashindex.create_index("
        "'items_idx', 'items', 'embedding', 'lsh', metric => 'cosine')"
    )
    assert build(connection) == 300
    assert lists(connection)[:2] == (1, 300)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_reveal_none(connection: Connection, index: HashIndex, rows: int) -> None:
    connection.execute("DELETE FROM items WHERE id > %s", [rows])
    assert build(connection) == rows
    assert lists(connection) == (1, rows, 0)


def test_no_row(connection: Connection, index: HashIndex) -> None:
    connection.execute("TRUNCATE items")
    with pytest.raises(psycopg.Error, match="no row to train landmarks on"):
        build(connection)
    assert connection.execute("SELECT access FROM hashindex.index").fetchone() == ("scan",)


def test_an_index_with_its_codes_in_a_column(
    connection: Connection, items: str, model: Model
) -> None:
    connection.execute(
        "SELECT hashindex.create_index("
        "'items_idx', 'items', 'embedding', 'lsh', layout => 'column')"
    )
    with pytest.raises(psycopg.Error, match="landmarks need them in a table"):
        build(connection)


def test_a_snapshot_that_would_miss_rows(connection: Connection, index: HashIndex) -> None:
    with (
        pytest.raises(psycopg.Error, match="does not see those of later transactions"),
        connection.transaction(),
    ):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        build(connection)


def test_another_role(connection: Connection, index: HashIndex, as_role: As) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        build(as_role("reader"))


def test_an_unknown_index(connection: Connection) -> None:
    with pytest.raises(psycopg.Error, match='index "items_idx" does not exist'):
        build(connection)
