"""Changes to an index that wait for an idle transaction keep no other session waiting."""

import collections
import contextlib
import re
import threading

import psycopg
import pytest
from click.testing import CliRunner
from fixtures.faults import eventually
from fixtures.indexes import begin_lists
from pg_hashindex.cli import main

from pg_hashindex import schema, store
from pg_hashindex.db import locks
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import InUseError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

#: Seconds for which a change is tried, by a clock that only its own pauses move.
PATIENCE = 1.5
#: How often everyone else succeeds in each pause.
BETWEEN = 5
#: Seconds: more than a busy machine needs.
LIMIT = 300.0

IN_USE = (
    r'^("public"\.)?"?items"? has been in use for [\d.]+ s: canceling statement due to lock '
    r"timeout; run the command again when the transactions that use it have ended "
    r"\(processes [\d, ]+ hold locks on it\)"
)

READ = "SELECT count(*) FROM items"
WRITE = "UPDATE items SET category = category WHERE id = 5"
OTHER_WRITE = WRITE.replace("5", "6")
SEARCH = "SELECT * FROM hashindex.search('items_idx', (SELECT embedding FROM items LIMIT 1))"
# By the typed function alone: it reads all that it needs.
TYPED = "SELECT * FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


def drop(connection):
    HashIndex.open(connection, "items_idx").drop(patience=PATIENCE)


def create(connection):
    begin_lists(
        connection, "another", table="items", column="embedding", model="lsh", patience=PATIENCE
    )


def prune(connection):
    HashIndex.open(connection, "items_idx").prune()


@pytest.fixture
def indexed(request, connection, items, model):
    access = getattr(request, "param", "scan")
    created = begin_lists(
        connection, "items_idx", table=items, column="embedding", model="lsh", access=access
    )
    created.encode()
    return HashIndex.open(connection, "items_idx")


def state(connection):
    """All that an index adds to a database, by its names, and how many locks of others are left."""
    return connection.execute(
        "SELECT 'relation', c.relname::text FROM pg_class c "
        "WHERE relname ~ 'items_idx|another|^set_[0-9]' "
        "UNION ALL SELECT 'function', p.proname FROM pg_proc p WHERE proname ~ 'items_idx|another' "
        "UNION ALL SELECT 'trigger', t.tgname FROM pg_trigger t WHERE tgname ~ 'items_idx|another' "
        "UNION ALL SELECT 'set', concat_ws(' ', s.index_name, s.access, s.state) "
        "FROM hashindex.index_set s ORDER BY 1, 2"
    ).fetchall()


class Clock:
    """The time of `locks`: it passes only where a change pauses between two tries.

    Parameters
    ----------
    paused : callable
        Called in each pause.
    """

    def __init__(self, paused):
        self.now = 0.0
        self.pauses = 0
        self.paused = paused

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.pauses += 1
        self.paused()


@contextlib.contextmanager
def users(url, *statements):
    """Run each statement again and again; yield what waits until each has succeeded some times."""
    counts = collections.Counter()
    problems = []
    ends = threading.Event()

    def use(statement):
        try:
            with psycopg.connect(url, autocommit=True) as session:
                while not ends.is_set():
                    session.execute(statement.encode())
                    counts[statement] += 1
        except psycopg.Error as error:
            problems.append(error)

    def await_all():
        before = {statement: counts[statement] for statement in statements}
        eventually(
            lambda: bool(problems) or all(counts[s] - n >= BETWEEN for s, n in before.items()),
            LIMIT,
        )

    threads = [threading.Thread(target=use, args=[statement]) for statement in statements]
    for thread in threads:
        thread.start()
    try:
        yield await_all
    finally:
        ends.set()
        for thread in threads:
            thread.join(LIMIT)
    assert problems == []


#: A change, and the statement of an idle transaction that blocks it.
WORK = {
    "drop, beside a reader": ("scan", drop, READ),
    "drop, beside a writer": ("scan", drop, WRITE),
    "drop, beside a search": ("scan", drop, SEARCH),
    "drop landmarks, beside a search": ("lists", drop, SEARCH),
    "drop landmarks, beside a typed search": ("lists", drop, TYPED),
    "create, beside a writer": ("scan", create, WRITE),
    "drop former landmarks, beside a search": ("lists", prune, TYPED),
}


@pytest.mark.parametrize(
    ("indexed", "act", "held"), list(WORK.values()), ids=list(WORK), indirect=["indexed"]
)
def test_others_do_not_wait_behind_it(url, indexed, act, held, monkeypatch):
    """Each try ends by its lock_timeout; then all others continue while the transaction is idle."""
    with psycopg.connect(url) as idle, connect(url) as operator:
        idle.execute(held.encode())
        if act is prune:
            # The transaction has read what comes out of use.
            indexed.swap(access="scan", force=True)
        before = state(indexed.connection)
        with users(url, READ, OTHER_WRITE, SEARCH) as await_all, monkeypatch.context() as patch:
            clock = Clock(await_all)
            patch.setattr(locks, "time", clock)
            patch.setattr(locks, "PATIENCE", PATIENCE)
            with pytest.raises(InUseError, match=IN_USE) as refused:
                act(operator)
        # Nothing is left half-made.
        assert state(indexed.connection) == before
        pid = idle.info.backend_pid
        idle.rollback()
        act(operator)
    assert state(indexed.connection) != before
    # A search by the typed function holds locks on all that it reads, the table among it.
    assert str(pid) in re.findall(r"\d+", str(refused.value).partition("(")[2])
    assert clock.pauses == PATIENCE // locks._PAUSE + 1


@pytest.mark.parametrize("act", [drop, create], ids=["drop", "create"])
def test_it_is_done_once_the_transaction_ends(url, indexed, act, monkeypatch):
    before = state(indexed.connection)
    with psycopg.connect(url) as idle, connect(url) as operator:
        idle.execute(WRITE)
        clock = Clock(lambda: clock.pauses == 2 and idle.rollback())
        monkeypatch.setattr(locks, "time", clock)
        act(operator)
    assert clock.pauses == 2
    assert state(indexed.connection) != before


def test_in_a_transaction_of_the_caller_s(url, indexed):
    """A try that fails gives its locks back, and the transaction goes on as it was."""
    with psycopg.connect(url) as idle, connect(url) as operator:
        idle.execute(READ)
        with operator.transaction():
            operator.execute("SET LOCAL lock_timeout = '7s'")
            operator.execute("CREATE TABLE kept (id int)")
            with pytest.raises(InUseError, match=IN_USE):
                HashIndex.open(operator, "items_idx").drop(patience=0)
            assert indexed.connection.execute(READ).fetchone() == (300,)
            create(operator)
            assert operator.execute("SHOW lock_timeout").fetchone() == ("7s",)
        assert operator.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        assert HashIndex.open(operator, "another").access == "scan"


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_session_keeps_its_settings(url, indexed, autocommit):
    with connect(url) as operator:
        operator.autocommit = autocommit
        operator.execute("SET lock_timeout = '7s'")
        operator.commit()
        drop(operator)
        assert operator.execute("SHOW lock_timeout").fetchone() == ("7s",)


@pytest.mark.parametrize("patience", [-1.0, float("nan"), float("inf")])
def test_invalid_lock_timeouts(indexed, patience):
    with pytest.raises(InvalidInputError, match=f"patience is {patience}; it must be 0 seconds"):
        indexed.drop(patience=patience)


@pytest.mark.parametrize(
    "command",
    [
        ["drop", "items_idx", "--yes"],
        [
            "create",
            "another",
            "--table",
            "items",
            "--column",
            "embedding",
            "--model",
            "lsh",
            "--access",
            "scan",
        ],
    ],
    ids=["drop", "create"],
)
def test_commands(url, indexed, command):
    before = state(indexed.connection)
    arguments = ["index", *command, "--patience", "0.3", "--database-url", url]
    with psycopg.connect(url) as idle:
        idle.execute(WRITE)
        refused = CliRunner().invoke(main, arguments)
        assert refused.exit_code == 3
        assert re.match(IN_USE, refused.stderr.rpartition("Error: ")[2])
        assert f"(processes {idle.info.backend_pid} hold locks on it)" in refused.stderr
        assert state(indexed.connection) == before
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert state(indexed.connection) != before


def test_a_minute_by_default(url, indexed, monkeypatch, vectors):
    """All that changes an index goes by one number: swaps and repairs, too."""
    assert locks.PATIENCE == 60
    # In milliseconds, the longest that others wait behind a try.
    assert locks.LOCK_MS == 100
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    store.save(indexed.connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    with psycopg.connect(url) as idle:
        idle.execute(WRITE)
        for act in (
            indexed.drop,
            lambda: indexed.swap(model="other"),
            lambda: begin_lists(
                indexed.connection, "another", table="items", column="embedding", model="lsh"
            ),
        ):
            with pytest.raises(InUseError, match=IN_USE):
                act()


def test_an_upgrade_keeps_no_writer_waiting(url, indexed):
    """With nothing to do it takes no lock that a reader holds up; else it tries for a while."""
    engine = create_engine(url)
    with psycopg.connect(url) as idle:
        idle.execute("SELECT FROM hashindex.readable_model")
        with engine.begin() as upgrading:
            assert not schema.upgrade(upgrading, patience=0)
        indexed.connection.execute("COMMENT ON SCHEMA hashindex IS 'an older one. Functions 0123'")
        with users(url, WRITE, SEARCH) as await_all, pytest.raises(InUseError, match="in use"):
            with engine.begin() as upgrading:
                schema.upgrade(upgrading, patience=1)
            await_all()
    with engine.begin() as upgrading:
        assert schema.upgrade(upgrading)
    engine.dispose()


def test_a_grant_that_changes_nothing(connection, as_role, model):
    """Codes that follow policies keep these, and no session waits for their table."""
    as_role("reader")
    connection.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, category text, embedding vector(8)); "
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; GRANT SELECT ON items TO reader; "
        "CREATE POLICY p ON items USING (category = current_user)"
    )
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", tenant="category"
    )
    index.grant("reader")
    with psycopg.connect(connection.info.dsn) as idle:
        idle.execute(f"SELECT FROM hashindex.set_{index.set_id}_codes".encode())
        connection.execute("SET lock_timeout = '100ms'")
        index.grant("reader")
