"""Installing, upgrading and removing schema hashindex, judged by the database's own catalogs."""

import contextlib
import dataclasses
import re
import subprocess
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import alembic.command
import alembic.config
import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh
from fixtures.databases import run_as_admin
from fixtures.indexes import create_index, indexed
from fixtures.outdated import leave_extension
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.db import connection as database
from pg_hashindex.db import server_errors, sql_files
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import (
    DuplicateNameError,
    InUseError,
    MissingExtensionError,
    MissingRightsError,
    MissingSchemaError,
    OldServerError,
)
from pg_hashindex.hashers import LSH, SGH
from pg_hashindex.index.handle import list_indexes

# Objects of an application that uses us: neither upgrade nor downgrade may touch them.
USERS_OWN = """
    CREATE TABLE public.items (id int PRIMARY KEY, embedding vector(8));
    INSERT INTO public.items VALUES (1, '[1,2,3,4,5,6,7,8]');
    CREATE TABLE public.model (id int PRIMARY KEY);
    CREATE FUNCTION public.encode(text, vector) RETURNS text LANGUAGE sql AS $$ SELECT 'own' $$;
"""


def upgrade(url):
    with create_engine(url).begin() as connection:
        schema.upgrade(connection)


def downgrade(url):
    with create_engine(url).begin() as connection:
        schema.downgrade(connection, drop_models=True)


def status(url):
    with create_engine(url).connect() as connection:
        return schema.status(connection)


def run(url, statements):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def state(url):
    """The catalog, and the row of the version table."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = catalog(connection)
        if ("hashindex.alembic_version",) in {row[:1] for row in found["relations"]}:
            found["version"] = connection.execute(
                "SELECT version_num FROM hashindex.alembic_version"
            ).fetchall()
    return found


def psql(server, url, script):
    return subprocess.run(
        [server.bin_dir / "psql", "-X", "-q", url],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )


def lsh(name="lsh"):
    rows = np.random.default_rng(1).standard_normal((30, 8)).astype(np.float32)
    return LSH(n_bits=12, random_state=0).fit(rows).to_model(name)


def test_upgrade_of_an_empty_database(empty_url):
    before = status(empty_url)
    assert not before.installed
    assert not before.up_to_date
    assert (before.revision, before.functions) == (None, None)
    upgrade(empty_url)
    after = status(empty_url)
    assert after.installed
    assert after.up_to_date
    assert after.revision == after.head == before.head
    assert after.functions == after.packaged_functions == before.packaged_functions
    assert after.as_dict() == dataclasses.asdict(after) | {"up_to_date": True}
    found = state(empty_url)
    assert found["version"] == [(after.head,)]
    # Every relation, function and type that the upgrade makes is in schema hashindex.
    for part in ("relations", "functions", "types"):
        assert found[part]
        assert all(row[0].startswith("hashindex.") for row in found[part])


def test_a_second_upgrade_changes_nothing(empty_url):
    upgrade(empty_url)
    with connect(empty_url) as connection:
        store.save(connection, lsh())
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
        create_index(connection)
    before = state(empty_url)
    upgrade(empty_url)
    assert state(empty_url) == before


def test_upgrade_leaves_the_caller_s_search_path(empty_url):
    with create_engine(empty_url).begin() as connection:
        connection.execute(sa.text("SET search_path TO \"$user\", 'odd one', public"))
        before = connection.scalar(sa.text("SHOW search_path"))
        schema.upgrade(connection)
        assert connection.scalar(sa.text("SHOW search_path")) == before
        connection.execute(sa.text("CREATE TABLE own (id int)"))
    assert ("public.own",) in {row[:1] for row in state(empty_url)["relations"]}


@pytest.mark.parametrize("path", ["", "pg_temp, public", "hashindex", "decoy, public"])
def test_upgrade_under_any_search_path(empty_url, path):
    """Another object with the same bare name must not be used."""
    run(
        empty_url,
        "CREATE SCHEMA decoy; CREATE FUNCTION decoy.format(text, text) RETURNS text "
        "LANGUAGE plpgsql AS 'BEGIN RAISE division_by_zero; END';"
        "CREATE DOMAIN decoy.vector AS text; CREATE DOMAIN decoy.text AS bytea",
    )
    with create_engine(empty_url).begin() as connection:
        connection.execute(sa.text("SELECT set_config('search_path', :p, false)"), {"p": path})
        schema.upgrade(connection)
    run(empty_url, "DROP SCHEMA decoy CASCADE")
    under_path = state(empty_url)
    downgrade(empty_url)
    upgrade(empty_url)
    assert under_path == state(empty_url)


def test_a_migrated_database_equals_one_made_by_psql(server, url, empty_url):
    done = psql(server, empty_url, schema.script())
    assert done.returncode == 0, done.stderr
    assert state(empty_url) == state(url)
    assert status(empty_url).up_to_date
    # Python may take over from there.
    before = state(empty_url)
    upgrade(empty_url)
    assert state(empty_url) == before
    with connect(empty_url) as connection:
        assert store.save(connection, lsh()).version == 1


def test_the_script_is_refused_whole_where_it_cannot_run(server, url, make_database):
    before = state(url)
    again = psql(server, url, schema.script())
    assert again.returncode != 0
    assert "already exists" in again.stderr
    assert state(url) == before

    bare = make_database("template0")
    before = state(bare)
    without = psql(server, bare, schema.script())
    assert without.returncode != 0
    assert "CREATE EXTENSION vector" in without.stderr
    assert state(bare) == before


def upgrade_at_once(urls):
    start = threading.Barrier(len(urls))

    def work(url):
        start.wait()
        upgrade(url)

    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(work, urls, timeout=60))


def test_three_upgrades_at_once(empty_url, url):
    upgrade_at_once([empty_url] * 3)
    assert state(empty_url) == state(url)


def test_upgrades_of_several_databases_from_one_process(make_database, vector_template, url):
    """No lock in a database keeps these apart, and alembic's own state is module-wide."""
    urls = [make_database(vector_template) for _ in range(4)]
    upgrade_at_once(urls)
    assert [state(made) for made in urls] == [state(url)] * 4


def test_an_upgrade_waits_for_another(empty_url):
    first, second = (create_engine(empty_url).connect() for _ in range(2))
    with first, second:
        schema.upgrade(first)
        second.execute(sa.text("SET lock_timeout = '50ms'"))
        with pytest.raises(Exception, match="lock timeout"):
            schema.upgrade(second)
        second.rollback()
        first.commit()
        schema.upgrade(second)
        second.commit()
    assert status(empty_url).up_to_date


def test_downgrade_removes_only_own_objects(empty_url):
    run(empty_url, USERS_OWN)
    before = state(empty_url)
    upgrade(empty_url)
    with connect(empty_url) as connection:
        store.save(connection, lsh())
        index = indexed(connection, "items")
        index.drop()
    downgrade(empty_url)
    assert state(empty_url) == before
    assert not status(empty_url).installed
    downgrade(empty_url)
    assert state(empty_url) == before


def test_upgrade_after_downgrade(url):
    before = state(url)
    downgrade(url)
    with connect(url) as connection, pytest.raises(MissingSchemaError, match="schema upgrade"):
        store.list_models(connection)
    upgrade(url)
    assert state(url) == before
    with connect(url) as connection:
        assert store.save(connection, lsh()).version == 1


def test_downgrade_is_refused_while_there_are_indexes(url):
    run(url, USERS_OWN)
    with connect(url) as connection:
        store.save(connection, lsh())
        index = create_index(connection, "mine")
        before = state(url)
        with pytest.raises(InUseError, match="there are indexes: mine; drop each with"):
            downgrade(url)
        assert state(url) == before
        assert index.encode() == 1
        assert_fresh(index)


def test_downgrade_is_refused_while_there_are_models(url):
    """A migration's downgrade does not ask, and training may have taken hours."""
    with connect(url) as connection:
        store.save(connection, lsh())
        store.save(connection, lsh())
    before = state(url)
    message = "there are models: lsh:1, lsh:2; keep each with: pg-hashindex model export"
    with pytest.raises(InUseError, match=message), create_engine(url).begin() as transaction:
        schema.downgrade(transaction)
    assert state(url) == before
    # A transaction that goes on has its own names and rights.
    settings = sa.text("SELECT current_setting('search_path'), current_setting('role')")
    with create_engine(url).begin() as transaction:
        own = transaction.execute(settings).one()
        with pytest.raises(InUseError):
            schema.downgrade(transaction)
        assert transaction.execute(settings).one() == own


@pytest.mark.newest
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW mine AS SELECT hashindex.encode_with(NULL, embedding) FROM items",
        "ALTER TABLE items ADD code bit varying GENERATED ALWAYS AS "
        "(hashindex.encode_with('{}', embedding)) STORED",
        "CREATE VIEW mine AS SELECT name FROM hashindex.model",
        "CREATE TABLE mine (layers hashindex.layer[])",
        "CREATE TABLE mine (model bigint REFERENCES hashindex.model)",
        "CREATE FUNCTION mine(hashindex.index) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TABLE hashindex.mine (id int)",
        "CREATE INDEX ON items (hashindex.encode_with('{}', embedding))",
    ],
)
def test_downgrade_is_refused_while_the_user_uses_ours(url, statement):
    run(url, USERS_OWN.replace("INSERT INTO public.items", "-- "))
    run(url, statement)
    before = state(url)
    with pytest.raises(InUseError):
        downgrade(url)
    assert state(url) == before
    assert status(url).up_to_date


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE hashindex.alembic_version SET version_num = '0001'",
        "UPDATE hashindex.alembic_version SET version_num = '0001';"
        "ALTER TABLE hashindex.object RENAME TO gone",
    ],
)
def test_a_schema_of_an_earlier_commit_is_refused(url, run, statement):
    with connect(url) as connection:
        connection.execute(statement.encode())
        before = catalog(connection)
    said = r"earlier commit.*model export NAME FILE.*schema downgrade.*schema upgrade.*model import"
    for command in (schema.upgrade, schema.downgrade):
        with pytest.raises(MissingSchemaError, match=said), create_engine(url).begin() as made:
            command(made)
    for name in ("upgrade", "downgrade"):
        more = ["--yes"] if name == "downgrade" else []
        told = run("schema", name, *more, "--database-url", url, code=3).output
        assert re.search(said, told, re.S)
    if "object" in statement:
        with connect(url) as connection:
            for ask in (list_indexes, store.list_models):
                with pytest.raises(MissingSchemaError, match=said):
                    ask(connection)
        assert re.search(said, run("index", "show", "--database-url", url, code=3).output, re.S)
    with connect(url) as connection:
        assert catalog(connection) == before


def test_upgrade_brings_functions_back(url):
    with connect(url) as connection:
        leave_extension(connection)
    before = state(url)
    run(
        url,
        "DROP FUNCTION hashindex.recall;"
        "DROP TRIGGER immutable ON hashindex.model;"
        "CREATE OR REPLACE FUNCTION hashindex.encode(model text, v vector) RETURNS bit "
        "LANGUAGE sql AS 'SELECT B''0''';"
        "COMMENT ON SCHEMA hashindex IS 'pg_hashindex 0.0.1: an older one. Functions 0123456789'",
    )
    found = status(url)
    assert found.installed
    assert not found.up_to_date
    assert found.functions == "0123456789"
    upgrade(url)
    assert status(url).up_to_date
    assert state(url) == before


def test_upgrade_brings_the_functions_of_indexes_back(url):
    run(url, USERS_OWN)
    with connect(url) as connection:
        store.save(connection, lsh())
        indexes = [create_index(connection, name) for name in ("plain", "My-Own")]
        # An index whose table is gone gets no functions, and hinders nothing.
        connection.execute("CREATE TABLE gone (id int PRIMARY KEY, v vector(8))")
        create_index(connection, "gone", table="gone", column="v")
        connection.execute("DROP TABLE gone")
        before = state(url)
        for index in indexes:
            quoted = index.name.replace('"', '""')
            row = connection.execute("SELECT hashindex._sync_name(%s)", [index.name]).fetchone()
            connection.execute(
                f'CREATE OR REPLACE FUNCTION hashindex."{row[0]}"() RETURNS trigger '
                "LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
                f'DROP FUNCTION hashindex."search_{quoted}"'.encode()
            )
        upgrade(url)
        assert state(url) == before
        connection.execute("INSERT INTO items VALUES (2, '[8,7,6,5,4,3,2,1]')")
        for index in indexes:
            index.encode()
            assert_fresh(index)
            assert index.search(np.arange(8, 0, -1), 1)[0].id == 2


@pytest.mark.parametrize(
    ("obstacle", "error"),
    [
        ("CREATE SCHEMA hashindex; CREATE TABLE hashindex.model (id int)", DuplicateNameError),
        ("CREATE SCHEMA hashindex; CREATE VIEW hashindex.index AS SELECT 1", DuplicateNameError),
        (
            "CREATE SCHEMA hashindex; CREATE FUNCTION hashindex.recall"
            "(text, integer, integer, integer, text) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
            Exception,
        ),
    ],
)
def test_a_failed_upgrade_leaves_nothing(empty_url, obstacle, error):
    run(empty_url, obstacle)
    before = state(empty_url)
    with pytest.raises(error):
        upgrade(empty_url)
    assert state(empty_url) == before
    run(empty_url, "DROP SCHEMA hashindex CASCADE")
    upgrade(empty_url)
    assert status(empty_url).up_to_date


def test_an_upgrade_may_be_rolled_back(empty_url):
    before = state(empty_url)
    with create_engine(empty_url).connect() as connection:
        schema.upgrade(connection)
        connection.rollback()
    assert state(empty_url) == before


def test_without_pgvector(make_database):
    url = make_database("template0")
    before = state(url)
    with pytest.raises(MissingExtensionError, match="CREATE EXTENSION vector"):
        upgrade(url)
    with pytest.raises(MissingExtensionError, match="CREATE EXTENSION vector"):
        connect(url)
    assert state(url) == before
    assert not status(url).installed


@pytest.fixture
def role(server):
    run_as_admin(server, "CREATE ROLE plain LOGIN")
    yield "plain"
    run_as_admin(server, "DROP ROLE plain")


def as_role(url, role):
    return psycopg.conninfo.make_conninfo(url, user=role)


def test_without_the_right_to_create(empty_url, role):
    before = state(empty_url)
    with pytest.raises(MissingRightsError, match="permission denied for database"):
        upgrade(as_role(empty_url, role))
    assert state(empty_url) == before
    upgrade(empty_url)
    before = state(empty_url)
    # Neither may someone else's schema be changed, or looked into.
    for refused in (upgrade, downgrade, status):
        with pytest.raises(MissingRightsError, match="permission denied"):
            refused(as_role(empty_url, role))
    assert state(empty_url) == before


def test_an_owner_who_is_no_superuser(empty_url, role):
    database_name = psycopg.conninfo.conninfo_to_dict(empty_url)["dbname"]
    run(empty_url, f"GRANT CREATE ON DATABASE {database_name} TO plain;")
    run(empty_url, "GRANT CREATE ON SCHEMA public TO plain")
    url = as_role(empty_url, role)
    upgrade(url)
    assert status(url).up_to_date
    with connect(url) as connection:
        store.save(connection, lsh())
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(8))")
        index = create_index(connection, "items")
        connection.execute("INSERT INTO items VALUES (1, '[1,2,3,4,5,6,7,8]')")
        assert_fresh(index)
        upgrade(url)
        index.drop()
        connection.execute("DROP TABLE items")
    downgrade(url)
    run(empty_url, f"REVOKE ALL ON DATABASE {database_name} FROM plain")
    run(empty_url, "REVOKE ALL ON SCHEMA public FROM plain")


@pytest.mark.parametrize("path", ["public", "ext, public", ""])
def test_pgvector_in_another_schema(make_database, path):
    url = make_database("template0")
    run(url, "CREATE SCHEMA ext; CREATE EXTENSION vector SCHEMA ext")
    url = psycopg.conninfo.make_conninfo(url, options=f"-c search_path={path.replace(' ', '')}")
    upgrade(url)
    assert status(url).up_to_date
    rows = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    sgh = SGH(n_bits=10, n_anchors=12, random_state=0).fit(rows).to_model("sgh", metric="cosine")
    with connect(url) as connection:
        store.save(connection, lsh())
        model = store.save(connection, sgh)
        assert store.load(connection, "sgh").checksum == model.checksum
        connection.execute(
            "CREATE TABLE public.items (id int PRIMARY KEY, embedding ext.vector(8))"
        )
        insert = "INSERT INTO public.items VALUES (%s, %s)"
        connection.cursor().executemany(insert, [(n, Vector(row)) for n, row in enumerate(rows)])
        index = indexed(connection, table="public.items", model="sgh")
        connection.execute(insert, [100, Vector(rows[3])])
        assert_fresh(index)
        assert [hit.id for hit in index.search(rows[3], 2)] == [3, 100]
    upgrade(url)
    assert status(url).up_to_date


class OldConnection(psycopg.Connection[Any]):
    """A connection to a server that says it is of version 14."""

    @property
    def info(self):
        class Info:
            server_version = 140_011

            def parameter_status(self, name):
                assert name == "server_version"
                return "14.11"

        return Info()


def test_an_old_server(empty_url):
    with OldConnection.connect(empty_url) as connection:
        with pytest.raises(OldServerError, match=r"PostgreSQL 14\.11 is too old.* 15 or later"):
            database.prepare(connection)
    # In SQL, where the version cannot be made up, the bound is moved instead.
    check = sql_files.text(sql_files.folder("sql") / "005_owner.sql")
    assert check.count("< 150000") == 1
    for bound, raised in (("< 150000", False), ("< 990000", True)):
        with psycopg.connect(empty_url) as connection:
            expected = (
                pytest.raises(OldServerError, match="PostgreSQL .* is too old.*Upgrade the server")
                if raised
                else contextlib.nullcontext()
            )
            with expected, server_errors.translated_errors():
                connection.execute(check.replace("< 150000", bound).encode())
            connection.rollback()


def test_an_old_pgvector(vector_template, make_database):
    """An older release is what the catalog says it is; its SQL is not run."""
    url = make_database(vector_template)
    run(url, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    with pytest.raises(OldServerError, match="ALTER EXTENSION vector UPDATE"):
        upgrade(url)
    with pytest.raises(OldServerError, match=r"pgvector 0\.7\.4 is too old.*ALTER EXTENSION"):
        connect(url)
    # The last is what AlloyDB calls its own.
    for version in ("0.10.0", "0.8.0.google-3"):
        run(url, f"UPDATE pg_extension SET extversion = '{version}' WHERE extname = 'vector'")
        upgrade(url)
        connect(url).close()


ENVIRONMENT = """
    from alembic import context
    import sqlalchemy as sa
    from pg_hashindex.db.connection import create_engine

    with create_engine(context.config.get_main_option("url")).connect() as connection:
        context.configure(connection=connection, target_metadata=sa.MetaData())
        with context.begin_transaction():
            context.run_migrations()
"""

REVISION = """
    import sqlalchemy as sa
    from alembic import context, op
    from pg_hashindex import schema

    revision, down_revision, branch_labels, depends_on = "{number}", {before}, None, None

    def upgrade():
        op.create_table("before_{number}", sa.Column("id", sa.Integer, primary_key=True))
        if {ours}:
            schema.upgrade(op.get_bind())
        op.create_table("after_{number}", sa.Column("id", sa.Integer, primary_key=True))
        op.execute("INSERT INTO after_{number} VALUES (1)")
        assert context.get_context().bind is op.get_bind()
        if context.config.attributes.get("fail") == "{number}":
            raise RuntimeError("on purpose")

    def downgrade():
        op.drop_table("after_{number}")
        if {ours}:
            schema.downgrade(op.get_bind())
        op.drop_table("before_{number}")
"""


@pytest.fixture
def application(tmp_path, empty_url):
    """An application with an alembic of its own; its second revision installs ours."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(textwrap.dedent(ENVIRONMENT))
    (tmp_path / "script.py.mako").touch()
    for number, before, ours in (
        ("0001", None, False),
        ("0002", "0001", True),
        ("0003", "0002", 0),
    ):
        (tmp_path / "versions" / f"{number}.py").write_text(
            textwrap.dedent(REVISION.format(number=number, before=repr(before), ours=ours))
        )
    config = alembic.config.Config()
    config.set_main_option("script_location", str(tmp_path).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("url", empty_url.replace("%", "%%"))
    return config


def public_tables(url):
    return {row[0] for row in state(url)["relations"] if row[1] == "r" and "." in row[0]} - {
        row[0] for row in state(url)["relations"] if row[0].startswith("hashindex.")
    }


def test_inside_an_application_s_own_alembic(application, empty_url, url):
    alembic.command.upgrade(application, "head")
    assert status(empty_url).up_to_date
    both = {f"public.{when}_{number}" for when in ("before", "after") for number in
            ("0001", "0002", "0003")}  # fmt: skip
    assert public_tables(empty_url) == both | {"public.alembic_version"}
    found, fresh = state(empty_url), state(url)
    for part in ("functions", "triggers", "version", "schemas"):
        assert found[part] == fresh[part]
    with connect(empty_url) as connection:
        store.save(connection, lsh())
        versions = connection.execute("SELECT * FROM public.alembic_version").fetchall()
    assert versions == [("0003",)]

    with pytest.raises(InUseError, match="there are models: lsh:1; keep each with"):
        alembic.command.downgrade(application, "0001")
    with connect(empty_url) as connection:
        store.drop(connection, "lsh")
    alembic.command.downgrade(application, "0001")
    assert not status(empty_url).installed
    assert public_tables(empty_url) == {
        "public.before_0001",
        "public.after_0001",
        "public.alembic_version",
    }
    alembic.command.upgrade(application, "head")
    alembic.command.downgrade(application, "base")
    assert public_tables(empty_url) == {"public.alembic_version"}
    assert not any("hashindex" in str(rows) for rows in state(empty_url).values())


@pytest.mark.parametrize("fail", ["0002", "0003"])
def test_inside_an_application_s_alembic_that_fails(application, empty_url, fail):
    """All revisions of a run share its transaction, ours too."""
    before = state(empty_url)
    application.attributes["fail"] = fail
    with pytest.raises(RuntimeError, match="on purpose"):
        alembic.command.upgrade(application, "head")
    assert state(empty_url) == before
    application.attributes["fail"] = None
    alembic.command.upgrade(application, "head")
    assert status(empty_url).up_to_date
