"""Objects that belong to no index are found and dropped; others are left alone."""

import psycopg
import pytest
from fixtures.catalog import contents
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed
from fixtures.landmarks import tables_of

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.repairs import Orphan, drop_orphans, list_orphans

pytestmark = pytest.mark.newest


def create(connection, name, **options):
    return indexed(connection, name, **options)


@pytest.fixture
def indexes(connection, items, model):
    """One of each kind."""
    connection.execute("ALTER TABLE items ALTER category SET NOT NULL, ADD UNIQUE (category, id)")
    return [
        create(connection, "By-Lists", access="lists"),
        create(connection, "scanned"),
        create(connection, "several", key_columns=["category", "id"]),
    ]


def test_parts_of_indexes_are_not_orphans(connection, indexes):
    connection.execute(
        "CREATE TABLE hashindex.my_codes (id int);"
        "CREATE TABLE public.old_codes (id int);"
        "CREATE FUNCTION hashindex.search_all(vector) RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )
    connection.execute(
        "SELECT hashindex._begin_swap('scanned', 'lsh', 'lists', NULL, NULL, NULL, false)"
    )
    before = contents(connection)
    assert list_orphans(connection) == []
    assert drop_orphans(connection) == []
    assert contents(connection) == before


def test_objects_of_indexes_whose_rows_were_deleted(connection, items, model):
    kept = create(connection, "kept")
    before = contents(connection)
    lists = create(connection, "By-Lists", access="lists")
    scanned = create(connection, "scanned")
    lists_id, scanned_id = lists.metadata.set_id, scanned.metadata.set_id
    tables = (*tables_of(lists), *tables_of(scanned))
    connection.execute("DELETE FROM hashindex.index WHERE name <> 'kept'")
    expected = [
        *(Orphan("trigger", f'"hashindex_By-Lists_{event}" ON public.items') for event in EVENTS),
        *(Orphan("trigger", f"hashindex_scanned_{event} ON public.items") for event in EVENTS),
        Orphan("function", f"hashindex.refresh_{lists_id}" + REFRESH),
        Orphan("function", 'hashindex."search_By-Lists"' + SEARCH),
        Orphan("function", 'hashindex."sync_by$lists$6c5e892e"()'),
        Orphan("function", f"hashindex.refresh_{scanned_id}" + REFRESH),
        Orphan("function", "hashindex.search_scanned" + SEARCH),
        Orphan("function", "hashindex.sync_scanned()"),
        *(Orphan("table", f"hashindex.{table}") for table in tables),
    ]
    key = str
    assert sorted(list_orphans(connection), key=key) == sorted(expected, key=key)
    # Whatever the path is, names are in full.
    connection.execute("SET search_path TO nowhere")
    assert sorted(list_orphans(connection), key=key) == sorted(expected, key=key)
    assert sorted(drop_orphans(connection), key=key) == sorted(expected, key=key)
    connection.execute("RESET search_path")
    assert contents(connection) == before
    assert_fresh(kept)
    connection.execute("INSERT INTO items VALUES (1001, 'a', '[1,2,3,4,5,6,7,8]')")
    assert_fresh(kept)


EVENTS = ("insert", "update", "delete", "truncate")
SEARCH = "(anycompatible,integer,integer,integer,text,jsonb,text,boolean)"
REFRESH = "(bigint[])"


def test_an_index_that_is_being_made_is_no_orphan(connection, other, items, model):
    with other.transaction():
        other.execute(
            "SELECT hashindex.create_index('fresh', 'items', 'embedding', 'lsh', access => 'scan')"
        )
        assert list_orphans(connection) == []
        connection.execute("SET lock_timeout = '100ms'")
        # It waits: what it sees may belong to an index by the time that it would drop it.
        with pytest.raises(DatabaseStateError, match="lock timeout"):
            drop_orphans(connection)
    assert drop_orphans(connection) == []
    assert HashIndex.open(connection, "fresh").encode() == 300


def test_a_database_without_the_package_rows(connection, url, items, model):
    """As a dump of the schema alone makes it: writes say what to do."""
    create(connection, "i")
    connection.execute("TRUNCATE hashindex.index, hashindex.model, items CASCADE")
    insert = "INSERT INTO items VALUES (1, 'a', '[1,2,3,4,5,6,7,8]')"
    with connect(url) as fresh:
        with pytest.raises(psycopg.errors.SerializationFailure, match="is not visible") as error:
            fresh.execute(insert)
        assert "pg-hashindex index repair --orphans" in str(error.value.diag.message_hint)
        assert len(drop_orphans(fresh)) == 9
        fresh.execute(insert)
