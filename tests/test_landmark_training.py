import tracemalloc

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.landmarks import (
    Landmarks,
    landmark_count,
    sign_mean,
    train_landmarks,
    training_rows,
)
from pg_hashindex.landmarks.groups import LandmarkGroups, _least
from pg_hashindex.landmarks.space import reducing_basis


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


def two_by_formula(row, centres):
    """Return the nearest centre, and of the 16 nearest the second by SOAR, in float64."""
    residuals = row.astype(np.float64) - centres.astype(np.float64)
    near = sorted(range(len(centres)), key=lambda k: (residuals[k] @ residuals[k], k))[:16]
    first = residuals[near[0]]
    losses = {
        k: residuals[k] @ residuals[k] + (residuals[k] @ first) ** 2 / (first @ first)
        for k in near[1:]
    }
    return [near[0], min(losses, key=losses.__getitem__)]


def brute_pairs(X, centres):
    """Do as `two_by_formula` for all rows at once."""
    X, centres = X.astype(np.float64), centres.astype(np.float64)
    squares = ((X**2).sum(axis=1)[:, None] - 2 * X @ centres.T) + (centres**2).sum(axis=1)
    near = np.argsort(squares, axis=1)[:, :16]
    residuals = centres[near] - X[:, None]
    losses = (residuals**2).sum(axis=2)
    least = np.maximum(losses[:, :1], 1e-30)
    losses += np.einsum("ijk,ik->ij", residuals, residuals[:, 0]) ** 2 / least
    losses[:, 0] = np.inf
    second = np.take_along_axis(near, losses.argmin(axis=1)[:, None], axis=1)[:, 0]
    return np.column_stack([near[:, 0], second])


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


def coverage(X, queries, pairs, centres, reads):
    """Return the share of the true top 10 in the lists around a query, so many entries read."""
    squares = ((queries[:, None] - centres[None]) ** 2).sum(axis=2)
    probes = np.argsort(squares, axis=1)
    lengths = np.bincount(pairs.ravel(), minlength=len(centres))
    held, read = [], []
    for query, order in zip(queries, probes, strict=True):
        nearest = np.argsort(((X - query) ** 2).sum(axis=1))[:10]
        place = np.empty(len(centres), int)
        place[order] = np.arange(len(centres))
        found = place[pairs[nearest]].min(axis=1)
        held.append(np.bincount(found, minlength=len(centres)).cumsum() / 10)
        read.append(lengths[order].cumsum())
    return float(np.interp(reads, np.mean(read, axis=0), np.mean(held, axis=0)))


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
@pytest.mark.parametrize("n_landmarks", [2, 5, 40, 300])
def test_few_landmarks_are_assigned_exactly(n_landmarks, spherical, rows):
    centres, X = rows[:n_landmarks] * np.float32(0.8), rows[-100:]
    found = Landmarks(centres, spherical=spherical).assign(X)
    assert found.dtype == np.intp
    if spherical:
        centres, X = unit(centres), unit(X)
    assert found.tolist() == [two_by_formula(row, centres) for row in X]


def test_a_single_landmark_has_no_second(rows):
    for spherical in (False, True):
        found = Landmarks(rows[:1], spherical=spherical).assign(rows[:3])
        assert found.tolist() == [[0, -1]] * 3


def test_of_equally_near_landmarks_the_first():
    centres = np.array([[4, 0], [0, 2], [2, 0], [-2, 0], [0, 2]], np.float32)
    landmarks = Landmarks(centres, spherical=False)
    # The row in the middle: two residuals of length 2 are parallel to the first one or against it,
    # the fourth is at right angles. The other row is a landmark, its residual of no direction.
    assert landmarks.assign([[0, 0], [2, 0]]).tolist() == [[1, 2], [2, 0]]
    assert landmarks.nearest([[0, 0]], 5).tolist() == [[1, 2, 3, 4, 0]]


def test_second_is_not_parallel_to_the_first():
    """By hand: 1 + 1 for the one behind the first, 1.21 + 0 for the one at right angles."""
    landmarks = Landmarks([[0.9, 0], [-1, 0], [0, 1.1]], spherical=False)
    assert landmarks.assign([[0, 0]]).tolist() == [[0, 2]]


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_nearest_compares_with_all(spherical, rows):
    found = Landmarks(rows[:1500], spherical=spherical).nearest(rows[-50:], 20)
    centres, X = rows[:1500].astype(np.float64), rows[-50:].astype(np.float64)
    if spherical:
        centres, X = unit(centres), unit(X)
    squares = ((X[:, None] - centres[None]) ** 2).sum(axis=2)
    assert found.tolist() == np.argsort(squares, axis=1)[:, :20].tolist()


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_many_landmarks_are_assigned_nearly_so(spherical, rows):
    centres, X = rows[:2000], rows[-4000:]
    found = Landmarks(centres, spherical=spherical).assign(X)
    assert (found[:, 0] != found[:, 1]).all()
    if spherical:
        centres, X = unit(centres), unit(X)
    same = (found == brute_pairs(X, centres)).mean(axis=0)
    assert same[0] > 0.98
    assert same[1] > 0.95


def test_batches_do_not_change_what_is_assigned(rows):
    landmarks = Landmarks(rows[:1500], spherical=False)
    whole = landmarks.assign(rows)
    parts = [landmarks.assign(part) for part in np.array_split(rows, 7)]
    assert (np.concatenate(parts) == whole).mean() > 0.9999


def test_half_precision_rows_and_lists_are_taken(rows):
    landmarks = Landmarks(rows[:50], spherical=True)
    half = rows[:20].astype(np.float16)
    assert landmarks.assign(half).tolist() == landmarks.assign(half.tolist()).tolist()
    assert landmarks.assign(np.empty((0, rows.shape[1]))).shape == (0, 2)


def test_groups_hold_every_landmark_once_and_none_is_large(rows):
    # Half of the landmarks at one place: no k-means takes that group apart.
    points = np.concatenate([rows[:1000], np.repeat(rows[:1], 1000, axis=0)]) / 20
    groups = LandmarkGroups(points, 4.0, 12)
    assert sorted(groups._members.tolist()) == list(range(2000))
    assert groups._sizes.min() > 0
    assert groups._sizes.max() <= 3 * 2000 / 178
    found = groups.candidates(points[:300], 16)
    assert ((found >= 0) & (found < 2000)).all()
    assert (groups.nearest(points[:300])[1:] == np.arange(1, 300)).mean() > 0.98


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
    centred = rows - rows.mean(axis=0)
    basis = reducing_basis(centred)
    values = np.linalg.eigvalsh(np.cov(centred.T))[::-1]
    needed = 1 + int(np.searchsorted(values.cumsum(), 0.85 * values.sum()))
    assert basis.shape == (24, needed)
    np.testing.assert_allclose(basis.T @ basis, np.eye(needed), atol=1e-5)
    assert ((centred @ basis) ** 2).sum() > 0.849 * (centred**2).sum()
    noise = np.random.default_rng(0).standard_normal((3000, 24)).astype(np.float32)
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
    assert centres.shape == (1100, 24)
    pairs = Landmarks(centres, spherical=spherical).assign(X)
    for reads in (200, 600):
        ours = coverage(X, queries, pairs, centres, reads)
        theirs = coverage(X, queries, brute_pairs(X, reference), reference, reads)
        assert ours > theirs - 0.02, reads


@pytest.mark.parametrize("n_landmarks", [60, 1100])
def test_same_seed_same_landmarks(n_landmarks, rows):
    first, again, other = (
        train_landmarks(rows[:8000], n_landmarks, spherical=True, random_state=seed)
        for seed in (3, 3, 4)
    )
    assert first.shape == (n_landmarks, 24)
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
    X = np.repeat(rows[:7], 300, axis=0)
    found = train_landmarks(X, n_landmarks, spherical=spherical, random_state=0)
    expected = unit(rows[:7]) if spherical else rows[:7]
    np.testing.assert_allclose(
        np.unique(found.round(3), axis=0), np.unique(expected.round(3), axis=0), atol=2e-3
    )
    assert len(found) == 7
    assert len(train_landmarks(rows[:3], n_landmarks, spherical=spherical, random_state=0)) == 3


def test_most_rows_the_same(rows):
    """Landmarks that start from the same row leave it to one, and go on from others."""
    X = np.concatenate([np.repeat(rows[:1], 6000, axis=0), rows[1:4001]])
    found = train_landmarks(X, 1200, spherical=False, random_state=0)
    assert len(found) == 1200
    assert len(np.unique(found, axis=0)) == 1200
    pairs = Landmarks(found, spherical=False).assign(X)
    assert len(np.unique(pairs[:6000], axis=0)) == 1


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
        assert Landmarks(found, spherical=spherical).assign(X[:2]).tolist() == [[0, -1]] * 2


def test_rows_of_zero_have_no_direction(rows):
    X = rows[:3000].copy()
    X[::3] = 0
    found = train_landmarks(X, 40, spherical=True, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    pairs = Landmarks(found, spherical=True).assign(X[::3])
    assert len(np.unique(pairs, axis=0)) == 1
    assert pairs[0, 0] != pairs[0, 1]


def test_opposite_rows_have_no_mean():
    X = np.array([[1, 0], [-1, 0]] * 50, np.float32)
    found = train_landmarks(X, 1, spherical=True, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e30])
@pytest.mark.parametrize("n_landmarks", [100, 1200])
def test_far_from_the_origin_and_of_any_scale(n_landmarks, scale, rows):
    """Clusters 0.01 wide at a hundred from the origin, times 1e30: squares leave float32."""
    X = ((100 + rows / 100) * scale).astype(np.float32)
    landmarks = Landmarks(X[:n_landmarks], spherical=False)
    shifted = X.astype(np.float64) / scale
    same = landmarks.assign(X[-500:]) == brute_pairs(
        100 * (shifted[-500:] - 100), 100 * (shifted[:n_landmarks] - 100)
    )
    assert same[:, 0].mean() > 0.97
    assert train_landmarks(X[:3000], 50, spherical=False, random_state=0).shape == (50, 24)


def test_memory_does_not_grow_with_the_rows(rows):
    landmarks = Landmarks(rows[:1500], spherical=False)
    peaks = []
    for repeats in (2, 8):
        X = np.tile(rows, (repeats, 1))
        tracemalloc.start()
        pairs = landmarks.assign(X)
        peaks.append(tracemalloc.get_traced_memory()[1] - pairs.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 1e6


def test_refuses_what_it_cannot_use(rows):
    for arguments, said in (
        ((rows[:0], 3), "no rows"),
        ((rows[:5], 0), "n_landmarks must be 1 or more, got 0"),
        ((np.full((3, 2), np.nan), 3), "must be finite"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            train_landmarks(*arguments, spherical=False)
    with pytest.raises(InvalidInputError, match="rounds must be 1 or more, got 0"):
        train_landmarks(rows[:5], 2, spherical=False, rounds=0)
    with pytest.raises(InvalidInputError, match="no landmarks"):
        Landmarks(rows[:0], spherical=False)
    landmarks = Landmarks(rows[:5], spherical=False)
    with pytest.raises(InvalidInputError, match="expected 24"):
        landmarks.assign(rows[:2, :3])
    with pytest.raises(InvalidInputError, match="6 nearest landmarks were asked for, of 5"):
        landmarks.nearest(rows[:2], 6)


@pytest.mark.parametrize("spherical", [False, True], ids=["l2", "cosine"])
def test_signs_serve_in_many_dimensions_and_not_in_few(spherical):
    rng = np.random.default_rng(0)
    for dimension, serve in ((128, True), (8, False), (64, False)):
        # Six directions that matter, or all of them alike.
        X = rng.standard_normal((3000, 6 if serve else dimension)) + 0.5
        X = X @ rng.standard_normal((6, dimension)) + 5 if serve else X
        landmarks = Landmarks(unit(X[:300]) if spherical else X[:300], spherical=spherical)
        mean = sign_mean(landmarks, X[300:])
        # By brute force: of the 16 nearest, how many are among the 64 with the most equal signs.
        queries = (unit(X) if spherical else X)[300::5].astype(np.float64)
        centres = landmarks.centres.astype(np.float64)
        near = np.argsort(((queries[:, None] - centres) ** 2).sum(axis=2), axis=1)[:, :16]
        middle = centres.mean(axis=0)
        unlike = ((queries > middle)[:, None] != (centres > middle)).sum(axis=2)
        found = np.take_along_axis(unlike, near, 1) <= np.sort(unlike, axis=1)[:, 63:64]
        assert dimension == 8 or (found.mean() >= 0.85) == serve
        if serve:
            np.testing.assert_allclose(mean, middle, rtol=1e-5)
        else:
            assert mean is None


def test_signs_of_few_landmarks(rows):
    wide = np.tile(rows[:50], (1, 3))
    assert sign_mean(Landmarks(wide[:1], spherical=True), wide) is not None
    with pytest.raises(InvalidInputError, match="expected 24"):
        sign_mean(Landmarks(rows[:5], spherical=True), rows[:2, :3])


def test_how_many():
    assert [landmark_count(n) for n in (0, 27, 28, 300_000)] == [1, 1, 1, 10_714]
    assert training_rows(100) == 1800
