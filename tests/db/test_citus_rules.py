"""The rules that keep our SQL fit for Citus and for standbys, checked on all that is written.

Each check is shown something bad first: one that could not fail would say nothing.
"""

import pytest
from fixtures.indexes import indexed
from fixtures.sql_lint import catalog_faults, order_keys, unstable_updates, untied, writes

from pg_hashindex.db import sql_files

pytestmark = pytest.mark.newest

# Orders without a tie-break: which of equally near codes become candidates, which landmarks are
# probed. The key of a search is any columns, which it lists by their places.
FREE = (
    r"\bbit_count\(",
    r"code OPERATOR\(\w+\.<~>\) ",
    r"\bhashindex_distance$",
    r"^\(?l\.centre ",
    r", %s$",
    r"^k\.n$",
)


@pytest.fixture
def written(connection, items, model):
    """An index of each access path."""
    for access in ("scan", "lists"):
        indexed(connection, f"by_{access}", access=access)
    return connection


def searches(connection):
    """Every function that searches for rows."""
    return dict(
        connection.execute(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace "
            "AND proname ~ '^(search|within)_by_.*$'"
        ).fetchall()
    )


def test_orders_are_read_as_they_are_written():
    assert order_keys("ORDER BY f(a, 'x,)') , t.id LIMIT 5") == [["f(a, 'x,)')", "t.id"]]
    assert order_keys("(SELECT ORDER BY a) ORDER BY b DESC, c.id;") == [["a"], ["b DESC", "c.id"]]
    assert untied("SELECT array_agg(x ORDER BY d, id) FROM t ORDER BY far, t.id LIMIT 5") == []
    assert untied('ORDER BY d, "id" DESC') == []
    assert untied("ORDER BY bit_count(code # q) LIMIT 5") == ["bit_count(code # q)"]
    assert untied("ORDER BY id, far") == ["id, far"]
    assert untied("ORDER BY far LIMIT 5", [r"^far$"]) == []
    assert untied("ORDER BY far, code LIMIT 5", [r"^far$"]) == ["far, code"]


def test_ties_are_broken_by_id(written):
    found = searches(written)
    assert len(found) == 2
    for name, text in found.items():
        assert len(order_keys(text)) >= 1, name
        assert untied(text, FREE) == [], name


def test_writing_is_noticed():
    assert writes("BEGIN CREATE TEMP TABLE t (); END") == ["CREATE TEMP"]
    assert writes("INSERT INTO t SELECT 1; UPDATE hashindex.index x SET a = 1;")
    assert writes("SELECT a INTO b FROM t FOR UPDATE;") == ["FOR UPDATE"]
    assert writes("PERFORM nextval('s')")
    assert writes("-- INSERT INTO t\nRETURN 'INSERT INTO t' || $q$UPDATE t SET a = 1$q$;") == []


def test_searches_write_nothing(written):
    """Functions that are not VOLATILE could not, and say so only when they are run."""
    found = written.execute(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace "
        "AND (provolatile <> 'v' OR proname IN ('_estimate', 'recall'))"
    ).fetchall()
    assert len(found) > 60
    names = {name for name, _ in found}
    assert {"search", "exact_search", "encode", "project", "health"} <= names
    assert searches(written).keys() <= names
    assert [(name, writes(body)) for name, body in found if writes(body)] == []


def test_calls_in_updates_are_noticed():
    bad = "UPDATE items b SET code = hashindex.encode('m', b.embedding) WHERE true"
    assert unstable_updates(bad, {"encode"}) == ["encode('m', b.embedding)"]
    assert unstable_updates(bad, {"decode"}) == []
    assert unstable_updates("UPDATE t SET a = now() WHERE f(b.c)", {"now"}) == []
    template = "UPDATE %1$s b SET %2$I = encode(%3$L, b.%4$I)"
    assert unstable_updates(template, {"encode"}) == ["encode(%3$L, b.%4$I)"]


def test_updates_call_no_stable_function_with_columns(connection, model):
    unstable = {
        row[0]
        for row in connection.execute(
            "SELECT proname::text FROM pg_proc GROUP BY proname HAVING bool_and(provolatile <> 'i')"
        )
    } - {"format"}  # what writes the statement is not part of it
    assert {"encode", "now", "random"} & unstable >= {"now", "random"}
    assert "encode_with" not in unstable
    texts = {file.name: file.read_text() for file in sql_files.folder("sql").glob("*.sql")}
    assert any("UPDATE" in text for text in texts.values())
    found = {name: unstable_updates(text, unstable) for name, text in texts.items()}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_changes_that_miss_other_nodes_are_refused(connection, model):
    assert catalog_faults(connection) == []
    connection.execute(
        "CREATE FUNCTION hashindex.a_count() RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE "
        "AS $$ BEGIN RETURN count(*) FROM hashindex.model; END $$;"
        "CREATE FUNCTION hashindex.b_names() RETURNS SETOF text LANGUAGE sql STABLE "
        "BEGIN ATOMIC SELECT name FROM hashindex.model; END;"
        "CREATE FUNCTION hashindex.c_text() RETURNS integer LANGUAGE sql AS 'SELECT 1';"
        "CREATE TABLE hashindex.d_tables (a oid, b regclass, c text)"
    )
    assert catalog_faults(connection) == [
        "d_tables.a is of type oid",
        "d_tables.b is of type regclass",
        "hashindex.a_count() reads tables and is not PARALLEL UNSAFE",
        "hashindex.b_names() is LANGUAGE sql and reads hashindex.model",
        "hashindex.c_text() is LANGUAGE sql and reads tables by text",
    ]


def test_nothing_written_stays_on_one_node(written):
    assert catalog_faults(written) == []
