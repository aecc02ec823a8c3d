"""Classification by the nearest codes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.vectors import as_labels
from .blocks import check_count, mark_nearest, query_blocks
from .ranking import Distances, ranking_distances


def neighbour_error(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    query_labels: ArrayLike,
    labels: ArrayLike,
    k: int = 3,
    *,
    weights: ArrayLike | None = None,
    distances: Distances | None = None,
) -> float:
    """Compute how often the majority of the k first rows has another label than the query.

    Tied rows stand in row order. If classes have equally many votes, the one with the nearest row
    wins.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width) or (n_queries, m, width)
    codes : uint8 (n, width)
    query_labels : array-like (n_queries,) of integers, 0 or more
    labels : array-like (n,) of integers, 0 or more
    weights : array-like (n_bits,) or (m,), optional
        As for `mean_average_precision`.
    distances : callable, optional
        As for `mean_over_queries`.

    Raises
    ------
    InvalidInputError
        If rows have several labels or none, or shapes do not fit.
    """
    expected = _single_labels("query", query_labels, len(query_codes))
    given = _single_labels("row", labels, len(codes))
    if not len(expected) or not len(given):
        raise InvalidInputError(
            f"there are {len(expected)} queries and {len(given)} rows; give some"
        )
    check_count("k", k, len(codes))
    wrong, distances = 0, distances or ranking_distances
    for block in query_blocks(len(query_codes), max(len(codes), k * k)):
        votes = given[_first_rows(distances(query_codes[block], codes, weights), k)]
        # For each of the k, how many have its label; argmax takes the nearest of the winners.
        agreeing = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
        winner = votes[np.arange(len(votes)), agreeing.argmax(axis=1)]
        wrong += int(np.count_nonzero(winner != expected[block]))
    return wrong / len(query_codes)


def _first_rows(distances: NDArray[np.generic], k: int) -> NDArray[np.intp]:
    """Return the numbers of the k nearest rows of each line, nearest first, ties in row order."""
    rows = np.nonzero(mark_nearest(distances, k))[1].reshape(len(distances), k)
    order = np.argsort(np.take_along_axis(distances, rows, axis=1), axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1)


def _single_labels(what: str, labels: ArrayLike, n: int) -> NDArray[np.integer]:
    array = as_labels(labels)
    if array.shape != (n,) or array.dtype.kind not in "iub":
        raise InvalidInputError(
            f"{what} labels are {array.dtype} {array.shape}; this measure takes one integer for "
            f"each of {n}"
        )
    if len(array) and array.min() < 0:
        raise InvalidInputError(
            f"{what} {int(array.argmin())} has the label {array.min()}; this measure takes "
            "labelled rows alone"
        )
    return array
