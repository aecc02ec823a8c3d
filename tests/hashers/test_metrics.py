import numpy as np
import pytest

from pg_hashindex import codes, metrics
from pg_hashindex.errors import InvalidInputError


@pytest.fixture(params=[1 << 22, 500], ids=["one block", "blocks"])
def data(request, monkeypatch):
    """Yield 25 queries and 300 rows of 10-bit codes, so that ties abound."""
    monkeypatch.setattr(metrics, "_BLOCK_PAIRS", request.param)
    rng = np.random.default_rng(1)
    X = rng.integers(-3, 4, (325, 4)).astype(np.float32)
    X[~X.any(axis=1)] = 1
    bits = rng.standard_normal((4, 10))
    encoded = codes.pack(X @ bits > 0)
    labels = rng.integers(0, 5, 325)
    labels[0] = 9
    return {
        "Q": X[:25],
        "X": X[25:],
        "codes": (encoded[:25], encoded[25:]),
        "relevant": metrics.same_label(labels[:25], labels[25:]),
    }


def ranking(query, rows):
    """Return row numbers by Hamming distance, ties in row order."""
    distances = [
        sum(int(a ^ b).bit_count() for a, b in zip(query, row, strict=True)) for row in rows
    ]
    return sorted(range(len(rows)), key=lambda i: (distances[i], i)), distances


def test_mean_average_precision(data):
    queries, rows = data["codes"]
    total = 0.0
    for query, relevant in zip(queries, data["relevant"], strict=True):
        found, precisions = 0, []
        for place, row in enumerate(ranking(query, rows)[0], start=1):
            if relevant[row]:
                found += 1
                precisions.append(found / place)
        total += sum(precisions) / len(precisions) if precisions else 0
    assert not data["relevant"][0].any()
    assert metrics.mean_average_precision(queries, rows, data["relevant"]) == pytest.approx(
        total / 25, rel=1e-12
    )


@pytest.mark.parametrize("k", [1, 7, 100, 300])
def test_precision_at_k(data, k):
    queries, rows = data["codes"]
    found = [
        np.mean([relevant[row] for row in ranking(query, rows)[0][:k]])
        for query, relevant in zip(queries, data["relevant"], strict=True)
    ]
    assert metrics.precision_at_k(queries, rows, data["relevant"], k) == pytest.approx(
        np.mean(found), rel=1e-12
    )


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


@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.5, 1])
def test_nearest_fraction(data, fraction):
    marked = metrics.nearest_fraction(data["Q"], data["X"], fraction)
    k = max(1, round(300 * fraction))
    for query, line in zip(data["Q"], marked, strict=True):
        distances = ((data["X"] - query) ** 2).sum(axis=1)
        nearest = sorted(range(300), key=lambda i: (distances[i], i))[:k]
        assert sorted(np.flatnonzero(line)) == sorted(nearest)


def true_distances(query, X, metric):
    query, X = query.astype(np.float64), X.astype(np.float64)
    if metric == "l2":
        return np.linalg.norm(X - query, axis=1)
    if metric == "ip":
        return -(X @ query)
    return 1 - X @ query / np.linalg.norm(X, axis=1) / np.linalg.norm(query)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(("k", "candidates"), [(1, 1), (10, 10), (10, 60), (20, 5), (10, 300)])
def test_recall(data, metric, k, candidates):
    queries, rows = data["codes"]
    found = 0
    for query, code in zip(data["Q"], queries, strict=True):
        distances = true_distances(query, data["X"], metric)
        farthest = sorted(distances)[k - 1]
        kept = ranking(code, rows)[0][:candidates]
        returned = sorted(kept, key=lambda i: distances[i])[:k]
        found += sum(distances[i] <= farthest + 1e-9 for i in returned)
    measured = metrics.recall_at_k(
        data["Q"], data["X"], queries, rows, candidates=candidates, k=k, metric=metric
    )
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


CODES, ROWS = np.zeros((3, 1), np.uint8), np.eye(3)
RELEVANT = np.ones((3, 3), bool)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: metrics.mean_average_precision(CODES, CODES, RELEVANT[:2]), r"\(2, 3\)"),
        (lambda: metrics.precision_at_k(CODES, CODES, RELEVANT.astype(int), 1), "int64"),
        (lambda: metrics.precision_at_k(CODES, CODES, RELEVANT, 4), "rows, 3; got 4"),
        (lambda: metrics.precision_within_radius(CODES[:0], CODES, RELEVANT[:0]), "0 queries"),
        (lambda: metrics.nearest_fraction(ROWS, ROWS, 0), "fraction must be above 0"),
        (lambda: metrics.nearest_fraction(ROWS, ROWS[:, :2]), "3 dimensions, expected 2"),
        (lambda: metrics.nearest_fraction(ROWS[:0], ROWS), "0 queries"),
        (lambda: recall(k=0), "k must be .* got 0"),
        (lambda: recall(candidates=4), "candidates must be .* got 4"),
        (lambda: recall(metric="l1"), "metric 'l1' is unknown"),
        (lambda: metrics.recall_at_k(ROWS, ROWS, CODES[:2], CODES, candidates=1), "2 query codes"),
    ],
)
def test_refuses(act, message):
    with pytest.raises(InvalidInputError, match=message):
        act()


def recall(**changed):
    return metrics.recall_at_k(ROWS, ROWS, CODES, CODES, **{"k": 1, "candidates": 1, **changed})
