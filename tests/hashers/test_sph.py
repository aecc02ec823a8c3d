import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import SpH
from pg_hashindex.hashers.sph import forces


def test_forces_by_hand():
    # o_12 is a quarter more than it ought to be: each moves away by an eighth of p_1 - p_2 ...
    excess, pivots = np.array([[7, 0.25], [0.25, 7]]), np.array([[2.0, 0], [0, 0]])
    # ... divided by the number of balls, as the mean over all of them.
    np.testing.assert_allclose(forces(excess, pivots), [[0.125, 0], [-0.125, 0]])


def test_forces_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    inside, pivots = rng.random((60, 5)) < 0.5, rng.standard_normal((5, 3))
    o = np.array([[np.sum(inside[:, i] & inside[:, j]) for j in range(5)] for i in range(5)])
    expected = np.zeros((5, 3))
    for i in range(5):
        for j in range(5):
            if i != j:
                expected[i] += (o[i, j] - 60 / 4) / (60 / 4) * (pivots[i] - pivots[j]) / 2 / 5
    np.testing.assert_allclose(forces(o / 15 - 1, pivots), expected)


def test_bits_say_which_rows_are_in_a_ball(rows):
    hasher = SpH(n_bits=12, random_state=0).fit(rows)
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift"]
    distances = np.linalg.norm(rows[:, None].astype(float) - hasher.pivots_[None], axis=2)
    clear = np.abs(distances - hasher.radii_) > 1e-4
    inside = distances < hasher.radii_
    assert np.array_equal((hasher.project(rows) > 0)[clear], inside[clear])
    assert clear.mean() > 0.99


def test_balls_hold_half_of_the_rows_and_share_a_quarter(rows):
    hasher = SpH(n_bits=12, random_state=0).fit(rows)
    inside = (hasher.project(rows) > 0).astype(float)
    np.testing.assert_allclose(inside.mean(axis=0), 0.5, atol=0.005)
    shared = (inside.T @ inside / 400)[~np.eye(12, dtype=bool)]
    assert np.abs(shared - 0.25).mean() <= 0.1 * 0.25 + 0.005
    assert hasher.overlaps_[-1] == pytest.approx(np.abs(4 * shared - 1).mean(), abs=0.02)
    assert hasher.overlaps_[-1] < hasher.overlaps_[0]
    assert hasher.training_["rounds"] == len(hasher.overlaps_) < 100


def test_learns_from_a_sample_of_the_rows(rows):
    hasher = SpH(n_bits=8, max_rows=100, random_state=0).fit(rows)
    ones = (hasher.project(rows) > 0).mean(axis=0)
    assert 0.3 < ones.min() < ones.max() < 0.7
    assert not np.array_equal(ones, (SpH(n_bits=8, random_state=0).fit(rows).project(rows) > 0))


@pytest.mark.parametrize("n_bits", [1, 40])
def test_takes_one_bit_and_more_bits_than_rows(n_bits):
    X = np.random.default_rng(0).standard_normal((20, 12))
    assert SpH(n_bits=n_bits, random_state=0).fit(X).project(X).shape == (20, n_bits)


def test_equal_rows_count_once():
    distinct = np.random.default_rng(0).standard_normal((40, 3))
    X = np.vstack([np.repeat(distinct[:1], 300, axis=0), distinct])
    bits = SpH(n_bits=4, random_state=0).fit(X).project(distinct) > 0
    np.testing.assert_allclose(bits.mean(axis=0), 0.5, atol=0.03)


def test_balls_stay_finite_where_rows_cannot_share():
    """Two rows share nothing or all: no round is near the limits, and pivots never rest."""
    hasher = SpH(n_bits=8, n_iter=2000, random_state=0).fit([[0.0, 0], [1, 1]])
    bits = hasher.project([[0.0, 0], [1, 1]]) > 0
    assert (bits.sum(axis=0) == 1).all()


def test_refuses_a_sample_of_equal_rows():
    X = np.vstack([np.zeros((3000, 3)), np.eye(3)])
    with pytest.raises(InvalidInputError, match="the 2 rows that were drawn are all equal"):
        SpH(n_bits=4, max_rows=2, random_state=0).fit(X)
