"""Train landmarks: k-means with thousands of centres, in seconds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...hashers.numerics.kmeans import nearest_centres
from ...hashers.numerics.rows import row_slices
from ...models.vectors import as_rows
from .assignment import CANCELLED, LEAST_ROWS, MAX_FLAT
from .groups import LandmarkGroups, place_means
from .space import Space, in_threads, moderate_rows, reduced, reducing_basis, row_lengths, unit_rows

# Groups for each root of the number of landmarks, and groups that a row visits. Fewer comparisons
# than `Landmarks` makes, since a wrong neighbour harms a mean less than a list. On 300,000 text
# embeddings twice as many visits cover no more of the true ten.
_GROUPS = (4.0, 8)
_ROUNDS = 4
_ROWS_PER_LANDMARK = 12
_TABLE_ROWS_PER_LANDMARK = 28
# Rows that give the mean and the scale of the data.
_SPACE_ROWS = 8192
# Rows are equal up to rounding if their distance is below this part of their length.
_SAME = 1e-5
_BLOCK_ROWS = 8192


def landmark_count(n_rows: int) -> int:
    """Return how many landmarks a table with this number of rows should have: one for 28 rows."""
    return max(1, n_rows // _TABLE_ROWS_PER_LANDMARK)


def training_rows(n_landmarks: int) -> int:
    """Return how many rows to draw for training this number of landmarks: 12 for each."""
    return _ROWS_PER_LANDMARK * n_landmarks


def train_landmarks(
    rows: ArrayLike,
    n_landmarks: int,
    *,
    spherical: bool,
    random_state: int | None = None,
    rounds: int = _ROUNDS,
    on_round: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """Train landmarks on a sample, by Lloyd's k-means from rows of it.

    If there are more than 1,024 landmarks, a row is compared with those near it, in fewer
    dimensions, as `Landmarks` does. A landmark that loses all its rows moves to a row, drawn with a
    probability that grows with its squared distance to its own landmark (as in k-means++). After
    the last round, landmarks of fewer than three rows are dropped, so that no landmark reveals a
    single row.

    About `training_rows` rows (n, d) are enough; a copy of them in fewer dimensions is made. If
    only directions count (``spherical``), landmarks have unit length, and zero vectors are left
    out. ``on_round`` is called after each round with the rounds done and the rounds in all. Returns
    float32 (m, d), n_landmarks or less if there are fewer distinct rows or landmarks are dropped;
    if no three rows have a mean, the only landmark is the first axis.
    """
    X = as_rows(rows).astype(np.float32, copy=False)
    for name, value in (("n_landmarks", n_landmarks), ("rounds", rounds)):
        if value < 1:
            raise InvalidInputError(f"{name} must be 1 or more, got {value}")
    if not len(X):
        raise InvalidInputError("there are no rows to train landmarks on")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(X))
    if spherical:
        X, lengths = moderate_rows(X)
        order = order[lengths[order] > 0]
    if len(order) < LEAST_ROWS:
        return _fallback_landmark(X)
    # With fewer than three rows for each, most landmarks would be dropped.
    training = _Training(X, order, min(n_landmarks, len(order) // LEAST_ROWS), spherical, rng)
    for done in range(rounds):
        training.step(last=done + 1 == rounds)
        if on_round is not None:
            on_round(done + 1, rounds)
    return training.in_groups() if len(training.centres) else _fallback_landmark(X)


def _fallback_landmark(X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return one landmark that does not depend on the rows; all of them are nearest to it."""
    return np.eye(1, X.shape[1], dtype=np.float32)


class _Training:
    """One run of k-means over rows in a random order."""

    def __init__(
        self,
        X: NDArray[np.float32],
        order: NDArray[np.intp],
        n_landmarks: int,
        spherical: bool,
        rng: np.random.Generator,
    ) -> None:
        self._X, self._order, self._n_landmarks = X, order, n_landmarks
        self._spherical, self._rng = spherical, rng
        first = X[order[:_SPACE_ROWS]]
        self._space = Space(first, spherical)
        self._basis = reducing_basis(self._space(first)) if n_landmarks > MAX_FLAT else None
        width = X.shape[1] if self._basis is None else self._basis.shape[1]
        self._rows = np.empty((len(order), width), np.float32)
        self._weights = np.ones(len(order), np.float32)
        if spherical:
            self._weights /= row_lengths(X)[order]

        def work(part: slice) -> None:
            self._rows[part] = reduced(self._space(X[order[part]]), self._basis)

        in_threads(work, len(order))
        self.centres = self._directed(np.unique(X[order[:n_landmarks]], axis=0))

    def step(self, last: bool) -> None:
        """Do a round; the last one leaves out landmarks of too few rows."""
        points = reduced(self._space(self.centres), self._basis)
        places = _assigned(self._rows, points)
        means, counts = place_means(self._X, places, len(points), self._order, self._weights)
        full = counts >= (LEAST_ROWS if last else 1)
        if self._spherical:
            # Directions that cancel out have no mean.
            full &= row_lengths(means) > CANCELLED
        self.centres = self._directed(means[full])
        if len(self.centres) < self._n_landmarks and not last:
            self._add(points, places)

    def in_groups(self) -> NDArray[np.float32]:
        """Return the landmarks group after group: their numbers give the order of lists on disk."""
        points = reduced(self._space(self.centres), self._basis)
        return self.centres[LandmarkGroups(points, *_GROUPS).members]

    def _add(self, points: NDArray[np.float32], places: NDArray[np.intp]) -> None:
        """Add rows far from their landmark until there are n_landmarks."""
        distances = np.empty(len(places), np.float32)
        for part in row_slices(len(places), _BLOCK_ROWS):
            distances[part] = row_lengths(self._rows[part] - points[places[part]])
        # Distances are exact only to the digits that the original rows had.
        lengths = row_lengths(self._X)[self._order] * self._weights
        apart = np.flatnonzero(distances > _SAME * lengths * self._space.scale)
        # The least of exponential variables with these rates are a draw without replacement.
        chances = self._rng.exponential(size=len(apart)) / distances[apart].astype(np.float64) ** 2
        n_missing = self._n_landmarks - len(self.centres)
        drawn = apart[np.argsort(chances, kind="stable")[:n_missing]]
        added = np.unique(self._X[self._order[drawn]], axis=0)
        self.centres = np.concatenate([self.centres, self._directed(added)])

    def _directed(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        return unit_rows(X) if self._spherical else X


def _assigned(X: NDArray[np.float32], points: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the nearest point of each row, intp (n,); approximately if there are many points."""
    result = np.empty(len(X), np.intp)
    groups = LandmarkGroups(points, *_GROUPS) if len(points) > MAX_FLAT else None

    def work(part: slice) -> None:
        if groups is None:
            result[part] = nearest_centres(X[part], points, 1)[0][:, 0]
        else:
            result[part] = groups.nearest(X[part])

    in_threads(work, len(X))
    return result
