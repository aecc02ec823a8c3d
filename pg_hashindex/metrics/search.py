"""The recall of a search that ranks candidates by true distance."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import squared_distances
from ..models.model import Metric
from .blocks import as_vectors, check_count, mark_nearest, query_blocks
from .ranks import ranking_distances

__all__ = ["recall_at_k"]

# Distances this near, as a part of the query's greatest, are ties that rounding has split.
_ROUNDING = 1e-12


def recall_at_k(
    queries: ArrayLike,
    X: ArrayLike,
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    *,
    candidates: int,
    k: int = 10,
    metric: Metric = "l2",
    weights: ArrayLike | None = None,
) -> float:
    """Compute the recall of a search that ranks its candidates by true distance.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    query_codes : uint8 (n_queries, width) or (n_queries, m, width)
    codes : uint8 (n, width)
    candidates : int
        Rows kept by code, ties in row order.
    k : int
    metric : {"l2", "cosine", "ip"}
    weights : array-like (n_bits,) or (m,), optional
        What each bit counts in distances, all the same by default; of m codes for each query what
        each code counts, as `Model.ranking_codes` gives them.

    Returns
    -------
    float
        A row that is returned counts if it is no farther than the k-th of the exact answer, so
        that ties do no harm.
    """
    Q, rows = as_vectors(queries, X)
    for what, given, wanted in (("query", query_codes, Q), ("row", codes, rows)):
        if len(given) != len(wanted):
            raise InvalidInputError(f"there are {len(given)} {what} codes for {len(wanted)} rows")
    check_count("k", k, len(rows))
    check_count("candidates", candidates, len(rows))
    distances_of = _distances_from(rows, metric)
    found = 0
    for block in query_blocks(len(Q), len(rows)):
        distances = distances_of(Q[block])
        kept = mark_nearest(ranking_distances(query_codes[block], codes, weights), candidates)
        finite = np.abs(np.where(np.isinf(distances), 0, distances))
        farthest = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
        farthest = farthest + _ROUNDING * finite.max(axis=1, keepdims=True)
        # Of the candidates that near, the k first by distance are returned.
        good = np.count_nonzero(kept & (distances <= farthest), axis=1)
        found += int(np.minimum(good, k).sum())
    return found / (k * len(Q))


def _distances_from(
    X: NDArray[np.floating], metric: Metric
) -> Callable[[NDArray[np.floating]], NDArray[np.float64]]:
    """Return a function for the distances of queries to rows; norms are computed once."""
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
        # The zero vector has no cosine distance either; in the database it comes last.
        products /= query_norms[:, None] * np.where(norms > 0, norms, 1)
        products[:, norms == 0] = np.inf
        return products

    return distances
