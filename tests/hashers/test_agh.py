import numpy as np
import pytest
import scipy.optimize

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import AGH, LSH


def nearest_anchors(x, anchors, s):
    squares = ((x - anchors) ** 2).sum(axis=1)
    order = sorted(range(len(anchors)), key=lambda j: squares[j])[:s]
    return order, squares


def literal_shares(X, anchors, s, t=None):
    """Return Z of the paper, row by row, and t."""
    if t is None:
        last = [
            np.sqrt(squares[order[-1]])
            for order, squares in (nearest_anchors(x, anchors, s) for x in X)
        ]
        t = np.mean(last) ** 2
    Z = np.zeros((len(X), len(anchors)))
    for i, x in enumerate(X):
        order, squares = nearest_anchors(x, anchors, s)
        weights = [np.exp(-squares[j] / t) for j in order]
        for j, weight in zip(order, weights, strict=True):
            Z[i, j] = weight / sum(weights)
    return Z, t


class LiteralGraph:
    """The anchor graph of the paper, with all n x n affinities."""

    def __init__(self, X, anchors, s):
        self.X, self.anchors, self.s = X, anchors, s
        self.Z, self.t = literal_shares(X, anchors, s)
        self.sums = self.Z.sum(axis=0)
        self.A = self.Z / self.sums @ self.Z.T
        self.L = np.eye(len(X)) - self.A

    def eigenvectors(self, k):
        """Return the largest eigenvalues of A but the trivial one, and vectors with y'y = n."""
        values, vectors = np.linalg.eigh(self.A)
        order = np.argsort(-values)[1 : k + 1]
        return values[order], vectors[:, order] * np.sqrt(len(self.X))

    def extended(self, new, k):
        """Return the Nystroem extension of the eigenvectors to other rows."""
        values, Y = self.eigenvectors(k)
        Z, _ = literal_shares(new, self.anchors, self.s, self.t)
        return Z / self.sums @ self.Z.T @ Y / values

    def beyond(self, y, upper, lower):
        """Return f: y - b+ of the rows above 0, -y + b- of the others."""
        return np.where(y > 0, y - upper, -y + lower)

    def best_thresholds(self, y):
        """Minimise f'Lf by a search over b+, b- following from 1'f = 0."""

        def other(upper):
            return -(y[y > 0] - upper).sum() / (y <= 0).sum() + y[y <= 0].mean()

        def objective(upper):
            f = self.beyond(y, upper, other(upper))
            return f @ self.L @ f

        # From b+ = 0 to where b- = 0.
        most = y[y > 0].mean() - y[y <= 0].sum() / (y > 0).sum()
        found = scipy.optimize.minimize_scalar(
            objective, bounds=(0, most), method="bounded", options={"xatol": 1e-9}
        )
        return found.x, other(found.x)


@pytest.fixture(scope="module")
def cloud():
    """Return rows of one cloud, the anchors among them, and other rows."""
    rng = np.random.default_rng(8)
    X = (rng.standard_normal((360, 5)) * [3, 2, 1, 1, 1] + 4).astype(np.float32)
    return X[:300], X[:24] + np.float32(0.1), X[300:]


def up_to_sign(found, expected):
    return found * np.sign((found * expected).sum(axis=0))


@pytest.mark.parametrize(("n_bits", "n_nearest"), [(1, 3), (8, 2), (12, 5), (9, 24)])
def test_one_layer_agrees_with_the_paper(n_bits, n_nearest, cloud):
    X, anchors, new = cloud
    graph = LiteralGraph(X.astype(np.float64), anchors.astype(np.float64), n_nearest)
    hasher = AGH(n_bits=n_bits, n_layers=1, anchors=anchors, n_nearest=n_nearest).fit(X)
    values, Y = graph.eigenvectors(n_bits)
    # So that each eigenvector is distinct from the others, and none from a part of the graph.
    assert values[0] < 0.999
    assert hasher.width_ == pytest.approx(graph.t, rel=1e-5)
    np.testing.assert_allclose(hasher.eigenvalues_, values, rtol=1e-4)
    atol = 1e-3 / np.sqrt(values[-1])
    np.testing.assert_allclose(up_to_sign(hasher.project(X), Y), Y, atol=atol)
    extended = graph.extended(new.astype(np.float64), n_bits)
    np.testing.assert_allclose(up_to_sign(hasher.project(new), extended), extended, atol=atol)
    assert hasher.thresholds_ is None
    assert [layer.kind for layer in hasher.layers_] == ["affinity", "affine"]


@pytest.mark.parametrize(("n_bits", "n_nearest"), [(2, 3), (11, 2), (16, 3)])
def test_two_layers_agree_with_the_paper(n_bits, n_nearest, cloud):
    X, anchors, new = cloud
    k = -(-n_bits // 2)
    graph = LiteralGraph(X.astype(np.float64), anchors.astype(np.float64), n_nearest)
    hasher = AGH(n_bits=n_bits, anchors=anchors, n_nearest=n_nearest).fit(X)
    one_layer = AGH(n_bits=k, n_layers=1, anchors=anchors, n_nearest=n_nearest).fit(X)
    Y = one_layer.project(X).astype(np.float64)
    np.testing.assert_allclose(np.abs(Y), np.abs(graph.eigenvectors(k)[1]), atol=5e-3)
    for j in range(k):
        upper, lower = hasher.thresholds_[:, j]
        expected = graph.best_thresholds(Y[:, j])
        assert (upper, lower) == pytest.approx(expected, abs=2e-3)
        assert upper >= 0 >= lower
        assert graph.beyond(Y[:, j], upper, lower).sum() == pytest.approx(0, abs=0.01)
    for rows in (X, new):
        Y = one_layer.project(rows)
        upper, lower = hasher.thresholds_
        second = np.where(Y > 0, upper < Y, lower > Y)
        bits = hasher.project(rows) > 0
        assert np.array_equal(bits[:, :k], Y > 0)
        assert np.array_equal(bits[:, k:], second[:, : n_bits - k])
    assert [layer.kind for layer in hasher.layers_] == ["affinity", "affine", "relu", "affine"]


def test_thresholds_stay_on_their_sides():
    """Without that condition, an unbalanced eigenvector would have both above 0 here."""
    rng = np.random.default_rng(42)
    rng.exponential(size=(300, 5))
    X = rng.standard_normal((300, 3))
    X[:20] *= 6
    X = X.astype(np.float32)
    graph = LiteralGraph(X.astype(np.float64), X[:24].astype(np.float64), 2)
    hasher = AGH(n_bits=8, anchors=X[:24], n_nearest=2).fit(X)
    Y = AGH(n_bits=4, n_layers=1, anchors=X[:24], n_nearest=2).fit(X).project(X)
    upper, lower = hasher.thresholds_
    assert (upper >= 0).all()
    assert (lower <= 0).all()
    assert (upper < 1e-9).any()
    for y, *found in zip(Y.T.astype(np.float64), upper, lower, strict=True):
        # If no edge crosses 0, all thresholds do as well: so compare what they are chosen by.
        best, ours = (graph.beyond(y, *pair) for pair in (graph.best_thresholds(y), found))
        assert ours @ graph.L @ ours == pytest.approx(best @ graph.L @ best, abs=0.01)
        assert ours.sum() == pytest.approx(0, abs=0.01)
    bits = hasher.project(X) > 0
    assert np.array_equal(bits[:, 4:], np.where(Y > 0, upper < Y, lower > Y))


def test_an_odd_bit_is_one_less_of_the_second_layer(cloud):
    X, anchors, _ = cloud
    even, odd = (AGH(n_bits=n, anchors=anchors).fit(X).project(X) for n in (10, 9))
    np.testing.assert_allclose(odd, even[:, :9], atol=1e-5)


def test_bits_cut_few_edges(rows):
    """The objective: rows that the graph joins share bits, more so than with other codes."""
    anchors = rows[::10]
    graph = LiteralGraph(rows.astype(np.float64), anchors.astype(np.float64), 3)
    hasher = AGH(n_bits=8, n_layers=1, anchors=anchors).fit(rows)

    def cut(projections):
        B = projections - projections.mean(axis=0, dtype=np.float64)
        return np.trace(B.T @ graph.L @ B) / np.trace(B.T @ B)

    rng = np.random.default_rng(0)
    Y = hasher.project(rows).astype(np.float64)
    np.testing.assert_allclose(Y.T @ Y / 400, np.eye(8), atol=5e-3)
    assert cut(Y) == pytest.approx(1 - hasher.eigenvalues_.mean(), abs=1e-3)
    others = [graph.Z @ rng.standard_normal((40, 8)) for _ in range(20)]
    assert cut(Y) < 0.5 * min(map(cut, others))
    lsh = [LSH(n_bits=8, random_state=seed).fit(rows).project(rows) for seed in range(10)]
    assert cut(np.sign(Y)) < 0.7 * min(cut(np.sign(P)) for P in lsh)
    assert (np.diff(hasher.eigenvalues_) <= 1e-3).all()


@pytest.mark.parametrize("spread", [0.3, 1e-3])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_codes_tell_apart_clusters_that_no_row_joins(spread, n_layers):
    """Many eigenvalues are 1 then. Nor does it matter how tight the clusters are."""
    rng = np.random.default_rng(0)
    labels = np.arange(800) % 8
    X = 100 * rng.standard_normal((8, 12))[labels] + spread * rng.standard_normal((800, 12))
    hasher = AGH(n_bits=7 * n_layers, n_layers=n_layers, random_state=0).fit(X)
    np.testing.assert_allclose(hasher.eigenvalues_, 1, atol=1e-3)
    first = hasher.project(X)[:, :7] > 0
    for label in range(8):
        assert (first[labels == label] == first[label]).all()
    assert len(np.unique(first, axis=0)) == 8


def test_splits_what_is_far_apart_first():
    """If no row joins the clusters, all splits have eigenvalue 1, but they are not as good."""
    rng = np.random.default_rng(1)
    groups = np.repeat([[-1.0], [1]], 4, axis=0) * np.full(10, 100)
    clusters = groups + 20 * rng.standard_normal((8, 10))
    labels = np.arange(800) % 8
    X = clusters[labels] + 0.3 * rng.standard_normal((800, 10))
    bits = AGH(n_bits=7, n_layers=1, random_state=0).fit(X).project(X) > 0
    assert np.array_equal(bits[:, 0], labels < 4) or np.array_equal(bits[:, 0], labels >= 4)


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_two_parts_give_one_bit_twice(share):
    """There is nothing else to tell in that eigenvector, and rounding must not."""
    rng = np.random.default_rng(0)
    labels = np.arange(1000) < 1000 * share
    X = 50 * labels[:, None] + 0.01 * rng.standard_normal((1000, 6))
    hasher = AGH(n_bits=4, random_state=0).fit(X)
    projections = hasher.project(X)
    first, second = projections[:, 0] > 0, projections[:, 2] > 0
    assert (first == labels).all() or (first != labels).all()
    assert (second == first).all() or (second != first).all()
    assert np.abs(projections[:, [0, 2]]).min() > 0.1


def test_anchors_are_found_by_k_means(rows):
    hasher = AGH(n_bits=6, n_anchors=30, random_state=0).fit(rows)
    assert hasher.anchors_.shape == (30, 12)
    assert hasher.training_["anchors"] == 30
    assert hasher.training_["width"] == hasher.width_
    (shares, *_) = hasher.layers_
    np.testing.assert_array_equal(shares.weights, hasher.anchors_)
    assert shares.nearest == 3
    assert shares.scale == pytest.approx(1 / hasher.width_, rel=1e-6)
    within = ((rows[:, None] - hasher.anchors_) ** 2).sum(axis=2).min(axis=1).mean()
    chosen = ((rows[:, None] - rows[:30]) ** 2).sum(axis=2).min(axis=1).mean()
    assert within < 0.8 * chosen


@pytest.mark.parametrize(("n_bits", "n_anchors"), [(4, 40), (60, 60), (110, 110)])
def test_fewer_anchors_for_few_rows(n_bits, n_anchors, rows):
    """A tenth of the rows, but enough for the eigenvectors."""
    hasher = AGH(n_bits=n_bits, random_state=0).fit(rows)
    assert len(hasher.anchors_) == n_anchors


def test_given_anchors_go_the_way_of_the_rows(rows):
    hasher = AGH(n_bits=6, anchors=rows[:20].tolist(), normalize="l2").fit(rows)
    unit = rows[:20] / np.linalg.norm(rows[:20], axis=1, keepdims=True)
    np.testing.assert_allclose(hasher.anchors_, unit, atol=1e-6)
    assert hasher.to_model("m").parameters["anchors"] == "given, 20 x 12"


def test_anchors_of_no_row_are_left_out(rows):
    far = np.full((3, 12), 1000.0)
    with_far = AGH(n_bits=6, anchors=np.vstack([far, rows[:20]])).fit(rows)
    without = AGH(n_bits=6, anchors=rows[:20]).fit(rows)
    np.testing.assert_array_equal(with_far.anchors_, without.anchors_)
    np.testing.assert_allclose(with_far.project(rows), without.project(rows), atol=2e-3)


def test_refuses_two_rows():
    with pytest.raises(InvalidInputError, match="n_nearest is 3, but there are only 2 anchors"):
        AGH(n_bits=1).fit(np.eye(2))
