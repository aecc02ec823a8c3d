"""Label sets, sums by label, and what many labels cost."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from fixtures.clusters import several_labels

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import FSDH, ITQCCA, KSH, S3PLH, SADIH, SDH
from pg_hashindex.hashers.supervision.label_sets import LabelSets, add_by_label, check_label_count
from pg_hashindex.hashers.supervision.labels import Labels


def tags(n, n_common=50):
    """Give each row a label of its own, and one of a few."""
    rows = np.arange(n)
    places = np.concatenate([rows, n + rows % n_common])
    return scipy.sparse.csr_array((np.ones(2 * n, int), (np.tile(rows, 2), places)))


def test_sets_are_the_distinct_rows():
    y = several_labels()
    sets = LabelSets(Labels.read(y, 400))
    assert not sets.single
    assert np.array_equal(sets.members.toarray()[sets.of_row], y)
    assert len(sets) == len(np.unique(y, axis=0)) == sets.members.shape[0]
    assert np.array_equal(sets.counts, np.bincount(sets.of_row))


def test_order_of_given_labels_does_not_matter():
    y = several_labels()
    rows, places = np.nonzero(y)
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = scipy.sparse.coo_array((np.ones(len(rows), int), (rows[order], places[order])))
    expected, found = LabelSets(Labels.read(y, 400)), LabelSets(Labels.read(shuffled, 400))
    assert np.array_equal(found.of_row, expected.of_row)
    indicator = Labels.read(y, 400).indicator
    turned = scipy.sparse.csr_array(
        (indicator.data, indicator.indices.copy(), indicator.indptr), shape=indicator.shape
    )
    for start, end in zip(turned.indptr[:-1], turned.indptr[1:], strict=True):
        turned.indices[start:end] = turned.indices[start:end][::-1]
    turned.has_sorted_indices = False
    assert np.array_equal(LabelSets(Labels(turned)).of_row, expected.of_row)


def test_one_label_a_row_gives_the_classes():
    y = np.array([70_000, 3, 256, 3, 255, 70_000])
    sets = LabelSets(Labels.read(y, 6))
    assert sets.single
    assert sets.of_row.tolist() == [3, 0, 2, 0, 1, 3]
    assert np.array_equal(sets.members.toarray(), np.eye(4))
    assert sets.counts.tolist() == [2, 1, 1, 2]


@pytest.mark.parametrize("most_pairs", [1 << 22, 100, 1])
def test_sharing(most_pairs, monkeypatch):
    monkeypatch.setattr("pg_hashindex.hashers.supervision.label_sets._SHARING_PAIRS", most_pairs)
    values = np.random.default_rng(0).standard_normal((400, 3))
    for y in (several_labels(), np.eye(6, dtype=int)[np.arange(400) % 6]):
        sets = LabelSets(Labels.read(y, 400))
        by_set = np.array(
            [values[sets.of_row == number].sum(axis=0) for number in range(len(sets))]
        )
        expected = (y @ y.T > 0) @ values
        for _ in range(2):
            np.testing.assert_allclose(sets.sharing(by_set)[sets.of_row], expected, atol=1e-12)


def test_gram_is_that_of_the_rows():
    y = several_labels()
    sets = LabelSets(Labels.read(y, 400))
    assert np.array_equal(sets.gram(sets.counts).toarray(), y.T @ y)
    single = LabelSets(Labels.read(np.arange(400) % 7, 400))
    assert single.gram(single.counts).nnz == 7


def test_sums_by_label():
    y = several_labels()
    y[5:9] = 0
    values = np.random.default_rng(0).standard_normal((400, 3))
    sums = np.zeros((6, 3))
    indicator = Labels.read(y, 400).indicator
    for start in range(0, 400, 3):
        add_by_label(sums, indicator[start : start + 3], values[start : start + 3])
    np.testing.assert_allclose(sums, y.T @ values)


def test_refuses_one_label_set():
    labels = Labels.read(np.ones((5, 3), int), 5)
    assert len(LabelSets(labels)) == 1
    with pytest.raises(InvalidInputError, match="the 5 labelled rows .* have the same labels"):
        LabelSets.of_several(labels)


def test_refuses_too_many_labels():
    labels = Labels.read(tags(100), 100)
    check_label_count("m", labels, 150)
    check_label_count("m", Labels.read(np.arange(100), 100), 2)
    with pytest.raises(
        InvalidInputError, match="m takes at most 149 different .* 100 rows have 150"
    ):
        check_label_count("m", labels, 149)


def fit_measured(hasher, X, y):
    tracemalloc.start()
    try:
        hasher.fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [SDH, FSDH, SADIH, KSH, ITQCCA, S3PLH])
def test_a_label_for_each_row_takes_little_memory(kind):
    """A matrix of labels by labels would take 72 MB, and its eigenproblem a minute."""
    X = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    params = {} if kind in (ITQCCA, S3PLH) else {"n_anchors": 100}
    assert fit_measured(kind(n_bits=16, random_state=0, **params), X, np.arange(3000)) < 25e6


@pytest.mark.parametrize("kind", [SDH, KSH, S3PLH])
def test_tags_are_handled(kind):
    X = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    params = {} if kind is S3PLH else {"n_anchors": 50}
    assert fit_measured(kind(n_bits=8, random_state=0, **params), X, tags(20_000)) < 120e6


@pytest.mark.parametrize(("kind", "most"), [(FSDH, "5,000"), (SADIH, "2,000"), (ITQCCA, "5,000")])
def test_tags_are_refused(kind, most):
    X = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    message = f"at most {most} different labels .* 20,000 rows have 20,050; use coarser labels"
    with pytest.raises(InvalidInputError, match=message):
        kind(n_bits=8, random_state=0).fit(X, tags(20_000))
