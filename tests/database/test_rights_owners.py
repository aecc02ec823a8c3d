"""Owners of a table who maintain an index of it: all that they need, and nothing of others."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.roles import As, denied, rights

from pg_hashindex import query_sets, store
from pg_hashindex.database import Connection
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

pytestmark = pytest.mark.newest

TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


def other_model(vectors: Any, name: str = "lsh2") -> Model:
    return LSH(n_bits=16, random_state=5).fit(vectors).to_model(name)


@pytest.fixture
def owned(
    index: HashIndex, connection: Connection, as_role: As
) -> Callable[[], tuple[HashIndex, Connection]]:
    """Make app the owner of the table, and of the index that a superuser made of it."""

    def make() -> tuple[HashIndex, Connection]:
        session = as_role("app")
        connection.execute(
            "ALTER TABLE items OWNER TO app; GRANT USAGE, CREATE ON SCHEMA public TO app"
        )
        index.grant("app", as_="owner")
        return HashIndex.open(session, "items_idx"), session

    return make


def test_an_owner_does_everything_with_the_index(
    owned: Callable[[], tuple[HashIndex, Connection]],
    connection: Connection,
    vectors: Any,
    as_role: As,
) -> None:
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    index, app = owned()
    assert reader.execute(TYPED).fetchone() == (10,)
    app.execute("INSERT INTO items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    for access in ("lookup", "hnsw", "landmarks", "scan"):
        if (access, index.layout) == ("landmarks", "column"):
            continue
        index = index.configure(access=access, candidates=100)
        index.encode()
        index = HashIndex.open(app, "items_idx")
        assert index.access == access
        assert reader.execute(TYPED).fetchone() == (10,)
        if access == "landmarks":
            index.rebalance()
    assert_fresh(index)
    store.save(app, other_model(vectors))
    beside = app.execute("SELECT hashindex.begin_swap('items_idx', 'lsh2')").fetchone()
    assert beside is not None
    HashIndex.open(app, beside[0]).encode()
    app.execute("SELECT hashindex.swap_is_ready('items_idx')")
    app.execute("SELECT hashindex.exchange('items_idx', 'ready')")
    assert reader.execute(TYPED).fetchone() == (10,)
    app.execute("SELECT hashindex.exchange('items_idx', 'previous')")
    app.execute("SELECT hashindex.exchange('items_idx', 'previous')")
    assert_fresh(HashIndex.open(app, "items_idx"))
    app.execute(
        "INSERT INTO hashindex.recall_history (index_name, model, access, ranking, candidates, k, "
        "queries, recall, p50_ms, p95_ms) VALUES ('items_idx', 'lsh2:1', 'scan', 'hamming', 10, "
        "10, 5, 0.5, 1, 2)"
    )
    assert reader.execute("SELECT recall FROM hashindex.recall_history").fetchone() == (0.5,)
    for statement in (
        "SELECT * FROM hashindex.saved_query",
        "INSERT INTO hashindex.job (kind, subject, phase) VALUES ('tune', 'x', 'y')",
        "DELETE FROM hashindex.recall_history",
    ):
        with denied():
            reader.execute(statement)
    index = HashIndex.open(app, "items_idx")
    index.prune()
    assert index.swap("lsh", queries=5, force=True).model == "lsh:1"
    index.rollback()
    index.prune()
    index = HashIndex.open(app, "items_idx")
    query_sets.save(index, query_sets.draw(index, 3), "few")
    query_sets.drop(index, "few")
    index.repair()
    assert app.execute("SELECT count(*) > 0 FROM hashindex.jobs").fetchone() == (True,)
    HashIndex.open(app, "items_idx").drop()
    assert [m.name for m in store.drop(app, "lsh2")] == ["lsh2"]
    HashIndex.create(app, "again", table="items", column="embedding", model="lsh").encode()
    with denied():
        reader.execute("SELECT hashindex.drop_index('again')")


def test_members_of_the_owner_maintain_it_by_turns(
    index: HashIndex, connection: Connection, as_role: As, vectors: Any
) -> None:
    """What one of them makes belongs to all."""
    ann, bob = as_role("ann"), as_role("bob")
    as_role("team")
    connection.execute("ALTER TABLE items OWNER TO team; GRANT team TO ann, bob")
    for role in ("ann", "bob"):
        index.grant(role, as_="owner")
    store.save(connection, other_model(vectors))
    beside = ann.execute("SELECT hashindex.begin_swap('items_idx', 'lsh2')").fetchone()
    assert beside is not None
    HashIndex.open(bob, beside[0]).encode()
    bob.execute("SELECT hashindex.swap_is_ready('items_idx')")
    ann.execute("SELECT hashindex.exchange('items_idx', 'ready')")
    bob.execute("SELECT hashindex.exchange('items_idx', 'previous')")
    if index.layout == "table":
        HashIndex.open(ann, "items_idx").configure(access="landmarks").encode()
        HashIndex.open(bob, "items_idx").configure(access="scan")
    owners = connection.execute(
        """
        SELECT DISTINCT o::regrole::text FROM (
            SELECT relowner AS o FROM pg_class WHERE relname LIKE 'items_idx%'
            UNION SELECT proowner FROM pg_proc WHERE proname ~ '^(sync|search|within)_items_idx'
        ) x
        """
    ).fetchall()
    assert owners == [("team",)]
    HashIndex.open(bob, "items_idx").drop()


def test_an_owner_leaves_other_indexes_alone(
    owned: Callable[[], tuple[HashIndex, Connection]], connection: Connection, items: str
) -> None:
    connection.execute(
        "CREATE TABLE secret (id bigint PRIMARY KEY, embedding vector(8)); "
        "INSERT INTO secret SELECT id, embedding FROM items"
    )
    other = HashIndex.create(connection, "secret", table="secret", column="embedding", model="lsh")
    other.encode()
    _, app = owned()
    for statement in (
        "SELECT * FROM hashindex.search_secret('[1,2,3,4,5,6,7,8]')",
        "SELECT * FROM hashindex.secret_codes",
        "SELECT hashindex.configure_index('secret', candidates => 5)",
        "SELECT hashindex.begin_swap('secret', 'lsh')",
        "SELECT hashindex.drop_index('secret')",
        "UPDATE hashindex.index SET candidates = 1 WHERE name = 'secret'",
        "DELETE FROM hashindex.index WHERE name = 'secret'",
        "UPDATE hashindex.index SET table_name = 'secret' WHERE name = 'items_idx'",
        "UPDATE hashindex.index SET id_type = 'int); DROP TABLE secret; --'",
        "INSERT INTO hashindex.index SELECT (i).* FROM (SELECT "
        'jsonb_populate_record(x, \'{"name": "n", "storage": "n", "id_type": "int--"}\') i '
        "FROM hashindex.index x WHERE name = 'items_idx') y",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute(statement.encode())
            pytest.fail(f"allowed: {statement}")
    assert_fresh(other)


def test_an_owner_that_no_longer_is(
    owned: Callable[[], tuple[HashIndex, Connection]], connection: Connection, as_role: As
) -> None:
    _, app = owned()
    as_role("heir")
    connection.execute("ALTER TABLE items OWNER TO heir")
    HashIndex.open(connection, "items_idx").revoke("app")
    assert rights(connection, "app") == {("public", "USAGE"), ("public", "CREATE")}
    with denied():
        app.execute("SELECT * FROM hashindex.index")
    # Nothing of it is his.
    connection.execute("REVOKE ALL ON SCHEMA public FROM app")
    left = connection.execute(
        "SELECT count(*) FROM pg_shdepend WHERE refobjid = 'app'::regrole "
        "AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    assert left == (0,)
