"""Models whose bits have weights: stored, and searched by weighted code distance."""

import numpy as np
import psycopg
import pytest
from fixtures.indexes import indexed

from pg_hashindex import store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

WEIGHTS = np.array([3, 0, 0.05, 1, 2.8, 0.2, 0.4, 1.6, 0, 2, 0.8, 3], np.float32)
# Fifteenths of the greatest weight.
ROUNDED = [15, 0, 0, 5, 14, 1, 2, 8, 0, 10, 4, 15]


def weighted_model(weights=WEIGHTS):
    directions = np.random.default_rng(2).standard_normal((12, 8))
    return Model("weighted", "byhand", 8, [affine(directions)], bit_weights=weights)


@pytest.fixture
def index(connection, items):
    store.save(connection, weighted_model())
    return indexed(connection, model="weighted")


def test_planes_of_weights(connection):
    row = connection.execute(
        "SELECT hashindex._weight_planes(bit_weights)::text[] FROM hashindex.find_model(%s)",
        [store.save(connection, weighted_model()).name],
    ).fetchone()
    masks = np.array([[int(bit) for bit in mask] for mask in row[0]])
    assert ([1, 2, 4, 8] @ masks).tolist() == ROUNDED


def test_a_weight_for_all_bits_is_plain_hamming(connection, items):
    for name, weights in (("plain", None), ("even", np.full(12, 0.37))):
        model = Model(name, "byhand", 8, weighted_model().layers, bit_weights=weights)
        store.save(connection, model)
        indexed(connection, f"{name}_idx", model=name)
    rows = [
        HashIndex.open(connection, f"{name}_idx").search(np.ones(8), 30, candidates=300)
        for name in ("plain", "even")
    ]
    assert rows[0] == rows[1]


def test_weights_are_stored(connection):
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
def test_weights_that_cannot_be(connection, weights, message):
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


def test_weights_far_apart(connection):
    row = connection.execute("SELECT hashindex._weight_planes('[1e30,1e-30]')::text[]").fetchone()
    assert row == (["10"] * 4,)
