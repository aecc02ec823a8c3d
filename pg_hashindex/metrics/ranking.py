"""Measures of whole rankings: average precision, precision and recall at a rank.

If tied rows may stand in any order, average precision is an expectation.

A group of t tied rows, r of them relevant, stands behind T rows, R of them relevant. Its i-th row
is relevant with probability r / t, and if it is, i - 1 other rows of the group stand before it,
each relevant with probability (r - 1) / (t - 1). So the precision at the relevant rows among the
first m rows of the group sums to

    sum_{i=1..m} r/t (R + 1 + (i - 1) (r - 1)/(t - 1)) / (T + i)
        = r/t ((R + 1) H + (r - 1)/(t - 1) (m - (T + 1) H)),   H = sum_{i=1..m} 1 / (T + i)

in expectation (McSherry and Najork, ECIR 2008), with m = t for a whole group.

MAP@R divides by the relevant rows within R, a random number where R cuts a group: after its first
m rows it is R + K, K hypergeometric. Given K = k these m rows are themselves a group of m rows, k
of them relevant, in random order, so the expectation is a sum over k.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from ..errors import InvalidInputError
from ..models.codes import hamming_distances, spherical_distances, weighted_distances
from ..models.quantization import code_distances
from .blocks import check_count, query_blocks
from .truth import Relevant, check_relevant

Ties = Literal["order", "average"]


@dataclass(frozen=True, eq=False)
class Hits:
    """The ranks of the relevant rows of some queries.

    A ranking is a list of groups of tied rows; within a group every order is as likely. Where ties
    are in row order, each row is a group of its own. Groups without relevant rows are left out.
    Groups stand in the order of queries, then of ranks.

    ``n`` rows are in each ranking, ``n_relevant`` (n_queries,) of them relevant. For each group,
    (n_groups,): its ``query``, the rows ranked before it (``start``), the rows in it (``size``),
    and the relevant rows ``before`` it and in it (``count``).
    """

    n: int
    n_relevant: NDArray[np.intp]
    query: NDArray[np.intp]
    start: NDArray[np.intp]
    size: NDArray[np.intp]
    before: NDArray[np.intp]
    count: NDArray[np.intp]

    def found(self, at: NDArray[np.integer]) -> NDArray[np.float64]:
        """Count the relevant rows among the first ranks; if a rank cuts ties, the expected number.

        ``at`` (m,) are numbers of rows, 1 to n; returns float64 (n_queries, m).
        """
        n_queries, width = len(self.n_relevant), self.n + 1
        if not len(self.query):
            return np.zeros((n_queries, len(at)))
        wanted = np.arange(n_queries)[:, None] * width + at
        # The last group of the same query that starts before that rank.
        group = np.searchsorted(self.query * width + self.start, wanted) - 1
        own = (group >= 0) & (self.query[group] == np.arange(n_queries)[:, None])
        seen = np.minimum(at - self.start[group], self.size[group])
        found = self.before[group] + self.count[group] * (seen / self.size[group])
        return np.where(own, found, 0.0)


#: Distances that rankings are by, (n_queries, n), from codes of queries, codes and weights.
Distances: TypeAlias = Callable[
    [NDArray[np.uint8], NDArray[np.uint8], ArrayLike | None], NDArray[np.generic]
]
#: A measure: returns a value, or a line of values, for each query.
Measure: TypeAlias = Callable[[Hits], NDArray[np.float64]]


def mean_over_queries(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    measures: Sequence[Measure],
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
    distances: Distances | None = None,
) -> list[NDArray[np.float64]]:
    """Rank the rows for every query once, and take several measures of the rankings.

    Parameters are those of `mean_average_precision`, and the ``distances`` to rank by,
    `ranking_distances` by default; returns the mean of each measure.
    """
    check_relevant(query_codes, codes, relevant)
    check_ties(ties)
    totals: list[NDArray[np.float64]] = [np.zeros(()) for _ in measures]
    for hits in _hits(query_codes, codes, relevant, ties, weights, distances or ranking_distances):
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
        if weights is None:
            raise InvalidInputError("queries have several codes: give the weight of each")
        return code_distances(query_codes, np.asarray(weights), codes)
    if weights is None:
        return hamming_distances(query_codes, codes)
    return weighted_distances(query_codes, codes, weights)


def spherical_ranking(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], weights: ArrayLike | None
) -> NDArray[np.generic]:
    """Compute the distances of the paper on SpH, whatever the weights."""
    return spherical_distances(query_codes, codes)


def _hits(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    ties: Ties,
    weights: ArrayLike | None,
    distances_of: Distances,
) -> Iterator[Hits]:
    for block in query_blocks(len(query_codes), len(codes)):
        distances = distances_of(query_codes[block], codes, weights)
        if ties == "order":
            yield _single_rows(distances, relevant[block])
            continue
        if (
            weights is not None
            or distances.dtype.kind == "f"
            or distances.max() >= distances.shape[1]
        ):
            # Distances may be any numbers, and those of long codes more than there are rows; ranks
            # are below the number of rows.
            distances = np.stack([np.unique(d, return_inverse=True)[1] for d in distances])
        yield _groups(distances, relevant[block])


def _single_rows(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> Hits:
    n_queries, n = relevant.shape
    flags = np.empty_like(relevant)
    # Line by line, since a line and its order fit in the processor's cache, but a block does not.
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
        # NumPy's stable sort of 16 bits is a radix sort, which takes linear time.
        return np.argsort(distances, kind="stable")
    # For float64 the stable sort is slower than the unstable sort and a second sort of tied rows,
    # by the number of their group and then their own.
    order = np.argsort(distances)
    group = np.cumsum(np.diff(distances[order], prepend=0) != 0)
    keys = group.astype(np.uint64) << np.uint64(32) | order.astype(np.uint64)
    keys.sort()
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.intp)


def _groups(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> Hits:
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


def average_precision(hits: Hits, top: int | None = None) -> NDArray[np.float64]:
    """Compute the (expected) average precision of each query, over the first ``top`` rows."""
    top = hits.n if top is None else top
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, hits.n + 1))])
    n_queries, end = len(hits.n_relevant), hits.start + hits.size
    whole = end <= top
    precisions = _expected_sum(harmonic, hits.start, hits.size, hits.before, hits.count)
    sums = np.bincount(hits.query, weights=precisions * whole, minlength=n_queries)
    found = np.bincount(hits.query, weights=hits.count * whole, minlength=n_queries)
    result: NDArray[np.float64] = sums / np.maximum(found, 1)
    # At most one group of a query is cut.
    for group in np.flatnonzero(~whole & (hits.start < top)):
        query = hits.query[group]
        result[query] = _cut(hits, harmonic, group, top, sums[query])
    return result


def _expected_sum(
    harmonic: NDArray[np.float64],
    start: NDArray[np.intp],
    size: NDArray[np.intp],
    before: NDArray[np.intp],
    count: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Sum the precision at the relevant rows of each group, in expectation."""
    # Groups of a single row are computed directly, since differences of sums lose digits.
    H = np.where(size == 1, 1 / (start + 1), harmonic[start + size] - harmonic[start])
    others = (count - 1) / np.maximum(size - 1, 1)
    result: NDArray[np.float64] = (
        count / size * ((before + 1) * H + others * (size - (start + 1) * H))
    )
    return result


def _cut(
    hits: Hits, harmonic: NDArray[np.float64], group: np.intp, top: int, earlier: np.float64
) -> float:
    """Return the expectation for a query whose group of ties goes beyond ``top``."""
    start, size, before, count = (
        int(part[group]) for part in (hits.start, hits.size, hits.before, hits.count)
    )
    kept = top - start
    k = np.arange(max(0, kept - (size - count)), min(kept, count) + 1)
    logarithm = (
        _log_binomial(count, k) + _log_binomial(size - count, kept - k) - _log_binomial(size, kept)
    )
    probability = np.exp(logarithm)
    probability /= probability.sum()
    within = np.full(k.shape, kept)
    sums = _expected_sum(harmonic, np.full(k.shape, start), within, np.full(k.shape, before), k)
    values = (earlier + sums) / np.maximum(before + k, 1)
    return float(probability @ values)


def _log_binomial(n: int, k: NDArray[np.intp] | int) -> NDArray[np.float64]:
    result: NDArray[np.float64] = gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(n - k + 1)
    return result


# Ranks of a curve by default.
_CURVE_RANKS = 100


class Curve(NamedTuple):
    """Precision and recall while more and more rows are retrieved.

    Attributes
    ----------
    at : intp (m,)
        Numbers of rows retrieved.
    precision, recall : float64 (m,)
        Means over the queries. Recall over ``at`` is the papers' recall curve, precision over
        recall their precision-recall curve.
    """

    at: NDArray[np.intp]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]


def mean_average_precision(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    *,
    top: int | None = None,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute the mean average precision, over the whole ranking or its first rows (MAP@R).

    The average precision of a query is the mean, over the relevant rows among the first R, of the
    precision at their rank. It is divided by the number of relevant rows found within R, not by
    all there are, as the programs of the hashing papers have it (DPSH and those after it); over
    the whole ranking the two are the same.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width) or (n_queries, m, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n), or RelevantRows
    top
        The R of MAP@R; by default the whole ranking.
    ties
        Tied rows in row order, or the expectation over all their orders.
    weights : array-like (n_bits,) or (m,), optional
        The weight of each bit in distances, equal by default; with m codes for each query, the
        weight of each code, as the asymmetric ranking has.

    Returns
    -------
    float
        A query that finds no relevant rows counts 0.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, or an argument is out of range.
    """
    if top is not None:
        check_count("top", top, len(codes))
    return _mean(
        query_codes, codes, relevant, lambda hits: average_precision(hits, top), ties, weights
    )


def precision_at_k(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    k: int = 100,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute which part of the first k rows is relevant.

    Parameters
    ----------
    query_codes, codes, relevant, ties, weights
        As for `mean_average_precision`.
    """
    check_count("k", k, len(codes))
    return _mean(query_codes, codes, relevant, precision_measure(k), ties, weights)


def share_found_at_k(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    k: int = 100,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute which part of the relevant rows is among the first k.

    With `nearest_k` as truth, this is the share of the true neighbours in the top k.

    Parameters
    ----------
    query_codes, codes, relevant, ties, weights
        As for `mean_average_precision`.

    Returns
    -------
    float
        A query without relevant rows counts 0.
    """
    check_count("k", k, len(codes))
    return _mean(query_codes, codes, relevant, share_measure(k), ties, weights)


def precision_recall_by_rank(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    at: Sequence[int] | NDArray[np.integer] | None = None,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> Curve:
    """Compute precision and recall after the first rows, for several numbers of them.

    Parameters
    ----------
    at
        Numbers of rows; by default at most 100 from 1 to all, each about as many times the one
        before.
    query_codes, codes, relevant, ties, weights
        As for `mean_average_precision`.

    Returns
    -------
    Curve
        A query without relevant rows counts as recall 0.
    """
    ranks = curve_ranks(len(codes)) if at is None else np.asarray(at)
    if ranks.ndim != 1 or not len(ranks) or ranks.dtype.kind not in "iu":
        raise InvalidInputError(f"at must be one or more integers, got {at!r}")
    for rank in (ranks.min(), ranks.max()):
        check_count("at", int(rank), len(codes))
    measures = [curve_measure(ranks)]
    (values,) = mean_over_queries(
        query_codes, codes, relevant, measures, ties=ties, weights=weights
    )
    return Curve(ranks.astype(np.intp), *values)


def curve_ranks(n: int) -> NDArray[np.intp]:
    """Choose ranks from 1 to n for a curve, closer to each other at the start."""
    result: NDArray[np.intp] = np.unique(np.geomspace(1, n, _CURVE_RANKS).round().astype(np.intp))
    return result


def precision_measure(k: int) -> Measure:
    """Return the measure of `precision_at_k`."""
    return lambda hits: hits.found(np.array([k]))[:, 0] / k


def share_measure(k: int) -> Measure:
    """Return the measure of `share_found_at_k`."""
    return lambda hits: hits.found(np.array([k]))[:, 0] / np.maximum(hits.n_relevant, 1)


def curve_measure(ranks: NDArray[np.integer]) -> Measure:
    """Return the measure of `precision_recall_by_rank`, a line (2, m) for each query."""

    def measure(hits: Hits) -> NDArray[np.float64]:
        found = hits.found(ranks)
        recall = found / np.maximum(hits.n_relevant, 1)[:, None]
        return np.stack([found / ranks, recall], axis=1)

    return measure


def _mean(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    measure: Measure,
    ties: Ties,
    weights: ArrayLike | None,
) -> float:
    (value,) = mean_over_queries(
        query_codes, codes, relevant, [measure], ties=ties, weights=weights
    )
    return float(value)
