import numpy as np
import pytest

from pg_hashindex.hashers import PCAH, IsoHash
from pg_hashindex.hashers.isohash import isotropic_rotation
from pg_hashindex.hashers.itq import random_rotation


def literal_lift_and_projection(L, Q, n_iter):
    """Steps on matrices: the mean on the diagonal, then the eigenvalues L, each the greatest on
    the eigenvector of the greatest."""
    Z = Q @ np.diag(L) @ Q.T
    for _ in range(n_iter):
        T = Z + np.diag(np.full(len(L), L.sum() / len(L)) - np.diag(Z))
        values, vectors = np.linalg.eig(T)
        order = np.argsort(-values.real)
        vectors = vectors.real[:, order]
        Z = vectors @ np.diag(np.sort(L)[::-1]) @ vectors.T
    return Z


@pytest.mark.parametrize("n_iter", [0, 1, 5])
def test_rounds_are_those_of_the_paper(n_iter):
    L = np.array([9.0, 4, 2, 1, 0.5])
    start = random_rotation(5, 5, np.random.default_rng(0))
    Q = isotropic_rotation(L, start, n_iter)
    np.testing.assert_allclose(Q @ Q.T, np.eye(5), atol=1e-12)
    Z = literal_lift_and_projection(L, start, n_iter)
    np.testing.assert_allclose(Q @ np.diag(L) @ Q.T, Z, atol=1e-8)


def test_of_two_directions_the_rotation_is_half_a_right_angle():
    Q = isotropic_rotation(np.array([3.0, 1]), np.eye(2), 0)
    assert np.array_equal(Q, np.eye(2))
    start = np.array([[0.8, 0.6], [-0.6, 0.8]])
    np.testing.assert_allclose(
        np.abs(isotropic_rotation(np.array([3.0, 1]), start, 50)), np.sqrt(0.5), atol=1e-3
    )


def test_all_bits_have_the_same_variance(rows):
    hasher = IsoHash(n_bits=8, random_state=0).fit(rows)
    projections = hasher.project(rows)
    found = projections.var(axis=0)
    np.testing.assert_allclose(found, found.mean(), rtol=3e-3)
    np.testing.assert_allclose(found, hasher.variances_, rtol=1e-4)
    # A rotation of the principal directions: the total variance and the space are theirs.
    principal = PCAH(n_bits=8).fit(rows)
    assert found.sum() == pytest.approx(principal.explained_variance_.sum(), rel=1e-4)
    W = hasher.layers_[0].weights.astype(float)
    V = principal.layers_[0].weights.astype(float)
    np.testing.assert_allclose(W @ W.T, np.eye(8), atol=1e-5)
    np.testing.assert_allclose(W @ V.T @ V, W, atol=1e-5)
    assert hasher.training_["variance_ratio"] > 0.99


def test_takes_rows_that_vary_in_fewer_directions_than_there_are_bits(rows):
    flat = np.hstack([rows[:, :4], np.zeros((400, 6), np.float32)])
    bits = IsoHash(n_bits=8, random_state=0).fit(flat).project(flat) > 0
    assert 0.2 < bits.mean(axis=0).min() < bits.mean(axis=0).max() < 0.8
