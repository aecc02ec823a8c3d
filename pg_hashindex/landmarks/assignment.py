"""The two landmarks that list each row."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.kmeans import nearest_centres
from ..hashers.rows import row_slices
from ..vectors import as_rows
from .groups import LandmarkGroups
from .space import Space, in_threads, reduced, reducing_basis

__all__ = ["MAX_FLAT", "Landmarks"]

#: Up to so many landmarks are all compared with each row: groups would save nothing.
MAX_FLAT = 1024
# Groups for each root of the number of landmarks, and groups that a row visits.
_GROUPS = (8.0, 48)
# Landmarks that the second one is chosen from.
_N_NEAR = 16
# About this many values are worked on at a time: 4 MB.
_BLOCK_VALUES = 1 << 20


class Landmarks:
    """Landmarks made ready for assigning rows to them, batch after batch.

    Up to 1,024 landmarks are all compared with each row, and the answer is exact. Of more, a row is
    compared with those near it, see `LandmarkGroups`, in a basis of fewer dimensions where one
    keeps most of the variance; distances to the nearest 16 are exact in any case.

    Parameters
    ----------
    centres : array-like (m, d)
    spherical : bool
        Whether directions count alone: rows and landmarks are scaled to unit length.

    Attributes
    ----------
    centres : float32 (m, d)
    spherical : bool

    Raises
    ------
    InvalidInputError
        If there is no landmark, or one is not a finite vector.
    """

    def __init__(self, centres: ArrayLike, *, spherical: bool) -> None:
        self.centres: NDArray[np.float32] = as_rows(centres).astype(np.float32)
        self.spherical = spherical
        if not len(self.centres):
            raise InvalidInputError("there are no landmarks to assign rows to; train some first")
        self._space = Space(self.centres, spherical)
        self._points = self._space(self.centres)
        self._basis: NDArray[np.float32] | None = None
        self._groups: LandmarkGroups | None = None
        if len(self.centres) > MAX_FLAT:
            self._basis = reducing_basis(self._points)
            self._groups = LandmarkGroups(reduced(self._points, self._basis), *_GROUPS)

    def assign(self, X: ArrayLike) -> NDArray[np.intp]:
        """Find the two landmarks that list each row.

        The first is the nearest one. The second is chosen among the 16 nearest so that it does not
        miss what the first one misses: with residuals r1 and r2 of the row to the two, it has the
        least ``|r2|^2 + (r2'r1)^2 / |r1|^2`` (Sun et al. 2023, "SOAR: improved indexing for
        approximate nearest neighbor search", theorem 3.1, lambda = 1). Of equal ones, the first by
        number. A row of zero has no direction: where these count alone, landmarks 0 and 1 list it.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        intp (n, 2)
            The second is -1 where there is one landmark only.

        Raises
        ------
        InvalidInputError
            If X does not hold finite vectors of the landmarks' dimension.
        """
        rows = as_rows(X, dimension=self.centres.shape[1])
        result = np.full((len(rows), 2), -1, np.intp)

        def work(part: slice) -> None:
            block = self._space(rows[part].astype(np.float32, copy=False))
            near = np.sort(self._near(block, min(_N_NEAR, len(self._points))), axis=1)
            result[part, : min(2, len(self._points))] = _two(block, self._points, near)
            if self.spherical:
                zero = part.start + np.flatnonzero(~rows[part].any(axis=1))
                result[zero] = (0, 1 if len(self._points) > 1 else -1)

        in_threads(work, len(rows))
        return result

    def nearest(self, X: ArrayLike, n_nearest: int) -> NDArray[np.intp]:
        """Find the nearest landmarks of each row, by comparing with all of them.

        Parameters
        ----------
        X : array-like (n, d)
        n_nearest : int
            1 to m.

        Returns
        -------
        intp (n, n_nearest)
            The nearest first; of equally near ones, the first by number.

        Raises
        ------
        InvalidInputError
            If X does not hold finite vectors of the landmarks' dimension, or n_nearest is out of
            range.
        """
        rows = as_rows(X, dimension=self.centres.shape[1])
        if not 1 <= n_nearest <= len(self.centres):
            raise InvalidInputError(
                f"{n_nearest} nearest landmarks were asked for, of {len(self.centres)}"
            )
        result = np.empty((len(rows), n_nearest), np.intp)
        halves = np.einsum("ij,ij->i", self._points, self._points) / 2

        def work(part: slice) -> None:
            block = self._space(rows[part].astype(np.float32, copy=False))
            size = max(1, _BLOCK_VALUES // len(self._points))
            for piece in row_slices(len(block), size):
                scores = halves - block[piece] @ self._points.T
                places = np.argpartition(scores, n_nearest - 1, axis=1)[:, :n_nearest]
                places.sort(axis=1)
                found = np.take_along_axis(scores, places, axis=1)
                order = np.argsort(found, axis=1, kind="stable")
                result[part][piece] = np.take_along_axis(places, order, axis=1)

        in_threads(work, len(rows))
        return result

    def _near(self, block: NDArray[np.float32], n: int) -> NDArray[np.intp]:
        if self._groups is None:
            return nearest_centres(block, self._points, n)[0]
        return self._groups.candidates(reduced(block, self._basis), n)


def _two(
    X: NDArray[np.float32], points: NDArray[np.float32], near: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Choose the first and the second landmark among those near, or the first where it is alone.

    Parameters
    ----------
    X : float32 (n, d)
    points : float32 (m, d)
    near : intp (n, c)
        Numbers of points, rising; the same one may come twice.

    Returns
    -------
    intp (n, 2), or (n, 1) where c is 1
    """
    result = np.empty((len(X), min(2, near.shape[1])), np.intp)
    for part in row_slices(len(X), max(1, _BLOCK_VALUES // (near.shape[1] * X.shape[1]))):
        numbers, every = near[part], np.arange(len(X[part]))
        # Differences rather than products: rows may be much nearer to landmarks than these are to
        # the mean.
        residuals = points[numbers]
        residuals -= X[part, None]
        squares = np.einsum("ijk,ijk->ij", residuals, residuals)
        first = squares.argmin(axis=1)
        result[part, 0] = numbers[every, first]
        if near.shape[1] == 1:
            continue
        along = np.einsum("ijk,ik->ij", residuals, residuals[every, first])
        # The residual of a row that is a landmark is parallel to nothing.
        least = np.maximum(squares[every, first], np.finfo(np.float32).tiny)
        losses = squares + along * (along / least[:, None])
        losses[numbers == result[part, :1]] = np.inf
        result[part, 1] = numbers[every, losses.argmin(axis=1)]
    return result
