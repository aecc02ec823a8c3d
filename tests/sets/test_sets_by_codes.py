"""Rows within a Hamming radius by a name, beside brute force; what else looks rows up by codes."""

import json

import numpy as np
import psycopg
import pytest
from fixtures.indexes import begin_lists
from test_sets import ROWS, create, docs  # noqa: F401 (a fixture)

from pg_hashindex import HashIndex
from pg_hashindex.errors import DatabaseStateError, HashIndexError, InvalidInputError

pytestmark = pytest.mark.newest

SETS = {
    "stored": {"store": True},
    "stored, ivfflat": {"store": True, "access": "ivfflat"},
    "column": {"code_column": "code"},
    "lists": {"access": "lists"},
}


@pytest.fixture
def codes(connection, docs):  # noqa: F811
    """Bits (n, 96) of the rows by model m, which column code of table docs holds, too."""
    connection.execute("SELECT hashindex.train('m', 'docs', 'embedding', cuts => 3)")
    connection.execute("SELECT hashindex.create_functions('m')")
    connection.execute(
        "ALTER TABLE docs ADD code bit(96) GENERATED ALWAYS AS (hashindex.code_m(embedding)) STORED"
    )
    rows = connection.execute("SELECT code::text FROM docs ORDER BY id").fetchall()
    return np.array([[bit == "1" for bit in code] for (code,) in rows])


def made(connection, url, kept, **options):
    options = {"model": "m", **SETS[kept], **options}
    if kept == "lists":
        columns = {"table": "docs", "column": "embedding"}
        options.pop("access")
        begin_lists(connection, "docs", access="lists", **columns, **options).encode()
    else:
        create(connection, **options)
    return HashIndex.open(connection, "docs")


def brute(codes, query, radius, keep=None):
    """Return the keys within a radius and their distances, in order."""
    distances = (codes != codes[query]).sum(axis=1)
    found = [
        (int(distance), row + 1)
        for row, distance in enumerate(distances)
        if distance <= radius and (keep is None or keep[row])
    ]
    return [(row, distance) for distance, row in sorted(found)]


@pytest.mark.parametrize("kept", SETS)
def test_within(connection, url, docs, codes, kept):  # noqa: F811
    index = made(connection, url, kept)
    for query in (0, 17):
        for radius in (0, 5, 20, 96):
            wanted = brute(codes, query, radius)
            assert len(wanted) == ROWS or radius < 96
            found = connection.execute(
                "SELECT id::bigint, distance FROM hashindex.within('docs', %s::vector, %s)",
                [str(docs[query].tolist()), radius],
            ).fetchall()
            assert found == wanted
            assert index.within(docs[query], radius) == wanted
            assert index.within_like(query + 1, radius) == [x for x in wanted if x[0] != query + 1]
    connection.execute("UPDATE docs SET embedding = NULL WHERE id = 1")
    assert 1 not in [hit.id for hit in index.within(docs[0], 96)]
    for radius in (-1, 97):
        with pytest.raises(InvalidInputError, match=f"radius is {radius}; it must be 0 to 96"):
            index.within(docs[0], radius)
    for query, radius, message in (
        ("NULL::vector", "3", "query vector is NULL"),
        ("'[1]'::vector", "3", "the vector has 1 dimensions, the model takes 32"),
        ("array_fill(0.1, ARRAY[32])::vector", "NULL", "radius is NULL; it must be 0 to 96"),
        ("array_fill(0.1, ARRAY[32])::vector", "97", "radius is 97; it must be 0 to 96"),
        ("array_fill(0.1, ARRAY[32])::vector", "3, tenant => '4'", "has no tenants"),
    ):
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(f"SELECT hashindex.within('docs', {query}, {radius})".encode())


@pytest.mark.parametrize("kept", SETS)
def test_within_a_tenant_and_under_policies(connection, url, docs, codes, as_role, kept):  # noqa: F811
    index = made(connection, url, kept, tenant="account")
    own = np.arange(1, ROWS + 1) % 50 == 7
    wanted = brute(codes, 6, 40, own)
    assert len(wanted) > 1
    assert index.within(docs[6], 40, tenant=7) == wanted
    assert index.within(docs[6], 40, tenant=70) == []
    with pytest.raises(HashIndexError, match="has tenants, and the search names none"):
        index.within(docs[6], 40)
    if kept == "lists":
        return
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON docs TO reader")
    connection.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY own ON docs USING (account = 7)")
    assert HashIndex.open(reader, "docs").within(docs[6], 40) == wanted
    # Candidates are searched within tenants, too.
    query = [str(docs[6].tolist())]
    candidates = "SELECT id::bigint FROM hashindex.candidates('docs', %s::vector, 60{})"
    with pytest.raises(psycopg.Error, match="has tenants, and the search names none"):
        connection.execute(candidates.format("").encode(), query)
    found = connection.execute(
        candidates.format(", all_tenants => true, filter => 'account = 7'").encode(), query
    ).fetchall()
    assert {n for (n,) in found} == set(np.flatnonzero(own) + 1)
    assert set(
        reader.execute(candidates.format(", all_tenants => true").encode(), query).fetchall()
    ) == set(found)


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({"model": "m"}, "pg-hashindex index swap docs --store"),
        ({"model": "none"}, "pg-hashindex index swap docs --model MODEL --store"),
    ],
)
def test_codes_that_are_not_stored(connection, docs, codes, on, options, command):  # noqa: F811
    """Both refusals name a command that serves them."""
    create(connection, **options)
    index = HashIndex.open(connection, "docs")
    with pytest.raises(DatabaseStateError, match=f"codes that are stored.*{command}"):
        index.within(docs[0], 10)
    refused = on("search", "docs", "--radius", "10", "--query", str(docs[0].tolist()), code=3)
    assert command in " ".join(refused.stderr.split())
    arguments = command.replace("MODEL", "m").split()[1:]
    on(*arguments, "--force")
    assert index.within(docs[0], 10) == brute(codes, 0, 10)
    found = on("search", "docs", "--radius", "10", "--like", "1", "--json").stdout
    assert [(hit["id"], hit["distance"]) for hit in json.loads(found)] == brute(codes, 0, 10)[1:]


@pytest.mark.parametrize("model", ["m:1", "none"])
def test_near_duplicates_name_the_command_that_serves_them(connection, docs, codes, on, model):  # noqa: F811
    create(connection, model=model)
    refused = on("dedup", "docs", "--max-distance", "0.01", "--into", "pairs", code=3).stderr
    said = " ".join(refused.split())
    held = "vectors as halfvec" if model == "none" else f"codes of {model}"
    assert f"searches {held} in hnsw, and near-duplicates are found by lists with landmarks" in said
    command = said[said.index("pg-hashindex index swap") :].rstrip("'.)")
    more = " --model MODEL" if model == "none" else ""
    assert command == f"pg-hashindex index swap docs --access lists{more}"
    on(*command.replace("MODEL", "m").split()[1:])
    on("dedup", "docs", "--max-distance", "0.01", "--into", "pairs")


def test_words_within_a_tenant_that_no_index_has(connection, docs):  # noqa: F811
    create(connection, model="none")
    connection.execute("ALTER TABLE docs ADD words text DEFAULT 'a word'")
    with pytest.raises(psycopg.Error, match="has no tenants"):
        connection.execute(
            "SELECT hashindex.hybrid('docs', %s::vector, 'word', 'words', tenant => '7')",
            [str(docs[0].tolist())],
        )
