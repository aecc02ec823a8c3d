"""Roles that are let search an index, or maintain it: what each can do then, and what not."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.roles import As, denied
from fixtures.tenants import SEARCHES, assert_sees
from psycopg import sql

from pg_hashindex import query_sets, store
from pg_hashindex.database import Connection
from pg_hashindex.errors import (
    DatabaseStateError,
    HashIndexError,
    InUseError,
    InvalidInputError,
    MissingRightsError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

SHARED = ("model", "model_part", "index", "query_set", "saved_query", "recall_history", "job")
TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


def rights(connection: Connection, role: str) -> set[tuple[str, str]]:
    """Every right that is granted to a role by name, on tables, columns, schemas and functions."""
    rows = connection.execute(
        """
        SELECT r.what, acl.privilege_type
        FROM (
            SELECT c.oid::regclass::text AS what, c.relacl AS acl FROM pg_class c
            UNION ALL
            SELECT format('%%s.%%s', a.attrelid::regclass, a.attname), a.attacl FROM pg_attribute a
            UNION ALL
            SELECT n.nspname, n.nspacl FROM pg_namespace n
            UNION ALL
            SELECT p.oid::regprocedure::text, p.proacl FROM pg_proc p
        ) r, aclexplode(r.acl) acl
        WHERE acl.grantee = %s::regrole
        """,
        [role],
    ).fetchall()
    return set(rows)


def other_model(vectors: Any, name: str = "lsh2") -> Model:
    return LSH(n_bits=16, random_state=5).fit(vectors).to_model(name)


@pytest.mark.parametrize(
    "notes",
    [("scan", "column"), ("lookup", "table"), ("hnsw", "table"), ("landmarks", "table")],
    ids="-".join,
    indirect=True,
)
def test_a_reader_of_two_columns(notes: HashIndex, connection: Connection, as_role: As) -> None:
    """Searching reads the key and the vectors, and nothing else of the table."""
    connection.execute("ALTER TABLE notes DISABLE ROW LEVEL SECURITY")
    reader = as_role("reader")
    connection.execute("GRANT SELECT (id, embedding) ON notes TO reader")
    before = rights(connection, "reader")
    notes.grant("reader")
    plain = [name for name in SEARCHES if "where" not in name]
    assert_sees(reader, ("many", "few"), names=plain)
    opened = HashIndex.open(reader, "notes_idx")
    assert len(opened.search_like(1, 5)) == 5
    assert reader.execute("SELECT hashindex.recall('notes_idx', 2, 5, 400)").fetchone() == (1.0,)
    for name in ("where_equals", "python, where"):
        with pytest.raises((psycopg.errors.InsufficientPrivilege, MissingRightsError)):
            assert_sees(reader, ("many", "few"), names=[name])
    connection.execute("GRANT SELECT (kind) ON notes TO reader")
    assert_sees(reader, ("many", "few"))
    with denied():
        reader.execute("SELECT tenant FROM notes")
    # Under a policy by a column that he does not read himself.
    connection.execute("ALTER TABLE notes ENABLE ROW LEVEL SECURITY")
    reader.execute("SET app.tenant = 'few'")
    assert_sees(reader, ("few",))
    granted = rights(connection, "reader") - before - {("notes.kind", "SELECT")}
    parts = {f"hashindex.notes_idx_{part}" for part in ("codes", "landmarks", "lists")}
    ours = {"hashindex.jobs", *(f"hashindex.{name}" for name in SHARED)} | parts
    code = {("notes.notes_idx_code", "SELECT")} if notes.layout == "column" else set()
    assert granted - {("hashindex", "USAGE")} - code <= {(what, "SELECT") for what in ours}
    assert (granted & code) == code
    HashIndex.open(connection, "notes_idx").revoke("reader")
    assert rights(connection, "reader") == before | {("notes.kind", "SELECT")}
    with denied():
        reader.execute("SELECT * FROM hashindex.search_notes_idx('[1,2,3,4,5,6,7,8]')")


@pytest.fixture
def one(connection: Connection, items: str, model: Model) -> HashIndex:
    """An index with its codes in a table, where a test needs it of one layout only."""
    index = HashIndex.create(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    return index


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


@pytest.mark.parametrize("as_", ["reader", "owner"])
def test_what_is_refused(one: HashIndex, connection: Connection, as_role: As, as_: Any) -> None:
    as_role("nobody")
    before = rights(connection, "nobody")
    refused: dict[str, tuple[type[HashIndexError], str]] = {
        "no such role": (InvalidInputError, 'role "no such role" does not exist; Write its name'),
        "nobody": (
            DatabaseStateError,
            "may not read columns .*Run before: GRANT SELECT"
            if as_ == "reader"
            else 'role "nobody" does not own .*Run before: ALTER TABLE',
        ),
    }
    for role, (error, message) in refused.items():
        with pytest.raises(error, match=message):
            one.grant(role, as_=as_)
    assert rights(connection, "nobody") == before
    with pytest.raises(InvalidInputError, match="granted reader or owner, not 'writer'"):
        one.grant("nobody", as_="writer")  # type: ignore[arg-type]


def test_who_may_grant(one: HashIndex, connection: Connection, as_role: As) -> None:
    """Not one who searches himself."""
    reader = as_role("reader")
    as_role("friend")
    connection.execute("GRANT SELECT ON items TO reader, friend")
    one.grant("reader")
    with pytest.raises(MissingRightsError, match="Have its owner run: GRANT USAGE ON SCHEMA"):
        HashIndex.open(reader, "items_idx").grant("friend")


def test_rights_of_a_writer_are_not_taken(
    one: HashIndex, connection: Connection, as_role: As
) -> None:
    writer = as_role("writer")
    connection.execute("GRANT SELECT, INSERT ON items TO writer")
    connection.execute("SELECT hashindex.grant_like_table('items_idx')")
    with pytest.raises(InUseError, match="may write to items, .*Take its rights on the ta"):
        one.revoke("writer")
    writer.execute("INSERT INTO items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    connection.execute("REVOKE INSERT ON items FROM writer")
    one.revoke("writer")
    with denied():
        writer.execute(TYPED)


def test_what_two_indexes_share_stays_with_the_other(
    one: HashIndex, connection: Connection, as_role: As
) -> None:
    reader = as_role("reader")
    second = HashIndex.create(connection, "second", table="items", column="embedding", model="lsh")
    second.encode()
    connection.execute("GRANT SELECT ON items TO reader")
    one.grant("reader")
    second.grant("reader")
    second.revoke("reader")
    assert reader.execute(TYPED).fetchone() == (10,)
    with denied():
        reader.execute("SELECT * FROM hashindex.search_second('[1,2,3,4,5,6,7,8]')")


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


def test_everybody_may_read(one: HashIndex, connection: Connection, as_role: As) -> None:
    anybody = as_role("anybody")
    connection.execute("GRANT SELECT ON items TO PUBLIC")
    one.grant("public")
    assert anybody.execute(TYPED).fetchone() == (10,)
    one.revoke("public")
    with denied():
        anybody.execute(TYPED)


ODD = ('a "quoted" role', "PUBLIC", "role; DROP TABLE items; --", "%s'$$")


def test_roles_of_any_name(index: HashIndex) -> None:
    connection = index.connection
    for number, name in enumerate(ODD, start=7):

        def run(statement: Any, role: str = name) -> None:
            connection.execute(sql.SQL(statement).format(sql.Identifier(role)))

        run("CREATE ROLE {}")
        try:
            run("GRANT SELECT ON items TO {}")
            index.grant(name)
            run("SET ROLE {}")
            assert connection.execute(TYPED).fetchone() == (10,)
            run("RESET ROLE")
            index.revoke(name)
            run("REVOKE SELECT ON items FROM {}")
            run("ALTER TABLE items OWNER TO {}")
            index.grant(name, as_="owner")
            run("SET ROLE {}")
            connection.execute(
                "SELECT hashindex.configure_index('items_idx', candidates => %s)", [number]
            )
        finally:
            run("RESET ROLE")
            run("REASSIGN OWNED BY {} TO CURRENT_USER")
            run("DROP OWNED BY {}")
            run("DROP ROLE {}")
        assert HashIndex.open(connection, "items_idx").candidates == number
