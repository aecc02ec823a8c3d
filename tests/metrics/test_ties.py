"""Averaged ties are the mean over every order that the distances allow."""

import tracemalloc

import numpy as np
import pytest
from fixtures import rankings
from hypothesis import given
from hypothesis import strategies as st

from pg_hashindex import metrics


@st.composite
def tied(draw):
    """Draw distances from a zero code, few enough for all their orders to be tried."""
    distances = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    relevant = draw(st.lists(st.booleans(), min_size=len(distances), max_size=len(distances)))
    top = draw(st.integers(1, len(distances)))
    weight = draw(st.sampled_from([None, 0.3]))
    return distances, relevant, top, weight


def as_arrays(distances, relevant, weight):
    rows = np.array([[(1 << distance) - 1] for distance in distances], np.uint8)
    weights = None if weight is None else np.full(8, weight)
    return (np.zeros((1, 1), np.uint8), rows, np.array([relevant])), weights


@given(tied())
def test_average_of_all_orders(drawn):
    distances, relevant, top, weight = drawn
    orders = list(rankings.all_orders(distances))
    arrays, weights = as_arrays(distances, relevant, weight)
    options = {"ties": "average", "weights": weights}
    curve = metrics.precision_recall_by_rank(*arrays, [top], **options)
    for measured, slow in (
        (metrics.mean_average_precision(*arrays, top=top, **options), rankings.average_precision),
        (metrics.precision_at_k(*arrays, top, **options), rankings.precision),
        (metrics.share_found_at_k(*arrays, top, **options), rankings.recall),
        (curve.precision[0], rankings.precision),
        (curve.recall[0], rankings.recall),
    ):
        expected = np.mean([slow(order, relevant, top) for order in orders])
        assert measured == pytest.approx(expected, abs=1e-12)
    whole = np.mean([rankings.average_precision(o, relevant, len(distances)) for o in orders])
    measured = metrics.mean_average_precision(*arrays, **options)
    assert measured == pytest.approx(whole, abs=1e-12)


@given(tied(), st.randoms())
def test_average_does_not_see_the_order_of_the_database(drawn, random):
    distances, relevant, top, weight = drawn
    rows = list(zip(distances, relevant, strict=True))
    arrays, weights = as_arrays(distances, relevant, weight)
    expected = metrics.mean_average_precision(*arrays, top=top, ties="average", weights=weights)
    random.shuffle(rows)
    arrays, weights = as_arrays(*zip(*rows, strict=True), weight)
    again = metrics.mean_average_precision(*arrays, top=top, ties="average", weights=weights)
    assert again == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("top", [None, 5, 40, 150])
@pytest.mark.parametrize("weighted", [False, True])
def test_near_the_mean_of_many_shuffles(data, top, weighted):
    """On groups too large for every order, with queries that differ in their groups."""
    queries, rows = data["codes"]
    options = {"top": top, "weights": data["weights"] if weighted else None}
    rng = np.random.default_rng(5)
    scores = []
    for _ in range(150):
        order = rng.permutation(300)
        scores.append(
            metrics.mean_average_precision(
                queries, rows[order], data["relevant"][:, order], **options
            )
        )
    measured = metrics.mean_average_precision(
        queries, rows, data["relevant"], ties="average", **options
    )
    error = np.std(scores) / np.sqrt(len(scores))
    assert abs(measured - np.mean(scores)) < 4 * error
    assert error < 0.01


def test_without_ties_both_agree():
    """Eight rows at eight distances."""
    rows = np.array([[(1 << distance) - 1] for distance in (3, 0, 7, 5, 1, 8, 2, 6)], np.uint8)
    relevant = np.array([[1, 0, 0, 1, 1, 0, 1, 0]], bool)
    arrays = (np.zeros((1, 1), np.uint8), rows, relevant)
    for top in (None, 1, 4):
        assert metrics.mean_average_precision(*arrays, top=top) == metrics.mean_average_precision(
            *arrays, top=top, ties="average"
        )


def test_one_large_group_of_ties():
    """60,000 equal codes: the expected precision at any rank is the share of relevant rows."""
    relevant = np.zeros((1, 60_000), bool)
    relevant[0, :6_000] = True
    arrays = (np.zeros((1, 8), np.uint8), np.zeros((60_000, 8), np.uint8), relevant)
    assert metrics.precision_at_k(*arrays, 100, ties="average") == pytest.approx(0.1)
    for top, tolerance in ((None, 1e-3), (1_000, 6e-3)):
        score = metrics.mean_average_precision(*arrays, top=top, ties="average")
        assert score == pytest.approx(0.1, abs=tolerance)
    assert metrics.mean_average_precision(*arrays, ties="order") == 1


def test_codes_of_more_bits_than_there_are_rows_take_little_memory():
    """A count for each distance of each query took 200 MB."""
    rng = np.random.default_rng(0)
    queries, rows = (rng.integers(0, 256, (n, 2_000), np.uint8) for n in (1_000, 12))
    relevant = rng.random((1_000, 12)) < 0.4
    tracemalloc.start()
    score = metrics.mean_average_precision(queries, rows, relevant, ties="average")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    weighted = metrics.mean_average_precision(
        queries, rows, relevant, ties="average", weights=np.ones(16_000)
    )
    assert score == pytest.approx(weighted)
