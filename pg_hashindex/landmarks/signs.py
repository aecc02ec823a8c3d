"""Whether the signs of landmarks tell near ones from far ones."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..hashers.rows import row_slices
from ..vectors import as_rows
from .assignment import Landmarks
from .space import unit_rows

__all__ = ["sign_mean"]

# Rows that the signs are tried on, evenly out of those given.
_TRIED_ROWS = 500
# Landmarks that a row should find, and those that are looked at by their signs to find them: what a
# trigger does (sql/134_landmarks.sql).
_N_NEAR = 16
_N_LOOKED_AT = 64
# About this many values are worked on at a time: 4 MB.
_BLOCK_VALUES = 1 << 20
# Fewer signs are the same for too many landmarks, which in a graph are no way to one another.
_LEAST_DIMENSIONS = 64
# Part of them that must be found. Text embeddings have .88 to .92 of 2,000 to 11,000 landmarks,
# images of digits .88 to .97, and SIFT, whose 128 dimensions are too few, .75 of 1,500.
_FOUND = 0.85


def sign_mean(landmarks: Landmarks, rows: ArrayLike) -> NDArray[np.float32] | None:
    """Return the mean to take signs of landmarks from, where signs serve to find near ones.

    An index over signs takes a sixteenth of the room of one over the landmarks, and is searched in
    less time. It is tried here by comparing all signs, which an index does not.

    Parameters
    ----------
    landmarks : Landmarks
    rows : array-like (n, d)
        Rows such as will be searched for.

    Returns
    -------
    float32 (d,) or None
        None where too few near landmarks are among those near by their signs, or d is below 64.

    Raises
    ------
    InvalidInputError
        If rows does not hold finite vectors of the landmarks' dimension.
    """
    tried = as_rows(rows, dimension=landmarks.centres.shape[1]).astype(np.float32, copy=False)
    if tried.shape[1] < _LEAST_DIMENSIONS:
        return None
    tried = tried[:: max(1, len(tried) // _TRIED_ROWS)]
    directed = unit_rows(tried) if landmarks.spherical else tried
    mean: NDArray[np.float32] = landmarks.centres.mean(axis=0, dtype=np.float64).astype(np.float32)
    signs = _signs(landmarks.centres - mean)
    n_near, n_looked_at = (min(n, len(signs)) for n in (_N_NEAR, _N_LOOKED_AT))
    near = landmarks.nearest(tried, n_near)
    found = 0
    for part in row_slices(len(tried), max(1, _BLOCK_VALUES // len(signs))):
        # Products of signs: the more agree, the less.
        unlike = -(_signs(directed[part] - mean) @ signs.T)
        looked_at = np.argpartition(unlike, n_looked_at - 1, axis=1)[:, :n_looked_at]
        found += int((near[part][:, :, None] == looked_at[:, None, :]).sum())
    return mean if found >= _FOUND * near.size else None


def _signs(X: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(X > 0, np.float32(1), np.float32(-1))
