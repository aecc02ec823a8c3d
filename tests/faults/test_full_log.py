"""The log of a former set of lists has a limit, after which the set can no longer come into use."""

import threading

import psycopg
import pytest
from fixtures.checks import assert_fresh, former, other_sets
from fixtures.indexes import begin_lists

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest

DOUBLED = "UPDATE items SET embedding = embedding + embedding"
#: Two pages hold the keys of all rows once.
LIMIT = 16_384


@pytest.fixture
def swapped(connection, items, model, vectors):
    """An index of 300 rows with former codes beside it, whose log has a small limit."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex._log_limit(s hashindex.index_set) RETURNS bigint "
        f"LANGUAGE sql STABLE RETURN {LIMIT}".encode()
    )
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="scan"
    )
    index.encode()
    index.swap(model="other", force=True)
    return index


def size_of_log(index):
    query = "SELECT pg_relation_size(%s::regclass)"
    log = f"hashindex.set_{former(index).set_id}_log"
    return index.connection.execute(query, [log]).fetchone()[0]


def has_gap(index):
    query = (
        "SELECT hashindex._has_logged(s, gap => true) FROM hashindex.index_set s WHERE s.id = %s"
    )
    return index.connection.execute(query, [former(index).set_id]).fetchone()[0]


def fill(index):
    """Write until the log is full and a writer did not log its keys."""
    for _ in range(4):
        index.connection.execute(DOUBLED)
    assert has_gap(index)


def test_a_log_below_its_limit_brings_the_former_set_up_to_date(swapped):
    swapped.connection.execute(DOUBLED)
    assert 0 < size_of_log(swapped) <= LIMIT
    assert not has_gap(swapped)
    assert swapped.rollback().startswith("codes of lsh:1")
    assert_fresh(swapped)


def test_a_full_log_grows_no_more(swapped):
    fill(swapped)
    size = size_of_log(swapped)
    for _ in range(5):
        swapped.connection.execute(DOUBLED)
        swapped.connection.execute("UPDATE items SET embedding = NULL WHERE id = 1")
    assert size_of_log(swapped) == size
    assert_fresh(swapped)


@pytest.mark.parametrize("by", ["command", "SQL"])
def test_a_rollback_is_refused_and_names_prune(swapped, by):
    fill(swapped)
    if by == "command":
        with pytest.raises(DatabaseStateError, match="log.*index prune items_idx"):
            swapped.rollback()
    else:
        with pytest.raises(psycopg.Error, match="than the log of the former set"):
            swapped.connection.execute("SELECT hashindex.rollback_index('items_idx')")
    assert swapped.model == "other"
    assert_fresh(swapped)
    assert swapped.prune() == 1
    assert swapped.connection.execute(DOUBLED).rowcount == 300
    assert_fresh(swapped)


def test_the_check_names_prune(swapped):
    def found():
        (one,) = [f for f in operations.check(swapped).findings if f.check == "other_set"]
        return one.status, one.advice

    assert found()[0] == "ok"
    fill(swapped)
    assert found() == ("warning", "pg-hashindex index prune items_idx")
    full = operations.check(swapped, full=True).findings
    assert "books" not in [f.check for f in full]


def test_vacuum_does_not_undo_a_gap(swapped):
    """Without the keys of a writer that rolled back, the file is below its limit again."""
    connection = swapped.connection
    with connection.transaction(force_rollback=True):
        connection.execute(DOUBLED)
        connection.execute(DOUBLED)
        connection.execute("UPDATE items SET embedding = embedding WHERE id <= 200")
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id <= 7")
    log = f"hashindex.set_{former(swapped).set_id}_log"
    connection.execute(f"VACUUM {log}".encode())
    assert has_gap(swapped)
    # These are logged again.
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id > 290")
    with pytest.raises(DatabaseStateError, match="index prune items_idx"):
        swapped.rollback()
    connection.execute(f"VACUUM FULL {log}".encode())
    with pytest.raises(DatabaseStateError, match="index prune items_idx"):
        swapped.rollback()


def test_a_writer_that_rolls_back_leaves_the_mark_to_the_next(swapped):
    connection = swapped.connection
    connection.execute(DOUBLED)
    with connection.transaction(force_rollback=True):
        connection.execute(DOUBLED)
        connection.execute(DOUBLED)
        assert has_gap(swapped)
    assert not has_gap(swapped)
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id = 1")
    assert has_gap(swapped)
    with pytest.raises(DatabaseStateError, match="index prune items_idx"):
        swapped.rollback()


def test_a_savepoint_takes_its_mark_with_it(swapped):
    connection = swapped.connection
    connection.execute(DOUBLED)
    with connection.transaction():
        with connection.transaction(force_rollback=True):
            connection.execute(DOUBLED)
            connection.execute(DOUBLED)
            assert has_gap(swapped)
        connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id = 1")
    assert has_gap(swapped)


def test_a_full_log_without_a_gap_brings_the_former_set_up_to_date(swapped):
    """No key is missing, since no writer committed beyond the limit."""
    connection = swapped.connection
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id < 50")
    with connection.transaction(force_rollback=True):
        for _ in range(4):
            connection.execute(DOUBLED)
    assert size_of_log(swapped) > LIMIT
    swapped.rollback()
    assert_fresh(swapped)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_writers_do_not_wait_for_each_other(swapped, url, level, ending):
    """Neither sees the mark of the other; each stays covered by its own."""
    swapped.connection.execute(DOUBLED)
    swapped.connection.execute("UPDATE items SET embedding = embedding WHERE id <= 200")
    with connect(url) as first, connect(url) as second:
        for session, keys in ((first, "id < 150"), (second, "id >= 150")):
            session.execute("SET lock_timeout = '2s'")
            session.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            session.execute("SELECT FROM items LIMIT 1")
            session.execute(f"{DOUBLED} WHERE {keys}".encode())
            session.execute(f"{DOUBLED} WHERE {keys}".encode())
        first.execute(ending.encode())
        second.execute(b"COMMIT")
    assert has_gap(swapped)
    assert_fresh(swapped)
    with pytest.raises(DatabaseStateError, match="index prune items_idx"):
        swapped.rollback()


def test_an_old_snapshot_marks_its_own_gap(swapped, url):
    """It began before the log was full, and does not see the keys and the mark of others."""
    with connect(url) as old:
        with old.transaction():
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT FROM items LIMIT 1")
            swapped.connection.execute(f"{DOUBLED} WHERE id > 10")
            swapped.connection.execute(f"{DOUBLED} WHERE id > 10")
            swapped.connection.execute(f"{DOUBLED} WHERE id > 10")
            old.execute(f"{DOUBLED} WHERE id <= 10")
    assert has_gap(swapped)
    assert_fresh(swapped)


@pytest.mark.parametrize("work", ["swap", "rebalance", "repair"])
def test_the_next_swap_drops_the_set_and_says_so(swapped, work):
    if work == "rebalance":
        swapped.prune()
        swapped.swap(access="lists", force=True)
    told = []
    swapped.connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    fill(swapped)
    if work == "swap":
        swapped.swap(model="lsh", force=True)
        assert [row.model for row in other_sets(swapped)] == ["other"]
    else:
        swapped.rebalance() if work == "rebalance" else operations.repair(swapped)
        assert other_sets(swapped) == []
    assert len([one for one in told if "is dropped, since more was written" in one]) == 1
    assert_fresh(swapped)


def test_an_encoding_says_that_the_former_set_is_out_of_date(swapped):
    fill(swapped)
    with pytest.warns(UserWarning, match="the former set was left as it is.*index prune items_idx"):
        swapped.encode()
    assert has_gap(swapped)


def test_an_encoding_makes_room_in_the_log(swapped):
    for _ in range(4):
        swapped.connection.execute(DOUBLED)
        swapped.encode()
        assert size_of_log(swapped) == 0
    assert not has_gap(swapped)
    swapped.rollback()
    assert_fresh(swapped)


def test_the_log_of_a_build_has_no_limit(swapped, monkeypatch):
    """It is applied to its end by the build."""
    from pg_hashindex.index.landmarks.building import ListBuild

    swapped.prune()
    put = ListBuild._put_in_order

    def write_first(self):
        for _ in range(6):
            self.connection.execute(DOUBLED)
        return put(self)

    monkeypatch.setattr(ListBuild, "_put_in_order", write_first)
    swapped.swap(model="lsh", force=True)
    assert swapped.model == "lsh"
    assert_fresh(swapped)


def test_writers_fill_the_log_while_a_rollback_catches_up(swapped, url):
    """A rollback is right or refused, whatever writers do meanwhile."""
    ends = threading.Event()
    problems = []

    def write():
        with connect(url) as writer:
            while not ends.is_set():
                try:
                    writer.execute(
                        "UPDATE items SET embedding = embedding - embedding - embedding "
                        "WHERE id < 9"
                    )
                except psycopg.Error as error:
                    problems.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    done = 0
    try:
        for _ in range(6):
            try:
                swapped.rollback()
                done += 1
            except DatabaseStateError as error:
                assert "index prune" in str(error)  # noqa: PT017
                swapped.prune()
                swapped.swap(model="lsh" if swapped.model == "other" else "other", force=True)
    finally:
        ends.set()
        for thread in threads:
            thread.join(30)
    assert not [p for p in problems if not isinstance(p, psycopg.errors.DeadlockDetected)], problems
    assert_fresh(swapped)


def test_an_encoding_applies_the_log_of_lists_beside_a_set_of_pgvector(swapped, on):
    """The check advises it when the log is long."""
    swapped.prune()
    swapped.swap(model="none", force=True)
    swapped.connection.execute(DOUBLED)
    assert size_of_log(swapped) > 0
    result = on("index", "encode", "items_idx")
    assert "encoded 0 rows" in result.output
    assert size_of_log(swapped) == 0
    swapped.rollback()
    assert_fresh(swapped)
