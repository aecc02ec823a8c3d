import itertools

import numpy as np
import pytest
import scipy.optimize
from fixtures.clusters import several_labels

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import SADIH
from pg_hashindex.hashers.sadih import Alternation
from pg_hashindex.hashers.supervision.discrete import start_codes
from pg_hashindex.hashers.supervision.label_sets import LabelSets
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes


class Literal:
    """The objective with one column a row, the n x n similarity, and nothing taken by class."""

    def __init__(self, X, indicator, n_bits, weights=None, minus=1.0):
        self.X, self.Y, self.n_bits = X.T, indicator.T.astype(float), n_bits
        self.a, self.b, self.g = 0.7, 1.3, 0.1
        self.S = np.where(indicator @ indicator.T > 0, 1.0, -minus)
        self.weights = np.ones(len(X)) if weights is None else weights

    def objective(self, B, W, P1, P2):
        """Return the value, for codes B (l, n) of rows that weigh `weights`."""
        w, V = self.weights, W.T @ self.Y
        residuals = self.n_bits * self.S - V.T @ B
        loss = w @ np.sqrt((w * residuals**2).sum(axis=1) + (1e-6 * self.n_bits) ** 2 * w.sum())
        encoder = w @ ((V**2).sum(axis=0) - 2 * (V * (P1 @ self.X)).sum(axis=0))
        return (
            loss
            + self.a * (w @ ((self.X - P2 @ V) ** 2).sum(axis=0))
            + self.b * (encoder + w @ (self.X**2).sum(axis=0))
            + self.g * (np.sum(P2**2) + w @ (V**2).sum(axis=0))
        )


def problem(several=False, balance=False, n=60, m=5, n_bits=4, seed=0):
    """Return an alternation in the middle of its way, and its literal counterpart."""
    rng = np.random.default_rng(seed)
    indicator = (
        several_labels(n, 6, seed, most=2)
        if several
        else np.eye(4, dtype=int)[rng.integers(4, size=n)]
    )
    labels = Labels.read(indicator, n)
    sets = LabelSets(labels)
    weights = sets.balancing_weights() if balance else np.ones(len(sets))
    w = weights[sets.of_row]
    X = rng.standard_normal((n, m)) + indicator @ rng.standard_normal((indicator.shape[1], m))
    X -= w @ X / n
    share = indicator @ indicator.T > 0
    pairs = np.outer(w, w)
    minus = min(1, pairs[share].sum() / pairs[~share].sum()) if balance else 1.0
    literal = Literal(X, indicator, n_bits, w, minus)
    alternation = Alternation(
        sets,
        weights * sets.counts,
        (X * w[:, None]).T @ indicator,
        float(w @ (X**2).sum(axis=1)),
        start_codes(sets, n_bits, "random", rng),
        balance=balance,
        alpha=0.7,
        beta=1.3,
        gamma=0.1,
    )
    alternation.W = rng.standard_normal((indicator.shape[1], n_bits))
    alternation.P1 = np.linalg.qr(rng.standard_normal((max(m, n_bits), min(m, n_bits))))[0]
    if n_bits <= m:
        alternation.P1 = alternation.P1.T
    alternation.P2 = rng.standard_normal((m, n_bits))
    return alternation, literal


def value(alternation, literal, **changed):
    at = {"W": alternation.W, "P1": alternation.P1, "P2": alternation.P2, **changed}
    B = alternation.B[alternation._sets.of_row].T.astype(float)
    return literal.objective(changed.get("B", B), at["W"], at["P1"], at["P2"])


each_problem = pytest.mark.parametrize(
    ("several", "balance"), list(itertools.product([False, True], repeat=2))
)


@each_problem
def test_objective_is_the_literal_one(several, balance):
    alternation, literal = problem(several, balance)
    assert alternation.objective() == pytest.approx(value(alternation, literal), rel=1e-9)
    assert (alternation._minus == 1.0) == (not balance)


def test_balance_weighs_other_pairs_by_the_classes():
    # For equal classes it is 1 / (c - 1), and rows weigh the same.
    sets = LabelSets(Labels.read(np.arange(40) % 4, 40))
    assert np.allclose(sets.balancing_weights(), 1)
    equal = Alternation(
        sets, sets.counts, np.zeros((3, 4)), 1.0, np.ones((4, 2), np.int8), balance=True
    )
    assert equal._minus == pytest.approx(1 / 3)


def test_balance_weighs_classes_by_the_root_of_their_size():
    y = np.repeat([0, 1], [90, 10])
    sets = LabelSets(Labels.read(y, 100))
    w = sets.balancing_weights()[sets.of_row]
    assert w.sum() == pytest.approx(100)
    assert w[:90].sum() / w[90:].sum() == pytest.approx(3)


def test_products_with_the_similarity_are_those_of_the_issue():
    y = np.random.default_rng(0).integers(5, size=80)
    Y, n_bits = np.eye(5)[y].T, 6
    sets = LabelSets(Labels.read(y, 80))
    order = np.argmax(sets.members.toarray(), axis=1)
    alternation = Alternation(
        sets, sets.counts, np.zeros((3, 5)), 1.0, np.ones((5, n_bits), np.int8), balance=False
    )
    Q = n_bits * (2 * (Y @ Y.T) @ Y - np.outer(Y.sum(axis=1), np.ones(80)))
    np.testing.assert_allclose(Q, n_bits * Y @ np.where(y[:, None] == y, 1.0, -1.0))
    found = n_bits * alternation.similar(np.eye(5)[order])[sets.of_row].T
    np.testing.assert_allclose(found, Q)


@each_problem
def test_w_minimises_the_reweighted_objective(several, balance):
    alternation, literal = problem(several, balance)
    B = alternation.B[alternation._sets.of_row].T.astype(float)
    D = 1 / (2 * alternation.residuals()[alternation._sets.of_row])
    w, P1, P2 = literal.weights, alternation.P1, alternation.P2

    def reweighted(W):
        V = W.reshape(-1, literal.n_bits).T @ literal.Y
        residuals = literal.n_bits * literal.S - V.T @ B
        return (
            (w * D) @ (residuals**2 @ w)
            + literal.a * (w @ ((literal.X - P2 @ V) ** 2).sum(axis=0))
            + literal.b * (w @ ((V**2).sum(axis=0) - 2 * (V * (P1 @ literal.X)).sum(axis=0)))
            + literal.g * (w @ (V**2).sum(axis=0))
        )

    before = value(alternation, literal)
    found = scipy.optimize.minimize(
        reweighted, alternation.W.ravel(), method="BFGS", options={"gtol": 1e-6}
    )
    alternation.step_w()
    np.testing.assert_allclose(alternation.W.ravel(), found.x, atol=2e-4)
    assert value(alternation, literal) < before


def test_w_by_class_is_equation_15_with_the_weight_of_the_class():
    alternation, literal = problem()
    sets = alternation._sets
    B = alternation.B[sets.of_row].T.astype(float)
    D = 1 / (2 * alternation.residuals()[sets.of_row])
    P1, P2, Y = alternation.P1, alternation.P2, literal.Y
    Q = literal.n_bits * Y @ np.diag(D) @ literal.S
    right = Q @ B.T + Y @ literal.X.T @ (literal.a * P2 + literal.b * P1.T)
    eye = np.eye(literal.n_bits)
    expected = []
    for label in range(4):
        d = D[np.argmax(Y[label])]
        M = d * B @ B.T + literal.a * P2.T @ P2 + (literal.b + literal.g) * eye
        expected.append(right[label] @ np.linalg.inv(M) / Y[label].sum())
    alternation.step_w()
    np.testing.assert_allclose(alternation.W, expected, rtol=1e-8)


def test_w_of_labels_that_always_come_together():
    indicator = several_labels(60, 4, most=2)
    twins = np.column_stack([indicator, indicator[:, 0]])
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    values = []
    for Y in (indicator, twins):
        sets = LabelSets(Labels.read(Y, 60))
        # Sets come in another order with other labels, codes must not.
        B = np.where(np.random.default_rng(3).random((60, 4)) < 0.5, -1, 1).astype(np.int8)
        first = np.array([np.flatnonzero(sets.of_row == s)[0] for s in range(len(sets))])
        alternation = Alternation(
            sets, sets.counts, X.T @ Y, float((X**2).sum()), B[first], balance=False
        )
        alternation.run("l21", 3)
        values.append(alternation.objective())
        assert np.isfinite(alternation.W).all()
    assert values[0] == pytest.approx(values[1], rel=1e-8)


@pytest.mark.parametrize(("m", "n_bits"), [(7, 3), (3, 7), (5, 5)])
def test_p1_minimises_its_term(m, n_bits):
    alternation, literal = problem(m=m, n_bits=n_bits)
    before = value(alternation, literal)
    alternation.step_p1()
    best = value(alternation, literal)
    assert best < before
    # Orthonormal up to the directions V says nothing about: singular values are 1 or 0.
    sizes = np.linalg.svd(alternation.P1, compute_uv=False)
    np.testing.assert_allclose(sizes * (1 - sizes), 0, atol=1e-8)
    rng = np.random.default_rng(0)
    for step in (1.0, 0.1, 0.01):
        for _ in range(50):
            # Orthonormal matrices near P1 and far from it.
            near = alternation.P1 + step * rng.standard_normal((n_bits, m))
            U, _, Vt = np.linalg.svd(near, full_matrices=False)
            assert value(alternation, literal, P1=U @ Vt) >= best - 1e-9 * best


def test_p1_term_is_the_printed_one_where_that_can_hold():
    """||V - P1 X||^2 with m bits or more, ||X - P1'V||^2 with m or fewer, by orthonormality."""
    for m, n_bits in ((3, 7), (7, 3)):
        alternation, literal = problem(m=m, n_bits=n_bits)
        V, P1, X = alternation.W.T @ literal.Y, alternation.P1, literal.X
        term = np.sum(V**2) - 2 * np.sum(V * (P1 @ X)) + np.sum(X**2)
        printed = np.sum((V - P1 @ X) ** 2) if n_bits >= m else np.sum((X - P1.T @ V) ** 2)
        assert term == pytest.approx(printed)
        assert term >= np.sum((V - P1 @ X) ** 2) - 1e-9


@each_problem
def test_p2_minimises_its_terms(several, balance):
    alternation, literal = problem(several, balance)
    found = scipy.optimize.minimize(
        lambda P2: value(alternation, literal, P2=P2.reshape(5, 4)),
        alternation.P2.ravel(),
        method="BFGS",
        options={"gtol": 1e-3},
    )
    alternation.step_p2()
    np.testing.assert_allclose(alternation.P2.ravel(), found.x, atol=1e-3)


@each_problem
def test_b_of_l21_is_that_of_rows_bit_by_bit(several, balance):
    alternation, literal = problem(several, balance)
    of_row = alternation._sets.of_row
    alternation.B = np.where(
        np.random.default_rng(5).random(alternation.B.shape) < 0.5, -1, 1
    ).astype(np.int8)
    before = value(alternation, literal)
    B = alternation.B[of_row].T.astype(float)
    R = alternation.W.T @ literal.Y
    D = literal.weights / (2 * alternation.residuals()[of_row])
    M = literal.n_bits * R @ np.diag(D) @ literal.S
    for _ in range(10):
        for bit in range(literal.n_bits):
            rest = np.arange(literal.n_bits) != bit
            b = np.where(M[bit] - B[rest].T @ R[rest] @ (D * R[bit]) > 0, 1.0, -1.0)
            B[bit] = b if len(set(b)) > 1 else B[bit]
    alternation.step_b_l21()
    assert np.array_equal(alternation.B[of_row].T, B)
    assert value(alternation, literal) <= before


def test_b_of_l1_minimises_the_l1_loss_of_small_embeddings():
    alternation, literal = problem(n=12, n_bits=3)
    alternation.W /= np.abs(alternation.W).sum(axis=1, keepdims=True) / literal.n_bits
    alternation.step_b_l1()
    V, found = alternation.W.T @ literal.Y, alternation.B[alternation._sets.of_row].T
    for row in range(12):
        losses = {
            b: np.abs(literal.n_bits * literal.S[:, row] - V.T @ np.array(b)).sum()
            for b in itertools.product((-1, 1), repeat=3)
        }
        assert losses[tuple(found[:, row])] == pytest.approx(min(losses.values()))


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("start", ["spread", "random"])
def test_objective_never_rises(start, balance, rows, labels):
    for seed in range(3):
        for y in (labels, several_labels(seed=seed, most=2), np.minimum(labels, 2)):
            hasher = SADIH(
                n_bits=10, loss="l21", n_iter=6, start=start, balance=balance, random_state=seed
            )
            values = hasher.fit(rows, y).objective_
            assert values.shape == (6, 4)
            assert (np.diff(values.ravel()) <= 1e-9 * values[0, 0]).all()
            assert values[-1, -1] < values[0, 0]


def test_objective_of_l1_falls_in_all_steps_but_that_of_the_codes(rows):
    values = (
        SADIH(n_bits=10, start="random", random_state=0)
        .fit(rows, several_labels(most=2))
        .objective_
    )
    assert (np.diff(values, axis=1)[:, :2] <= 0).all()
    assert (values[1:, 0] <= values[:-1, 3]).all()


def test_balance_keeps_codewords_apart(rows, labels):
    """Without it, the -1 pairs draw them together, as the issue found."""
    distances = {}
    for balance in (False, True):
        hasher = SADIH(n_bits=32, balance=balance, start="random", random_state=0)
        hasher.fit(rows, labels)
        words = codes.unpack(hasher.codes_, 32)[np.unique(labels, return_index=True)[1]]
        distances[balance] = (words[:, None] != words[None]).sum(axis=2)[np.triu_indices(8, 1)]
    assert distances[True].mean() > distances[False].mean() + 2
    assert distances[True].min() >= 8


@pytest.mark.parametrize("loss", ["l1", "l21"])
@pytest.mark.parametrize("hash_function", ["ridge", "encoder"])
@pytest.mark.parametrize("n_anchors", [None, 100])
def test_every_form_learns(n_anchors, hash_function, loss, rows, labels):
    hasher = SADIH(
        n_bits=16, loss=loss, hash_function=hash_function, n_anchors=n_anchors, random_state=0
    ).fit(rows, labels)
    kinds = [layer.kind for layer in hasher.layers_]
    assert kinds == (["affine"] if n_anchors is None else ["rbf", "shift", "affine"])
    bits = hasher.project(rows) > 0
    distances = (bits[:, None] != bits[None]).sum(axis=2)
    same = labels[:, None] == labels
    assert distances[same].mean() < distances[~same].mean() - 2


def test_encoder_is_p1_of_standardised_rows(rows, labels):
    hasher = SADIH(n_bits=4, n_anchors=None, hash_function="encoder", balance=False, random_state=0)
    hasher.fit(rows, labels)
    W = hasher.layers_[0].weights * rows.std(axis=0)
    np.testing.assert_allclose(W @ W.T, np.eye(4), atol=1e-4)
    np.testing.assert_allclose(hasher.project(rows).mean(axis=0), 0, atol=1e-4)


def test_rows_of_a_class_share_their_learned_code(rows, labels):
    y = np.where(np.arange(400) % 3 > 0, labels, -1)
    hasher = SADIH(n_bits=16, random_state=0).fit(rows, y)
    assert len(hasher.codes_) == (y >= 0).sum()
    for label in range(8):
        assert len(np.unique(hasher.codes_[y[y >= 0] == label], axis=0)) == 1
    assert len(np.unique(hasher.codes_, axis=0)) == 8
    assert (hasher.codes_ == hasher.encode(rows[y >= 0])).mean() > 0.9


@pytest.mark.parametrize("loss", ["l1", "l21"])
@pytest.mark.parametrize("weights", list(itertools.product([1e-12, 1e12], repeat=3)))
def test_extreme_weights_do_not_fail(weights, loss, rows, labels):
    several = several_labels(most=2)
    params = dict(zip(("alpha", "beta", "gamma"), weights, strict=True))
    for y in (labels, np.column_stack([several, several[:, 0]])):
        hasher = SADIH(n_bits=12, loss=loss, n_anchors=60, random_state=0, **params).fit(rows, y)
        assert np.isfinite(hasher.objective_).all()


def test_a_class_of_one_row_has_bits_of_its_own(rows):
    y = np.arange(300) == 17
    bits = SADIH(n_bits=8, random_state=0).fit(rows[:300], y).project(rows[:300]) > 0
    most = bits.mean(axis=0) > 0.5
    assert (bits[17] != most).all()
    assert ((bits != most).sum(axis=0) <= 15).all()


def test_refuses_bits_of_rounding():
    """A line of rows tells nothing of a bit that is symmetric about its middle."""
    with pytest.raises(InvalidInputError, match="say nothing about bit"):
        SADIH(n_bits=20, n_anchors=None, random_state=0).fit(
            np.arange(50.0)[:, None], np.arange(50) // 10
        )
