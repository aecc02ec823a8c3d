"""hashindex.build_landmarks: landmarks by SQL alone, in one transaction."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.indexes import create_index
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex


@pytest.fixture
def index(connection, items, model):
    """An index that is not encoded yet."""
    return create_index(connection, filter_columns=["category"])


def build(connection):
    row = connection.execute("SELECT hashindex.build_landmarks('items_idx')").fetchone()
    return int(row[0])


def lists(connection):
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
def test_it_encodes_and_builds(connection, items, model, metric):
    connection.execute(
        "SELECT hashindex.create_index('items_idx', 'items', 'embedding', 'lsh', metric => %s)",
        [metric],
    )
    assert build(connection) == 300
    landmarks, codes, lost = lists(connection)
    assert 4 <= landmarks <= 16
    assert (codes, lost) == (300, 0)
    shown = connection.execute(
        "SELECT access, building, probes, next_generation, trained_rows FROM hashindex.index"
    ).fetchone()
    assert shown == ("landmarks", None, 80, None, 300)
    assert_fresh(HashIndex.open(connection, "items_idx"))


def test_writes_afterwards_join_lists(connection, index, vectors):
    build(connection)
    connection.execute("INSERT INTO items VALUES (1000, 'z', %s)", [Vector(vectors[0] * 1.01)])
    connection.execute("DELETE FROM items WHERE id = 1")
    assert lists(connection)[1:] == (300, 0)
    found = connection.execute(
        "SELECT id FROM hashindex.search('items_idx', %s, 1, filter => $$category = 'z'$$)",
        [Vector(vectors[0])],
    ).fetchall()
    assert found == [("1000",)]


def test_a_second_build_and_what_it_leaves(connection, index):
    build(connection)
    connection.execute("SELECT hashindex.drop_unused('items_idx')")
    connection.execute("DELETE FROM items WHERE id > 100")
    assert build(connection) == 100
    assert lists(connection)[1:] == (100, 0)
    left = connection.execute("SELECT hashindex.drop_unused('items_idx')").fetchall()
    assert len(left) == 5
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []


def test_rows_without_a_direction(connection, items, model):
    """No mean of them is a landmark; then one that does not depend on the rows is."""
    connection.execute("UPDATE items SET embedding = array_fill(0, ARRAY[8])::vector")
    connection.execute(
        "SELECT hashindex.create_index("
        "'items_idx', 'items', 'embedding', 'lsh', metric => 'cosine')"
    )
    assert build(connection) == 300
    assert lists(connection)[:2] == (1, 300)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_reveal_none(connection, index, rows):
    connection.execute("DELETE FROM items WHERE id > %s", [rows])
    assert build(connection) == rows
    assert lists(connection) == (1, rows, 0)


def test_no_row(connection, index):
    connection.execute("TRUNCATE items")
    with pytest.raises(psycopg.Error, match="no row to train landmarks on"):
        build(connection)
    assert connection.execute("SELECT access FROM hashindex.index").fetchone() == ("scan",)


def test_a_snapshot_that_would_miss_rows(connection, index):
    with (
        pytest.raises(psycopg.Error, match="does not see rows that others write after it began"),
        connection.transaction(),
    ):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        build(connection)


def test_another_role(connection, index, as_role):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        build(as_role("reader"))


def test_a_swap_in_sql_alone(connection, index, vectors):
    """It says which statement builds landmarks again; another returns, and one drops the rest."""
    build(connection)
    store.save(connection, LSH(n_bits=16, random_state=1).fit(vectors).to_model("other"))
    said = []
    connection.add_notice_handler(lambda d: said.append((d.message_primary, d.message_hint)))
    connection.execute("SELECT hashindex.swap_model('items_idx', 'other')")
    assert said == [
        (
            'index "items_idx" is searched by its access path scan until landmarks are built',
            "Run: SELECT hashindex.build_landmarks('items_idx'); or for a large table: "
            "pg-hashindex index encode items_idx",
        )
    ]
    assert build(connection) == 300
    assert_fresh(HashIndex.open(connection, "items_idx"))
    connection.execute("SELECT hashindex.swap_model('items_idx', 'lsh')")
    assert HashIndex.open(connection, "items_idx").model_name == "lsh:1"
    connection.execute("SELECT hashindex.drop_unused('items_idx')")
    connection.execute(
        "SELECT hashindex.drop_index(name) FROM hashindex.index WHERE swap_of = 'items_idx'"
    )
    connection.execute("DELETE FROM hashindex.model WHERE name = 'other' AND version = 1")
    assert connection.execute("SELECT name FROM hashindex.index").fetchall() == [("items_idx",)]
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []
    assert_fresh(HashIndex.open(connection, "items_idx"))


def test_a_swap_waits_for_a_build_without_a_deadlock(url, connection, index, vectors):
    store.save(connection, LSH(n_bits=16, random_state=1).fit(vectors).to_model("other"))
    with psycopg.connect(url) as building, ThreadPoolExecutor(1) as pool:
        building.execute("SELECT hashindex.encode_rows('items_idx')")
        swapped = pool.submit(
            connection.execute, "SELECT hashindex.swap_model('items_idx', 'other')"
        )
        waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
        eventually(lambda: building.execute(waits).fetchone() == (True,))
        assert build(building) == 300
        building.commit()
        assert swapped.result().fetchone() == (True,)
    build(connection)
    assert_fresh(HashIndex.open(connection, "items_idx"))


def test_an_unknown_index(connection):
    with pytest.raises(psycopg.Error, match='index "items_idx" does not exist'):
        build(connection)
