"""Lists of landmarks are kept by triggers, whatever is written and by whom."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.indexes import begin_lists, indexed, with_access
from fixtures.landmarks import assert_listed, entries, landmarks_of, nearest_landmarks, tables_of
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model


@pytest.fixture
def index(listed):
    return listed


def test_triggers_assign_as_python_does(index, vectors):
    """If two landmarks are as near, or the graph leads to another, the next ones will do."""
    index.connection.execute("UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id <= 300")
    for number, vector in enumerate(vectors, 1):
        index.connection.execute(
            "UPDATE items SET embedding = %s WHERE id = %s", [Vector(vector), number]
        )
    listed, nearest = entries(index), nearest_landmarks(index, vectors, 3)
    own = [listed[number] for number in range(1, len(vectors) + 1)]
    assert all(mine in near for mine, near in zip(own, nearest.tolist(), strict=True))
    assert sum(mine == near[0] for mine, near in zip(own, nearest.tolist(), strict=True)) >= 295


def test_written_files_are_listed(index):
    connection = index.connection
    changed = "UPDATE items SET embedding = embedding + '[1,0,0,2,0,0,0,-3]' WHERE id % 50 = 1"
    for statement in (
        "INSERT INTO items SELECT n, 'new', ARRAY(SELECT cos(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(5001, 5040) n",
        "INSERT INTO items VALUES (6000, 'none', NULL)",
        changed,
        changed,
        "UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 6000",
        "UPDATE items SET category = 'other' WHERE id < 1000",
        "UPDATE items SET id = id + 10000 WHERE id BETWEEN 5001 AND 5010",
        "DELETE FROM items WHERE id % 10 = 3",
    ):
        connection.execute(statement.encode())
        assert_listed(index)
    with connection.cursor().copy("COPY items (id, embedding) FROM STDIN") as copy:
        for number in range(20000, 20010):
            copy.write_row((number, f"[{number % 9},1,1,1,1,1,1,1]"))
    assert_listed(index)
    connection.execute("TRUNCATE items")
    assert entries(index) == {}
    assert index.search(np.ones(8)) == []


def test_an_update_of_another_column_lists_nothing(index):
    written = f"SELECT id, xmin::text, ctid::text FROM hashindex.{tables_of(index)[0]} ORDER BY id"
    before = index.connection.execute(written.encode()).fetchall()
    index.connection.execute("UPDATE items SET category = 'b'")
    assert index.connection.execute(written.encode()).fetchall() == before


@pytest.mark.usefixtures("list_roles")
def test_rights_of_the_table_cover_the_lists(connection, items, model):
    connection.execute("GRANT SELECT ON items TO list_reader")
    connection.execute("GRANT SELECT, INSERT, DELETE, TRUNCATE ON items TO list_writer")
    index = indexed(connection, access="lists")
    connection.execute("SET ROLE list_reader")
    assert len(index.search(np.ones(8), 5)) == 5
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"DELETE FROM hashindex.{tables_of(index)[0]}".encode())
    connection.execute("SET ROLE list_writer")
    connection.execute("INSERT INTO items VALUES (9999, 'a', '[1,1,1,1,1,1,1,1]')")
    assert index.search(np.ones(8), 1)[0].id == 9999
    connection.execute("TRUNCATE items")
    connection.execute("RESET ROLE")
    assert entries(index) == {}


def test_a_writer_with_a_snapshot_from_before_the_landmarks(connection, items, model, url):
    """It does not see them, and so could not list what it writes."""
    index = indexed(connection)
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM items")
        with_access(index, "lists")
        with pytest.raises(psycopg.errors.SerializationFailure, match="built again since"):
            old.execute("INSERT INTO items VALUES (9999, 'z', '[1,1,1,1,1,1,1,1]')")
        old.rollback()
        old.execute("INSERT INTO items VALUES (9999, 'z', '[1,1,1,1,1,1,1,1]')")
    assert_listed(index)


def test_a_snapshot_from_before_the_model_spoils_no_later_write(connection, items, model, url):
    """A session's plans must not keep, folded in, that the model was not there."""
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pg_class")
        again = store.save(connection, Model("late", "byhand", 8, model.layers))
        index = indexed(connection, "late", model=again.name)
        write = "INSERT INTO items VALUES (%s, 'z', '[1,1,1,1,1,1,1,1]')"
        with pytest.raises(
            psycopg.errors.SerializationFailure, match="visible to this|altered since"
        ):
            old.execute(write, [9000])
        old.rollback()
        old.execute(write, [9001])
    assert_fresh(index)


@pytest.mark.parametrize("scale", [1e-20, 1e6])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_vectors_that_a_halfvec_cannot_hold(connection, model, scale, metric):
    """They are written and searched as without landmarks; by direction they are listed rightly."""
    connection.execute("CREATE TABLE sized (id int PRIMARY KEY, v vector(8))")
    fill = (
        "INSERT INTO sized SELECT n, ARRAY(SELECT sin(n * d) * %s::real "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(%s::int, %s::int) n"
    )
    connection.execute(fill, [1, 1, 1500])
    index = begin_lists(
        connection, "items_idx", table="sized", column="v", model=model.name, metric=metric,
        access="lists",
    )  # fmt: skip
    index.encode()
    connection.execute(fill, [scale, 2001, 2100])
    index = HashIndex.open(connection, "items_idx")
    row = connection.execute("SELECT v FROM sized WHERE id = 2050").fetchone()
    hits = index.search(row[0], 3, effort=8, candidates=400)
    assert len(hits) == 3
    if metric == "cosine":
        assert hits[0].id == 2050
        assert hits[0].distance == pytest.approx(0, abs=1e-6)


def test_a_build_lists_long_vectors_as_triggers_do(connection):
    """A halfvec holds 65504 at most, so the direction of a longer vector is compared."""
    X = np.random.default_rng(5).standard_normal((600, 8)).astype(np.float32)
    X[::2] *= 1e6
    store.save(connection, LSH(n_bits=8, random_state=1).fit(X).to_model("long"))
    connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO items VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(X)]
        )
    index = indexed(connection, model="long", access="lists")
    points = store.load(connection, "long").project(X).astype(np.float64)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    points = np.where(lengths < 65504, points, points / lengths)
    landmarks = landmarks_of(index)
    nearest = np.linalg.norm(points[:, None] - landmarks[None], axis=2).argsort(axis=1)[:, :3]
    listed = entries(index)
    assert sum(listed[n] in nearest[n] for n in range(600)) > 570
    assert sum(index.search(v, 1, effort=3)[0].id == n for n, v in enumerate(X[:40])) > 36


def test_a_writer_s_effort_does_not_decide_how_rows_are_listed(index):
    index.connection.execute("SET hnsw.ef_search = 1")
    index.connection.execute(
        "INSERT INTO items SELECT n, 'new', ARRAY(SELECT cos(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(5001, 5200) n"
    )
    assert_listed(index)
    assert index.connection.execute("SHOW hnsw.ef_search").fetchone() == ("1",)


@pytest.mark.newest
def test_a_writer_that_waits_meets_its_landmarks(index, url):
    """Its trigger has begun, and is yet to read them, as they are to be dropped."""
    codes, _ = tables_of(index)

    def waiting():
        (n,) = index.connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchone()
        return n

    with (
        connect(url) as holder,
        connect(url) as writer,
        connect(url) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        holder.execute("BEGIN")
        holder.execute(f'SELECT FROM hashindex."{codes}" WHERE id = 5 FOR UPDATE'.encode())
        write = "UPDATE items SET embedding = NULL WHERE id = 5"
        written = threads.submit(writer.execute, write)
        eventually(lambda: waiting() == 1)
        scanned = HashIndex.open(other, "items_idx")
        done = threads.submit(lambda: with_access(scanned, "scan"))
        eventually(lambda: done.done() or waiting() == 2)
        holder.execute("COMMIT")
        assert (written.result().rowcount, done.result().access) == (1, "scan")
    assert_fresh(HashIndex.open(index.connection, "items_idx"))
