"""Rankings by code, reduced to where their relevant rows stand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.codes import hamming_distances, weighted_distances
from ..models.quantization import code_distances
from .blocks import check_relevant, query_blocks

__all__ = ["Hits", "Measure", "Ties", "check_ties", "mean_over_queries", "ranking_distances"]

Ties = Literal["order", "average"]


@dataclass(frozen=True, eq=False)
class Hits:
    """Where the relevant rows of some queries stand in their rankings.

    A ranking is a list of groups of tied rows; within a group every order is as likely. Where
    ties are in row order, each row is a group of its own. Groups without relevant rows are left
    out. Groups stand in the order of queries, then of ranks.

    Attributes
    ----------
    n : int
        Rows in each ranking.
    n_relevant : intp (n_queries,)
    query : intp (n_groups,)
        Whose ranking the group is of.
    start : intp (n_groups,)
        Rows ranked before it.
    size : intp (n_groups,)
        Rows in it.
    before : intp (n_groups,)
        Relevant rows ranked before it.
    count : intp (n_groups,)
        Relevant rows in it.
    """

    n: int
    n_relevant: NDArray[np.intp]
    query: NDArray[np.intp]
    start: NDArray[np.intp]
    size: NDArray[np.intp]
    before: NDArray[np.intp]
    count: NDArray[np.intp]

    def found(self, at: NDArray[np.integer]) -> NDArray[np.float64]:
        """Count the relevant rows of the first ranks; where ties are cut, the expected number.

        Parameters
        ----------
        at : (m,)
            Numbers of rows, 1 to n.

        Returns
        -------
        float64 (n_queries, m)
        """
        n_queries, width = len(self.n_relevant), self.n + 1
        if not len(self.query):
            return np.zeros((n_queries, len(at)))
        wanted = np.arange(n_queries)[:, None] * width + at
        # The last group that starts before that rank; groups of earlier queries are none.
        group = np.searchsorted(self.query * width + self.start, wanted) - 1
        own = (group >= 0) & (self.query[group] == np.arange(n_queries)[:, None])
        seen = np.minimum(at - self.start[group], self.size[group])
        found = self.before[group] + self.count[group] * (seen / self.size[group])
        return np.where(own, found, 0.0)


#: What a measure makes of some queries: one value, or one line of values, for each.
Measure: TypeAlias = Callable[[Hits], NDArray[np.float64]]


def mean_over_queries(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: NDArray[np.bool_],
    measures: Sequence[Measure],
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> list[NDArray[np.float64]]:
    """Rank the rows for every query once, and take several measures of the rankings.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width) or (n_queries, m, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    measures : sequence of callables
    ties : {"order", "average"}
    weights : array-like (n_bits,) or (m,), optional
        What each bit counts in distances, all the same by default; of m codes for each query what
        each code counts, as `Model.ranking_codes` gives them.

    Returns
    -------
    list of float64 arrays
        The mean over the queries of each measure.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, or the weights or ties are not usable.
    """
    check_relevant(query_codes, codes, relevant)
    check_ties(ties)
    totals: list[NDArray[np.float64]] = [np.zeros(()) for _ in measures]
    for hits in _hits(query_codes, codes, relevant, ties, weights):
        totals = [
            total + measure(hits).sum(axis=0)
            for total, measure in zip(totals, measures, strict=True)
        ]
    return [total / len(query_codes) for total in totals]


def check_ties(ties: str) -> None:
    """Refuse what is not a way to treat ties."""
    if ties not in get_args(Ties):
        raise InvalidInputError(f"ties must be one of {get_args(Ties)}, got {ties!r}")


def ranking_distances(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], weights: ArrayLike | None
) -> NDArray[np.generic]:
    """Compute the distances that rankings are by, unsigned or float64 (n_queries, n)."""
    if query_codes.ndim == 3:
        return code_distances(query_codes, np.asarray(weights), codes)
    if weights is None:
        return hamming_distances(query_codes, codes)
    return weighted_distances(query_codes, codes, weights)


def _hits(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: NDArray[np.bool_],
    ties: Ties,
    weights: ArrayLike | None,
) -> Iterator[Hits]:
    for block in query_blocks(len(query_codes), len(codes)):
        distances = ranking_distances(query_codes[block], codes, weights)
        if ties == "order":
            yield _single_rows(distances, relevant[block])
        elif weights is None:
            yield _groups_of_integers(distances, relevant[block])
        else:
            yield _groups_of_numbers(distances, relevant[block])


def _single_rows(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> Hits:
    n_queries, n = relevant.shape
    flags = np.empty_like(relevant)
    # Line by line: one line and its order stay in the processor's cache, a block does not.
    for line in range(n_queries):
        np.take(relevant[line], _order(distances[line]), out=flags[line], mode="clip")
    n_relevant = np.count_nonzero(flags, axis=1)
    query = np.repeat(np.arange(n_queries), n_relevant)
    start = np.flatnonzero(flags) - query * n
    before = np.arange(len(query)) - np.repeat(np.cumsum(n_relevant) - n_relevant, n_relevant)
    one = np.broadcast_to(np.intp(1), query.shape)
    return Hits(n, n_relevant, query, start, one, before, one)


def _order(distances: NDArray[np.generic]) -> NDArray[np.intp]:
    """Sort the rows of one line by distance, ties in row order."""
    if distances.dtype == np.uint16:
        # Of 16 bits NumPy's stable sort is a radix sort, which takes time linear in the rows.
        return np.argsort(distances, kind="stable")
    # Of float64 it is several times slower than the unstable sort and, after that, one of the
    # tied rows: by the number of their group, then their own.
    order = np.argsort(distances)
    group = np.cumsum(_starts_group(distances[order]))
    keys = group.astype(np.uint64) << np.uint64(32) | order.astype(np.uint64)
    keys.sort()
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.intp)


def _starts_group(ordered: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mark the first of each run of equal values of each line."""
    result = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[..., 1:], ordered[..., :-1], out=result[..., 1:])
    return result


def _groups_of_integers(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> Hits:
    """Count rows by distance: nothing needs to be sorted."""
    n_queries, n = relevant.shape
    n_levels = int(distances.max()) + 1
    level = np.add(distances, (np.arange(n_queries) * n_levels)[:, None], dtype=np.intp)
    shape = (n_queries, n_levels)
    sizes = np.bincount(level.ravel(), minlength=n_queries * n_levels).reshape(shape)
    counts = np.bincount(level[relevant], minlength=n_queries * n_levels).reshape(shape)
    query, column = np.nonzero(counts)
    size, count = sizes[query, column], counts[query, column]
    start = np.cumsum(sizes, axis=1)[query, column] - size
    before = np.cumsum(counts, axis=1)[query, column] - count
    return Hits(n, counts.sum(axis=1), query, start, size, before, count)


def _groups_of_numbers(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> Hits:
    n_queries, n = relevant.shape
    order = np.argsort(distances, axis=1)
    flags = np.take_along_axis(relevant, order, axis=1)
    # Over all lines at once: each line starts a group.
    first = np.flatnonzero(_starts_group(np.take_along_axis(distances, order, axis=1)))
    size = np.diff(first, append=n_queries * n)
    count = np.add.reduceat(flags.ravel(), first, dtype=np.intp)
    n_relevant = np.count_nonzero(flags, axis=1)
    query = first // n
    before = np.cumsum(count) - count - (np.cumsum(n_relevant) - n_relevant)[query]
    kept = count > 0
    return Hits(
        n, n_relevant, query[kept], (first - query * n)[kept], size[kept], before[kept], count[kept]
    )
