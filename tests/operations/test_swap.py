"""An index changes its model while it is searched and written to."""

import re
import threading

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh, former, other_sets
from fixtures.faults import eventually
from fixtures.indexes import begin_lists
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim, retry_while_locked
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import (
    DatabaseStateError,
    InUseError,
    InvalidInputError,
    LowerRecallError,
    UnknownModelError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index.catalog import read_sets
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.index.landmarks.building import ListBuild
from pg_hashindex.models.layers import Layer
from pg_hashindex.models.model import Model


@pytest.fixture
def other(connection, vectors):
    """A model of more bits, and so of another kind of code."""
    return store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))


@pytest.fixture
def poor(connection):
    """A model that gives nearly all rows the same code."""
    weights = np.zeros((12, 8), np.float32)
    return store.save(
        connection, Model("poor", "byhand", 8, (Layer("affine", weights, np.ones(12, np.float32)),))
    )


@pytest.fixture
def in_table(connection, items, model):
    """An index whose swap needs no column in the user's table, and so no lock against readers."""
    index = begin_lists(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    return index


def reopened(index):
    return HashIndex.open(index.connection, index.name)


def brute_force(vectors, query, k):
    far = np.linalg.norm(vectors - query, axis=1)
    return (np.argsort(far, kind="stable")[:k] + 1).tolist()


def objects(connection):
    """All that an index consists of, apart from what is in its tables."""
    return set(
        connection.execute(
            """
            SELECT 'relation', c.oid::regclass::text FROM pg_class c
            WHERE c.relnamespace IN ('hashindex'::regnamespace, 'public'::regnamespace)
              AND c.relkind <> 'S'
            UNION ALL
            SELECT 'function', p.oid::regprocedure::text FROM pg_proc p
            WHERE p.pronamespace = 'hashindex'::regnamespace
            UNION ALL
            SELECT 'trigger', t.tgname || ' ' || t.tgrelid::regclass FROM pg_trigger t
            UNION ALL
            SELECT 'column', a.attrelid::regclass || '.' || a.attname FROM pg_attribute a
            WHERE a.attrelid = 'items'::regclass AND NOT a.attisdropped
            UNION ALL
            SELECT 'index', i.name FROM hashindex.index i
            """
        ).fetchall()
    )


def test_a_swap_gives_the_index_the_codes_of_the_other_model(index, other, vectors):
    done = index.swap(model="other", force=True)
    assert done.set == "codes of other:1 in lists without landmarks"
    assert done.in_use
    assert done.former_recall is not None
    assert done.recall is not None
    now = reopened(index)
    assert (now.model, now.n_bits) == ("other", 20)
    assert_fresh(now)
    previous = former(index)
    assert (previous.model, previous.state) == ("lsh", "former")
    assert_fresh(previous)
    query = vectors[17] + np.float32(0.1)
    expected = brute_force(vectors, query, 10)
    for searched in (index, now):
        assert [hit.id for hit in searched.search(query, 10, candidates=300)] == expected
    own = f"SELECT id FROM {previous.search_function}(%s, 10, 300)".encode()
    rows = index.connection.execute(own, [Vector(query)]).fetchall()
    assert [key for (key,) in rows] == expected
    # A radius is one of the new codes, also for who opened the index before.
    assert [hit.id for hit in index.within_like(5, 20)] == [
        hit.id for hit in now.within_like(5, 20)
    ]
    code, codes = other.encode(query[None]), other.encode(vectors)
    far = np.unpackbits(codes ^ code, axis=1).sum(axis=1)
    assert len(now.within(query, 6)) == np.count_nonzero(far <= 6) > 0


@pytest.mark.newest
def test_the_recall_that_is_compared_is_that_of_the_searches(index, other, vectors):
    index.configure(candidates=15)
    drawn = index.connection.execute(
        "SELECT id FROM items ORDER BY hashtextextended(id::text, 0) LIMIT 100"
    ).fetchall()

    def recall():
        found = 0
        for (row,) in drawn:
            true = [key for key in brute_force(vectors, vectors[row - 1], 11) if key != row][:10]
            again = reopened(index)
            hits = again.search_like(row, 10, candidates=again.candidates)
            found += len(set(true) & {hit.id for hit in hits})
        return pytest.approx(found / 1000)

    before = recall()
    done = index.swap(model="other", force=True)
    assert done.candidates == reopened(index).candidates
    assert (done.former_recall, done.recall) == (before, recall())
    assert done.recall != done.former_recall


def test_rollback_returns_to_codes_that_are_fresh(index, other, vectors):
    index.swap(model="other", force=True)
    index.connection.execute("DELETE FROM items WHERE id % 7 = 0")
    index.connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id % 5 = 0")
    index.connection.execute("INSERT INTO items VALUES (1000, 'a', %s)", [Vector(vectors[3])])
    assert index.rollback() == "codes of lsh:1 in lists without landmarks"
    back = reopened(index)
    assert back.model == "lsh"
    assert_fresh(back)
    assert_fresh(former(index))
    # And forth again.
    index.rollback()
    assert reopened(index).model == "other"
    assert_fresh(reopened(index))


def test_prune_leaves_what_the_index_consists_of_and_nothing_else(index, other):
    assert index.prune() == 0
    with pytest.raises(DatabaseStateError, match="has no former set"):
        index.rollback()
    before = objects(index.connection)
    index.swap(model="other", force=True)
    with pytest.raises(InUseError, match="lsh:1.* index rollback items_idx"):
        index.swap(model="lsh", force=True)
    assert index.prune() == 1
    assert {numbered(one) for one in objects(index.connection)} == {numbered(one) for one in before}
    index.swap(model="lsh", force=True)
    index.prune()
    assert_fresh(reopened(index))
    reopened(index).drop()
    left = objects(index.connection)
    assert not [name for _, name in left if re.search("items_idx|set_[0-9]", name)]


def numbered(one):
    """Return an object without the number of its set, and keys, which are named by it."""
    kind, name = one
    return kind, re.sub(r"(set|refresh)_[0-9]+", r"\1_N", name)


def test_dropping_an_index_in_a_swap_leaves_nothing(index, other):
    begin(index.connection)
    index.drop()
    left = objects(index.connection)
    assert not [name for _, name in left if re.search("items_idx|set_[0-9]", name)]
    assert list_indexes(index.connection) == []


@pytest.mark.newest
def test_previous_codes_catch_up_after_a_truncate(index, other, vectors):
    """The log has the mark of the TRUNCATE, and the keys of the rows that came after it."""
    connection = index.connection
    index.swap(model="other", force=True)
    previous = former(index)
    connection.execute("TRUNCATE items")
    connection.execute("INSERT INTO items VALUES (1, 'a', %s)", [Vector(vectors[3])])
    connection.execute("UPDATE items SET category = 'b'")
    assert logged(connection) == [(None,), (1,)]
    reopened(index).encode()
    assert_fresh(previous)
    assert logged(connection) == []
    index.rollback()
    assert_fresh(reopened(index))


def logged(connection):
    return connection.execute("SELECT id FROM hashindex.set_1_log").fetchall()


@pytest.mark.newest
def test_a_long_log_of_previous_codes_is_found_by_the_check(index, other):
    connection = index.connection
    index.swap(model="other", force=True)
    statement = (
        "SELECT status, value, detail, advice FROM hashindex.health('items_idx') "
        "WHERE check_name = 'other_set'"
    )
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id <= 7")
    found = connection.execute(statement).fetchone()
    assert found[:2] == ("ok", 7)
    connection.execute("INSERT INTO hashindex.set_1_log SELECT 1 FROM generate_series(1, 10000)")
    found = connection.execute(statement).fetchone()
    assert found[:2] == ("warning", 10_007)
    assert "10007 written keys behind" in found[2]
    assert found[3].startswith("catch up: pg-hashindex index encode items_idx; or return to it")
    reopened(index).encode()
    assert connection.execute(statement).fetchone()[:2] == ("ok", 0)
    assert_fresh(former(index))


@pytest.mark.newest
def test_an_old_snapshot_does_not_exchange_codes(index, other):
    """It may not see the keys that were logged last."""
    index.swap(model="other", force=True)
    with (
        pytest.raises(psycopg.errors.ActiveSqlTransaction, match="after the last written keys"),
        index.connection.transaction(),
    ):
        index.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        index.connection.execute("SELECT hashindex.rollback_index('items_idx')")
    assert reopened(index).model == "other"


@pytest.mark.newest
def test_the_memory_of_a_writer_does_not_grow_with_swaps_of_others(url, index, other):
    """Sessions keep a function compiled for good, so those of writers stay the same."""
    with connect(url) as writer:

        def memory():
            writer.execute("UPDATE items SET embedding = embedding + embedding WHERE id <= 2")
            query = "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts"
            return writer.execute(query).fetchone()[0]

        used = []
        for number in range(20):
            reopened(index).swap(model=("other", "lsh")[number % 2], force=True)
            memory()
            index.prune()
            used.append(memory())
        assert used[-1] < used[4] + 300_000, used


def begin(connection, model="other", access=None):
    row = connection.execute(
        "SELECT (s).id FROM hashindex._begin_swap('items_idx', %s, %s, NULL, NULL, NULL, false)",
        [model, access],
    ).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan", "lists"])
def test_the_access_path_comes_along(connection, items, model, other, access):
    index = begin_lists(
        connection, "items_idx", table=items, column="embedding", model="lsh", access=access
    )
    index.encode()
    index.swap(model="other", force=True)
    now = reopened(index)
    assert (now.access, now.model) == (access, "other")
    assert_fresh(now)
    query = np.full(8, 0.3, np.float32)
    truth = connection.execute(
        "SELECT id FROM items ORDER BY embedding <-> %s, id LIMIT 10", [Vector(query)]
    ).fetchall()
    assert [(hit.id,) for hit in now.search(query, 10, candidates=300)] == truth
    index.rollback()
    assert reopened(index).access == access
    assert [(hit.id,) for hit in index.search(query, 10, candidates=300)] == truth
    index.prune()
    assert [(hit.id,) for hit in index.search(query, 10, candidates=300)] == truth


@pytest.mark.newest
def test_another_access_path_may_be_asked_for(index, other):
    index.swap(model="other", access="lists", force=True)
    assert reopened(index).access == "lists"
    index.prune()
    index.swap(model="other", access="scan", force=True)
    assert reopened(index).access == "scan"


def test_a_model_of_less_recall_is_refused(index, poor, vectors):
    # No number of candidates that is tried reaches all of these rows.
    index.connection.execute(
        "INSERT INTO items (id, embedding) SELECT n, array_agg(random() - 0.5)::vector "
        "FROM generate_series(1001, 6000) n, generate_series(1, 8) d GROUP BY n"
    )
    index.configure(candidates=2000)
    with pytest.raises(LowerRecallError, match="recall falls .* index 'items_idx' keeps its set"):
        index.swap(model="poor", tolerance=0.05)
    assert reopened(index).model == "lsh"
    (ready,) = read_sets(index.connection, "items_idx", "ready")
    # Existing codes are used, and not made again.
    index.connection.execute("INSERT INTO items VALUES (1000, 'a', %s)", [Vector(vectors[3])])
    done = index.swap(model="poor", force=True)
    assert done.recall < done.former_recall - 0.05
    assert (reopened(index).model, reopened(index).set_id) == ("poor", ready.set_id)
    assert_fresh(reopened(index))


def test_undo_gives_a_swap_up(index, other, poor):
    before = objects(index.connection)
    begin(index.connection)
    with pytest.raises(InUseError, match="other:1 .* repair items_idx --undo"):
        index.swap(model="poor")
    done = operations.repair(index, undo=True).done
    assert done == (
        "gave up a set that was not in use: codes of other:1 in lists without landmarks",
    )
    assert objects(index.connection) == before


@pytest.mark.parametrize("continues", ["swap", "encode", "repair"])
def test_a_swap_that_was_cut_off_goes_on(index, poor, other, monkeypatch, continues):
    class KilledError(BaseException):
        pass

    def kill(*_):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ListBuild, "_put_in_order", kill)
        with pytest.raises(KilledError):
            index.swap(model="other", tolerance=1)
    # Some rows are written meanwhile.
    index.connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id < 40")
    (coming,) = read_sets(index.connection, "items_idx", "building")
    match continues:
        case "swap":
            index.swap(model="other", tolerance=1)
        case "encode":
            index.encode()
        case _:
            operations.repair(index)
    now = reopened(index)
    assert (now.model, now.set_id) == ("other", coming.set_id)
    assert_fresh(now)
    assert_fresh(former(index))


def test_of_fewer_than_two_rows_nothing_is_compared(connection, model, other, vectors):
    connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
    index = begin_lists(connection, "items_idx", table="items", column="embedding", model="lsh")
    done = index.swap(model="other")
    assert (done.former_recall, done.recall) == (None, None)
    connection.execute("INSERT INTO items VALUES (1, %s)", [Vector(vectors[0])])
    assert_fresh(reopened(index))
    index.prune()
    done = index.swap(model="lsh")
    assert (done.former_recall, done.recall) == (None, None)
    assert_fresh(reopened(index))


def test_an_empty_table_has_no_landmarks(connection, model, other, vectors):
    connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
    index = begin_lists(connection, "items_idx", table="items", column="embedding", model="lsh")
    index.swap(model="other", access="lists")
    index.prune()
    now = reopened(index)
    assert (now.model, now.access, now.trained_rows) == ("other", "lists", None)
    connection.execute("INSERT INTO items VALUES (1, %s)", [Vector(vectors[0])])
    now.rebalance()
    assert reopened(index).trained_rows == 1
    assert [hit.id for hit in index.search(vectors[0])] == [1]


@pytest.mark.newest
def test_bad_swaps(index, other, connection):
    before = objects(connection)
    with pytest.raises(UnknownModelError, match='model "nothing" does not exist'):
        index.swap(model="nothing")
    with pytest.raises(InvalidInputError, match="tolerance is 1.5; it must be 0 to 1"):
        index.swap(model="other", tolerance=1.5)
    with pytest.raises(InvalidInputError, match="'none'.*use one of: hnsw, ivfflat, lists, scan"):
        index.swap(model="other", access="none")  # type: ignore[arg-type]
    wide = LSH(n_bits=8, random_state=0).fit(np.eye(9, dtype=np.float32)).to_model("wide")
    store.save(connection, wide)
    with pytest.raises(InvalidInputError, match="8 dimensions, .* 9"):
        index.swap(model="wide")
    with connection.transaction(), pytest.raises(InvalidInputError, match="outside a transaction"):
        index.swap(model="other")
    assert objects(connection) == before
    coming = begin(connection)
    with pytest.raises(DatabaseStateError, match="has no such set that is ready"):
        connection_call(connection, f"SELECT hashindex._exchange_set('items_idx', {coming})")


def connection_call(connection, statement):
    with translated_errors():
        connection.execute(statement.encode())


@pytest.mark.newest
def test_a_row_of_before_a_swap_says_that_its_codes_were_replaced(in_table, other):
    row = in_table.row
    in_table.swap(model="other", force=True)
    in_table.prune()
    with pytest.raises(InvalidInputError, match="or a swap or build replaced it meanwhile: run it"):
        row.waiting()
    statement = f"SELECT FROM hashindex.set_{row.set_id}_codes".encode()
    with (
        pytest.raises(DatabaseStateError, match="was swapped, dropped .* meanwhile: run it again"),
        translated_errors(),
    ):
        in_table.connection.execute(statement)


def test_a_second_swapper_is_sent_away(url, index, other):
    with connect(url) as second:
        claim(second, "swap", "items_idx")
        with pytest.raises(InUseError, match="being built by another session"):
            index.swap(model="other")
    assert other_sets(index) == []


def test_others_do_not_wait_behind_a_waiting_swap(url, in_table, other, vectors):
    """A transaction that has written keeps the triggers from being made; others write meanwhile."""
    failures = []

    def swap():
        try:
            with connect(url) as own:
                HashIndex.open(own, "items_idx").swap(model="other", force=True)
        except BaseException as error:
            failures.append(error)

    with psycopg.connect(url) as writer, connect(url) as second:
        writer.execute("UPDATE items SET category = 'z' WHERE id = 1")
        swapper = threading.Thread(target=swap)
        swapper.start()
        # While it tries again and again, writes come through within its patience for a lock.
        second.execute("SET lock_timeout = '2s'")
        for number in range(20):
            second.execute("UPDATE items SET category = 'y' WHERE id = %s", [number + 2])
            threading.Event().wait(0.05)
        assert other_sets(in_table) == []
        writer.commit()
        # One that only reads, and goes on doing so, keeps nothing from being swapped.
        writer.execute("SELECT * FROM hashindex.search_items_idx(%s)", [str(vectors[0].tolist())])
        swapper.join(30)
        assert not swapper.is_alive()
    assert failures == []
    assert reopened(in_table).model == "other"
    assert_fresh(reopened(in_table))


@pytest.mark.newest
def test_a_prune_that_waits_for_a_rollback(url, in_table, other):
    """The set that was the former one is in use then, and stays."""
    in_table.swap(model="other", force=True)
    failures = []

    def drop(session):
        try:
            session.execute("SELECT hashindex.prune_index('items_idx')")
        except psycopg.Error as error:
            failures.append(error)

    with connect(url) as dropping:
        thread = threading.Thread(target=drop, args=[dropping])
        waiting = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
        pid = [dropping.info.backend_pid]
        with in_table.connection.transaction():
            in_table.connection.execute("SELECT hashindex.rollback_index('items_idx')")
            thread.start()
            eventually(lambda: in_table.connection.execute(waiting, pid).rowcount > 0)
        thread.join(30)
    assert failures == []
    assert reopened(in_table).model == "lsh"
    assert_fresh(reopened(in_table))


@pytest.mark.newest
def test_patience_ends(url, index):
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(InUseError, match="items has been in use for 0.2 s"):
            retry_while_locked(
                index.connection,
                lambda: index.connection.execute("LOCK TABLE items IN SHARE MODE"),
                table="items",
                patience=0.2,
            )


def test_snapshots_from_before_are_answered(url, in_table, other, vectors):
    """The function that they call reads the new codes, of which they do not see all."""
    query = vectors[40] + np.float32(0.05)
    with psycopg.connect(url) as old, psycopg.connect(url) as between:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM items")
        begin(in_table.connection)
        in_table.connection.execute(
            "UPDATE items SET embedding = embedding - '[0,0,0,0,0,0,0,0]' WHERE id <= 100"
        )
        between.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        between.execute("SELECT count(*) FROM items")
        in_table.swap(model="other", force=True)
        in_table.connection.execute("DELETE FROM items WHERE id <= 200")
        expected = brute_force(vectors, query, 10)
        for snapshot in (old, between):
            rows = snapshot.execute(
                "SELECT id FROM hashindex.search_items_idx(%s::vector, 10, 300)",
                [str(query.tolist())],
            ).fetchall()
            assert [row[0] for row in rows] == expected
            # By the codes of the set that was in use then.
            within = "SELECT id FROM hashindex.within('items_idx', %s::vector, 12)"
            assert len(snapshot.execute(within.encode(), [str(query.tolist())]).fetchall()) == 300
            snapshot.rollback()


@pytest.mark.newest
def test_searches_of_other_sessions_continue(url, index, other, vectors):
    """Whatever the swap is at, all of them are right: each asks for all rows as candidates."""
    stop = threading.Event()
    failures = []
    counts = []

    def search(seed):
        rng = np.random.default_rng(seed)
        done = 0
        try:
            with connect(url) as own:
                opened = HashIndex.open(own, "items_idx")
                while not stop.is_set():
                    query = rng.standard_normal(8).astype(np.float32)
                    hits = opened.search(query, 5, candidates=300)
                    assert [hit.id for hit in hits] == brute_force(vectors, query, 5)
                    done += 1
        except BaseException as error:
            failures.append(error)
        counts.append(done)

    threads = [threading.Thread(target=search, args=[seed]) for seed in range(2)]
    for thread in threads:
        thread.start()
    index.swap(model="other", force=True)
    index.rollback()
    index.rollback()
    index.prune()
    index.swap(model="lsh", force=True)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(counts) > 0
