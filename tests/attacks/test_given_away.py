"""A table that is given away while work reads it, and callers who can become a superuser."""

import contextlib
import re

import psycopg
import pytest
from click.testing import CliRunner
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed, with_access
from fixtures.roles import make_administrator
from fixtures.traps import lay_trap
from pg_hashindex.cli import main
from psycopg import sql

from pg_hashindex import operations
from pg_hashindex.db import gate
from pg_hashindex.db.owners import ask_schema
from pg_hashindex.db.statements import execute
from pg_hashindex.errors import MissingRightsError

pytestmark = pytest.mark.newest


@pytest.fixture
def keeper(connection, as_role, items, model):
    session = as_role("keeper")
    make_administrator(connection, "keeper")
    connection.execute("ALTER TABLE items OWNER TO keeper; GRANT CREATE ON SCHEMA public TO keeper")
    connection.execute("ALTER SCHEMA public OWNER TO keeper")
    return session


def test_a_table_is_not_given_away_between_the_question_and_the_answer(connection, keeper, as_role):
    """ALTER OWNER waits until the transaction ends that has passed the gate."""
    as_role("mallory")
    index = indexed(keeper)
    connection.execute("SET lock_timeout = '100ms'")
    with keeper.transaction():
        execute(keeper, "SELECT count(*) FROM {table}", names=index.row.names)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("ALTER TABLE items OWNER TO mallory")
    connection.execute("ALTER TABLE items OWNER TO mallory")
    with pytest.raises(MissingRightsError, match="belongs to role mallory"):
        execute(keeper, "SELECT count(*) FROM {table}", names=index.metadata.names)


def damaged(index):
    """Take codes away, and have triggers miss a write."""
    index.connection.execute(
        f"DELETE FROM hashindex.set_{index.metadata.set_id}_codes WHERE id % 7 = 0"
    )
    index.connection.execute(
        "ALTER TABLE items DISABLE TRIGGER USER;"
        "UPDATE items SET embedding = embedding + embedding WHERE id < 9"
    )
    operations.repair(index, full=True)


def trained(index, *options):
    """Run `model train`, as a shell does."""
    arguments = ["model", "train", "more", "--table", "items", "--column", "embedding", "--force"]
    arguments += ["--database-url", index.connection.info.dsn, *options]
    result = CliRunner().invoke(main, arguments)
    if result.exit_code:
        raise MissingRightsError(result.stderr)


#: Long commands that read the table of an index.
WORK = {
    "rebalance": lambda index: index.rebalance(),
    "repair": damaged,
    "train": trained,
    "train-on-all-rows": lambda index: trained(index, "--method", "itq", "--all-rows"),
}


@pytest.mark.parametrize("work", WORK)
def test_each_block_of_a_command_passes_the_gate(connection, keeper, as_role, monkeypatch, work):
    """The table is given away at each beat: no row is read after it."""
    mallory = lay_trap(connection, as_role)
    connection.execute("GRANT CREATE ON SCHEMA public TO mallory")
    index = with_access(indexed(keeper), "lists")
    passed = gate.pass_gate
    beats, given_at = 0, 0
    given, refused = [], []

    def counting(*arguments):
        nonlocal beats
        beats += 1
        if beats == given_at:
            with psycopg.connect(connection.info.dsn, autocommit=True) as other:
                other.execute("SET lock_timeout = '100ms'")
                # It waits for a gate that was passed before in the same transaction.
                with contextlib.suppress(psycopg.errors.LockNotAvailable):
                    other.execute("ALTER TABLE items OWNER TO mallory")
                    given.append(beats)
                    mallory.execute("CREATE INDEX trap ON items (id) WHERE mallory.springs(1)")
        return passed(*arguments)

    monkeypatch.setattr(gate, "pass_gate", counting)
    WORK[work](index)
    most = beats
    assert most >= 3
    for given_at in range(1, most + 1):
        beats = 0
        try:
            WORK[work](index)
        except MissingRightsError as error:
            refused.append(given_at)
            # An older snapshot does not see the owner.
            assert re.search("belongs to role mallory|was altered since", str(error))  # noqa: PT017
        connection.execute("DROP INDEX IF EXISTS trap; ALTER TABLE items OWNER TO keeper")
    assert refused == given != []
    given_at = 0
    operations.repair(index, full=True)
    assert_fresh(index)


@pytest.mark.parametrize("inherits", ["INHERIT", "NOINHERIT"])
def test_a_member_of_a_superuser_counts_as_one(connection, keeper, as_role, inherits):
    dba = as_role("dba")
    ask_schema(dba)
    superuser = sql.Identifier(connection.info.user)
    connection.execute(
        sql.SQL("ALTER ROLE dba {}; GRANT {} TO dba").format(sql.SQL(inherits), superuser)
    )
    try:
        with pytest.raises(MissingRightsError, match="belongs to role keeper"):
            ask_schema(dba)
        dba.execute(sql.SQL("SET ROLE {}").format(superuser))
        with pytest.raises(MissingRightsError, match="belongs to role keeper"):
            ask_schema(dba)
    finally:
        dba.execute("RESET ROLE")
        connection.execute(sql.SQL("REVOKE {} FROM dba").format(superuser))


def test_a_superuser_who_lowers_his_session_stays_one(connection, keeper):
    connection.execute("SET SESSION AUTHORIZATION keeper")
    try:
        with pytest.raises(MissingRightsError, match="belongs to role keeper"):
            ask_schema(connection)
    finally:
        connection.execute("RESET SESSION AUTHORIZATION")


def test_a_function_of_another_role_in_an_index(connection, keeper, as_role):
    mallory = as_role("mallory")
    connection.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    mallory.execute(
        "CREATE FUNCTION mallory.yes(integer) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN true; "
        "GRANT USAGE ON SCHEMA mallory TO keeper"
    )
    keeper.execute("CREATE INDEX ON items (id) WHERE mallory.yes(1)")
    with pytest.raises(MissingRightsError, match=r"function mallory\.yes\(integer\)"):
        indexed(keeper)


def test_a_superusers_table_is_not_indexed_by_another_roles_function(connection, keeper):
    """Its writers would run that function; the vectors themselves need none."""
    connection.execute(
        sql.SQL("ALTER TABLE items OWNER TO {}").format(sql.Identifier(connection.info.user))
    )
    connection.execute(
        "CREATE SCHEMA theirs; ALTER TABLE items SET SCHEMA theirs; "
        "GRANT USAGE ON SCHEMA theirs TO keeper; GRANT ALL ON theirs.items TO keeper"
    )
    create = "SELECT hashindex.create_index('docs', 'theirs.items', 'embedding', 'lsh')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to role postgres"):
        keeper.execute(create)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to a superuser"):
        connection.execute(create)
    assert keeper.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
