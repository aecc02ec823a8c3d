import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from fixtures.clusters import several_labels
from fixtures.literal import kernel_values

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import KSH
from pg_hashindex.hashers.ksh import _Bits
from pg_hashindex.hashers.supervision.labels import Labels


def similarities(indicator):
    return np.where(indicator @ indicator.T > 0, 1.0, -1.0)


def literal_spectral_ksh(K, S, n_bits):
    """Build the l x l residual, and solve a generalised eigenproblem for each bit."""
    R, weights, losses = n_bits * S, [], [np.sum((n_bits * S) ** 2)]
    for _ in range(n_bits):
        a = scipy.linalg.eigh(K.T @ R @ K, K.T @ K)[1][:, -1]
        h = np.where(K @ a > 0, 1.0, -1.0)
        R = R - np.outer(h, h)
        losses.append(np.sum(R**2))
        weights.append(a)
    return np.array(weights), np.array(losses)


@pytest.mark.parametrize("several", [False, True])
def test_spectral_relaxation_agrees_with_the_paper(several, rows, labels):
    y = several_labels() if several else labels
    indicator = y if several else np.eye(8, dtype=int)[labels]
    anchors = rows[:25]
    hasher = KSH(n_bits=8, anchors=anchors, n_iter=0, random_state=0).fit(rows, y)
    K = kernel_values(rows, anchors)
    weights, losses = literal_spectral_ksh(K, similarities(indicator), 8)
    projections, expected = hasher.project(rows), K @ weights.T
    expected *= np.sign((projections * expected).sum(axis=0))
    np.testing.assert_allclose(projections, expected / expected.std(axis=0), atol=2e-3)
    np.testing.assert_allclose(hasher.objective_, losses / losses[0], rtol=1e-9)


def test_surrogate_is_that_of_the_paper(rows):
    indicator = several_labels()
    K = kernel_values(rows, rows[:20])
    bits = _Bits(K, Labels.read(indicator, 400), 6)
    for _ in range(2):
        bits.next(10)
    R = 6 * similarities(indicator)
    for h in bits._bits[:2]:
        R -= np.outer(h, h)
    a = np.random.default_rng(0).standard_normal(bits._Z.shape[1])
    g = 2 / (1 + np.exp(-bits._Z @ a)) - 1
    value, gradient = bits._surrogate(a)
    assert value == pytest.approx(-g @ R @ g / 400**2)
    numeric = scipy.optimize.approx_fprime(a, lambda a: bits._surrogate(a)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    h = np.where(bits._Z @ a > 0, 1.0, -1.0)
    np.testing.assert_allclose(bits._residual(h), R @ h, atol=1e-9)
    np.testing.assert_allclose(bits._matrix, bits._Z.T @ R @ bits._Z, atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_objective_is_the_loss_and_falls(several, rows, labels):
    y = several_labels() if several else labels
    indicator = y if several else np.eye(8, dtype=int)[labels]
    hasher = KSH(n_bits=12, random_state=0).fit(rows, y)
    H = np.where(hasher.project(rows) > 0, 1.0, -1.0)
    S = 12 * similarities(indicator)
    losses = [np.sum((S - H[:, :k] @ H[:, :k].T) ** 2) for k in range(13)]
    np.testing.assert_allclose(hasher.objective_, np.array(losses) / losses[0], rtol=1e-9)
    assert (np.diff(hasher.objective_) < 0).all()
    spectral = KSH(n_bits=12, n_iter=0, random_state=0).fit(rows, y)
    assert hasher.objective_[-1] < 0.95 * spectral.objective_[-1]


def test_layers(rows, labels):
    hasher = KSH(n_bits=9, n_anchors=50, random_state=0).fit(rows, labels)
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift", "affine"]
    assert hasher.layers_[0].weights.shape == (50, 12)
    projections = hasher.project(rows)
    np.testing.assert_allclose(projections.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(projections.std(axis=0), 1, rtol=1e-3)


def test_learns_from_a_sample_of_the_labelled_rows(rows, labels):
    hasher = KSH(n_bits=8, n_anchors=50, max_labelled=100, random_state=0).fit(rows, labels)
    everything = KSH(n_bits=8, n_anchors=50, random_state=0).fit(rows, labels)
    assert not np.array_equal(hasher.encode(rows), everything.encode(rows))
    codes = hasher.project(rows) > 0
    distances = (codes[:, None] != codes[None]).sum(axis=2)
    same = labels[:, None] == labels
    assert distances[same].mean() < distances[~same].mean() - 2


def test_kernel_is_centred_on_all_rows(rows, labels):
    y = np.where(np.arange(400) < 200, labels, -1)
    hasher = KSH(n_bits=8, n_anchors=50, random_state=0).fit(rows, y)
    rbf, shift, _ = hasher.layers_
    np.testing.assert_allclose(shift.bias, -rbf.apply(rows).mean(axis=0), atol=1e-6)


def test_refuses_rows_that_tell_nothing():
    same = np.repeat([[0.0, 1.0]], 30, axis=0)
    with pytest.raises(InvalidInputError, match="30 labelled rows are equally far"):
        KSH(n_bits=4).fit(np.vstack([same, [[5.0, 5.0]]]), [*(np.arange(30) % 3), -1])


def test_refuses_labelled_rows_that_all_have_the_same_labels(rows):
    with pytest.raises(InvalidInputError, match="the 400 labelled rows .* all have the same lab"):
        KSH(n_bits=8).fit(rows, np.ones((400, 2), int))
