import numpy as np
import pytest
from fixtures.clusters import several_labels
from fixtures.literal import kernel_values, parted

from pg_hashindex.hashers import FSDH, SDH
from pg_hashindex.hashers.supervision.discrete import start_codes
from pg_hashindex.hashers.supervision.label_sets import LabelSets
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes


def literal_fsdh(K, Y, B, apart, n_iter, penalty, nu, ridge):
    """Follow the paper, a row a code: regress the codes on labels and on features, take signs."""
    n, m = K.shape
    kept = apart
    B, Y = B.astype(float), Y.astype(float)
    mu = ridge * K.var(axis=0).mean()
    values = []
    for _ in range(n_iter):
        W = np.linalg.inv(Y.T @ Y + penalty * np.eye(Y.shape[1])) @ Y.T @ B
        P = np.linalg.inv(K.T @ K + n * mu * np.eye(m)) @ K.T @ B
        F = K @ P + B.mean(axis=0)
        new = np.where(Y @ W + nu * F > 0, 1.0, -1.0)
        # Our addition: no bit becomes the same for all rows.
        B = kept = np.where((new == new[0]).all(axis=0), kept, new)
        values.append(
            np.sum((B - Y @ W) ** 2)
            + penalty * np.sum(W**2)
            + nu * (np.sum((B - F) ** 2) + n * mu * np.sum(P**2))
        )
    P = np.linalg.inv(K.T @ K + n * mu * np.eye(m)) @ K.T @ B
    return B, parted(K @ P + B.mean(axis=0), B), np.array(values)


@pytest.mark.parametrize("nu", [1e-5, 3.0])
@pytest.mark.parametrize("several", [False, True])
def test_agrees_with_the_paper(several, nu, rows, labels):
    y = several_labels() if several else labels
    indicator = y if several else np.eye(8, dtype=int)[labels]
    anchors = rows[:30]
    hasher = FSDH(n_bits=16, anchors=anchors, nu=nu, penalty=0.7, ridge=1e-3, random_state=4)
    hasher.fit(rows, y)

    K = kernel_values(rows, anchors)
    rng, sets = np.random.default_rng(4), LabelSets(Labels.read(y, 400))
    apart = start_codes(sets, 16, "spread", rng)[sets.of_row]
    start = np.where(rng.random((400, 16)) > 0.5, 1, -1)
    expected, projections, values = literal_fsdh(K, indicator, start, apart, 5, 0.7, nu, 1e-3)
    assert np.array_equal(codes.unpack(hasher.codes_, 16), expected > 0)
    np.testing.assert_allclose(hasher.project(rows), projections, atol=2e-4)
    rounds = len(hasher.objective_)
    np.testing.assert_allclose(hasher.objective_, values[:rounds], rtol=1e-5)
    assert (expected != start).mean() > 0.1


@pytest.mark.parametrize("several", [False, True])
def test_objective_never_rises(several, rows, labels):
    for seed in range(5):
        hasher = FSDH(n_bits=20, n_iter=20, nu=2.0, random_state=seed)
        values = hasher.fit(rows, several_labels(seed=seed) if several else labels).objective_
        assert len(values) > 1
        assert (np.diff(values) <= 1e-9 * values[0]).all()
        assert values[-1] < 0.99 * values[0]


def test_no_learned_bit_is_constant(rows):
    # Most rows have the first of two labels alone, and the classes' own codes win.
    y = (np.arange(400) % 20 == 0).astype(int)
    hasher = FSDH(n_bits=12, nu=50.0, random_state=0).fit(rows, y)
    learned = codes.unpack(hasher.codes_, 12)
    assert learned.any(axis=0).all()
    assert not learned.all(axis=0).any()


def test_rows_take_the_signs_of_most_of_their_class(rows, labels):
    hasher = FSDH(n_bits=16, random_state=4).fit(rows, labels)
    rng, sets = np.random.default_rng(4), LabelSets(Labels.read(labels, 400))
    start_codes(sets, 16, "spread", rng)
    start = np.where(rng.random((400, 16)) > 0.5, 1, -1)
    learned = codes.unpack(hasher.codes_, 16)
    for label in range(8):
        sums = start[labels == label].sum(axis=0)
        clear = np.abs(sums) > 1
        assert (learned[labels == label][:, clear] == (sums > 0)[clear]).all()


def test_is_sdh_where_classes_start_apart(rows, labels):
    fast = FSDH(n_bits=16, start="spread", random_state=0).fit(rows, labels)
    slow = SDH(n_bits=16, start="spread", random_state=0).fit(rows, labels)
    assert np.array_equal(fast.codes_, slow.codes_)
