"""The two numbers beside codes of 4 levels: length and fit, and the order that they give."""

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.hashers import ITQ
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.codes import pack
from pg_hashindex.models.quantization import quantize, row_numbers

DIMENSION, ROWS = 24, 400
METRICS = ("l2", "cosine", "ip")


@pytest.fixture(scope="module")
def rows():
    """Rows of many lengths about a mean that is not 0."""
    rng = np.random.default_rng(11)
    drawn = rng.standard_normal((ROWS, DIMENSION)) * np.exp(rng.standard_normal((ROWS, 1)))
    return (drawn + 0.5).astype(np.float32)


@pytest.fixture(params=METRICS)
def metric(request):
    return request.param


@pytest.fixture
def table(connection, rows):
    connection.execute(f"CREATE TABLE r (id bigint PRIMARY KEY, e vector({DIMENSION}))")
    insert(connection, range(ROWS), rows)
    return "r"


@pytest.fixture
def model(connection, rows, metric):
    parameters = {"normalize": "l2"} if metric == "cosine" else {}
    hasher = ITQ(n_bits=DIMENSION, random_state=0, **parameters).fit(rows)
    return store.save(connection, hasher.to_model("m", metric=metric, levels=4))


def insert(connection, keys, vectors):
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO r VALUES (%s, %s)",
            [(key, Vector(vector)) for key, vector in zip(keys, vectors, strict=True)],
        )


def create(connection, access="scan", **options):
    made = HashIndex.create(
        connection, "i", table="r", column="e", model="m", access=access, **options
    )
    made.encode()
    return HashIndex.open(connection, "i")


def stored(connection, index):
    found = connection.execute(
        f"SELECT id, length, fit FROM hashindex.{index.row.code_table} ORDER BY id".encode()
    ).fetchall()
    return np.array([row[0] for row in found]), np.array([row[1:] for row in found])


def exact(connection, query):
    found = connection.execute(
        "SELECT id FROM hashindex.exact_search('i', %s, 10)", [Vector(query)]
    ).fetchall()
    return {int(row[0]) for row in found}


@pytest.mark.parametrize("written", ["encoded", "built", "by triggers", "in SQL", "built in SQL"])
def test_numbers_are_those_of_python(connection, table, model, rows, written):
    if written == "by triggers":
        connection.execute("TRUNCATE r")
    if written.endswith("SQL"):
        connection.execute("SELECT hashindex.declare_index('i', 'r', 'e', 'm')")
        if written == "built in SQL":
            connection.execute("SELECT hashindex.build_landmarks('i')")
        index = HashIndex.open(connection, "i")
    else:
        index = create(connection, "landmarks" if written == "built" else "scan")
    if written == "by triggers":
        insert(connection, range(ROWS), rows)
    keys, numbers = stored(connection, index)
    assert (keys == np.arange(ROWS)).all()
    np.testing.assert_allclose(numbers, row_numbers(model.project(rows)), rtol=1e-4)


@pytest.mark.parametrize("access", ["scan", "landmarks"])
@pytest.mark.parametrize("filtered", [False, True])
def test_candidates_come_in_the_order_of_the_estimate(
    connection, table, model, rows, metric, access, filtered
):
    create(connection, access)
    queries = rows[:8] + np.float32(0.3)
    projections = model.project(rows)
    codes, numbers = pack(quantize(projections, 4)), row_numbers(projections)
    order = model.numbered_order(queries, metric)
    expected = order.distances(slice(None), codes, numbers)
    passing = np.arange(ROWS) % 2 == 0 if filtered else np.ones(ROWS, bool)
    for query, estimates in zip(queries, expected, strict=True):
        found = connection.execute(
            "SELECT hashindex.candidates_i(%s, 20, 1000, %s)",
            [Vector(query), "id %% 2 = 0".replace("%%", "%") if filtered else None],
        ).fetchall()
        found = np.array([row[0] for row in found])
        assert len(set(found)) == 20
        assert passing[found].all()
        # Rounding may exchange rows whose estimates are equal.
        last = np.sort(estimates[passing])[19]
        assert (estimates[found] <= last + 1e-4 * np.abs(estimates).max()).all()


def test_rows_of_other_lengths_are_found(connection, table, model, rows, metric):
    index = create(connection)
    queries = rows[:40] + np.float32(0.1)
    found = 0
    for query in queries:
        hits = {hit.id for hit in index.search(query, k=10, candidates=40)}
        found += len(hits & exact(connection, query))
    assert found >= 0.9 * 400


def test_extreme_rows_have_numbers(connection, table, model, metric):
    index = create(connection)
    extreme = [np.zeros(DIMENSION), np.full(DIMENSION, 1e-30), np.eye(1, DIMENSION)[0] * 1e18]
    insert(connection, range(1000, 1003), extreme)
    keys, numbers = stored(connection, index)
    assert (keys[-3:] == [1000, 1001, 1002]).all()
    assert np.isfinite(numbers).all()
    assert len(index.search(extreme[2], k=5)) == 5
    assert len(index.search(np.full(DIMENSION, 0.5), k=5)) == 5


def test_wrong_numbers_are_found_and_repaired(connection, table, model):
    index = create(connection)
    _, before = stored(connection, index)
    connection.execute("UPDATE hashindex.i_codes SET length = 2 * length WHERE id = 7")
    connection.execute("UPDATE hashindex.i_codes SET fit = fit + 0.1 WHERE id = 9")

    def check():
        found = operations.check(index, full=True).findings
        return {finding.check: finding.detail for finding in found}["wrong_codes"]

    assert check() == f"2 of {ROWS} codes are not what the model gives their rows"
    operations.repair(index, full=True)
    np.testing.assert_allclose(stored(connection, index)[1], before, rtol=1e-6)
    assert check() == f"{ROWS} codes are what the model gives their rows"


def test_codes_that_lost_their_numbers_are_made_again(connection, table, model):
    index = create(connection)
    connection.execute("ALTER TABLE hashindex.i_codes DROP COLUMN fit")
    faults = {f.check: f for f in operations.check(index).findings if f.status == "broken"}
    assert any("lacks the numbers of its codes" in f.detail for f in faults.values())
    operations.repair(index)
    assert (stored(connection, HashIndex.open(connection, "i"))[1] > 0).all()


def test_codes_without_numbers(connection, table, rows):
    """Another metric counts length otherwise than the model."""
    hasher = ITQ(n_bits=DIMENSION, random_state=0).fit(rows)
    store.save(connection, hasher.to_model("m", metric="l2", levels=4))
    index = create(connection, metric="cosine")
    assert not index.row.keeps_numbers
    assert len(index.search(rows[3], k=5)) == 5
    columns = connection.execute(
        "SELECT count(*) FROM information_schema.columns "
        "WHERE table_schema = 'hashindex' AND table_name = 'i_codes' AND column_name = 'length'"
    ).fetchone()
    assert columns == (0,)
