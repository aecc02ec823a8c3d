import numpy as np
import pytest

from pg_hashindex.hashers import LFH
from pg_hashindex.hashers.lfh import update
from pg_hashindex.hashers.supervision.labels import Labels

N, R, BETA = 30, 3, 5.0
DRAWN = np.array([4, 20, 11])
OTHERS = np.setdiff1d(np.arange(N), DRAWN)


def similar(several):
    rng = np.random.default_rng(2)
    y = np.eye(4, dtype=int)[rng.integers(4, size=N)]
    y = y | np.eye(4, dtype=int)[rng.integers(4, size=N)] if several else y
    return y, (y @ y.T > 0).astype(float)


def log_posterior(U, s):
    """Sum over the pairs of a drawn row and another one, each in both orders."""
    total = -np.square(U).sum() / (2 * BETA)
    for i in OTHERS:
        for j in DRAWN:
            T = U[i] @ U[j] / 2
            total += 2 * (s[i, j] * T - np.log(1 + np.exp(T)))
    return total


@pytest.mark.parametrize("several", [False, True])
def test_update_is_that_of_the_paper(several):
    y, s = similar(several)
    U = np.random.default_rng(1).standard_normal((N, R))
    expected = U.copy()
    for rows, known in ((OTHERS, DRAWN), (DRAWN, OTHERS)):
        for i in rows:
            gradient, H = -expected[i] / BETA, np.eye(R) / BETA
            for j in known:
                a = 1 / (1 + np.exp(-expected[i] @ expected[j] / 2))
                gradient += (s[i, j] - a) * expected[j]
                H += np.outer(expected[j], expected[j]) / 8
            expected[i] += np.linalg.solve(H, gradient)
    found = U.astype(np.float32)
    update(found, Labels.read(y, N), DRAWN, BETA)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_gradient_is_that_of_the_posterior():
    """By finite differences: a step along H^-1 g from where the posterior is greatest is 0."""
    y, s = similar(False)
    U = np.random.default_rng(1).standard_normal((N, R)).astype(np.float32)
    values = [log_posterior(U.astype(float), s)]
    for _ in range(300):
        update(U, Labels.read(y, N), DRAWN, BETA)
        values.append(log_posterior(U.astype(float), s))
    assert (np.diff(values) > -1e-4).all()
    exact, step = U.astype(float), 1e-3
    for place in [(0, 0), (4, 1), (11, 2), (29, 2)]:
        moved = np.zeros((N, R))
        moved[place] = step
        slope = (log_posterior(exact + moved, s) - log_posterior(exact - moved, s)) / (2 * step)
        assert abs(slope) < 1e-2


def test_loss_is_the_mean_over_the_pairs_after_the_first_half():
    y, s = similar(False)
    U = np.random.default_rng(1).standard_normal((N, R)).astype(np.float32)
    before = U[DRAWN].copy()
    loss = update(U, Labels.read(y, N), DRAWN, BETA)
    T = U[OTHERS] @ before.T / 2
    expected = np.log(1 + np.exp(T)) - s[np.ix_(OTHERS, DRAWN)] * T
    assert loss == pytest.approx(expected.mean(), rel=1e-5)


def test_codes_tell_labels_apart(rows, labels):
    hasher = LFH(n_bits=16, n_anchors=50, random_state=0).fit(rows, labels)
    learned = np.unpackbits(hasher.codes_, axis=1).astype(int)
    distances = (learned[:, None] != learned[None]).sum(axis=2)
    same = labels[:, None] == labels
    assert distances[same].mean() < 1
    assert distances[~same].mean() > 5
    assert hasher.losses_.shape == (50,)
    assert hasher.losses_[-1] < 0.5 * hasher.losses_[0]
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift", "affine"]
    assert [layer.kind for layer in LFH(n_bits=8).fit(rows, labels).layers_] == ["affine"]
