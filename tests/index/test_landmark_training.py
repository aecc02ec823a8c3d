import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fixtures.landmarks import train_landmarks

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers.numerics.rows import row_slices
from pg_hashindex.index.landmarks.assignment import Landmarks, ListSums
from pg_hashindex.index.landmarks.groups import LandmarkGroups, _least, put_in_groups
from pg_hashindex.index.landmarks.memory import bytes_of_build
from pg_hashindex.index.landmarks.space import Space, reducing_basis
from pg_hashindex.index.landmarks.tenants import train_within
from pg_hashindex.index.landmarks.training import (
    Round,
    landmark_count,
    train_by_blocks,
    training_rows,
)


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def mixture(n_rows, dimension=24, n_clusters=200, seed=0):
    """Return rows of clusters of all sizes, most of their variance in a few dimensions."""
    rng = np.random.default_rng(seed)
    width = 0.9 ** np.arange(dimension)
    clusters = 2 * width * rng.standard_normal((n_clusters, dimension))
    chosen = (n_clusters * rng.random(n_rows) ** 2).astype(int)
    rows = clusters[chosen] + width * rng.standard_normal((n_rows, dimension))
    return rows.astype(np.float32)


@pytest.fixture(scope="module")
def rows():
    return mixture(12_000)


def brute(X, centres):
    """Return the nearest centre of each row, in float64."""
    X, centres = X.astype(np.float64), centres.astype(np.float64)
    return np.argmin((centres**2).sum(axis=1) / 2 - X @ centres.T, axis=1)


def lloyd(X, n_centres, seed):
    """Train by comparing with all centres, four rounds over all rows."""
    centres = X[np.random.default_rng(seed).permutation(len(X))[:n_centres]].astype(np.float64)
    for _ in range(4):
        places = np.argmin((centres**2).sum(axis=1) / 2 - X @ centres.T, axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, places, X)
        counts = np.bincount(places, minlength=n_centres)
        centres[counts > 0] = sums[counts > 0] / counts[counts > 0, None]
    return centres.astype(np.float32)


def coverage(X, queries, places, centres, reads):
    """Return the share of the true top 10 in the lists around a query, by rows read."""
    squares = ((queries[:, None] - centres[None]) ** 2).sum(axis=2)
    effort = np.argsort(squares, axis=1)
    lengths = np.bincount(places, minlength=len(centres))
    held, read = [], []
    for query, order in zip(queries, effort, strict=True):
        nearest = np.argsort(((X - query) ** 2).sum(axis=1))[:10]
        place = np.empty(len(centres), int)
        place[order] = np.arange(len(centres))
        found = place[places[nearest]]
        held.append(np.bincount(found, minlength=len(centres)).cumsum() / 10)
        read.append(lengths[order].cumsum())
    return float(np.interp(reads, np.mean(read, axis=0), np.mean(held, axis=0)))


@pytest.mark.parametrize("n_landmarks", [1, 2, 40, 300])
def test_few_landmarks_are_assigned_exactly(n_landmarks, rows):
    centres, X = rows[:n_landmarks] * np.float32(0.8), rows[-100:]
    found = Landmarks(centres).assign(X)
    assert found.dtype == np.intp
    assert found.tolist() == brute(X, centres).tolist()


def test_of_equally_near_landmarks_the_first():
    centres = np.array([[4, 0], [0, 2], [2, 0], [-2, 0], [0, 2]], np.float32)
    landmarks = Landmarks(centres)
    assert landmarks.assign([[0, 0], [2, 0], [0, 2]]).tolist() == [1, 2, 1]


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_many_landmarks_are_assigned_nearly_so(spherical, rows):
    centres, X = rows[:2000], rows[-4000:]
    if spherical:
        centres, X = unit(centres), unit(X)
    found = Landmarks(centres).assign(X)
    assert (found == brute(X, centres)).mean() > 0.99


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_fewer_dimensions_find_nearly_as_near_a_landmark(spherical):
    X = mixture(6000, dimension=200)
    centres = X[:1500]
    assert reducing_basis(X - X.mean(axis=0)).shape == (200, 96)
    if spherical:
        centres, X = unit(centres), unit(X)
    found = Landmarks(centres).assign(X)
    expected = brute(X, centres)
    assert (found == expected).mean() > 0.95
    nearest, taken = (np.linalg.norm(X - centres[k], axis=1).mean() for k in (expected, found))
    assert taken < 1.005 * nearest


def test_batches_do_not_change_what_is_assigned(rows):
    landmarks = Landmarks(rows[:1500])
    whole = landmarks.assign(rows)
    parts = [landmarks.assign(part) for part in np.array_split(rows, 7)]
    assert (np.concatenate(parts) == whole).mean() > 0.9999


def test_half_precision_rows_and_lists_are_taken(rows):
    landmarks = Landmarks(rows[:50])
    half = rows[:20].astype(np.float16)
    assert landmarks.assign(half).tolist() == landmarks.assign(half.tolist()).tolist()
    assert landmarks.assign(np.empty((0, rows.shape[1]))).shape == (0,)


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_landmarks_move_to_the_mean_of_their_rows(spherical, rows):
    centres = rows[:1200]
    landmarks = Landmarks(unit(centres) if spherical else centres)
    sums, places = ListSums(1200, 24, spherical=spherical, largest=50), []
    other = ListSums(1200, 24, spherical=spherical, largest=50)
    X = unit(rows) if spherical else rows
    for part, scaled in zip(np.array_split(rows, 5), np.array_split(X, 5), strict=True):
        places.append(landmarks.assign(scaled))
        (sums if len(places) < 4 else other).add(part, places[-1])
    sums.merge(other.parts())
    counts = np.bincount(np.concatenate(places), minlength=1200)
    expected = np.zeros((1200, 24))
    np.add.at(expected, np.concatenate(places), X)
    expected /= np.maximum(counts, 1)[:, None]
    expected = unit(expected + 1e-30) if spherical else expected
    few = counts < 3
    assert 0 < few.sum() < 1200
    centres, moved = sums.means(slice(None))
    assert (moved == ~few).all()
    np.testing.assert_allclose(centres[moved], expected[moved], atol=1e-4)


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_sums_are_exact_however_many_rows_a_list_has(spherical, rows):
    X = np.repeat(unit(rows[:3]), [1, 40_000, 10], axis=0)
    sums = [ListSums(3, 24, spherical=spherical, largest=4) for _ in range(2)]
    order = np.random.default_rng(0).permutation(len(X))
    sums[0].add(X, np.arange(len(X)) % 2)
    for part in np.array_split(order, 7):
        sums[1].add(X[part], part % 2)
    expected = np.array([X[number::2].mean(axis=0, dtype=np.float64) for number in range(2)])
    expected = unit(expected) if spherical else expected
    for found in sums:
        means, there = found.means(slice(None))
        assert there.tolist() == [True, True, False]
        np.testing.assert_array_equal(means, sums[0].means(slice(None))[0])
        np.testing.assert_allclose(means[:2], expected, atol=1e-4)


@pytest.fixture
def switching():
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_rows_of_several_threads(spherical, rows, switching):
    """Another process's sums come while this one reads."""
    sample = rows[::100]
    space = Space.around(sample, spherical=spherical, reduces=False)
    found = [
        Round(space, space(sample), np.zeros(0, np.intp), largest=50, n_far=20, seed=0)
        for _ in range(2)
    ]
    parts = [rows[part] for part in row_slices(len(rows), 40)]
    for round_, threads in zip(found, (1, 4), strict=True):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(round_.add, parts))
    for one, other in zip(found[0].parts(), found[1].parts(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_directions_that_cancel_have_no_mean():
    sums = ListSums(1, 2, spherical=True, largest=1)
    sums.add(np.array([[1, 0], [-1, 0], [2, 0], [-2, 0], [0, 0]], np.float32), np.zeros(5, int))
    assert not sums.means(slice(None))[1].any()


def test_groups_hold_every_landmark_once_and_none_is_large(rows):
    # Half of the landmarks at one place: no k-means takes that group apart.
    points = np.concatenate([rows[:1000], np.repeat(rows[:1], 1000, axis=0)]) / 20
    placed = points.copy()
    members, starts = put_in_groups(placed, 4.0)
    assert sorted(members.tolist()) == list(range(2000))
    np.testing.assert_array_equal(placed, points[members])
    assert np.diff(starts).min() > 0
    assert np.diff(starts).max() <= 3 * 2000 / 178
    found = members[LandmarkGroups(placed, starts, 12).nearest(points[:300])]
    assert (found[1:] == np.arange(1, 300)).mean() > 0.98


def test_least_are_least_up_to_the_last_bits():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((200, 700)).astype(np.float32)
    found = _least(scores.copy(), 12)
    assert all(len(set(line)) == 12 for line in found.tolist())
    worst = np.take_along_axis(scores, found, axis=1).max(axis=1)
    limit = np.sort(scores, axis=1)[:, 11]
    assert (worst <= limit + 2**-13 * np.abs(limit)).all()
    assert _least(scores[:, :5].copy(), 12).tolist() == [[0, 1, 2, 3, 4]] * 200


def test_basis_keeps_the_variance_or_is_not_made(rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 300)) * 0.991 ** np.arange(300)
    centred = (X - X.mean(axis=0)).astype(np.float32)
    basis = reducing_basis(centred)
    values = np.linalg.eigvalsh(np.cov(centred.T))[::-1]
    needed = 1 + int(np.searchsorted(values.cumsum(), 0.85 * values.sum()))
    assert needed <= basis.shape[1] <= needed + 1
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
    assert ((centred @ basis) ** 2).sum() > 0.849 * (centred**2).sum()
    # With few dimensions none is left out.
    assert reducing_basis(rows - rows.mean(axis=0)) is None
    noise = rng.standard_normal((3000, 300)).astype(np.float32)
    assert reducing_basis(noise) is None
    assert reducing_basis(np.zeros((9, 4), np.float32)) is None


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_coverage_is_that_of_full_k_means(spherical, rows):
    X = unit(rows) if spherical else rows
    queries = mixture(12_100)[-100:]
    queries = unit(queries) if spherical else queries
    reference = lloyd(X, 1100, seed=0)
    if spherical:
        reference = unit(reference)
    centres = train_landmarks(X, 1100, spherical=spherical, random_state=0)
    assert centres.dtype == np.float32
    assert 1000 <= len(centres) <= 1100
    places = Landmarks(centres).assign(X)
    for reads in (200, 600):
        ours = coverage(X, queries, places, centres, reads)
        theirs = coverage(X, queries, brute(X, reference), reference, reads)
        assert ours > theirs - 0.02, reads


@pytest.mark.parametrize("n_landmarks", [300, 2000])
def test_near_landmarks_have_near_numbers(n_landmarks, rows):
    """Lists lie on disk in the order of these numbers, and those around a query share pages."""
    centres = train_landmarks(rows, n_landmarks, spherical=False, random_state=0)
    nearest = np.argsort(((rows[:50, None] - centres[None]) ** 2).sum(axis=2), axis=1)[:, :32]
    pages = np.mean([len(np.unique(numbers // 4)) for numbers in nearest])
    shuffled = np.random.default_rng(0).permutation(len(centres))
    assert pages < 0.8 * np.mean([len(np.unique(shuffled[n] // 4)) for n in nearest])


@pytest.mark.parametrize("n_landmarks", [60, 1100])
def test_same_seed_same_landmarks(n_landmarks, rows):
    first, again, other = (
        train_landmarks(rows[:8000], n_landmarks, spherical=True, random_state=seed)
        for seed in (3, 3, 4)
    )
    assert 0.85 * n_landmarks < len(first) <= n_landmarks
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)


def test_few_landmarks_are_those_of_lloyd(rows):
    """Well apart clusters, where any k-means ends at their means."""
    rng = np.random.default_rng(0)
    truth = 100 * np.eye(6, dtype=np.float32)[:5] + 50
    labels = rng.integers(5, size=3000)
    X = truth[labels] + rng.standard_normal((3000, 6)).astype(np.float32)
    found = train_landmarks(X, 5, spherical=False, random_state=2, rounds=8)
    means = np.array([X[labels == k].mean(axis=0) for k in range(5)])
    order = np.argsort(((found[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1))
    np.testing.assert_allclose(found[order], means, atol=1e-3)


def test_tells_of_its_rounds(rows):
    told = []
    train_landmarks(
        rows[:500], 10, spherical=False, rounds=3, on_round=lambda *done: told.append(done)
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
@pytest.mark.parametrize("n_landmarks", [10, 1200])
def test_fewer_distinct_rows_than_landmarks(n_landmarks, spherical, rows):
    X = np.repeat(rows[:7], 600, axis=0)
    found = train_landmarks(X, n_landmarks, spherical=spherical, random_state=0)
    expected = unit(rows[:7]) if spherical else rows[:7]
    np.testing.assert_allclose(
        np.unique(found.round(3), axis=0), np.unique(expected.round(3), axis=0), atol=2e-3
    )
    assert len(found) == 7


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_a_landmark_is_the_mean_of_three_rows_at_least(spherical, rows):
    X = np.concatenate([rows[:4000], 1000 * rows[4000:4004]])
    X = unit(X) if spherical else X
    for n_landmarks in (300, 1200, 4000):
        found = train_landmarks(X, n_landmarks, spherical=spherical, random_state=0, rounds=1)
        assert 0 < len(found) <= 4004 // 3
        # No row is a landmark.
        nearest = np.linalg.norm(X - found[brute(X, found)], axis=1)
        assert nearest.min() > 1e-3
    # Fewer rows than that have no landmark of their own.
    assert train_landmarks(rows[:2], 1, spherical=spherical).tolist() == [[1] + [0] * 23]
    mean = (unit(rows[:3]) if spherical else rows[:3]).mean(axis=0, keepdims=True)
    one = train_landmarks(rows[:3], 5, spherical=spherical)
    np.testing.assert_allclose(one, unit(mean) if spherical else mean, atol=1e-4)


def test_most_rows_the_same(rows):
    """Landmarks that start from the same row leave it to one, and continue from others."""
    X = np.concatenate([np.repeat(rows[:1], 6000, axis=0), rows[1:4001]])
    found = train_landmarks(X, 1200, spherical=False, random_state=0)
    assert 500 < len(np.unique(found, axis=0)) == len(found) <= 1200
    places = Landmarks(found).assign(X)
    assert len(np.unique(places[:6000])) == 1


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_constant_rows(value):
    X = np.full((5000, 6), value, np.float32)
    for spherical in (False, True):
        for n_landmarks in (3, 1100):
            found = train_landmarks(X, n_landmarks, spherical=spherical, random_state=0)
            direction = X[:1] if value == 0 or not spherical else unit(X[:1])
            if spherical and value == 0:
                direction = np.eye(1, 6)
            np.testing.assert_allclose(found, direction, rtol=1e-6)
        assert Landmarks(found).assign(X[:2]).tolist() == [0, 0]


def test_rows_of_zero_have_no_direction(rows):
    X = rows[:3000].copy()
    X[::3] = 0
    found = train_landmarks(X, 40, spherical=True, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_opposite_rows_have_no_mean():
    X = np.array([[1, 0], [-1, 0]] * 50, np.float32)
    found = train_landmarks(X, 1, spherical=True, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e30])
@pytest.mark.parametrize("n_landmarks", [100, 1200])
def test_far_from_the_origin_and_of_any_scale(n_landmarks, scale, rows):
    """Clusters 0.01 wide at a hundred from the origin, times 1e30: squares leave float32."""
    X = ((100 + rows / 100) * scale).astype(np.float32)
    landmarks = Landmarks(X[:n_landmarks])
    shifted = X.astype(np.float64) / scale
    same = landmarks.assign(X[-500:]) == brute(
        100 * (shifted[-500:] - 100), 100 * (shifted[:n_landmarks] - 100)
    )
    assert same.mean() > 0.97
    trained = train_landmarks(X[:3000], 50, spherical=False, random_state=0)
    assert 40 < len(trained) <= 50


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e20, 1e37])
def test_directions_of_any_length(scale, rows):
    """Squares leave float32; the mean directions are those of the same rows of other lengths."""
    lengths = np.where(np.arange(3000) % 2, 1, scale)[:, None]
    found = train_landmarks(rows[:3000] * lengths, 40, spherical=True, random_state=0)
    expected = train_landmarks(rows[:3000], 40, spherical=True, random_state=0)
    # Tiny numbers have few digits, so a row between two landmarks may go to the other one.
    near = (np.sort(found @ expected.T)[:, -1] > 0.99).mean()
    assert near > 0.9
    places = np.arange(3000) % 10
    sums = [ListSums(10, 24, spherical=True, largest=1) for _ in range(2)]
    sums[0].add((rows[:3000] * lengths).astype(np.float32), places)
    sums[1].add(rows[:3000], places)
    np.testing.assert_allclose(*(one.means(slice(None))[0] for one in sums), atol=1e-3)


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_training_takes_no_more_memory_than_a_build_says(spherical):
    dimension, peaks, least = 96, [], []

    def draw(n_rows, number):
        rng = np.random.default_rng(number)
        for part in row_slices(n_rows, 4096):
            yield rng.standard_normal((part.stop - part.start, dimension), np.float32)

    def read(round_, number):
        for block in draw(4096, number):
            round_.add(block)

    for n_landmarks in (10_000, 40_000):
        tracemalloc.start()
        train_by_blocks(draw, read, n_landmarks, dimension, spherical=spherical, seed=0, rounds=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        least.append(bytes_of_build(n_landmarks, dimension, dimension, spherical=spherical))
    assert peaks[1] - peaks[0] < 1.1 * (least[1] - least[0]) + 2e6
    assert peaks[1] < least[1]


def test_memory_does_not_grow_with_the_rows(rows):
    landmarks = Landmarks(rows[:1500])
    peaks = []
    for repeats in (2, 8):
        X = np.tile(rows, (repeats, 1))
        tracemalloc.start()
        places = landmarks.assign(X)
        peaks.append(tracemalloc.get_traced_memory()[1] - places.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 1e6


def test_refuses_unusable_input(rows):
    with pytest.raises(InvalidInputError, match="no landmarks"):
        Landmarks(rows[:0])
    landmarks = Landmarks(rows[:5])
    with pytest.raises(InvalidInputError, match="expected 24"):
        landmarks.assign(rows[:2, :3])


def test_how_many():
    assert [landmark_count(n) for n in (0, 19, 20, 300_000)] == [1, 1, 1, 15_000]
    assert training_rows(100) == 900


def test_blocks_without_rows():
    """As of pages whose rows were deleted: tenants are trained on the others."""
    rows, tenants = mixture(600), np.repeat([0, 1], 300)
    whole = [(rows, tenants)]

    def starts_of(blocks):
        wanted = np.array([10, 10])
        _, starts = train_within(lambda _: blocks, wanted, 24, spherical=False, random_state=0)
        return starts.tolist()

    assert starts_of([(rows[:0], tenants[:0]), *whole]) == starts_of(whole)
