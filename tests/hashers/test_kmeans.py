import numpy as np
import pytest

from pg_hashindex.hashers.numerics import kmeans
from pg_hashindex.hashers.numerics.kmeans import nearest_centres, sample_centres
from pg_hashindex.hashers.numerics.rows import RowSource


def literal_lloyd(sample, n_centres, n_rounds):
    """Alternate row by row: the nearest centre of each, then the mean of each centre's rows."""
    centres = sample[:n_centres].copy()
    for _ in range(n_rounds):
        members = [[] for _ in centres]
        for row in sample:
            members[min(range(n_centres), key=lambda k: ((row - centres[k]) ** 2).sum())].append(
                row
            )
        centres = np.array([np.mean(rows, axis=0) for rows in members])
    return centres


def centres_of(X, n_centres, seed=0):
    return sample_centres(RowSource(X), n_centres, np.random.default_rng(seed))


def objective(X, centres):
    return ((X[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).sum()


def in_order(centres):
    return centres[np.lexsort(centres.T[::-1])]


@pytest.mark.parametrize("n_centres", [1, 5, 20])
def test_agrees_with_lloyd(n_centres, rows):
    size = min(400, 20 * n_centres)
    sample = rows[np.random.default_rng(1).choice(400, size, replace=False)].astype(np.float64)
    found = centres_of(rows, n_centres, seed=1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, in_order(literal_lloyd(sample, n_centres, 5)), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("n_centres", [3, 40])
@pytest.mark.parametrize("repeats", [1, 5], ids=["distinct", "repeated"])
def test_objective_never_rises(n_centres, repeats, rows, monkeypatch):
    """Not with centres that lose their rows either, as equal ones do."""
    X = np.repeat(rows[: 400 // repeats], repeats, axis=0)
    # All rows are in the sample of 20 rows a centre, so that the objective is that of the sample.
    monkeypatch.setattr(kmeans, "_ROWS_PER_CENTRE", 400)
    found = []
    for n_rounds in range(9):
        monkeypatch.setattr(kmeans, "_ROUNDS", n_rounds)
        found.append(objective(X, centres_of(X, n_centres)))
    assert (np.diff(found) <= 1e-5 * found[0]).all()
    assert found[-1] < 0.8 * found[0]


def test_fewer_distinct_rows_than_centres(rows):
    X = np.repeat(rows[:7], 30, axis=0)
    found = centres_of(X, 10)
    np.testing.assert_allclose(found, in_order(rows[:7]), rtol=0, atol=1e-5)


def test_same_seed_same_centres_whatever_the_blocks(rows, monkeypatch):
    expected = centres_of(rows, 12)
    assert not np.array_equal(centres_of(rows, 12, seed=1), expected)
    monkeypatch.setattr(kmeans, "_BLOCK_PAIRS", 100)
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._BLOCK_VALUES", 500)
    np.testing.assert_allclose(centres_of(rows, 12), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n_nearest", [1, 3, 25])
def test_nearest_centres(n_nearest, rows):
    X = rows - rows.mean(axis=0)
    centres = X[:25] + np.float32(0.5)
    places, squares = nearest_centres(X, centres, n_nearest)
    true = ((X[:, None].astype(np.float64) - centres[None]) ** 2).sum(axis=2)
    assert places.tolist() == np.argsort(true, axis=1)[:, :n_nearest].tolist()
    np.testing.assert_allclose(squares, np.sort(true, axis=1)[:, :n_nearest], rtol=1e-4)


def test_of_equally_near_centres_the_first():
    X = np.array([[0, 0], [1, 0]], np.float32)
    centres = np.array([[0, 2], [2, 0], [-2, 0], [0, 2]], np.float32)
    places, squares = nearest_centres(X, centres, 3)
    assert places.tolist() == [[0, 1, 2], [1, 0, 3]]
    assert squares.tolist() == [[4, 4, 4], [1, 5, 5]]


def test_nearest_centres_of_tight_clusters():
    """Rows 0.001 apart, a hundred from the origin: the product of float32 rows tells nothing."""
    rng = np.random.default_rng(0)
    clusters = 100 * rng.standard_normal((4, 6))
    X, centres = (
        (clusters[rng.integers(4, size=n)] + 1e-3 * rng.standard_normal((n, 6))).astype(np.float32)
        for n in (200, 40)
    )
    places, squares = nearest_centres(X, centres, 2)
    true = ((X[:, None].astype(np.float64) - centres[None]) ** 2).sum(axis=2)
    assert places.tolist() == np.argsort(true, axis=1)[:, :2].tolist()
    np.testing.assert_allclose(squares, np.sort(true, axis=1)[:, :2], rtol=1e-2)
