"""Landmarks are found by their signs where these tell near ones from far ones, or by themselves."""

import numpy as np
import pytest
from fixtures.landmarks import assert_listed, landmarks_of
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex
from pg_hashindex.training import train

WIDTH = 128
ROWS = 3000


@pytest.fixture(scope="module")
def wide() -> NDArray[np.float32]:
    """Rows that vary in six directions, far from the origin, and as many again to ask for."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((2 * ROWS, 6)) @ rng.standard_normal((6, WIDTH)) + 4
    return rows.astype(np.float32)


@pytest.fixture(params=["l2", "cosine"])
def index(
    request: pytest.FixtureRequest, connection: Connection, wide: NDArray[np.float32]
) -> HashIndex:
    connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, embedding vector({WIDTH}))")
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, row in enumerate(wide[:ROWS]):
            copy.write_row((i, Vector(row)))
    store.save(
        connection,
        train(wide[:ROWS], "m", "itq", n_bits=32, metric=request.param, random_state=0),
    )
    created = HashIndex.create(
        connection, "items_idx", table="items", column="embedding", model="m",
        metric=request.param, access="landmarks",
    )  # fmt: skip
    created.encode()
    return HashIndex.open(connection, "items_idx")


def mean_of(index: HashIndex) -> NDArray[np.float32] | None:
    row = index.connection.execute(
        "SELECT hashindex.landmark_mean(i) FROM hashindex.index i WHERE name = 'items_idx'"
    ).fetchone()
    assert row is not None
    return None if row[0] is None else np.asarray(row[0].to_numpy())


def test_the_mean_stands_in_the_index(index: HashIndex) -> None:
    mean = mean_of(index)
    assert mean is not None
    # Centres are stored as halfvec: three digits.
    np.testing.assert_allclose(mean, landmarks_of(index).centres.mean(axis=0), atol=2e-3)


def test_the_index_on_signs_is_used(index: HashIndex, wide: NDArray[np.float32]) -> None:
    index.connection.execute("SET enable_seqscan = off")
    row = index.connection.execute(
        "SELECT hashindex.near_landmarks(i, '$1', '24') FROM hashindex.index i"
    ).fetchone()
    assert row is not None
    index.connection.execute(f"PREPARE near (vector) AS {row[0]}".encode())
    index.connection.execute("SET plan_cache_mode = force_generic_plan")
    plan = index.connection.execute(
        f"EXPLAIN EXECUTE near ('{Vector(wide[0]).to_text()}')".encode()
    ).fetchall()
    assert any("Index Scan using items_idx_landmarks_signs_idx" in line for (line,) in plan)


def test_rows_are_found(index: HashIndex, wide: NDArray[np.float32]) -> None:
    few, every = 0, 0
    for query in wide[ROWS : ROWS + 60]:
        exact = index.connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 10)",
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 10, candidates=ROWS, probes=107) == exact
        few += len(
            {row[0] for row in exact}
            & {hit.id for hit in index.search(query, 10, candidates=400, probes=12)}
        )
        every += len(exact)
    assert few >= 0.9 * every


def test_rows_are_listed_as_python_lists_them(index: HashIndex, wide: NDArray[np.float32]) -> None:
    """But for the few whose near landmarks the signs do not show: these are under others."""
    with index.connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, row in enumerate(wide[ROWS : 2 * ROWS]):
            copy.write_row((ROWS + i, Vector(row)))
    index.connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id < 100")
    assert_listed(index, missing=0.03)


def test_lists_are_divided(index: HashIndex, wide: NDArray[np.float32]) -> None:
    """Landmarks that are made then are found by their signs, too."""
    mean = mean_of(index)
    one = wide[7] + 0.05 * np.random.default_rng(0).standard_normal((600, WIDTH), np.float32)
    with index.connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, row in enumerate(one):
            copy.write_row((2 * ROWS + i, Vector(row)))
    assert index.rebalance().landmarks > 0
    assert mean is not None
    np.testing.assert_array_equal(mean_of(index), mean)
    exact = index.connection.execute(
        "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 10)",
        [Vector(one[0])],
    ).fetchall()
    assert index.search(one[0], 10, candidates=1000, probes=12) == exact


def test_rows_encoded_in_bulk_are_listed_with_the_same_effort(
    index: HashIndex, wide: NDArray[np.float32]
) -> None:
    """Those written while triggers slept; whatever effort the session's own searches have."""
    index.connection.execute("ALTER TABLE items DISABLE TRIGGER USER; SET hnsw.ef_search = 1")
    with index.connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, row in enumerate(wide[ROWS : ROWS + 500]):
            copy.write_row((ROWS + i, Vector(row)))
    index.connection.execute("ALTER TABLE items ENABLE TRIGGER USER")
    assert index.encode() == 500
    assert index.connection.execute("SHOW hnsw.ef_search").fetchone() == ("1",)
    assert_listed(index, missing=0.01)


def test_long_vectors(connection: Connection) -> None:
    """The mean of 1,536 numbers has no room in pg_index before PostgreSQL 18."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((1000, 8)) @ rng.standard_normal((8, 1536)) + 1).astype(np.float32)
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(1536))")
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, row in enumerate(rows):
            copy.write_row((i, Vector(row)))
    store.save(connection, train(rows, "m", "lsh", n_bits=60, metric="cosine", random_state=0))
    index = HashIndex.create(
        connection, "items_idx", table="items", column="embedding", model="m",
        metric="cosine", access="landmarks",
    )  # fmt: skip
    index.encode()
    assert mean_of(index) is not None
    index = HashIndex.open(connection, "items_idx")
    assert [index.search(row, 1, probes=3)[0].id for row in rows[:40]] == list(range(40))


def test_few_dimensions_have_too_few_signs(listed: HashIndex) -> None:
    """The other kind of index: that of eight dimensions in all other tests."""
    assert mean_of(listed) is None
    row = listed.connection.execute(
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'items_idx_landmarks_centre_idx'"
    ).fetchone()
    assert row is not None
    assert "USING hnsw (centre halfvec_" in row[0]
