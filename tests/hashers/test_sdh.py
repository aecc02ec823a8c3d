import numpy as np
import pytest
from fixtures.clusters import several_labels
from fixtures.literal import kernel_values, parted

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import FSDH, SDH
from pg_hashindex.hashers.supervision.discrete import cyclic_descent, spread_codewords, start_codes
from pg_hashindex.hashers.supervision.label_sets import LabelSets
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes


def starts(y, start, n_bits=16):
    """Return what codes start from, and what bits take that would be the same for all rows."""
    rng, sets = np.random.default_rng(4), LabelSets(Labels.read(y, 400))
    apart = start_codes(sets, n_bits, "spread", rng)[sets.of_row]
    if start == "spread":
        return apart, apart
    return np.where(rng.random((400, n_bits)) > 0.5, 1, -1), apart


def literal_sdh(K, Y, B, apart, n_iter, penalty, nu, ridge):
    """Follow the paper with codes as columns: G-step, F-step, B-step bit by bit and row by row."""
    n, m = K.shape
    B, Y, Phi, kept = B.T.astype(float), Y.T.astype(float), K.T, apart.T
    mu = ridge * K.var(axis=0).mean()

    def regress(B):
        mean = B.mean(axis=1, keepdims=True)
        return np.linalg.inv(Phi @ Phi.T / n + mu * np.eye(m)) @ Phi @ B.T / n, mean

    values = []
    for _ in range(n_iter):
        W = np.linalg.inv(B @ B.T + penalty * np.eye(len(B))) @ B @ Y.T
        P, mean = regress(B)
        F = P.T @ Phi + mean
        Q = W @ Y + nu * F
        old, free = B, set(range(len(B)))
        while True:
            B = old.copy()
            fixed = sorted(set(range(len(B))) - free)
            B[fixed] = kept[fixed]
            for _ in range(10):
                for bit in sorted(free):
                    others = np.arange(len(B)) != bit
                    z = Q[bit] - B[others].T @ W[others] @ W[bit]
                    B[bit] = np.where(z > 0, 1, -1)
            # Our addition: no bit becomes the same for all rows.
            constant = {bit for bit in free if len(set(B[bit])) == 1}
            if not constant:
                break
            free -= constant
        kept = B
        values.append(
            np.sum((Y - W.T @ B) ** 2)
            + penalty * np.sum(W**2)
            + nu * (np.sum((B - F) ** 2) + n * mu * np.sum(P**2))
        )
        if np.array_equal(old, B):
            break
    P, mean = regress(B)
    return B.T, parted(Phi.T @ P + mean.T, B.T), np.array(values)


@pytest.mark.parametrize("nu", [1e-5, 0.3])
@pytest.mark.parametrize("start", ["spread", "random"])
@pytest.mark.parametrize("several", [False, True])
def test_agrees_with_the_paper(several, start, nu, rows, labels):
    y = several_labels() if several else labels
    indicator = y if several else np.eye(8, dtype=int)[labels]
    anchors = rows[:30]
    params = {"width": 0.9, "ridge": 1e-3, "penalty": 0.7, "nu": nu, "start": start}
    hasher = SDH(n_bits=16, anchors=anchors, random_state=4, **params).fit(rows, y)

    B, apart = starts(y, start)
    expected, projections, values = literal_sdh(
        kernel_values(rows, anchors, 0.9), indicator, B, apart, 5, 0.7, nu, 1e-3
    )
    assert np.array_equal(codes.unpack(hasher.codes_, 16), expected > 0)
    np.testing.assert_allclose(hasher.project(rows), projections, atol=2e-4)
    np.testing.assert_allclose(hasher.objective_, values, rtol=1e-5)
    if several or start == "random":
        assert (expected != B).mean() > 0.1


@pytest.mark.parametrize("several", [False, True])
def test_objective_never_rises(several, rows, labels):
    for seed in range(5):
        hasher = SDH(n_bits=20, n_iter=20, nu=0.1, random_state=seed)
        values = hasher.fit(rows, several_labels(seed=seed) if several else labels).objective_
        assert len(values) > 2
        assert (np.diff(values) <= 1e-9 * values[0]).all()
        assert values[-1] < 0.99 * values[0]


def test_each_row_starts_at_its_own_signs(rows, labels):
    """From one code for each class no step would change anything, and FSDH would be SDH."""
    hashers = [kind(n_bits=16, random_state=0).fit(rows, labels) for kind in (SDH, FSDH)]
    learned = [codes.unpack(hasher.codes_, 16) for hasher in hashers]
    assert (learned[0] != learned[1]).mean() > 0.05
    for bits in learned:
        # Rows of a class end at one code nearly all, and those of the classes are apart.
        words = np.array([bits[labels == label].mean(axis=0) > 0.5 for label in range(8)])
        assert (words[labels] == bits).mean() > 0.95
        assert len(np.unique(words, axis=0)) == 8


def test_two_classes_have_no_bit_without_meaning(rows, labels):
    """Bits that all rows would share are those of the classes, not of the random start."""
    for kind in (SDH, FSDH):
        hasher = kind(n_bits=24, random_state=0).fit(rows, labels // 4)
        bits = codes.unpack(hasher.codes_, 24)
        agreement = (bits == (labels[:, None] >= 4)).mean(axis=0)
        # In FSDH the hash function decides where half of a class starts with either sign.
        assert np.count_nonzero(np.maximum(agreement, 1 - agreement) > 0.99) >= 21


def test_descent_ends_where_no_single_bit_helps():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 4))
    A, q = W @ W.T, rng.standard_normal((50, 6))
    start = np.where(rng.random((50, 6)) < 0.5, -1, 1).astype(np.int8)
    found = cyclic_descent(start, q.__getitem__, A, 100)

    def value(B):
        return np.einsum("ij,jk,ik->i", B, A, B) - 2 * (B * q).sum(axis=1)

    assert (value(found) <= value(start)).all()
    assert value(found).sum() < value(start).sum() - 1
    for bit in range(6):
        flipped = found.copy()
        flipped[:, bit] *= -1
        assert (value(found) <= value(flipped) + 1e-12).all()


def test_descent_leaves_no_bit_constant():
    start = np.array([[1, 1], [1, -1], [-1, 1]], np.int8)
    q = np.array([[5.0, 3], [5, -1], [5, 1]])
    # Alone, bit 0 would be 1 everywhere; and bit 1 must be fitted to bit 0 as it stays.
    A = np.array([[1.0, 2], [2, 1]])
    found = cyclic_descent(start, q.__getitem__, A, 10)
    assert found[:, 0].tolist() == [1, 1, -1]
    assert found[:, 1].tolist() == [1, -1, 1]
    found = cyclic_descent(start, q.__getitem__, A, 10, -start)
    assert found[:, 0].tolist() == [-1, -1, 1]


@pytest.mark.parametrize(("c", "n_bits"), [(2, 5), (3, 40), (8, 12), (10, 32), (10, 64), (60, 32)])
def test_codewords_are_spread(c, n_bits):
    words = spread_codewords(c, n_bits, np.random.default_rng(0)).astype(int)
    assert words.shape == (c, n_bits)
    assert set(np.unique(words)) == {-1, 1}
    assert (np.abs(words.sum(axis=0)) < c).all()
    distances = ((n_bits - words @ words.T) / 2)[np.triu_indices(c, 1)]
    # c codewords cannot be farther apart than that on average; random signs of 60 come to 4.
    assert distances.mean() <= n_bits / 2 * c / (c - 1) + 1e-9
    assert distances.mean() > 0.95 * n_bits / 2
    assert distances.min() >= {5: 5, 40: 18, 12: 4, 32: 6 if c == 60 else 13, 64: 29}[n_bits]


def test_layers(rows, labels):
    hasher = SDH(n_bits=9, n_anchors=50, random_state=0).fit(rows, labels)
    rbf, shift, affine = hasher.layers_
    assert [layer.kind for layer in hasher.layers_] == ["rbf", "shift", "affine"]
    assert rbf.weights.shape == (50, 12)
    squares = ((rows[:, None] - rbf.weights[None]) ** 2).sum(axis=2)
    assert rbf.scale == pytest.approx(1 / (0.7 * squares.mean()), rel=1e-4)
    np.testing.assert_allclose(shift.bias, -rbf.apply(rows).mean(axis=0), atol=1e-6)
    learned = codes.unpack(hasher.codes_, 9)
    np.testing.assert_allclose(affine.bias, 2 * learned.mean(axis=0) - 1, atol=1e-6)
    assert (learned == (hasher.project(rows) > 0)).mean() > 0.97


def test_codes_are_of_the_labelled_rows_in_order(rows, labels):
    y = np.where(np.arange(400) % 3 > 0, labels, -1)
    hasher = SDH(n_bits=16, random_state=0).fit(rows, y)
    assert len(hasher.codes_) == (y >= 0).sum()
    expected = SDH(n_bits=16, random_state=0).fit(rows[y >= 0], labels[y >= 0])
    assert np.array_equal(hasher.codes_, expected.codes_)
    assert np.array_equal(hasher.encode(rows), expected.encode(rows))


def test_refuses_rows_that_tell_nothing():
    same = np.repeat([[0.0, 1.0]], 30, axis=0)
    with pytest.raises(InvalidInputError, match="all labelled rows are equal"):
        SDH(n_bits=4).fit(np.vstack([same, [[5.0, 5.0]]]), [*(np.arange(30) % 3), -1])
    with pytest.raises(InvalidInputError, match="all labelled rows are equal"):
        SDH(n_bits=4, sigma=0.4).fit(np.vstack([same, [[5.0, 5.0]]]), [*(np.arange(30) % 3), -1])
    two = np.tile([[0.0, 1.0], [1.0, 0.0]], (30, 1))
    with pytest.raises(InvalidInputError, match=r"say nothing about bit \d"):
        SDH(n_bits=4).fit(two, np.arange(60) % 6 // 2)
    with pytest.raises(InvalidInputError, match="equally far from the 2 anchors"):
        SDH(n_bits=4, anchors=[[0.0, 0.0], [1, 1]]).fit(two, np.arange(60) % 3)
    with pytest.raises(InvalidInputError, match="only 1 distinct anchor"):
        SDH(n_bits=4, anchors=[[0.0, 0.5]]).fit(two, np.arange(60) % 3)
    with pytest.raises(InvalidInputError, match="the 60 labelled rows .* all have the same labels"):
        SDH(n_bits=4).fit(two, np.ones((60, 2), int))


@pytest.mark.parametrize("kind", [SDH, FSDH])
@pytest.mark.parametrize("name", ["penalty", "nu"])
@pytest.mark.parametrize("value", [1e-12, 1e12])
def test_extreme_weights_do_not_fail(value, name, kind, rows, labels):
    """Equal and dependent labels, and codes of rank 1, leave all to the penalty."""
    several = several_labels()
    for y in (labels // 4, np.column_stack([several, several[:, 0]])):
        for start in ("spread", "random"):
            hasher = kind(n_bits=12, start=start, random_state=0, **{name: value}).fit(rows, y)
            assert np.isfinite(hasher.objective_).all()


@pytest.mark.parametrize("kind", [SDH, FSDH])
@pytest.mark.parametrize("n_anchors", [40, 1000])
def test_a_class_of_one_row_has_bits_of_its_own(n_anchors, kind, rows):
    """The regression gives such a class too little to cross 0."""
    y = np.arange(300) == 17
    hasher = kind(n_bits=8, n_anchors=n_anchors, random_state=0).fit(rows[:300], y)
    bits = hasher.project(rows[:300]) > 0
    most = bits.mean(axis=0) > 0.5
    assert (bits[17] != most).all()
    assert ((bits != most).sum(axis=0) <= 15).all()


@pytest.mark.parametrize("kind", [SDH, FSDH])
def test_without_anchors_the_hash_function_is_the_ridge_regression_on_the_rows(kind, rows, labels):
    hasher = kind(n_bits=8, n_anchors=None, ridge=0.5, random_state=0).fit(rows, labels)
    assert [layer.kind for layer in hasher.layers_] == ["affine"]
    B = 2.0 * np.unpackbits(hasher.codes_, axis=1)[:, :8] - 1
    X = rows - rows.mean(axis=0, dtype=np.float64)
    penalty = 0.5 * X.var(axis=0).mean()
    weights = np.linalg.solve(X.T @ X / len(X) + penalty * np.eye(X.shape[1]), X.T @ B / len(X))
    np.testing.assert_allclose(hasher.project(rows), X @ weights + B.mean(axis=0), atol=1e-4)
