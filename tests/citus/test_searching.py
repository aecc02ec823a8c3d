"""Searches on a real cluster, against PostgreSQL's own answers and codes computed here."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.citus import INDEX, QUERY, TABLE, assert_fresh, bits_of, exact, one
from psycopg.types.json import Jsonb

from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.training.sampling import sample_table

pytestmark = pytest.mark.citus


@pytest.fixture
def spread(shared):
    """One index for all tests of each kind: none changes it."""
    return shared


def hamming(index, rows):
    query = bits_of(index, QUERY.to_numpy()[None])
    return np.asarray((bits_of(index, rows) != query).sum(axis=1))


def test_codes_are_beside_their_rows(spread):
    connection = spread.connection
    assert spread.distributed
    assert_fresh(spread)
    groups = connection.execute(
        "SELECT DISTINCT colocationid FROM pg_dist_partition WHERE logicalrelid::text = ANY (%s)",
        [[TABLE, spread.codes.as_string(connection)]],
    ).fetchall()
    assert len(groups) == 1
    method = "SELECT (hashindex._distribution_of('hashindex.node_index')).method"
    assert one(connection, method) == "reference"
    # Tables whose rows functions take stay on the coordinator.
    assert one(connection, method.replace("node_index", "model")) is None
    summary = spread.summary()
    assert (summary.rows, summary.codes, summary.waiting) == (2000, 2000, 0)
    assert summary.code_bytes > 0
    assert (summary.access_bytes > 0) == (spread.access == "landmarks")


def test_all_rows_as_candidates_are_the_exact_answer(spread):
    expected = exact(spread.connection, 10)
    assert [hit.id for hit in spread.search(QUERY, 10, candidates=2000)] == expected
    by_name = spread.connection.execute(
        "SELECT id FROM hashindex.search(%s, %s, 10, 2000)", [INDEX, QUERY]
    ).fetchall()
    assert [int(row[0]) for row in by_name] == expected
    assert one(spread.connection, "SELECT hashindex.recall(%s, 5, 5, 2000)", INDEX) == 1


@pytest.mark.parametrize("kept", ["hamming"], indirect=True)
@pytest.mark.parametrize("n", [20, 300])
def test_candidates_are_the_nearest_by_code(spread, rows, n):
    found = spread.connection.execute(
        f"SELECT id FROM hashindex.candidates_{INDEX}(%s, %s)".encode(), [QUERY, n]
    ).fetchall()
    distance = hamming(spread, rows)
    assert len({row[0] for row in found}) == n
    # Rows that are equally near may stand for each other.
    assert sorted(distance[[row[0] - 1 for row in found]]) == sorted(distance)[:n]


def test_rows_within_a_radius(spread, rows):
    within = np.flatnonzero(hamming(spread, rows) <= 4)
    assert {hit.id for hit in spread.within(QUERY, 4)} == {i + 1 for i in within}


@pytest.mark.parametrize("kept", ["landmarks"], indirect=True)
def test_where_lists_hold_too_few_codes_more_are_read(spread):
    expected = exact(spread.connection, 10)
    assert [hit.id for hit in spread.search(QUERY, 10, candidates=2000, probes=1)] == expected


@pytest.mark.parametrize("kept", ["landmarks"], indirect=True)
def test_recall_of_lists(spread):
    lists = spread.lists()
    assert (lists.codes, lists.unlisted) == (2000, 0)
    assert evaluate(spread, k=10, queries=50, candidates=[500]).points[0].recall > 0.9


def test_training_and_evaluating(spread):
    assert len(sample_table(spread.connection, TABLE, "embedding", rows=500).X) == 500
    result = evaluate(spread, k=5, queries=10, candidates=[2000])
    assert [point.recall for point in result.points] == [1.0]


def test_the_query_may_be_a_row_of_the_table(spread):
    found = spread.connection.execute(
        f"SELECT id FROM hashindex.search_{INDEX}"
        f"((SELECT embedding FROM {TABLE} WHERE id = 7), 3, 2000)".encode()
    ).fetchall()
    assert found[0][0] == 7
    assert spread.search_like(7, 3)


def test_a_search_for_each_row_is_refused(spread):
    with pytest.raises(psycopg.Error, match="cannot execute a distributed query from a query"):
        spread.connection.execute(
            f"SELECT s.id FROM {TABLE} t, hashindex.search_{INDEX}(t.embedding) s "
            "WHERE t.id = 7".encode()
        )


def test_searching_through_a_worker(spread, cluster, filled):
    statement = f"SELECT id FROM hashindex.search_{INDEX}(%s, 10, 2000)".encode()
    expected = spread.connection.execute(statement, [QUERY]).fetchall()
    with psycopg.connect(cluster.worker(filled)) as worker:
        assert worker.execute(statement, [QUERY.to_text()]).fetchall() == expected


def test_searches_under_another_plan_mode(spread):
    expected = exact(spread.connection, 3)
    spread.connection.execute("SET plan_cache_mode = force_generic_plan")
    found = spread.connection.execute(
        f"SELECT id FROM hashindex.search_{INDEX}(%s, 3, 2000)".encode(), [QUERY]
    ).fetchall()
    assert [row[0] for row in found] == expected


@pytest.mark.parametrize(
    "condition", ["category = 'b'", "category = 'b' AND id > 100", "id < 5", "category = 'none'"]
)
def test_filters(spread, condition):
    found = spread.connection.execute(
        "SELECT id FROM hashindex.search(%s, %s, 10, 2000, filter => %s)", [INDEX, QUERY, condition]
    ).fetchall()
    assert [int(row[0]) for row in found] == exact(spread.connection, 10, condition)


def test_equality_filters(spread):
    found = spread.connection.execute(
        "SELECT id FROM hashindex.search(%s, %s, 10, 2000, where_equals => %s)",
        [INDEX, QUERY, Jsonb({"category": "b"})],
    ).fetchall()
    assert [int(row[0]) for row in found] == exact(spread.connection, 10, "category = 'b'")


def test_sqlalchemy_filters(spread):
    table = sa.table(TABLE, sa.column("category", sa.Text), schema="public")
    found = spread.search(QUERY, 10, candidates=2000, where=table.c.category == "b")
    assert [hit.id for hit in found] == exact(spread.connection, 10, "category = 'b'")


def test_row_security_gives_the_exact_answer_of_what_is_seen(spread):
    connection = spread.connection
    expected = exact(connection, 5, "category = 'b'")
    connection.execute("DROP ROLE IF EXISTS citus_tests_reader")
    connection.execute("CREATE ROLE citus_tests_reader LOGIN")
    connection.execute(f"GRANT SELECT ON {TABLE} TO citus_tests_reader".encode())
    connection.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY".encode())
    connection.execute(f"CREATE POLICY only_b ON {TABLE} USING (category = 'b')".encode())
    connection.execute("SET ROLE citus_tests_reader")
    try:
        found = [hit.id for hit in spread.search(QUERY, 5, candidates=2000)]
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP POLICY only_b ON {TABLE}".encode())
        connection.execute(f"ALTER TABLE {TABLE} DISABLE ROW LEVEL SECURITY".encode())
        connection.execute("DROP OWNED BY citus_tests_reader")
        connection.execute("DROP ROLE citus_tests_reader")
    assert found == expected


@pytest.mark.parametrize("kept", ["landmarks"], indirect=True)
@pytest.mark.parametrize("arguments", ["%s, 0", "NULL, 3", "'[1,2]'::vector, 3", "%s, 3, 0"])
def test_arguments_that_make_no_sense(spread, arguments):
    with pytest.raises(psycopg.Error, match="it must be|is NULL|dimensions"):
        spread.connection.execute(
            f"SELECT id FROM hashindex.search_{INDEX}({arguments})".encode(),
            [QUERY] if "%s" in arguments else None,
        )
