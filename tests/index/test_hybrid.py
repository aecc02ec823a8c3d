"""Searches by vector and by words at once."""

import psycopg
import pytest

from pg_hashindex import HashIndex
from pg_hashindex.errors import InvalidInputError, UnknownIndexError
from pg_hashindex.index.async_index import AsyncHashIndex

pytestmark = pytest.mark.newest

TEXTS = ["a red fox", "a blue whale", "red wine, red glass", "the fox and the wine", "nothing"]


@pytest.fixture
def index(index, connection):
    """The items, each with one of five texts by its key."""
    connection.execute("ALTER TABLE items ADD text text")
    connection.execute("UPDATE items SET text = (%s::text[])[1 + id %% 5]", [TEXTS])
    return index


def fused(vector, words, weight, k):
    """Return keys and scores by the formula of reciprocal rank fusion."""
    scores = dict.fromkeys([*vector, *words], 0.0)
    for place, key in enumerate(vector, 1):
        scores[key] += weight / (60 + place)
    for place, key in enumerate(words, 1):
        scores[key] += (1 - weight) / (60 + place)
    found = [(key, score) for key, score in scores.items() if score > 0]
    return sorted(found, key=lambda item: -item[1])[:k]


@pytest.mark.parametrize("weight", [0.5, 0.9, 1.0, 0.0])
def test_scores_are_those_of_the_formula(index, connection, vectors, weight):
    near = [hit.id for hit in index.search(vectors[7], 20)]
    worded = connection.execute(
        "SELECT array_agg(id) FROM (SELECT id FROM items "
        "WHERE to_tsvector('english', text) @@ websearch_to_tsquery('english', 'red wine') "
        "ORDER BY ts_rank_cd(to_tsvector('english', text), "
        "websearch_to_tsquery('english', 'red wine'), 1) DESC, id LIMIT 20) w"
    ).fetchone()
    assert len(worded[0]) == 20
    found = index.hybrid(
        vectors[7], "red wine", "text", 15, vector_weight=weight, depth=20, configuration="english"
    )
    expected = fused(near, worded[0], weight, 15)
    assert [hit.score for hit in found] == pytest.approx([score for _, score in expected])
    places = {key: place for place, key in enumerate(worded[0], 1)}
    for hit in found:
        assert hit.word_rank == places.get(hit.id)
        assert (hit.distance is None) == (hit.id not in near)


def test_a_row_that_both_find_is_first(index, vectors):
    # Row 13 has "the fox and the wine" and is nearest to its own vector.
    assert index.hybrid(vectors[12], "wine fox", "text", 3)[0].id == 13


def test_filters_hold_for_both(index, vectors):
    found = index.hybrid(vectors[12], "wine", "text", 50, filter="items.id % 2 = 0 -- even")
    assert len(found) == 50
    assert all(hit.id % 2 == 0 for hit in found)
    assert index.hybrid(vectors[12], "wine", "text", filter="false") == []


def test_a_column_of_tsvector_and_its_index(index, connection, vectors):
    expected = index.hybrid(vectors[3], "whale", "text", configuration="english")
    connection.execute(
        "ALTER TABLE items ADD terms tsvector "
        "GENERATED ALWAYS AS (to_tsvector('english', text)) STORED"
    )
    connection.execute("CREATE INDEX ON items USING gin (terms)")
    assert index.hybrid(vectors[3], "whale", "terms", configuration="english") == expected


def test_the_gin_index_of_the_expression_is_used(index, connection, vectors):
    connection.execute("CREATE INDEX items_words ON items USING gin (to_tsvector('english', text))")
    connection.execute("SET enable_seqscan = off")
    index.hybrid(vectors[3], "whale", "text", configuration="english")
    connection.execute("SELECT pg_stat_force_next_flush()")
    used = connection.execute(
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'items_words'"
    )
    assert used.fetchone() == (1,)


@pytest.mark.parametrize("words", ["", "the and", None])
def test_without_words_that_count_only_vectors_are_searched(index, vectors, words):
    found = index.hybrid(vectors[3], words, "text", 5, configuration="english")
    assert [hit[:1] for hit in found] == [hit[:1] for hit in index.search(vectors[3], 5)]


def test_rows_without_a_vector_are_found_by_words(index, connection, vectors):
    connection.execute("INSERT INTO items (id, text) VALUES (9001, 'an axolotl')")
    found = index.hybrid(vectors[3], "axolotl", "text", 20)
    assert found[0].id == 9001 or found[1].id == 9001
    assert next(hit for hit in found if hit.id == 9001).distance is None


def test_in_sql(index, connection, vectors):
    rows = connection.execute(
        "SELECT id::int, score, distance, word_rank FROM hashindex.hybrid('items_idx', "
        "(SELECT embedding FROM items WHERE id = 4), 'fox', text_column => 'text', k => 10)"
    ).fetchall()
    assert rows == index.hybrid(vectors[3], "fox", "text")


async def test_with_asyncio(index, url, vectors):
    expected = index.hybrid(vectors[3], "fox", "text", 4)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        opened = await AsyncHashIndex.open(connection, index.name)
        assert await opened.hybrid(vectors[3], "fox", "text", 4) == expected


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"text_column": "txt"}, 'has no column "txt" to search for words'),
        ({"text_column": None}, 'has no column "NULL"'),
        ({"words": 5}, "words must be text, got 5"),
        ({"filter": 5}, "filter must be text, got 5"),
        ({"text_column": "embedding"}, 'column "embedding" of public.items is of type'),
        ({"vector_weight": "much"}, "vector_weight must be a number, got 'much'"),
        ({"vector_weight": 1.5}, "vector_weight is 1.5; it must be 0 to 1"),
        ({"vector_weight": float("nan")}, "vector_weight is NaN; it must be 0 to 1"),
        ({"k": 0}, "k is 0; it must be 1 or more"),
        ({"depth": 3}, "depth is 3; it must be k or more, and k is 10"),
        ({"configuration": "klingon"}, 'text search configuration "klingon" does not exist'),
        ({"filter": "true); DROP TABLE items; --"}, "syntax error"),
        ({"query": [1.0] * 7}, "7 dimensions"),
    ],
)
def test_bad_input(index, vectors, asked, problem):
    given = {"query": vectors[0], "words": "fox", "text_column": "text", **asked}
    with pytest.raises(InvalidInputError, match=problem):
        index.hybrid(**given)


def test_missing_index(index, vectors):
    other = HashIndex(index.connection, "none")
    with pytest.raises(UnknownIndexError, match='index "none" does not exist'):
        other.hybrid(vectors[0], "fox", "text")


def test_a_domain_over_text(index, connection, vectors):
    connection.execute("CREATE DOMAIN body AS text; ALTER TABLE items ALTER text TYPE body")
    assert index.hybrid(vectors[12], "wine fox", "text", 3)[0].id == 13
