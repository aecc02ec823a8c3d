import numpy as np
import pytest

from pg_hashindex.hashers import SH
from pg_hashindex.hashers.sh import slowest_modes


def literal_sh(X, n_bits):
    """Follow the paper: principal directions, all eigenfunctions of the box, the smallest."""
    centred = X - X.mean(axis=0, dtype=np.float64)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:n_bits]
    V = centred @ directions.T
    low, high = V.min(axis=0), V.max(axis=0)
    # Small enough for the exponentials to differ in float64.
    epsilon = 0.05 * (high - low).max() / n_bits
    waves = []
    for i in range(V.shape[1]):
        for k in range(1, n_bits + 1):
            omega = k * np.pi / (high[i] - low[i])
            eigenvalue = 1 - np.exp(-(epsilon**2) / 2 * omega**2)
            waves.append((eigenvalue, i, k, np.sin(np.pi / 2 + omega * (V[:, i] - low[i]))))
    waves.sort(key=lambda wave: wave[0])
    chosen = waves[:n_bits]
    return np.array([y for *_, y in chosen]).T, [(i, k) for _, i, k, _ in chosen]


def up_to_sign(found, expected):
    """Flip each column of the first that is the other way round: a direction has no sign."""
    return found * np.sign((found * expected).sum(axis=0))


@pytest.mark.parametrize("n_bits", [1, 5, 12, 40])
def test_agrees_with_the_paper(n_bits, rows):
    hasher = SH(n_bits=n_bits).fit(rows)
    expected, modes = literal_sh(rows, n_bits)
    assert hasher.modes_.tolist() == [list(mode) for mode in modes]
    np.testing.assert_allclose(up_to_sign(hasher.project(rows), expected), expected, atol=2e-4)
    assert [layer.kind for layer in hasher.layers_] == ["affine", "cos"]
    assert hasher.training_["directions"] == len({i for i, _ in modes})


def test_rows_beyond_the_box_follow_the_same_waves(rows):
    hasher = SH(n_bits=1).fit(rows)
    new = rows.mean(axis=0) + np.linspace(-9, 9, 50)[:, None] * (rows[0] - rows.mean(axis=0))
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    v, a, b = (new - rows.mean(axis=0)) @ direction, *np.sort(centred @ direction)[[0, -1]]
    expected = np.cos(np.pi * (v - a) / (b - a))
    assert v.min() < a
    found = hasher.project(new)[:, 0]
    # For one half period, the other sign of the direction turns the wave over.
    np.testing.assert_allclose(found * np.sign(found[0] * expected[0]), expected, atol=1e-4)


def test_slowest_modes_by_hand():
    # k / width: 1/4 2/4 3/4 1 ..., 1/2 1 ..., 1 ...; of equal ones the earlier direction first.
    widths = np.array([4.0, 2.0, 1.0])
    expected = [[0, 1], [0, 2], [1, 1], [0, 3], [0, 4], [1, 2], [2, 1], [0, 5]]
    for n_modes in range(1, 9):
        assert slowest_modes(widths, n_modes).tolist() == expected[:n_modes]
    assert slowest_modes(widths[::-1], 3).tolist() == [[2, 1], [1, 1], [2, 2]]
    assert slowest_modes(np.array([1.0, 1e-8, 0.0]), 3).tolist() == [[0, 1], [0, 2], [0, 3]]


@pytest.mark.parametrize("n_modes", [1, 7, 50])
def test_no_mode_left_out_is_slower(n_modes):
    widths = np.random.default_rng(1).exponential(size=9)
    modes = {(i, k) for i, k in slowest_modes(widths, n_modes).tolist()}
    assert len(modes) == n_modes
    worst = max(k / widths[i] for i, k in modes)
    others = [k / widths[i] for i in range(9) for k in range(1, 200) if (i, k) not in modes]
    assert worst <= min(others)


@pytest.fixture(scope="module")
def box():
    """Return rows spread evenly over a box, for which the eigenfunctions are exact."""
    return np.random.default_rng(3).uniform(0, [8, 5, 2], (3000, 3)).astype(np.float32)


def smoothness(Y, X, epsilon):
    """Return the objective, the mean of W_ij (y_i - y_j)^2 over all pairs, of each bit."""
    W = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / epsilon**2)
    return (2 * W.sum(axis=1) @ Y**2 - 2 * (Y * (W @ Y)).sum(axis=0)) / W.sum()


def test_functions_are_balanced_uncorrelated_and_smooth(box):
    X = box[:800]
    chosen = SH(n_bits=6).fit(box)
    assert np.abs(np.sign(chosen.project(box)).mean(axis=0)).max() < 0.06
    # The eigenfunctions are uncorrelated; the signs of cos(x) and cos(3 x) are not quite.
    assert np.abs(np.corrcoef(chosen.project(box).T) - np.eye(6)).max() < 0.06
    # The objective rises with the order, and later functions and shuffled rows have more of it.
    ours = smoothness(chosen.project(X), X, 0.8)
    assert (np.diff(ours) > -0.02).all()
    later = smoothness(SH(n_bits=16).fit(box).project(X), X, 0.8)[10:]
    assert ours.max() < later.min()
    shuffled = np.random.default_rng(0).permutation(X)
    assert ours.max() < smoothness(chosen.project(shuffled), X, 0.8).min()


def test_more_bits_than_dimensions_follow_wide_directions(box):
    hasher = SH(n_bits=30).fit(box)
    counts = np.bincount(hasher.modes_[:, 0], minlength=3)
    widths = hasher.high_ - hasher.low_
    assert counts.sum() == 30
    np.testing.assert_allclose(counts / 30, widths / widths.sum(), atol=0.04)
    bits = hasher.project(box) > 0
    assert 0.3 < bits.mean(axis=0).min() < bits.mean(axis=0).max() < 0.7


@pytest.mark.parametrize("offset", [0, 1000])
def test_no_bit_is_made_of_a_direction_without_spread(offset, rows):
    flat = np.hstack([rows[:, :2], np.full((400, 5), 3, np.float32)]) + np.float32(offset)
    hasher = SH(n_bits=50).fit(flat)
    assert set(hasher.modes_[:, 0]) == {0, 1}
    bits = hasher.project(flat) > 0
    assert 0.1 < bits.mean(axis=0).min() < bits.mean(axis=0).max() < 0.9
