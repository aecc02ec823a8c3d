"""Owners of table and schema are checked first: no owner's code runs as another role."""

import re

import psycopg
import pytest
from fixtures.databases import run_as_admin
from fixtures.indexes import create_index, indexed, with_access
from fixtures.roles import make_administrator
from fixtures.traps import SPRUNG, WAYS, lay_trap, trapped_table

import pg_hashindex
from pg_hashindex import operations, schema, store
from pg_hashindex.contrib.documents.table import DocumentTable
from pg_hashindex.contrib.sqlalchemy.specification import IndexSpec
from pg_hashindex.contrib.sqlalchemy.statements import create_statement
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import DatabaseStateError, HashIndexError, MissingRightsError
from pg_hashindex.index.async_index import AsyncHashIndex
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.quality import evaluate
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.training.sampling import sample_table
from pg_hashindex.training.whole_tables import train_on_table

pytestmark = pytest.mark.newest

TABLE = "mallory.docs"
#: Everything that is given a table by its name.
BY_TABLE = {
    "create_index": lambda c: create_index(c, "stolen", table=TABLE),
    "declared": lambda c: c.execute(
        create_statement(
            IndexSpec.declared(
                "stolen", "docs", "embedding", "lsh", access="scan", schema="mallory"
            )
        ).encode()
    ),
    "train in SQL": lambda c: c.execute(
        f"SELECT hashindex.train('new', '{TABLE}', 'embedding', force => true)".encode()
    ),
    "sample_table": lambda c: sample_table(c, TABLE, "embedding"),
    "sample_table, labels": lambda c: sample_table(c, TABLE, "embedding", labels="category"),
    "train_on_table": lambda c: train_on_table(c, TABLE, "embedding", "new", "lsh", n_bits=8),
    "pairs": lambda c: sample_table(c, "own", "embedding", pairs=TABLE),
    "a view of it": lambda c: sample_table(c, "own", "embedding", graph="looks"),
    "diagnose": lambda c: diagnose(c, TABLE, "embedding"),
    "a store": lambda c: DocumentTable.find(c, "mallory", "docs"),
    "a store to make": lambda c: DocumentTable.create(c, "mallory", "docs", 8),
    "diagnose, no measuring": lambda c: diagnose(c, TABLE, "embedding", measure=False),
    "a log of queries": lambda c: diagnose(c, "own", "embedding", queries=TABLE),
}
REFUSED = r"(table|schema|view) \S+ belongs to role mallory, which can run code as"


@pytest.fixture
def keeper(connection, as_role, items, model):
    """A session of the administrator, who owns table own too."""
    session = as_role("keeper")
    connection.execute("GRANT CREATE ON SCHEMA public TO keeper")
    connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO keeper".encode())
    make_administrator(connection, "keeper")
    session.execute(
        "CREATE TABLE own (id bigint PRIMARY KEY, embedding vector(8)); "
        "INSERT INTO own SELECT n, ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(1, 40) n"
    )
    return session


@pytest.fixture
def mallory(connection, as_role):
    return lay_trap(connection, as_role)


@pytest.fixture(params=["keeper", "superuser"])
def victim(request, keeper, connection):
    """The administrator, or a superuser who is one."""
    connection.execute("ALTER TABLE own OWNER TO postgres; GRANT SELECT ON own TO keeper")
    if request.param == "keeper":
        connection.execute("ALTER TABLE own OWNER TO keeper")
        return keeper
    make_administrator(connection, connection.info.user)
    return connection


def assert_refused(error, match=REFUSED):
    assert SPRUNG not in str(error), error
    assert re.search(match, str(error)), error


@pytest.mark.parametrize("way", WAYS)
def test_the_trap_works(connection, mallory, as_role, way):
    trapped_table(mallory, TABLE, way=way)
    victim = as_role("victim") if way == "policy" else connection
    statement = f"SELECT id FROM {TABLE} WHERE id > 3" if way != "check" else (
        f"UPDATE {TABLE} SET category = 'b'"
    )  # fmt: skip
    with pytest.raises(psycopg.Error, match=SPRUNG):
        victim.execute(statement.encode())


@pytest.mark.parametrize("column", ["vector", "vector(8)"])
@pytest.mark.parametrize("action", BY_TABLE)
def test_a_strangers_table(victim, mallory, action, column):
    trapped_table(mallory, TABLE, column=column)
    victim.execute("CREATE VIEW looks AS SELECT id, category FROM mallory.docs")
    with pytest.raises((HashIndexError, psycopg.Error)) as error:
        BY_TABLE[action](victim)
    assert_refused(error.value)
    assert re.search("connect as role mallory|Have its owner make|train on that", str(error.value))


@pytest.mark.parametrize("way", ["partition", "child", "schema"])
@pytest.mark.parametrize("action", ["create_index", "sample_table", "diagnose", "train in SQL"])
def test_a_part_of_it_is_a_strangers(victim, connection, mallory, action, way):
    """A partition, a table that inherits, or the schema, whose owner may replace the table."""
    role = victim.info.user
    made = {
        "schema": "CREATE TABLE mallory.docs (LIKE own INCLUDING ALL); INSERT INTO mallory.docs "
        "TABLE own; ALTER TABLE mallory.docs OWNER TO {role}",
        "partition": "CREATE TABLE docs (id bigint PRIMARY KEY, category text, "
        "embedding vector(8)) PARTITION BY RANGE (id); ALTER TABLE docs OWNER TO {role};"
        "CREATE TABLE low PARTITION OF docs FOR VALUES FROM (0) TO (100);"
        "INSERT INTO docs SELECT id, 'a', embedding FROM own; ALTER TABLE low OWNER TO mallory",
        "child": "CREATE TABLE docs (LIKE own INCLUDING ALL); INSERT INTO docs TABLE own;"
        "ALTER TABLE docs OWNER TO {role}; CREATE TABLE low () INHERITS (docs);"
        "ALTER TABLE low OWNER TO mallory",
    }
    connection.execute(made[way].format(role=role).encode())
    if way != "schema":
        connection.execute("GRANT CREATE ON SCHEMA public TO mallory")
        mallory.execute("CREATE INDEX ON low (id) WHERE mallory.springs(1)")
        connection.execute("CREATE SCHEMA IF NOT EXISTS mine; ALTER TABLE docs SET SCHEMA mine")
        connection.execute("GRANT ALL ON SCHEMA mine TO PUBLIC")
    named = "mallory.docs" if way == "schema" else "mine.docs"
    calls = {
        "create_index": lambda: create_index(victim, "stolen", table=named),
        "sample_table": lambda: sample_table(victim, named, "embedding"),
        "diagnose": lambda: diagnose(victim, named, "embedding"),
        "train in SQL": lambda: victim.execute(
            f"SELECT hashindex.train('new', '{named}', 'embedding')".encode()
        ),
    }
    with pytest.raises((HashIndexError, psycopg.Error)) as error:
        calls[action]()
    # Codes are kept of plain tables alone, whoever owns their parts.
    plain = action != "create_index" or way == "schema"
    assert_refused(error.value, REFUSED if plain else "keeps the codes of one plain table")


def test_a_table_of_a_member_of_the_caller(connection, keeper, as_role):
    """A role that has the caller's rights already gains nothing by running code as the caller."""
    ann = as_role("ann")
    connection.execute("GRANT keeper TO ann; GRANT CREATE ON SCHEMA public TO ann")
    ann.execute("CREATE TABLE anns (LIKE own INCLUDING ALL); INSERT INTO anns TABLE own")
    ann.execute("GRANT SELECT, UPDATE, TRIGGER ON anns TO keeper")
    assert len(sample_table(keeper, "anns", "embedding").X) == 40
    indexed(keeper, "anns", table="anns")


COMMANDS = {
    "doctor": ("doctor", TABLE, "embedding"),
    "quickstart": ("quickstart", TABLE, "embedding", "--yes"),
    "model train": (
        "model", "train", "new", "--method", "lsh", "--bits", "8", "--table", TABLE, "--column",
        "embedding", "--force",
    ),
    "index create": (
        "index", "create", "stolen", "--access", "scan", "--table", TABLE, "--column", "embedding",
        "--model", "lsh",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_table_of_a_stranger(on, connection, model, mallory, command):
    """As a superuser, who would give the owner everything."""
    trapped_table(mallory, TABLE)
    said = on(*COMMANDS[command], code=3).output
    assert SPRUNG not in said
    assert "belongs to role mallory, which can run code as postgres" in said
    assert "index of pgvector" if command == "index create" else "connect as role mallory" in said


#: Everything that reads the table of an index that is there.
BY_INDEX = {
    "encode": lambda i: i.encode(),
    "waiting": lambda i: i.waiting(),
    "summary": lambda i: i.summary(),
    "rebalance": lambda i: i.rebalance(),
    "swap to lists": lambda i: with_access(i, "lists"),
    "swap": lambda i: i.swap(model="other", force=True),
    "repair": lambda i: operations.repair(i, full=True),
    "evaluate": lambda i: evaluate.evaluate(i, queries=5),
    "near_duplicates": lambda i: operations.near_duplicates(i, into="found", max_distance=0.1),
    "a handle opened later": lambda i: HashIndex.open(i.connection, i.name).search([1.0] * 8, 5),
    "search_like": lambda i: HashIndex.open(i.connection, i.name).search_like(1, 5),
}
BY_INDEX_IN_SQL = {
    "recall": "SELECT hashindex.recall('docs')",
    "exact_search": "SELECT * FROM hashindex.exact_search('docs', '[1,2,3,4,5,6,7,8]')",
    "search": "SELECT * FROM hashindex.search('docs', '[1,2,3,4,5,6,7,8]')",
    "filtered": "SELECT * FROM hashindex.search('docs', '[1,2,3,4,5,6,7,8]', filter => 'id > 3')",
    "hybrid": "SELECT * FROM hashindex.hybrid('docs', '[1,2,3,4,5,6,7,8]', 'a', 'category')",
    "declare_model": "SELECT hashindex._declare_swap('docs', 'other')",
    "near_duplicates": "SELECT * FROM hashindex.near_duplicates('docs', .1, 3)",
}


@pytest.fixture(params=["replaced", "given"])
def replaced(request, connection, keeper, mallory):
    """The administrator's index of his table, which has another owner, or the schema has.

    That role has replaced the table then.
    """
    connection.execute("CREATE SCHEMA shop AUTHORIZATION keeper")
    keeper.execute(
        "CREATE TABLE shop.docs (id bigint PRIMARY KEY, category text, embedding vector(8))"
    )
    keeper.execute("INSERT INTO shop.docs SELECT id, 'a', embedding FROM own")
    index = indexed(keeper, "docs", table="shop.docs")
    store.save(
        keeper, pg_hashindex.hashers.LSH(n_bits=8).fit([[1.0] * 8, [2.0] * 8]).to_model("other")
    )
    connection.execute("GRANT ALL ON SCHEMA shop TO PUBLIC")
    if request.param == "given":
        connection.execute("ALTER TABLE shop.docs OWNER TO mallory")
        mallory.execute("CREATE INDEX ON shop.docs (id) WHERE mallory.springs(1)")
        mallory.execute("GRANT ALL ON shop.docs TO PUBLIC")
        return index
    connection.execute("ALTER SCHEMA shop OWNER TO mallory")
    mallory.execute("DROP TABLE shop.docs")
    trapped_table(mallory, "shop.docs", column="vector(8)")
    return index


@pytest.mark.parametrize("action", BY_INDEX)
def test_a_table_that_a_stranger_has_replaced(replaced, victim, action):
    with pytest.raises(HashIndexError) as error:
        BY_INDEX[action](HashIndex.open(victim, "docs"))
    assert_refused(error.value)
    assert "pg-hashindex index drop docs" in str(error.value)


@pytest.mark.parametrize("action", BY_INDEX_IN_SQL)
def test_in_sql(replaced, victim, action):
    with pytest.raises(psycopg.Error) as error:
        victim.execute(BY_INDEX_IN_SQL[action].encode())
    assert_refused(error.value)


@pytest.mark.parametrize(
    "swap",
    [
        lambda c: HashIndex.open(c, "docs").swap(access="lists"),
        lambda c: c.execute("SELECT hashindex.swap_index('docs', access => 'scan')"),
        lambda c: c.execute("SELECT hashindex._declare_swap('docs', access => 'lists')"),
    ],
)
def test_a_swap_to_lists_on_a_table_that_was_given_away(victim, connection, mallory, swap):
    """The gate comes before the column is read."""
    connection.execute("CREATE SCHEMA shop; GRANT ALL ON SCHEMA shop TO PUBLIC")
    connection.execute("CREATE TABLE shop.docs (id bigint PRIMARY KEY, embedding vector)")
    connection.execute("INSERT INTO shop.docs TABLE own")
    connection.execute(f"ALTER TABLE shop.docs OWNER TO {victim.info.user}".encode())
    victim.execute("SELECT hashindex.create_index('docs', 'shop.docs', 'embedding', 'lsh', 'hnsw')")
    connection.execute("ALTER TABLE shop.docs OWNER TO mallory")
    mallory.execute("GRANT ALL ON shop.docs TO PUBLIC")
    mallory.execute("CREATE INDEX ON shop.docs (id) WHERE mallory.springs(1)")
    with pytest.raises((HashIndexError, psycopg.Error)) as error:
        swap(victim)
    assert_refused(error.value)


async def test_an_async_handle(replaced, url):
    async with await psycopg.AsyncConnection.connect(
        url.replace("postgres@", "keeper@"), autocommit=True
    ) as session:
        with pytest.raises(MissingRightsError) as error:
            await AsyncHashIndex.open(session, "docs")
        assert_refused(error.value)


def test_commands_without_tables_continue(replaced, keeper):
    """The index is listed and checked, which tells what is wrong, and can be dropped."""
    assert [index.name for index in list_indexes(keeper)] == ["docs"]
    found = operations.check(HashIndex.open(keeper, "docs"))
    (rights,) = [finding for finding in found.findings if finding.check == "rights"]
    assert rights.status == "broken"
    assert "table shop.docs belongs to role mallory" in rights.detail
    assert "pg-hashindex index drop docs" in str(rights.advice)
    HashIndex.open(keeper, "docs").drop()
    assert list_indexes(keeper) == []


def test_a_rebind_to_a_table_of_a_stranger(connection, keeper, mallory):
    index = create_index(keeper, "own", table="own")
    trapped_table(mallory, TABLE, column="vector(8)")
    with pytest.raises(MissingRightsError) as error:
        operations.rebind(index, table=TABLE)
    assert_refused(error.value)
    assert HashIndex.open(keeper, "own").qualified_table == '"public"."own"'


# A superuser, and the schema of another role.

USES = {
    "list indexes": list_indexes,
    "open": lambda c: HashIndex.open(c, "own"),
    "list models": store.list_models,
    "load a model": lambda c: store.load(c, "lsh"),
    "write a model's script": lambda c: store.script(c, "lsh"),
    "create": lambda c: create_index(c, "new", table="own"),
    "sample with keys": lambda c: sample_table(
        c, "items", "embedding", pairs="SELECT 1 AS a, 2 AS b, true AS same"
    ),
}


@pytest.mark.parametrize("use", USES)
def test_a_superuser_and_the_schema_of_another_role(keeper, url, use):
    """The error comes before anything in it is read."""
    create_index(keeper, "own", table="own")
    keeper.execute(
        "ALTER TABLE hashindex.index ENABLE ROW LEVEL SECURITY; "
        "CREATE FUNCTION hashindex.runs() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )
    for role in ("keeper", "postgres"):
        with connect(url) as superuser, pytest.raises(MissingRightsError) as error:
            superuser.execute(f"SET ROLE {role}".encode())
            USES[use](superuser)
    assert_refused(
        error.value,
        "schema hashindex belongs to role keeper, which can run code as superuser postgres",
    )


async def test_an_async_superuser(keeper, url):
    create_index(keeper, "own", table="own")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as session:
        with pytest.raises(MissingRightsError, match="schema hashindex belongs to role keeper"):
            await AsyncHashIndex.open(session, "own")


@pytest.mark.parametrize(
    "command",
    [
        ("index", "show"),
        ("index", "show", "own"),
        ("search", "own", "--like", "1"),
        ("model", "show"),
        ("schema", "status"),
        ("schema", "downgrade", "--yes"),
    ],
    ids=" ".join,
)
def test_commands_of_a_superuser_in_the_schema_of_another_role(on, keeper, command):
    indexed(keeper, "own", table="own")
    said = on(*command, code=3).output
    assert "schema hashindex belongs to role keeper, which can run code as superuser" in said
    assert "connect as role keeper, or as a member of it" in said


# Schema hashindex, made by whoever may create schemas before it is installed.


def upgrade(url, owner=None):
    with create_engine(url).begin() as connection:
        schema.upgrade(connection, owner=owner)


PLANTED = {
    "nothing": "SELECT 1",
    "a view": "CREATE VIEW hashindex.alembic_version AS SELECT 'x'::varchar(32) AS version_num "
    "WHERE hashindex.springs(1)",
    "a table": "CREATE TABLE hashindex.alembic_version (version_num varchar(32)); "
    "CREATE INDEX ON hashindex.alembic_version (version_num) WHERE hashindex.springs(1)",
    "a function": "CREATE FUNCTION hashindex._strangers() RETURNS TABLE (object text, owner oid) "
    "LANGUAGE sql AS 'SELECT NULL::text, NULL::oid'",
}


@pytest.fixture
def squatter(server, empty_url):
    """A role that may create schemas, and has made schema hashindex."""
    run_as_admin(server, "CREATE ROLE squatter LOGIN")
    with psycopg.connect(empty_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO squatter".encode())
    session = connect(empty_url.replace("postgres@", "squatter@"))
    session.execute("CREATE SCHEMA hashindex; GRANT USAGE ON SCHEMA hashindex TO PUBLIC")
    session.execute(
        "CREATE FUNCTION hashindex.springs(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS "
        "$$ BEGIN IF current_user <> 'squatter' THEN RAISE EXCEPTION 'the trap ran as %', "
        "current_user; END IF; RETURN true; END $$"
    )
    yield session
    session.close()
    with psycopg.connect(empty_url, autocommit=True) as admin:
        admin.execute("DROP OWNED BY squatter CASCADE; DROP ROLE squatter")


@pytest.mark.parametrize("planted", PLANTED)
def test_a_schema_that_was_there_first(run, squatter, empty_url, planted):
    squatter.execute(PLANTED[planted].encode())
    for arguments in (("upgrade",), ("status",), ("downgrade", "--yes")):
        said = run("schema", *arguments, "--database-url", empty_url, code=3).output
        assert SPRUNG not in said
        assert "schema hashindex belongs to role squatter, which can run code as" in said
    with pytest.raises(MissingRightsError, match="belongs to role squatter, not to keeper"):
        upgrade(empty_url, "keeper")
    with psycopg.connect(empty_url) as script:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to role squatter"):
            script.execute(schema.statements().encode())


def test_the_default_of_a_database_names_no_owner(squatter, empty_url):
    """Its owner could choose it."""
    with psycopg.connect(empty_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE {name} SET hashindex.owner = 'squatter'".encode())
    with pytest.raises(MissingRightsError, match="belongs to role squatter"):
        upgrade(empty_url)


def test_an_owner_who_is_named_administers(run, empty_url, make_database, as_role):
    as_role("boss")
    # A default of another database does not concern this one.
    with psycopg.connect(make_database("template0"), autocommit=True) as other:
        other.execute(f"ALTER DATABASE {other.info.dbname} SET hashindex.owner = 'x'".encode())
    said = run("schema", "upgrade", "--owner", "boss", "--database-url", empty_url).output
    assert "role boss administers it; all roles that search or write trust it" in said
    with psycopg.connect(empty_url, autocommit=True) as admin:
        owner = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'hashindex'"
        assert admin.execute(owner).fetchone() == ("boss",)
        assert admin.execute("SELECT count(*) FROM hashindex._strangers()").fetchone() == (0,)
        settings = "SELECT current_setting('hashindex.owner', true), current_user"
        assert admin.execute(settings).fetchone() in ((None, "postgres"), ("", "postgres"))
    # A superuser may not: nor may a session of his with less rights, which code could take back.
    for session in ("", "&options=-c%20role%3Dboss"):
        for named in ((), ("--owner", "boss")):
            url = empty_url + (session if "?" in empty_url else session.replace("&", "?"))
            refused = run("schema", "upgrade", *named, "--database-url", url, code=3).output
            assert "belongs to role boss, which can run code as postgres" in refused
    url = empty_url.replace("postgres@", "boss@")
    assert "already up to date" in run("schema", "upgrade", "--database-url", url).output
    with psycopg.connect(empty_url, autocommit=True) as admin:
        admin.execute("DROP SCHEMA hashindex CASCADE")


STRANGERS = {
    "a view": "CREATE VIEW hashindex.alembic_version AS SELECT ''::varchar(32) AS version_num "
    "WHERE mallory.springs(1); ALTER VIEW hashindex.alembic_version OWNER TO mallory",
    "a table": "CREATE TABLE hashindex.t (); ALTER TABLE hashindex.t OWNER TO mallory",
    "a trigger": "CREATE TABLE hashindex.alembic_version (version_num varchar(32));"
    "CREATE FUNCTION mallory.fires() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the trap ran as %', current_user; END $$;"
    "ALTER FUNCTION mallory.fires OWNER TO mallory;"
    "CREATE TRIGGER fires BEFORE INSERT ON hashindex.alembic_version "
    "FOR EACH STATEMENT EXECUTE FUNCTION mallory.fires()",
    "a type": "CREATE TYPE hashindex.layer AS ENUM (); ALTER TYPE hashindex.layer OWNER TO mallory",
    "a function": "CREATE FUNCTION hashindex._strangers() RETURNS TABLE (object text, owner oid) "
    "LANGUAGE sql AS 'SELECT NULL::text, NULL::oid'; "
    "ALTER FUNCTION hashindex._strangers OWNER TO mallory",
}


@pytest.mark.parametrize("planted", STRANGERS)
def test_objects_of_strangers_in_the_schema(empty_url, as_role, planted):
    """Before the first read of anything in it."""
    as_role("mallory")
    with psycopg.connect(empty_url, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA mallory AUTHORIZATION mallory; CREATE SCHEMA hashindex")
        admin.execute(
            "CREATE FUNCTION mallory.springs(integer) RETURNS boolean LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the trap ran as %', current_user; END $$;"
            "ALTER FUNCTION mallory.springs OWNER TO mallory;"
            "GRANT CREATE ON SCHEMA hashindex TO mallory"
        )
        admin.execute(STRANGERS[planted].encode())
        admin.execute("REVOKE CREATE ON SCHEMA hashindex FROM mallory")
    with pytest.raises(DatabaseStateError) as error:
        upgrade(empty_url)
    assert_refused(error.value, "belongs to role mallory, not to the owner of the schema")
    with psycopg.connect(empty_url, autocommit=True) as admin:
        admin.execute("DROP SCHEMA hashindex, mallory CASCADE")
