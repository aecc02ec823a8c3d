"""Assign rows to their nearest landmark, and move landmarks to the mean of their rows."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...hashers.numerics.kmeans import nearest_centres
from ...models.vectors import as_rows
from .groups import LandmarkGroups, place_means
from .space import Space, in_threads, moderate_rows, reduced, reducing_basis, row_lengths, unit_rows

#: Up to this number, each row is compared with all landmarks: groups would save nothing.
MAX_FLAT = 1024
#: A centre is the mean of at least this many rows, so that it reveals none of them.
LEAST_ROWS = 3
#: A mean of unit vectors that is shorter than this is only rounding.
CANCELLED = 1e-5
# Groups for each root of the number of landmarks, and groups that a row visits. On 300,000 text
# embeddings and 10,714 landmarks, 64 lists hold .953 of the true ten, and .956 where a row is
# compared with every landmark in all of its dimensions.
_GROUPS = (4.0, 24)


class Landmarks:
    """Landmarks, prepared for assigning rows to them in batches, by squared distance.

    Up to 1,024 landmarks (m, d) are all compared with each row, and the answer is exact. If there
    are more, a row is compared with those near it (see `LandmarkGroups`), in a basis of fewer
    dimensions where one keeps most of the variance.
    """

    def __init__(self, points: ArrayLike) -> None:
        self.points: NDArray[np.float32] = as_rows(points).astype(np.float32)
        if not len(self.points):
            raise InvalidInputError("there are no landmarks to assign rows to; train some first")
        self._space = Space(self.points, spherical=False)
        self._placed = self._space(self.points)
        self._basis: NDArray[np.float32] | None = None
        self._groups: LandmarkGroups | None = None
        if len(self.points) > MAX_FLAT:
            self._basis = reducing_basis(self._placed)
            self._groups = LandmarkGroups(reduced(self._placed, self._basis), *_GROUPS)

    def assign(self, X: ArrayLike) -> NDArray[np.intp]:
        """Find the nearest landmark of each row (n, d), intp (n,)."""
        rows = as_rows(X, dimension=self.points.shape[1])
        result = np.empty(len(rows), np.intp)

        def work(part: slice) -> None:
            block = self._space(rows[part].astype(np.float32, copy=False))
            if self._groups is None:
                result[part] = nearest_centres(block, self._placed, 1)[0][:, 0]
            else:
                result[part] = self._groups.nearest(reduced(block, self._basis))

        in_threads(work, len(rows))
        return result


class ListMeans:
    """The means of the rows of each landmark, which are better centres.

    Landmarks are trained on a sample. Their lists stay as they are when they move to the mean of
    all of their rows, and 64 lists then hold as much of the true ten as 80 did. If only directions
    count (``spherical``), rows and means have unit length.
    """

    def __init__(self, n_landmarks: int, dimension: int, *, spherical: bool) -> None:
        self._spherical = spherical
        self._means = np.zeros((n_landmarks, dimension), np.float32)
        self._counts = np.zeros(n_landmarks, np.intp)

    def add(self, X: NDArray[np.float32], places: NDArray[np.intp]) -> None:
        """Add rows (n, d) and their landmarks (n,)."""
        weights = np.ones(len(X), np.float32)
        if self._spherical:
            X, lengths = moderate_rows(X)
            X, places, lengths = X[lengths > 0], places[lengths > 0], lengths[lengths > 0]
            weights = (1 / lengths).astype(np.float32, copy=False)
        present, inverse = np.unique(places, return_inverse=True)
        means, counts = place_means(X, inverse, len(present), np.arange(len(X)), weights)
        self._counts[present] += counts
        # Means, unlike sums, stay exact in float32.
        share = (counts / self._counts[present]).astype(np.float32)
        self._means[present] += (means - self._means[present]) * share[:, None]

    def centres(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the means, and which are of three rows or more; the others should not be used."""
        moved = self._counts >= LEAST_ROWS
        if self._spherical:
            # Directions that cancel out have no mean.
            moved &= row_lengths(self._means) > CANCELLED
            return unit_rows(self._means), moved
        return self._means, moved
