import numpy as np
import pytest
import scipy.linalg
from fixtures.literal import literal_itq

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQCCA
from pg_hashindex.hashers.itq import random_rotation


def indicator(labels):
    return (labels[:, None] == np.unique(labels)).astype(np.float64)


def covariances(X, Y, ridge):
    """Return Cxx, Cxy and Cyy, with the ridges."""
    X, Y = (A - A.mean(axis=0, dtype=np.float64) for A in (X, Y))
    Cxx, Cxy, Cyy = X.T @ X / len(X), X.T @ Y / len(X), Y.T @ Y / len(X)
    for C in (Cxx, Cyy):
        C += ridge * np.trace(C) / len(C) * np.eye(len(C))
    return Cxx, Cxy, Cyy


def inverse_root(C):
    values, vectors = np.linalg.eigh(C)
    return vectors / np.sqrt(values) @ vectors.T


def literal_cca(X, Y, ridge):
    """Whiten both sides by symmetric roots; the singular values of the rest are correlations."""
    Cxx, Cxy, Cyy = covariances(X, Y, ridge)
    left, correlations, _ = scipy.linalg.svd(inverse_root(Cxx) @ Cxy @ inverse_root(Cyy))
    W = inverse_root(Cxx) @ left
    return correlations, W * np.sign(W[np.abs(W).argmax(axis=0), np.arange(W.shape[1])])


@pytest.fixture(scope="module")
def several():
    """Return rows and several labels each, some of them none."""
    rng = np.random.default_rng(2)
    Y = (rng.random((400, 9)) < 0.25).astype(int)
    X = Y @ rng.standard_normal((9, 12)) + rng.standard_normal((400, 12)) + 3
    return X.astype(np.float32), Y


@pytest.mark.parametrize(("n_bits", "ridge"), [(3, 0.01), (7, 0.01), (7, 1e-8), (16, 0.3)])
def test_agrees_with_the_paper(n_bits, ridge, rows, labels):
    hasher = ITQCCA(n_bits=n_bits, n_iter=10, ridge=ridge, random_state=2).fit(rows, labels)
    correlations, W = literal_cca(rows, indicator(labels), ridge)
    k = min(n_bits, 7)
    np.testing.assert_allclose(hasher.correlations_, correlations[:k], atol=1e-5)

    # The paper pads what is missing to n_bits directions: here with zeros, where the authors'
    # program has directions of correlations that are 0 up to rounding.
    V = np.zeros((400, n_bits))
    V[:, :k] = (rows - rows.mean(axis=0, dtype=np.float64)) @ (W[:, :k] * correlations[:k])
    start = random_rotation(k, n_bits, np.random.default_rng(2))
    square = np.vstack([start, scipy.linalg.null_space(start).T])
    R = literal_itq(V, square, 10)[0]
    expected = V @ R
    np.testing.assert_allclose(hasher.project(rows), expected, atol=5e-4)
    loss = ((np.where(expected > 0, 1, -1) - expected) ** 2).sum() / 400
    assert hasher.quantization_loss_[-1] == pytest.approx(loss, rel=1e-4)


def test_directions_solve_the_generalised_eigenproblem(several):
    X, Y = several
    labelled = Y.any(axis=1)
    hasher = ITQCCA(n_bits=5, random_state=0).fit(X, Y)
    Cxx, Cxy, Cyy = covariances(X[labelled], Y[labelled], 0.01)
    squares, W = scipy.linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx)
    np.testing.assert_allclose(hasher.correlations_**2, squares[:-6:-1], atol=1e-5)
    # The weights span the leading directions, whatever the rotation.
    (layer,) = hasher.layers_
    best = scipy.linalg.orth(W[:, :-6:-1])
    weights = layer.weights.T.astype(np.float64)
    np.testing.assert_allclose(best @ (best.T @ weights), weights, atol=1e-4)


def test_correlations_are_those_of_the_rows(several):
    X, Y = several
    hasher = ITQCCA(n_bits=9, ridge=1e-8, random_state=0).fit(X, Y)
    labelled = Y.any(axis=1)
    X, Y = (A - A.mean(axis=0) for A in (X[labelled].astype(np.float64), Y[labelled]))

    def correlation(w):
        """Return the correlation with the best linear function of the labels."""
        fitted = Y @ np.linalg.lstsq(Y, X @ w)[0]
        return np.linalg.norm(fitted) / np.linalg.norm(X @ w)

    _, W = literal_cca(X, Y, 1e-8)
    found = [correlation(W[:, k]) for k in range(9)]
    np.testing.assert_allclose(hasher.correlations_, found, atol=1e-5)
    assert (np.diff(hasher.correlations_) <= 0).all()
    random = [correlation(w) for w in np.random.default_rng(0).standard_normal((200, 12))]
    assert max(random) < hasher.correlations_[0]
    assert hasher.training_["greatest_correlation"] == hasher.correlations_[0]


@pytest.mark.parametrize("ridge", [1e-8, 0.01, 2.0])
def test_more_classes_than_dimensions(ridge, rows):
    y = np.random.default_rng(0).integers(40, size=400)
    hasher = ITQCCA(n_bits=12, n_iter=0, ridge=ridge, random_state=0).fit(rows, y)
    correlations, W = literal_cca(rows, indicator(y), ridge)
    np.testing.assert_allclose(hasher.correlations_, correlations[:12], atol=1e-5)
    scaled = (rows - rows.mean(axis=0, dtype=np.float64)) @ (W[:, :12] * correlations[:12])
    rotation = random_rotation(12, 12, np.random.default_rng(0))
    np.testing.assert_allclose(hasher.project(rows), scaled @ rotation, atol=5e-4)


@pytest.mark.parametrize("n_bits", [4, 7, 40])
def test_loss_never_rises(n_bits, rows, labels):
    for seed in range(4):
        hasher = ITQCCA(n_bits=n_bits, n_iter=60, random_state=seed).fit(rows, labels)
        losses = hasher.quantization_loss_
        assert len(losses) == 61
        assert (np.diff(losses) <= 1e-6 * losses[:-1]).all()
        assert losses[-1] < losses[0]


def test_one_label_a_row_gives_a_direction_less_than_classes(rows, labels):
    hasher = ITQCCA(n_bits=40, random_state=0).fit(rows, labels)
    assert hasher.training_["directions"] == len(hasher.correlations_) == 7
    weights = hasher.layers_[0].weights.astype(np.float64)
    assert np.linalg.matrix_rank(weights, tol=1e-4 * np.abs(weights).max()) == 7
    bits = hasher.project(rows) > 0
    assert len(np.unique(bits.T, axis=0)) > 30


def test_two_classes_give_one_bit(rows, labels):
    bits = ITQCCA(n_bits=6, random_state=0).fit(rows, labels // 4).project(rows) > 0
    assert ((bits == bits[:, :1]).all(axis=0) | (bits != bits[:, :1]).all(axis=0)).all()


def test_unlabelled_rows_play_no_part(rows, labels):
    some = np.where(np.arange(400) % 3 == 0, -1, labels)
    moved = rows.copy()
    moved[some < 0] += 100
    expected = ITQCCA(n_bits=9, random_state=0).fit(rows[some >= 0], some[some >= 0])
    found = ITQCCA(n_bits=9, random_state=0).fit(moved, some)
    np.testing.assert_allclose(found.project(rows), expected.project(rows), atol=1e-5)


def test_dimensions_without_variance(rows, labels):
    flat = np.hstack([rows[:, :3], np.full((400, 9), 2.5, np.float32)])
    hasher = ITQCCA(n_bits=12, random_state=0).fit(flat, labels)
    assert len(hasher.correlations_) == 3
    bits = hasher.project(flat) > 0
    assert 0.1 < bits.mean(axis=0).min() < bits.mean(axis=0).max() < 0.9


def test_refuses_labels_that_tell_nothing():
    square = np.tile([[1.0, 0], [-1, 0], [0, 1], [0, -1]], (10, 1))
    with pytest.raises(InvalidInputError, match="all classes have the same mean"):
        ITQCCA(n_bits=4).fit(square, np.tile([0, 0, 1, 1], 10))
    with pytest.raises(InvalidInputError, match="the 10 labelled rows are all equal"):
        ITQCCA(n_bits=4).fit(
            np.vstack([np.ones((10, 3)), np.eye(3)]), np.r_[np.arange(10) % 2, [-1] * 3]
        )
    with pytest.raises(InvalidInputError, match="or all have the same labels"):
        ITQCCA(n_bits=4).fit(square, np.ones((40, 2), int))
