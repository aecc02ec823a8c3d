"""Supervision of rows, in one checked form."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers.numerics.kernels import choose_anchors, mean_squared_distance
from pg_hashindex.hashers.numerics.rows import RowSource
from pg_hashindex.hashers.supervision.labels import (
    Labels,
    Supervision,
    check_classes,
    labelled_rows,
)
from pg_hashindex.models.layers import rbf


def test_labels_of_one_a_row():
    labels = Labels.read([7, -1, 3, 7, -1], 5)
    assert labels.indicator.toarray().tolist() == [[0, 1], [0, 0], [1, 0], [0, 1], [0, 0]]
    assert labels.n_classes == 2
    assert labels.labelled.tolist() == [0, 2, 3]
    assert labels.single
    assert labels.numbers().tolist() == [1, -1, 0, 1, -1]
    assert labels.take(np.array([3, 1])).numbers().tolist() == [1, -1]


def test_labels_of_several_a_row():
    labels = Labels.read([[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], 3)
    assert labels.indicator.toarray().tolist() == [[1, 1], [0, 0], [1, 0]]
    assert labels.labelled.tolist() == [0, 2]
    assert not labels.single
    with pytest.raises(InvalidInputError, match="row 0 has 2 labels; this method takes one"):
        labels.numbers()


@given(
    arrays.arrays(
        np.int64, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.integers(0, 1)
    )
)
def test_rows_of_the_same_label(y):
    labels = Labels.read(y, len(y))
    expected = [[bool((a & b).any()) for b in y] for a in y]
    assert labels.same(slice(None)).tolist() == expected
    assert labels.same(np.array([len(y) - 1])).tolist() == [expected[-1]]
    assert Labels.read(scipy.sparse.csr_array(y), len(y)).same(slice(None)).tolist() == expected


def test_sparse_labels_stay_as_they_are():
    y = scipy.sparse.csr_array(([1, 0, 1], [0, 2, 1], [0, 2, 3]), shape=(2, 4))
    assert Labels.read(y, 2).indicator.toarray().tolist() == [[1, 0], [0, 1]]
    assert y.nnz == 3
    with pytest.raises(InvalidInputError, match="must be 0 or 1, but row 1, column 1 is 3"):
        Labels.read(scipy.sparse.csr_array([[0, 1], [0, 3]]), 2)
    with pytest.raises(InvalidInputError, match="2 labels for 3 rows"):
        Labels.read(y, 3)


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("pairs", [[0, 1]], r"shape \(n, 3\), with at least one line; got int64 \(1, 2\)"),
        ("pairs", np.empty((0, 3), int), r"got int64 \(0, 3\)"),
        ("pairs", [[0, 1, 1.0]], "got float64"),
        ("pairs", [[0, 1, 1], [2]], "cannot be read"),
        ("pairs", [[0, 1, 1], [0, 2, 0]], "1 for neighbours or -1 for others; pair 1 has 0"),
        ("pairs", [[0, 1, 1], [3, 3, 1]], r"different rows; number 1 of them has \[3, 3\]"),
        ("pairs", [[0, 5, 1]], r"0 to 4 here; number 0 of them has \[0, 5\]"),
        ("triplets", [[0, 1, 2], [4, -1, 2]], r"number 1 of them has \[4, -1, 2\]"),
        ("triplets", [[0, 1, 0]], r"different rows; number 0 of them has \[0, 1, 0\]"),
    ],
)
def test_relations_that_cannot_be(what, value, message):
    with pytest.raises(InvalidInputError, match=message):
        Supervision.read(5, **{what: value})


def test_supervision_of_some_rows():
    known = Supervision.read(9, [0, 1, 2, 0, 1, 2, -1, 0, 0], [[8, 3, -1], [1, 8, 1]], [[3, 5, 1]])
    assert known.related_rows().tolist() == [1, 3, 5, 8]
    part = known.restricted_to(np.array([1, 3, 4, 5, 6, 8]))
    assert part.pairs.tolist() == [[5, 1, -1], [0, 5, 1]]
    assert part.triplets.tolist() == [[1, 3, 0]]
    assert part.labels.numbers().tolist() == [1, 0, 1, 2, -1, 0]
    assert Supervision.read(9).related_rows().tolist() == []


WEIGHTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("form", ["dense", "bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32, np.float64])
def test_graphs_of_any_format(form, kind):
    """Objects without an edge are left out; rows without one stay."""
    given = WEIGHTS.astype(kind)
    if form != "dense":
        given = scipy.sparse.coo_array(given).asformat(form)
    graph = Supervision.read(3, graph=given).graph
    assert isinstance(graph, scipy.sparse.csr_array)
    assert graph.dtype == np.float32
    assert graph.has_canonical_format
    assert graph.toarray().tolist() == WEIGHTS.astype(kind)[:, [1, 3]].astype(float).tolist()


@pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_edges_that_come_twice_count_twice(make):
    """In any type, and the caller's own matrix keeps its entries as they are."""
    columns, ends = [2, 0, 2, 1], [0, 3, 4]
    for values in ([True, True, True, False], np.array([200, 0, 100, 1], np.uint8)):
        given = make((values, columns, ends), shape=(2, 3))
        found = Supervision.read(2, graph=given).graph.toarray()
        data = [float(value) for value in values]
        expected = [[data[1], data[3], data[0] + data[2]]]
        assert found.sum(axis=0).tolist() == [value for value in expected[0] if value]
        assert given.data.tolist() == list(values)
        assert given.indices.tolist() == columns


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (WEIGHTS, "the graph has 3 rows, but there are 5 vectors"),
        (np.ones(5), r"must be a matrix \(n, m\) .* got float64 \(5,\)"),
        (np.ones((5, 2), complex), "got complex128"),
        ([["a"]] * 5, "got <U1"),
        ([[1], [1, 2]], "cannot be read"),
        (np.zeros((5, 2)), "the graph has no edges: all weights of its 5 rows and 2 objects are 0"),
        (np.zeros((5, 0)), "no edges"),
        (np.eye(5) - np.eye(5, k=2), "0 or more, but row 0, column 2 has -1"),
        (scipy.sparse.csr_array(np.diag([1, 2, np.nan, 3, 4])), "row 2, column 2 has nan"),
        (np.diag([1, 2, 3, np.inf, 4]), "row 3, column 3 has inf"),
        (np.diag([1, 1e-60, 3, 1, 4]), "range of float32, but row 1, column 1 has 1e-60"),
        (np.diag([1, 1, 3, 1, 1e39]), r"range of float32, but row 4, column 4 has 1e\+39"),
    ],
)
def test_graphs_that_cannot_be(graph, message):
    with pytest.raises(InvalidInputError, match=message):
        Supervision.read(5, graph=graph)


def test_the_graph_of_some_rows():
    known = Supervision.read(3, graph=WEIGHTS)
    assert known.related_rows().tolist() == []
    assert known.restricted_to(np.array([1, 2])).graph.toarray().tolist() == [[0, 0], [1, 0]]
    # Rows that lose all edges are not an error here; a fit on them alone is.
    lost = known.restricted_to(np.array([1])).graph
    assert lost.nnz == 0
    with pytest.raises(InvalidInputError, match="no edges"):
        Supervision.read(1, graph=lost)


def test_hidden_labels():
    labels = Labels.read([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]], 4)
    hidden = labels.hidden(np.array([3, 0]))
    assert hidden.indicator.toarray().tolist() == [[0] * 3, [0] * 3, [0, 1, 0], [0] * 3]
    assert hidden.labelled.tolist() == [2]
    assert labels.labelled.tolist() == [0, 2, 3]


def test_unlabelled_rows_are_left_out(rows, labels):
    y = np.where(np.arange(400) % 7 == 2, labels, -1)
    source, known = labelled_rows(RowSource(rows), Labels.read(y, 400))
    expected = rows[np.arange(400) % 7 == 2]
    assert source.n_rows == len(expected)
    assert np.array_equal(np.concatenate([block.copy() for block in source.blocks()]), expected)
    assert known.numbers().tolist() == labels[np.arange(400) % 7 == 2].tolist()
    whole, same = labelled_rows(RowSource(rows), Labels.read(labels, 400))
    assert whole.n_rows == 400
    assert same.numbers().tolist() == labels.tolist()


@given(st.lists(st.integers(0, 399), unique=True, min_size=1), st.lists(st.integers(0, 400)))
def test_rows_of_some_numbers(numbers, ends):
    rows = np.arange(800, dtype=np.float32).reshape(400, 2)
    source = RowSource(lambda: iter(np.split(rows, sorted(ends)))).restricted_to(np.array(numbers))
    found = np.concatenate([block.copy() for block in source.blocks()])
    assert np.array_equal(found, rows[sorted(numbers)])
    np.testing.assert_allclose(source.mean(), rows[numbers].mean(axis=0))


def test_kernel_values_and_width(rows):
    source = RowSource(rows)
    anchors = choose_anchors(source, None, 30, np.random.default_rng(0))
    assert len(np.unique(anchors, axis=0)) == 30
    assert all((rows == anchor).all(axis=1).any() for anchor in anchors)
    squares = ((rows[:, None].astype(float) - anchors[None]) ** 2).sum(axis=2)
    assert mean_squared_distance(source, anchors) == pytest.approx(squares.mean())
    np.testing.assert_allclose(
        source.through(rbf(anchors, 0.01)).array(), np.exp(-0.01 * squares), atol=1e-6
    )
    few = choose_anchors(
        RowSource(np.repeat(rows[:4], 5, axis=0)), None, 30, np.random.default_rng(0)
    )
    assert len(few) == 4


def test_a_column_is_one_label_a_row():
    """MATLAB's files hold labels as (n, 1)."""
    y = np.array([7, -1, 3, 7, 1])
    flat, column = Labels.read(y, 5), Labels.read(y[:, None], 5)
    assert np.array_equal(column.indicator.toarray(), flat.indicator.toarray())


def test_two_classes_numbered_minus_1_and_1_are_explained():
    labels = Labels.read(np.array([[1], [-1], [1]]), 3)
    with pytest.raises(InvalidInputError, match="-1 means no label: number classes from 0"):
        check_classes(labels)
