"""An index keeps codes of one plain table: others are refused, and a table that becomes one of
them is searched exactly, since what is written through another table fires none of its triggers.
"""

import re

import psycopg
import pytest
from fixtures.catalog import contents
from fixtures.checks import assert_fresh
from fixtures.health import findings
from fixtures.indexes import create_index, indexed
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.errors import HashIndexError, InvalidInputError
from pg_hashindex.index.handle import HashIndex

DOCS = "(id bigint PRIMARY KEY, embedding vector(8))"
#: How docs is related to other tables, and the refusal.
RELATED = {
    "partitioned": (
        f"CREATE TABLE docs {DOCS} PARTITION BY HASH (id)",
        "public.docs is a partitioned table",
    ),
    "partition": (
        f"CREATE TABLE parts {DOCS} PARTITION BY RANGE (id);"
        "CREATE TABLE docs PARTITION OF parts DEFAULT",
        "public.docs is a partition of public.parts",
    ),
    "partitioned partition": (
        f"CREATE TABLE parts {DOCS} PARTITION BY RANGE (id);"
        "CREATE TABLE docs PARTITION OF parts DEFAULT PARTITION BY RANGE (id)",
        "public.docs is a partitioned table",
    ),
    "child": (
        f"CREATE TABLE parent {DOCS}; CREATE TABLE docs (PRIMARY KEY (id)) INHERITS (parent)",
        "public.docs inherits from another table",
    ),
    "parent": (
        f"CREATE TABLE docs {DOCS}; CREATE TABLE child () INHERITS (docs)",
        "public.docs has tables that inherit from it",
    ),
}
ADVICE = "pg-hashindex quickstart public.docs embedding --access hnsw"


@pytest.mark.parametrize("kind", RELATED)
def test_a_table_that_is_not_plain_is_refused(connection, model, kind):
    made, said = RELATED[kind]
    connection.execute(made.encode())
    before = contents(connection)
    for options in ({}, {"access": "lists"}, {"metric": "cosine", "candidates": 7}):
        with pytest.raises(InvalidInputError, match=f"{said}, .*{re.escape(ADVICE)}"):
            create_index(connection, "i", table="docs", **options)
    with pytest.raises(psycopg.errors.WrongObjectType, match=said) as refused:
        connection.execute(
            "SELECT hashindex.create_index('i', 'docs', 'embedding', 'lsh', access => 'scan')"
        )
    assert refused.value.diag.message_hint.endswith(ADVICE)
    assert contents(connection) == before


def test_the_command_says_so_in_one_line(on, connection, model):
    connection.execute(RELATED["partitioned"][0].encode())
    arguments = ("--table", "docs", "--column", "embedding", "--model", "lsh")
    said = on("index", "create", "i", "--access", "scan", *arguments, code=3).output
    assert said.partition("Error: ")[2].count("\n") == 1
    assert said.strip().endswith(ADVICE)


#: Statements that make docs another table's part or parent, a write that none of its triggers
#: sees, what check says, and the undoing.
BECOMES = {
    "attached": (
        f"CREATE TABLE parts {DOCS} PARTITION BY RANGE (id);"
        "ALTER TABLE parts ATTACH PARTITION docs DEFAULT",
        "parts",
        "is a partition of public.parts",
        "ALTER TABLE parts DETACH PARTITION docs",
    ),
    "attached at a lower level": (
        f"CREATE TABLE parts {DOCS} PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF parts DEFAULT PARTITION BY RANGE (id);"
        "ALTER TABLE low ATTACH PARTITION docs DEFAULT",
        "parts",
        "is a partition of public.low",
        "ALTER TABLE parts DETACH PARTITION low; ALTER TABLE low DETACH PARTITION docs",
    ),
    "inherits": (
        f"CREATE TABLE parent {DOCS}; ALTER TABLE docs INHERIT parent",
        "parent",
        "inherits from another table",
        "ALTER TABLE docs NO INHERIT parent",
    ),
    "is inherited from": (
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (docs);"
        "INSERT INTO child SELECT id + 1000, embedding FROM docs WHERE id % 3 = 0",
        "child",
        "has tables that inherit from it",
        "DROP TABLE child",
    ),
}


@pytest.fixture
def docs(connection, model, vectors):
    connection.execute(f"CREATE TABLE docs {DOCS}".encode())
    connection.cursor().executemany(
        "INSERT INTO docs VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(vectors)]
    )


def assert_exact(index, vectors):
    """The best candidate by codes alone would not do."""
    for vector in (*vectors[:5], *-vectors[:5]):
        exact = "SELECT id FROM docs ORDER BY embedding <-> %s, id LIMIT 5"
        wanted = [key for (key,) in index.connection.execute(exact, [Vector(vector)])]
        assert [hit.id for hit in index.search(vector, 5, candidates=5)] == wanted
        found = index.connection.execute(
            "SELECT id FROM hashindex.search('i', %s, 5, 5, filter => 'id >= 0')", [Vector(vector)]
        )
        assert [int(key) for (key,) in found] == wanted


@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan", "lists"])
@pytest.mark.parametrize("how", BECOMES)
def test_a_table_that_is_not_plain_any_more(connection, docs, vectors, how, access):
    made, written, said, undone = BECOMES[how]
    index = indexed(connection, "i", table="docs", access=access)
    connection.execute(made.encode())
    connection.execute(
        f"UPDATE {written} SET embedding = subvector(embedding || embedding, 4, 8) "
        "WHERE id % 2 = 1".encode()
    )
    connection.execute(f"INSERT INTO {written} VALUES (5000, %s)".encode(), [Vector(-vectors[3])])
    assert_exact(index, vectors)
    other = "scan" if access == "lists" else "lists"
    found = findings(index)["table"]
    assert found.status == "broken"
    assert f"public.docs {said}, so that writes go unseen and searches are exact" in found.detail
    for act in (
        lambda: index.within(vectors[0], 3),
        lambda: index.encode(),
        lambda: operations.repair(index),
        lambda: index.swap(model="lsh", force=True, access=other),
    ):
        with pytest.raises(HashIndexError, match=said):
            act()
    assert_exact(index, vectors)
    connection.execute(undone.encode())
    operations.repair(index, full=True)
    assert_fresh(HashIndex.open(connection, "i"))
    assert findings(HashIndex.open(connection, "i"))["table"].status == "ok"
    assert operations.repair(index, full=True).done == ()


def test_codes_are_of_a_table_s_own_rows(connection, docs):
    """While another table inherits from it, with rows of the same keys."""
    index = indexed(connection, "i", table="docs")
    connection.execute("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (docs)")
    connection.execute("INSERT INTO child SELECT id, embedding FROM docs WHERE id % 3 = 0")
    connection.execute("UPDATE child SET embedding = subvector(embedding || embedding, 4, 8)")
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        with connection.transaction():
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            # Rows of both tables.
            connection.execute("UPDATE docs SET embedding = embedding + embedding WHERE id < 50")
            connection.execute("UPDATE docs SET id = id + 2000 WHERE id BETWEEN 60 AND 70")
            connection.execute("DELETE FROM ONLY docs WHERE id BETWEEN 80 AND 90")
    connection.execute("DROP TABLE child")
    assert_fresh(index)
    assert findings(index)["table"].status == "ok"
