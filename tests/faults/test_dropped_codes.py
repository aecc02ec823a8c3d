"""Searches that meet a build at the moment between its exchange and the drop of the old codes."""

import threading

import psycopg
import pytest
from fixtures.faults import eventually
from fixtures.indexes import with_access
from fixtures.landmarks import tables_of

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError

pytestmark = [pytest.mark.newest, pytest.mark.parametrize("listed_template", ["l2"], indirect=True)]

_QUERY = "(SELECT embedding FROM items WHERE id = 7)"
SEARCHES = {
    "typed": f"SELECT id::text FROM hashindex.search_items_idx({_QUERY}, 10)",
    "by name": f"SELECT id FROM hashindex.search('items_idx', {_QUERY}, 10)",
    "filter": f"SELECT id FROM hashindex.search('items_idx', {_QUERY}, 10, filter => 'dear(id)')",
}


#: Without it, so small a table would be searched exactly under a filter.
DEAR = """
    CREATE FUNCTION dear(id bigint) RETURNS boolean LANGUAGE plpgsql COST 1000000
    AS 'BEGIN RETURN true; END'
"""
#: Locks that a search waits for: the row of its set, before it looks whether codes are there;
#: and, after that, the codes.
PLACES = {"before it looks for codes": ("index_set", True), "after": ("codes", True)}


@pytest.mark.parametrize("access", ["lists", "scan"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("waits_for", "warm"), PLACES.values(), ids=list(PLACES))
def test_a_search_that_waits_while_its_codes_are_dropped(
    listed, url, name, isolation, waits_for, warm, access
):
    """It has the former function and snapshot, and no lock on the former codes."""
    if access != "lists":
        with_access(listed, access)
    listed.connection.execute(DEAR)
    statement = SEARCHES[name]
    exact = [
        str(key)
        for (key,) in listed.connection.execute(
            f"SELECT id FROM items ORDER BY embedding <-> {_QUERY}, id LIMIT 10".encode()
        )
    ]
    before = tables_of(listed)
    waits_for = before[0] if waits_for == "codes" else waits_for
    answers = meet_a_drop(listed, url, statement, isolation, waits_for, warm=warm)
    assert tables_of(listed)[0] != before[0]
    assert answers == exact


def test_near_codes_of_dropped_tables(listed, url):
    """Codes within a radius are of a table of codes alone, so the statement is to be run again."""
    with_access(listed, "scan")
    statement = f"SELECT id::text FROM hashindex.within('items_idx', {_QUERY}, 3)"
    (refused,) = meet_a_drop(listed, url, statement, "read committed", "index_set", warm=True)
    assert isinstance(refused, psycopg.errors.SerializationFailure), refused
    assert 'index "items_idx" has been built again' in str(refused)


def test_missing_table_in_a_filter(listed):
    with pytest.raises(HashIndexError, match='"nowhere" does not exist'):
        listed.search([1.0] * 8, filter="id IN (SELECT 1 FROM nowhere)")


def test_dropped_landmarks(listed):
    """Searches are exact; the check says what to do."""
    query = listed.connection.execute(_QUERY.encode()).fetchone()
    exact = [hit.id for hit in listed.search(query[0], 10, effort=1000, candidates=3000)]
    listed.connection.execute(f"DROP TABLE hashindex.{tables_of(listed)[1]}".encode())
    assert [hit.id for hit in listed.search(query[0], 10)] == exact


def build_again(builder):
    """Build a set with one landmark in the transaction that holds the lock, and drop the former."""
    begin = (
        "SELECT CASE s.access WHEN 'lists' THEN hashindex._begin_rebalance('items_idx') ELSE ("
        "SELECT (b.s).id FROM hashindex._begin_swap("
        "'items_idx', NULL, 'lists', NULL, NULL, NULL, false) b) END, s.id "
        "FROM hashindex._set_of('items_idx') s"
    )
    coming, before = builder.execute(begin).fetchone()
    builder.execute(f"SELECT hashindex._begin_lists({coming})")
    builder.execute(
        f"INSERT INTO hashindex.set_{coming}_landmarks "
        "SELECT 0, array_fill(1, ARRAY[a.atttypmod])::halfvec FROM pg_attribute a "
        f"WHERE attrelid = 'hashindex.set_{coming}_landmarks'::regclass AND attname = 'centre'"
    )
    builder.execute(
        f"INSERT INTO hashindex.set_{coming}_staged SELECT id, 0, code "
        f"FROM hashindex.set_{before}_codes"
    )
    for step in (f"_index_landmarks({coming})", f"_order_lists({coming}, 300)"):
        builder.execute(f"SELECT hashindex.{step}")
    assert builder.execute(f"SELECT hashindex._finish_lists({coming})").fetchone() == (True,)
    builder.execute(f"SELECT hashindex._exchange_set('items_idx', {coming})")
    builder.execute("SELECT hashindex.prune_index('items_idx')")


def meet_a_drop(index, url, statement, isolation, waits_for, *, warm):
    """Return what a search gives that waits while its codes are built again and dropped."""
    answers = []

    def search(session):
        try:
            answers.extend(row[0] for row in session.execute(statement.encode()))
        except psycopg.Error as error:
            answers.append(error)

    with connect(url) as searcher, psycopg.connect(url) as builder:
        for _ in range(7 if warm else 0):
            searcher.execute(statement.encode())
        builder.execute(f"LOCK TABLE hashindex.{waits_for} IN ACCESS EXCLUSIVE MODE".encode())
        searcher.autocommit = False
        searcher.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}".encode())
        searcher.execute("SELECT 1 FROM items LIMIT 1")
        thread = threading.Thread(target=search, args=[searcher])
        thread.start()
        pid = searcher.info.backend_pid
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
        eventually(lambda: index.connection.execute(waiting, [pid]).fetchone() == (True,))
        build_again(builder)
        builder.commit()
        thread.join(60)
    return answers
