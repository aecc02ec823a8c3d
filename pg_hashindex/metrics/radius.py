"""Measures of hash lookup: every row within a Hamming radius, in no order, so without ties."""

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.codes import hamming_distances
from .blocks import check_relevant, query_blocks
from .ranking import Curve

__all__ = ["precision_recall_by_radius", "precision_within_radius"]


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
    check_relevant(query_codes, codes, relevant)
    if radius < 0:
        raise InvalidInputError(f"radius must be 0 or more, got {radius}")
    total = 0.0
    for block in query_blocks(len(query_codes), len(codes)):
        within = hamming_distances(query_codes[block], codes) <= radius
        found = np.count_nonzero(within & relevant[block], axis=1)
        total += float((found / np.maximum(np.count_nonzero(within, axis=1), 1)).sum())
    return total / len(query_codes)


def precision_recall_by_radius(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], relevant: NDArray[np.bool_]
) -> Curve:
    """Compute precision and recall within every Hamming radius.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n)

    Returns
    -------
    Curve
        At each radius from 0 to the bits of a whole number of bytes. A query that finds nothing
        counts as precision 0, one without relevant rows as recall 0.
    """
    check_relevant(query_codes, codes, relevant)
    n_levels = 8 * query_codes.shape[1] + 1
    precision, recall = np.zeros(n_levels), np.zeros(n_levels)
    for block in query_blocks(len(query_codes), len(codes)):
        marked = relevant[block]
        n_queries = len(marked)
        level = (
            hamming_distances(query_codes[block], codes)
            + ((np.arange(n_queries) * n_levels)[:, None])
        )
        rows, found = (
            np.bincount(taken, minlength=n_queries * n_levels)
            .reshape(n_queries, n_levels)
            .cumsum(axis=1)
            for taken in (level.ravel(), level[marked])
        )
        precision += (found / np.maximum(rows, 1)).sum(axis=0)
        recall += (found / np.maximum(found[:, -1:], 1)).sum(axis=0)
    return Curve(np.arange(n_levels), precision / len(query_codes), recall / len(query_codes))
