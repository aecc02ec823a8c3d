"""The space in which rows and landmarks are compared: centred, scaled, of fewer dimensions."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ...hashers.numerics.rows import row_slices
from ...hashers.numerics.threads import count_blas_threads, one_blas_thread

# Rows of a slice, which one thread works on: half of a batch of 10,000.
_SLICE_ROWS = 5120
# A basis pays if it keeps this part of the variance, with at most this part of the dimensions.
_KEPT_VARIANCE = 0.85
_KEPT_DIMENSIONS = 0.75
# At least 96 dimensions: with 24 dimensions in all, the directions that keep 85 % of the variance
# find the nearest of 2,000 landmarks for 68 % of the rows; 128 of the 384 dimensions of text
# embeddings find it for 95 %.
_MIN_BASIS = 96
_MAX_BASIS = 256
#: Rows that give the mean, the scale and the basis of a space.
SPACE_ROWS = 8192
#: Rows that are scaled, placed or added up at a time.
BLOCK_ROWS = 8192
# Squares of lengths between this and its inverse are exact in float32.
_LEAST_LENGTH = 1e-15


class Points(Protocol):
    """An array (n, d), or one whose parts are computed when they are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> NDArray[np.floating[Any]]: ...


class Space:
    """Rows scaled to unit length if only directions count, centred, scaled to size 1, and reduced.

    So products in float32 keep the digits that distinguish near rows, and squares stay within the
    range of float32. ``basis`` (d, k) has the directions that are kept, or no column if all are.
    """

    def __init__(
        self,
        mean: NDArray[np.float32],
        scale: np.float32,
        basis: NDArray[np.float32],
        *,
        spherical: bool,
    ) -> None:
        #: ``scale`` is the factor of distances.
        self.mean, self.scale, self.basis = mean, scale, basis
        self.spherical = spherical
        #: The number of coordinates of a row.
        self.width = basis.shape[1] or len(mean)

    @classmethod
    def around(cls, X: Points, *, spherical: bool, reduces: bool) -> Self:
        """Return the space of rows like these (n, d), in fewer dimensions where it pays.

        At most 8,192 of them, evenly spaced, give it.
        """
        sample = X[:: -(-len(X) // SPACE_ROWS)].astype(np.float32, copy=False)
        directed = unit_rows(sample) if spherical else sample
        mean = directed.mean(axis=0, dtype=np.float64).astype(np.float32)
        largest = float(np.abs(directed - mean).max())
        scale = np.float32(1 / largest if largest > np.finfo(np.float32).tiny else 1)
        whole = cls(mean, scale, np.empty((len(mean), 0), np.float32), spherical=spherical)
        basis = reducing_basis(whole(sample)) if reduces else None
        return whole if basis is None else cls(mean, scale, basis, spherical=spherical)

    def __call__(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the coordinates of rows (n, d), as a copy (n, width)."""
        # Numbers beyond the range of float32 become its largest.
        with np.errstate(over="ignore"):
            result: NDArray[np.float32] = (unit_rows(X) if self.spherical else X) - self.mean
            result *= self.scale
        return result @ self.basis if self.basis.shape[1] else result


def placed(points: Points, *, spherical: bool, reduces: bool) -> tuple[Space, NDArray[np.float32]]:
    """Return the space of points (n, d), and their coordinates in it."""
    space = Space.around(points, spherical=spherical, reduces=reduces)
    result = np.empty((len(points), space.width), np.float32)
    for part in row_slices(len(points), BLOCK_ROWS):
        result[part] = space(points[part].astype(np.float32, copy=False))
    return space, result


def row_lengths(X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the length of each row."""
    result: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", X, X))
    return result


def moderate_rows(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return rows and their lengths, which are 1 where squares would leave the range of float32."""
    lengths = row_lengths(X)
    extreme = ~((lengths > _LEAST_LENGTH) & (lengths < 1 / _LEAST_LENGTH))
    if extreme.any():
        X = X.copy()
        rows = X[extreme].astype(np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        X[extreme] = rows / np.where(norms > 0, norms, 1)
        lengths[extreme] = row_lengths(X[extreme])
    return X, lengths


def unit_rows(X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to unit length; the zero vector stays as it is."""
    X, lengths = moderate_rows(X)
    lengths[lengths == 0] = 1
    return X / lengths[:, None]


def reducing_basis(X: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Find directions that keep most of the variance of rows (n, d) about their mean.

    By subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4), since the covariance
    matrix of a few thousand dimensions would take longer than all that follows.
    Returns orthonormal columns (d, k), 96 at least; None where no basis of at most 256 columns and
    three quarters of the dimensions keeps 85 % of the variance.
    """
    total = float(np.einsum("ij,ij->", X, X, dtype=np.float64))
    size = min(X.shape[1], _MAX_BASIS)
    # Threads of BLAS would wait for each other longer than they work.
    with one_blas_thread():
        start = np.random.default_rng(0).standard_normal((X.shape[1], size), dtype=np.float32)
        basis = np.linalg.qr(start)[0]
        for _ in range(2):
            basis = np.linalg.qr(X.T @ (X @ basis))[0]
        projected = X @ basis
        values, vectors = np.linalg.eigh((projected.T @ projected).astype(np.float64))
    kept = values[::-1].cumsum()
    n_kept = max(_MIN_BASIS, 1 + int(np.searchsorted(kept, _KEPT_VARIANCE * total)))
    if total == 0 or n_kept > min(size, _KEPT_DIMENSIONS * X.shape[1]):
        return None
    return np.ascontiguousarray(basis @ vectors[:, ::-1][:, :n_kept].astype(np.float32))


def in_threads(work: Callable[[slice], None], n_rows: int) -> None:
    """Call a function for slices of the rows, in as many threads as BLAS would take.

    Half of the work on a slice is not a product, and a single thread would do it. Slices do not
    depend on how many threads there are, so neither do the sums of a product.

    ``work`` takes a slice, and must write its results to places of its own.
    """
    n_slices = max(1, -(-n_rows // _SLICE_ROWS))
    slices = list(row_slices(n_rows, max(1, -(-n_rows // n_slices))))
    with ThreadPoolExecutor(count_blas_threads()) as threads, one_blas_thread():
        for _ in threads.map(work, slices):
            pass
