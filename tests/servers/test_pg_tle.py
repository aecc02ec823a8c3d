"""pg_tle itself: one role registers the extension; another installs, uses, updates and dumps it."""

import importlib.metadata
import os
import subprocess

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.outdated import outdate

from pg_hashindex import schema
from pg_hashindex.db import extension
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.index.handle import HashIndex

pytestmark = [pytest.mark.slow, pytest.mark.newest]

VERSION = importlib.metadata.version("pg_hashindex")
OLDER = "0.0.9"
CREATE = "CREATE SCHEMA hashindex; CREATE EXTENSION pg_hashindex SCHEMA hashindex"
QUERY = str(np.linspace(-1, 1, 16).tolist())
USED = (
    "CREATE TABLE items (id bigint PRIMARY KEY, kind text, embedding vector(16))",
    "INSERT INTO items SELECT n, 'k' || n % 3, array_agg(sin(n * d))::vector "
    "FROM generate_series(1, 1000) n, generate_series(1, 16) d GROUP BY n",
    "SELECT hashindex.train('m', 'items', 'embedding')",
    "SELECT hashindex.create_index('items_idx', 'items', 'embedding', 'm', access => 'scan')",
)
SEARCH = f"SELECT id, distance FROM hashindex.search_items_idx('{QUERY}', 10, candidates => 1000)"
EXACT = f"SELECT id, embedding <=> '{QUERY}' AS d FROM items ORDER BY d, id LIMIT 10"


class Databases:
    """Databases of app_owner on a server with pg_tle; cloud_admin may register extensions."""

    def __init__(self, server):
        self.server = server

    def make(self, name):
        with psycopg.connect(self.server.uri(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name} OWNER app_owner".encode())
        self.execute(
            name,
            "CREATE EXTENSION vector; CREATE EXTENSION pg_tle; GRANT pgtle_admin TO cloud_admin",
            role="postgres",
        )
        return name

    def execute(self, name, statements, *, role="app_owner"):
        with psycopg.connect(self.uri(name, role), autocommit=True) as connection:
            cursor = connection.execute(statements.encode())
            return cursor.fetchall() if cursor.description else []

    def uri(self, name, role="app_owner"):
        return self.server.as_role(role).uri(name)


@pytest.fixture(scope="module")
def databases(with_tle):
    return Databases(with_tle)


def register(databases, name):
    databases.execute(name, extension.tle_script(), role="cloud_admin")


def use(databases, name):
    for statement in USED:
        databases.execute(name, statement)
    with connect(databases.uri(name)) as connection:
        HashIndex.open(connection, "items_idx").encode()


def check(databases, name):
    assert databases.execute(name, SEARCH) == databases.execute(name, EXACT)
    assert (
        databases.execute(name, "SELECT * FROM hashindex.health('items_idx') WHERE status <> 'ok'")
        == []
    )
    with connect(databases.uri(name)) as connection:
        assert_fresh(HashIndex.open(connection, "items_idx"))


def test_from_registering_to_dropping(databases):
    name = databases.make("from_start")
    with pytest.raises(psycopg.errors.Error, match="pg_hashindex"):
        databases.execute(name, CREATE)
    register(databases, name)
    databases.execute(name, CREATE)
    use(databases, name)
    databases.execute(
        name, "UPDATE items SET embedding = (SELECT embedding FROM items WHERE id = 9) WHERE id < 5"
    )
    check(databases, name)
    engine = create_engine(databases.uri(name))
    with engine.connect() as connection:
        found = schema.status(connection)
    engine.dispose()
    assert (found.extension, found.up_to_date) == (VERSION, True)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="items"):
        databases.execute(name, "DROP EXTENSION pg_hashindex")
    databases.execute(name, "SELECT hashindex.drop_index('items_idx')")
    databases.execute(name, "DROP EXTENSION pg_hashindex; DROP SCHEMA hashindex")
    databases.execute(name, "SELECT pgtle.uninstall_extension('pg_hashindex')", role="cloud_admin")


def test_who_may_not_register(databases):
    name = databases.make("not_registered")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        databases.execute(name, extension.tle_script())
    assert databases.execute(name, "SELECT name FROM pgtle.available_extensions()") == []


def test_an_update_under_an_index(databases, monkeypatch):
    name = databases.make("updated")
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda _: OLDER)
        register(databases, name)
    databases.execute(name, CREATE)
    use(databases, name)
    with connect(databases.uri(name)) as connection:
        outdate(connection, extension=True)
    monkeypatch.setattr(extension, "_RELEASES", {OLDER: "0001"})
    register(databases, name)
    databases.execute(name, "ALTER EXTENSION pg_hashindex UPDATE")
    versions = "SELECT extversion FROM pg_extension WHERE extname = 'pg_hashindex'"
    assert databases.execute(name, versions) == [(VERSION,)]
    check(databases, name)
    # New databases get the new version.
    assert databases.execute(
        name, "SELECT default_version FROM pgtle.available_extensions() WHERE name = 'pg_hashindex'"
    ) == [(VERSION,)]


def test_a_dump_and_its_restore(databases, tmp_path):
    """The target has pg_tle with the extension registered, as the new server of a cloud would."""
    source, target = databases.make("dumped"), databases.make("restored")
    for name in (source, target):
        register(databases, name)
    databases.execute(source, CREATE)
    use(databases, source)
    folder = databases.server.programs
    path = tmp_path / "dump"
    for command in (
        [
            folder / "pg_dump",
            "-Fc",
            "--exclude-extension=pg_tle",
            "-N",
            "pgtle",
            "-f",
            path,
            databases.uri(source),
        ],
        [
            folder / "pg_restore",
            "--exit-on-error",
            "--no-owner",
            "--no-comments",
            "-d",
            databases.uri(target),
            path,
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr
    check(databases, target)
