"""The losses of the deep methods, against loops over the formulas of their papers."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.losses import (  # noqa: E402
    adsh_loss,
    csq_loss,
    deep_dsh_loss,
    dtsh_loss,
    greedyhash_loss,
    hashnet_loss,
)

ROWS, BITS, CLASSES = 6, 4, 3
CLASS = np.array([0, 1, 2, 0, 1, 0])
SIMILAR = CLASS[:, None] == CLASS
PAIRS = [(i, j) for i in range(ROWS) for j in range(ROWS) if i != j]


@pytest.fixture
def u():
    return np.random.default_rng(0).standard_normal((ROWS, BITS))


def known_pairs():
    """Return some pairs: of the first four rows, and their bool matrix."""
    known = np.zeros((ROWS, ROWS), bool)
    known[:4, :4] = True
    return known, [(i, j) for i, j in PAIRS if known[i, j]]


def value(loss, u, *given, **parameters):
    tensors = [torch.tensor(array) for array in given]
    return loss(torch.tensor(u), *tensors, **parameters).item()


def gradient(loss, u, *given, **parameters):
    tensors = [torch.tensor(array) for array in given]
    u = torch.tensor(u, requires_grad=True)
    loss(u, *tensors, **parameters).backward()
    return u.grad.numpy()


def numeric_gradient(function, u, step=1e-6):
    result = np.zeros_like(u)
    for place in np.ndindex(u.shape):
        moved = np.zeros_like(u)
        moved[place] = step
        result[place] = (function(u + moved) - function(u - moved)) / (2 * step)
    return result


def literal_hashnet(u, pairs, alpha, beta):
    """Equation 4, with the weights of equation 2."""
    h = np.tanh(beta * u)
    n_similar = sum(SIMILAR[i, j] for i, j in pairs)
    total = 0.0
    for i, j in pairs:
        s = float(SIMILAR[i, j])
        weight = len(pairs) / (n_similar if s else len(pairs) - n_similar)
        product = h[i] @ h[j]
        total += weight * (np.log(1 + np.exp(alpha * product)) - alpha * s * product)
    return total


@pytest.mark.parametrize("beta", [1.0, 5.0])
def test_hashnet(u, beta):
    expected = literal_hashnet(u, PAIRS, 0.7, beta)
    assert value(hashnet_loss, u, SIMILAR, alpha=0.7, beta=beta) == pytest.approx(expected)
    known, pairs = known_pairs()
    found = value(hashnet_loss, u, SIMILAR, known, alpha=0.7, beta=beta)
    assert found == pytest.approx(literal_hashnet(u, pairs, 0.7, beta))


def test_csq(u):
    centres = (np.random.default_rng(1).random((ROWS, BITS)) < 0.5).astype(float)
    h = 1 / (1 + np.exp(-u))
    central = rounding = 0.0
    for i, k in itertools.product(range(ROWS), range(BITS)):
        c = centres[i, k]
        central -= (c * np.log(h[i, k]) + (1 - c) * np.log(1 - h[i, k])) / BITS
        rounding += np.log(np.cosh(abs(2 * h[i, k] - 1) - 1))
    found = value(csq_loss, u, centres, weight=0.3)
    assert found == pytest.approx(central + 0.3 * rounding)


def test_csq_far_out():
    """Logarithms of 0 do not come up."""
    far = np.array([[1e4, -1e4]])
    assert value(csq_loss, far, np.array([[1.0, 0.0]]), weight=1.0) == 0
    assert value(csq_loss, far, np.array([[0.0, 1.0]]), weight=1.0) == 1e4


def test_greedyhash(u):
    rng = np.random.default_rng(2)
    W, shares = rng.standard_normal((CLASSES, BITS)), np.eye(CLASSES)[CLASS]
    # A row with two labels.
    shares[1] = 0, 0.5, 0.5
    b = np.where(u > 0, 1.0, -1.0)
    total = 0.0
    for i in range(ROWS):
        scores = np.array([W[c] @ b[i] for c in range(CLASSES)])
        for c in range(CLASSES):
            total -= shares[i, c] * np.log(np.exp(scores[c]) / np.exp(scores).sum())
        total += 0.2 * (abs(u[i] - b[i]) ** 3).sum()
    assert value(greedyhash_loss, u, shares, W, penalty=0.2) == pytest.approx(total)

    # The gradient of the entropy in b, passed on to u, and that of the penalty in u.
    odds = np.exp(b @ W.T)
    passed = (odds / odds.sum(axis=1, keepdims=True) - shares) @ W
    expected = passed + 0.2 * 3 * (u - b) ** 2 * np.sign(u - b)
    found = gradient(greedyhash_loss, u, shares, W, penalty=0.2)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_dtsh(u):
    triplets = np.array([[0, 3, 1], [3, 5, 2], [1, 4, 0], [1, 4, 0]])
    total = 0.0
    for q, p, n in triplets:
        x = u[q] @ u[p] / 2 - u[q] @ u[n] / 2 - 2.0
        total -= x - np.log(1 + np.exp(x))
    assert value(dtsh_loss, u, triplets, margin=2.0) == pytest.approx(total)
    assert value(dtsh_loss, u, triplets[:0], margin=2.0) == 0


def literal_adsh(u, V, S, own, gamma):
    h, total = np.tanh(u), 0.0
    for i in range(len(u)):
        for j in range(len(V)):
            total += (h[i] @ V[j] - BITS * S[i, j]) ** 2
        total += gamma * ((own[i] - h[i]) ** 2).sum()
    return total


@pytest.mark.parametrize("other", [-1.0, -0.25])
def test_adsh(u, other):
    rng = np.random.default_rng(3)
    V = rng.choice([-1.0, 1.0], (9, BITS))
    S = np.where(CLASS[:, None] == np.arange(9) % CLASSES, 1.0, other)
    own = V[:ROWS]
    given = own, S @ V, (S**2).sum(axis=1), V.T @ V
    expected = literal_adsh(u, V, S, own, 3.0)
    assert value(adsh_loss, u, *given, gamma=3.0) == pytest.approx(expected)
    found = gradient(adsh_loss, u, *given, gamma=3.0)
    by_steps = numeric_gradient(lambda at: literal_adsh(at, V, S, own, 3.0), u)
    np.testing.assert_allclose(found, by_steps, rtol=1e-5, atol=1e-6)


def literal_deep_dsh(u, pairs, margin, alpha):
    """Equation 4; its y is 1 for rows that are not similar."""
    total = 0.0
    for i, j in pairs:
        y, distance = 1.0 - SIMILAR[i, j], ((u[i] - u[j]) ** 2).sum()
        total += (1 - y) * distance / 2 + y * max(margin - distance, 0) / 2
        total += alpha * (abs(abs(u[i]) - 1).sum() + abs(abs(u[j]) - 1).sum())
    return total


def test_deep_dsh(u):
    # Some of the distances are above the margin.
    parameters = {"margin": 6.0, "alpha": 0.3}
    expected = literal_deep_dsh(u, PAIRS, **parameters)
    assert value(deep_dsh_loss, u, SIMILAR, **parameters) == pytest.approx(expected)
    known, pairs = known_pairs()
    found = value(deep_dsh_loss, u, SIMILAR, known, **parameters)
    assert found == pytest.approx(literal_deep_dsh(u, pairs, **parameters))
