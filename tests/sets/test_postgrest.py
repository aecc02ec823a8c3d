"""The page of hosted PostgreSQL: match_documents as PostgREST calls it, under policies."""

import json

import psycopg
import pytest
from fixtures.databases import run_as_admin
from fixtures.pages import REPOSITORY, blocks_of, statements_of

from pg_hashindex.server.data import load_packages

PAGE = REPOSITORY / "docs" / "hosted.md"
#: As PostgREST writes it for an RPC with a body of JSON.
REQUEST = """
    WITH source AS (
        SELECT called.* FROM (SELECT %s::json AS body) request,
        LATERAL (SELECT * FROM json_to_record(request.body)
            AS _(query_embedding vector, match_count integer, filter jsonb)) arguments,
        LATERAL match_documents(query_embedding := arguments.query_embedding,
            match_count := arguments.match_count, filter := arguments.filter) called
    ) SELECT id, metadata ->> 'section', similarity FROM source"""
ROWS = 2000


@pytest.fixture
def hosted(connection, server):
    """The page's statements, over 2,000 packages."""
    packages = load_packages()
    connection.execute(
        "CREATE TABLE packages (id bigint PRIMARY KEY, section text, description text,"
        " embedding vector(384))"
    )
    copied = "COPY packages FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(copied) as copy:
        for row in range(ROWS):
            vector = str(packages.embedding[row].tolist())
            copy.write_row((row + 1, packages.section[row], packages.text[row], vector))
    for block in blocks_of(PAGE):
        if block.language == "sql" and "BEGIN READ ONLY" not in block.code:
            for statement in statements_of(block.code):
                connection.execute(statement.encode())
    yield connection
    connection.rollback()
    run_as_admin(server, "DROP ROLE IF EXISTS anonymous")


def request(connection, owner, query, count, **body):
    """Return what a request of an owner gets."""
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("SET LOCAL ROLE authenticated")
        claims = json.dumps({"sub": owner})
        connection.execute("SELECT set_config('request.jwt.claims', %s, true)", [claims])
        given = {"query_embedding": query, "match_count": count, "filter": {}, **body}
        return connection.execute(REQUEST.encode(), [json.dumps(given)]).fetchall()


def vector_of(connection, row):
    (text,) = connection.execute(
        "SELECT embedding::text FROM packages WHERE id = %s", [row]
    ).fetchone()
    return json.loads(text)


def test_each_owner_gets_his_nearest_rows(hosted):
    owners = hosted.execute(
        "SELECT owner, count(*) FROM documents GROUP BY owner ORDER BY 2 DESC, 1"
    ).fetchall()
    query = vector_of(hosted, 7)
    for owner, count in (*owners[:3], owners[-1]):
        for k in (1, 10, 100):
            found = request(hosted, owner, query, k)
            assert len(found) == min(k, count)
            assert {section for _, section, _ in found} == {owner}
            true = hosted.execute(
                "SELECT id FROM documents WHERE owner = %s ORDER BY embedding <=> %s::vector, id"
                " LIMIT %s",
                [owner, str(query), k],
            ).fetchall()
            assert len({key for key, *_ in found} & {key for (key,) in true}) >= 0.9 * len(true)
            assert [s for *_, s in found] == sorted((s for *_, s in found), reverse=True)
    assert request(hosted, "a stranger", query, 10) == []


def test_the_filter_is_a_value(hosted):
    query = vector_of(hosted, 7)
    owner = hosted.execute("SELECT owner FROM documents WHERE id = 7").fetchone()[0]
    found = request(hosted, owner, query, 5, filter={"section": owner})
    assert len(found) == 5
    assert found[0][0] == 7
    assert found[0][2] == pytest.approx(1, abs=1e-6)
    for harmless in ({"section": "' OR true --"}, {"section": "\\' OR true --"}, {"no": 1}):
        assert request(hosted, owner, query, 5, filter=harmless) == []


def test_a_role_without_grants_is_refused(hosted, server):
    run_as_admin(server, "CREATE ROLE anonymous NOLOGIN")
    with pytest.raises(psycopg.errors.InsufficientPrivilege), hosted.transaction():
        hosted.execute("SET LOCAL ROLE anonymous")
        hosted.execute("SELECT * FROM match_documents(%s::vector)", [str([0.1] * 384)])
