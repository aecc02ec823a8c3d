"""True neighbours among rows that come in blocks, and their places by code."""

import numpy as np
import pytest

from pg_hashindex.hashers import ITQ
from pg_hashindex.metrics.search import CodeRanks
from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.models.codes import hamming_distances
from pg_hashindex.models.quantization import QueryOrder, above_cuts, quantize

ROWS, DIMENSION = 1500, 16


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(5)
    centres = 2 * rng.standard_normal((40, DIMENSION))
    noise = rng.standard_normal((ROWS, DIMENSION))
    return (centres[rng.integers(40, size=ROWS)] + noise).astype(np.float32)


def _distances(model, Q, X):
    """How far signs at all cuts are from the query in 8 levels: -<z, signs>, up to a constant."""
    z = above_cuts(model.project(Q), model.cuts)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    size = np.digitize(np.abs(z) * np.sqrt(z.shape[1]), [0.586, 1.172, 1.758])
    signs = np.where(quantize(model.project(X), model.cuts), 1, -1)
    return -(np.where(z > 0, 2 * size + 1, -2 * size - 1) @ signs.T).astype(float)


@pytest.mark.parametrize("cuts", [1, 3])
def test_places_are_those_of_brute_force(clusters, cuts):
    X, Q = clusters[50:], clusters[:50]
    model = ITQ(n_bits=12, random_state=0).fit(X).to_model("itq", cuts=cuts)
    nearest = NearestRows(Q, 5, "l2")
    for start in range(0, len(X), 333):
        nearest.add(X[start : start + 333])
    numbers, right = nearest.found()
    exact = np.linalg.norm(X[None] - Q[:, None], axis=2)
    true = np.argsort(exact, axis=1)[:, :5]
    assert (np.sort(numbers[:, :5]) == np.sort(true)).all()
    assert (right.sum(axis=1) == 5).all()
    hamming = hamming_distances(model.encode(Q), model.encode(X)).astype(float)
    plain = QueryOrder(model.encode(Q)[:, None], np.ones(1, np.int64))
    for order, far in ((model.order(Q, "l2"), _distances(model, Q, X)), (plain, hamming)):
        ranks = CodeRanks(order, model.encode(X), numbers, right, 5)
        # Among ties any order may come: the mean over many.
        found = []
        for seed in range(40):
            noise = np.random.default_rng(seed).random(far.shape)
            kept = np.argsort(far + 0.5 * noise, axis=1)[:, :60]
            found.append(np.mean([np.isin(a, b).mean() for a, b in zip(true, kept, strict=True)]))
        assert ranks.recall(60) == pytest.approx(np.mean(found), abs=0.004)
        assert ranks.recall(len(X)) == 1


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_neighbours_by_other_metrics(metric, clusters):
    X, Q = clusters[20:], clusters[:20]
    nearest = NearestRows(Q, 3, metric)
    nearest.add(X)
    scale = 1.0 if metric == "ip" else np.linalg.norm(X, axis=1)
    true = np.argsort(-(Q @ X.T) / scale, axis=1)[:, :3]
    assert (nearest.found()[0][:, :3] == true).all()


def test_rows_at_the_distance_of_the_last_are_all_right():
    rows = np.array([[1.0], [2.0], [2.0], [2.0], [3.0]], np.float32)
    nearest = NearestRows(np.zeros((1, 1), np.float32), 2, "l2")
    nearest.add(rows)
    numbers, right = nearest.found()
    assert numbers[0][right[0]].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("order", ["nearest first", "nearest last", "mixed"])
def test_rows_that_are_stored_many_times(metric, order):
    """Any ten of a hundred equal rows are right, so ten candidates by code suffice."""
    rng = np.random.default_rng(0)
    distinct = rng.standard_normal((40, 8)).astype(np.float32)
    distinct /= np.linalg.norm(distinct, axis=1, keepdims=True)
    X = np.repeat(distinct, 100, axis=0)
    X = X[::-1] if order == "nearest last" else X
    X = X[rng.permutation(len(X))] if order == "mixed" else X
    Q = distinct[:5]
    nearest = NearestRows(Q, 10, metric)
    for start in range(0, len(X), 333):
        nearest.add(X[start : start + 333])
    numbers, right = nearest.found()
    weights = right * nearest.weights()
    assert weights.sum(axis=1) == pytest.approx([100] * 5)
    model = ITQ(n_bits=8, random_state=0).fit(distinct).to_model("itq")
    plain = QueryOrder(model.encode(Q)[:, None], np.ones(1, np.int64))
    ranks = CodeRanks(plain, model.encode(X), numbers, weights, 10)
    same = (hamming_distances(model.encode(Q), model.encode(X)) == 0).sum(axis=1)
    # As many candidates as rows of the query's own code: a hundred of them are right.
    expected = np.minimum(20 * 100 / same, 10).mean() / 10
    assert ranks.recall(20) == pytest.approx(expected)


def test_neighbours_far_from_the_origin():
    """Products of float32 would be off by more than the distances."""
    rng = np.random.default_rng(1)
    X = (1000 + rng.standard_normal((500, 16))).astype(np.float32)
    nearest = NearestRows(X[:20], 5, "l2")
    nearest.add(X[20:])
    numbers, right = nearest.found()
    exact = np.linalg.norm(X[None, 20:].astype(float) - X[:20, None].astype(float), axis=2)
    true = np.argsort(exact, axis=1)[:, :5]
    assert (numbers[:, :5] == true).all()
    assert (right.sum(axis=1) == 5).all()


def test_rows_of_zeros_are_no_answers_by_cosine():
    X = np.zeros((50, 2), np.float32)
    X[::10] = [[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4]]
    nearest = NearestRows(X[:1], 10, "cosine")
    nearest.add(X)
    numbers, right = nearest.found()
    assert numbers[0][right[0]].tolist() == [0, 10, 20, 30, 40]
    assert (right * nearest.weights()).sum() == 5
