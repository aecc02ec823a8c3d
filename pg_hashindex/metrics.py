"""Measures of codes, as the papers take them; arrays only, no database.

Rankings are by Hamming distance over all rows, ties in row order. A measure of many queries is
the mean of theirs, taken in blocks of queries.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .codes import hamming_distances
from .errors import InvalidInputError
from .layers import squared_distances
from .model import Metric
from .vectors import as_rows

__all__ = [
    "mean_average_precision",
    "nearest_fraction",
    "precision_at_k",
    "precision_within_radius",
    "recall_at_k",
    "same_label",
]

# About this many pairs of a query and a row are worked on at a time.
_BLOCK_PAIRS = 1 << 22
# Distances this near, as a part of the query's greatest, are ties that rounding has split.
_ROUNDING = 1e-12


def same_label(query_labels: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Take rows of the query's label as relevant.

    Parameters
    ----------
    query_labels : array-like (n_queries,)
    labels : array-like (n,)

    Returns
    -------
    bool (n_queries, n)
    """
    result: NDArray[np.bool_] = np.asarray(query_labels)[:, None] == np.asarray(labels)[None, :]
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
    Q, rows = _vectors(queries, X)
    k = max(1, round(fraction * len(rows)))
    result = np.empty((len(Q), len(rows)), dtype=bool)
    for block in _blocks(len(Q), len(rows)):
        result[block] = _nearest(squared_distances(Q[block], rows), k)
    return result


def mean_average_precision(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], relevant: NDArray[np.bool_]
) -> float:
    """Compute the mean average precision over the whole ranking.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)

    Returns
    -------
    float
        A query without relevant rows counts 0.
    """
    _check_relevant(query_codes, codes, relevant)
    total = 0.0
    for block in _blocks(len(query_codes), len(codes)):
        order = np.argsort(hamming_distances(query_codes[block], codes), axis=1, kind="stable")
        query, position = np.nonzero(np.take_along_axis(relevant[block], order, axis=1))
        n_relevant = np.bincount(query, minlength=len(order))
        # The precision at each relevant row: how many of them came by then, over how many rows.
        found = np.arange(1, len(query) + 1) - (np.cumsum(n_relevant) - n_relevant)[query]
        total += float((found / (position + 1) / n_relevant[query]).sum())
    return total / len(query_codes)


def precision_at_k(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: NDArray[np.bool_],
    k: int = 100,
) -> float:
    """Compute which part of the first k rows is relevant.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    k : int

    Returns
    -------
    float
    """
    _check_relevant(query_codes, codes, relevant)
    _check_count("k", k, len(codes))
    found = 0
    for block in _blocks(len(query_codes), len(codes)):
        first = _nearest(hamming_distances(query_codes[block], codes), k)
        found += int(np.count_nonzero(first & relevant[block]))
    return found / (k * len(query_codes))


def precision_within_radius(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: NDArray[np.bool_],
    radius: int = 2,
) -> float:
    """Compute which part of the rows within a Hamming radius is relevant.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    radius : int

    Returns
    -------
    float
        A query that finds nothing counts 0.
    """
    _check_relevant(query_codes, codes, relevant)
    total = 0.0
    for block in _blocks(len(query_codes), len(codes)):
        within = hamming_distances(query_codes[block], codes) <= radius
        found = np.count_nonzero(within & relevant[block], axis=1)
        total += float((found / np.maximum(np.count_nonzero(within, axis=1), 1)).sum())
    return total / len(query_codes)


def recall_at_k(
    queries: ArrayLike,
    X: ArrayLike,
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    *,
    candidates: int,
    k: int = 10,
    metric: Metric = "l2",
) -> float:
    """Compute the recall of a search that ranks its candidates by true distance.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    candidates : int
        Rows kept by Hamming distance, ties in row order.
    k : int
    metric : {"l2", "cosine", "ip"}

    Returns
    -------
    float
        A row that is returned counts if it is no farther than the k-th of the exact answer, so
        that ties do no harm.
    """
    Q, rows = _vectors(queries, X)
    for what, given, wanted in (("query", query_codes, Q), ("row", codes, rows)):
        if len(given) != len(wanted):
            raise InvalidInputError(f"there are {len(given)} {what} codes for {len(wanted)} rows")
    _check_count("k", k, len(rows))
    _check_count("candidates", candidates, len(rows))
    found = 0
    for block in _blocks(len(Q), len(rows)):
        distances = _distances(Q[block], rows, metric)
        kept = _nearest(hamming_distances(query_codes[block], codes), candidates)
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


def _nearest(distances: NDArray[np.generic], k: int) -> NDArray[np.bool_]:
    """Mark the k smallest of each line, ties in row order."""
    last = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
    nearer: NDArray[np.bool_] = distances < last
    tied: NDArray[np.bool_] = distances == last
    room = k - np.count_nonzero(nearer, axis=1)
    tied &= np.cumsum(tied, axis=1, dtype=np.int32) <= room[:, None]
    return nearer | tied


def _blocks(n_queries: int, n: int) -> Iterator[slice]:
    size = max(1, _BLOCK_PAIRS // max(n, 1))
    for start in range(0, n_queries, size):
        yield slice(start, start + size)


def _vectors(queries: ArrayLike, X: ArrayLike) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    rows = as_rows(X)
    Q = as_rows(queries, dimension=rows.shape[1])
    if not len(Q) or not len(rows):
        raise InvalidInputError(f"there are {len(Q)} queries and {len(rows)} rows; give some")
    return Q, rows


def _check_relevant(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], relevant: NDArray[np.bool_]
) -> None:
    wanted = (len(query_codes), len(codes))
    if relevant.shape != wanted or relevant.dtype != np.bool_:
        raise InvalidInputError(
            f"relevant is {relevant.dtype} {relevant.shape}, must be bool {wanted}: "
            "one line for each query, one column for each row"
        )
    if 0 in wanted:
        raise InvalidInputError(f"there are {wanted[0]} queries and {wanted[1]} rows; give some")


def _check_count(name: str, value: int, n: int) -> None:
    if not 1 <= value <= n:
        raise InvalidInputError(f"{name} must be from 1 to the number of rows, {n}; got {value}")
