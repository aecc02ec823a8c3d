from itertools import pairwise

import numpy as np
import pytest

from pg_hashindex.hashers.numerics import trees
from pg_hashindex.hashers.numerics.trees import Bins, best_splits, boost, grow
from pg_hashindex.models.trees import votes


@pytest.fixture(scope="module", name="X")
def features():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((120, 6)).astype(np.float32)
    X[:, 1] = rng.integers(3, size=120)
    X[:, 2] = 5
    X[:, 3] = np.round(X[:, 3], 1)
    return X


@pytest.fixture(scope="module")
def z(X):
    return np.where(X[:, 0] * X[:, 4] + 0.3 * X[:, 1] > 0.2, 1, -1).astype(np.int8)


@pytest.fixture(scope="module")
def w():
    w = np.random.default_rng(4).random(120)
    return w / w.sum()


def squared_error(z, w):
    """The weighted squared error of the best constant."""
    return float(w @ (z - np.average(z, weights=w)) ** 2) if len(z) else 0.0


def literal_split(X, z, w):
    """Try every threshold between two values of every feature; return the least error."""
    best = squared_error(z, w)
    for column in X.T:
        for value in np.unique(column)[:-1]:
            above = column > value
            parts = squared_error(z[above], w[above]) + squared_error(z[~above], w[~above])
            best = min(best, parts)
    return best


def test_edges_lie_between_values_and_places_count_them(X):
    bins = Bins(X)
    assert [len(edges) for edges in bins.edges[:3]] == [63, 2, 0]
    for column, edges, place in zip(X.T, bins.edges, bins.places, strict=True):
        assert (np.diff(edges) > 0).all()
        for number, edge in enumerate(edges):
            assert np.array_equal(column > edge, place > number)
            assert (column > edge).any()
            assert (column <= edge).any()
    np.testing.assert_array_equal(bins.edges[1], [0.5, 1.5])
    # Bins of a continuous feature have about as many rows each.
    assert np.bincount(bins.places[0]).max() <= 4


def test_neighbouring_numbers_can_be_separated():
    low = np.float32(1)
    X = np.array([[low], [np.nextafter(low, np.float32(2))], [low]], np.float32)
    assert Bins(X).places.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("n_nodes", [1, 3])
def test_split_is_the_best_of_all(n_nodes, X, z, w, monkeypatch):
    monkeypatch.setattr(trees, "_BINS", 120)
    bins = Bins(X)
    node = np.arange(120) % n_nodes
    split, feature, edge = best_splits(bins.places, node, w, z > 0, n_nodes)
    for number in range(n_nodes):
        here = node == number
        assert split[number]
        above = X[here, feature[number]] > bins.edges[feature[number]][edge[number]]
        found = sum(squared_error(z[here][side], w[here][side]) for side in (above, ~above))
        assert found == pytest.approx(literal_split(X[here], z[here], w[here]))


def test_nodes_that_nothing_splits_stay_whole(X, z, w):
    bins = Bins(X)
    for places, signs in ((bins.places[2:3], z), (bins.places, np.ones_like(z))):
        split, _, _ = best_splits(places, np.zeros(120, np.intp), w, signs > 0, 1)
        assert not split.any()


def test_a_tree_is_that_of_its_splits(X, z, w, monkeypatch):
    """Every node by brute force, and the leaf of each row is the sign of its rows' weights."""
    monkeypatch.setattr(trees, "_TRIMMED", 0)
    monkeypatch.setattr(trees, "_BINS", 120)
    tree = grow(Bins(X), z, w, 3, 6, np.random.default_rng(0))
    node = np.zeros(120, int)
    for level in range(3):
        below_it = node.copy()
        for number in range(2**level):
            here, place = node == number, 2**level - 1 + number
            above = here & (X[:, tree.features[place]] > tree.thresholds[place])
            below = here & ~above
            error = squared_error(z[above], w[above]) + squared_error(z[below], w[below])
            assert error == pytest.approx(literal_split(X[here], z[here], w[here]), abs=1e-9)
            below_it[here] = 2 * number + above[here]
        node = below_it
    for leaf in np.unique(node):
        here = node == leaf
        assert tree.leaves[leaf] == np.sign(w[here] @ z[here])
    np.testing.assert_array_equal(tree.outputs, tree.leaves[node])


def test_features_are_drawn_for_each_level(X, z, w):
    bins = Bins(X)
    drawn = {
        tuple(grow(bins, z, w, 2, 1, np.random.default_rng(seed)).features) for seed in range(30)
    }
    assert len({features[0] for features in drawn}) >= 5
    # One feature for both nodes of the second level.
    assert all(features[1] == features[2] for features in drawn)


def test_rows_of_least_weight_are_trimmed():
    w = np.array([4, 1, 8, 2, 85]) / 100
    assert trees._heavy(w).tolist() == [2, 4]
    assert trees._heavy(np.full(16, 1 / 16)).tolist() == list(range(15))


def test_boosting_is_adaboost(X, z):
    n = len(z)
    boosted = boost(Bins(X), z, 10, 2, 6, np.random.default_rng(0))
    F, losses = np.zeros(n), [1.0]
    for tree, weight in zip(boosted.trees, boosted.weights, strict=True):
        w = np.exp(-z * F)
        error = w[tree.outputs != z].sum() / w.sum()
        assert weight == pytest.approx(0.5 * np.log((1 - error + 1 / n) / (error + 1 / n)))
        F += weight * tree.outputs
        losses.append(np.exp(-z * F).mean())
    np.testing.assert_allclose(boosted.votes, F)
    assert all(after < before for before, after in pairwise(losses))
    assert (np.sign(F) == z).mean() > 0.95


def test_votes_walk_each_tree(X, z):
    boosted = boost(Bins(X), z, 4, 3, 4, np.random.default_rng(1))
    features = np.array([tree.features for tree in boosted.trees]).reshape(2, 2, 7)
    thresholds = np.array([tree.thresholds for tree in boosted.trees]).reshape(2, 2, 7)
    values = np.array(
        [weight * tree.leaves for weight, tree in zip(boosted.weights, boosted.trees, strict=True)]
    )
    leaves = values.astype(np.float32).reshape(2, 2, 8)
    found = votes(X, features, thresholds, leaves)
    assert (found.dtype, found.shape) == (np.float32, (120, 2))
    for bit in range(2):
        parts = [
            boosted.weights[2 * bit + number] * boosted.trees[2 * bit + number].outputs
            for number in range(2)
        ]
        np.testing.assert_allclose(found[:, bit], sum(parts), atol=1e-6)
    for row in (0, 50):
        total = 0.0
        for number in range(2):
            place = 0
            while place < 7:
                above = X[row, features[0, number, place]] > thresholds[0, number, place]
                place = 2 * place + 1 + int(above)
            total += leaves[0, number, place - 7]
        assert found[row, 0] == pytest.approx(total)


def test_votes_in_blocks_are_the_same(X, z, monkeypatch):
    boosted = boost(Bins(X), z, 3, 2, 6, np.random.default_rng(1))
    arrays = (
        np.array([[tree.features for tree in boosted.trees]]),
        np.array([[tree.thresholds for tree in boosted.trees]]),
        np.array([[tree.leaves for tree in boosted.trees]], np.float32),
    )
    expected = votes(X, *arrays)
    monkeypatch.setattr("pg_hashindex.models.trees._BLOCK_PLACES", 50)
    np.testing.assert_array_equal(votes(X, *arrays), expected)
    assert votes(X[:0], *arrays).shape == (0, 1)
