"""A table that has an index gets another owner: no code of that role runs as anybody else."""

import re

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed
from fixtures.roles import make_administrator
from fixtures.traps import SPRUNG, lay_trap

from pg_hashindex import operations
from pg_hashindex.contrib.documents.table import DocumentTable, Entry
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

_WRITING = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"
_TRAP = "CREATE INDEX trap ON {} (id) WHERE mallory.springs(1)"
#: Object with another owner, the attack of that owner, and its undoing.
CHANGES = {
    "table": ("TABLE shop.docs", _TRAP.format("shop.docs"), "DROP INDEX shop.trap"),
    "child": ("TABLE shop.low", _TRAP.format("shop.low"), "DROP INDEX shop.trap"),
    "schema": ("SCHEMA shop", "SELECT 1", "SELECT 1"),
    "type": (
        "TYPE mood",
        "CREATE FUNCTION mallory.told(mood) RETURNS text LANGUAGE sql AS "
        "$$ SELECT mallory.springs(1)::text $$; "
        "CREATE CAST (mood AS text) WITH FUNCTION mallory.told(mood) AS IMPLICIT",
        "DROP CAST (mood AS text)",
    ),
}
WRITES = (
    "INSERT INTO {} VALUES (50, 'sad', '[1,2,3,4,5,6,7,8]'), (51, 'sad', NULL)",
    "UPDATE {} SET embedding = '[8,7,6,5,4,3,2,1]', mood = 'sad' WHERE id = 2",
    "UPDATE {} SET id = 60 WHERE id = 5",
    "DELETE FROM {} WHERE id = 7",
)
QUERY = "'[1,2,3,4,5,6,7,8]'"
SEARCHES = {
    "search": f"SELECT * FROM hashindex.search_docs({QUERY}, 40)",
    "candidates": f"SELECT * FROM hashindex.candidates('docs', {QUERY}, 5)",
    "within": f"SELECT * FROM hashindex.within('docs', {QUERY}, 8)",
    "filtered": f"SELECT * FROM hashindex.search_docs({QUERY}, filter => 'id > 3')",
    "search by name": f"SELECT * FROM hashindex.search('docs', {QUERY})",
}
#: Those that run nothing that a SELECT of their caller's would not run.
SELECTS = ("search", "search_like", "within")
SELECT = f"SELECT id FROM shop.docs ORDER BY embedding <-> {QUERY} LIMIT 40"
#: A handle that was opened before.
OF_A_HANDLE = {
    "search": lambda i: i.search([1.0] * 8, 5),
    "search_like": lambda i: i.search_like(1, 5),
    "within": lambda i: i.within([1.0] * 8, 3),
    "waiting": lambda i: i.waiting(),
    "encode": lambda i: i.encode(),
    "configure": lambda i: i.configure(candidates=50),
}


@pytest.fixture
def keeper(connection, as_role, model):
    """A session of the administrator, who has a schema and a type."""
    session = as_role("keeper")
    connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO keeper".encode())
    connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    make_administrator(connection, "keeper")
    session.execute(
        "CREATE SCHEMA shop; GRANT ALL ON SCHEMA shop TO PUBLIC; "
        "CREATE TYPE mood AS ENUM ('sad', 'glad')"
    )
    return session


def make_docs(keeper):
    keeper.execute(
        "CREATE TABLE shop.docs (id bigint PRIMARY KEY, mood mood, embedding vector(8));"
        "INSERT INTO shop.docs SELECT n, 'glad', ARRAY(SELECT sin(n * d) "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(1, 40) n; "
        f"GRANT {_WRITING} ON shop.docs TO PUBLIC".encode()
    )


@pytest.fixture
def mallory(connection, as_role):
    return lay_trap(connection, as_role)


def assert_refused(error, owner="mallory"):
    assert SPRUNG not in str(error), error
    assert re.search(f"belongs to role {owner}, which can run code as", str(error))


def traps_of(act):
    """Return whom a trap told of, in a statement that may fail for other reasons."""
    try:
        act()
    except (psycopg.Error, HashIndexError) as error:
        return re.findall(f"{SPRUNG} as \\w+", str(error))
    return []


def assert_like_a_select(session, act):
    assert {*traps_of(act)} <= {*traps_of(lambda: session.execute(SELECT.encode()))}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_owner(connection, keeper, mallory, url, change):
    """Writes pass, searches are SELECTs; once the owner is back they are exact until encoded."""
    make_docs(keeper)
    tenant = "mood" if change == "type" else None
    index = indexed(keeper, "docs", table="shop.docs", tenant=tenant)
    of_superuser = HashIndex(connection, "docs", index.row)
    thing, trap, undo = CHANGES[change]
    if change == "child":
        keeper.execute("CREATE TABLE shop.low () INHERITS (shop.docs)")
    connection.execute(f"ALTER {thing} OWNER TO mallory".encode())
    mallory.execute(trap.encode())
    for write in WRITES:
        mallory.execute(write.format("shop.docs").encode())
    for session in (keeper, connection, mallory):
        for name, search in SEARCHES.items():
            if name in SELECTS:
                assert_like_a_select(session, lambda s=session, q=search: s.execute(q.encode()))
                continue
            with pytest.raises(psycopg.Error) as refused:
                session.execute(search.encode())
            if name == "filtered" and tenant:
                assert "the search names none" in str(refused.value)
                continue
            assert_refused(refused.value)
    for handle in (index, of_superuser):
        for name, act in OF_A_HANDLE.items():
            if name in SELECTS:
                assert_like_a_select(handle.connection, lambda h=handle, a=act: a(h))
                continue
            with pytest.raises(HashIndexError) as refused:
                act(handle)
            # A superuser is refused the schema of another role first, whoever opened the handle.
            assert_refused(
                refused.value, "(mallory|keeper)" if handle is of_superuser else "mallory"
            )
    found = [f for f in operations.check(index).findings if f.check == "rights"]
    assert "belongs to role mallory" in found[0].detail
    mallory.execute(undo.encode())
    connection.execute(f"ALTER {thing} OWNER TO keeper".encode())
    if change == "child":
        keeper.execute("DROP TABLE shop.low")
    exact = "SELECT id FROM shop.docs WHERE embedding IS NOT NULL ORDER BY embedding {} {}, id"
    exact = exact.format({"l2": "<->", "cosine": "<=>"}[index.metric], QUERY)
    every = SEARCHES["search"]
    if tenant is not None:
        every = f"SELECT id::int FROM hashindex.search('docs', {QUERY}, 40, all_tenants => true)"
    for _ in range(2):
        found = [row[0] for row in keeper.execute(every.encode())]
        assert found == [row[0] for row in keeper.execute(exact.encode())][:40]
        index.encode()
    assert_fresh(index)


CAST = (
    "CREATE TYPE mallory.number AS (n bigint); "
    "CREATE FUNCTION mallory.told(mallory.number) RETURNS bigint LANGUAGE sql AS "
    "$$ SELECT mallory.springs(1)::integer::bigint $$; "
    "CREATE CAST (mallory.number AS bigint) WITH FUNCTION mallory.told AS ASSIGNMENT; "
)


@pytest.mark.parametrize("kept", ["renamed", "table"])
def test_a_table_that_was_renamed(connection, keeper, mallory, kept):
    """Its triggers stay: they convert no value of another type, and read no table of the name."""
    make_docs(keeper)
    indexed(keeper, "docs", table="shop.docs")
    keeper.execute("ALTER TABLE shop.docs RENAME TO low")
    keeper.execute(f"GRANT {_WRITING} ON shop.low TO PUBLIC".encode())
    if kept == "renamed":
        connection.execute("ALTER TABLE shop.low OWNER TO mallory")
        mallory.execute(
            f"{CAST} ALTER TABLE shop.low DROP CONSTRAINT docs_pkey; "
            "ALTER TABLE shop.low ALTER id TYPE mallory.number "
            "USING ROW(id)::mallory.number".encode()
        )
        new = "ROW(90)"
    else:
        mallory.execute(
            "CREATE TABLE shop.docs (id bigint PRIMARY KEY, mood mood, embedding vector(8)); "
            f"GRANT ALL ON shop.docs TO PUBLIC; {_TRAP.format('shop.docs')}".encode()
        )
        new = "90"
    for session in (mallory, keeper):
        if kept == "table" or session is mallory:
            session.execute(f"INSERT INTO shop.low VALUES ({new}, 'sad', NULL)".encode())
            session.execute("DELETE FROM shop.low; TRUNCATE shop.low")


def test_a_vector_column_of_another_type(connection, keeper, mallory):
    """The trigger converts nothing."""
    make_docs(keeper)
    index = indexed(keeper, "docs", table="shop.docs")
    connection.execute("ALTER TABLE shop.docs OWNER TO mallory")
    mallory.execute(
        "CREATE TYPE mallory.v AS (n integer); "
        "CREATE FUNCTION mallory.told(mallory.v) RETURNS public.vector LANGUAGE sql AS "
        "$$ SELECT mallory.springs(1)::text::public.vector $$; "
        "CREATE CAST (mallory.v AS public.vector) WITH FUNCTION mallory.told AS IMPLICIT; "
        "ALTER TABLE shop.docs DROP embedding CASCADE, ADD embedding mallory.v"
    )
    mallory.execute("INSERT INTO shop.docs VALUES (90, 'sad', ROW(1)), (91, 'sad', NULL)")
    mallory.execute("UPDATE shop.docs SET embedding = ROW(2)")
    assert index.name == "docs"


def test_the_table_of_a_vector_store(connection, keeper, mallory):
    """The stores of LangChain and LlamaIndex find it once, and use it for as long as they live."""
    DocumentTable.create(keeper, "shop", "docs", 8)
    store = DocumentTable.find(keeper, "shop", "docs")
    entry = Entry("a", "text", {}, [1.0] * 8)
    store.write(keeper, [entry])
    connection.execute("ALTER TABLE shop.docs OWNER TO mallory")
    mallory.execute(
        "CREATE INDEX ON shop.docs (id) WHERE mallory.springs(1); GRANT ALL ON shop.docs TO PUBLIC"
    )
    for use in (
        lambda: store.write(keeper, [entry]),
        lambda: store.read(keeper, ["a"]),
        lambda: store.delete(keeper, ["a"]),
        lambda: store.matching(keeper, None),
        lambda: store.nearest(keeper, "l2", store.query([1.0] * 8), 1, None),
        lambda: store.by_words(keeper, "text", 1, None, None),
    ):
        with pytest.raises(HashIndexError) as refused:
            use()
        assert_refused(refused.value)


def test_a_snapshot_that_is_older_than_the_change(connection, keeper, mallory, as_role):
    """It shows the former owner, and statements are planned for the new one."""
    make_docs(keeper)
    indexed(keeper, "docs", table="shop.docs")
    with pytest.raises(psycopg.errors.SerializationFailure), mallory.transaction():
        mallory.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class")
        connection.execute("ALTER TABLE shop.docs OWNER TO mallory")
        as_role("mallory").execute(_TRAP.format("shop.docs").encode())
        mallory.execute(WRITES[0].format("shop.docs").encode())


def test_default_privileges_reach_no_table_of_an_index(connection, keeper, mallory):
    keeper.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO mallory, PUBLIC")
    make_docs(keeper)
    keeper.execute("REVOKE ALL ON shop.docs FROM PUBLIC, mallory")
    indexed(keeper, "docs", table="shop.docs", access="lists")
    with keeper.transaction():
        keeper.execute("LOCK TABLE shop.docs IN SHARE ROW EXCLUSIVE MODE")
        keeper.execute("SELECT hashindex._begin_lists(hashindex._begin_rebalance('docs'))")
    made = "SELECT relname FROM pg_class WHERE relname ~ '^set_[0-9]' AND relkind = 'r'"
    # Codes and landmarks of the set in use; those, the log, staged codes and ranges of the other.
    assert len(keeper.execute(made).fetchall()) == 7
    readable = f"{made} AND has_any_column_privilege('mallory', oid, 'SELECT')"
    assert keeper.execute(readable).fetchall() == []
