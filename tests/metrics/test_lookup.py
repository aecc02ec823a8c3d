"""Hash lookup within a radius, classification by the nearest codes, and recall of a search."""

import numpy as np
import pytest
from fixtures.rankings import majority, ranking

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError


@pytest.mark.parametrize("radius", [0, 2, 10])
def test_precision_within_radius(data, radius):
    queries, rows = data["codes"]
    queries = np.vstack([queries[:-1], ~queries[-1:]])
    found = []
    for query, relevant in zip(queries, data["relevant"], strict=True):
        within = [i for i, d in enumerate(ranking(query, rows)[1]) if d <= radius]
        found.append(np.mean(relevant[within]) if within else 0)
    measured = metrics.precision_within_radius(queries, rows, data["relevant"], radius)
    assert measured == pytest.approx(np.mean(found), rel=1e-12)
    assert radius > 2 or min(found) == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 10, 300])
def test_neighbour_error(data, k, weighted):
    queries, rows = data["codes"]
    query_labels, labels = data["labels"]
    weights = data["weights"] if weighted else None
    wrong = [
        majority([int(labels[i]) for i in ranking(query, rows, weights)[0][:k]]) != label
        for query, label in zip(queries, query_labels, strict=True)
    ]
    measured = metrics.neighbour_error(queries, rows, query_labels, labels, k, weights=weights)
    assert measured == np.mean(wrong)
    assert 0 < measured < 1


def test_votes_by_hand():
    """Labels 7, 5, 5, 7 and 3 by distance: two votes each, and 7 has the nearest row."""
    query, rows = np.zeros((1, 1), np.uint8), np.array([[31], [15], [3], [1], [0]], np.uint8)
    labels = [3, 7, 5, 5, 7]
    for k, winner in ((1, 7), (2, 7), (3, 5), (4, 7), (5, 7)):
        assert metrics.neighbour_error(query, rows, [winner], labels, k) == 0
        assert metrics.neighbour_error(query, rows, [3], labels, k) == 1


def true_distances(query, X, metric):
    query, X = query.astype(np.float64), X.astype(np.float64)
    if metric == "l2":
        return np.linalg.norm(X - query, axis=1)
    if metric == "ip":
        return -(X @ query)
    return 1 - X @ query / np.linalg.norm(X, axis=1) / np.linalg.norm(query)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(("k", "candidates"), [(1, 1), (10, 10), (10, 60), (20, 5), (10, 300)])
def test_recall(data, metric, k, candidates, weighted):
    queries, rows = data["codes"]
    weights = data["weights"] if weighted else None
    found = 0
    for query, code in zip(data["Q"], queries, strict=True):
        distances = true_distances(query, data["X"], metric)
        farthest = sorted(distances)[k - 1]
        kept = ranking(code, rows, weights)[0][:candidates]
        returned = sorted(kept, key=lambda i: distances[i])[:k]
        found += sum(distances[i] <= farthest + 1e-9 for i in returned)
    measured = metrics.recall_at_k(
        data["Q"], data["X"], queries, rows,
        candidates=candidates, k=k, metric=metric, weights=weights,
    )  # fmt: skip
    assert measured == pytest.approx(found / (25 * k), rel=1e-12)
    assert candidates < 300 or measured == 1


def test_zero_rows_come_last_by_cosine():
    X = np.vstack([np.zeros(3), np.eye(3)])
    encoded = np.zeros((4, 1), np.uint8)
    args = (np.ones((1, 3)), X, encoded[:1], encoded)
    assert metrics.recall_at_k(*args, candidates=1, k=1, metric="cosine") == 0
    assert metrics.recall_at_k(*args, candidates=2, k=1, metric="cosine") == 1
    with pytest.raises(InvalidInputError, match="zero vector"):
        metrics.recall_at_k(0 * args[0], *args[1:], candidates=1, k=1, metric="cosine")
