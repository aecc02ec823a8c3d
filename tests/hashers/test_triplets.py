import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.hashers.supervision.triplets import Comparisons, label_triplets


def brute_force(X, y, k):
    """Sort all other rows by distance, one row at a time."""
    found = set()
    for i, x in enumerate(X):
        order = np.argsort(((X - x) ** 2).sum(axis=1), kind="stable")
        near = [j for j in order if j != i and y[j] == y[i]][:k]
        far = [j for j in order if y[j] != y[i]][:k]
        found |= {(i, int(a), int(b)) for a in near for b in far}
    return found


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
@pytest.mark.parametrize("k", [1, 3, 60])
def test_of_labels_are_nearest_neighbours(k, scale, rows, labels):
    X, y = rows[:50].astype(np.float64), labels[:50].copy()
    y[:1] = 99  # alone in its class
    scaled = (X * scale).astype(np.float32)
    found = label_triplets(scaled, Labels.read(y, 50), k, 1_000_000, np.random.default_rng(0))
    assert len(np.unique(found, axis=0)) == len(found)
    assert set(map(tuple, found.tolist())) == brute_force(X, y, k)


def test_of_rows_with_several_labels():
    X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
    indicator = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]
    found = label_triplets(X, Labels.read(indicator, 4), 3, 100, np.random.default_rng(0))
    # Row 1 shares a label with 0 and with 2, which share none with each other.
    expected = {(0, 1, 2), (0, 1, 3), (1, 0, 3), (1, 2, 3), (2, 1, 0), (2, 1, 3)}
    assert set(map(tuple, found.tolist())) == expected


def test_at_most_so_many_with_equal_shares(rows, labels):
    everything = brute_force(rows.astype(np.float64), labels, 4)
    found = label_triplets(rows, Labels.read(labels, 400), 4, 1_500, np.random.default_rng(0))
    assert len(found) == 1_500
    assert set(map(tuple, found.tolist())) <= everything
    assert len(np.unique(found, axis=0)) == len(found)
    # 1,500 = 400 * 3 + 300
    assert sorted(np.bincount(found[:, 0])) == [3] * 100 + [4] * 300


def test_no_row_has_both_kinds(rows):
    with pytest.raises(InvalidInputError, match="none of the 5 rows has both"):
        label_triplets(rows[:5], Labels.read(np.arange(5), 5), 3, 100, np.random.default_rng(0))


@given(
    st.lists(st.permutations(range(6)).map(lambda order: order[:3]), min_size=1, max_size=20),
    st.lists(st.permutations(range(6)).map(lambda order: order[:2]), max_size=5),
    st.integers(0, 2**6 - 1),
    st.randoms(use_true_random=False),
)
def test_pairs_stand_for_triplets(triplets, duplets, number, random):
    """Margins, and what splitting a pair is worth, by their definitions on rows."""
    numbers = np.array([3, 5, 6, 10, 11, 40])
    bits = np.array([number >> k & 1 for k in range(6)], bool)
    given_triplets = numbers[np.array(triplets)]
    given_duplets = numbers[np.array(duplets, int).reshape(-1, 2)]
    comparisons = Comparisons.of(given_triplets, given_duplets)

    value = dict(zip(numbers.tolist(), bits.astype(int).tolist(), strict=True))
    a = [
        abs(value[x] - value[far]) - abs(value[x] - value[near])
        for x, near, far in given_triplets.tolist()
    ]
    of_rows = np.array([value[row] for row in comparisons.rows.tolist()], bool)
    split = comparisons.split_by(of_rows)
    np.testing.assert_array_equal(comparisons.margins(split.astype(np.float64)), a)
    assert comparisons.n_triplets == len(triplets)
    u = np.array([random.random() for _ in triplets])
    assert comparisons.by_pair(u)[split].sum() == pytest.approx(np.dot(u, a))
    assert split[comparisons.duplets].tolist() == [
        value[x] != value[z] for x, z in given_duplets.tolist()
    ]
    pairs = set(zip(comparisons.first.tolist(), comparisons.second.tolist(), strict=True))
    assert len(pairs) == comparisons.n_pairs
