"""Ground truth: which rows are relevant to which query."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import squared_distances
from .blocks import as_vectors, check_count, mark_nearest, query_blocks

__all__ = ["nearest_fraction", "nearest_k", "same_label"]

# About this many values of the rows are held as float64 at a time.
_BLOCK_VALUES = 1 << 22


def same_label(query_labels: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Take rows that share a label with the query as relevant.

    Parameters
    ----------
    query_labels : array-like (n_queries,), or (n_queries, c) of 0 and 1, dense or of scipy.sparse
    labels : array-like (n,), or (n, c) of 0 and 1, in the same form
        One label a row, or several. A number below 0, or a line of zeros, marks an unlabelled
        row, which shares no label with any other.

    Returns
    -------
    bool (n_queries, n)

    Raises
    ------
    InvalidInputError
        If the two differ in form, or in the number of labels.
    """
    left, right = _as_labels(query_labels), _as_labels(labels)
    if left.ndim not in (1, 2) or left.shape[1:] != right.shape[1:]:
        raise InvalidInputError(
            f"labels of queries have shape {left.shape} and those of rows {right.shape}; both "
            "must be (n,), or (n, c) with the same c"
        )
    if left.ndim == 2:
        return _share_a_label(left != 0, right != 0)
    result: NDArray[np.bool_] = left[:, None] == right[None, :]
    if left.dtype.kind in "if":
        result &= (left >= 0)[:, None]
    return result


def _as_labels(y: ArrayLike) -> Any:
    """Return an array or, as it came, a sparse one: scipy.sparse has no types of its own."""
    return scipy.sparse.csr_array(y) if scipy.sparse.issparse(y) else np.asarray(y)


def _share_a_label(left: Any, right: Any) -> NDArray[np.bool_]:
    """Multiply booleans (n_queries, c) and (n, c), dense or sparse, in blocks of queries."""
    result = np.empty((left.shape[0], right.shape[0]), dtype=bool)
    # As float32, which counts exactly this far, the products are a matrix product.
    columns = right.T.astype(np.float32)
    for block in query_blocks(*result.shape):
        shared = left[block].astype(np.float32) @ columns
        result[block] = (shared.toarray() if scipy.sparse.issparse(shared) else shared) > 0
    return result


def nearest_fraction(queries: ArrayLike, X: ArrayLike, fraction: float = 0.02) -> NDArray[np.bool_]:
    """Take the nearest rows by Euclidean distance as relevant.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    fraction : float
        Part of the rows that is relevant, rounded to whole rows, at least one; rows at the same
        distance are taken in row order.

    Returns
    -------
    bool (n_queries, n)
    """
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"fraction must be above 0 and at most 1, got {fraction}")
    Q, rows = as_vectors(queries, X)
    return _nearest(Q, rows, max(1, round(fraction * len(rows))))


def nearest_k(queries: ArrayLike, X: ArrayLike, k: int = 100) -> NDArray[np.bool_]:
    """Take the k nearest rows by Euclidean distance as relevant.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    k : int
        Rows at the same distance are taken in row order.

    Returns
    -------
    bool (n_queries, n)
    """
    Q, rows = as_vectors(queries, X)
    check_count("k", k, len(rows))
    return _nearest(Q, rows, k)


def _nearest(Q: NDArray[np.floating], rows: NDArray[np.floating], k: int) -> NDArray[np.bool_]:
    result = np.empty((len(Q), len(rows)), dtype=bool)
    step = max(1, _BLOCK_VALUES // rows.shape[1])
    for block in query_blocks(len(Q), len(rows)):
        distances = np.empty((block.stop - block.start, len(rows)))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            distances[:, part] = squared_distances(Q[block], rows[part])
        result[block] = mark_nearest(distances, k)
    return result
