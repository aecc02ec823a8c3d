"""The administrator: one role, no superuser, that owns all that is made, and its members."""

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index, indexed, with_access
from fixtures.roles import denied

from pg_hashindex import operations, store
from pg_hashindex.contrib.sqlalchemy.specification import IndexSpec
from pg_hashindex.contrib.sqlalchemy.statements import create_statement
from pg_hashindex.errors import MissingRightsError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate

pytestmark = pytest.mark.newest

TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


def other_model(vectors, name="lsh2"):
    return LSH(n_bits=16, random_state=5).fit(vectors).to_model(name)


def owners(connection):
    """Return the owners of all that is in the schema."""
    rows = connection.execute(
        """
        SELECT relowner::regrole::text FROM pg_class
        WHERE relnamespace = 'hashindex'::regnamespace
        UNION SELECT proowner::regrole::text FROM pg_proc
        WHERE pronamespace = 'hashindex'::regnamespace
        UNION SELECT typowner::regrole::text FROM pg_type
        WHERE typnamespace = 'hashindex'::regnamespace
        """
    ).fetchall()
    return {row[0] for row in rows}


def test_the_administrator_does_everything(keeper, connection, vectors, as_role):
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    index = indexed(keeper)
    assert reader.execute(TYPED).fetchone() == (10,)
    keeper.execute("INSERT INTO items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    for access in ("lists", "scan"):
        index = with_access(index.configure(candidates=100), access)
        assert index.access == access
        assert reader.execute(TYPED).fetchone() == (10,)
        # By the codes, which is how the landmarks of each build are granted too.
        granted = "SELECT count(*) FROM hashindex.within('items_idx', '[1,2,3,4,5,6,7,8]', 12)"
        assert reader.execute(granted).fetchone() == (301,)
        if access == "lists":
            index.rebalance()
    assert_fresh(index)
    store.save(keeper, other_model(vectors))
    done = index.swap(model="lsh2", force=True)
    assert done.set == "codes of lsh2:1 in lists without landmarks"
    assert reader.execute(TYPED).fetchone() == (10,)
    index.rollback()
    index.prune()
    index = HashIndex.open(keeper, "items_idx")
    evaluate(index, queries=3, save=True)
    operations.repair(index)
    assert owners(connection) == {"keeper"}
    index.drop()
    assert [m.name for m in store.drop(keeper, "lsh2")] == ["lsh2"]


def test_members_work_for_him(keeper, connection, as_role, vectors):
    """He owns whatever they make, and no trigger runs as them."""
    ann, bob, cat = as_role("ann"), as_role("bob"), as_role("cat")
    connection.execute("GRANT keeper TO ann, bob, cat")
    create_index(ann)
    HashIndex.open(bob, "items_idx").encode()
    store.save(cat, other_model(vectors))
    for session, access in ((ann, "lists"), (cat, "scan"), (bob, "lists")):
        with_access(HashIndex.open(session, "items_idx"), access)  # type: ignore[arg-type]
        assert owners(connection) == {"keeper"}
    HashIndex.open(cat, "items_idx").rebalance()
    HashIndex.open(ann, "items_idx").swap(model="lsh2", force=True)
    HashIndex.open(bob, "items_idx").rollback()
    assert owners(connection) == {"keeper"}
    assert_fresh(HashIndex.open(ann, "items_idx"))
    # A superuser would run what is his.
    with pytest.raises(MissingRightsError, match="connect as role keeper, or as a member of it"):
        HashIndex.open(connection, "items_idx")
    HashIndex.open(bob, "items_idx").drop()
    create_index(cat, "second")
    assert owners(connection) == {"keeper"}


def test_only_the_administrator_creates_indexes(keeper, connection, as_role):
    """He is refused by name, before anything changes, whatever is his."""
    stranger = as_role("stranger")
    connection.execute(
        "CREATE TABLE theirs (LIKE items INCLUDING ALL); ALTER TABLE theirs OWNER TO stranger"
    )
    match = (
        'role "stranger" does not administer schema hashindex; '
        "Connect as role keeper, which owns the schema, or as a member of it"
    )
    with pytest.raises(MissingRightsError, match=match):
        create_index(stranger, "mine", table="theirs")
    for call in ("grant_reader('mine', 'stranger')", "revoke_reader('mine', 'stranger')"):
        with pytest.raises(psycopg.Error, match="does not exist"):
            stranger.execute(f"SELECT hashindex.{call}".encode())


def test_tables_of_other_roles(keeper, connection, as_role):
    """Their owners could run code as him; they make pgvector's index over a function."""
    app = as_role("app")
    connection.execute("GRANT CREATE ON SCHEMA public TO app; ALTER TABLE items OWNER TO app")
    refused = (
        r"table public\.items belongs to role app, which can run code as keeper "
        ".*; Have its owner make an index of pgvector"
    )
    with pytest.raises(MissingRightsError, match=refused) as error:
        create_index(keeper)
    statement = str(error.value).partition("functions lsh:1; ")[2]
    keeper.execute("SELECT hashindex.create_functions('lsh')")
    app.execute(statement.encode())
    # A role with the administrator's rights may own it, once he may read and lock its rows.
    connection.execute("GRANT keeper TO app; REVOKE CREATE ON SCHEMA public FROM app")
    with pytest.raises(MissingRightsError, match="GRANT SELECT, UPDATE, TRIGGER ON public.items"):
        create_index(keeper)
    app.execute("GRANT SELECT, UPDATE, TRIGGER ON items TO keeper")
    index = indexed(keeper)
    app.execute("UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 9")
    assert_fresh(index)
    assert status(connection) == ("ok", None)
    as_role("heir")
    connection.execute("ALTER TABLE items OWNER TO heir")
    found = status(connection)
    assert found[0] == "broken"
    assert (
        "give it to role keeper, or drop the index: pg-hashindex index drop items_idx" in found[1]
    )
    with pytest.raises(MissingRightsError, match="belongs to role heir"):
        index.encode()
    # Dropped without a look at the table; only its owner may run DROP TRIGGER.
    index.drop()
    triggers = connection.execute(
        "SELECT FROM pg_trigger WHERE tgrelid = 'items'::regclass AND NOT tgisinternal"
    )
    assert triggers.rowcount == 0


@pytest.mark.parametrize("role", ["app", "noinherit"])
def test_a_role_without_the_administrators_rights(keeper, connection, as_role, role):
    """Membership without INHERIT gives none, nor does the administrator's in the owner."""
    as_role(role)
    connection.execute(
        f"ALTER TABLE items OWNER TO {role}; GRANT ALL ON items TO keeper;".encode()
        + (b"GRANT app TO keeper" if role == "app" else b"ALTER ROLE noinherit NOINHERIT")
    )
    if role == "noinherit":
        connection.execute("GRANT keeper TO noinherit")
    with pytest.raises(MissingRightsError, match=f"belongs to role {role}"):
        create_index(keeper)


def test_triggers_of_another_role_are_restored_by_a_member_of_both(keeper, connection, as_role):
    app, member = as_role("app"), as_role("of_both")
    connection.execute(
        "ALTER TABLE items OWNER TO app; GRANT keeper TO app; GRANT keeper, app TO of_both"
    )
    app.execute("GRANT SELECT, UPDATE, TRIGGER ON items TO keeper")
    index = indexed(keeper)
    connection.execute("ALTER TABLE items RENAME TO things")
    connection.execute("ALTER TABLE things DISABLE TRIGGER USER; DELETE FROM things WHERE id < 9")
    refused = "must be owner of .* connect as a member of its owner and of the administrator"
    with pytest.raises(MissingRightsError, match=refused):
        operations.rebind(index, table="things")
    operations.rebind(HashIndex.open(member, "items_idx"), table="things")
    assert_fresh(HashIndex.open(keeper, "items_idx"))
    assert owners(connection) == {"keeper"}


def status(connection):
    row = connection.execute(
        "SELECT status, advice FROM hashindex.health('items_idx') WHERE check_name = 'rights'"
    ).fetchone()
    assert row is not None
    return row


def test_a_migration_and_a_table_of_another_role(keeper, connection, as_role):
    as_role("app")
    connection.execute(
        "ALTER TABLE items OWNER TO app; GRANT SELECT, UPDATE, TRIGGER ON items TO keeper"
    )
    spec = IndexSpec.declared("items_idx", "items", "embedding", "lsh")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        keeper.execute(create_statement(spec).encode())


@pytest.mark.parametrize("kind", ["function", "table", "type", "right", "table right"])
def test_foreign_objects_in_the_schema_are_reported(keeper, connection, as_role, kind):
    as_role("stranger")
    index = create_index(keeper)
    assert status(connection) == ("ok", None)
    made = {
        "function": "CREATE FUNCTION hashindex.own() RETURNS int LANGUAGE sql AS 'SELECT 1';"
        "ALTER FUNCTION hashindex.own() OWNER TO stranger",
        "table": "CREATE TABLE hashindex.own (); ALTER TABLE hashindex.own OWNER TO stranger",
        "type": "CREATE TYPE hashindex.own AS ENUM (); ALTER TYPE hashindex.own OWNER TO stranger",
        "right": "GRANT CREATE ON SCHEMA hashindex TO stranger",
        "table right": "GRANT UPDATE ON hashindex.index TO stranger",
    }
    connection.execute("GRANT CREATE ON SCHEMA hashindex TO stranger")
    connection.execute(made[kind].encode())
    if kind != "right":
        connection.execute("REVOKE CREATE ON SCHEMA hashindex FROM stranger")
    assert status(connection)[0] == "broken"
    finding = next(f for f in operations.check(index).findings if f.check == "rights")
    assert "stranger" in finding.detail


def test_catalog_vectors_are_private(keeper, connection, as_role):
    stranger = as_role("stranger")
    stranger.execute("SELECT name, version, dimension FROM hashindex.model")
    stranger.execute("SELECT * FROM hashindex.index")
    for column in ("layers", "bit_weights", "parameters", "training", "profile", "checksum"):
        with denied():
            stranger.execute(f"SELECT {column} FROM hashindex.model".encode())
    for table in ("model_part", "recall_history"):
        for statement in ("TABLE hashindex.{}", "DELETE FROM hashindex.{}"):
            with denied():
                stranger.execute(statement.format(table).encode())
