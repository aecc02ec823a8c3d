"""Boosted decision trees of two classes, on features in few bins."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Bins of a feature, at most; they are uint8.
_BINS = 64
# The rows of least weight, with this part of all weight, are left out of a tree.
_TRIMMED = 0.1
# A split that lowers the error by less, as a part of all weight, follows rounding.
_NO_GAIN = 1e-10


class Bins:
    """Features of rows, float32 (n, d), each cut at up to 63 numbers between its values.

    ``edges`` are these numbers, (e_j,) float32 for each feature, rising, and ``places`` (d, n) the
    bin of each row, so that a row is above edge k just if its place is above k.
    """

    def __init__(self, X: NDArray[np.float32]) -> None:
        self.edges: list[NDArray[np.float32]] = []
        self.places = np.empty(X.shape[::-1], np.uint8)
        for place, column in zip(self.places, X.T, strict=True):
            edges = _edges(np.sort(column))
            place[:] = np.searchsorted(edges, column, side="left")
            self.edges.append(edges)


def _edges(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut sorted values into bins of about equal size, halfway between neighbouring values."""
    lower = np.unique(values)
    if len(lower) > _BINS:
        lower = np.unique(values[np.arange(1, _BINS) * len(values) // _BINS])
    next_place = np.searchsorted(values, lower, side="right")
    lower, next_place = lower[next_place < len(values)], next_place[next_place < len(values)]
    upper = values[next_place]
    middle = (lower.astype(np.float64) / 2 + upper.astype(np.float64) / 2).astype(np.float32)
    # There is no number between neighbouring float32 numbers.
    return np.where(middle < upper, middle, lower)


class Tree(NamedTuple):
    """A tree of splits, numbered as in `pg_hashindex.models.trees`."""

    features: NDArray[np.int32]  # (2^depth - 1,)
    thresholds: NDArray[np.float32]  # (2^depth - 1,)
    leaves: NDArray[np.int8]  # (2^depth,) 1 or -1
    outputs: NDArray[np.int8]  # (n,) of the rows that it was grown on, trimmed ones too


class Boosted(NamedTuple):
    """Trees, the weight of each, and the sums of their weighted outputs, (n,)."""

    trees: list[Tree]
    weights: NDArray[np.float64]
    votes: NDArray[np.float64]


def boost(
    bins: Bins,
    z: NDArray[np.int8],
    n_trees: int,
    depth: int,
    n_features: int,
    rng: np.random.Generator,
) -> Boosted:
    """Learn z (n,), 1 or -1, by the sign of a weighted sum of trees (AdaBoost).

    Minimises the sum of exp(-z_i F(x_i)), F being that sum, one tree at a time: rows weigh w_i =
    exp(-z_i F(x_i)), and a tree of error e has the weight log((1 - e) / e) / 2. Both shares get one
    row more, so that a tree without error has a weight too. A tree no better than chance has none.
    """
    trees, weights = list[Tree](), np.zeros(n_trees)
    votes = np.zeros(len(z))
    for number in range(n_trees):
        # All would be 0 after many trees without error.
        margins = z * votes
        w = np.exp(margins.min() - margins)
        w /= w.sum()
        tree = grow(bins, z, w, depth, n_features, rng)
        error = float(w[tree.outputs != z].sum())
        spare = 1 / len(z)
        weights[number] = max(np.log((1 - error + spare) / (error + spare)) / 2, 0)
        votes += weights[number] * tree.outputs
        trees.append(tree)
    return Boosted(trees, weights, votes)


def grow(
    bins: Bins,
    z: NDArray[np.int8],
    w: NDArray[np.float64],
    depth: int,
    n_features: int,
    rng: np.random.Generator,
) -> Tree:
    """Grow a tree for z (n,), 1 or -1, of rows with weights w, one level at a time.

    Each level draws ``n_features`` features, as in LazyBoost; each of its nodes takes the one split
    by which the weighted squared error of constants falls the most (Gini's index). Rows of least
    weight are trimmed.
    """
    heavy = _heavy(w)
    weight, signed = w[heavy], w[heavy] * z[heavy]
    features, thresholds = np.zeros(2**depth - 1, np.int32), np.zeros(2**depth - 1, np.float32)
    node = np.zeros(len(z), np.intp)
    leaves = np.sign(signed.sum(keepdims=True))
    for level in range(depth):
        n_nodes = 2**level
        drawn = np.sort(rng.permutation(len(bins.edges))[:n_features])
        split, feature, edge = best_splits(
            bins.places[drawn].take(heavy, axis=1), node[heavy], weight, z[heavy] > 0, n_nodes
        )
        feature = drawn[feature]
        here = slice(n_nodes - 1, 2 * n_nodes - 1)
        features[here] = feature
        # A node without a split sends all rows to one side.
        thresholds[here] = np.finfo(np.float32).max
        for number in np.flatnonzero(split):
            thresholds[here][number] = bins.edges[feature[number]][edge[number]]
        above = bins.places[feature[node], np.arange(len(z))] > edge[node]
        node = 2 * node + (above & split[node])
        # A leaf without weight says what the node above it says.
        sums = np.bincount(node[heavy], signed, 2 * n_nodes)
        leaves = np.where(sums, np.sign(sums), np.repeat(leaves, 2))
    signs = np.where(leaves > 0, np.int8(1), np.int8(-1))
    return Tree(features, thresholds, signs, signs[node])


def best_splits(
    places: NDArray[np.uint8],
    node: NDArray[np.intp],
    weight: NDArray[np.float64],
    above: NDArray[np.bool_],
    n_nodes: int,
) -> tuple[NDArray[np.bool_], NDArray[np.intp], NDArray[np.intp]]:
    """Find the best split of each node, from the bins (k, n) of k features.

    With W the weight of the rows on a side and S that of the rows with 1 (``above``) less that of
    the others, the best split has the greatest S^2 / W, summed over both sides.

    Returns, for each node, whether any split helps, its feature, and the edge.
    """
    k = len(places)
    # One sum over cells of feature, node, sign and bin gives both W and S.
    cells = (2 * node + above) * _BINS + places
    cells += np.arange(k)[:, None] * (2 * n_nodes * _BINS)
    sums = np.bincount(cells.ravel(), np.tile(weight, k), k * 2 * n_nodes * _BINS)
    minus, plus = np.moveaxis(sums.reshape(k, n_nodes, 2, _BINS).cumsum(axis=3), 2, 0)
    one_W, one_S = plus + minus, plus - minus
    W, S = one_W[:, :, -1:], one_S[:, :, -1:]
    other_W, other_S = W - one_W, S - one_S
    # Rounding of the sums must not look like rows on the other side.
    inside = (one_W > 0) & (other_W > _NO_GAIN * W)
    gain = np.zeros(one_W.shape)
    for side_W, side_S in ((one_W, one_S), (other_W, other_S)):
        gain += np.divide(side_S**2, side_W, out=np.zeros(gain.shape), where=inside)
    gain -= np.divide(S**2, W, out=np.zeros(W.shape), where=W > 0)
    by_node = np.where(inside, gain, 0).transpose(1, 0, 2).reshape(n_nodes, -1)
    best = by_node.argmax(axis=1)
    split = by_node[np.arange(n_nodes), best] > _NO_GAIN
    return split, best // _BINS, best % _BINS


def _heavy(w: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the numbers of the rows that are not trimmed, rising."""
    order = np.argsort(-w, kind="stable")
    n_kept = int(np.searchsorted(np.cumsum(w[order]), (1 - _TRIMMED) * w.sum())) + 1
    return np.sort(order[:n_kept])
