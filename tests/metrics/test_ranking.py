"""Average precision, precision and recall at a rank, with ties in row order."""

import numpy as np
import pytest
from fixtures import rankings
from fixtures.rankings import ranking

from pg_hashindex import metrics
from pg_hashindex.metrics.ranking import curve_ranks

each_distance = pytest.mark.parametrize("weighted", [False, True], ids=["hamming", "weighted"])


def slow_mean(data, weighted, measure):
    weights = data["weights"] if weighted else None
    queries, rows = data["codes"]
    return np.mean(
        [
            measure(ranking(query, rows, weights)[0], relevant)
            for query, relevant in zip(queries, data["relevant"], strict=True)
        ],
        axis=0,
    )


def arguments(data, weighted):
    return *data["codes"], data["relevant"]


def options(data, weighted):
    return {"weights": data["weights"]} if weighted else {}


@each_distance
@pytest.mark.parametrize("top", [None, 1, 2, 50, 300])
def test_mean_average_precision(data, weighted, top):
    assert not data["relevant"][0].any()
    expected = slow_mean(
        data, weighted, lambda order, r: rankings.average_precision(order, r, top or 300)
    )
    measured = metrics.mean_average_precision(
        *arguments(data, weighted), top=top, **options(data, weighted)
    )
    assert measured == pytest.approx(expected, rel=1e-12)


def test_average_precision_by_hand():
    """Three rows at distances 0, 1, 1, 3, of which the second and the last are relevant."""
    query, rows = np.zeros((1, 1), np.uint8), np.array([[0], [1], [2], [7]], np.uint8)
    relevant = np.array([[False, True, False, True]])
    score = metrics.mean_average_precision
    assert score(query, rows, relevant) == (1 / 2 + 2 / 4) / 2
    # Divided by the one relevant row among the first three, not by the two there are.
    assert score(query, rows, relevant, top=3) == 1 / 2
    assert score(query, rows, relevant, top=1) == 0
    # Either of the tied rows may come first: 1/2 and 1/3 by turns.
    assert score(query, rows, relevant, ties="average") == pytest.approx(
        ((1 / 2 + 1 / 3) / 2 + 1 / 2) / 2
    )
    assert score(query, rows, relevant, top=2, ties="average") == pytest.approx(1 / 4)
    # The second bit counts nothing: the third row ties with the first and comes after it.
    assert score(query, rows, relevant, weights=[*[1] * 6, 0, 1]) == (1 / 3 + 2 / 4) / 2


@each_distance
@pytest.mark.parametrize("k", [1, 7, 100, 300])
def test_precision_and_share_at_k(data, weighted, k):
    given, chosen = arguments(data, weighted), options(data, weighted)
    expected = slow_mean(data, weighted, lambda order, r: rankings.precision(order, r, k))
    assert metrics.precision_at_k(*given, k, **chosen) == pytest.approx(expected, rel=1e-12)
    expected = slow_mean(data, weighted, lambda order, r: rankings.recall(order, r, k))
    assert metrics.share_found_at_k(*given, k, **chosen) == pytest.approx(expected, rel=1e-12)


@each_distance
@pytest.mark.parametrize("at", [None, [1, 2, 300], np.array([299, 7])])
def test_curve(data, weighted, at):
    curve = metrics.precision_recall_by_rank(
        *arguments(data, weighted), at, **options(data, weighted)
    )
    if at is None:
        assert (curve.at[0], curve.at[-1]) == (1, 300)
        assert (np.diff(curve.at) > 0).all()
        assert 50 < len(curve.at) <= 100
    else:
        assert curve.at.tolist() == list(at)
    for name, values in (("precision", curve.precision), ("recall", curve.recall)):
        measure = getattr(rankings, name)
        expected = slow_mean(
            data,
            weighted,
            lambda order, r, measure=measure: [measure(order, r, k) for k in curve.at],
        )
        np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 100, 69_000])
def test_ranks_of_a_curve(n):
    ranks = curve_ranks(n)
    assert (ranks[0], ranks[-1]) == (1, n)
    assert len(np.unique(ranks)) == len(ranks)


def test_share_of_the_true_neighbours(data):
    """By the truth that goes with it: the share of the 20 nearest among the first 60."""
    relevant = metrics.nearest_k(data["Q"], data["X"], 20)
    queries, rows = data["codes"]
    shares = []
    for query, point in zip(queries, data["Q"], strict=True):
        distances = ((data["X"] - point) ** 2).sum(axis=1)
        nearest = sorted(range(300), key=lambda i: (distances[i], i))[:20]
        shares.append(len(set(nearest) & set(ranking(query, rows)[0][:60])) / 20)
    measured = metrics.share_found_at_k(queries, rows, relevant, 60)
    assert measured == pytest.approx(np.mean(shares), rel=1e-12)


def test_equal_weights_change_nothing(data):
    given = *data["codes"], data["relevant"]
    for ties in ("order", "average"):
        weighted = metrics.mean_average_precision(*given, ties=ties, weights=np.full(10, 0.1))
        assert weighted == pytest.approx(
            metrics.mean_average_precision(*given, ties=ties), rel=1e-12
        )


def test_many_rows_within_a_second_of_work():
    """Ranks of 200 queries among 50,000 rows: the largest keys of the sorts."""
    rng = np.random.default_rng(0)
    queries = rng.integers(0, 256, (20, 8), dtype=np.uint8)
    rows = rng.integers(0, 256, (50_000, 8), dtype=np.uint8)
    rows[-1] = queries[0]
    relevant = np.zeros((20, 50_000), bool)
    relevant[0, -1] = True
    for weights in (None, rng.random(64)):
        for ties in ("order", "average"):
            score = metrics.mean_average_precision(
                queries, rows, relevant, ties=ties, weights=weights
            )
            assert score == pytest.approx(1 / 20)
