"""Tables of many shapes: a hundred columns, generated and composite ones, domains."""

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.house import run
from fixtures.indexes import create_index, indexed, with_access
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex, list_indexes

WIDE = "CREATE TABLE docs (id int PRIMARY KEY, {}, v vector(8))".format(
    ", ".join(f"c{n} {'text' if n % 2 else 'int'} DEFAULT {n}" for n in range(100))
)
COMPOSITE = """
    CREATE TYPE place AS (x float8, y float8, names text[]);
    CREATE TABLE docs (
        id int PRIMARY KEY, at place DEFAULT ROW(1, 2, '{a,"b c"}'), many place[], v vector(8)
    )
"""
STORED = """
    CREATE TABLE docs (
        id int PRIMARY KEY, v vector(8), twice int GENERATED ALWAYS AS (id * 2) STORED,
        half halfvec(8) GENERATED ALWAYS AS (v::halfvec(8)) STORED
    )
"""
VIRTUAL = """
    CREATE TABLE docs (
        id int PRIMARY KEY, v vector(8), twice int GENERATED ALWAYS AS (id * 2) VIRTUAL
    )
"""
DOMAIN = """
    CREATE SCHEMA types;
    CREATE DOMAIN types."a key" AS int CHECK (VALUE >= 0);
    CREATE TABLE docs (id types."a key" PRIMARY KEY, v vector(8))
"""
# Columns that went, and one that came, so that numbers of columns have gaps.
DROPPED = """
    CREATE TABLE docs (gone vector(8), id int PRIMARY KEY, too text, v vector(8), three vector(3));
    ALTER TABLE docs DROP gone, DROP too, DROP three, ADD later int DEFAULT 7
"""
TABLES = {
    "wide": WIDE,
    "composite": COMPOSITE,
    "stored": STORED,
    "virtual": VIRTUAL,
    "domain": DOMAIN,
    "dropped": DROPPED,
}


@pytest.fixture
def docs(request, server, connection, vectors):
    """Table docs with 200 rows, by the name of its kind."""
    if request.param == "virtual" and server.version < 18:
        pytest.skip("PostgreSQL 18 is the first with virtual columns")
    connection.execute(TABLES[request.param].encode())
    fill(connection, vectors[:200])
    return str(request.param)


def fill(connection, vectors):
    connection.cursor().executemany(
        "INSERT INTO docs (id, v) VALUES (%s, %s)",
        [(n, Vector(vector)) for n, vector in enumerate(vectors)],
    )


def exact(connection, query):
    rows = connection.execute("SELECT id, v FROM docs WHERE v IS NOT NULL").fetchall()
    far = [(float(np.linalg.norm(v.to_numpy() - query)), key) for key, v in rows]
    return [key for _, key in sorted(far)][:7]


@pytest.mark.parametrize("docs", TABLES, indirect=True)
def test_searches_and_writes(connection, model, vectors, docs):
    index = indexed(connection, "docs_idx", table="docs", column="v")
    for access in ("scan", "lists"):
        with_access(index, access)
        index.encode()
        for query in vectors[250:252]:
            found = index.search(query, 7, candidates=300)
            assert [hit.id for hit in found] == exact(connection, query)
        connection.execute("UPDATE docs SET v = %s WHERE id < 9", [Vector(vectors[220])])
        connection.execute("UPDATE docs SET id = id + 500 WHERE id BETWEEN 90 AND 95")
        connection.execute("UPDATE docs SET id = id - 500 WHERE id BETWEEN 590 AND 595")
        connection.execute("INSERT INTO docs (id, v) VALUES (300, %s)", [Vector(vectors[225])])
        assert_fresh(HashIndex.open(connection, "docs_idx"))
        assert index.search(vectors[225], 1)[0].id == 300
        connection.execute("DELETE FROM docs WHERE id >= 300")
        assert_fresh(HashIndex.open(connection, "docs_idx"))
    if docs in ("stored", "virtual"):
        query = vectors[250]
        where = sa.column("twice") > 300
        keys = [hit.id for hit in index.search(query, 5, where=where, candidates=300)]
        assert len(keys) == 5
        assert min(keys) > 150
    assert operations.repair(index, full=True).done == ()
    index.drop()
    assert list_indexes(connection) == []


def test_they_move_along(server, url, connection, make_database, model, vectors, tmp_path):
    """All of them in one dump, each in a schema of its own."""
    kinds = [kind for kind in TABLES if kind != "virtual" or server.version >= 18]
    for kind in kinds:
        connection.execute(f"CREATE SCHEMA s_{kind}".encode())
        connection.execute(f"SET search_path TO s_{kind}, public".encode())
        connection.execute(TABLES[kind].encode())
        fill(connection, vectors[:60])
        for access in ("lists", "scan"):
            name, table = f"{kind}_{access}", f"s_{kind}.docs"
            indexed(connection, name, table=table, column="v", access=access)
    before = {i.name: i.search(vectors[250], 9) for i in list_indexes(connection)}
    restored = make_database("template0")
    run(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump", url)
    run(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "dump")
    with connect(restored) as moved:
        indexes = list_indexes(moved)
        assert {index.name: index.search(vectors[250], 9) for index in indexes} == before
        for kind in kinds:
            moved.execute(
                f"UPDATE s_{kind}.docs SET v = '[8,7,6,5,4,3,2,1]' WHERE id % 9 = 0".encode()
            )
        for index in indexes:
            assert_fresh(index)
        assert operations.repair(indexes[0], full=True).done == ()


def test_a_generated_column_of_vectors(connection, model):
    connection.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, parts real[], "
        "v vector(8) GENERATED ALWAYS AS (parts::vector(8)) STORED)"
    )
    connection.execute("INSERT INTO docs (id, parts) VALUES (1, '{1,2,3,4,5,6,7,8}')")
    index = create_index(connection, "i", table="docs", column="v")
    assert index.encode() == 1
    connection.execute("INSERT INTO docs (id, parts) VALUES (2, '{-1,2,-3,4,-5,6,-7,8}')")
    connection.execute("UPDATE docs SET parts = '{8,7,6,5,4,3,2,1}' WHERE id = 1")
    assert_fresh(index)
    assert index.search([8, 7, 6, 5, 4, 3, 2, 1], 1)[0].id == 1
    connection.execute("ALTER TABLE docs ALTER v DROP EXPRESSION")
    assert operations.repair(index, full=True).done == ()


@pytest.mark.newest
@pytest.mark.parametrize("key", ["pair", "of_pairs", "int[]"])
def test_a_key_that_is_not_one_value_is_refused(connection, model, key):
    """Triggers take keys apart as arrays, where a composite one would become columns."""
    connection.execute(
        "CREATE TYPE pair AS (a int, b text);CREATE DOMAIN of_pairs AS pair;"
        f"CREATE TABLE docs (id {key} PRIMARY KEY, v vector(8))".encode()
    )
    with pytest.raises(
        InvalidInputError, match='key "id" of public.docs is of type .*(composite|array)'
    ):
        create_index(connection, "i", table="docs", column="v")
