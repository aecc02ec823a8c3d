"""A rebalance that was killed: the check warns; repair and encode finish it, or it is given up."""

import threading
from functools import partial

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.health import findings
from fixtures.indexes import begin_lists
from fixtures.landmarks import relations, tables_of

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
    return (
        connection.execute("SELECT FROM pg_class c WHERE c.relname ~ '^set_[0-9]+_log$'").rowcount
        > 0
    )


def quiet(index):
    """Return whether the check finds triggers, lists and any other set in order."""
    found = findings(index)
    other = found.get("other_set")
    return found["triggers"].status == found["access"].status == "ok" and (
        other is None or other.status == "ok"
    )


def assert_ended(index):
    assert not logs_writes(index)
    index.connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id % 3 = 0")
    assert quiet(index)
    now = HashIndex.open(index.connection, "items_idx")
    codes, landmarks = tables_of(now)
    left = {name for name in relations(index.connection) if "_pkey" not in name}
    left = {name for name in left if not name.endswith(("_landmark_idx", "_centre_idx"))}
    assert left == {codes, landmarks}
    assert_fresh(now)


def test_the_check_warns(left):
    assert logs_writes(left)
    found = findings(left)["other_set"]
    assert (found.status, found.detail) == (
        "warning",
        "beside it is a set in state building: codes of lsh:1 in lists, and no session builds it; "
        "triggers log each key that is written",
    )
    assert found.advice == (
        "finish it: pg-hashindex index encode items_idx; "
        "or give it up: pg-hashindex index repair items_idx --undo"
    )


def test_the_check_is_quiet_while_a_session_rebalances(left, url):
    with connect(url) as other:
        claim(other, "swap", "items_idx")
        assert quiet(left)
        # No other session ends its work.
        left.configure(candidates=77)
        with pytest.raises(InUseError, match="by another session"):
            operations.repair(left)
        assert logs_writes(left)
        release(other, "swap", "items_idx")
    assert not quiet(left)


def test_a_rebalance_continues_it(left):
    left.rebalance()
    assert_ended(left)


@pytest.mark.parametrize(
    ("step", "undo"),
    [("_read_rows", False), ("_put_in_order", False), ("_finished", False), ("_finished", True)],
)
def test_a_repair_ends_it(listed, monkeypatch, step, undo):
    """It finishes the build, or gives it up."""
    before = tables_of(listed)
    _kill_at(step, listed.rebalance, monkeypatch)
    done = operations.repair(listed, undo=undo).done
    if undo:
        assert done == ("gave up a set that was not in use: codes of lsh:1 in lists",)
    else:
        assert done == ("finished a set that was being built: codes of lsh:1 in lists",)
    assert (tables_of(listed) == before) == undo
    assert_ended(listed)
    assert operations.repair(listed).done == ()


@pytest.mark.parametrize("emptied", [False, True])
def test_encode_ends_it(left, emptied):
    if emptied:
        left.connection.execute("TRUNCATE items")
    assert left.encode() == (0 if emptied else 3000)
    assert_ended(left)


def test_a_swap_to_another_set_is_refused(left):
    with pytest.raises(InUseError, match="being swapped to another set: codes of lsh:1 in lists;"):
        left.swap(model="lsh:1", access="scan", force=True)
    operations.repair(left, undo=True)
    left.swap(model="lsh:1", access="scan", force=True)
    assert quiet(left)
    left.prune()
    assert not logs_writes(left)


def test_a_first_build_that_was_cut_off(connection, listed, monkeypatch):
    """The check says what it costs; encode continues it."""
    listed.drop()
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="lists"
    )
    _kill_at("_read_rows", index.encode, monkeypatch)
    assert findings(index)["other_set"].detail.endswith(
        "no session builds it; triggers log each key that is written"
    )
    assert logs_writes(index)
    index.encode()
    assert_ended(index)


def test_a_writer_that_began_before(left, url):
    """A statement that is under way fires the triggers that it found: their log must be there."""
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
        ending = threading.Thread(target=partial(operations.repair, index, undo=True))
        ending.start()
        # It waits for the writer, in short tries.
        eventually(lambda: waits("relation") or not ending.is_alive())
        holder.execute("SELECT pg_advisory_unlock(7)")
        writer.join(30)
        ending.join(60)
    assert problems == []
    assert_ended(left)
