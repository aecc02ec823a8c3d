"""Behind PgBouncer: commands that hold locks of their session refuse transaction mode."""

import pytest
from click.testing import CliRunner
from fixtures.checks import assert_fresh
from pg_hashindex.cli import main

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.index.handle import HashIndex

pytestmark = [pytest.mark.newest, pytest.mark.parametrize("listed_template", ["l2"], indirect=True)]

REFUSED = "a pooler in transaction mode gives each transaction another session of the server"

COMMANDS = {
    "encode": ["index", "encode", "items_idx"],
    "rebalance": ["index", "rebalance", "items_idx"],
    "repair": ["index", "repair", "items_idx"],
    "swap": ["index", "swap", "items_idx", "--access", "scan", "--force"],
}


def left_behind(connection):
    return connection.execute(
        "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), "
        "(SELECT count(*) FROM hashindex.claim)"
    ).fetchone()


@pytest.mark.reads
@pytest.mark.parametrize("command", COMMANDS)
def test_transaction_mode_is_refused(connection, listed, url, pooled, command):
    before = left_behind(connection)
    through = pooled(url, "transaction")
    arguments = [*COMMANDS[command], "--database-url", through]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3, result.output
    assert REFUSED in result.stderr
    assert "connect to the server itself" in result.stderr
    assert left_behind(connection) == before


def test_session_mode_serves(listed, url, pooled):
    with connect(pooled(url, "session")) as session:
        index = HashIndex.open(session, "items_idx")
        index.rebalance()
        index.encode()
    assert left_behind(listed.connection) == (0, 0)


def test_a_session_that_is_exchanged_after_the_claim(listed, monkeypatch):
    """A pooler that was not known for one: the lock is asked for in another transaction."""
    monkeypatch.setattr("pg_hashindex.db.locks._has", lambda connection, lock: False)
    with pytest.raises(DatabaseStateError, match=REFUSED):
        listed.rebalance()


def test_searches_prepare_nothing_if_that_is_switched_off(listed, url):
    with connect(url) as session:
        session.prepare_threshold = None
        index = HashIndex.open(session, "items_idx")
        for _ in range(10):
            index.search_like(1, k=5)
        found = session.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert found == (0,)


@pytest.mark.parametrize(
    "done", ["EXECUTE 'DEALLOCATE ALL'", "EXECUTE format('PREPARE _pg3_%s AS SELECT 1', n)"]
)
def test_statements_that_a_pooler_does_not_track(listed, done):
    """Another connection had the session meanwhile."""
    if "ALL" in done:
        listed.search([1.0] * 8)
    listed.connection.execute(
        f"DO 'BEGIN FOR n IN 0..99 LOOP {done.replace(chr(39), 2 * chr(39))}; END LOOP; END'"
    )
    with pytest.raises(DatabaseStateError, match="prepared statement.*pooler in transaction mode"):
        listed.search([1.0] * 8)


def test_searches_and_writes(listed, url, pooled):
    through = pooled(url, "transaction")
    with connect(through) as one, connect(through) as two:
        for session in (one, two):
            session.prepare_threshold = None
        for number in range(6):
            writer, reader = (one, two) if number % 2 else (two, one)
            key = 10_000 + number
            query = [float(number), 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
            writer.execute("INSERT INTO items VALUES (%s, 'a', %s::real[]::vector)", [key, query])
            assert (
                HashIndex.open(reader, "items_idx")
                .search(query, 1, candidates=4000, effort=1000)[0]
                .id
                == key
            )
            found = reader.execute(
                "SELECT id FROM hashindex.search('items_idx', %s::real[]::vector, 1, 4000, 1000, "
                "filter => 'true')",
                [query],
            ).fetchone()
            assert found == (str(key),)
    assert_fresh(listed)
