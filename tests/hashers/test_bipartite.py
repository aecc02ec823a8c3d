"""Graphs between rows and objects: what random walks on them find, and which edges they have."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers.numerics.bipartite import (
    BipartiteGraph,
    anchor_graph,
    edges_of_new_rows,
    neighbour_graph,
    radius_graph,
    shares,
)
from pg_hashindex.hashers.numerics.rows import RowSource

DRAWS = 200_000

# Row 4 has no edge, and row 5 shares its object with no other row.
WEIGHTS = np.array(
    [[1, 3, 0, 0], [2, 0, 0, 0], [0, 1, 5, 0], [0, 0, 2, 0], [0, 0, 0, 0], [0, 0, 0, 4]]
)
CONNECTED = [0, 1, 2, 3]
# Small enough to work out by hand.
THREE = np.array([[1, 0], [1, 2], [0, 1]])


def graph_of(weights):
    return BipartiteGraph(scipy.sparse.csr_array(np.asarray(weights, np.float32)))


def by_all_walks(weights, row, length):
    """Probabilities of the contexts of a row, exactly: one walk after another.

    A walk counts as often as it visits other rows, shared among these visits.
    """
    weights = [[Fraction(int(value)) for value in line] for line in weights]
    rows, objects = range(len(weights)), range(len(weights[0]))

    def step(start, end):
        return sum(
            weights[start][o]
            / sum(weights[start])
            * weights[end][o]
            / sum(weights[other][o] for other in rows)
            for o in objects
            if weights[start][o]
        )

    steps = {pair: step(*pair) for pair in itertools.product(rows, rows) if any(weights[pair[0]])}
    found = Counter()
    for walk in itertools.product(rows, repeat=length):
        probability = Fraction(1)
        for pair in itertools.pairwise((row, *walk)):
            probability *= steps.get(pair, 0)
        visits = [place for place in walk if place != row]
        for place in visits:
            found[place] += probability / len(visits)
    met = sum(found.values())
    return {place: share / met for place, share in found.items() if share}


def assert_drawn_as(drawn, expected):
    """Compare counts of draws with probabilities: all within five standard deviations."""
    counts = Counter(drawn)
    assert set(counts) <= set(expected)
    assert float(sum(expected.values())) == pytest.approx(1)
    for value, share in expected.items():
        mean = counts.total() * float(share)
        assert abs(counts[value] - mean) <= 5 * (mean * (1 - float(share))) ** 0.5, value


@pytest.mark.parametrize("length", [1, 2, 3])
def test_contexts_are_distributed_as_in_algorithm_1(length):
    found = graph_of(WEIGHTS).contexts(
        DRAWS, np.random.default_rng(length), positive=1.0, length=length
    )
    expected = {
        (row, context): share / len(CONNECTED)
        for row in CONNECTED
        for context, share in by_all_walks(WEIGHTS, row, length).items()
    }
    assert len(found.rows) == DRAWS
    assert (found.signs == 1).all()
    assert len(expected) == (6 if length == 1 else 10 if length == 2 else 12)
    assert_drawn_as(zip(found.rows.tolist(), found.contexts.tolist(), strict=True), expected)


# From row 1 an edge is taken with 1/3 and 2/3. Object 0 is left for rows 0 and 1 with 1/2 each,
# object 1 for rows 1 and 2 with 2/3 and 1/3. So one step from row 1 leads to row 0 with 1/6, to row
# 2 with 2/9 and back with 11/18; from row 0 to rows 0 and 1 with 1/2 each; from row 2 to row 1 with
# 2/3 and to row 2 with 1/3. Two steps from row 0, by what they visit: 0 0 with 1/4, which is no
# context; 0 1 with 1/4; 1 0 with 1/12; 1 1 with 11/36; 1 2 with 1/9, half for each.
BY_HAND = [
    (0, 1, {1: Fraction(1)}),
    (1, 1, {0: Fraction(3, 7), 2: Fraction(4, 7)}),
    (2, 1, {1: Fraction(1)}),
    (0, 2, {1: Fraction(25, 27), 2: Fraction(2, 27)}),
]


@pytest.mark.parametrize(("row", "length", "expected"), BY_HAND)
def test_three_rows_by_hand(row, length, expected):
    assert by_all_walks(THREE, row, length) == expected
    found = graph_of(THREE).contexts(60_000, np.random.default_rng(3), positive=1.0, length=length)
    assert_drawn_as(found.contexts[found.rows == row].tolist(), expected)


def test_first_rows_signs_and_negatives():
    found = graph_of(WEIGHTS).contexts(DRAWS, np.random.default_rng(0), positive=0.3, length=2)
    assert len(found.rows) == len(found.contexts) == len(found.signs) == DRAWS
    assert found.signs.dtype == np.float32
    assert_drawn_as(found.signs.tolist(), {1.0: 0.3, -1.0: 0.7})
    assert_drawn_as(found.rows.tolist(), dict.fromkeys(CONNECTED, 1 / 4))
    # The first row is as likely as any other, and rows without a context are as well.
    negative = found.signs < 0
    pairs = zip(found.rows[negative].tolist(), found.contexts[negative].tolist(), strict=True)
    assert_drawn_as(pairs, dict.fromkeys(itertools.product(CONNECTED, range(6)), 1 / 24))


def test_the_same_rng_draws_the_same():
    first, again, other = (
        graph_of(WEIGHTS).contexts(100, np.random.default_rng(seed), positive=0.5, length=3)
        for seed in (1, 1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.contexts, other.contexts)


graphs = st.tuples(st.integers(2, 7), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(st.sampled_from([0, 0, 1e-30, 1, 7, 1e30]), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@given(graphs, st.integers(1, 4), st.integers(0, 5))
@settings(max_examples=60)
def test_walks_stay_among_the_rows_that_edges_join(weights, length, seed):
    edges = np.array(weights) > 0
    shared = edges.astype(int) @ edges.T
    partners = (shared - np.diag(shared.diagonal())).any(axis=1)
    if not partners.any():
        with pytest.raises(InvalidInputError):
            graph_of(weights)
        return
    graph = graph_of(weights)
    assert graph.connected.tolist() == np.flatnonzero(partners).tolist()
    found = graph.contexts(200, np.random.default_rng(seed), positive=0.7, length=length)
    assert np.isin(found.rows, np.flatnonzero(partners)).all()
    rows, contexts = found.rows[found.signs > 0], found.contexts[found.signs > 0]
    assert (rows != contexts).all()
    reached = np.linalg.matrix_power(shared, length)
    assert (reached[rows, contexts] > 0).all()


class Extreme:
    """An rng whose shares are all the least, or the greatest there is."""

    def __init__(self, share):
        self.share = share
        self.rng = np.random.default_rng(0)

    def random(self, size):
        return np.full(size, self.share)

    def integers(self, most, size):
        return self.rng.integers(most, size=size)


@pytest.mark.parametrize("share", [0.0, np.nextafter(1, 0)])
def test_no_share_leads_beyond_the_edges_of_a_node(share):
    """The number of a node and a share just below 1 add up to the number of the next node."""
    n = 50
    # In a ring: row i is joined with objects i and i + 1, one of them hardly.
    own, next_one = np.arange(n), (np.arange(n) + 1) % n
    weights = np.zeros((n, n), np.float32)
    weights[own, own] = 1
    weights[own, next_one] = np.where(own % 2, 1e-30, 1)
    found = graph_of(weights).contexts(1000, Extreme(share), positive=1.0, length=1)
    apart = (found.contexts - found.rows) % n
    assert len(apart)
    assert np.isin(apart, [1, n - 1]).all()


def test_weights_are_probabilities_however_far_apart():
    # Row 0 as good as always takes object 1, whose only other row is 2.
    weights = np.array([[1e-30, 1, 0], [1, 0, 0], [0, 1, 1e30]])
    found = graph_of(weights).contexts(5000, np.random.default_rng(0), positive=1.0, length=1)
    assert set(found.contexts[found.rows == 0]) == {2}
    # Sums beyond float32 count as well.
    found = graph_of(np.full((4, 3), 3e38)).contexts(
        DRAWS, np.random.default_rng(0), positive=1.0, length=1
    )
    pairs = zip(found.rows.tolist(), found.contexts.tolist(), strict=True)
    assert_drawn_as(pairs, dict.fromkeys(itertools.permutations(range(4), 2), 1 / 12))


def test_rows_that_walks_hardly_ever_leave_are_given_up():
    graph = graph_of([[1, 1e-30, 0], [0, 1e-30, 1]])
    found = graph.contexts(400, np.random.default_rng(0), positive=0.5, length=2)
    assert (found.signs == -1).all()
    assert 140 < len(found.rows) == len(found.contexts) < 260


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((3, 2)), "the graph has no edges; give some, or leave the graph out"),
        ([[1, 2, 0], [0, 0, 5]], "the graph has 3 edges, but no object is joined with two rows"),
    ],
)
def test_a_graph_without_contexts_is_refused(weights, message):
    with pytest.raises(InvalidInputError, match=message):
        graph_of(weights)


def literal_edges(squares, k, weights, rho):
    """Weights of the edges to the k nearest objects, from squared distances (n, m) in float64."""
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :k]
    joined = np.zeros(squares.shape, bool)
    np.put_along_axis(joined, nearest, True, axis=1)
    if weights == "binary":
        return joined.astype(float)
    rho = squares[joined].mean() if rho is None else rho
    return np.where(joined, np.exp(-squares / rho), 0)


def squared(X, Y):
    return ((X[:, None].astype(np.float64) - Y[None].astype(np.float64)) ** 2).sum(axis=2)


def in_blocks(X):
    return RowSource(lambda: (X[start : start + 7] for start in range(0, len(X), 7)))


@pytest.mark.parametrize("offset", [0, 3000])
@pytest.mark.parametrize(("weights", "rho"), [("heat", 20.0), ("heat", None), ("binary", None)])
@pytest.mark.parametrize("k", [1, 5, 50])
def test_rows_are_joined_to_their_nearest_landmarks(rows, k, weights, rho, offset, monkeypatch):
    # Blocks of less than the rows come out, too.
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._MAX_BLOCK_ROWS", 64)
    X = rows + np.float32(offset)
    # One beside each of 40 rows: landmarks may be anything.
    landmarks = X[::10] + np.float32(0.125)
    graph = anchor_graph(RowSource(X), landmarks, k, weights, rho)
    expected = literal_edges(squared(X, landmarks), min(k, 40), weights, rho)
    assert np.array_equal(graph.edges.toarray() > 0, expected > 0)
    np.testing.assert_allclose(graph.edges.toarray(), expected, rtol=1e-4)
    assert (graph.n_rows, graph.n_objects) == (400, 40)
    again = anchor_graph(in_blocks(X), landmarks, k, weights, rho)
    assert np.array_equal(again.edges.toarray(), graph.edges.toarray())


def test_landmarks_may_be_rows_that_come_twice(rows):
    X = np.concatenate([rows[:30], rows[:30], rows[30:40]])
    edges = anchor_graph(RowSource(X), rows[:20], 3, "heat", 15.0).edges.toarray()
    np.testing.assert_allclose(edges[:30], edges[30:60], rtol=1e-5)
    assert (edges.diagonal() == 1).all()
    np.testing.assert_allclose(
        edges, literal_edges(squared(X, rows[:20]), 3, "heat", 15.0), rtol=1e-4
    )


def test_edges_stay_edges_however_narrow_the_heat(rows):
    edges = anchor_graph(RowSource(rows), rows[:9], 4, "heat", 1e-6).edges
    assert (edges.data > 0).all()
    assert (np.diff(edges.indptr) == 4).all()


@pytest.mark.parametrize("offset", [0, 3000])
@pytest.mark.parametrize(("weights", "rho"), [("heat", 20.0), ("heat", None), ("binary", None)])
@pytest.mark.parametrize("k", [2, 500])
def test_rows_are_joined_to_their_nearest_other_rows(rows, k, weights, rho, offset, monkeypatch):
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._MAX_BLOCK_ROWS", 64)
    X = rows[:150] + np.float32(offset)
    squares = squared(X, X)
    np.fill_diagonal(squares, np.inf)
    expected = literal_edges(squares, min(k, 149), weights, rho)
    graph = neighbour_graph(in_blocks(X), k, weights, rho)
    assert np.array_equal(graph.edges.toarray() > 0, expected > 0)
    np.testing.assert_allclose(graph.edges.toarray(), expected, rtol=1e-4)
    again = neighbour_graph(RowSource(X), k, weights, rho)
    assert np.array_equal(again.edges.toarray(), graph.edges.toarray())


def test_a_row_among_many_equal_ones_is_not_its_own_neighbour():
    """The three found first among six equal rows may not hold the row itself."""
    X = np.repeat([[1.0, 2.0], [7.0, 2.0]], 6, axis=0)
    edges = neighbour_graph(RowSource(X), 2, "heat", None).edges.toarray()
    assert (edges.diagonal() == 0).all()
    assert (edges.sum(axis=1) == 2).all()
    assert not edges[:6, 6:].any()
    assert not edges[6:, :6].any()


@pytest.mark.parametrize("weights", ["heat", "binary"])
def test_a_radius_joins_what_is_nearer(weights):
    """Points on a line; a distance of 2 is not below 2."""
    X = np.array([[0.0], [1.0], [2.5], [3.0]], np.float32)
    graph = radius_graph(RowSource(X), X, 2.0, weights, 4.0, own=True)
    one, more, half = np.exp(-np.array([1, 2.25, 0.25]) / 4) if weights == "heat" else (1, 1, 1)
    expected = [[0, one, 0, 0], [one, 0, more, 0], [0, more, 0, half], [0, 0, half, 0]]
    np.testing.assert_allclose(graph.edges.toarray(), expected, rtol=1e-6)
    objects = np.array([[0.4], [2.6]], np.float32)
    among = radius_graph(RowSource(X), objects, 0.5, "binary", None)
    assert among.edges.toarray().tolist() == [[1, 0], [0, 0], [0, 1], [0, 1]]
    assert among.width == pytest.approx((0.16 + 0.01 + 0.16) / 3)


def test_a_radius_by_brute_force_in_blocks(rows, monkeypatch):
    monkeypatch.setattr("pg_hashindex.hashers.numerics.bipartite._BLOCK_PAIRS", 9 * 7)
    squares = squared(rows[:200], rows[:9])
    expected = literal_edges(squares, 9, "heat", 15.0) * (squares < 20)
    graph = radius_graph(in_blocks(rows[:200]), rows[:9], 20**0.5, "heat", 15.0)
    np.testing.assert_allclose(graph.edges.toarray(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (0.5, "radius=0.5 joins no object with two rows; half of the rows have an .* within 1$"),
        (9.0, "radius=9 gives more than 8 edges, too many to tell rows apart"),
    ],
)
def test_refuses_a_radius_that_joins_none_or_most(radius, message):
    X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
    with pytest.raises(InvalidInputError, match=message):
        radius_graph(RowSource(X), X, radius, "heat", None, own=True)


def test_new_rows_are_joined_as_rows_were(rows):
    objects = rows[:30]
    for k, radius in ((3, None), (1, 20**0.5)):
        source = RowSource(rows[:200])
        graph = (
            anchor_graph(source, objects, k, "heat", None)
            if radius is None
            else radius_graph(source, objects, radius, "heat", None)
        )
        found = edges_of_new_rows(rows[:50], objects, k, radius, "heat", graph.width)
        np.testing.assert_allclose(found.toarray(), graph.edges[:50].toarray(), rtol=1e-4)


def test_shares_of_a_row_sum_to_1():
    found = shares(scipy.sparse.csr_array(np.array([[1.0, 3, 0], [0, 0, 0], [0, 0, 2]])))
    assert found.toarray().tolist() == [[0.25, 0.75, 0], [0, 0, 0], [0, 0, 1]]
