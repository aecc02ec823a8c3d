"""The recall of a search that ranks candidates by true distance."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..layers import squared_distances
from ..model import Metric
from .blocks import as_vectors, check_count, mark_nearest, query_blocks
from .ranks import code_distances

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
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    candidates : int
        Rows kept by code, ties in row order.
    k : int
    metric : {"l2", "cosine", "ip"}
    weights : array-like (n_bits,), optional
        What each bit counts in the distances of codes; all the same by default.

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
    found = 0
    for block in query_blocks(len(Q), len(rows)):
        distances = _distances(Q[block], rows, metric)
        kept = mark_nearest(code_distances(query_codes[block], codes, weights), candidates)
        finite = np.abs(np.where(np.isinf(distances), 0, distances))
        farthest = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
        farthest = farthest + _ROUNDING * finite.max(axis=1, keepdims=True)
        # Of the candidates that near, the k first by distance are returned.
        good = np.count_nonzero(kept & (distances <= farthest), axis=1)
        found += int(np.minimum(good, k).sum())
    return found / (k * len(Q))


def _distances(
    queries: NDArray[np.floating], X: NDArray[np.floating], metric: Metric
) -> NDArray[np.float64]:
    if metric == "l2":
        return squared_distances(queries, X)
    Q, rows = queries.astype(np.float64), X.astype(np.float64)
    products: NDArray[np.float64] = -(Q @ rows.T)
    if metric == "ip":
        return products
    if metric != "cosine":
        raise InvalidInputError(f"metric {metric!r} is unknown; use l2, cosine or ip")
    query_norms, norms = np.linalg.norm(Q, axis=1), np.linalg.norm(rows, axis=1)
    if not query_norms.all():
        raise InvalidInputError("a query is the zero vector, which has no cosine distance")
    # The zero vector has no cosine distance either; in the database it comes last.
    products /= query_norms[:, None] * np.where(norms > 0, norms, 1)
    products[:, norms == 0] = np.inf
    return products
