"""Parts that measures share: blocks of queries, distances, the k smallest of a line, and checks."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import squared_distances
from ..models.model import Metric
from ..models.vectors import as_rows

# Pairs of a query and a row in a block.
_BLOCK_PAIRS = 1 << 21


def query_blocks(n_queries: int, n: int, at_least: int = 1) -> Iterator[slice]:
    """Yield slices of the queries, so small that an array (n_queries, n) fits in memory."""
    size = max(at_least, _BLOCK_PAIRS // max(n, 1))
    for start in range(0, n_queries, size):
        yield slice(start, min(start + size, n_queries))


def mark_nearest(distances: NDArray[np.generic], k: int) -> NDArray[np.bool_]:
    """Mark the k smallest of each line, ties in row order, bool (n_queries, n)."""
    last = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
    nearer: NDArray[np.bool_] = distances < last
    tied: NDArray[np.bool_] = distances == last
    room = k - np.count_nonzero(nearer, axis=1)
    tied &= np.cumsum(tied, axis=1, dtype=np.int32) <= room[:, None]
    return nearer | tied


def as_vectors(
    queries: ArrayLike, X: ArrayLike
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Check queries and rows of one dimension, at least one of each."""
    rows = as_rows(X)
    Q = as_rows(queries, dimension=rows.shape[1])
    check_some(len(Q), len(rows))
    return Q, rows


def distances_from(
    X: NDArray[np.floating], metric: Metric
) -> Callable[[NDArray[np.floating]], NDArray[np.float64]]:
    """Return a function that computes distances of queries to rows; it computes norms once."""
    if metric == "l2":
        return lambda queries: squared_distances(queries, X)
    if metric not in ("ip", "cosine"):
        raise InvalidInputError(f"metric {metric!r} is unknown; use l2, cosine or ip")
    rows = X.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)

    def distances(queries: NDArray[np.floating]) -> NDArray[np.float64]:
        Q = queries.astype(np.float64)
        products: NDArray[np.float64] = -(Q @ rows.T)
        if metric == "ip":
            return products
        query_norms = np.linalg.norm(Q, axis=1)
        if not query_norms.all():
            raise InvalidInputError("a query is the zero vector, which has no cosine distance")
        # A zero vector among the rows has no cosine distance either; like the database, put it
        # last.
        products /= query_norms[:, None] * np.where(norms > 0, norms, 1)
        products[:, norms == 0] = np.inf
        return products

    return distances


def check_count(name: str, value: int, n: int) -> None:
    """Refuse a number of rows that is not from 1 to n."""
    if not 1 <= value <= n:
        raise InvalidInputError(f"{name} must be from 1 to the number of rows, {n}; got {value}")


def check_some(n_queries: int, n: int) -> None:
    """Refuse to measure without queries, or without rows."""
    if not n_queries or not n:
        raise InvalidInputError(f"there are {n_queries} queries and {n} rows; give some")
