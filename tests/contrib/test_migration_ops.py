"""The operations of migrations: online, as scripts, and reversed."""

import logging

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from fixtures.books import engine_of
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh, other_sets
from fixtures.migrating import Project, indexes, offline, online
from fixtures.roles import make_administrator
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.contrib import alembic as migrations
from pg_hashindex.contrib.sqlalchemy.specification import IndexSpec
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim
from pg_hashindex.errors import (
    DuplicateNameError,
    InUseError,
    InvalidInputError,
    MissingSchemaError,
    UnknownIndexError,
    UnknownModelError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex


def create(op):
    op.create_hash_index("items_idx", "items", "embedding", model="lsh:1", access="scan")


def opened(connection):
    return HashIndex.open(connection, "items_idx")


def state(connection):
    """All that a database holds of its indexes, codes too."""
    rows = connection.execute(
        "SELECT s.id, i.name, i.schema_name, i.table_name, i.column_name, i.key_columns, i.metric, "
        "i.tenant_column, s.model_id, s.access, s.state, s.column_name, s.candidates, s.effort, "
        "s.encoded, s.trained_rows FROM hashindex.index i "
        "JOIN hashindex.index_set s ON s.index_name = i.name ORDER BY 1"
    ).fetchall()
    codes = [
        connection.execute(
            f"SELECT id::text, code::text FROM hashindex.set_{row[0]}_codes ORDER BY 1".encode()
        ).fetchall()
        for row in rows
        if row[9] in ("lists", "scan")
    ]
    return rows, codes, catalog(connection)


def same_by_script(url, make, change):
    """A script gives what the migration gives; both databases are as before at first."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    assert isinstance(name, str)
    other = make(name)
    script = offline(change)
    with psycopg.connect(other) as session:
        session.execute(script.encode())
    online(url, change)
    with connect(url) as here, connect(other) as there:
        assert state(here) == state(there)
    return script


def of_one_index(op):
    create(op)
    op.swap_hash_index("items_idx", model="lsh")
    op.swap_hash_index("items_idx", access="lists", effort=3, candidates=9)
    op.swap_hash_index("items_idx", access="scan", existing={"access": "lists"})


def of_several(op):
    op.create_hash_index(
        "Items-100",
        "items",
        "embedding",
        model="lsh",
        schema="public",
        key_columns="id",
        metric="cosine",
        access="lists",
        candidates=50,
        encode=False,
    )
    op.create_hash_index("plain", "items", "embedding", model="lsh", access="scan", defer=True)
    op.create_hash_index("dropped", "items", "embedding", model="lsh")
    op.drop_hash_index("dropped")
    op.drop_hash_index("none", if_exists=True)
    op.create_hash_index("deferred", "items", "embedding", model="missing", defer=True)


@pytest.mark.newest
@pytest.mark.parametrize("change", [of_one_index, of_several])
def test_a_script_does_the_same_without_rows(url, connection, items, second, make_database, change):
    connection.execute("TRUNCATE items")
    connection.close()
    same_by_script(url, make_database, change)


@pytest.mark.newest
def test_a_script_names_the_commands_that_encode_rows(connection, items, second):
    def change(op):
        create(op)
        op.swap_hash_index("items_idx", model="lsh:2")

    script = offline(change)
    told = "in lists and its table has vectors, then run: pg-hashindex index encode items_idx\n"
    assert script.count(told) == 2
    told = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_hint))
    connection.execute(script.encode())
    assert told == ["Run: pg-hashindex index encode items_idx"] * 2
    index = opened(connection)
    # The first set was not built: the second one took its place.
    assert (index.model_version, index.waiting(), index.encoded) == (2, 300, False)
    index.encode()
    assert (index.state, other_sets(index)) == ("used", [])
    connection.execute(
        "TRUNCATE items; INSERT INTO items SELECT 1, 'a', array_fill(1, '{8}')::vector"
    )
    connection.execute(offline(lambda op: op.swap_hash_index("items_idx", model="lsh:1")).encode())
    # One that waits gives way to the next, and one that is in use stays.
    connection.execute(
        offline(lambda op: op.swap_hash_index("items_idx", model="lsh:1", access="lists")).encode()
    )
    assert told == ["Run: pg-hashindex index encode items_idx"] * 4
    assert [(row.model_version, row.access) for row in other_sets(index)] == [(1, "lists")]
    connection.execute(offline(lambda op: op.swap_hash_index("items_idx", model="lsh:2")).encode())
    assert (index.model_version, other_sets(index)) == (2, [])
    assert_fresh(index)


@pytest.mark.newest
def test_a_transaction_of_the_callers_leaves_rows(url, connection, items, second, caplog):
    """It is not committed before he does it, so the migration cannot encode its rows."""
    engine = engine_of(url)
    with engine.begin() as transaction:
        with Operations.context(MigrationContext.configure(transaction)) as op:
            create(op)
            op.swap_hash_index("items_idx", model="lsh:2")
    assert [record.getMessage().partition("run: ")[2] for record in caplog.records] == [
        "pg-hashindex index encode items_idx"
    ] * 2
    index = opened(connection)
    assert (index.model_version, index.waiting(), index.encoded) == (2, 300, False)
    engine.dispose()


@pytest.mark.newest
def test_an_engine_without_a_url_leaves_rows(url, connection, items, model, caplog):
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.connect() as session:
        context = MigrationContext.configure(session)
        with context.begin_transaction(), Operations.context(context) as op:
            create(op)
    assert "run: pg-hashindex index encode items_idx" in caplog.text
    assert opened(connection).waiting() == 300
    engine.dispose()


@pytest.mark.newest
def test_a_migration_that_was_interrupted_goes_on(url, connection, items, model, monkeypatch):
    encode = HashIndex.encode
    monkeypatch.setattr(HashIndex, "encode", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        online(url, create)
    assert opened(connection).waiting() == 300
    monkeypatch.setattr(HashIndex, "encode", encode)
    online(url, create)
    assert opened(connection).encoded
    assert_fresh(opened(connection))
    with pytest.raises(DuplicateNameError):
        online(url, create)


def test_rows_are_found_after_each_migration(url, connection, items, second, vectors):
    distances = np.linalg.norm(vectors - vectors[7], axis=1)
    expected = list(np.argsort(distances)[:10] + 1)

    def check(model, bits):
        index = opened(connection)
        assert (index.model_version, index.n_bits, index.waiting()) == (model, bits, 0)
        assert_fresh(index)
        # All of the rows are candidates, so the answers are exact.
        assert [hit.id for hit in index.search(vectors[7], candidates=300)] == expected

    before = catalog(connection)
    online(url, create)
    check(1, 12)
    connection.execute("INSERT INTO items VALUES (301, 'a', %s)", [Vector([9.0] * 8)])
    online(
        url, lambda op: op.swap_hash_index("items_idx", model="lsh:2", existing={"model": "lsh:1"})
    )
    check(2, 20)
    connection.execute("UPDATE items SET embedding = '[8,8,8,8,8,8,8,8]' WHERE id = 301")
    check(2, 20)
    online(url, lambda op: op.swap_hash_index("items_idx", model="lsh:1"))
    check(1, 12)
    # One of the two is searched; the codes of the other are kept.
    assert len(indexes(connection)) == 1
    assert [row.model_version for row in other_sets(opened(connection))] == [2]
    online(url, lambda op: op.drop_hash_index("items_idx"))
    assert catalog(connection) == before


@pytest.mark.newest
def test_a_swap_that_was_made_before_is_not_made_again(url, connection, items, second):
    online(url, create)
    opened(connection).swap(model="lsh:2", force=True)
    made = opened(connection).set_id
    online(url, lambda op: op.swap_hash_index("items_idx", model="lsh:2"))
    assert opened(connection).set_id == made
    # Its codes of before are there still: they are taken up.
    online(url, lambda op: op.swap_hash_index("items_idx", model="lsh:1"))
    found = opened(connection)
    assert (found.model_version, found.set_id) == (1, 1)
    assert_fresh(found)


def test_a_swap_of_an_index_with_an_access_path(url, connection, items, second, caplog):
    online(
        url,
        lambda op: op.create_hash_index(
            "items_idx", "items", "embedding", model="lsh:1", access="lists", effort=5
        ),
    )
    assert caplog.text == ""
    assert opened(connection).access == "lists"
    online(url, lambda op: op.swap_hash_index("items_idx", model="lsh:2"))
    found = opened(connection)
    assert (found.access, found.state) == ("lists", "used")
    assert_fresh(found)


@pytest.mark.newest
def test_an_administrator_migrates(url, connection, items, second, as_role):
    app = as_role("app")
    online(url, create)
    connection.execute(
        "ALTER TABLE items OWNER TO app; GRANT USAGE, CREATE ON SCHEMA public TO app"
    )
    make_administrator(connection, "app")

    def change(op):
        op.swap_hash_index("items_idx", model="lsh:2")
        op.configure_hash_index("items_idx", candidates=90)
        op.drop_hash_index("items_idx")
        create(op)

    online(url.replace("postgres@", "app@"), change)
    assert_fresh(opened(app))
    assert indexes(connection)[0][2] == "lsh:1"


@pytest.mark.newest
class TestRefusals:
    def test_models(self, url, connection, items, second, known_model):
        store.save(connection, known_model)
        with pytest.raises(UnknownModelError, match='"missing" does not exist'):
            online(url, lambda op: op.create_hash_index("x", "items", "embedding", model="missing"))
        online(url, create)
        with pytest.raises(UnknownModelError, match='"missing" does not exist'):
            online(url, lambda op: op.swap_hash_index("items_idx", model="missing"))
        for refused in (
            lambda op: op.create_hash_index("x", "items", "embedding", model="known"),
            lambda op: op.swap_hash_index("items_idx", model="known"),
        ):
            with pytest.raises(InvalidInputError, match="known:1.* in Python.*model encode"):
                online(url, refused)
        wide = LSH(n_bits=8).fit(np.eye(16, dtype=np.float32)).to_model("wide")
        store.save(connection, wide)
        with pytest.raises(InvalidInputError, match="8 dimensions, the model takes 16"):
            online(url, lambda op: op.swap_hash_index("items_idx", model="wide"))
        assert indexes(connection)[0][:3] == ("items_idx", "public.items", "lsh:1")

    def test_indexes(self, url, connection, items, model):
        with pytest.raises(UnknownIndexError):
            online(url, lambda op: op.drop_hash_index("items_idx"))
        with pytest.raises(UnknownIndexError):
            online(url, lambda op: op.swap_hash_index("items_idx", model="lsh"))
        with pytest.raises(InvalidInputError, match="of type text, not vector"):
            online(url, lambda op: op.create_hash_index("x", "items", "category", model="lsh"))
        with pytest.raises(InvalidInputError, match="changed by candidates, effort; got speed"):
            online(url, lambda op: op.configure_hash_index("x", speed=3))
        with pytest.raises(InvalidInputError, match="made with key_columns.*got speed"):
            online(url, lambda op: op.create_hash_index("x", "items", "y", model="m", speed=3))

    @pytest.mark.parametrize(
        ("kind", "error", "message"),
        [
            ("swap", InUseError, "being built by another session"),
            ("repair", InUseError, "being repaired by another session"),
        ],
    )
    def test_work_under_way(self, url, connection, items, second, kind, error, message):
        online(url, create)
        claim(connection, kind, "items_idx")
        with pytest.raises(error, match=message):
            online(url, lambda op: op.swap_hash_index("items_idx", model="lsh:2"))
        assert opened(connection).model_version == 1

    def test_a_database_without_the_schema(self, empty_url):
        with connect(empty_url) as connection:
            connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
        with pytest.raises(MissingSchemaError, match="pg-hashindex schema upgrade"):
            online(empty_url, create)


@pytest.mark.newest
def test_deferred_triggers_are_reported(url, connection, items, lsh_model, caplog):
    def deferred(op):
        op.create_hash_index("items_idx", "items", "embedding", model="lsh", defer=True)

    online(url, deferred)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert 'index "items_idx" is not made: model "lsh" does not exist' in caplog.text
    assert indexes(connection) == []
    store.save(connection, lsh_model)
    caplog.clear()
    online(url, deferred)
    online(url, deferred)
    assert caplog.text == ""
    assert indexes(connection)[0][:3] == ("items_idx", "public.items", "lsh:1")


@pytest.mark.newest
def test_operations_reverse(url, connection, items, second):
    spec = IndexSpec.declared(
        "items_idx", "items", "embedding", "lsh:1", access="scan", candidates=7
    )
    steps = [
        migrations.CreateHashIndexOp(spec),
        migrations.SwapHashIndexOp(
            "items_idx",
            {"access": "lists", "candidates": 8},
            {"access": "scan", "candidates": 7},
        ),
        migrations.SwapHashIndexOp(
            "items_idx", {"model": "lsh:2"}, {"model": "lsh:1"}, table="items", schema="public"
        ),
        migrations.DropHashIndexOp("items_idx", spec),
    ]
    states = [indexes(connection)]
    for step in steps:
        online(url, lambda op, step=step: op.invoke(step))  # type: ignore[misc]
        states.append(indexes(connection))
    # A swap measures what it is not given.
    states[3] = [state[:-1] for state in states[3]]
    made = ("items_idx", "public.items")
    assert states == [
        [],
        [(*made, "lsh:1", "scan", 7)],
        [(*made, "lsh:1", "lists", 8)],
        [(*made, "lsh:2", "lists")],
        [],
    ]
    # The dropped index had other settings by then; it is created again as the operation says.
    back = []
    for step in reversed(steps):
        online(url, lambda op, step=step: op.invoke(step.reverse()))  # type: ignore[misc]
        back.append(indexes(connection))
    assert [row[0][2:] if row else None for row in back] == [
        ("lsh:1", "scan", 7),
        ("lsh:1", "scan", 7),
        ("lsh:1", "scan", 7),
        None,
    ]


@pytest.mark.newest
@pytest.mark.parametrize(
    "operation",
    [
        migrations.DropHashIndexOp("x"),
        migrations.SwapHashIndexOp("x", {"model": "m"}),
        migrations.ConfigureHashIndexOp("x", {"candidates": 3}),
        migrations.ConfigureHashIndexOp("x", {"candidates": 3, "effort": 4}, {"candidates": 5}),
    ],
)
def test_irreversible_migrations(operation):
    with pytest.raises(InvalidInputError, match="cannot be reversed.*give it"):
        operation.reverse()


@pytest.mark.newest
def test_an_index_is_made_where_it_may_not_be_there():
    spec = IndexSpec.declared("x", "items", "embedding", "m", defer=True)
    operation = migrations.CreateHashIndexOp(spec).reverse()
    assert operation.if_exists
    assert operation.reverse().spec == spec


@pytest.mark.newest
def test_a_project_from_an_empty_database(empty_url, tmp_path):
    """By typed functions; online, and as one script in another database."""
    project = Project(tmp_path / "migrations", empty_url)
    project.write(
        "install",
        "from pg_hashindex.contrib.alembic import install_hashindex; install_hashindex(); "
        'op.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")',
        "op.drop_table('items'); op.uninstall_hashindex()",
    )
    project.write(
        "index",
        "from pg_hashindex.contrib.alembic import "
        "create_hash_index, drop_hash_index, swap_hash_index; "
        "create_hash_index('items_idx', 'items', 'embedding', model='none', defer=True); "
        "drop_hash_index('items_idx', if_exists=True)",
    )
    script = project.script()
    project.upgrade()
    with engine_of(empty_url).connect() as connection:
        assert schema.status(connection).up_to_date
    with connect(empty_url) as session:
        made = catalog(session)
    project.downgrade("base")
    with connect(empty_url) as session:
        assert session.execute("SELECT to_regnamespace('hashindex')").fetchone() == (None,)
        session.execute("DROP TABLE alembic_version")
    with psycopg.connect(empty_url) as session:
        session.execute("SET search_path TO public")
        session.execute(script.encode())
    with connect(empty_url) as session:
        assert catalog(session) == made
    with pytest.raises(InvalidInputError, match="cannot be written as a script"):
        offline(lambda op: op.uninstall_hashindex())


@pytest.mark.newest
@pytest.mark.parametrize("place", [{}, {"table": "items"}, {"table": "items", "schema": "two"}])
def test_operations_change_the_index_of_their_own_schema(url, connection, items, second, place):
    """Schemas of tenants have the same revisions, which run once for each search_path."""
    schemas = ("one", "two")
    for schema_name in schemas:
        connection.execute(
            f"CREATE SCHEMA {schema_name}; "
            f"CREATE TABLE {schema_name}.items (LIKE items INCLUDING ALL)".encode()
        )

    def under(schema_name, change):
        """Run a change; return the model and the candidates of the index of each schema."""

        def run(op):
            op.execute(f"SET LOCAL search_path TO {schema_name}, public")
            change(op)

        online(url, run)
        found = indexes(connection)
        return {table: (model, candidates) for _, table, model, _, candidates in found}

    given = {"model": "lsh:1", "access": "hnsw", "candidates": 41}
    for schema_name in schemas:
        found = under(
            schema_name,
            lambda op: op.create_hash_index("items_idx", "items", "embedding", **given),
        )
    assert found == {"one.items": ("lsh:1", 41), "two.items": ("lsh:1", 41)}
    swap = {"model": "lsh:2", "candidates": 42, **place}
    found = under("two", lambda op: op.swap_hash_index("items_idx", **swap))
    assert found == {"one.items": ("lsh:1", 41), "two.items": ("lsh:2", 42)}
    found = under("two", lambda op: op.configure_hash_index("items_idx", candidates=43, **place))
    assert found == {"one.items": ("lsh:1", 41), "two.items": ("lsh:2", 43)}
    column = {"column": "embedding"} if place else {}
    found = under("two", lambda op: op.drop_hash_index("items_idx", **place, **column))
    assert found == {"one.items": ("lsh:1", 41)}
    with pytest.raises(UnknownIndexError, match="two_items_idx"):
        under("two", lambda op: op.drop_hash_index("items_idx"))


@pytest.mark.newest
def test_the_functions_are_the_methods(url, connection, items, second):
    with engine_of(url).connect() as session:
        context = MigrationContext.configure(session)
        with context.begin_transaction(), Operations.context(context):
            migrations.create_hash_index(
                "items_idx", "items", "embedding", model="lsh:1", access="scan"
            )
            migrations.swap_hash_index("items_idx", model="lsh:2")
            migrations.configure_hash_index("items_idx", candidates=41)
    assert indexes(connection) == [("items_idx", "public.items", "lsh:2", "scan", 41)]
    with engine_of(url).connect() as session:
        context = MigrationContext.configure(session)
        with context.begin_transaction(), Operations.context(context):
            with pytest.raises(InvalidInputError, match="takes table and column"):
                migrations.drop_hash_index("items_idx", table="items")
            migrations.drop_hash_index("items_idx", table="items", column="x", model="lsh")
    assert indexes(connection) == []
