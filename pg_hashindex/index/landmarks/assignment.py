"""Assign rows to their nearest landmark, and move landmarks to the mean of their rows."""

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...hashers.numerics.kmeans import nearest_centres
from ...hashers.numerics.rows import row_slices
from ...models.vectors import as_rows
from .groups import LandmarkGroups, place_means
from .space import Space, in_threads, moderate_rows, reduced, reducing_basis, row_lengths, unit_rows

#: Up to this number, each row is compared with all landmarks: groups would save nothing.
MAX_FLAT = 1024
#: A centre is the mean of at least this many rows, so that it reveals none of them.
LEAST_ROWS = 3
#: A mean of unit vectors that is shorter than this is only rounding.
CANCELLED = 1e-5
# The same for sums of numbers that are rounded to a 65,536th.
_CANCELLED_SUM = 1e-3
# Groups for each root of the number of landmarks, and groups that a row visits. On 300,000 text
# embeddings and 10,714 landmarks, 64 lists hold .953 of the true ten, and .956 where a row is
# compared with every landmark in all of its dimensions.
_GROUPS = (4.0, 24)
_BLOCK_ROWS = 8192
# Landmarks that give the mean and the scale of the space.
_SPACE_ROWS = 65_536


class Landmarks:
    """Landmarks, prepared for assigning rows to them in batches, by squared distance.

    Up to 1,024 landmarks (m, d) are all compared with each row, and the answer is exact. If there
    are more, a row is compared with those near it (see `LandmarkGroups`), in a basis of fewer
    dimensions where one keeps most of the variance.
    """

    def __init__(self, points: ArrayLike) -> None:
        given = as_rows(points)
        if not len(given):
            raise InvalidInputError("there are no landmarks to assign rows to; train some first")
        self._dimension = given.shape[1]
        #: In the caller's order.
        self.points: NDArray[np.floating] = given
        self._basis: NDArray[np.float32] | None = None
        self._groups: LandmarkGroups | None = None
        # Some of them give mean and scale; squares of all are within the range of float32 then too.
        sample = given[:: -(-len(given) // _SPACE_ROWS)].astype(np.float32)
        self._space = Space(sample, spherical=False)
        if len(given) > MAX_FLAT:
            self._basis = reducing_basis(self._space(sample))
        width = self._dimension if self._basis is None else self._basis.shape[1]
        self._placed = np.empty((len(given), width), np.float32)
        for part in row_slices(len(given), _BLOCK_ROWS):
            block = self._space(given[part].astype(np.float32, copy=False))
            self._placed[part] = reduced(block, self._basis)
        if len(given) > MAX_FLAT:
            self._groups = LandmarkGroups(self._placed, *_GROUPS)
            # The groups hold a copy.
            self._placed = self._placed[:0]

    def assign(self, X: ArrayLike) -> NDArray[np.intp]:
        """Find the nearest landmark of each row (n, d), intp (n,)."""
        rows = as_rows(X, dimension=self._dimension)
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
            directed = lengths > 0
            if not directed.all():
                X, places, lengths = X[directed], places[directed], lengths[directed]
            weights = (1 / lengths).astype(np.float32, copy=False)
        present, inverse = np.unique(places, return_inverse=True)
        means, counts = place_means(X, inverse, len(present), np.arange(len(X)), weights)
        self._counts[present] += counts
        # Means, unlike sums, stay exact in float32.
        share = (counts / self._counts[present]).astype(np.float32)
        self._means[present] += (means - self._means[present]) * share[:, None]

    def centres(
        self, least_rows: int = LEAST_ROWS
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the means, and which are of enough rows; the others should not be used."""
        moved = self._counts >= least_rows
        if self._spherical:
            for part in row_slices(len(moved), _BLOCK_ROWS):
                # Directions that cancel out have no mean.
                moved[part] &= row_lengths(self._means[part]) > CANCELLED
                self._means[part] = unit_rows(self._means[part])
        return self._means, moved


class ListSums:
    """The sums of the rows of each landmark, which give its mean, whatever order rows come in.

    Numbers are rounded to multiples of a 65,536th of the largest one (a 2^32nd, if lengths count
    too), so that sums of integers are exact. A list of more rows than such a sum holds has no mean,
    and a row with a larger number than ``largest`` is left out.
    """

    def __init__(
        self, n_landmarks: int, dimension: int, *, spherical: bool, largest: float
    ) -> None:
        bits, kind = (16, np.int32) if spherical else (32, np.int64)
        self._spherical = spherical
        self._largest = 1.0 if spherical else largest
        self._scale = 2.0**bits / self._largest
        self._most_rows = int(np.iinfo(kind).max) >> bits
        self._sums: NDArray[np.signedinteger] = np.zeros((n_landmarks, dimension), kind)
        self._counts = np.zeros(n_landmarks, np.int64)

    @staticmethod
    def largest_of(centres: NDArray[np.float32]) -> float:
        """Return a bound of the numbers of rows around these centres."""
        found = float(np.abs(centres).max(initial=0))
        return 4 * found if found > 0 else 1.0

    def add(self, X: NDArray[np.float32], places: NDArray[np.intp]) -> None:
        """Add rows (n, d) and their landmarks (n,)."""
        if self._spherical:
            X = unit_rows(X)
            usable = row_lengths(X) > 0
        else:
            usable = np.abs(X).max(axis=1, initial=0) <= self._largest
        if not usable.all():
            X, places = X[usable], places[usable]
        whole = np.rint(X * self._scale if self._spherical else X.astype(np.float64) * self._scale)
        present, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
        members = scipy.sparse.csr_array(
            (
                np.ones(len(X), self._sums.dtype),
                np.argsort(inverse, kind="stable"),
                np.append(0, counts.cumsum()),
            ),
            shape=(len(present), len(X)),
        )
        # A sum that has become too large wraps, and is not used.
        self._sums[present] += members @ whole.astype(self._sums.dtype)
        self._counts[present] += counts

    def merge(self, parts: list[bytes]) -> None:
        """Add what `parts` of another process gave."""
        self._counts += np.frombuffer(parts[0], self._counts.dtype)
        self._sums += np.frombuffer(parts[1], self._sums.dtype).reshape(self._sums.shape)

    def parts(self) -> list[bytes]:
        """Return the counts and sums, as bytes."""
        return [self._counts.tobytes(), self._sums.tobytes()]

    def means(self, part: slice) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the means of some landmarks, and which are of enough rows to be used."""
        counts = self._counts[part]
        moved = (counts >= LEAST_ROWS) & (counts <= self._most_rows)
        each = (np.maximum(counts, 1) * self._scale)[:, None]
        means = (self._sums[part] / each).astype(np.float32)
        if self._spherical:
            # Directions that cancel out have no mean.
            moved &= row_lengths(means) > _CANCELLED_SUM
            means = unit_rows(means)
        return means, moved
