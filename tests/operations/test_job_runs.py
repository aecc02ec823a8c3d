"""Records of real runs: encoding, building, rebalancing, swapping."""

import subprocess
import sys
import time

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.jobs import add_job, every_job, states

from pg_hashindex import operations, store
from pg_hashindex.db.jobs import Job, list_jobs
from pg_hashindex.errors import InUseError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import encoding
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest


def test_encoding_is_seen_batch_by_batch(bare, other, always, monkeypatch):
    seen = []
    write = encoding._Encoder._write

    def looked_at(self, batch):
        seen.extend((job.state, job.rows_done, job.rows_total) for job in list_jobs(other))
        return write(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(encoding._Encoder, "_write", looked_at)
    bare.encode(batch_rows=70)
    assert seen == [("running", done, 300) for done in (0, 70, 140, 210, 280)]
    (job,) = every_job(other)
    assert (job.kind, job.subject, job.phase, job.state) == (
        "encode", "items_idx", "encoding", "done",
    )  # fmt: skip
    assert (job.rows_done, job.rows_total) == (300, 300)
    # Nothing is left to do, so there is no other.
    assert bare.encode() == 0
    assert len(every_job(other)) == 1


@pytest.mark.parametrize("partitions", ["", "PARTITION BY HASH (id)"])
def test_a_large_table_is_counted_by_some_of_its_pages(connection, model, partitions, monkeypatch):
    connection.execute(
        f"CREATE TABLE large (id int PRIMARY KEY, v vector(8)) {partitions}".encode()
    )
    for part in range(2) if partitions else ():
        connection.execute(
            f"CREATE TABLE part_{part} PARTITION OF large "
            f"FOR VALUES WITH (MODULUS 2, REMAINDER {part})".encode()
        )
    connection.execute(
        "INSERT INTO large "
        "SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 20000) n"
    )
    index = HashIndex.create(
        connection, "large", table="large", column="v", model="lsh", access="scan"
    )
    connection.execute(
        "INSERT INTO hashindex.large_codes (id, code) "
        "SELECT id, B'000000000000' FROM large WHERE id % 4 = 0"
    )
    expected = []
    expect = Job.expect

    def kept(self, total):
        expected.append(total)
        expect(self, total)

    monkeypatch.setattr(Job, "expect", kept)
    waiting = IndexRow.waiting

    def counted(row, *, codes=None, percent=None):
        assert percent is not None, "the whole table was read"
        return waiting(row, codes=codes, percent=percent)

    monkeypatch.setattr(IndexRow, "waiting", counted)
    # The table has some 200 pages; the deviation of the estimate is about a tenth.
    monkeypatch.setattr(encoding, "_COUNTED_PAGES", 60)
    assert index.encode() == 15_000
    assert 7_500 < expected[0] < 30_000
    (job,) = every_job(connection)
    assert job.rows_done == 15_000
    assert job.rows_total is not None
    assert job.rows_total >= 15_000


def test_on_a_connection_that_is_not_in_autocommit_mode(bare, other, always):
    bare.connection.autocommit = False
    with bare.connection.transaction():
        bare.configure(access="landmarks")
    assert bare.encode(batch_rows=100) == 300
    assert not bare.connection.autocommit
    assert bare.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert states(other) == [("encode", "items_idx", "done")]
    assert_fresh(HashIndex.open(other, "items_idx"))


def test_a_batch_that_fails(bare, other):
    bare.connection.execute(
        "CREATE TABLE odd (id int PRIMARY KEY, v vector); "
        "INSERT INTO odd SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 20) n"
    )
    index = HashIndex.create(bare.connection, "odd", table="odd", column="v", model="lsh")
    bare.connection.execute(
        "SET session_replication_role = replica; UPDATE odd SET v = '[1,2]' WHERE id = 17; "
        "RESET session_replication_role"
    )
    with pytest.raises(InvalidInputError, match='row 17 of "public"."odd" has 2 dimensions'):
        index.encode(batch_rows=5)
    (job,) = every_job(other)
    assert (job.subject, job.state, job.rows_done, job.rows_total) == ("odd", "failed", 15, 20)
    assert job.message is not None
    assert job.message.startswith('row 17 of "public"."odd" has 2 dimensions')
    codes = other.execute("SELECT count(*) FROM hashindex.odd_codes").fetchone()
    assert codes == (15,)


def test_a_repeated_run_does_nothing(bare, other):
    """It is refused: the first one runs, and is neither dead nor superseded."""
    with encoding.only_encoder(bare.row, None), Job(bare.connection, "encode", bare.name) as job:
        job.phase("encoding")
        with pytest.raises(InUseError, match="being encoded by another session"):
            HashIndex.open(other, "items_idx").encode()
        assert states(other) == [("encode", "items_idx", "running")]


def test_a_role_that_may_not_record_encodes(bare, as_role):
    worker = as_role("worker")
    bare.connection.execute(
        "GRANT SELECT, UPDATE ON items TO worker; GRANT USAGE ON SCHEMA hashindex TO worker; "
        "GRANT SELECT ON hashindex.model, hashindex.model_part, hashindex.index TO worker; "
        "GRANT SELECT, INSERT, DELETE ON hashindex.items_idx_codes TO worker; "
        "GRANT UPDATE ON hashindex.index TO worker; GRANT ALL ON hashindex.claim TO worker; "
        "GRANT SELECT ON hashindex.job, hashindex.jobs TO worker"
    )
    add_job(bare.connection, "encode", "items_idx")
    assert HashIndex.open(worker, "items_idx").encode() == 300
    assert_fresh(bare)
    # Nor can it say that it went on with the dead one.
    assert states(bare.connection) == [("encode", "items_idx", "dead")]
    bare.connection.execute("GRANT INSERT, UPDATE ON hashindex.job TO worker; TRUNCATE items")
    bare.connection.execute(
        "INSERT INTO items (id) VALUES (1); SET session_replication_role = replica; "
        "UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]'; RESET session_replication_role"
    )
    assert HashIndex.open(worker, "items_idx").encode() == 1
    assert [job.role for job in every_job(bare.connection)] == ["postgres", "worker"]
    assert [job.state for job in every_job(bare.connection)] == ["failed", "done"]


def test_a_session_that_waits_for_the_table_goes_on_without(bare, other):
    with other.transaction():
        other.execute("LOCK TABLE hashindex.job IN ACCESS EXCLUSIVE MODE")
        assert bare.encode(batch_rows=50) == 300
    assert_fresh(bare)
    assert every_job(other) == []


def test_access_paths_say_what_they_are_at(bare, phases, always):
    for access, steps in (
        ("landmarks", [
            "training landmarks", "waiting for a lock to start logging writes",
            "reading rows", "indexing landmarks", "putting codes in the order of landmarks",
            "applying writes made meanwhile",
            "waiting for a lock to switch to the new landmarks",
        ]),
    ):  # fmt: skip
        before = phases()
        bare.configure(access=access).encode()  # type: ignore[arg-type]
        assert phases()[len(before) :] == steps
    assert {job.state for job in every_job(bare.connection)} == {"done"}


def test_rebalancing_is_a_job(listed, phases, vectors):
    listed.rebalance()
    steps = phases()
    assert steps.index("training landmarks") < steps.index("reading rows") < len(steps) - 1
    job = every_job(listed.connection)[-1]
    assert (job.kind, job.subject, job.state) == ("rebalance", "items_idx", "done")


def test_a_swap_is_one_job(bare, vectors, phases, always):
    """Encoding and building for a swap are a part of its job."""
    bare.encode()
    longer = LSH(n_bits=40, random_state=1).fit(vectors).to_model("longer")
    store.save(bare.connection, longer)
    before = len(phases())
    operations.swap(bare, "longer", access="landmarks", queries=20)
    assert states(bare.connection) == [
        ("encode", "items_idx", "done"),
        ("swap", "items_idx", "done"),
    ]
    steps = phases()[before:]
    assert steps.index("training landmarks") < steps.index("reading rows")


ENCODE = """
import sys
from pg_hashindex import HashIndex, connect
HashIndex.open(connect(sys.argv[1]), "items_idx").encode(rows_per_second=40)
"""


@pytest.fixture
def victim(bare, url):
    """Another process that encodes 40 rows a second."""
    with subprocess.Popen([sys.executable, "-c", ENCODE, url]) as process:
        yield process
        process.kill()


def test_a_killed_process_leaves_a_dead_job_and_another_goes_on(bare, other, victim):
    def wait_for(condition):
        until = time.monotonic() + 30
        while not condition():
            assert victim.poll() is None or victim.returncode < 0
            assert time.monotonic() < until
            time.sleep(0.02)

    wait_for(lambda: any(job.rows_done for job in list_jobs(other)))
    (job,) = list_jobs(other)
    assert (job.state, job.rows_total, job.resume) == ("running", 300, None)
    assert job.rows_done % 20 == 0
    victim.kill()
    wait_for(lambda: list_jobs(other)[0].state == "dead")
    (job,) = list_jobs(other)
    assert job.resume == "pg-hashindex index encode items_idx"
    written = bare.summary().codes
    assert 0 < written < 300
    assert bare.encode() == 300 - written
    assert_fresh(bare)
    assert list_jobs(other) == []
    dead, alive = every_job(other)
    assert (dead.state, dead.message) == ("failed", "superseded: a later run continued it")
    assert (alive.state, alive.rows_done) == ("done", 300 - written)
    assert alive.rows_total == 300 - written
