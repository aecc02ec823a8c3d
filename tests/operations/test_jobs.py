"""Jobs: what others see of them while they run, and when they have ended or died."""

import time
from datetime import timedelta

import psycopg
import pytest
from fixtures.jobs import add_job, every_job, run_job, states
from pg_hashindex.db.jobs import Job, end_dead, list_jobs

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError, InvalidInputError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest


def test_another_session_sees_how_far_a_job_is(connection, other, always):
    with Job(connection, "encode", "items_idx") as job:
        assert every_job(other) == []
        job.phase("first", 400)
        (seen,) = list_jobs(other)
        assert (seen.kind, seen.subject, seen.phase) == ("encode", "items_idx", "first")
        assert (seen.state, seen.rows_done, seen.rows_total) == ("running", 0, 400)
        assert (seen.role, seen.pid) == ("postgres", connection.info.backend_pid)
        assert (seen.ended_at, seen.message, seen.resume) == (None, None, None)
        job.advance(150)
        job.advance(50)
        (seen,) = list_jobs(other)
        assert (seen.phase, seen.rows_done, seen.rows_total) == ("first", 200, 400)
        job.phase("second")
        (seen,) = list_jobs(other)
        assert (seen.phase, seen.rows_done, seen.rows_total) == ("second", 0, None)
    assert list_jobs(other) == []
    (seen,) = every_job(other)
    assert (seen.state, seen.phase, seen.pid, seen.time_left) == ("done", "second", None, None)
    assert seen.ended_at is not None
    held = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert held == (0,)


def test_rate_and_time_left(connection, other):
    number = add_job(connection, "encode", "i")
    connection.execute(
        "UPDATE hashindex.job SET rows_done = 1000, rows_total = 4000, "
        "started_at = now() - interval '1 hour', phase_started_at = now() - interval '110 s', "
        "heartbeat_at = now() - interval '10 s'"
    )
    run_job(connection, number)
    (seen,) = every_job(other)
    assert (seen.state, seen.rows_per_second) == ("running", 10)
    assert seen.time_left == timedelta(seconds=300)
    connection.execute("UPDATE hashindex.job SET rows_done = 4200")
    assert every_job(other)[0].time_left == timedelta(0)
    # Where nothing is known there is nothing to tell.
    connection.execute("UPDATE hashindex.job SET rows_total = NULL")
    assert every_job(other)[0].time_left is None
    connection.execute("UPDATE hashindex.job SET phase_started_at = heartbeat_at, rows_total = 9")
    assert (every_job(other)[0].rows_per_second, every_job(other)[0].time_left) == (None, None)


def test_a_job_without_its_lock_is_dead(connection, other, make_database):
    number = add_job(connection, "encode", "i")
    assert states(other) == [("encode", "i", "dead")]
    run_job(connection, number)
    assert states(other) == [("encode", "i", "running")]
    (lock,) = connection.execute("SELECT lock FROM hashindex.job").fetchone() or (0,)
    connection.execute("SELECT pg_advisory_unlock(%s)", [lock])
    assert states(other) == [("encode", "i", "dead")]
    # Nor do locks of other kinds, of other sessions, or of other databases.
    connection.execute("SELECT pg_advisory_lock(%s, %s)", [lock >> 32 & 0x7FFFFFFF, 1])
    with psycopg.connect(make_database("template_vector")) as elsewhere:
        for session in (elsewhere, other):
            session.execute("SELECT pg_advisory_lock(%s)", [lock])
            assert states(other) == [("encode", "i", "dead")]
            session.execute("SELECT pg_advisory_unlock(%s)", [lock])
    connection.execute("SELECT pg_advisory_lock(%s)", [lock])
    assert states(other) == [("encode", "i", "running")]
    connection.execute("UPDATE hashindex.job SET state = 'done'")
    assert states(other) == [("encode", "i", "done")]


def test_the_end_of_a_job_is_not_taken_for_its_death(connection, other):
    """A query that began before it sees the row as it was, and the locks as they are."""
    with other.transaction():
        with Job(connection, "encode", "i") as job:
            job.phase("encoding")
            other.execute("DECLARE c CURSOR FOR SELECT state, pid FROM hashindex.jobs")
        assert other.execute("FETCH c").fetchone() == ("done", None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidInputError("row 7 is odd"), "row 7 is odd"),
        (KeyboardInterrupt(), "stopped by the user"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_job_that_fails(connection, error, message):
    with pytest.raises(type(error)), Job(connection, "encode", "i") as job:
        job.phase("encoding", 10)
        job.advance(4)
        raise error
    (seen,) = every_job(connection)
    assert (seen.state, seen.message, seen.rows_done) == ("failed", message, 4)
    assert seen.ended_at is not None


def test_a_job_inside_of_another_is_a_part_of_it(connection, other, always):
    with Job(connection, "swap", "i") as outer:
        outer.phase("making codes")
        with Job(connection, "encode", "i~2") as inner:
            inner.phase("encoding", 20)
            with Job(connection, "encode", "i~2") as innermost:
                innermost.advance(5)
            (seen,) = every_job(other)
            assert (seen.kind, seen.subject, seen.phase) == ("swap", "i", "encoding")
        assert every_job(other)[0].phase == "making codes"
        # What another connection does is a job of its own.
        with Job(other, "encode", "j") as apart:
            apart.phase("encoding")
            assert [job.subject for job in list_jobs(connection)] == ["i", "j"]
    assert states(other) == [("swap", "i", "done"), ("encode", "j", "done")]


def test_a_later_run_supersedes_a_dead_one(connection, other):
    for kind, subject in (("encode", "i"), ("swap", "i"), ("encode", "j")):
        add_job(connection, kind, subject)
    with Job(other, "encode", "i") as running_one:
        running_one.phase("encoding")
        with Job(connection, "encode", "i") as job:
            job.phase("encoding")
        # That one runs; it is not dead.
        assert states(connection) == [
            ("encode", "i", "failed"),
            ("swap", "i", "dead"),
            ("encode", "j", "dead"),
            ("encode", "i", "running"),
            ("encode", "i", "done"),
        ]
    assert every_job(connection)[0].message == "superseded: a later run continued it"
    # If a run finds nothing to do, there is nothing to record.
    with Job(connection, "encode", "j"):
        pass
    assert [job.state for job in every_job(connection)] == ["failed", "dead", "failed"] + [
        "done"
    ] * 2
    add_job(connection, "tune", "i")
    with Job(connection, "repair", "i") as repair:
        repair.phase("finishing")
    assert list_jobs(connection) == []
    add_job(connection, "encode", "gone")
    assert end_dead(connection) == 1
    assert every_job(connection)[-1].message == "given up"


def test_the_command_that_goes_on(connection, model, items):
    HashIndex.create(connection, "Its-1", table=items, column="embedding", model="lsh")
    for kind in ("encode", "rebalance", "repair", "swap", "tune"):
        add_job(connection, kind, "Its-1")
    add_job(connection, "encode", "gone")
    commands = [f"pg-hashindex index {kind} Its-1" for kind in ("encode", "rebalance", "repair")]
    assert [job.resume for job in list_jobs(connection)] == [*commands, None, None, None]
    connection.execute("SELECT hashindex.begin_swap('Its-1', 'lsh')")
    assert list_jobs(connection)[3].resume == "pg-hashindex index swap Its-1 --model lsh:1"


def test_a_thousand_are_kept(connection):
    connection.execute(
        "INSERT INTO hashindex.job (kind, subject, phase, state) "
        "SELECT 'encode', 'i', 'x', CASE n WHEN 3 THEN 'running' ELSE 'done' END "
        "FROM generate_series(1, 1200) n"
    )
    with Job(connection, "encode", "other") as job:
        job.phase("encoding")
    found = every_job(connection)
    # The last thousand of 1,200, a dead one, and the new one.
    assert [found[0].id, found[1].id, found[-1].id, len(found)] == [3, 201, 1201, 1002]


def test_a_row_is_written_once_a_second(connection, other, monkeypatch):
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    with Job(connection, "encode", "i") as job:
        job.phase("encoding", 9)
        seen = []
        for _ in range(6):
            clock += 0.4
            job.advance(1)
            seen.append(every_job(other)[0].rows_done)
        assert seen == [0, 0, 3, 3, 3, 6]


def test_progress_leaves_no_versions_for_vacuum(connection, url, always):
    with connect(url) as session, Job(session, "encode", "i") as job:
        job.phase("encoding")
        for _ in range(500):
            job.advance(1)
    pages = connection.execute("SELECT pg_relation_size('hashindex.job') / 8192").fetchone()
    assert pages == (1,)


def test_a_session_that_is_ended(connection, url, always):
    with connect(url) as session:
        with pytest.raises(HashIndexError, match="terminating connection"):
            with Job(session, "encode", "i") as job:
                job.phase("encoding")
                ended = connection.execute(
                    "SELECT pg_terminate_backend(%s, 5000)", [session.info.backend_pid]
                ).fetchone()
                assert ended == (True,)
                job.advance(1)
        assert states(connection) == [("encode", "i", "dead")]


def test_jobs_are_hidden_without_rights(connection, as_role):
    reader = as_role("reader")
    connection.execute(
        "GRANT USAGE ON SCHEMA hashindex TO reader; GRANT SELECT ON hashindex.jobs TO reader"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="table job"):
        reader.execute("SELECT * FROM hashindex.jobs")
    connection.execute("GRANT SELECT ON hashindex.job TO reader")
    assert reader.execute("SELECT * FROM hashindex.jobs").fetchall() == []
