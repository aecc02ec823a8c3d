"""Perceptrons as layers: the numbers that torch computes, in Python's layers and in SQL."""

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.models import codes
from pg_hashindex.models.model import Model

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.export import to_layers  # noqa: E402
from pg_hashindex.models.hash_network import Architecture, HashNetwork  # noqa: E402

pytestmark = pytest.mark.newest

DIMENSION, BITS = 6, 11


def architecture(hidden, **embedding):
    return Architecture(DIMENSION, BITS, hidden, **embedding)


# Beside each network the shapes of its affine layers, by hand: the features of phi and of xi, and
# of psi after the last layer of xi, one below the other.
CASES = {
    "without an embedding": (architecture((9, 8)), [(9, 6), (8, 9), (11, 8)]),
    "both as deep": (
        architecture((9, 8), embedding_size=3, embedding_hidden=(7,)),
        [(16, 6), (11, 16), (11, 11)],
    ),
    "phi deeper": (
        architecture((9, 8, 7), embedding_size=3, embedding_hidden=(5,)),
        [(14, 6), (11, 14), (10, 11), (11, 10)],
    ),
    "xi deeper": (
        architecture((9,), embedding_size=3, embedding_hidden=(8, 7, 5)),
        [(17, 6), (16, 17), (14, 16), (12, 14), (11, 12)],
    ),
    "xi of one layer": (architecture((9, 8), embedding_size=3), [(12, 6), (11, 12), (11, 11)]),
}
every_case = pytest.mark.parametrize(("architecture", "shapes"), CASES.values(), ids=list(CASES))


def with_parameters(architecture, draw):
    """Return a network whose weights, biases and mean are what ``draw`` gives for their shapes."""
    network = HashNetwork(architecture, torch.Generator())
    with torch.no_grad():
        for parameter in (*network.parameters(), network.mean):
            parameter.copy_(torch.from_numpy(np.asarray(draw(parameter.shape), np.float32)))
    return network


def real_valued(architecture):
    rng = np.random.default_rng(0)
    network = with_parameters(architecture, lambda shape: rng.standard_normal(shape) / 2)
    # As rows are that are far off centre, and of another scale.
    network.set_statistics(np.linspace(20, 50, DIMENSION), 7.0)
    rows = network.mean.numpy() + 7 * rng.standard_normal((400, DIMENSION)).astype(np.float32)
    with torch.no_grad():
        # Half of each bit's projections are above 0 then.
        network.head.bias -= torch.from_numpy(np.median(network.project(rows), axis=0))
    return network, rows


def of_small_integers(architecture):
    """Return a network and rows of which every sum is exact in float32."""
    rng = np.random.default_rng(1)
    network = with_parameters(architecture, lambda shape: rng.integers(-2, 3, shape))
    network.scale.fill_(2)
    rows = rng.integers(-3, 4, (400, DIMENSION)).astype(np.float32)
    # Among them the mean, of which the biases alone make the code.
    rows[0] = network.mean.numpy()
    return network, rows


def as_model(network):
    return Model("m", "bgdh", DIMENSION, to_layers(network))


@every_case
def test_layers_compute_what_the_network_does(architecture, shapes):
    network, rows = real_valued(architecture)
    model = as_model(network)
    expected = network.project(rows)
    scale = np.abs(expected).mean()
    np.testing.assert_allclose(model.project(rows), expected, rtol=0, atol=1e-5 * scale)
    # Each bit tells rows apart.
    assert (expected.std(axis=0) > 0.1 * scale).all()

    network, rows = of_small_integers(architecture)
    np.testing.assert_array_equal(as_model(network).project(rows), network.project(rows))


@every_case
def test_branches_lie_side_by_side(architecture, shapes):
    layers = to_layers(real_valued(architecture)[0])
    depth = len(shapes) - 1
    assert [layer.kind for layer in layers] == ["shift", *["affine", "relu"] * depth, "affine"]
    assert [layer.weights.shape for layer in layers if layer.kind == "affine"] == shapes


def in_sql(connection, rows):
    given = [Vector(row).to_text() for row in rows]
    found = connection.execute(
        "SELECT hashindex.project('m', v::vector), hashindex.encode('m', v::vector)::text "
        "FROM unnest(%s::text[]) WITH ORDINALITY AS given(v, n) ORDER BY n",
        [given],
    ).fetchall()
    bits = np.array([[bit == "1" for bit in code] for _, code in found])
    return np.array([vector.to_numpy() for vector, _ in found]), bits


@every_case
def test_sql_gives_the_codes_of_the_network(connection, architecture, shapes):
    network, rows = real_valued(architecture)
    model = store.save(connection, as_model(network))
    projections, bits = in_sql(connection, rows)
    expected = network.project(rows)
    np.testing.assert_allclose(projections, expected, rtol=0, atol=1e-4)
    differing = bits != codes.unpack(model.encode(rows), BITS).astype(bool)
    assert (np.abs(expected[differing]) < 1e-4).all()
    assert differing.mean() < 1e-3
    assert (np.abs(bits.mean(axis=0) - 0.5) < 0.02).all()

    network, rows = of_small_integers(architecture)
    model = store.save(connection, as_model(network))
    projections, bits = in_sql(connection, rows)
    np.testing.assert_array_equal(projections, network.project(rows))
    np.testing.assert_array_equal(codes.pack(bits), model.encode(rows))
    # The bit of a projection of exactly 0 is 0.
    assert (projections == 0).any()
    assert not bits[projections == 0].any()
