from itertools import product

import numpy as np
import pytest

from pg_hashindex.hashers import COSDISH, cosdish
from pg_hashindex.hashers.cosdish import _Codes, descend
from pg_hashindex.hashers.supervision.label_sets import LabelSets
from pg_hashindex.hashers.supervision.labels import Labels

R, N = 5, 40
CHOSEN = np.array([3, 11, 12, 30, 38, 7])


def signs(shape, seed=0):
    return np.where(np.random.default_rng(seed).random(shape) < 0.5, -1, 1)


def indicator(several):
    """Give 40 rows one of 4 labels each, or one or two."""
    rng = np.random.default_rng(2)
    y = np.eye(4, dtype=int)[rng.integers(4, size=N)]
    return y | np.eye(4, dtype=int)[rng.integers(4, size=N)] if several else y


def similarity(y):
    """S with the sums of its two kinds of entries opposite: 1, and -share / (1 - share)."""
    shared = y @ y.T > 0
    return np.where(shared, 1, -shared.sum() / (~shared).sum())


@pytest.fixture(params=[False, True], ids=["single", "several"])
def codes(request):
    y = indicator(request.param)
    sets = LabelSets.of_several(Labels.read(y, N))
    return _Codes(sets, signs((N, R)).astype(np.int8)), similarity(y)


def test_objective_is_that_of_the_paper(codes):
    learning, S = codes
    B = learning.B.astype(float)
    assert S.sum() == pytest.approx(0)
    expected = np.sum((R * S - B @ B.T) ** 2) / (R * N) ** 2
    assert learning.objective() == pytest.approx(expected)


def test_binary_problems_are_the_loss_of_the_drawn_columns(codes, monkeypatch):
    """For every bit, b'Q b + p'b differs from the loss by a constant."""
    learning, S = codes
    start = learning.B.astype(float)
    problems = []

    def keep(Q, p, b):
        problems.append((Q, p, b.copy()))
        return descend(Q, p, b)

    monkeypatch.setattr(cosdish, "descend", keep)
    learning.learn(CHOSEN, 1)
    assert len(problems) == R
    current = start.copy()
    for bit, (Q, p, b) in enumerate(problems):
        assert np.array_equal(b, current[CHOSEN, bit])
        differences = []
        for seed in range(5):
            tried = signs(len(CHOSEN), seed).astype(float)
            B = current.copy()
            B[CHOSEN, bit] = tried
            loss = np.sum((R * S[:, CHOSEN] - B @ B[CHOSEN].T) ** 2)
            differences.append(loss - (tried @ Q @ tried + p @ tried))
        # The loss counts pairs within the chosen rows once in each order, as Q does.
        np.testing.assert_allclose(differences, differences[0], rtol=1e-9)
        current[CHOSEN, bit] = descend(Q, p, b)
    assert np.array_equal(learning.B[CHOSEN], current[CHOSEN])


def test_the_other_codes_minimise_the_absolute_loss(codes):
    """By all 2^5 codes of each row: S says which bits, its size what a pair weighs."""
    learning, S = codes
    before = learning.B.copy()
    learning.learn(CHOSEN, 1)
    held = learning.B[CHOSEN].astype(float)
    every = np.array(list(product([-1, 1], repeat=R)))
    for row in np.setdiff1d(np.arange(N), CHOSEN):
        values = S[row, CHOSEN] @ held
        if (S[row, CHOSEN] < 0).all():
            expected = before[row]
        else:
            expected = np.where(np.abs(values) < 1e-9, before[row], np.sign(values))
            errors = np.abs(R * np.sign(S[row, CHOSEN])[:, None] - held @ every.T)
            losses = np.abs(S[row, CHOSEN]) @ errors
            least = every[losses < losses.min() + 1e-9]
            assert (least == expected).all(axis=1).any()
        varies = np.ptp(learning.B, axis=0) > 0
        assert np.array_equal(learning.B[row][varies], expected[varies])


def test_descent_by_hand():
    # b'Qb + p'b = 2 b1 b2 + b1 - 3 b2: from (1, 1), 0, flipping b1 gives -2 - 1 - 3 = -6.
    Q, p = np.array([[0.0, 1], [1, 0]]), np.array([1.0, -3])
    assert descend(Q, p, np.array([1.0, 1])).tolist() == [-1, 1]
    # From (1, -1), -2 + 1 + 3 = 2, the best flip is that of b2 to 0, and then that of b1.
    assert descend(Q, p, np.array([1.0, -1])).tolist() == [-1, 1]


def test_descent_ends_where_no_flip_helps():
    rng = np.random.default_rng(4)
    for _ in range(20):
        Q, p = rng.standard_normal((8, 8)), rng.standard_normal(8)
        Q = Q + Q.T
        np.fill_diagonal(Q, 0)
        start = np.sign(rng.standard_normal(8))
        found = descend(Q, p, start)

        def value(b, Q=Q, p=p):
            return b @ Q @ b + p @ b

        assert value(found) <= value(start) + 1e-9
        flips = found * (1 - 2 * np.eye(8))
        assert all(value(b) >= value(found) - 1e-9 for b in flips)


def test_codes_tell_labels_apart(rows, labels):
    hasher = COSDISH(n_bits=16, n_anchors=50, random_state=0).fit(rows, labels)
    learned = np.unpackbits(hasher.codes_, axis=1)
    majority = np.array([learned[labels == c].mean(axis=0) > 0.5 for c in range(8)])
    # Only rows that the last draw chose may differ from their class.
    assert (learned != majority[labels]).any(axis=1).sum() < 8
    assert len(np.unique(majority, axis=0)) == 8
    assert hasher.objective_.shape == (31,)
    assert hasher.objective_[-1] < 0.1 * hasher.objective_[0]
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift", "affine"]


def test_takes_the_rows_themselves_unless_there_are_anchors(rows, labels):
    linear = COSDISH(n_bits=8, random_state=0).fit(rows, labels)
    assert [layer.kind for layer in linear.layers_] == ["affine"]
    given = COSDISH(n_bits=8, anchors=rows[:30], random_state=0).fit(rows, labels)
    assert given.layers_[0].weights.shape == (30, 12)
