"""Tables, columns and names that a set of pgvector cannot have; what happens under one."""

import psycopg
import pytest
from test_sets import create, docs, exact, search  # noqa: F401 (a fixture)

from pg_hashindex import operations, store
from pg_hashindex.errors import DuplicateNameError, UnknownIndexError, UnknownModelError
from pg_hashindex.index.handle import HashIndex


def troubles(connection):
    rows = connection.execute(
        "SELECT check_name, detail, advice FROM hashindex.health('docs', true) WHERE status <> 'ok'"
    ).fetchall()
    return {name: f"{detail}: {advice}" for name, detail, advice in rows}


@pytest.mark.parametrize(
    ("made", "table", "message"),
    [
        (
            "CREATE FUNCTION hashindex.search_docs(integer) RETURNS integer RETURN 1",
            "docs",
            "function hashindex.search_docs exists.*drop the function",
        ),
        (
            "CREATE TABLE bare AS SELECT * FROM docs",
            "bare",
            "bare has no.*key",
        ),
        ("CREATE VIEW seen AS SELECT * FROM docs", "seen", "seen is not a table.*table behind it"),
        (
            "CREATE MATERIALIZED VIEW seen AS SELECT * FROM docs",
            "seen",
            "seen is not a table.*table behind it",
        ),
        (
            "CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER other FOREIGN DATA WRAPPER"
            " elsewhere; CREATE FOREIGN TABLE away (id bigint, embedding vector(32)) SERVER other",
            "away",
            "away is not a table",
        ),
    ],
    ids=["function", "key", "view", "materialized view", "foreign table"],
)
def test_refused_tables(connection, docs, made, table, message):  # noqa: F811
    for statement in made.split("; "):
        connection.execute(statement.encode())
    with pytest.raises(psycopg.Error, match=f"(?s){message}"):
        create(connection, table=table, model="none")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sparsevec(3)", "{1:1,3:2}/3"),
        ("real[]", "{1,0,2}"),
        ("double precision[]", "{1,0,2}"),
        ("numeric[]", "{1,0,2}"),
        ("jsonb", "[1,0,2]"),
        ("json", "[1,0,2]"),
        ("text", "[1,0,2]"),
        ("bit(3)", "101"),
    ],
)
def test_other_types_are_named_with_the_cast(connection, kind, value):
    connection.execute(f"CREATE TABLE docs (id bigint PRIMARY KEY, embedding {kind})".encode())
    connection.execute("INSERT INTO docs VALUES (1, %s)", [value])
    with pytest.raises(psycopg.Error, match="not vector or halfvec") as raised:
        create(connection)
    hint = raised.value.diag.message_hint
    if kind == "bit(3)":
        assert "code_column" in hint
        return
    connection.execute(hint[hint.index("ALTER") :].replace("(N)", "(3)").encode())
    assert create(connection)[0] == "vectors as halfvec in hnsw"


def test_a_relation_of_the_wanted_name_is_left(connection, docs):  # noqa: F811
    connection.execute("CREATE INDEX docs_hnsw ON docs (account)")
    assert create(connection, model="none")[1] == "docs_hnsw_2"
    connection.execute("SELECT hashindex.drop_index('docs')")
    assert connection.execute("SELECT to_regclass('docs_hnsw')::text").fetchone() == ("docs_hnsw",)


def test_vectors_of_zeros_are_counted(connection, docs):  # noqa: F811
    connection.execute("UPDATE docs SET embedding = array_fill(0, ARRAY[32])::vector WHERE id < 4")
    create(connection, model="none")
    counted = connection.execute(
        "SELECT value FROM hashindex.health('docs', true) WHERE check_name = 'zero_vectors'"
    ).fetchone()
    assert counted == (3,)
    assert len(search(connection, docs[9], 3000)) == 2997


@pytest.mark.parametrize("model", ["none", None])
def test_another_type_under_an_index(connection, docs, model):  # noqa: F811
    create(connection, model=model)
    connection.execute("ALTER TABLE docs ALTER embedding TYPE halfvec(32)")
    for row in (3, 30):
        found = [key for key, _ in search(connection, docs[row], 10)]
        assert len({*found} & {*exact(docs, docs[row], 10)}) >= 8
    operations.repair(HashIndex.open(connection, "docs"))
    assert troubles(connection) == {}
    assert search(connection, docs[3], 1)[0][0] == 4


def test_another_dimension_under_an_index(connection, docs):  # noqa: F811
    create(connection, model="none")
    connection.execute("TRUNCATE docs")
    connection.execute(
        "ALTER TABLE docs ALTER embedding TYPE vector(16) USING subvector(embedding, 1, 16)"
    )
    # The index casts to the former dimension.
    with pytest.raises(psycopg.Error, match="expected 32 dimensions"):
        connection.execute("INSERT INTO docs VALUES (1, 1, array_fill(1, ARRAY[16])::vector)")
    assert "swap docs --column" in troubles(connection)["dimension"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_table_that_is_made_again(connection, docs, stored):  # noqa: F811
    """As LangChain's PGVectorStore does it, and then without the column of codes."""
    create(connection, store=stored)
    connection.execute("DROP TABLE docs")
    assert "is gone" in troubles(connection)["table"]
    connection.execute(
        "CREATE TABLE docs (id bigint PRIMARY KEY, account integer, embedding vector(32))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for row, vector in enumerate(docs, 1):
            copy.write_row([row, row % 50, str(vector.tolist())])
    found = troubles(connection)
    assert "repair docs" in found["table" if stored else "index"]
    operations.repair(HashIndex.open(connection, "docs"))
    assert troubles(connection) == {}
    found = [key for key, _ in search(connection, docs[30], 10)]
    assert len({*found} & {*exact(docs, docs[30], 10)}) >= 8


def test_tenants_of_another_type_under_an_index(connection, docs):  # noqa: F811
    create(connection, tenant="account")
    connection.execute("ALTER TABLE docs ALTER account TYPE text")
    operations.repair(HashIndex.open(connection, "docs"))
    found = search(connection, docs[3], 5, tenant="4")
    assert {key % 50 for key, _ in found} == {4}
    assert len(search(connection, docs[3], 5, all_tenants=True)) == 5


def test_one_process_builds_where_parallel_workers_find_no_memory(connection, docs):  # noqa: F811
    """A column of codes is added to a table that has indexes, which are built again."""
    connection.execute(
        """
        CREATE FUNCTION full_memory(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            IF current_setting('max_parallel_maintenance_workers') <> '0' THEN
                RAISE disk_full USING MESSAGE = 'could not resize shared memory segment';
            END IF;
            RETURN $1;
        END $$;
        SET max_parallel_maintenance_workers = 0;
        CREATE INDEX ON docs (full_memory(account));
        SET max_parallel_maintenance_workers = 2;
        """
    )
    create(connection, store=True)
    assert connection.execute("SHOW max_parallel_maintenance_workers").fetchone() == ("2",)


def test_python_names_a_function_that_has_the_name(connection, docs):  # noqa: F811
    connection.execute("CREATE FUNCTION hashindex.search_new(integer) RETURNS integer RETURN 1")
    with pytest.raises(DuplicateNameError, match="function hashindex.search_new exists"):
        HashIndex.create(connection, "new", table="docs", column="embedding", model="none")


def test_names_of_other_things(connection, docs):  # noqa: F811
    create(connection, "mine", store=False)
    for name, kind in (("mine:1", "model"), ("search_mine", "function"), ("docs", "table")):
        message = f"does not exist.*There is a {kind} of that name"
        with pytest.raises(UnknownIndexError, match=message):
            HashIndex.open(connection, name)
        with pytest.raises(psycopg.Error, match=f"(?s){message}"):
            connection.execute("SELECT hashindex.recall(%s)", [name])
    create(connection, "other", model="none")
    with pytest.raises(UnknownModelError, match="There is an index of that name"):
        store.load(connection, "other")


def test_vectors_have_no_codes_to_store(connection, docs):  # noqa: F811
    with pytest.raises(psycopg.Error, match="store keeps codes, and the set has vectors"):
        create(connection, model="none", store=True)
    create(connection, model="none")
    with pytest.raises(psycopg.Error, match="store keeps codes, and the set has vectors"):
        connection.execute("SELECT hashindex.swap_index('docs', store => true)")
