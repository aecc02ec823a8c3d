"""A rebalance that was killed: the check warns; repair and encode finish it, or it is given up."""

import threading
from functools import partial

import psycopg
import pytest
from click.testing import CliRunner
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.health import findings
from fixtures.landmarks import relations, tables_of
from pg_hashindex.cli import main

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim, release
from pg_hashindex.errors import InUseError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks.building import ListBuild

pytestmark = [pytest.mark.newest, pytest.mark.parametrize("listed_template", ["l2"], indirect=True)]


class KilledError(BaseException):
    """The process is gone: nothing after it runs."""


@pytest.fixture
def left(listed, monkeypatch):
    """An index whose rebalance ended once triggers log, before a row was read."""
    _kill_at("_read_rows", listed.rebalance, monkeypatch)
    return HashIndex.open(listed.connection, "items_idx")


def _kill_at(step, act, monkeypatch):
    def kill(*_):
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(ListBuild, step, kill)
        act()


def logs_writes(index):
    """Return whether triggers log the keys of an update."""
    connection = index.connection
    connection.execute("UPDATE items SET category = category WHERE id <= 10")
    row = connection.execute("SELECT to_regclass('hashindex.set_2_log')").fetchone()
    return row != (None,)


def quiet(index):
    """Return whether the check finds triggers and access path in order."""
    found = findings(index)
    return found["triggers"].status == found["access"].status == "ok"


def assert_ended(index):
    assert not logs_writes(index)
    index.connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id % 3 = 0")
    assert quiet(index)
    now = HashIndex.open(index.connection, "items_idx")
    codes, landmarks = tables_of(now)
    left = {
        name
        for name in relations(index.connection)
        if name.startswith("items_idx_") and "_pkey" not in name
    }
    left = {name for name in left if not name.endswith(("_landmark_idx", "_centre_idx"))}
    assert left == {name for name in (codes, landmarks) if name is not None}
    assert_fresh(now)


def test_the_check_warns(left):
    assert logs_writes(left)
    found = findings(left)["access"]
    assert (found.status, found.detail) == (
        "warning",
        "a rebalance was cut off, and no session continues it: searches use lists, and "
        "triggers log each key that is written",
    )
    assert found.advice == (
        "finish it: pg-hashindex index encode items_idx; "
        "or give it up: pg-hashindex index repair items_idx --undo"
    )


def test_the_check_is_quiet_while_a_session_rebalances(left, url):
    with connect(url) as other:
        claim(other, "access", "items_idx")
        assert quiet(left)
        # No other session ends its work.
        left.configure(access="lists", candidates=77)
        with pytest.raises(InUseError, match="being built"):
            operations.repair(left)
        assert logs_writes(left)
        release(other, "access", "items_idx")
    assert not quiet(left)


def test_a_rebalance_continues_it(left):
    left.rebalance()
    assert_ended(left)


@pytest.mark.parametrize("step", ["_read_rows", "_put_in_order", "_finished"])
@pytest.mark.parametrize("undo", [False, True])
def test_a_repair_ends_it(listed, monkeypatch, step, undo):
    """It finishes the build, or gives it up."""
    before = tables_of(listed)
    _kill_at(step, listed.rebalance, monkeypatch)
    done = operations.repair(listed, undo=undo).done
    if undo:
        assert "gave up the rebalance that was cut off" in done
    else:
        assert done == ("ended the rebalance that was cut off",)
    assert (tables_of(listed) == before) == undo
    assert_ended(listed)
    assert operations.repair(listed).done == ()


@pytest.mark.parametrize("emptied", [False, True])
def test_encode_ends_it(left, emptied):
    if emptied:
        left.connection.execute("TRUNCATE items")
    assert left.encode() == 0
    assert_ended(left)


@pytest.mark.parametrize(
    "options", [["--access", "scan"], ["--access", "lists"], ["--effort", "9"]]
)
def test_configure_ends_it(left, url, options):
    arguments = ["index", "configure", "items_idx", *options, "--database-url", url]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    left.encode()
    assert_ended(left)


def test_a_swap_ends_it(left):
    left.swap(model="lsh:1", access="scan", force=True)
    assert quiet(left)
    left.prune()
    assert not logs_writes(left)


def test_a_first_build_that_was_cut_off(connection, listed, monkeypatch):
    """The check says what it costs; encode continues it, and another path gives it up."""
    listed.configure(access="scan")
    index = listed.configure(access="lists")
    _kill_at("_read_rows", index.encode, monkeypatch)
    assert findings(index)["access"].detail.endswith(
        "searches use scan, and triggers log each key that is written"
    )
    assert logs_writes(index)
    index.configure(access="scan")
    assert_ended(index)


@pytest.mark.parametrize("end", ["undo", "configure"])
def test_a_writer_that_began_before(left, url, end):
    """A statement that is under way fires the triggers that it found: their log must be there."""
    if end == "configure":
        left.configure(access="scan")
        left = left.configure(access="lists")
        with pytest.MonkeyPatch.context() as patch:
            _kill_at("_read_rows", left.encode, patch)
    problems = []

    def write():
        try:
            with psycopg.connect(url, autocommit=True) as session:
                # Its trigger functions are compiled, as in any session that has written before.
                session.execute("UPDATE items SET category = category WHERE id = 1")
                session.execute(
                    "UPDATE items SET category = pg_advisory_lock(7)::text WHERE id = 2"
                )
        except psycopg.Error as error:
            problems.append(error)

    with psycopg.connect(url, autocommit=True) as holder, connect(url) as operator:
        holder.execute("SELECT pg_advisory_lock(7)")
        writer = threading.Thread(target=write)
        writer.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s"

        def waits(kind):
            return holder.execute(waiting, [kind]).fetchone() == (1,)

        eventually(lambda: waits("advisory"))
        index = HashIndex.open(operator, "items_idx")
        act = (
            partial(operations.repair, index, undo=True)
            if end == "undo"
            else lambda: index.configure(access="scan")
        )
        ending = threading.Thread(target=act)
        ending.start()
        # It waits for the writer, in short tries.
        eventually(lambda: waits("relation") or not ending.is_alive())
        holder.execute("SELECT pg_advisory_unlock(7)")
        writer.join(30)
        ending.join(60)
    assert problems == []
    assert_ended(left)
