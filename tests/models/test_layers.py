import math

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models.layers import Layer, affine, affinity, normalize, rbf, shift
from pg_hashindex.models.model import Model

X = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, 2.0]], dtype=np.float32)

BY_HAND = [
    (normalize(), [[0.6, 0.8], [0, 0], [-1 / math.sqrt(5), 2 / math.sqrt(5)]]),
    (shift(np.array([1.0, -1.0])), [[4, 3], [1, -1], [0, 1]]),
    (
        affine(np.array([[1.0, 2], [0, -1], [1, 1]]), np.array([0.5, 0, 1])),
        [[11.5, -4, 8], [0.5, 0, 1], [3.5, -2, 2]],
    ),
    (affine(np.array([[1.0, 2]])), [[11], [0], [3]]),
    (
        rbf(np.array([[3.0, 4], [0, 0]]), 0.1),
        [[1, math.exp(-2.5)], [math.exp(-2.5), 1], [math.exp(-2), math.exp(-0.5)]],
    ),
    # Squared distances 25, 0, 40; 0, 25, 13; 5, 20, 4.
    (
        affinity(np.array([[0.0, 0], [3, 4], [-3, 2]]), 0.1, 2),
        [
            [math.exp(-2.5) / (1 + math.exp(-2.5)), 1 / (1 + math.exp(-2.5)), 0],
            [1 / (1 + math.exp(-1.3)), 0, math.exp(-1.3) / (1 + math.exp(-1.3))],
            [math.exp(-0.1) / (1 + math.exp(-0.1)), 0, 1 / (1 + math.exp(-0.1))],
        ],
    ),
    (Layer("relu"), [[3, 4], [0, 0], [0, 2]]),
    (Layer("tanh"), np.tanh(X)),
    (Layer("sin"), [[math.sin(3), math.sin(4)], [0, 0], [math.sin(-1), math.sin(2)]]),
    (Layer("cos"), [[math.cos(3), math.cos(4)], [1, 1], [math.cos(-1), math.cos(2)]]),
]


@pytest.mark.parametrize(("layer", "expected"), BY_HAND, ids=lambda x: getattr(x, "kind", ""))
def test_maps_rows(layer, expected):
    found = layer.apply(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert found.shape[1] == layer.output_dimension(2)


def test_normalize_takes_the_longest_and_shortest_vectors():
    extremes = np.array([[3e38, 3e38], [1e-45, 0]], dtype=np.float32)
    np.testing.assert_allclose(normalize().apply(extremes), [[math.sqrt(0.5)] * 2, [1, 0]])


def test_rbf_tells_near_rows_apart():
    anchors = np.array([[1000.0, 0.001], [1000.0, 0.0]])
    found = rbf(anchors, 1e6).apply(np.array([[1000.0, 0.0]], dtype=np.float32))
    np.testing.assert_allclose(found, [[math.exp(-1), 1]], rtol=1e-3)


LINE = np.array([[-2.0], [1], [2], [-1]])


@pytest.mark.parametrize(
    ("anchors", "nearest", "x", "expected"),
    [
        # At equal distances the first anchors are taken, also where only some of them fit.
        (LINE, 1, 0, [0, 1, 0, 0]),
        (LINE, 2, 0, [0, 0.5, 0, 0.5]),
        (LINE, 3, 0, [None, None, 0, None]),
        (LINE[:3] * [[1], [2], [1]], 2, 0, [0.5, 0.5, 0]),
        (np.ones((4, 1)), 2, 7, [0.5, 0.5, 0, 0]),
        (np.ones((4, 1)), 4, 7, [0.25] * 4),
        (LINE, 1, 1.5, [0, 1, 0, 0]),
        # Anchors so far that exp() of each distance is 0.
        (LINE, 2, 1e4, [0, 0, 1, 0]),
        (LINE, 2, -1e4, [1, 0, 0, 0]),
        (LINE, 4, 1e18, None),
        (LINE[:1], 1, 5, [1]),
    ],
)
def test_affinity_to_the_nearest(anchors, nearest, x, expected):
    (found,) = affinity(anchors, 1, nearest).apply(np.array([[x]], np.float32))
    assert found.sum() == pytest.approx(1, abs=1e-6)
    assert np.count_nonzero(found) <= nearest
    for value, wanted in zip(found, expected or (), strict=bool(expected)):
        if wanted is None:
            assert value > 0
        else:
            assert value == pytest.approx(wanted, abs=1e-7)


def test_affinity_to_the_first_of_many_equal_anchors():
    anchors = np.arange(300)[:, None] % 3
    found = affinity(anchors, 1e30, 50).apply(np.array([[0], [2.0]], np.float32))
    for row, start in zip(found, (0, 2), strict=True):
        assert np.flatnonzero(row).tolist() == list(range(start, 150, 3))


def test_affinity_is_the_share_of_the_kernel():
    """With all anchors near, it is rbf divided by its sum."""
    rng = np.random.default_rng(0)
    anchors, rows = rng.standard_normal((9, 5)), rng.standard_normal((30, 5)).astype(np.float32)
    kernel = rbf(anchors, 0.4).apply(rows)
    found = affinity(anchors, 0.4, 9).apply(rows)
    np.testing.assert_allclose(found, kernel / kernel.sum(axis=1, keepdims=True), rtol=1e-5)
    nearest = affinity(anchors, 0.4, 4).apply(rows)
    assert (np.count_nonzero(nearest, axis=1) == 4).all()
    kernel[nearest == 0] = 0
    np.testing.assert_allclose(nearest, kernel / kernel.sum(axis=1, keepdims=True), rtol=1e-5)
    assert (kernel.max(axis=1) == rbf(anchors, 0.4).apply(rows).max(axis=1)).all()


def test_keeps_what_the_database_keeps():
    layer = rbf(np.array([[0.1]]), 0.1)
    assert layer.weights.dtype == np.float32
    assert layer.scale == float(np.float32(0.1))
    with pytest.raises(ValueError, match="read-only"):
        layer.weights[0] = 2


ONE, TWO = np.ones(1), np.ones((2, 2))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("pickle",), "layer kind 'pickle' is unknown"),
        ((None,), "layer kind None is unknown"),
        ((["relu"],), "is unknown"),
        (("network",), "is unknown"),
        (("normalize", TWO), "takes no weights"),
        (("relu", None, ONE), "takes no bias"),
        (("tanh", None, None, 1.0), "has scale 1.0"),
        (("shift",), "needs bias"),
        (("shift", None, TWO), r"shape \(2, 2\)"),
        (("affine", TWO), "needs bias"),
        (("affine", None, ONE), "needs weights"),
        (("affine", ONE, ONE), r"weights .* shape \(1,\)"),
        (("affine", TWO, np.ones(3)), "2 rows of weights but 3 biases"),
        (("affine", np.ones((0, 2)), np.ones(0)), r"shape \(0, 2\)"),
        (
            ("affine", [[1.0, 2.0], [3.0]], [0, 0]),
            "weights of a layer .* cannot be read as an array",
        ),
        (("affine", [["a"]], [0.0]), "weights of a layer of kind affine must be numbers"),
        (("affine", [[{}]], [0.0]), "must be numbers"),
        (("affine", TWO, [0.0, "x"]), "bias of a layer of kind affine must be numbers"),
        (("affine", np.ones((3, 0)), np.ones(3)), "each side must be 1 to 16000"),
        (("affine", np.ones((16_001, 1)), np.ones(16_001)), "each side must be 1 to 16000"),
        (("affine", np.ones((2, 2, 2)), np.ones(2)), "have shape"),
        (("affine", TWO * np.nan, np.ones(2)), "not all finite"),
        (("affine", [[1e39]], [0.0]), "are not all finite"),
        (("affine", [[-np.inf]], [0.0]), "are not all finite"),
        (("affine", TWO, np.array([1, np.inf])), "not all finite"),
        (("rbf", TWO), "has scale None"),
        (("rbf", TWO, None, 0.0), "above 0, got 0"),
        (("rbf", TWO, None, -1.0), "above 0, got -1"),
        (("rbf", TWO, None, 1e-60), "above 0, got 0"),
        (("rbf", TWO, None, math.nan), "scale must be finite and above 0, got nan"),
        (("rbf", TWO, None, 1e39), "above 0, got inf"),
        (("rbf", TWO, None, 10**400), "scale must be a number, got 1000"),
        (("rbf", TWO, None, "wide"), "scale must be a number, got 'wide'"),
        (("rbf", TWO, None, [1.0, 2.0]), "scale must be a number, got"),
        (("affinity", TWO, None, 1.0), "affinity has nearest None"),
        (("affinity", TWO, None, None, 1), "affinity has scale None"),
        (("affinity", None, None, 1.0, 1), "needs weights"),
        (("affinity", TWO, ONE, 1.0, 1), "takes no bias"),
        (("affinity", TWO, None, 0.0, 1), "above 0, got 0"),
        (("affinity", TWO, None, 1.0, 0), "from 1 to the number of anchors, 2, got 0"),
        (("affinity", TWO, None, 1.0, 3), "from 1 to the number of anchors, 2, got 3"),
        (("affinity", TWO, None, 1.0, 1.5), r"number of anchors, 2, got 1\.5"),
        (("rbf", TWO, None, 1.0, 1), "rbf has nearest 1"),
        (("relu", None, None, None, 1), "relu has nearest 1"),
        (("shift", None, np.ones(16_001)), "1 to 16000"),
    ],
)
def test_refuses_bad_layers(args, message):
    with pytest.raises(InvalidInputError, match=message):
        Layer(*args)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "1 to 64 layers, got 0"),
        ([normalize()] * 65, "1 to 64 layers, got 65"),
        ([affine(TWO)], "takes 2 dimensions, got 3"),
        ([affine(np.ones((2, 3))), shift(np.ones(3))], "takes 3 dimensions, got 2"),
        ([rbf(np.ones((4, 2)), 1.0)], "takes 2 dimensions, got 3"),
        ([affinity(np.ones((4, 2)), 1.0, 2)], "takes 2 dimensions, got 3"),
        ([affinity(np.ones((4, 3)), 1.0, 2), affine(TWO)], "takes 2 dimensions, got 4"),
    ],
)
def test_models_refuse_layers_that_do_not_fit(layers, message):
    with pytest.raises(InvalidInputError, match=message):
        Model("m", "lsh", 3, layers)


def test_models_apply_layers_in_turn():
    model = Model("m", "test", 2, [shift(np.array([-3.0, -4])), Layer("relu"), affine(TWO)])
    assert model.n_bits == 2
    assert model.project([[4, 4], [0, 6]]).tolist() == [[1, 1], [2, 2]]
    assert model.encode([[4, 4], [0, 0]]).tolist() == [[0b1100_0000], [0]]
