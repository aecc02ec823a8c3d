"""Models whose bits have weights: stored, and searched by weighted code distance."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import RawCursor, sql

from pg_hashindex import codes, store
from pg_hashindex.database import Connection
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index import HashIndex
from pg_hashindex.layers import affine
from pg_hashindex.model import Model
from pg_hashindex.searching import filtered_query
from pg_hashindex.steps import run

pytestmark = pytest.mark.newest

WEIGHTS = np.array([3, 0, 0.05, 1, 2.8, 0.2, 0.4, 1.6, 0, 2, 0.8, 3], np.float32)
# Of the greatest weight, in fifteenths.
ROUNDED = [15, 0, 0, 5, 14, 1, 2, 8, 0, 10, 4, 15]


def weighted_model(weights: NDArray[np.float32] = WEIGHTS) -> Model:
    directions = np.random.default_rng(2).standard_normal((12, 8))
    return Model("weighted", "byhand", 8, [affine(directions)], bit_weights=weights)


@pytest.fixture(params=["table", "column"])
def index(request: pytest.FixtureRequest, connection: Connection, items: str) -> HashIndex:
    store.save(connection, weighted_model())
    index = HashIndex.create(
        connection,
        "items_idx",
        table=items,
        column="embedding",
        model="weighted",
        layout=request.param,
    )
    index.encode()
    return index


def test_planes_of_weights(connection: Connection) -> None:
    row = connection.execute(
        "SELECT hashindex.weight_planes(bit_weights)::text[] FROM hashindex.find_model(%s)",
        [store.save(connection, weighted_model()).name],
    ).fetchone()
    assert row is not None
    masks = np.array([[int(bit) for bit in mask] for mask in row[0]])
    assert ([1, 2, 4, 8] @ masks).tolist() == ROUNDED


@pytest.mark.parametrize("candidates", [1, 7, 60, 300])
def test_candidates_are_the_first_by_weighted_distance(
    index: HashIndex, vectors: NDArray[np.float32], candidates: int
) -> None:
    """Both ways to search keep what a sum over bits says, ties by key."""
    model = weighted_model()
    bits = codes.unpack(model.encode(vectors), 12).astype(int)
    for query in vectors[:5] + 0.3:
        asked = codes.unpack(model.encode(query[None]), 12)[0].astype(int)
        order = np.argsort((bits != asked) @ ROUNDED, kind="stable")
        kept = (order[:candidates] + 1).tolist()
        found = [hit.id for hit in index.search(query, candidates, candidates=candidates)]
        assert sorted(found) == sorted(kept)
        by_name = index.connection.execute(
            "SELECT id::bigint FROM hashindex.search('items_idx', %s::real[]::vector, %s, %s)",
            [query.tolist(), candidates, candidates],
        ).fetchall()
        assert [row[0] for row in by_name] == found


def test_the_nearest_by_plain_distance_are_looked_at(connection: Connection, items: str) -> None:
    """Ten times the candidates, but 2,000 at least, whatever the weights."""
    connection.execute(
        "INSERT INTO items SELECT n, 'a', ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(301, 5000) n"
    )
    store.save(connection, weighted_model())
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model="weighted"
    )
    index.encode()
    stored = connection.execute(
        "SELECT id, code::text FROM hashindex.items_idx_codes ORDER BY id"
    ).fetchall()
    bits = np.array([[int(bit) for bit in code] for _, code in stored])
    query = np.linspace(-1, 1, 8)
    differing = bits != codes.unpack(weighted_model().encode(query[None]), 12)[0]
    for candidates, looked_at in ((50, 2000), (300, 3000), (600, 5000)):
        near = np.argsort(differing.sum(axis=1), kind="stable")[:looked_at]
        near.sort()
        order = near[np.argsort(differing[near] @ ROUNDED, kind="stable")]
        found = index.search(query, candidates, candidates=candidates)
        assert {hit.id for hit in found} == {stored[n][0] for n in order[:candidates]}


def test_a_weight_for_all_bits_is_plain_hamming(connection: Connection, items: str) -> None:
    for name, weights in (("plain", None), ("even", np.full(12, 0.37))):
        model = Model(name, "byhand", 8, weighted_model().layers, bit_weights=weights)
        store.save(connection, model)
        HashIndex.create(
            connection,
            f"{name}_idx",
            table=items,
            column="embedding",
            model=name,
            ranking="hamming" if weights is None else "weighted",
        ).encode()
    rows = [
        HashIndex.open(connection, f"{name}_idx").search(np.ones(8), 30, candidates=30)
        for name in ("plain", "even")
    ]
    assert rows[0] == rows[1]


def test_weights_are_stored(connection: Connection) -> None:
    saved = store.save(connection, weighted_model())
    loaded = store.load(connection, "weighted")
    assert loaded.bit_weights is not None
    np.testing.assert_array_equal(loaded.bit_weights, WEIGHTS)
    assert loaded.checksum == saved.checksum != Model("x", "byhand", 8, saved.layers).checksum
    assert store.describe(connection, "weighted").weighted
    again = Model.from_bytes(loaded.to_bytes())
    assert again.checksum == saved.checksum
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be changed"):
        connection.execute("UPDATE hashindex.model SET bit_weights = NULL")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(11), r"shape \(11,\), must be \(12,\)"),
        (np.ones((12, 1)), r"shape \(12, 1\)"),
        (np.zeros(12), "at least one above 0"),
        (np.append(np.ones(11), -1), "-1.0 to 1.0"),
        (np.append(np.ones(11), np.nan), "must be finite"),
    ],
)
def test_weights_that_cannot_be(
    connection: Connection, weights: NDArray[np.float64], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        weighted_model(weights)
    if np.isfinite(weights).all() and weights.ndim == 1:
        saved = store.save(connection, weighted_model())
        columns = "method, dimension, n_bits, metric, parameters, training, layers, checksum"
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(
                f"""
                INSERT INTO hashindex.model (name, version, {columns}, bit_weights)
                SELECT 'bad', 1, {columns}, %s::real[]::vector FROM hashindex.model
                WHERE name = %s
                """.encode(),
                [weights.tolist(), saved.name],
            )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("weight_planes('[0,0]')", "weights of bits are from 0 to 0; .* at least one above 0"),
        ("weight_planes('[1,-2,3]')", "weights of bits are from -2 to 3"),
    ],
)
def test_weights_that_order_nothing(connection: Connection, call: str, message: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        connection.execute(f"SELECT hashindex.{call}".encode())


def test_weights_far_apart(connection: Connection) -> None:
    row = connection.execute("SELECT hashindex.weight_planes('[1e30,1e-30]')::text[]").fetchone()
    assert row == (["10"] * 4,)


@pytest.mark.parametrize(
    ("projection", "rounded"),
    [
        ("[-3, 0, 1, 0.1, -0.09, 3]", [15, 0, 5, 1, 0, 15]),
        # Nothing to tell bits apart by.
        ("[0, 0, -0]", [15, 15, 15]),
        ("[1e-38, -3e-38]", [5, 15]),
    ],
)
def test_planes_of_a_query(connection: Connection, projection: str, rounded: list[int]) -> None:
    row = connection.execute(
        "SELECT hashindex.query_planes(%s::vector)::text[]", [projection]
    ).fetchone()
    assert row is not None
    masks = np.array([[int(bit) for bit in mask] for mask in row[0]])
    assert ([1, 2, 4, 8] @ masks).tolist() == rounded


def test_a_condition_encodes_once(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    """However often the query's code is looked at."""
    items = sa.table("items", sa.column("category"))
    condition = items.c.category == "a"
    connection = index.connection
    connection.execute("SET track_functions = 'pl'")

    def encoded() -> int:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(
            "SELECT coalesce(max(calls), 0) FROM pg_stat_user_functions WHERE funcname LIKE %s",
            ["project_with"],
        ).fetchone()
        assert row is not None
        return int(row[0])

    before = encoded()
    hits = index.search(vectors[0], 20, candidates=30, where=condition)
    assert len(hits) == 20
    assert encoded() == before + 1


def test_the_plan_of_a_condition_encodes_nothing(
    index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    where = sa.table("items", sa.column("category")).c.category == "a"
    query = Vector(vectors[0])
    steps = filtered_query(index, query, 20, (30, None, None), where)
    statement, values = run(index.connection, steps)
    lines = RawCursor(index.connection).execute(sql.SQL("EXPLAIN (VERBOSE) ") + statement, values)
    plan = "\n".join(line for (line,) in lines)
    assert "project_with" not in plan
    assert "encode_with" not in plan
