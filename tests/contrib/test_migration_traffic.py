"""Migrations beside others who use the table: no session fails, no code is of an old vector."""

import psycopg
import pytest
from fixtures.checks import assert_fresh, other_sets
from fixtures.migrating import indexes, online
from fixtures.roles import make_administrator
from psycopg import IsolationLevel

from pg_hashindex import operations, store
from pg_hashindex.contrib.sqlalchemy.statements import configure_statement
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

SEARCH = "SELECT id FROM hashindex.search_items_idx('[1,1,1,1,1,1,1,1]', 3, 300)"
WRITE = "UPDATE items SET embedding = '[2,2,2,2,2,2,2,2]' WHERE id = 7"
DECLARE = "SELECT hashindex.create_index('items_idx', 'items', 'embedding', 'lsh', 'scan')"


def create(url, **options):
    online(
        url,
        lambda op: op.create_hash_index(
            "items_idx", "items", "embedding", model="lsh:1", **{"access": "scan", **options}
        ),
    )


def swap(url, model):
    online(url, lambda op: op.swap_hash_index("items_idx", model=model))


def impatient(url):
    """A migration that cannot be waiting for anyone."""
    migration = psycopg.connect(url)
    migration.execute("SET lock_timeout = '500ms'")
    return migration


def test_write_after_read_and_swap(url, connection, items, second):
    create(url)
    with psycopg.connect(url) as visitor:
        before = visitor.execute(SEARCH).fetchall()
        swap(url, "lsh:2")
        assert visitor.execute(SEARCH).fetchall() == before
        visitor.execute(WRITE)
    index = HashIndex.open(connection, "items_idx")
    assert index.model_version == 2
    assert_fresh(index)


def test_write_after_search_and_other_settings(url, connection, items, model):
    create(url, access="lists", effort=3)
    index = HashIndex.open(connection, "items_idx")
    with psycopg.connect(url) as visitor, impatient(url) as migration:
        visitor.execute(SEARCH)
        migration.execute(configure_statement("items_idx", {"effort": 4}).encode())
        visitor.execute(SEARCH)
        migration.commit()
        visitor.execute(WRITE)
    assert_fresh(index)
    for access in ("scan", "lists", "hnsw", "scan"):
        with psycopg.connect(url) as visitor:
            if access != "scan" or index.access != "hnsw":
                # The triggers go with the last lists, after all who read the table.
                visitor.execute(SEARCH)
            online(url, lambda op, access=access: op.swap_hash_index("items_idx", access=access))
            visitor.execute(WRITE)
        assert (index.access, [hit.id for hit in index.search([2.0] * 8, k=1)]) == (access, [7])
    assert_fresh(index)
    operations.repair(index)
    left = connection.execute(
        "SELECT s.state FROM pg_class c, hashindex.index_set s "
        "WHERE c.relname = 'set_' || s.id || '_codes' ORDER BY s.id"
    )
    assert left.fetchall() == [("used",)]


def test_codes_of_before_go_with_the_next_swap(url, connection, items, second):
    """One upgrade may swap several times, without a prune between them."""
    create(url)
    store.save(connection, Model("other", "byhand", 8, second.layers))
    swap(url, "lsh:2")
    swap(url, "other")
    assert [row[2] for row in indexes(connection)] == ["other:1"]
    index = HashIndex.open(connection, "items_idx")
    assert [(row.model_version, row.state) for row in other_sets(index)] == [(2, "former")]
    assert_fresh(index)


def test_rows_that_a_snapshot_does_not_show(url, connection, model):
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(8))")
    with psycopg.connect(url) as old:
        old.isolation_level = IsolationLevel.SERIALIZABLE
        old.execute("SELECT 1")
        connection.execute("INSERT INTO items VALUES (1, '[1,1,1,1,1,1,1,1]')")
        old.execute(DECLARE)
    index = HashIndex.open(connection, "items_idx")
    assert index.waiting() == 1
    assert [hit.id for hit in index.search([1.0] * 8)] == [1]


def test_rows_that_security_hides(url, connection, items, model, as_role):
    """From a member of the administrator; or from him, as whom triggers write codes."""
    app = as_role("app")
    connection.execute(
        "GRANT postgres TO app; CREATE POLICY own ON items USING (category = 'none');"
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    )
    app.execute(DECLARE)
    assert HashIndex.open(connection, "items_idx").waiting() == 300
    connection.execute("SELECT hashindex.drop_index('items_idx'); REVOKE postgres FROM app")
    connection.execute(
        "ALTER TABLE items OWNER TO app; GRANT USAGE, CREATE ON SCHEMA public TO app"
    )
    make_administrator(connection, "app")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="hides rows from role app"):
        app.execute(DECLARE)
