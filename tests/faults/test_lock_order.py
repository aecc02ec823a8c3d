"""Searches, TRUNCATE and drops take locks in one order, so that none of them deadlocks."""

import collections
import itertools
import re
import threading

import psycopg
import pytest
from fixtures.faults import eventually
from fixtures.indexes import begin_lists

from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

ACCESS = ("scan", "lists")
#: How often the table or the index is changed, and how often all others succeed after each change.
ROUNDS = {"truncate": 30, "drop": 8}
BETWEEN = 3
#: Seconds: more than a busy machine needs.
LIMIT = 300.0
#: The errors that a search may meet. Between a drop and the next index there is no index.
EXPECTED = {
    "truncate": r"40001 table \S+ was emptied and filled again since this statement began",
    "drop": r'42X02 index "items_idx" does not exist|'
    r"42883 function hashindex\.(search|candidates)_items_idx\(.*\) does not exist|"
    # A search that began before the drop: see the test of a plain function.
    r"XX000 cache lookup failed for function \d+",
}

_QUERY = "'[1,2,3,4,5,6,7,8]'"
#: Ways to search: by a function alone, and in statements that read the table too, first or last.
SEARCHES = {
    "typed": f"SELECT id FROM hashindex.search_items_idx({_QUERY})",
    "by name": f"SELECT id FROM hashindex.search('items_idx', {_QUERY})",
    "filter": "SELECT id FROM hashindex.search('items_idx', "
    f"""{_QUERY}, where_equals => '{{"category": "a"}}')""",
    "condition": "SELECT id FROM hashindex.search('items_idx', "
    f"{_QUERY}, filter => 'category <> ''a''')",
    "before the table": "SELECT i.id FROM hashindex.search_items_idx("
    f"{_QUERY}) s JOIN items i USING (id)",
    "after the table": "SELECT i.id FROM items i WHERE i.id IN "
    f"(SELECT s.id FROM hashindex.search_items_idx({_QUERY}) s)",
}
#: Others that read codes and table, which the searches above are not mixed with.
OTHERS = {
    "within": f"SELECT id FROM hashindex.within('items_idx', {_QUERY}, 3)",
    "near duplicates": "SELECT id FROM hashindex.near_duplicates('items_idx', 0.1, 3)",
}

_REFILL = (
    "INSERT INTO items SELECT n, chr(97 + n % 3), "
    "ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector FROM generate_series(1, 100) n"
)


def make(connection, access):
    created = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh",
        access=access,  # type: ignore[arg-type]
    )  # fmt: skip
    created.encode()
    return HashIndex.open(connection, "items_idx")


@pytest.fixture
def indexed(request, connection, items, model):
    connection.execute("ANALYZE items")
    return make(connection, request.param)


def await_lock(connection, waiting):
    """Wait until another session waits for a lock."""
    statement = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
    pid = waiting.info.backend_pid
    eventually(lambda: connection.execute(statement, [pid]).rowcount > 0)


def message(error):
    return f"{error.sqlstate} {error.diag.message_primary}"


def truncate(session):
    session.execute("TRUNCATE items")


def drop(session):
    session.execute("SELECT hashindex.drop_index('items_idx')")


@pytest.mark.parametrize("change", [truncate, drop], ids=["truncate", "drop"])
@pytest.mark.parametrize("warm", [False, True], ids=["new session", "kept plans"])
@pytest.mark.parametrize("indexed", ACCESS, indirect=True)
def test_a_search_that_waits_for_the_table_holds_nothing_that_a_change_needs(
    url, indexed, warm, change
):
    """Whoever has locked the table gets all that belongs to its index, too."""
    deadlocks = []
    others = {n: text for n, text in OTHERS.items() if n == "within" or indexed.access != "scan"}
    for name, statement in (SEARCHES | others).items():
        outcome = []

        def search(session, text, outcome):
            try:
                session.execute(text.encode())
                outcome.append(None)
            except psycopg.Error as error:
                outcome.append(error)

        with connect(url) as searcher, psycopg.connect(url) as changer:
            for _ in range(7 if warm else 0):
                searcher.execute(statement.encode())
            # The first to look for a deadlock is the one that fails.
            searcher.execute("SET deadlock_timeout = '5s'")
            changer.execute("SET deadlock_timeout = '50ms'")
            changer.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
            thread = threading.Thread(target=search, args=[searcher, statement, outcome])
            thread.start()
            await_lock(indexed.connection, searcher)
            try:
                change(changer)
            except psycopg.errors.DeadlockDetected:
                deadlocks.append(name)
            # A search that was let through after a drop would find no function: it is put back.
            changer.rollback()
            thread.join(30)
            assert outcome == [None]
    assert deadlocks == []


def test_a_plain_function_that_is_dropped_while_its_caller_waits(url, connection, items):
    """PostgreSQL finds the function, waits for the table, and then has no function."""
    connection.execute("CREATE FUNCTION plain() RETURNS SETOF int LANGUAGE plpgsql AS 'BEGIN END'")
    errors = []

    def call(session):
        try:
            session.execute("SELECT FROM plain() p(id) JOIN items USING (id)")
        except psycopg.Error as error:
            errors.append(error)

    with psycopg.connect(url) as caller, psycopg.connect(url) as changer:
        changer.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        thread = threading.Thread(target=call, args=[caller])
        thread.start()
        await_lock(connection, caller)
        changer.execute("DROP FUNCTION plain()")
        changer.commit()
        thread.join(30)
    (text,) = map(message, errors)
    assert text.startswith("XX000")
    assert re.fullmatch(EXPECTED["drop"], text)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["truncate", "drop"])
@pytest.mark.parametrize("indexed", ["scan", "lists"], indirect=True)
def test_many_at_once(url, indexed, change):
    """Four sessions search, two of them in transactions; one writes, and one changes."""
    access = indexed.access
    counts = collections.Counter()
    problems = []
    ended = threading.Event()

    def run(what, act):
        try:
            with connect(url) as session:
                session.execute("SET deadlock_timeout = '20ms'")
                for number in itertools.count():
                    if ended.is_set():
                        return
                    try:
                        act(session, number)
                        counts[what] += 1
                    except psycopg.Error as error:
                        searches = what in {"search", "transaction"}
                        if not searches or not re.fullmatch(EXPECTED[change], message(error)):
                            raise
        except BaseException as error:
            problems.append(error)
            ended.set()

    texts = [text.encode() for text in SEARCHES.values()]

    def search(session, number):
        session.execute(texts[number % len(texts)])

    def search_in_transactions(session, number):
        with session.transaction():
            for _ in range(3):
                search(session, number)

    def write(session, number):
        session.execute("UPDATE items SET embedding = embedding WHERE id = %s", [number % 100])

    def act(session, number):
        if change == "truncate":
            with session.transaction():
                session.execute("TRUNCATE items")
                session.execute(_REFILL)
        else:
            HashIndex.open(session, "items_idx").drop()
            make(session, access)
        before = {what: counts[what] for what in others}
        # Now the index is searched.
        eventually(
            lambda: ended.is_set() or all(counts[w] - n >= BETWEEN for w, n in before.items()),
            LIMIT,
        )
        if number + 1 == ROUNDS[change]:
            ended.set()

    work = [
        ("search", search),
        ("search", search),
        ("transaction", search_in_transactions),
        ("transaction", search_in_transactions),
        ("write", write),
        (change, act),
    ]
    others = {what for what, _ in work} - {change}
    threads = [threading.Thread(target=run, args=arguments) for arguments in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert problems == []
    assert counts[change] == ROUNDS[change]
