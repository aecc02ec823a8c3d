"""Codes and landmarks are LOGGED where their table is, and UNLOGGED where it is, also later on."""

import pytest
from fixtures.checks import assert_fresh
from fixtures.health import findings, troubles
from fixtures.indexes import indexed
from fixtures.landmarks import assert_listed, tables_of

from pg_hashindex import operations

pytestmark = pytest.mark.newest


def kinds(index):
    """The persistence of the tables of an index, and of the rows that stand beside it."""
    rows = index.connection.execute(
        "SELECT c.relpersistence::text FROM hashindex.index i, hashindex._objects_of(i) o "
        "JOIN pg_class c ON o.kind = 'table' AND c.oid = o.id"
    ).fetchall()
    return {row[0] for row in rows}


@pytest.fixture(params=["scan", "lists"])
def searched(request, connection, items, model):
    connection.execute("ALTER TABLE items SET UNLOGGED")
    return indexed(connection, access=request.param)


def test_codes_follow_their_table(searched):
    """At first a crash empties both; after SET LOGGED it would have emptied the codes alone."""
    assert kinds(searched) == {"u"}
    for word, letter in (("LOGGED", "p"), ("UNLOGGED", "u")):
        searched.connection.execute(f"ALTER TABLE items SET {word}".encode())
        found = findings(searched)["table"]
        assert found.status == "warning"
        assert f"public.items is {word}" in found.detail
        assert found.advice == "pg-hashindex index repair items_idx"
        done = operations.repair(searched).done
        assert f"made hashindex.set_{searched.row.set_id}_codes {word}, as public.items is" in done
        # The codes, and the table of landmarks, which lists without landmarks have too.
        assert len(done) == 2
        assert kinds(searched) == {letter}
        assert troubles(searched, full=True) == {}
        assert operations.repair(searched).done == ()
        assert_fresh(searched)


def test_codes_that_are_kept_after_a_swap_follow_too(connection, index, model):
    index.swap(access="lists", force=True)
    connection.execute("ALTER TABLE items SET UNLOGGED")
    assert findings(index)["table"].status == "warning"
    tables = (
        ("2", ("codes", "landmarks"), ""),
        ("1", ("codes", "landmarks", "log"), " of the former set"),
    )
    assert set(operations.repair(index).done) == {
        f"made hashindex.set_{made}_{part} UNLOGGED, as public.items is{whose}"
        for made, parts, whose in tables
        for part in parts
    }
    assert kinds(index) == {"u"}


def test_a_crash_that_emptied_codes_and_landmarks(connection, items, model):
    """Both were UNLOGGED beside a table that is not: repair makes all of them again."""
    index = indexed(connection, access="lists")
    connection.execute(f"TRUNCATE hashindex.{', hashindex.'.join(tables_of(index))}".encode())
    assert findings(index)["rows_without_code"].status == "broken"
    assert operations.repair(index).done == (
        "removed incomplete landmarks",
        "encoded 300 rows",
        "built the landmarks again",
    )
    assert_listed(index)
    assert troubles(index, full=True) == {}
