import numpy as np
import pytest
import scipy.linalg

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import PCAH, SSH


def literal_matrix(X, S, eta, balance):
    """Every pair of rows by itself, in units of the greatest standard deviation."""
    X = X - X.mean(axis=0, dtype=np.float64)
    C = X.T @ X / len(X)
    pairs = [(i, j) for i in range(len(X)) for j in range(i) if S[i, j]]
    counts = {s: sum(S[pair] == s for pair in pairs) for s in (-1, 1)}
    M = np.zeros_like(C)
    for i, j in pairs:
        weight = 0.5 / counts[S[i, j]] if balance else 1 / len(pairs)
        M += weight * S[i, j] * (np.outer(X[i], X[j]) + np.outer(X[j], X[i])) / 2
    return (M + eta * C) / np.linalg.eigvalsh(C)[-1]


@pytest.fixture
def few(rows, labels):
    """Return 60 rows, the labels of 40 of them, and S."""
    y = np.where(np.arange(60) < 40, labels[:60], -1)
    known = (y >= 0)[:, None] & (y >= 0)
    return rows[:60], y, np.where(known, np.where(y[:, None] == y, 1, -1), 0)


@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("eta", [0.01, 1.0])
def test_directions_are_the_leading_eigenvectors(few, eta, balance):
    X, y, S = few
    hasher = SSH(n_bits=5, eta=eta, balance=balance).fit(X, y)
    values, vectors = scipy.linalg.eigh(literal_matrix(X, S, eta, balance))
    np.testing.assert_allclose(hasher.eigenvalues_, values[::-1][:5], rtol=1e-5)
    W = hasher.layers_[0].weights.astype(float)
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(W @ vectors[:, ::-1][:, :5]), np.eye(5), atol=1e-3)
    np.testing.assert_allclose(hasher.project(X).mean(axis=0), 0, atol=1e-5)


def test_explicit_pairs_win_over_labels(few):
    X, y, S = few
    pairs = np.array([[0, 1, -S[0, 1]], [50, 3, 1]])
    for i, j, s in pairs:
        S[i, j] = S[j, i] = s
    hasher = SSH(n_bits=3).fit(X, y, pairs=pairs)
    values = np.linalg.eigvalsh(literal_matrix(X, S, 0.03, balance=True))[::-1]
    np.testing.assert_allclose(hasher.eigenvalues_, values[:3], rtol=1e-5)
    assert hasher.n_neighbours_ + hasher.n_others_ == 40 * 39 // 2 + 1


def test_is_pcah_where_the_covariance_outweighs_the_pairs(rows, labels):
    found = SSH(n_bits=4, eta=1e9).fit(rows, labels).project(rows)
    expected = PCAH(n_bits=4).fit(rows).project(rows)
    correlation = np.corrcoef(found.T, expected.T)[:4, 4:]
    np.testing.assert_allclose(np.abs(correlation), np.eye(4), atol=1e-3)


def test_refuses(rows, labels):
    flat = np.hstack([rows[:, :3], np.ones((400, 9), np.float32)])
    with pytest.raises(InvalidInputError, match="the rows vary in only 3 directions"):
        SSH(n_bits=4).fit(flat, labels)
