import numpy as np
import pytest
import scipy.linalg
from fixtures.clusters import up_to_sign_and_size

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import SGH
from pg_hashindex.hashers.sgh import feature_map


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def literal_sgh(X, anchors, n_bits, rho, rng):
    """Follow the paper line by line: the n x n similarity, a generalised eigenproblem a bit."""
    squares = (X**2).sum(axis=1, keepdims=True)
    decay = np.exp(-squares / rho)
    a = np.sqrt(2 * (np.e**2 - 1) / (np.e * rho)) * decay
    b = np.sqrt((np.e**2 + 1) / np.e) * decay
    one = np.ones_like(a)
    P, Q = np.hstack([a * X, b, one]).T, np.hstack([a * X, b, -one]).T
    similarity = P.T @ Q

    distances = ((X[:, None] - anchors[None]) ** 2).sum(axis=2)
    K = np.exp(-distances / (2 * distances.mean()))
    K -= K.mean(axis=0)
    A = n_bits * K.T @ similarity @ K
    Z = K.T @ K + 1e-6 * np.eye(len(anchors))

    def leading():
        return scipy.linalg.eigh(A, Z)[1][:, -1]

    def term(w):
        s = np.where(K @ w > 0, 1.0, -1.0)
        return np.outer(K.T @ s, s @ K)

    W = []
    for _ in range(n_bits):
        W.append(leading())
        A -= term(W[-1])
    for t in rng.permutation(n_bits):
        A += term(W[t])
        W[t] = leading()
        A -= term(W[t])
    return K @ np.array(W).T


@pytest.mark.parametrize(("n_anchors", "n_bits"), [(10, 4), (25, 16), (25, 40)])
def test_agrees_with_the_paper(n_anchors, n_bits, rows):
    anchors = rows[5 : 5 + n_anchors]
    hasher = SGH(n_bits=n_bits, anchors=anchors, random_state=4).fit(rows)
    mean = rows.mean(axis=0, dtype=np.float64)
    expected = literal_sgh(
        unit(rows - mean), unit(anchors - mean), n_bits, 2.0, np.random.default_rng(4)
    )
    projections = hasher.project(rows).astype(np.float64)
    assert ((projections > 0) == (expected > 0)).mean(axis=0).min() > 0.99 or (
        # A bit's sign as a whole means nothing.
        np.abs(np.where((projections > 0) == (expected > 0), 1, -1).mean(axis=0)).min() > 0.98
    )
    np.testing.assert_allclose(
        up_to_sign_and_size(projections), up_to_sign_and_size(expected), atol=2e-3
    )


def test_agrees_with_the_paper_unscaled(rows):
    X = rows / 40
    rho = 2.5 * float((X**2).sum(axis=1).max())
    hasher = SGH(n_bits=8, anchors=X[:20], rho=rho, scale=None, random_state=0).fit(X)
    expected = literal_sgh(
        X.astype(np.float64), X[:20].astype(np.float64), 8, rho, np.random.default_rng(0)
    )
    np.testing.assert_allclose(
        up_to_sign_and_size(hasher.project(X).astype(np.float64)),
        up_to_sign_and_size(expected),
        atol=5e-3,
    )
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift", "affine"]


def test_transform_approximates_the_similarity(rows):
    X = unit(rows - rows.mean(axis=0))
    P = feature_map(X, 2.0)
    true = 2 * np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 2) - 1
    approximate = P @ P.T - 1
    # e^t is taken for sinh(1) t + cosh(1), on [-1, 1]: farthest off where the slopes are equal.
    farthest = np.sinh(1) * np.log(np.sinh(1)) + np.cosh(1) - np.sinh(1)
    assert np.abs(true - approximate).max() <= farthest * 2 / np.e + 1e-6


def test_layers_and_width(rows):
    hasher = SGH(n_bits=6, n_anchors=30, normalize="l2", random_state=0).fit(rows)
    kinds = [layer.kind for layer in hasher.layers_]
    assert kinds == ["normalize", "shift", "normalize", "rbf", "shift", "affine"]
    X = unit(rows)
    X = unit(X - X.mean(axis=0))
    distances = ((X[:, None] - hasher.anchors_[None]) ** 2).sum(axis=2)
    assert hasher.width_ == pytest.approx(distances.mean(), rel=1e-5)
    assert hasher.layers_[3].scale == pytest.approx(1 / (2 * hasher.width_), rel=1e-6)
    assert hasher.training_["anchors"] == 30
    np.testing.assert_allclose(np.linalg.norm(hasher.layers_[-1].weights, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(hasher.project(rows).mean(axis=0), 0, atol=1e-6)


def test_anchors_are_distinct_training_rows(rows):
    repeated = np.repeat(rows[:40], 5, axis=0)
    hasher = SGH(n_bits=4, n_anchors=60, scale=None, rho=1e4, random_state=0).fit(repeated)
    anchors = {row.tobytes() for row in hasher.anchors_}
    assert len(anchors) == len(hasher.anchors_) > 30
    assert anchors <= {row.tobytes() for row in rows[:40]}


def test_given_anchors_go_the_way_of_the_rows(rows):
    given = SGH(n_bits=6, anchors=rows[:20].tolist(), normalize="l2", random_state=0).fit(rows)
    X = unit(rows.astype(np.float64))
    np.testing.assert_allclose(given.anchors_, unit(X - X.mean(axis=0))[:20], atol=1e-5)
    assert given.to_model("m").parameters["anchors"] == "given, 20 x 12"


@pytest.mark.parametrize(
    "X",
    [
        np.array([[0.0, 1.0], [1.0, 3.0]]),
        np.arange(50.0)[:, None],
        np.eye(8),
        np.random.default_rng(0).standard_normal((50, 2)),
        np.repeat(np.random.default_rng(0).standard_normal((20, 8)), 10, axis=0),
    ],
    ids=["two rows", "one dimension", "as many anchors as rows", "smooth", "repeated"],
)
def test_no_bit_is_made_of_rounding(X):
    """More bits than the kernel has directions: none may fall to one in which it is constant."""
    hasher = SGH(n_bits=64, n_anchors=150, random_state=0).fit(X)
    projections = hasher.project(X)
    assert projections.std(axis=0).min() > 1e-3
    bits = projections > 0
    assert (bits.any(axis=0) & ~bits.all(axis=0)).all()


def sequential(layers, X, dtype):
    """Evaluate layers in another way than the library: one term of each sum at a time."""
    X = X.astype(dtype)
    for layer in layers:
        if layer.kind == "normalize":
            X = (X / np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)).astype(dtype)
        elif layer.kind == "shift":
            X = X + layer.bias.astype(dtype)
        else:
            total = np.zeros((len(X), len(layer.weights)), dtype)
            for x, w in zip(X.T, layer.weights.T.astype(dtype), strict=True):
                total += (x[:, None] - w) ** 2 if layer.kind == "rbf" else x[:, None] * w
            if layer.kind == "rbf":
                X = np.exp(-layer.scale * total.astype(np.float64)).astype(dtype)
            else:
                X = total + layer.bias.astype(dtype)
    return X


def test_float32_in_another_order_gives_the_same_bits():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, 64))
    X = (centres[rng.integers(50, size=3000)] + rng.standard_normal((3000, 64))).astype(np.float32)
    hasher = SGH(n_bits=64, n_anchors=150, random_state=0).fit(X)
    X = X[:1000]
    exact, other = (sequential(hasher.layers_, X, t) for t in (np.float64, np.float32))
    spread = exact.std(axis=0)
    for found in (other, hasher.project(X)):
        assert np.sqrt(np.mean(((found - exact) / spread) ** 2)) < 3e-5
        differing = (found > 0) != (exact > 0)
        assert (np.abs(exact / spread)[differing] < 1e-4).all()


def test_refuses_anchors_that_tell_nothing():
    with pytest.raises(InvalidInputError, match="equally far from the 1 anchors"):
        SGH(n_bits=8, anchors=[[0.0, 0.0]], scale=None, rho=4).fit(np.array([[1.0, 0], [-1, 0]]))
