"""Sessions with settings of their own: by a role, a database, or PGOPTIONS."""

import re

import psycopg
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.databases import run_as_admin
from fixtures.health import troubles
from fixtures.indexes import indexed

from pg_hashindex import operations, schema
from pg_hashindex.db.connection import connect, create_engine, outside_transactions
from pg_hashindex.errors import ConnectionFailedError, InvalidInputError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

# As many in a session as do not contradict each other: the first is read back at the end.
SETTINGS = [
    "DateStyle=German IntervalStyle=sql_standard TimeZone=Pacific/Chatham lc_messages=C "
    "client_min_messages=error default_transaction_isolation=serializable "
    "default_transaction_deferrable=on default_statistics_target=1 work_mem=64kB "
    "extra_float_digits=-15 from_collapse_limit=1 geqo_threshold=2 join_collapse_limit=1",
    "DateStyle=SQL,DMY IntervalStyle=iso_8601 array_nulls=off bytea_output=escape "
    "check_function_bodies=off client_min_messages=debug1 escape_string_warning=on "
    "default_transaction_isolation=repeatable\\ read extra_float_digits=3 search_path=nowhere "
    "cursor_tuple_fraction=1 hnsw.ef_search=1 hnsw.iterative_scan=strict_order",
    "DateStyle=Postgres enable_hashjoin=off enable_indexscan=off enable_seqscan=off "
    "enable_sort=off quote_all_identifiers=on standard_conforming_strings=off",
    "client_encoding=SQL_ASCII",
    "client_encoding=LATIN1 backslash_quote=off transform_null_equals=on xmloption=document "
    "synchronize_seqscans=off plan_cache_mode=force_custom_plan "
    "max_parallel_workers_per_gather=0 row_security=off constraint_exclusion=on",
    # Each of its statements starts a process.
    pytest.param("debug_parallel_query=on", marks=pytest.mark.faults),
    "jit_above_cost=0",
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_commands_under_settings(on, monkeypatch, url, connection, items, model, vectors, settings):
    connection.execute("ALTER TABLE items ADD day date; UPDATE items SET day = '2024-02-03'")
    several = re.split(r"(?<!\\) ", settings)
    monkeypatch.setenv("PGOPTIONS", " ".join(f"-c {one}" for one in several))
    name, _, value = several[0].partition("=")
    if name == "client_encoding":
        monkeypatch.setenv("PGCLIENTENCODING", value)
    with connect(url) as own:
        table = "public.items"
        index = indexed(own, "own", table=table, access="lists")
        expected = [hit.id for hit in index.search(vectors[5], 3, filter="day = '2024-02-03'")]
        assert expected[0] == 6
        assert index.rebalance().rows == 300
        assert_fresh(index)
        assert operations.repair(index, full=True).done == ()
        assert troubles(index) in ({}, {"duplicates": "warning"})
    for command in (
        (
            "index",
            "create",
            "made",
            "--access",
            "scan",
            "--table",
            table,
            "--column",
            "embedding",
            "--model",
            "lsh",
        ),
        ("index", "show"),
        ("index", "show", "made"),
        ("index", "check", "made"),
        ("index", "swap", "made", "--model", "lsh", "--access", "lists", "--force"),
        ("index", "rollback", "made"),
        ("search", "made", "--like", "3"),
        ("evaluate", "made", "--queries", "5", "--save"),
        ("model", "show"),
        ("model", "show", "lsh"),
        ("schema", "upgrade"),
    ):
        on(*command)
    # A connection of the user's own.
    with psycopg.connect(url, autocommit=True) as theirs:
        if theirs.info.encoding == "ascii":
            with pytest.raises(InvalidInputError, match="client_encoding='utf8'"):
                HashIndex.open(theirs, "own")
            return
        index = HashIndex.open(theirs, "own")
        assert [hit.id for hit in index.search(vectors[5], 3)] == expected
        index.encode()
        theirs.execute("UPDATE public.items SET embedding = embedding WHERE id < 9")
        theirs.execute("DELETE FROM public.items WHERE id > 290")
        shown = theirs.execute(f"SHOW {name}".encode()).fetchone()
        assert str(shown).replace(", ", ",").startswith("('" + value.replace("\\", ""))


def test_sql_under_the_checks_of_plpgsql(connection, items, model):
    connection.execute("SET plpgsql.extra_errors = 'all'")
    created = (
        "SELECT hashindex.create_index('items_idx', 'items', 'embedding', 'lsh', access => 'scan')"
    )
    assert connection.execute(created).fetchone() is not None
    HashIndex.open(connection, "items_idx").encode()
    for statement, expected in (
        ("hashindex.train('other', 'items', 'embedding', force => true)", "other:1"),
        ("hashindex._declare_swap('items_idx', 'other')", False),
    ):
        assert connection.execute(f"SELECT {statement}".encode()).fetchone() == (expected,)
    assert_fresh(HashIndex.open(connection, "items_idx"))


def test_a_transaction_that_an_interrupt_left_open(url):
    """Ctrl-C may come after BEGIN, and before the block that would end it."""
    with connect(url) as session:
        session.autocommit = False
        with pytest.raises(KeyboardInterrupt), outside_transactions(session, "why"):
            session.execute("BEGIN")
            raise KeyboardInterrupt
        assert not session.autocommit


def test_a_database_of_sql_ascii(server, make_database, vectors):
    run_as_admin(
        server,
        "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 "
        "LOCALE_PROVIDER libc LOCALE 'C'",
    )
    url = server.uri("ascii")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE EXTENSION vector")
    with create_engine(url).begin() as transaction:
        schema.upgrade(transaction)
    with connect(url) as session:
        assert session.info.encoding == "utf-8"
    run_as_admin(server, "DROP DATABASE ascii WITH (FORCE)")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@h/db?schema=public", "its URL has schema, which"),
        ("postgresql://me:secret@h/db?sslmode=require&pgbouncer=true", "its URL has pgbouncer"),
        ("postgresql://me:secret@h/db?ssl=require", "sslmode=require"),
        ("postgis://me:secret@h/db", "begins with postgis://, not postgresql://"),
        ("postgresql://me:a?secret&b@h/db", "cannot be read"),
        # An environment variable that is not set.
        (None, "must be text, got None"),
        (sa.make_url("postgresql://me:secret@h/db"), "must be text, got "),
    ],
)
def test_urls_of_other_drivers(url, message):
    with pytest.raises(ConnectionFailedError, match=message) as told:
        connect(url)
    assert "secret" not in str(told.value)
