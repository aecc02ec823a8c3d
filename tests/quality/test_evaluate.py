"""Recall of a live index, against a computation of its own in NumPy."""

import numpy as np
import psycopg
import pytest
from fixtures.indexes import begin_lists
from fixtures.recall import brute_force_recall, lsh_model  # noqa: F401 (a fixture)
from pgvector import Vector

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.quality.evaluate import evaluate

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("candidates", [10, 25, 80])
def test_recall_is_that_of_brute_force(index, model, vectors, candidates):
    result = evaluate(index, queries=300, k=5, candidates=[candidates])
    expected = brute_force_recall(model, vectors, 5, candidates)
    assert expected.greatest - expected.least < 0.02
    assert result.queries == 300
    assert result.points[0].recall in expected
    in_sql = index.connection.execute(
        "SELECT hashindex.recall('items_idx', 5, 300, %s)", [candidates]
    ).fetchone()
    assert in_sql == (pytest.approx(result.points[0].recall),)


@pytest.mark.reads
def test_all_rows_as_candidates_find_everything(index):
    result = evaluate(index, queries=50, k=10, candidates=[300, 10])
    assert [point.candidates for point in result.points] == [10, 300]
    assert result.points[1].recall == 1
    assert result.points[0].recall < 1
    assert 0 < result.points[0].p50_ms <= result.points[0].p95_ms
    assert 0 < result.exact_p50_ms <= result.exact_p95_ms


@pytest.mark.reads
def test_vectors_from_elsewhere(index, vectors):
    """Not left out of their own answers: one candidate finds the row itself, if codes are fresh."""
    result = evaluate(index, queries=vectors[:20], k=1, candidates=[300])
    assert result.queries == 20
    assert result.points[0].recall == 1


def test_ties_count_as_correct(connection, model):
    """Forty equal rows: any ten of them are the ten nearest."""
    connection.execute("CREATE TABLE same (id int PRIMARY KEY, v vector(8))")
    connection.execute(
        "INSERT INTO same SELECT n, '[1,2,3,4,5,6,7,8]' FROM generate_series(1, 40) n"
    )
    index = begin_lists(connection, "same", table="same", column="v", model="lsh")
    index.encode()
    assert evaluate(index, queries=10, k=10, candidates=[11]).points[0].recall == 1
    row = connection.execute("SELECT hashindex.recall('same', 10, 10, 11)").fetchone()
    assert row == (1.0,)


def test_exact_search_is_exact_beside_an_approximate_index(index, vectors):
    """An HNSW index with the least possible effort must not be what recall is measured against."""
    connection = index.connection
    connection.execute(
        "CREATE INDEX ON items USING hnsw (embedding vector_l2_ops) "
        "WITH (m = 2, ef_construction = 4)"
    )
    connection.execute("SET hnsw.ef_search = 1")
    connection.execute("SET enable_seqscan = off")
    query = np.linspace(-1, 1, 8, dtype=np.float32)
    rows = connection.execute(
        "SELECT id::int FROM hashindex.exact_search('items_idx', %s, 20)", [Vector(query)]
    ).fetchall()
    exact = np.linalg.norm(vectors - query, axis=1)
    assert [row[0] for row in rows] == [int(i) + 1 for i in np.argsort(exact)[:20]]


def test_fewer_rows_than_k(connection, model):
    connection.execute("CREATE TABLE few (id int PRIMARY KEY, v vector(8))")
    connection.execute("INSERT INTO few VALUES (1, '[1,2,3,4,5,6,7,8]'), (2, '[1,2,3,4,5,6,7,9]')")
    index = begin_lists(connection, "few", table="few", column="v", model="lsh")
    index.encode()
    assert evaluate(index, k=10, candidates=[1]).points[0].recall == 1
    connection.execute("DELETE FROM few WHERE id = 2")
    with pytest.raises(InvalidInputError, match="fewer than two rows"):
        evaluate(index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k is 0; it must be 1 or more"),
        ({"queries": 0}, "queries is 0; it must be 1 or more"),
        ({"candidates": []}, "candidates must be 1 or more"),
        ({"candidates": [5, 0]}, "candidates must be 1 or more"),
        ({"queries": [[1.0, 2.0]]}, "2 dimensions, expected 8"),
    ],
)
@pytest.mark.reads
def test_refused(index, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        evaluate(index, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("k => 0", "k is 0; it must be 1 to 1000000"),
        ("k => -1", "k is -1; it must be 1 to 1000000"),
        ("k => NULL", "k is NULL; it must be 1 to 1000000"),
        ("sample => 0", "sample is 0; it must be 1 or more"),
        ("sample => NULL", "sample is NULL"),
        ("candidates => 0", "candidates is 0; it must be 1 or more"),
    ],
)
@pytest.mark.reads
def test_refused_in_sql(index, arguments, message):
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        index.connection.execute(f"SELECT hashindex.recall('items_idx', {arguments})".encode())


def test_recall_in_sql_of_too_few_rows(index):
    index.connection.execute("DELETE FROM items WHERE id > 1")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="fewer than two rows"):
        index.connection.execute("SELECT hashindex.recall('items_idx')")


def test_search_is_exact_over_its_candidates_beside_an_approximate_index(index, vectors):
    """Nor may the planner answer a search from it."""
    connection = index.connection
    connection.execute(
        "CREATE INDEX ON items USING hnsw (embedding vector_l2_ops) "
        "WITH (m = 2, ef_construction = 4)"
    )
    connection.execute("SET hnsw.ef_search = 1; SET enable_seqscan = off; ANALYZE items")
    for query in vectors[:5] + np.float32(0.1):
        exact = np.linalg.norm(vectors - query, axis=1)
        nearest = [int(i) + 1 for i in np.argsort(exact)[:40]]
        assert [hit.id for hit in index.search(query, 40, candidates=300)] == nearest
    assert evaluate(index, queries=30, k=10, candidates=[300]).points[0].recall == 1


def test_rows_without_a_vector_are_neither_queries_nor_answers(index):
    index.connection.execute("UPDATE items SET embedding = NULL WHERE id > 20")
    result = evaluate(index, queries=200, k=30, candidates=[50])
    assert result.queries == 20
    assert result.points[0].recall == 1
    assert result.as_dict()["points"][0]["candidates"] == 50


def test_codes_that_are_not_there_cost_recall(index):
    """The measure looks at answers, not at codes: what is not encoded is not found."""
    index.connection.execute("DELETE FROM hashindex.set_1_codes WHERE id > 150")
    assert 0.3 < evaluate(index, queries=300, k=10, candidates=[300]).points[0].recall < 0.7
    index.encode()
    assert evaluate(index, queries=50, k=10, candidates=[300]).points[0].recall == 1
