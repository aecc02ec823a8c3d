"""Lloyd's k-means on a sample, for anchors: a few rounds give centres that are good enough."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...models.layers import squared_distances
from .rows import RowSource, row_slices

_ROUNDS = 5
_ROWS_PER_CENTRE = 20
# float32 loses the digits of squared distances below this part of the squared length.
_CANCELLED = 0.01
# Below this part of the squared length, two rows differ by rounding only.
_SAME = 1e-10
# Distances that are computed at a time.
_BLOCK_PAIRS = 1 << 21


def sample_centres(
    rows: RowSource, n_centres: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Find centres of the rows by five rounds of k-means on a sample of 20 rows for each centre.

    The first centres are rows of the sample. A centre that loses all of its rows moves to a row
    that is far from its own centre. So the sum of squared distances to the nearest centre never
    rises.

    Returns float32 (m, d); m is n_centres, or less if the sample has fewer distinct rows.
    """
    size = min(rows.n_rows, _ROWS_PER_CENTRE * n_centres)
    sample = rows.rows(rng.choice(rows.n_rows, size, replace=False))
    # Expanded distances lose the fewest digits about the mean.
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    sample -= mean
    centres = sample[:n_centres].copy()
    for _ in range(_ROUNDS):
        places, squares = nearest_centres(sample, centres, 1)
        centres = _means(sample, places[:, 0], squares[:, 0], len(centres))
    result: NDArray[np.float32] = np.unique(centres, axis=0) + mean
    return result


def _means(
    sample: NDArray[np.float32],
    places: NDArray[np.intp],
    squares: NDArray[np.float32],
    n_centres: int,
) -> NDArray[np.float32]:
    """Return the mean of the rows of each centre, or a row far from its centre if it has none.

    Centres without rows are left out if no row is farther from its centre than rounding.
    """
    counts = np.bincount(places, minlength=n_centres)
    shape = (n_centres, len(sample))
    members = scipy.sparse.csr_array(
        (np.ones(len(sample), np.float32), (places, np.arange(len(sample)))), shape=shape
    )
    centres: NDArray[np.float32] = (members @ sample) / np.maximum(counts, 1)[:, None]
    empty = np.flatnonzero(counts == 0)
    farthest = np.argsort(-squares, kind="stable")[: len(empty)]
    lengths = np.einsum("ij,ij->i", sample[farthest], sample[farthest])
    apart = squares[farthest] > _SAME * lengths
    centres[empty[apart]] = sample[farthest[apart]]
    return np.delete(centres, empty[~apart], axis=0).astype(np.float32)


def nearest_centres(
    X: NDArray[np.float32], centres: NDArray[np.float32], n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Find the nearest centres of each row: places, and squared distances, (n, n_nearest).

    The nearest centre is first; ties go to the first centre. Distances are computed in float32, and
    again in float64 for rows so near to a centre that the digits cancel. Rows and centres must be
    centred, so that those are few.
    """
    places = np.empty((len(X), n_nearest), np.intp)
    squares = np.empty((len(X), n_nearest), np.float32)
    lengths = np.einsum("ij,ij->i", centres, centres)
    size = max(1, _BLOCK_PAIRS // len(centres))
    for part in row_slices(len(X), size):
        block = X[part]
        # The order does not depend on the square of the row itself.
        places[part], least = _least(block @ (-2 * centres.T) + lengths, n_nearest)
        own = np.einsum("ij,ij->i", block, block)
        squares[part] = least + own[:, None]
        near = part.start + np.flatnonzero(squares[part, 0] < _CANCELLED * own)
        if len(near):
            places[near], squares[near] = _least(squared_distances(X[near], centres), n_nearest)
    return places, squares


def nearest_to_rows(
    rows: RowSource, centres: NDArray[np.float32], n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Find the nearest centres of all rows, in one pass; see `nearest_centres`."""
    shape = (rows.n_rows, n_nearest)
    places, squares = np.empty(shape, np.intp), np.empty(shape, np.float32)
    # Centre, so that little cancels in float32.
    mean = centres.mean(axis=0, dtype=np.float64).astype(np.float32)
    centres = centres - mean
    for part, block in rows.placed_blocks():
        places[part], squares[part] = nearest_centres(block - mean, centres, n_nearest)
    return places, squares


def _least(
    distances: NDArray[Any], n_nearest: int
) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """Return places and values of the least numbers of each line, and overwrite them."""
    places = np.empty((len(distances), n_nearest), np.intp)
    least = np.empty((len(distances), n_nearest), distances.dtype)
    every = np.arange(len(distances))
    for rank in range(n_nearest):
        places[:, rank] = distances.argmin(axis=1)
        least[:, rank] = distances[every, places[:, rank]]
        distances[every, places[:, rank]] = np.inf
    return places, least
