"""Measures of whole rankings: average precision, precision and recall at a rank."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from .blocks import check_count
from .expectation import average_precision
from .ranks import Hits, Measure, Ties, mean_over_queries

__all__ = [
    "Curve",
    "curve_measure",
    "curve_ranks",
    "mean_average_precision",
    "precision_at_k",
    "precision_measure",
    "precision_recall_by_rank",
    "share_found_at_k",
    "share_measure",
]

# How many ranks a curve has unless told otherwise.
_CURVE_RANKS = 100


class Curve(NamedTuple):
    """Precision and recall while more and more rows are retrieved.

    Attributes
    ----------
    at : intp (m,)
        How far: numbers of rows, or Hamming radii.
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
    relevant: NDArray[np.bool_],
    *,
    top: int | None = None,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute the mean average precision, over the whole ranking or its first rows (MAP@R).

    The average precision of a query is the mean, over the relevant rows among the first R, of the
    precision at their rank. It is divided by the number of relevant rows found within R, not by
    all there are, as the programs of the hashing papers have it (DPSH, HashNet and those after
    them); over the whole ranking the two are the same.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    top : int, optional
        The R of MAP@R; by default the whole ranking.
    ties : {"order", "average"}
        Tied rows in row order, or the expectation over all their orders.
    weights : array-like (n_bits,), optional
        What each bit counts in distances; all the same by default.

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
    relevant: NDArray[np.bool_],
    k: int = 100,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute which part of the first k rows is relevant.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width) or (n_queries, m, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    k : int
    ties : {"order", "average"}
    weights : array-like (n_bits,) or (m,), optional
        What each bit counts in distances, all the same by default; of m codes for each query what
        each code counts, as `Model.ranking_codes` gives them.

    Returns
    -------
    float
    """
    check_count("k", k, len(codes))
    return _mean(query_codes, codes, relevant, precision_measure(k), ties, weights)


def share_found_at_k(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: NDArray[np.bool_],
    k: int = 100,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> float:
    """Compute which part of the relevant rows is among the first k.

    With `nearest_k` as truth, this is the share of the true neighbours in the top k.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    k : int
    ties : {"order", "average"}
    weights : array-like (n_bits,), optional

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
    relevant: NDArray[np.bool_],
    at: Sequence[int] | NDArray[np.integer] | None = None,
    *,
    ties: Ties = "order",
    weights: ArrayLike | None = None,
) -> Curve:
    """Compute precision and recall after the first rows, for several numbers of them.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)
    at : sequence of int, optional
        Numbers of rows; by default at most 100 from 1 to all, each about as many times the one
        before.
    ties : {"order", "average"}
    weights : array-like (n_bits,), optional

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
    relevant: NDArray[np.bool_],
    measure: Measure,
    ties: Ties,
    weights: ArrayLike | None,
) -> float:
    (value,) = mean_over_queries(
        query_codes, codes, relevant, [measure], ties=ties, weights=weights
    )
    return float(value)
