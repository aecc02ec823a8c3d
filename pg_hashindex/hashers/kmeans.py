"""Lloyd's k-means on a sample, for anchors: fair centres soon, not the best ones at last."""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .rows import RowSource

__all__ = ["nearest_centres", "sample_centres"]

_ROUNDS = 5
_ROWS_PER_CENTRE = 20
# About this many distances are worked on at a time.
_BLOCK_PAIRS = 1 << 21


def sample_centres(
    rows: RowSource, n_centres: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Find centres of the rows, by five rounds on a sample of 20 rows for each centre.

    They start from distinct rows of the sample. A centre that loses all of its rows goes on from
    a row that is far from the others.

    Parameters
    ----------
    rows : RowSource
    n_centres : int
    rng : numpy.random.Generator

    Returns
    -------
    float32 (m, d)
        m is n_centres, or less where the sample has fewer distinct rows.
    """
    size = min(rows.n_rows, _ROWS_PER_CENTRE * n_centres)
    sample = rows.rows(rng.choice(rows.n_rows, size, replace=False))
    # Distances expand to products, which lose fewest digits about the mean.
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    sample -= mean
    centres = sample[:n_centres].copy()
    for _ in range(_ROUNDS):
        places, squares = nearest_centres(sample, centres, 1)
        centres = _means(sample, places[:, 0], squares[:, 0], len(centres))
    return np.unique(centres, axis=0) + mean


def _means(
    sample: NDArray[np.float32],
    places: NDArray[np.intp],
    squares: NDArray[np.float32],
    n_centres: int,
) -> NDArray[np.float32]:
    """Return the mean of the rows of each place; for a place without any, a row far from its."""
    counts = np.bincount(places, minlength=n_centres)
    shape = (n_centres, len(sample))
    members = scipy.sparse.csr_array(
        (np.ones(len(sample), np.float32), (places, np.arange(len(sample)))), shape=shape
    )
    centres: NDArray[np.float32] = (members @ sample) / np.maximum(counts, 1)[:, None]
    empty = np.flatnonzero(counts == 0)
    farthest = np.argsort(-squares, kind="stable")[: len(empty)]
    centres[empty] = sample[farthest]
    return centres.astype(np.float32)


def nearest_centres(
    X: NDArray[np.float32], centres: NDArray[np.float32], n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Find the nearest centres of each row.

    In float32: both must be about the mean of the rows, so that little cancels.

    Parameters
    ----------
    X : float32 (n, d)
    centres : float32 (m, d)
    n_nearest : int
        1 to m.

    Returns
    -------
    places : intp (n, n_nearest)
        Numbers of the centres, the nearest first.
    squares : float32 (n, n_nearest)
        The squared distances to them.
    """
    places = np.empty((len(X), n_nearest), np.intp)
    squares = np.empty((len(X), n_nearest), np.float32)
    lengths = np.einsum("ij,ij->i", centres, centres)
    size = max(1, _BLOCK_PAIRS // len(centres))
    for start in range(0, len(X), size):
        block, part = X[start : start + size], slice(start, start + size)
        every = np.arange(len(block))
        # Without the square of the row itself, which the order does not depend on.
        distances = block @ (-2 * centres.T) + lengths
        for rank in range(n_nearest):
            nearest = distances.argmin(axis=1)
            places[part, rank] = nearest
            squares[part, rank] = distances[every, nearest]
            distances[every, nearest] = np.inf
    squares += np.einsum("ij,ij->i", X, X)[:, None]
    return places, np.maximum(squares, 0, out=squares)
