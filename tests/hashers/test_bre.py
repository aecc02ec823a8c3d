"""BRE, and its variant for labels."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import BRE, SBRE
from pg_hashindex.hashers.bre import Functions
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes


def literal_objective(bits, i, j, d):
    """The paper's objective, pair by pair; bits are 0 and 1, (n, b)."""
    total = 0.0
    for first, second, distance in zip(i, j, d, strict=True):
        hamming = sum((bits[first] - bits[second]) ** 2) / bits.shape[1]
        total += (distance - hamming) ** 2
    return total / len(d)


def small():
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(14, 1)
    return rng.standard_normal((14, 5)), i, j, rng.random(len(i)), rng.standard_normal((3, 5))


def objective_at(K, i, j, d, W, place, value):
    W = W.copy()
    W[place] = value
    bits = (K @ W.T > 0).astype(int)
    constant = np.ptp(bits[:, place[0]]) == 0
    return np.inf if constant else literal_objective(bits, i, j, d)


def test_a_weight_moves_to_where_the_objective_is_least():
    """Against all values between which any row changes sides, one after another."""
    K, i, j, d, W = small()
    functions = Functions(K, i, j, d, W.copy())
    assert functions.objective() == pytest.approx(literal_objective((K @ W.T > 0) * 1, i, j, d))
    moved = 0
    for place in [(0, 0), (2, 3), (1, 1), (0, 4), (2, 0), (1, 2)]:
        before = functions.W.copy()
        others = K @ before[place[0]] - K[:, place[1]] * before[place]
        # Weights stay within 100.
        ends = np.clip([-100, *np.sort(-others / K[:, place[1]]), 100], -100, 100)
        values = ((ends[1:] + ends[:-1]) / 2)[np.diff(ends) > 0]
        best = min(objective_at(K, i, j, d, before, place, value) for value in values)
        functions.improve(*place)
        assert functions.objective() == pytest.approx(best)
        bits = (K @ functions.W.T > 0).astype(int)
        assert functions.objective() == pytest.approx(literal_objective(bits, i, j, d))
        changed = before != functions.W
        assert changed.sum() == changed[place]
        moved += changed.any()
    assert moved > 2


def test_rows_at_which_the_kernel_is_0_stay():
    K, i, j, d, W = small()
    K[4:9, 1] = 0
    K[9:, 1] *= -1
    functions = Functions(K, i, j, d, W.copy())
    before = K @ W.T > 0
    functions.improve(0, 1)
    after = K @ functions.W.T > 0
    assert np.array_equal(after[4:9], before[4:9])
    assert functions.objective() == pytest.approx(literal_objective(after * 1, i, j, d))


@pytest.fixture
def pairs(monkeypatch):
    """The pairs that hashers have learned from."""
    found = []
    for hasher in (BRE, SBRE):
        draw = hasher._pairs

        def kept(self, *args, draw=draw):
            found.append((args[0], *draw(self, *args)))
            return found[-1][1:]

        monkeypatch.setattr(hasher, "_pairs", kept)
    return found


def test_distances_are_those_of_nearest_and_other_rows(rows, pairs):
    hasher = BRE(n_bits=8, n_iter=8, n_pairs=6, random_state=0).fit(rows)
    X, i, j, d = pairs[0]
    centred = rows - rows.mean(axis=0, dtype=float)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(X, unit, atol=1e-5)
    distances = np.square(unit[:, None] - unit[None]).sum(axis=2) / 4
    np.testing.assert_allclose(d, distances[i, j], atol=1e-5)
    assert (i == np.repeat(np.arange(400), 12)).all()
    assert (i != j).all()
    of_row = j.reshape(400, 12)
    nearest = np.sort(distances, axis=1)[:, 6]
    assert (np.take_along_axis(distances, of_row[:, :6], 1) <= nearest[:, None] + 1e-6).all()
    assert (np.take_along_axis(distances, of_row[:, 6:], 1) > nearest[:, None]).mean() > 0.9
    bits = codes.unpack(hasher.encode(rows), 8).astype(int)
    assert hasher.objective_[-1] == pytest.approx(literal_objective(bits, i, j, d))
    assert (np.diff(hasher.objective_) < 1e-12).all()
    assert hasher.objective_[-1] < 0.8 * hasher.objective_[0]
    assert hasher.training_["objective"]["last"] == pytest.approx(hasher.objective_[-1])
    kinds = [layer.kind for layer in hasher.layers_]
    assert kinds == ["shift", "normalize", "rbf", "shift", "affine"]


def test_learns_from_a_sample(rows):
    hasher = BRE(n_bits=16, max_rows=30, n_anchors=20, n_iter=2, random_state=0).fit(rows)
    assert len(hasher.layers_[2].weights) == 20
    assert hasher.encode(rows).shape == (400, 2)


def test_pairs_of_labels():
    """Rows 0 to 5 have label 0, 6 and 7 label 1, row 8 both, row 9 neither of them."""
    y = np.array([[1, 0, 0]] * 6 + [[0, 1, 0]] * 2 + [[1, 1, 0], [0, 0, 1]])
    hasher = SBRE(n_pairs=3)
    i, j, d = hasher._pairs(np.zeros((10, 2)), Labels.read(y, 10), np.random.default_rng(0))
    shared = y @ y.T > 0
    assert np.array_equal(d, np.where(shared[i, j], 0, 1))
    assert (i != j).all()
    # Row 6 shares its label with 7 and 8 alone, row 9 with none, row 8 with all but 9.
    assert d.reshape(10, 6).sum(axis=1).tolist() == [3, 3, 3, 3, 3, 3, 4, 4, 1, 6]


def test_refuses_rows_of_one_direction():
    line = np.zeros((1000, 3))
    line[0, 0] = 1
    with pytest.raises(InvalidInputError, match="all lie in one direction from the mean"):
        BRE(n_bits=2, max_rows=4, random_state=0).fit(line)
