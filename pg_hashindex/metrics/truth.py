"""Ground truth: which rows are relevant to which query."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import squared_distances
from ..models.model import Metric
from ..models.vectors import as_labels, as_rows
from .blocks import as_vectors, check_count, check_some, distances_from, mark_nearest, query_blocks

# Values of the rows that are held as float64 at a time.
_BLOCK_VALUES = 1 << 22
# Queries compared with the rows at a time, at least: each time all rows are read.
_QUERIES_AT_A_TIME = 16
# Rows kept beyond the k-th, since rows at its distance are right answers too.
_MORE = 16
# The error of products in float64, relative to the squares of the vectors.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class RelevantRows:
    """Which rows are relevant to which query; lines are made when they are read.

    A slice of the queries gives their lines, as a slice of an array bool (n_queries, n) does, so
    measures take either. `same_label` and the like return the whole array.
    """

    shape: tuple[int, int]
    lines: Callable[[slice], NDArray[np.bool_]]
    dtype = np.dtype(np.bool_)

    def __getitem__(self, queries: slice, /) -> NDArray[np.bool_]:
        return self.lines(queries)

    def any(self) -> bool:
        """Tell whether any row is relevant to any query."""
        return any(self[block].any() for block in query_blocks(*self.shape))

    def whole(self) -> NDArray[np.bool_]:
        """Return all lines, (n_queries, n)."""
        result = np.empty(self.shape, dtype=bool)
        for block in query_blocks(*self.shape):
            result[block] = self[block]
        return result


#: Which rows are relevant to which query, bool (n_queries, n). Measures read it by slices of the
#: queries.
Relevant: TypeAlias = NDArray[np.bool_] | RelevantRows


def check_relevant(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], relevant: Relevant
) -> None:
    """Refuse a ground truth that is not one line for each query, one column for each row."""
    wanted = (len(query_codes), len(codes))
    if relevant.shape != wanted or relevant.dtype != np.bool_:
        raise InvalidInputError(
            f"relevant is {relevant.dtype} {relevant.shape}, must be bool {wanted}: "
            "one line for each query, one column for each row"
        )
    check_some(*wanted)


def same_label(query_labels: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Take rows that share a label with the query as relevant.

    Parameters
    ----------
    query_labels : array-like (n_queries,), or (n_queries, c) of 0 and 1, dense or of scipy.sparse
    labels : array-like (n,), or (n, c) of 0 and 1, in the same form
        One label a row, also in a dense column, or several. A number below 0, or a line of zeros,
        marks an unlabelled row, which shares no label with any other.

    Returns
    -------
    bool (n_queries, n)

    Raises
    ------
    InvalidInputError
        If the two differ in form, or in the number of labels.
    """
    return relevant_by_label(query_labels, labels).whole()


def relevant_by_label(query_labels: ArrayLike, labels: ArrayLike) -> RelevantRows:
    """Return `same_label` lazily: it holds the labels alone."""
    left, right = _as_labels(query_labels), _as_labels(labels)
    if left.ndim not in (1, 2) or left.shape[1:] != right.shape[1:]:
        raise InvalidInputError(
            f"labels of queries have shape {left.shape} and labels of rows {right.shape}; both "
            "must be (n,), or (n, c) with the same c"
        )
    shape = left.shape[0], right.shape[0]
    if left.ndim == 2:
        # float32 counts exactly up to 2**24, and is multiplied by BLAS.
        columns = (right != 0).T.astype(np.float32)

        def lines(queries: slice) -> NDArray[np.bool_]:
            shared: Any = (left[queries] != 0).astype(np.float32) @ columns
            result: NDArray[np.bool_] = shared > 0
            return shared.toarray() > 0 if scipy.sparse.issparse(shared) else result

    else:
        labelled = left >= 0 if left.dtype.kind in "if" else np.ones(len(left), bool)

        def lines(queries: slice) -> NDArray[np.bool_]:
            result: NDArray[np.bool_] = left[queries, None] == right
            result &= labelled[queries, None]
            return result

    return RelevantRows(shape, lines)


def _as_labels(y: ArrayLike) -> Any:
    """Return an array; leave a sparse one as it is, since scipy.sparse has no types."""
    return scipy.sparse.csr_array(y) if scipy.sparse.issparse(y) else as_labels(y)


def nearest_fraction(queries: ArrayLike, X: ArrayLike, fraction: float = 0.02) -> NDArray[np.bool_]:
    """Take the nearest rows by Euclidean distance as relevant.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    fraction
        Part of the rows that is relevant, rounded to whole rows, at least one; rows at the same
        distance are taken in row order.

    Returns
    -------
    bool (n_queries, n)
    """
    rows = as_rows(X)
    return relevant_by_distance(queries, rows, rows_of_fraction(fraction, len(rows))).whole()


def rows_of_fraction(fraction: float, n: int) -> int:
    """Return how many of n rows are this fraction of them, at least one."""
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"fraction must be above 0 and at most 1, got {fraction}")
    return max(1, round(fraction * n))


def nearest_k(queries: ArrayLike, X: ArrayLike, k: int = 100) -> NDArray[np.bool_]:
    """Take the k nearest rows by Euclidean distance as relevant.

    Parameters
    ----------
    queries : array-like (n_queries, d)
    X : array-like (n, d)
    k
        Rows at the same distance are taken in row order.

    Returns
    -------
    bool (n_queries, n)
    """
    return relevant_by_distance(queries, X, k).whole()


def relevant_by_distance(queries: ArrayLike, X: ArrayLike, k: int) -> RelevantRows:
    """Do as `nearest_k`, and hold the numbers of the k rows of each query, 4 bytes each."""
    Q, rows = as_vectors(queries, X)
    check_count("k", k, len(rows))
    numbers = np.empty((len(Q), k), np.uint32)
    step = max(1, _BLOCK_VALUES // rows.shape[1])
    for block in query_blocks(len(Q), len(rows), _QUERIES_AT_A_TIME):
        distances = np.empty((block.stop - block.start, len(rows)))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            distances[:, part] = squared_distances(Q[block], rows[part])
        for query, line in enumerate(distances, block.start):
            numbers[query] = np.flatnonzero(mark_nearest(line[None], k))
    return relevant_by_number(numbers, len(rows))


def relevant_by_number(numbers: NDArray[np.integer], n: int) -> RelevantRows:
    """Take the rows of these numbers (n_queries, k), out of n, as relevant."""

    def lines(queries: slice) -> NDArray[np.bool_]:
        near = numbers[queries]
        result = np.zeros((len(near), n), dtype=bool)
        np.put_along_axis(result, near, True, axis=1)
        return result

    return RelevantRows((len(numbers), n), lines)


class NearestRows:
    """Find the k nearest rows of each query (m, d) by the exact distance."""

    def __init__(self, queries: NDArray[np.float32], k: int, metric: Metric) -> None:
        self.k, self.n_rows = k, 0
        self._metric: Metric = metric
        self._queries = queries.astype(np.float64)
        self._far = np.full((len(queries), 0), np.inf)
        self._numbers = np.full((len(queries), 0), -1)
        self._scale = np.full(len(queries), float(metric == "cosine"))
        # The number of rows at the distance of the k-th that are not kept.
        self._more = np.zeros(len(queries), np.int64)

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add rows (b, d); their numbers continue."""
        rows = rows.astype(np.float64)
        far = distances_from(rows, self._metric)(self._queries)
        if self._metric != "cosine":
            squares = np.einsum("ij,ij->i", rows, rows).max(initial=0)
            own = np.einsum("ij,ij->i", self._queries, self._queries)
            self._scale = np.maximum(self._scale, own + squares)
        numbers = np.broadcast_to(np.arange(len(rows)) + self.n_rows, far.shape)
        self.n_rows += len(rows)
        far = np.concatenate([self._far, far], axis=1)
        numbers = np.concatenate([self._numbers, numbers], axis=1)
        most = min(self.k + _MORE, far.shape[1])
        # Equal rows stand in row order, except that the partition chooses among them.
        places = np.argpartition(far, most - 1, axis=1)[:, :most]
        places.sort(axis=1)
        near = np.take_along_axis(far, places, axis=1)
        order = np.argsort(near, axis=1, kind="stable")
        before, self._far = self._far, np.take_along_axis(near, order, axis=1)
        self._count_more(before, far)
        self._numbers = np.take_along_axis(
            np.take_along_axis(numbers, places, axis=1), order, axis=1
        )

    def found(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the numbers of k rows or a few more, and which are right answers, (m, j).

        The nearest is first. Any row at the distance of the k-th is right.
        """
        return self._numbers, self._far <= self._last(self._far) + self._rounding

    def weights(self) -> NDArray[np.float64]:
        """Return for how many rows each of the nearest ones counts (m, j).

        Rows at the distance of the k-th count for more than 1 if not all rows at this distance are
        kept.
        """
        ties = np.abs(self._far - self._last(self._far)) <= self._rounding
        kept = np.maximum(ties.sum(axis=1), 1)
        result: NDArray[np.float64] = np.where(ties, ((kept + self._more) / kept)[:, None], 1.0)
        return result

    @property
    def _rounding(self) -> NDArray[np.float64]:
        return _ROUNDING * self._scale[:, None]

    def _last(self, far: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the distance of the k-th row (m, 1)."""
        last: NDArray[np.float64] = far[:, [min(self.k, far.shape[1]) - 1]]
        # If fewer than k rows have a distance, the others are not answers.
        return np.where(np.isfinite(last), last, np.finfo(np.float64).max)

    def _count_more(self, before: NDArray[np.float64], far: NDArray[np.float64]) -> None:
        """Count ties that are not kept; add earlier ones if the k-th distance is unchanged."""
        last = self._last(self._far)
        if before.shape[1] >= self.k:
            nearer = (last < self._last(before) - self._rounding)[:, 0]
            self._more[nearer] = 0
        most = last + self._rounding
        self._more += (far <= most).sum(axis=1) - (self._far <= most).sum(axis=1)
