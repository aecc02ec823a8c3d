import itertools

import numpy as np
import pytest
import scipy.optimize

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH, CGHash
from pg_hashindex.models import codes


def by_one_dimension(X, n=2_000, seed=5):
    """Triplets of someone who looks at dimension 4 only, with some at random."""
    rng = np.random.default_rng(seed)
    t = np.array([rng.permutation(len(X))[:3] for _ in range(n)])
    swap = np.abs(X[t[:, 0], 4] - X[t[:, 1], 4]) > np.abs(X[t[:, 0], 4] - X[t[:, 2], 4])
    swap[: n // 10] = rng.random(n // 10) < 0.5
    t[swap, 1:] = t[swap, :0:-1]
    return t


def distances(hasher, X, Z):
    """Weighted Hamming distances of rows, one bit at a time."""
    a, b = (codes.unpack(hasher.encode(rows), hasher.n_bits_).astype(int) for rows in (X, Z))
    weights = hasher.to_model("m").bit_weights.astype(np.float64)
    return sum(w * np.abs(a[:, j] - b[:, j]) for j, w in enumerate(weights))


def margins(hasher, X, t):
    return distances(hasher, X[t[:, 0]], X[t[:, 2]]) - distances(hasher, X[t[:, 0]], X[t[:, 1]])


def literal_cghash(X, triplets, n_bits, C):
    """Follow Algorithm 1 over stumps: squared hinge, l1, one function and triplet at a time."""
    stumps = []
    for values in X.T:
        levels = np.unique(values)
        stumps += [values > (low + high) / 2 for low, high in itertools.pairwise(levels)]
    h = np.array(stumps).astype(int)
    x, near, far = triplets.T
    a = np.abs(h[:, x] - h[:, far]) - np.abs(h[:, x] - h[:, near])
    u = np.full(len(triplets), 1 / len(triplets))
    chosen, history = [], []
    for _ in range(n_bits):
        amounts = a @ u
        amounts[chosen] = -np.inf
        chosen.append(int(np.argmax(amounts)))
        A = a[chosen].T

        def objective(w, A=A):
            slack = np.maximum(0, 1 - A @ w)
            return (slack**2).mean() + C * w.sum(), C - 2 * A.T @ slack / len(A)

        start = np.full(len(chosen), 0.5)
        bounds = [(0, None)] * len(chosen)
        # Not the solver of the hasher.
        found = scipy.optimize.minimize(
            objective, start, jac=True, bounds=bounds, method="trust-constr",
            options={"gtol": 1e-9, "xtol": 1e-12},
        )  # fmt: skip
        u = 2 * np.maximum(0, 1 - A @ found.x)
        history.append(found.fun)
    return h[chosen].astype(bool), found.x, np.array(history)


@pytest.mark.filterwarnings("ignore:delta_grad")
def test_agrees_with_the_paper(rows):
    X = np.round(rows[:80], 1)
    triplets = by_one_dimension(X, 300)
    hasher = CGHash(n_bits=5, weak="stump", C=0.01, random_state=0).fit(X, triplets=triplets)
    bits, weights, history = literal_cghash(X.astype(np.float64), triplets, 5, 0.01)
    np.testing.assert_allclose(hasher.objective_, history, atol=1e-5)
    np.testing.assert_allclose(hasher.bit_weights_, weights, atol=1e-3)
    found = codes.unpack(hasher.encode(X), 5).astype(bool).T
    for ours, theirs in zip(found, bits, strict=True):
        assert np.array_equal(ours, theirs) or np.array_equal(ours, ~theirs)


@pytest.mark.parametrize(
    ("loss", "regularizer", "weak"),
    [
        *itertools.product(
            ["squared_hinge", "logistic", "exponential", "hinge"], ["l1", "l_inf"], ["linear"]
        ),
        # Weak functions are chosen apart from losses.
        ("squared_hinge", "l1", "stump"),
        ("squared_hinge", "l1", "rbf"),
    ],
)
def test_objective_falls_and_comparisons_are_learned(loss, regularizer, weak, rows):
    """On triplets it has not seen, nearer by its weighted distance than by LSH."""
    learned, unseen = by_one_dimension(rows), by_one_dimension(rows, seed=6)[200:]
    hasher = CGHash(
        n_bits=16, loss=loss, regularizer=regularizer, weak=weak, n_anchors=60, random_state=1
    ).fit(rows, triplets=learned)
    assert (np.diff(hasher.objective_) <= 1e-6).all()
    assert hasher.objective_[-1] < 0.8 * hasher.objective_[0]
    assert (hasher.duality_gap_ > -1e-6).all()
    # Half of what lies between is for ties.
    lsh = LSH(n_bits=16, random_state=1).fit(rows)
    bits = codes.unpack(lsh.encode(rows), 16).astype(int)
    x, near, far = (bits[unseen[:, k]] for k in range(3))
    by_lsh = np.abs(x - far).sum(axis=1) - np.abs(x - near).sum(axis=1)
    found = margins(hasher, rows, unseen)
    assert (np.sign(found).mean()) > np.sign(by_lsh).mean() + 0.3


def test_objective_is_that_of_the_codes_and_weights(rows):
    """The objective of the stored model, by its definition, is the one that training reports."""
    triplets = by_one_dimension(rows)
    hasher = CGHash(n_bits=10, C=0.01, random_state=2).fit(rows, triplets=triplets)
    rho = margins(hasher, rows, triplets)
    literal = (np.maximum(0, 1 - rho) ** 2).mean() + 0.01 * hasher.bit_weights_.sum()
    assert literal == pytest.approx(hasher.objective_[-1], rel=1e-4)
    assert hasher.training_["triplets"] == len(triplets)
    assert hasher.training_["violated"] == 10
    assert hasher.training_["objective"]["last"] == hasher.objective_[-1]
    assert hasher.training_["duality_gap"]["last"] == hasher.duality_gap_[-1]
    assert hasher.duality_gap_[-1] < 0.6 * hasher.duality_gap_[0]


def test_further_bits_once_nothing_is_worth_its_price(rows):
    """A dear C ends the search early; the bits asked for are there, different, and weigh 0."""
    triplets = by_one_dimension(rows)
    hasher = CGHash(n_bits=20, weak="stump", C=0.5, random_state=0).fit(rows, triplets=triplets)
    assert 0 < hasher.n_violated_ < 20
    assert hasher.duality_gap_[-1] < 1e-3
    assert hasher.objective_[-1] == pytest.approx(hasher.objective_[hasher.n_violated_ - 1])
    bits = codes.unpack(hasher.encode(rows), 20)
    assert len(np.unique(bits ^ bits[:1], axis=1).T) == 20


def classes_far_apart(n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=600)
    X = 20 * rng.standard_normal((n_classes, 32))[y] + rng.standard_normal((600, 32))
    return X, y


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("weak", ["linear", "rbf", "stump"])
def test_classes_that_lie_far_apart(weak, n_classes):
    """A few bits tell them apart; the others are there, different, and hardly weigh.

    A row is far nearer to its class than to those that have one of its nearest rows. Others are
    not compared by any triplet of labels: two classes may share all bits but those that hardly
    weigh.
    """
    X, y = classes_far_apart(n_classes)
    hasher = CGHash(n_bits=32, weak=weak, random_state=0).fit(X, y)
    assert weak == "stump" or hasher.n_violated_ < 32
    bits = codes.unpack(hasher.encode(X), 32)
    assert len(np.unique(bits ^ bits[:1], axis=1).T) == 32
    further = hasher.bit_weights_[hasher.n_violated_ :]
    assert further.sum() < 0.1 * hasher.bit_weights_.sum()
    same = y[:, None] == y
    squares = np.where(same, np.inf, ((X[:, None] - X) ** 2).sum(axis=2))
    nearest = y[np.argsort(squares, axis=1)[:, : hasher.n_neighbours]]
    compared = (nearest[:, :, None] == y).any(axis=1)
    found = (bits[:, None] != bits) @ hasher.bit_weights_
    # The loss asks for 1.
    assert found[same].max() + 0.5 < found[compared].min()


@pytest.mark.parametrize("weak", ["linear", "rbf", "stump"])
def test_classes_that_triplets_compare_are_separated(weak):
    """Triplets can compare all classes, even those that are no row's nearest."""
    X, y = classes_far_apart(5)
    triplets = np.random.default_rng(1).integers(600, size=(20_000, 3))
    x, near, far = y[triplets].T
    triplets = triplets[(x == near) & (x != far) & (triplets[:, 0] != triplets[:, 1])]
    hasher = CGHash(n_bits=32, weak=weak, random_state=0).fit(X, triplets=triplets)
    found = hasher.encode(X), hasher.encode(X)
    weights = hasher.bit_weights_
    related = metrics.same_label(y, y)
    assert metrics.mean_average_precision(*found, related, weights=weights) > 0.99


def test_given_triplets_come_before_those_of_labels(rows, labels):
    """All of the user's are kept; labels that give none are no reason to refuse them."""
    triplets = by_one_dimension(rows, 300)
    params = {"n_bits": 2, "weak": "stump", "C": 0.01, "random_state": 0}
    alone = CGHash(max_triplets=300, **params).fit(rows, triplets=triplets)
    for y in (labels, np.full(400, -1), np.zeros(400, int), np.arange(400)):
        both = CGHash(max_triplets=300, **params).fit(rows, y, triplets=triplets)
        assert both.objective_.tolist() == alone.objective_.tolist()
    useless = CGHash(**params).fit(rows, np.full(400, -1), triplets=triplets)
    assert useless.n_triplets_ == 300


def test_failed_fit_leaves_weights_and_functions_together(rows, labels):
    hasher = CGHash(n_bits=8, random_state=0).fit(rows, labels)
    before = hasher.to_model("m").checksum
    hasher.C = 1e9
    with pytest.raises(InvalidInputError):
        hasher.fit(rows, labels)
    assert hasher.to_model("m").checksum == before


def test_labels_and_triplets_together(rows, labels):
    """Each adds to what is learned from."""
    triplets = by_one_dimension(rows, 100)
    params = {"n_bits": 4, "n_neighbours": 2, "random_state": 0}
    alone = CGHash(**params).fit(rows, labels).n_triplets_
    assert alone == 400 * 4
    assert CGHash(**params).fit(rows, labels, triplets=triplets).n_triplets_ == alone + 100
    partly = np.where(np.arange(400) < 100, labels, -1)
    assert CGHash(**params).fit(rows, partly).n_triplets_ <= 100 * 4
    few = CGHash(**params, max_triplets=333).fit(rows, labels, triplets=triplets)
    assert few.n_triplets_ == 333
    assert CGHash(**params, max_rows=50).fit(rows, labels).n_triplets_ <= 50 * 4


def test_duplets_keep_their_rows_together(rows):
    """Splitting pairs is what a function pays for: with a high price it splits fewer."""
    triplets = by_one_dimension(rows)
    rng = np.random.default_rng(0)
    pairs = np.array([(*rng.permutation(400)[:2], 1) for _ in range(50)])

    def parts_split(hasher):
        bits = codes.unpack(hasher.encode(rows), 8)
        return (bits[pairs[:, 0]] != bits[pairs[:, 1]]).mean(axis=0) @ hasher.bit_weights_

    params = {"n_bits": 8, "weak": "stump", "random_state": 0}
    cheap = CGHash(C=1e-4, **params).fit(rows, triplets=triplets, pairs=pairs)
    dear = CGHash(C=1.0, **params).fit(rows, triplets=triplets, pairs=pairs)
    assert parts_split(dear) < 0.5 * parts_split(cheap)


def test_rbf_functions_are_of_kernel_features(rows, labels):
    anchors = rows[::40]
    hasher = CGHash(n_bits=6, weak="rbf", anchors=anchors, random_state=0).fit(rows, labels)
    kinds = [layer.kind for layer in hasher.layers_]
    assert kinds == ["rbf", "shift", "affine"]
    assert hasher.layers_[0].weights.shape == (10, 12)


def test_refuses_unlearnable_supervision(rows, labels):
    triplets, pairs = [[0, 1, 2], [3, 4, 5]], [[0, 1, 1], [5, 6, -1]]
    hasher = CGHash(n_bits=4, random_state=0)
    with pytest.raises(InvalidInputError, match="learns from labels or triplets or pairs"):
        hasher.fit(rows)
    with pytest.raises(InvalidInputError, match="needs triplets or labels, also with pairs"):
        hasher.fit(rows, pairs=pairs)
    with pytest.raises(InvalidInputError, match="1 of the 2 pairs are of others"):
        hasher.fit(rows, pairs=pairs, triplets=triplets)
    with pytest.raises(InvalidInputError, match="'l_inf' does not have"):
        CGHash(regularizer="l_inf").fit(rows, pairs=pairs[:1], triplets=triplets)
    with pytest.raises(InvalidInputError, match="have the same label"):
        hasher.fit(rows, np.zeros(400, int))
    with pytest.raises(InvalidInputError, match="none of the 400 rows has both"):
        hasher.fit(rows, np.arange(400))
    with pytest.raises(InvalidInputError, match="different stump functions .* the 6 rows"):
        CGHash(n_bits=64, weak="stump").fit(rows, triplets=triplets)
    assert 1 <= CGHash(weak="stump", random_state=0).fit(rows, triplets=triplets).n_bits_ < 64
    with pytest.raises(InvalidInputError, match="no linear function .* contradict each other"):
        hasher.fit(rows, triplets=[[0, 1, 2], [0, 2, 1]])
