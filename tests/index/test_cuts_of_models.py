"""Indexes of models with several cuts, on rows of many lengths and about a mean that is not 0."""

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.hashers import ITQ
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.training import train

DIMENSION, ROWS = 24, 400


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(11)
    drawn = rng.standard_normal((ROWS, DIMENSION)) * np.exp(rng.standard_normal((ROWS, 1)))
    return (drawn + 0.5).astype(np.float32)


@pytest.fixture(params=["l2", "cosine", "ip"])
def metric(request):
    return request.param


@pytest.fixture
def table(connection, rows):
    connection.execute(f"CREATE TABLE r (id bigint PRIMARY KEY, e vector({DIMENSION}))")
    insert(connection, range(ROWS), rows)
    return "r"


@pytest.fixture(params=[3, 4])
def n_cuts(request):
    return request.param


@pytest.fixture
def model(connection, rows, metric, n_cuts):
    parameters = {"normalize": "l2"} if metric == "cosine" else {}
    hasher = ITQ(n_bits=DIMENSION, random_state=0, **parameters).fit(rows)
    return store.save(connection, hasher.to_model("m", metric=metric, cuts=n_cuts))


def insert(connection, keys, vectors):
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO r VALUES (%s, %s)",
            [(key, Vector(vector)) for key, vector in zip(keys, vectors, strict=True)],
        )


def create(connection, access="scan"):
    begin_lists(connection, "i", table="r", column="e", model="m", access=access).encode()
    return HashIndex.open(connection, "i")


def stored(connection, index):
    found = connection.execute(
        f"SELECT id, code::text FROM hashindex.set_{index.row.set_id}_codes ORDER BY id".encode()
    ).fetchall()
    return [row[0] for row in found], np.array([[bit == "1" for bit in row[1]] for row in found])


@pytest.mark.parametrize("written", ["encoded", "built", "by triggers"])
def test_codes_are_those_of_python(connection, table, model, rows, written):
    if written == "by triggers":
        connection.execute("TRUNCATE r")
    index = create(connection, "lists" if written == "built" else "scan")
    if written == "by triggers":
        insert(connection, range(ROWS), rows)
    keys, bits = stored(connection, index)
    assert keys == [*range(ROWS)]
    differing = bits != codes.unpack(model.encode(rows), model.n_bits)
    assert differing.mean() < 1e-4


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_candidates_come_in_the_order_of_python(connection, table, model, rows, metric, access):
    create(connection, access)
    queries = rows[:8] + np.float32(0.3)
    order = model.order(queries, metric)
    expected = order.distances(slice(None), model.encode(rows)).astype(int)
    for query, distances in zip(queries, expected, strict=True):
        found = connection.execute(
            "SELECT id::bigint FROM hashindex.candidates('i', %s, 20, 1000)", [Vector(query)]
        ).fetchall()
        found = np.array([row[0] for row in found])
        assert len(set(found)) == 20
        # A projection within rounding of a step or a cut counts otherwise.
        assert (distances[found] <= np.sort(distances)[19] + 4).all()


def test_rows_of_other_lengths_are_found(connection, table, model, rows, metric):
    index = create(connection)
    found = 0
    for query in rows[:40] + np.float32(0.1):
        exact = connection.execute(
            "SELECT id FROM hashindex.exact_search('i', %s, 10)", [Vector(query)]
        ).fetchall()
        hits = {hit.id for hit in index.search(query, k=10, candidates=80)}
        found += len(hits & {int(row[0]) for row in exact})
    assert found >= 0.9 * 400


def test_extreme_rows(connection, table, model, metric):
    index = create(connection)
    one = np.eye(1, DIMENSION)[0]
    extreme = [np.zeros(DIMENSION), np.full(DIMENSION, 1e-30), 1e18 * one, 3e38 * one]
    insert(connection, range(1000, 1004), extreme)
    keys, bits = stored(connection, index)
    assert keys[-4:] == [1000, 1001, 1002, 1003]
    differing = bits[-4:] != codes.unpack(model.encode(np.array(extreme)), model.n_bits)
    assert differing.sum() <= 1
    for query in (extreme[0], extreme[2], np.full(DIMENSION, 0.5)):
        assert len(index.search(query, k=5)) == 5
    assert operations.check(index, full=True).status in ("ok", "warning")


def test_heavy_tails_one_dimension_and_equal_rows(connection):
    """A model of any rows can be trained, and its index finds the nearest of them."""
    rng = np.random.default_rng(0)
    for name, X in {
        "tails": rng.standard_cauchy((1200, 8)) ** 3,
        "one": rng.standard_normal((1200, 1)),
        "many": rng.standard_normal((1000, 16_000)),
        "equal": np.concatenate([np.ones((1199, 8)), np.zeros((1, 8))]),
    }.items():
        X = X.astype(np.float32)
        method = "lsh" if name == "many" else "itq"
        model = store.save(connection, train(X, name, method, metric="l2", force=True))
        assert len(model.cuts) == 3
        connection.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, e vector({X.shape[1]}))".encode()
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for row in enumerate(X[:100]):
                copy.write_row((row[0], Vector(row[1])))
        index = begin_lists(connection, name, table=name, column="e", model=name)
        index.encode()
        assert index.search(X[3], k=1)[0].distance == 0
        found = {f.check: f.status for f in operations.check(index, full=True).findings}
        assert found["wrong_codes"] == "ok"
