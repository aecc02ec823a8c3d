"""Which rows are relevant."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.metrics.truth import relevant_by_distance, relevant_by_label


@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.5, 1])
def test_nearest(data, fraction):
    k = max(1, round(300 * fraction))
    by_fraction = metrics.nearest_fraction(data["Q"], data["X"], fraction)
    assert np.array_equal(by_fraction, metrics.nearest_k(data["Q"], data["X"], k))
    for query, line in zip(data["Q"], by_fraction, strict=True):
        distances = ((data["X"] - query) ** 2).sum(axis=1)
        nearest = sorted(range(300), key=lambda i: (distances[i], i))[:k]
        assert sorted(np.flatnonzero(line)) == sorted(nearest)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_column_is_one_label_a_row(data, classes):
    y = np.random.default_rng(0).integers(0, classes, 325)
    queries, rows = y[:25], y[25:]
    flat = metrics.same_label(queries, rows)
    assert not flat.all()
    assert np.array_equal(metrics.same_label(queries[:, None], rows[:, None]), flat)
    assert np.array_equal(metrics.same_label(queries[:, None], rows), flat)
    assert metrics.neighbour_error(
        *data["codes"], queries[:, None], rows[:, None], 3
    ) == metrics.neighbour_error(*data["codes"], queries, rows, 3)


def test_one_label_a_row():
    marked = metrics.same_label([2, -1, 0], np.array([0, 2, -1, 2]))
    assert marked.tolist() == [
        [False, True, False, True],
        [False, False, False, False],
        [True, False, False, False],
    ]


def test_labels_that_are_not_numbers():
    marked = metrics.same_label(["a", "b"], ["b", "c", "a"])
    assert marked.tolist() == [[False, False, True], [True, False, False]]


def test_several_labels_a_row(monkeypatch):
    monkeypatch.setattr("pg_hashindex.metrics.blocks._BLOCK_PAIRS", 3)
    marked = metrics.same_label(
        [[1, 0, 1], [0, 0, 0], [0, 1, 1]], np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], bool)
    )
    assert marked.tolist() == [[True, True, False], [False, False, False], [True, False, True]]


@given(
    hnp.arrays(np.int64, st.integers(1, 20), elements=st.integers(-1, 4)),
    hnp.arrays(np.int64, st.integers(1, 20), elements=st.integers(-1, 4)),
)
def test_both_forms_of_labels_agree(left, right):
    indicator = [(numbers[:, None] == np.arange(5)).astype(int) for numbers in (left, right)]
    assert np.array_equal(metrics.same_label(left, right), metrics.same_label(*indicator))


CODES, ROWS = np.zeros((3, 1), np.uint8), np.eye(3)
RELEVANT = np.ones((3, 3), bool)
MAP = metrics.mean_average_precision


def recall(**changed):
    return metrics.recall_at_k(ROWS, ROWS, CODES, CODES, **{"k": 1, "candidates": 1, **changed})


def error(*labels, k=1):
    return metrics.neighbour_error(CODES, CODES, *labels, k)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: MAP(CODES, CODES, RELEVANT[:2]), r"\(2, 3\)"),
        (lambda: MAP(CODES, CODES, RELEVANT, top=0), "top must be .* got 0"),
        (lambda: MAP(CODES, CODES, RELEVANT, top=4), "rows, 3; got 4"),
        (lambda: MAP(CODES, CODES, RELEVANT, ties="random"), "ties must be .*'random'"),
        (lambda: MAP(CODES, CODES, RELEVANT, weights=[1, 2, 3] * 3), "9 bits need"),
        (lambda: metrics.precision_at_k(CODES, CODES, RELEVANT.astype(int), 1), "int64"),
        (lambda: metrics.precision_at_k(CODES, CODES, RELEVANT, 4), "rows, 3; got 4"),
        (lambda: metrics.share_found_at_k(CODES, CODES, RELEVANT, 0), "k must be .* got 0"),
        (lambda: metrics.precision_recall_by_rank(CODES, CODES, RELEVANT, [0]), "got 0"),
        (lambda: metrics.precision_recall_by_rank(CODES, CODES, RELEVANT, [1, 4]), "got 4"),
        (lambda: metrics.precision_recall_by_rank(CODES, CODES, RELEVANT, []), r"got \[\]"),
        (lambda: metrics.precision_recall_by_rank(CODES, CODES, RELEVANT, [0.5]), "integers"),
        (lambda: metrics.precision_within_radius(CODES[:0], CODES, RELEVANT[:0]), "0 queries"),
        (lambda: metrics.precision_within_radius(CODES, CODES, RELEVANT, -1), "got -1"),
        (lambda: metrics.precision_within_radius(CODES, CODES, RELEVANT[:1]), r"\(1, 3\)"),
        (lambda: metrics.nearest_fraction(ROWS, ROWS, 0), "fraction must be above 0"),
        (lambda: metrics.nearest_fraction(ROWS, ROWS[:, :2]), "3 dimensions, expected 2"),
        (lambda: metrics.nearest_fraction(ROWS[:0], ROWS), "0 queries"),
        (lambda: metrics.nearest_k(ROWS, ROWS, 0), "k must be .* got 0"),
        (lambda: metrics.nearest_k(ROWS, ROWS, 4), "rows, 3; got 4"),
        (lambda: metrics.same_label([1, 2], [[1, 0]]), r"shape \(2,\) .* \(1, 2\)"),
        (lambda: metrics.same_label([[1, 0, 0]], [[1, 0]]), r"shape \(1, 3\) .* \(1, 2\)"),
        (lambda: metrics.same_label(1, 2), r"shape \(\)"),
        (lambda: error([0, 1, 2], [0, 1, -1]), "row 2 has the label -1"),
        (lambda: error([0, 1, 2], np.eye(3, dtype=int)), r"\(3, 3\); .* one integer"),
        (lambda: error([0, 1], [0, 1, 2]), r"query labels are int64 \(2,\)"),
        (lambda: error([0, 1, 2], [0, 1, 2.5]), "row labels are float64"),
        (lambda: error([0, 1, 2], [0, 1, 2], k=4), "rows, 3; got 4"),
        (lambda: recall(k=0), "k must be .* got 0"),
        (lambda: recall(candidates=4), "candidates must be .* got 4"),
        (lambda: recall(metric="l1"), "metric 'l1' is unknown"),
        (lambda: metrics.recall_at_k(ROWS, ROWS, CODES[:2], CODES, candidates=1), "2 query codes"),
    ],
)  # fmt: skip
def test_refuses(act, message):
    with pytest.raises(InvalidInputError, match=message):
        act()


def test_sparse_labels_are_as_dense_ones():
    rng = np.random.default_rng(0)
    left, right = rng.random((7, 5)) < 0.3, rng.random((40, 5)) < 0.3
    sparse = (scipy.sparse.csr_array(y.astype(np.int8)) for y in (left, right))
    np.testing.assert_array_equal(metrics.same_label(*sparse), (left[:, None] & right).any(axis=2))


@pytest.mark.parametrize("truth", ["label", "labels", "distance"])
def test_lines_are_made_when_they_are_read(truth, monkeypatch):
    """As an array, 250 lines of 20,000 rows take 5 MB."""
    monkeypatch.setattr("pg_hashindex.metrics.blocks._BLOCK_PAIRS", 20_000)
    monkeypatch.setattr("pg_hashindex.metrics.truth._BLOCK_VALUES", 20_000)
    monkeypatch.setattr("pg_hashindex.metrics.truth._QUERIES_AT_A_TIME", 1)
    X = np.random.default_rng(2).standard_normal((20_250, 2))
    labels = np.arange(len(X)) % 50
    several = scipy.sparse.csr_array((np.ones(len(X)), (np.arange(len(X)), labels)))
    codes = (X[:, :1] > 0).astype(np.uint8)
    tracemalloc.start()
    try:
        relevant = {
            "label": lambda: relevant_by_label(labels[:250], labels[250:]),
            "labels": lambda: relevant_by_label(several[:250], several[250:]),
            "distance": lambda: relevant_by_distance(X[:250], X[250:], 100),
        }[truth]()
        score = metrics.precision_within_radius(codes[:250], codes[250:], relevant, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The numbers of the nearest 100, or the labels, and eight float64 a row for a query.
    assert peak < 250 * 100 * 4 + 8 * 8 * 20_000
    whole = relevant.whole()
    assert score == metrics.precision_within_radius(codes[:250], codes[250:], whole, 0)


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_slice_gives_the_lines_of_its_queries(start, stop):
    X = np.random.default_rng(0).integers(0, 3, (50, 3))
    for relevant, whole in (
        (relevant_by_distance(X[:20], X, 7), metrics.nearest_k(X[:20], X, 7)),
        (relevant_by_label(X[:20, 0], X[:, 0]), metrics.same_label(X[:20, 0], X[:, 0])),
        (relevant_by_label(X[:20], X), metrics.same_label(X[:20], X)),
    ):
        assert relevant.shape == whole.shape
        assert np.array_equal(relevant[start:stop], whole[start:stop])
