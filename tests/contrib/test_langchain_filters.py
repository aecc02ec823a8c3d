"""Filters of the vector store: which documents they keep, and that they are only ever values."""

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.databases import run_as_admin
from langchain_core.embeddings import DeterministicFakeEmbedding
from sqlalchemy.dialects.postgresql import JSONB

from pg_hashindex import connect
from pg_hashindex.contrib.documents.filters import expression_of
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest

DIMENSION = 8
VECTORS = np.random.default_rng(5).standard_normal((200, DIMENSION)).astype(np.float32)
QUERY = VECTORS[0] + np.float32(0.2)

#: Metadata of the first documents; those from 9 on have {"n": their number}.
METADATA = [
    {"section": "games", "year": 2019, "tags": ["a", "b"]},
    {"section": "games", "year": 2020.5, "tags": ["b"]},
    {"section": "python", "year": 2021, "draft": True},
    {"section": "python", "year": "2021", "draft": False},
    {"section": None, "year": None},
    {"section": ["games"], "author": {"name": "x", "age": 3}},
    {"section": "100%", "author": {"name": "x"}},
    {"a.b": 1, "it's": 'a "quote"', "x $1 %s {0} :x": "y", "draft": 1},
    {},
]
#: A filter, and the numbers of the documents below 9 that it keeps, or of all with "n" instead.
KEPT = [
    ({"section": "games"}, [0, 1]),
    ({"section": {"$eq": "python"}, "draft": True}, [2]),
    ({"year": 2021}, [2]),
    ({"year": 2021.0}, [2]),
    ({"year": "2021"}, [3]),
    ({"draft": 1}, [7]),
    ({"section": ["games"]}, [5]),
    ({"author": {"name": "x"}}, [6]),
    ({"section": {"$in": ["python", "100%", None]}, "year": {"$exists": True}}, [2, 3, 4]),
    ({"section": {"$in": []}}, []),
    ({"year": {"$gt": 2019, "$lte": 2021}}, [1, 2]),
    ({"year": {"$gte": 2019, "$lt": 2020.5}}, [0]),
    ({"year": {"$gte": "2000"}}, [3]),
    ({"tags": {"$contains": "b"}}, [0, 1]),
    ({"tags": {"$contains": "a"}}, [0]),
    ({"$or": [{"tags": {"$contains": "a"}}, {"draft": {"$eq": False}}]}, [0, 3]),
    ({"$and": [{"section": "games"}, {"$not": {"year": 2019}}]}, [1]),
    ({"a.b": 1}, [7]),
    ({"it's": 'a "quote"'}, [7]),
    ({"x $1 %s {0} :x": {"$in": ["y", "z"]}}, [7]),
    ({"section": {"$ne": "games"}, "n": {"$exists": False}}, [2, 3, 4, 5, 6, 7, 8]),
    ({"draft": {"$nin": [True, False]}, "n": None}, [0, 1, 4, 5, 6, 7, 8]),
    ({"section": "'; DROP TABLE indexed; --"}, []),
    ({"n": {"$gte": 198}}, [198, 199]),
    ({}, list(range(200))),
]


@pytest.fixture(scope="module", params=["plain", "indexed", "function"])
def filtered(request, server, schema_template):
    """200 documents, without an index and with one."""
    run_as_admin(server, f"CREATE DATABASE langchain_filters TEMPLATE {schema_template}")
    url = server.uri("langchain_filters")
    HashIndexVectorStore.create_table(url, DIMENSION, table=request.param)
    embeddings = DeterministicFakeEmbedding(size=DIMENSION)
    made = HashIndexVectorStore(embeddings, url, table=request.param, metric="l2")
    made.add_embeddings(
        [f"text {number}" for number in range(200)],
        VECTORS,
        [*METADATA, *({"n": number} for number in range(len(METADATA), 200))],
        ids=list(map(str, range(200))),
    )
    if request.param != "plain":
        access = "scan" if request.param == "indexed" else "hnsw"
        made.train_index(access=access, method="lsh", n_bits=16, force=True)
        with connect(url) as connection:
            for change in (
                "ADD rating int",
                "ADD part text GENERATED ALWAYS AS (metadata ->> 'section') STORED",
                "ADD its text GENERATED ALWAYS AS (metadata ->> 'it''s') STORED",
                "ADD year text GENERATED ALWAYS AS (metadata ->> 'year') STORED",
                "ADD n bigint GENERATED ALWAYS AS ((metadata ->> 'n')::bigint) STORED",
            ):
                connection.execute(f"ALTER TABLE {request.param} {change}")
            connection.execute(f"UPDATE {request.param} SET rating = id::int % 7; ANALYZE")
        # With columns that are generated from keys.
        made.close()
        made = HashIndexVectorStore(embeddings, url, table=request.param, metric="l2")
        assert [key for _, _, key in made._documents.table.keys] == ["section", "it's", "year", "n"]
    yield made
    made.close()
    run_as_admin(server, "DROP DATABASE langchain_filters WITH (FORCE)")


def nearest_of(kept, k):
    distances = np.linalg.norm(VECTORS[kept] - QUERY, axis=1)
    order = np.argsort(distances, kind="stable")[:k]
    return [(str(kept[place]), pytest.approx(float(distances[place]))) for place in order]


def found(made, k, **options):
    hits = made.similarity_search_with_score_by_vector(QUERY, k, **options)
    return [(document.id, distance) for document, distance in hits]


@pytest.mark.parametrize(("given", "kept"), KEPT, ids=[str(given) for given, _ in KEPT])
def test_filtered_documents(filtered, given, kept):
    """As many answers as match, up to k: the filter goes in before candidates are counted."""
    for k in (3, 200):
        # All candidates: what is compared is the filter, not the codes.
        assert found(filtered, k, filter=given, candidates=200) == nearest_of(kept, k)


def test_a_filter_restricts_the_candidates(filtered):
    """Hardly any of the four nearest rows by code matches."""
    hits = found(filtered, 4, filter={"n": {"$gte": 196}}, candidates=4)
    assert sorted(hits) == sorted(nearest_of([196, 197, 198, 199], 4))


def test_an_expression_of_sqlalchemy(filtered):
    """On columns of the user's own beside ours, too."""
    name = filtered._documents.table.name
    rows = sa.Table(name, sa.MetaData(), sa.Column("id", sa.Text), sa.Column("rating", sa.Integer))
    condition = rows.c.id.in_(["3", "4", "9"])
    assert found(filtered, 5, filter=condition) == nearest_of([3, 4, 9], 5)
    if name != "plain":
        hits = found(filtered, 200, filter=rows.c.rating == 3, candidates=200)
        assert hits == nearest_of(list(range(3, 200, 7)), 200)
    other = sa.Table("others", sa.MetaData(), sa.Column("id", sa.Text))
    with pytest.raises(InvalidInputError, match=f'only columns of "public"."{name}"'):
        found(filtered, 5, filter=other.c.id == "3")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"section": {"$regex": "a"}}, "'\\$regex' of 'section' is unknown; there are \\$eq"),
        ({"year": {"$gte": 1, "other": 2}}, "'other' of 'year' is unknown"),
        ({"$nor": [{"a": 1}]}, "\\$nor is unknown; filters are combined by \\$and, \\$or, \\$not"),
        ({"$gte": 3}, "operators stand behind a key"),
        ({"$and": {"a": 1}}, "\\$and takes a list of filters"),
        ({"$or": []}, "\\$or takes a list of filters"),
        ({"$not": [{"a": 1}]}, "\\$not takes a filter"),
        ({"a": {"$in": "text"}}, "\\$in takes a list of values, got 'text' for 'a'"),
        ({"a": {"$gt": None}}, "\\$gt takes a number or text"),
        ({"a": {"$lt": True}}, "\\$lt takes a number or text"),
        ({"a": {"$exists": 1}}, "\\$exists takes True or False"),
        ({"a": float("nan")}, "has for 'a' cannot be stored as JSON"),
        ({"a": {1, 2}}, "type set is not JSON serializable"),
        ({1: "a"}, "the filter names 1"),
        ({"a": {"$in": ["b", "\0"]}}, "has for 'a' has the character NUL"),
        ({"a\0": 1}, "of the filter has the character NUL"),
        ({"a": {"$gt": "\ud800"}}, "has for 'a' has half of a surrogate pair"),
        (len, "a filter is a dictionary or an SQLAlchemy expression"),
        ("section = 'games'", "a filter is a dictionary or an SQLAlchemy expression"),
    ],
    ids=str,
)
@pytest.mark.parametrize("filtered", ["plain"], indirect=True)
def test_invalid_filters(filtered, given, message):
    with pytest.raises(InvalidInputError, match=message):
        found(filtered, 3, filter=given)


def test_a_filter_without_a_bottom(filtered):
    given = {"n": 198}
    for _ in range(50):
        given = {"$not": given}
    assert found(filtered, 200, filter=given, candidates=200) == nearest_of([198], 200)
    for _ in range(5000):
        given = {"$not": given}
    with pytest.raises(InvalidInputError, match="the filter is nested too deeply"):
        found(filtered, 3, filter=given)


def test_unknown_options_are_refused(filtered):
    for option in ({"filters": {"section": "games"}}, {"where": {}}, {"score_threshold": 0.5}):
        with pytest.raises(InvalidInputError, match="known are filter, candidates"):
            filtered.similarity_search("text", k=3, **option)


def test_true_is_no_value_of_a_column_of_integers():
    """Filters of LlamaIndex ask for 1 and true, and stay searches within one tenant."""
    number = sa.Column("n", sa.BigInteger(), info={"key": "n"})
    metadata = sa.Table(
        "documents", sa.MetaData(), sa.Column("metadata", JSONB()), number
    ).c.metadata
    asked = expression_of({"n": {"$in": [1, True]}}, metadata)
    assert str(asked) == str(expression_of({"n": {"$in": [1]}}, metadata))
