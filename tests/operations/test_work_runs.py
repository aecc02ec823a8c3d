"""The progress of real runs: encoding, building, rebalancing, swapping."""

import signal
import subprocess
import sys
import time

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index
from fixtures.work import seen

from pg_hashindex import store
from pg_hashindex.db.connection import connect, outside_transactions
from pg_hashindex.db.work import Work, claimed_work, list_work
from pg_hashindex.errors import InUseError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import encoding
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks import building

pytestmark = pytest.mark.newest


@pytest.fixture
def batches(other, always, monkeypatch):
    """The work as another session sees it before each batch is written."""
    found = []
    write = encoding._Encoder._write

    def looked_at(self, batch):
        found.extend(list_work(other))
        return write(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(encoding._Encoder, "_write", looked_at)
    return found


def test_encoding_is_seen_batch_by_batch(unencoded, batches):
    unencoded.encode(batch_rows=70)
    assert {(one.work, one.name, one.phase, one.is_running) for one in batches} == {
        ("encode", "items_idx", "encoding", True)
    }
    assert [one.rows_done for one in batches] == [0, 70, 140, 210, 280]
    assert {one.rows_total for one in batches} == {300}


def test_a_large_table_is_counted_by_some_of_its_pages(connection, model, monkeypatch):
    connection.execute("CREATE TABLE large (id int PRIMARY KEY, v vector(8))")
    index = create_index(connection, "large", table="large", column="v")
    connection.execute(
        "SET session_replication_role = replica; INSERT INTO large "
        "SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 20000) n; "
        "RESET session_replication_role; INSERT INTO hashindex.set_1_codes (id, code) "
        "SELECT id, B'000000000000' FROM large WHERE id % 4 = 0"
    )
    expected = []
    expect = Work.expect

    def kept(self, total):
        expected.append(total)
        expect(self, total)

    monkeypatch.setattr(Work, "expect", kept)
    waiting = IndexRow.waiting

    def counted(row, *, share=1):
        assert share < 1, "the whole table was read"
        return waiting(row, share=share)

    monkeypatch.setattr(IndexRow, "waiting", counted)
    # The table has some 200 pages; the deviation of the estimate is about a tenth.
    monkeypatch.setattr(encoding, "_COUNTED_PAGES", 60)
    assert index.encode() == 15_000
    assert 7_500 < expected[0] < 30_000


@pytest.mark.parametrize("built", [True, False])
def test_on_a_connection_that_is_not_in_autocommit_mode(
    connection, items, model, other, always, built
):
    connection.autocommit = False
    with connection.transaction():
        index = create_index(connection, access="lists")
    if built:
        assert index.encode() == 300
        connection.execute("DELETE FROM hashindex.set_1_codes")
        connection.commit()
    assert index.encode(batch_rows=100) == 300
    assert not connection.autocommit
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert seen(other) == []
    assert_fresh(HashIndex.open(other, "items_idx"))


def test_a_batch_that_fails(connection, model, other):
    connection.execute("CREATE TABLE odd (id int PRIMARY KEY, v vector)")
    index = create_index(connection, "odd", table="odd", column="v")
    connection.execute(
        "SET session_replication_role = replica; "
        "INSERT INTO odd SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 20) n; "
        "UPDATE odd SET v = '[1,2]' WHERE id = 17; RESET session_replication_role"
    )
    with pytest.raises(InvalidInputError, match='row 17 of "public"."odd" has 2 dimensions'):
        index.encode(batch_rows=5)
    assert seen(other) == []
    codes = other.execute("SELECT count(*) FROM hashindex.set_1_codes").fetchone()
    assert codes == (15,)


def test_a_build_that_fails(connection, model, other):
    connection.execute(
        "CREATE TABLE odd (id int PRIMARY KEY, v vector); "
        "INSERT INTO odd SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 20) n"
    )
    index = create_index(connection, "odd", table="odd", column="v")
    connection.execute("UPDATE odd SET v = '[1,2]' WHERE id = 17")
    with pytest.raises(InvalidInputError, match='row 17 of "public"."odd" has 2 dimensions'):
        index.encode()
    assert seen(other) == []
    connection.execute("UPDATE odd SET v = array_fill(17, ARRAY[8])::vector WHERE id = 17")
    assert index.encode() == 20
    assert_fresh(index)


def test_a_repeated_run_does_nothing(bare, other):
    """It is refused: the first one runs, and is not taken over."""
    with claimed_work(bare.connection, "encode", "items_idx"):
        with pytest.raises(InUseError, match="being encoded by another session"):
            HashIndex.open(other, "items_idx").encode()
        assert seen(other) == [("encode", "items_idx", True)]


def test_progress_that_cannot_be_written(unencoded, other, always, monkeypatch):
    """Somebody locks the table; the work continues."""
    write = encoding._Encoder._write

    def locked(self, batch):
        done = write(self, batch)
        other.execute("BEGIN; LOCK TABLE hashindex.claim IN SHARE MODE")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(encoding._Encoder, "_write", locked)
        patch.setattr(Work, "_write", unlocking(Work._write, other))
        assert unencoded.encode(batch_rows=150) == 300
    assert_fresh(unencoded)


def unlocking(write, other):
    """End the other session's transaction once a write has given up."""

    def written(self):
        write(self)
        other.execute("ROLLBACK")

    return written


@pytest.mark.parametrize("access", ["lists", "scan"])
def test_builds_say_what_they_are_at(connection, items, model, phases, always, access):
    index = create_index(connection, access=access)
    index.encode()
    steps = [
        "training landmarks", "waiting for a lock to start logging writes", "reading rows",
        "indexing landmarks", "putting codes in the order of landmarks",
        "applying writes made meanwhile", "waiting for a lock to end the build",
    ]  # fmt: skip
    if access == "scan":
        steps.remove("indexing landmarks")
    assert phases() == steps


def test_a_rebalance_says_what_it_is_at(listed, phases):
    listed.rebalance()
    steps = phases()
    assert steps.index("training landmarks") < steps.index("reading rows") < len(steps) - 1


def test_a_swap_and_the_build_within_it(bare, other, always, monkeypatch, vectors, phases):
    longer = LSH(n_bits=40, random_state=1).fit(vectors).to_model("longer")
    store.save(bare.connection, longer)
    bare.encode()
    before, found = phases(), []
    write = building.ListBuild._write

    def looked_at(self, *values):
        found.extend(list_work(other))
        write(self, *values)

    monkeypatch.setattr(building.ListBuild, "_write", looked_at)
    bare.swap(model="longer")
    assert {(one.work, one.name, one.phase, one.rows_total) for one in found} == {
        ("swap", "items_idx", "reading rows", 300)
    }
    steps = phases()[len(before) :]
    assert steps[0] == "preparing"
    assert "reading rows" in steps[1:-2]
    assert steps[-2:] == ["comparing", "applying writes made meanwhile"]


ENCODE = """
import sys
from pg_hashindex import HashIndex, connect
HashIndex.open(connect(sys.argv[1]), "items_idx").encode(rows_per_second=40)
"""


@pytest.fixture
def victim(url):
    """Another process that encodes 40 rows a second."""
    started = []

    def start():
        started.append(subprocess.Popen([sys.executable, "-c", ENCODE, url]))
        return started[0]

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition, process):
    until = time.monotonic() + 30
    while not condition():
        assert process.poll() is None or process.returncode < 0
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_killed_process_leaves_dead_work_and_another_continues_it(unencoded, other, victim):
    process = victim()
    wait_for(lambda: any(one.rows_done for one in list_work(other)), process)
    (one,) = list_work(other)
    assert (one.work, one.is_running, one.rows_total, one.resume) == ("encode", True, 300, None)
    assert one.rows_done % 20 == 0
    process.kill()
    wait_for(lambda: list_work(other)[0].is_running is False, process)
    (one,) = list_work(other)
    assert one.resume == "pg-hashindex index encode items_idx"
    written = unencoded.summary().codes
    assert 0 < written < 300
    assert unencoded.encode() == 300 - written
    assert_fresh(unencoded)
    assert list_work(other) == []


def test_a_killed_build_is_dead_work_that_encode_continues(bare, other, victim):
    process = victim()
    wait_for(lambda: any(one.rows_done for one in list_work(other)), process)
    (one,) = list_work(other)
    assert (one.work, one.phase, one.is_running) == ("swap", "reading rows", True)
    assert (one.rows_total, one.resume) == (300, None)
    process.kill()
    wait_for(lambda: list_work(other)[0].is_running is False, process)
    (one,) = list_work(other)
    assert one.resume == "pg-hashindex index encode items_idx"
    assert bare.encode() == 300
    assert_fresh(bare)
    assert list_work(other) == []


def test_an_exception_of_a_signal_handler_comes_through_and_frees_the_claim(url, unencoded):
    """As a soft time limit of Celery."""

    def interrupt(*_):
        raise TimeoutError

    with connect(url) as cut_off:
        former = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with (
                pytest.raises(TimeoutError),
                outside_transactions(cut_off, "a build"),
                claimed_work(cut_off, "swap", unencoded.name),
            ):
                cut_off.execute("SELECT pg_sleep(60)")
        finally:
            signal.signal(signal.SIGALRM, former)
    until = time.monotonic() + 20
    while True:
        try:
            with claimed_work(unencoded.connection, "swap", unencoded.name):
                return
        except InUseError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_claim_that_is_cut_off_is_released(unencoded, monkeypatch):
    def cut_off(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pg_hashindex.db.locks._has", cut_off)
        with (
            pytest.raises(KeyboardInterrupt),
            claimed_work(unencoded.connection, "swap", unencoded.name),
        ):
            pass
    with claimed_work(unencoded.connection, "swap", unencoded.name):
        assert len(list_work(unencoded.connection)) == 1
