"""Pairs, triplets and graphs over rows, checked as ``fit`` takes them."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.vectors import SparseRows, as_array


def read_pairs(pairs: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Check lines of two row numbers and 1 for neighbours or -1 for others, intp (p, 3)."""
    array = _read_integers("pairs", pairs)
    _check_row_numbers("pairs", array[:, :2], n_rows)
    if (bad := ~np.isin(array[:, 2], (1, -1))).any():
        place = int(np.argmax(bad))
        raise InvalidInputError(
            f"the third number of a pair is 1 for neighbours or -1 for others; pair {place} has "
            f"{array[place, 2]}"
        )
    return array


def read_triplets(triplets: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Check lines of three row numbers, intp (t, 3)."""
    array = _read_integers("triplets", triplets)
    _check_row_numbers("triplets", array, n_rows)
    return array


def _read_integers(what: str, given: ArrayLike) -> NDArray[np.intp]:
    array = as_array(what, given)
    if array.ndim != 2 or array.shape[1] != 3 or not len(array) or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{what} must be integers of shape (n, 3), with at least one line; got {array.dtype} "
            f"{array.shape}"
        )
    return array.astype(np.intp)


def _check_row_numbers(what: str, numbers: NDArray[np.intp], n_rows: int) -> None:
    outside = (numbers < 0) | (numbers >= n_rows)
    if outside.any():
        place = int(np.argmax(outside.any(axis=1)))
        raise InvalidInputError(
            f"{what} name rows by number, 0 to {n_rows - 1} here; number {place} of them has "
            f"{numbers[place].tolist()}"
        )
    ordered = np.sort(numbers, axis=1)
    if (same := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
        place = int(np.argmax(same))
        raise InvalidInputError(
            f"{what} must name different rows; number {place} of them has {numbers[place].tolist()}"
        )


def read_graph(
    graph: ArrayLike | SparseRows, n_rows: int, n_objects: int | None = None
) -> SparseRows:
    """Check a bipartite graph, (n, m) weights of edges between rows and objects, dense or sparse.

    Weights of an edge that is given more than once add up. Returns a sparse float32 matrix with
    rising columns, without zeros, and without the objects that have no edge, unless ``n_objects``
    says how many there must be. The given matrix is not changed.
    """
    given = _as_matrix(graph)
    if given.shape[0] != n_rows:
        raise InvalidInputError(
            f"the graph has {given.shape[0]} rows, but there are {n_rows} vectors; it needs a row "
            "for each, if without an edge"
        )
    if n_objects not in (None, given.shape[1]):
        raise InvalidInputError(
            f"the graph has {given.shape[1]} columns, but there are {n_objects} training rows"
        )
    # Convert before summing: bytes would overflow, and booleans would not add up.
    entries = scipy.sparse.coo_array(given).astype(np.float64)
    _check_weights(entries.data, entries, "must be finite and 0 or more")
    summed = scipy.sparse.csr_array(entries)
    summed.sum_duplicates()
    summed.eliminate_zeros()
    if not summed.nnz:
        raise InvalidInputError(
            f"the graph has no edges: all weights of its {given.shape[0]} rows and "
            f"{given.shape[1]} objects are 0"
        )
    with np.errstate(over="ignore", under="ignore"):
        weights = summed.data.astype(np.float32)
    # A weight that became 0 was an edge, so it is refused like one that became infinite.
    beyond = np.where(weights > 0, weights, np.float32(np.nan))
    _check_weights(beyond, summed.tocoo(), "must be within the range of float32")
    if n_objects is not None:
        return scipy.sparse.csr_array((weights, summed.indices, summed.indptr), summed.shape)
    objects, columns = np.unique(summed.indices, return_inverse=True)
    shape = (n_rows, len(objects))
    return scipy.sparse.csr_array((weights, columns, summed.indptr), shape=shape)


def _as_matrix(graph: ArrayLike | SparseRows) -> Any:
    """Return an array of two dimensions, dense or sparse, of real numbers."""
    given: Any = graph if scipy.sparse.issparse(graph) else as_array("the graph", graph)
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise InvalidInputError(
            "the graph must be a matrix (n, m) of weights between n rows and m objects, got "
            f"{given.dtype} {given.shape}"
        )
    return given


def _check_weights(checked: NDArray[np.floating], entries: SparseRows, rule: str) -> None:
    bad = ~((checked >= 0) & (checked < np.inf))
    if bad.any():
        place = int(np.argmax(bad))
        raise InvalidInputError(
            f"weights of the graph {rule}, but row {entries.row[place]}, column "
            f"{entries.col[place]} has {entries.data[place]:g}"
        )
