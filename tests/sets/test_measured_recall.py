"""One measure of recall: SQL and Python draw the same queries, and a new set reaches its goal."""

import json

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import queries
from pg_hashindex.quality.evaluate import evaluate

ROWS, DIMENSION = 2000, 32
TENANTS = [1 if row < 1200 else 2 if row < 1900 else 3 for row in range(ROWS)]


@pytest.fixture
def vectors(connection):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((40, DIMENSION))[rng.integers(40, size=ROWS)]
    vectors = (centres + 0.6 * rng.standard_normal((ROWS, DIMENSION))).astype(np.float32)
    connection.execute(
        "CREATE TABLE docs (id bigint PRIMARY KEY, account integer, embedding vector(32))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for row, (vector, tenant) in enumerate(zip(vectors, TENANTS, strict=True)):
            copy.write_row([row, tenant, str(vector.tolist())])
    connection.execute("ANALYZE docs")
    return vectors


def create(connection, **options):
    named = "".join(f", {option} => %({option})s" for option in options)
    return connection.execute(
        f"SELECT * FROM hashindex.create_index('docs', 'docs', 'embedding'{named})".encode(),
        options,
    ).fetchone()


def in_sql(connection, more=""):
    return connection.execute(
        f"SELECT hashindex.recall('docs', sample => 50{more})".encode()
    ).fetchone()[0]


def nearest(vectors, query, left_out, k=10):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - unit @ (query / np.linalg.norm(query))
    distances[left_out] = np.inf
    return set(np.argsort(distances, kind="stable")[:k].tolist())


@pytest.mark.parametrize(
    ("options", "by"),
    [({}, 0.3), ({"model": "none"}, 0.4), ({"access": "ivfflat"}, 0), ({"store": True}, 0.3)],
)
def test_rows_are_moved_for_graphs(connection, vectors, options, by):
    create(connection, **options)
    index = HashIndex.open(connection, "docs")
    drawn = queries.draw(index, 50)
    rows = vectors[[int(query.row_id) for query in drawn]]
    found = np.stack([query.vector.to_numpy() for query in drawn])
    # Each by a part of the difference of the next two.
    differences = np.roll(rows, -1, axis=0) - np.roll(rows, -2, axis=0)
    assert np.allclose(found, rows + np.float32(by) * differences, atol=1e-5)
    assert np.array_equal(found, rows) == (by == 0)
    again = queries.draw(index, 20)
    assert [query.row_id for query in again] == [query.row_id for query in drawn[:20]]


@pytest.mark.parametrize("options", [{}, {"model": "none"}, {"access": "ivfflat"}])
def test_sql_and_evaluate_say_what_searches_find(connection, vectors, options):
    create(connection, **options)
    index = HashIndex.open(connection, "docs")
    (point,) = evaluate(index, queries=50, candidates=[15]).points
    assert in_sql(connection, ", candidates => 15") == pytest.approx(point.recall)
    drawn = queries.draw(index, 50)
    hits = 0
    for query in drawn:
        own = int(query.row_id)
        found = {hit.id for hit in index.search(query.vector, 11, candidates=16)} - {own}
        hits += len(found & nearest(vectors, query.vector.to_numpy(), own))
    assert point.recall == pytest.approx(hits / 500, abs=0.004)
    (own,) = evaluate(index, queries=50, candidates=[index.row.candidates_for(10)]).points
    assert in_sql(connection) == pytest.approx(own.recall)


def test_a_new_set_reaches_its_goal(connection, vectors):
    promised = create(connection)[-1]
    assert promised >= 0.95
    (found,) = connection.execute("SELECT hashindex.recall('docs', sample => 100)").fetchone()
    assert found == pytest.approx(promised)


def test_queries_are_searched_for_within_their_tenants(connection, vectors):
    create(connection, tenant="account")
    index = HashIndex.open(connection, "docs")
    (point,) = evaluate(index, queries=50, candidates=[index.row.candidates_for(10)]).points
    assert in_sql(connection) == pytest.approx(point.recall)
    of_one = queries.draw(index, 50, tenant="2")
    assert {TENANTS[int(query.row_id)] for query in of_one} == {2}
    assert in_sql(connection, ", tenant => '2'") > 0.9


def test_a_row_of_zeros_stays_one(connection, vectors):
    connection.execute("UPDATE docs SET embedding = %s WHERE id < 1000", [Vector([0.0] * 32)])
    create(connection, model="none", metric="l2")
    index = HashIndex.open(connection, "docs")
    drawn = queries.draw(index, 60)
    for query in drawn:
        assert query.vector.to_numpy().any() == (int(query.row_id) >= 1000)


def test_tenants_of_an_index_without_some(connection, vectors):
    create(connection)
    with pytest.raises(Exception, match='index "docs" has no tenants'):
        in_sql(connection, ", tenant => '2'")


def test_evaluate_prints_the_recall_within_tenants_by_size(connection, vectors, on):
    create(connection, tenant="account")
    printed = json.loads(on("evaluate", "docs", "--queries", "9", "--json").stdout)
    assert [(one["tenant"], one["codes"]) for one in printed["tenants"]] == [
        ("1", 1200), ("2", 700), ("3", 100),
    ]  # fmt: skip
    for one in printed["tenants"]:
        assert one["recall"] > 0.9
        sample = connection.execute(
            "SELECT hashindex.recall('docs', sample => 20, tenant => %s)", [one["tenant"]]
        )
        assert sample.fetchone()[0] == pytest.approx(one["recall"])


@pytest.mark.parametrize(("seconds", "compared"), [(0, 5), (None, 20)])
def test_five_queries_are_compared_however_slow_a_table_is(connection, vectors, seconds, compared):
    create(connection, model="none")
    (found,) = connection.execute(
        "SELECT cardinality(t.wanted) FROM hashindex.index i, "
        "hashindex._draw_queries(i, 'embedding', 0, 20) d, "
        "hashindex._true_neighbours(i, 'embedding', 10, d.ids, d.queries, NULL, %s::float8) t",
        [seconds],
    ).fetchone()
    assert found == compared


def test_searches_of_all_tenants_find_as_much_as_those_within_the_largest(connection, vectors):
    """Its lists are measured; as large a share of all is read for all of them."""
    connection.execute("UPDATE docs SET account = CASE WHEN id < 400 THEN 0 ELSE id % 10 END")
    where = {"table": "docs", "column": "embedding"}
    index = HashIndex.create(connection, "docs", access="lists", tenant="account", **where)
    everywhere = index.search(vectors[5], 11, all_tenants=True)
    assert everywhere[0].id == 5
    hits = sum(
        len({hit.id for hit in index.search(vectors[row], 11, all_tenants=True)} - {row}
            & nearest(vectors, vectors[row], row))
        for row in range(0, ROWS, 40)
    )  # fmt: skip
    assert hits / (10 * (ROWS // 40)) >= 0.9
