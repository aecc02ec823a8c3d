import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ, PCAH
from pg_hashindex.hashers.itq import random_rotation


def literal_itq(V, R, n_iter):
    """Alternate as the paper writes it, and return the rotation and every loss."""
    losses = []
    for _ in range(n_iter):
        B = np.where(V @ R > 0, 1.0, -1.0)
        losses.append(((B - V @ R) ** 2).sum())
        S, _, Shat = np.linalg.svd(B.T @ V)
        R = (S @ Shat).T
    losses.append(((np.where(V @ R > 0, 1.0, -1.0) - V @ R) ** 2).sum())
    return R, losses


@pytest.mark.parametrize("n_bits", [1, 6, 12])
def test_agrees_with_the_paper(n_bits, rows):
    hasher = ITQ(n_bits=n_bits, n_iter=10, random_state=2).fit(rows)
    pca = PCAH(n_bits=n_bits).fit(rows)
    V = (rows - rows.mean(axis=0, dtype=np.float64)) @ pca.layers_[0].weights.T.astype(np.float64)
    start = random_rotation(n_bits, n_bits, np.random.default_rng(2))
    R, losses = literal_itq(V, start, 10)
    np.testing.assert_allclose(hasher.project(rows), V @ R, atol=1e-3)
    np.testing.assert_allclose(hasher.quantization_loss_ * 400, losses, rtol=1e-4)


def test_loss_never_rises(rows):
    for seed in range(5):
        losses = ITQ(n_bits=10, n_iter=80, random_state=seed).fit(rows).quantization_loss_
        assert len(losses) == 81
        assert (np.diff(losses) <= 1e-6 * losses[:-1]).all()
        assert losses[-1] < losses[0]


def test_only_rotates_the_principal_directions(rows):
    W = ITQ(n_bits=7, random_state=0).fit(rows).layers_[0].weights
    P = PCAH(n_bits=7).fit(rows).layers_[0].weights
    np.testing.assert_allclose(W @ W.T, np.eye(7), atol=1e-5)
    np.testing.assert_allclose(W.T @ W, P.T @ P, atol=1e-5)


def test_without_rounds_it_is_a_random_rotation(rows):
    hasher = ITQ(n_bits=4, n_iter=0, random_state=0).fit(rows)
    assert hasher.quantization_loss_.shape == (1,)


def test_first_rotation_is_orthogonal():
    R = random_rotation(30, 30, np.random.default_rng(0))
    np.testing.assert_allclose(R @ R.T, np.eye(30), atol=1e-12)


def test_rows_may_vary_in_fewer_directions_than_bits(rows):
    flat = rows.copy()
    flat[:, 5:] = 1
    bits = ITQ(n_bits=8, random_state=0).fit(flat).project(flat) > 0
    assert (bits.mean(axis=0) > 0.05).all()
    assert (bits.mean(axis=0) < 0.95).all()


def test_refuses_more_bits_than_dimensions(rows):
    with pytest.raises(InvalidInputError, match=r"n_bits is 16: ask for at most 12 .*sgh or lsh"):
        ITQ(n_bits=16).fit(rows)


@pytest.mark.parametrize("n_iter", [-1, 2.0, None])
def test_refuses_n_iter(n_iter, rows):
    with pytest.raises(InvalidInputError, match=f"n_iter must be an integer .* {n_iter}"):
        ITQ(n_bits=4, n_iter=n_iter).fit(rows)
