"""Work on an index: what others see of it while it runs, and when it has died."""

import json
import time
from datetime import timedelta

import psycopg
import pytest
from fixtures.indexes import begin_lists
from fixtures.work import add_dead, seen

from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim
from pg_hashindex.db.work import claimed_work, list_work
from pg_hashindex.errors import HashIndexError, InUseError

pytestmark = pytest.mark.newest


def encoding(session):
    return claimed_work(session, "encode", "items_idx")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_another_session_sees_how_far_work_is(bare, other, always, error):
    session = bare.connection
    try:
        with encoding(session) as work:
            (row,) = list_work(other)
            assert (row.work, row.name, row.phase, row.share) == ("encode", "items_idx", None, None)
            assert (row.is_running, row.resume) == (True, None)
            assert (row.role, row.pid) == ("postgres", session.info.backend_pid)
            work.phase("first", 400)
            work.advance(150)
            work.advance(50)
            (row,) = list_work(other)
            assert (row.phase, row.rows_done, row.rows_total) == ("first", 200, 400)
            assert row.share == 0.5
            work.phase("second")
            (row,) = list_work(other)
            assert (row.phase, row.rows_done, row.rows_total) == ("second", 0, None)
            with pytest.raises(InUseError, match="being encoded"), encoding(other):
                pass
            if error is not None:
                raise error
    except (KeyboardInterrupt, ValueError):
        assert error is not None
    assert list_work(other) == []
    held = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert held == (0,)


@pytest.mark.parametrize(
    ("work", "others"),
    {
        "encode": ("repair",), "repair": ("encode", "swap"), "swap": ("repair",),
    }.items(),
)  # fmt: skip
def test_one_session_at_a_time_writes_codes(bare, other, work, others):
    """A swap writes its own beside; one session may do several, as a repair encodes."""
    with claimed_work(bare.connection, work, "items_idx"):
        for asked in ("encode", "repair", "swap"):
            if asked in (*others, work):
                with pytest.raises(InUseError, match="by another session; wait for it"):
                    claim(other, asked, "items_idx")
            else:
                with claimed_work(other, asked, "items_idx"):
                    pass
            if asked != work:
                with claimed_work(bare.connection, asked, "items_idx"):
                    pass


def test_time_left(bare, other):
    with encoding(bare.connection):
        for done, total, left in (
            (1000, 4000, 300),
            (4200, 4000, 0),
            (0, 9, None),
            (9, None, None),
        ):
            bare.connection.execute(
                "UPDATE hashindex.claim SET rows_done = %s, rows_total = %s, "
                "phase_started_at = now() - interval '100 s'",
                [done, total],
            )
            wanted = None if left is None else timedelta(seconds=left)
            assert list_work(other)[0].time_left == wanted


def test_work_without_its_lock_is_dead(bare, other, make_database):
    connection = bare.connection
    dead, running = [("encode", "items_idx", False)], [("encode", "items_idx", True)]
    claim(connection, "encode", "items_idx")
    assert seen(other) == running
    (lock,) = connection.execute("SELECT lock FROM hashindex.claim").fetchone() or (0,)
    connection.execute("SELECT pg_advisory_unlock(%s)", [lock])
    assert seen(other) == dead
    # Nor do locks of other kinds, of other sessions, or of other databases.
    connection.execute("SELECT pg_advisory_lock(%s, %s)", [lock >> 32 & 0x7FFFFFFF, 1])
    with psycopg.connect(make_database("template_vector")) as elsewhere:
        for session in (elsewhere, other):
            session.execute("SELECT pg_advisory_lock(%s)", [lock])
            assert seen(other) == dead
            session.execute("SELECT pg_advisory_unlock(%s)", [lock])
    connection.execute("SELECT pg_advisory_lock(%s)", [lock])
    assert seen(other) == running


def test_the_end_of_work_is_not_taken_for_its_death(bare, other):
    """A query that began before it sees the row as it was, and the locks as they are."""
    runs = "SELECT hashindex._is_running(c.work, c.name, c.pid, c.lock) FROM hashindex.claim c"
    with other.transaction():
        with encoding(bare.connection):
            other.execute(f"DECLARE c CURSOR FOR {runs}".encode())
        assert other.execute("FETCH c").fetchone() == (None,)


def test_a_row_is_written_once_a_second(bare, other, monkeypatch):
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    with encoding(bare.connection) as work:
        work.phase("encoding", 9)
        written = []
        for _ in range(6):
            clock += 0.4
            work.advance(1)
            written.append(list_work(other)[0].rows_done)
        assert written == [0, 0, 3, 3, 3, 6]


def test_progress_leaves_no_versions_for_vacuum(bare, url, always):
    with connect(url) as session, encoding(session) as work:
        work.phase("encoding")
        for _ in range(500):
            work.advance(1)
    pages = bare.connection.execute("SELECT pg_relation_size('hashindex.claim') / 8192").fetchone()
    assert pages == (1,)


def test_a_session_that_is_ended(bare, url, always):
    with connect(url) as session:
        with pytest.raises(HashIndexError, match="terminating connection"):
            with encoding(session) as work:
                work.phase("encoding")
                ended = bare.connection.execute(
                    "SELECT pg_terminate_backend(%s, 5000)", [session.info.backend_pid]
                ).fetchone()
                assert ended == (True,)
                work.advance(1)
        assert seen(bare.connection) == [("encode", "items_idx", False)]


def test_the_command_that_continues_dead_work(connection, model, items, on):
    """It takes the row over; work that has left nothing to continue is not listed."""
    index = begin_lists(
        connection, "Its-1", table=items, column="embedding", model="lsh", access="lists"
    )
    for kind in ("encode", "repair", "swap"):
        add_dead(connection, kind, "Its-1")

    def told():
        return {(one.work, one.resume) for one in list_work(connection)}

    encode, repair = (f"pg-hashindex index {verb} Its-1" for verb in ("encode", "repair"))
    # Its first set is being built.
    assert told() == {("encode", encode), ("swap", encode), ("repair", repair)}
    said = on("index", "show", "Its-1").stderr
    assert "swap of Its-1: x, by postgres (process 1) since 20" in said
    assert said.count(f": dead; continue: {encode}\n") == 2
    assert said.count(f": dead; continue: {repair}\n") == 1
    index.encode()
    assert told() == {("repair", repair)}
    begin = "SELECT hashindex._begin_swap('Its-1', 'lsh', %s, NULL, NULL, NULL, false)"
    connection.execute(begin, ["scan"])
    add_dead(connection, "swap", "Its-1")
    assert told() == {("swap", encode), ("repair", repair)}
    on("index", "repair", "Its-1", "--undo")
    assert told() == set()
    # A build of pgvector's is not continued: the next run makes it again.
    connection.execute(begin, ["hnsw"])
    add_dead(connection, "swap", "Its-1")
    assert told() == set()
    index.drop()
    assert connection.execute("SELECT count(*) FROM hashindex.claim").fetchone() == (0,)


def test_what_the_commands_say(on, bare):
    assert json.loads(on("index", "show", "--json").stdout)[0]["work"] == []
    with encoding(bare.connection) as work:
        work.phase("encoding", 400)
        for command in (["show"], ["show", "items_idx"]):
            bare.connection.execute(
                "UPDATE hashindex.claim "
                "SET rows_done = 300, phase_started_at = now() - interval '450 s'"
            )
            result = on("index", *command)
            assert "encode 75%, 0:02:30 left" in result.stdout
            assert "encode of items_idx: encoding, 300 of 400 rows, by postgres" in result.stderr
            found = json.loads(on("index", *command, "--json").stdout)
            (one,) = (found[0] if command == ["show"] else found)["work"]
            assert (one["work"], one["share"], one["time_left"]) == ("encode", 0.75, 150)
            assert (one["pid"], one["resume"]) == (bare.connection.info.backend_pid, None)


def test_readers_see_work_and_forge_none(bare, as_role):
    reader = as_role("reader")
    bare.connection.execute("GRANT USAGE ON SCHEMA hashindex TO reader")
    with encoding(bare.connection):
        assert seen(reader) == [("encode", "items_idx", True)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="table claim"):
            reader.execute("UPDATE hashindex.claim SET rows_done = 1")
