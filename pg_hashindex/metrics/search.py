"""The recall of searches that re-rank candidates, for one or any number of candidates.

Of arrays: `pg_hashindex.quality.measuring` measures searches in a database, one query at a time.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.model import Metric
from ..models.quantization import QueryOrder
from .blocks import as_vectors, check_count, distances_from, mark_nearest, query_blocks
from .ranking import ranking_distances

# Distances closer than this part of the query's largest one count as equal.
_ROUNDING = 1e-12

# Most queries of a score.
_SCORED = 500


def recall_of(right: ArrayLike, wanted: ArrayLike) -> float:
    """Return the recall of searches: right answers over wanted ones, of all queries together.

    This is the one measure of recall, of arrays and of searches in a database. Of tied rows more
    may be right than are wanted. 0 if nothing is wanted.

    Parameters
    ----------
    right : array-like (m,)
        How many answers to each query are right, or the expectation of that.
    wanted : int or array-like (m,)
        How many true neighbours each query has.
    """
    right, wanted = np.broadcast_arrays(right, wanted)
    return float(np.minimum(right, wanted).sum() / max(wanted.sum(), 1))


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
    candidates
        Rows kept by code, ties in row order.
    metric : {"l2", "cosine", "ip"}
    weights : array-like (n_bits,) or (m,), optional
        As for `mean_average_precision`.

    Returns
    -------
    float
        A returned row counts as correct if it is no farther than the k-th exact answer, so ties do
        not matter.
    """
    Q, rows = as_vectors(queries, X)
    for what, given, wanted in (("query", query_codes, Q), ("row", codes, rows)):
        if len(given) != len(wanted):
            raise InvalidInputError(f"there are {len(given)} {what} codes for {len(wanted)} rows")
    check_count("k", k, len(rows))
    check_count("candidates", candidates, len(rows))
    distances_of = distances_from(rows, metric)
    right = np.empty(len(Q), np.intp)
    for block in query_blocks(len(Q), len(rows)):
        distances = distances_of(Q[block])
        kept = mark_nearest(ranking_distances(query_codes[block], codes, weights), candidates)
        finite = np.abs(np.where(np.isinf(distances), 0, distances))
        farthest = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
        farthest = farthest + _ROUNDING * finite.max(axis=1, keepdims=True)
        # The search returns the first k candidates by distance.
        right[block] = np.count_nonzero(kept & (distances <= farthest), axis=1)
    return recall_of(right, k)


def recall_scorer(
    *, candidates: int = 100, k: int = 10, metric: Metric = "l2"
) -> Callable[..., float]:
    """Return a scorer for scikit-learn's ``GridSearchCV`` and its like.

    It scores a hasher, or a pipeline that ends in one, by `recall_at_k` on the held-back rows: the
    first fifth of them, at most 500, are queries, and the others are the rows to be found.

    Parameters
    ----------
    candidates, k, metric
        As `recall_at_k`; 100 candidates of 1,000 held-back rows are easier than of a million.
    """
    return partial(_score, candidates=candidates, k=k, metric=metric)


def _score(
    estimator: Any, X: ArrayLike, y: Any = None, *, candidates: int, k: int, metric: Metric
) -> float:
    rows = np.asarray(X)
    codes = np.packbits(np.asarray(estimator.transform(rows)) > 0, axis=1)
    n = min(_SCORED, max(1, len(rows) // 5))
    return recall_at_k(
        rows[:n], rows[n:], codes[:n], codes[n:], candidates=candidates, k=k, metric=metric
    )


class CodeRanks:
    """Places of the true neighbours of queries in the order of all codes.

    ``packed`` are the codes of the rows, ``neighbours`` (m, j) numbers of
    rows, and ``right`` (m, j) for how many right answers each counts. A query has k answers, at
    most j.
    """

    def __init__(
        self,
        order: QueryOrder,
        packed: NDArray[np.uint8],
        neighbours: NDArray[np.intp],
        right: NDArray[np.bool_] | NDArray[np.float64],
        k: int,
    ) -> None:
        self.n_rows = len(packed)
        self._right, self._k = right, min(k, neighbours.shape[1])
        self._before, self._same = _places(order, packed, neighbours)

    def recall(self, candidates: float) -> float:
        """Return the expected recall, over ties, of a search that keeps these candidates."""
        hits = (candidates - self._before) / np.maximum(self._same, 1)
        hits = np.clip(hits, 0.0, 1.0) * self._right
        return recall_of(hits.sum(axis=1), self._k)


def _places(
    order: QueryOrder,
    packed: NDArray[np.uint8],
    neighbours: NDArray[np.intp],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, for each neighbour, the rows before it and those at the same distance."""
    before, same = np.empty(neighbours.shape, np.int64), np.empty(neighbours.shape, np.int64)
    for block in query_blocks(len(order.codes), len(packed)):
        for query, line in enumerate(order.distances(block, packed), block.start):
            own, line = line[neighbours[query]], np.sort(line)
            before[query] = np.searchsorted(line, own)
            same[query] = np.searchsorted(line, own, "right") - before[query]
    return before, same


def candidates_in_table(
    near: ArrayLike,
    others: ArrayLike,
    rows: int,
    *,
    recall: float = 0.98,
    k: int = 10,
    are_near: ArrayLike = False,
) -> int:
    """Estimate the candidates that a table needs, from a few rows near each query and a sample.

    A sample's own neighbours are farther from a query than the table's, so what a sample needs does
    not say what the table needs: a power law through an eighth, a quarter, a half and all of 5,000
    rows was 30 % too low for digits and 40 % too high for text (measured). Here the true neighbours
    are the table's: rows before them by code are counted among the nearest ones, and among all
    others by the sample.

    Parameters
    ----------
    near : array-like (m, j)
        Distances by code of the j rows of the table that are nearest to each of m queries, nearest
        first; 50 are enough.
    others : array-like (m, n)
        Distances by code of sampled rows of the table.
    rows
        How many rows the table has.
    recall
        The part of the true k nearest to find.
    are_near : array-like (m, n), optional
        Which sampled rows are among the j nearest, and are left out.

    Returns
    -------
    int
        The fewest candidates, from k to ``rows``; of equal distances any order is as likely.

    Raises
    ------
    InvalidInputError
        If there are fewer than k near rows, or more than the table has.
    """
    nearest, sample = np.asarray(near), np.asarray(others)
    left_out = np.broadcast_to(np.asarray(are_near, bool), sample.shape)
    check_count("k", k, nearest.shape[1])
    check_count("near rows", nearest.shape[1], rows)
    before, same = np.empty((len(nearest), k)), np.empty((len(nearest), k))
    for query, (line, own) in enumerate(zip(nearest, sample, strict=True)):
        counted = np.sort(line), np.sort(own[~left_out[query]])
        weights = 1.0, (rows - len(line)) / max(len(counted[1]), 1)
        first, last = (
            sum(
                weight * np.searchsorted(lines, line[:k], side)
                for lines, weight in zip(counted, weights, strict=True)
            )
            for side in ("left", "right")
        )
        before[query], same[query] = first, last - first

    def found(candidates: int) -> float:
        return float(np.clip((candidates - before) / same, 0, 1).mean())

    return bisect_left(range(rows), recall - 1e-9, lo=k, hi=rows, key=found)
