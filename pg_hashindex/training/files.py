"""Training rows from files of arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.supervision.labels import Supervision
from ..models.vectors import SparseRows, as_labels, as_rows
from .array_files import ArrayFile, find_named
from .sampling import SAMPLE_ROWS, Sample, number_labels

__all__ = ["graph_of_edges", "load_sample", "numbered_labels"]


def load_sample(
    path: Path,
    *,
    vectors: str | None = None,
    labels: str | None = None,
    pairs: str | None = None,
    triplets: str | None = None,
    graph: str | None = None,
    graph_features: str | None = None,
    rows: int = SAMPLE_ROWS,
    random_state: int = 0,
) -> Sample:
    """Read vectors and supervision from a file of arrays, as `ArrayFile` reads it.

    Parameters
    ----------
    path : pathlib.Path or str
        It must have an array ``X``, or one array of two dimensions that no argument names, unless
        ``vectors`` names it.
    vectors
        The name of the array of vectors.
    labels, pairs, triplets
        Names of arrays as ``fit`` takes them, or of files of one array each; labels may also be an
        array of names, (n,).
    graph
        Name of an array of edges: a row number and an object's number, integers (e, 2), or these
        and a weight above 0, (e, 3). The weights of repeated edges add up.
    graph_features
        Name of an array of vectors, (n, k), to make the graph from.
    rows
        Most rows to take: first those that pairs and triplets name, then labelled ones, then
        others, drawn without replacement.

    Raises
    ------
    InvalidInputError
        If a file cannot be read or holds no such array, or an array is not usable.
    """
    named = {"pairs": pairs, "triplets": triplets, "graph": graph}
    named["graph_features"] = graph_features
    wanted = {what: name for what, name in named.items() if name is not None}
    file = ArrayFile(path)
    known = {what: find_named([file], name)[0] for what, name in wanted.items()}
    if labels is not None:
        known["labels"] = find_named([file], labels, flat=True)[0]
    others = [name for name in (labels, *wanted.values()) if name is not None]
    array = file.read_vectors(vectors, others)
    X = as_rows(array)
    y = known.get("labels")
    if y is not None and not scipy.sparse.issparse(y):
        y = numbered_labels(y)
    edges = known.get("graph")
    supervision = Supervision.read(
        len(X),
        y,
        known.get("pairs"),
        known.get("triplets"),
        None if edges is None else graph_of_edges(edges, len(X)),
        known.get("graph_features"),
    )
    chosen = _chosen(len(X), supervision, rows, random_state)
    kept = supervision.restricted_to(chosen)
    return Sample(
        X[chosen] if len(chosen) < len(X) else X,
        None if y is None else y[chosen],
        kept.pairs,
        kept.triplets,
        kept.graph,
        kept.graph_features,
    )


def numbered_labels(y: ArrayLike) -> NDArray[Any]:
    """Return labels as an array, names replaced by numbers; an empty name means no label."""
    array = as_labels(y)
    if array.dtype == object and all(isinstance(name, str | bytes) for name in array.tolist()):
        # HDF5 has text of any length so.
        array = np.array([
            name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
            for name in array.tolist()
        ])  # fmt: skip
    if array.dtype.kind not in "US" or array.ndim != 1:
        return array
    # Names from HDF5 and MATLAB are bytes, in any encoding.
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "backslashreplace")
    numbers: NDArray[Any] = number_labels([name or None for name in array.tolist()])
    return numbers


def graph_of_edges(edges: NDArray[Any], n_rows: int) -> SparseRows:
    """Turn lines of row, object and weight into the matrix that ``fit`` takes.

    A sparse matrix, as MATLAB's files may hold, is one already.
    """
    if scipy.sparse.issparse(edges):
        if edges.shape[0] != n_rows:
            raise InvalidInputError(f"the graph has {edges.shape[0]} rows, there are {n_rows}")
        return scipy.sparse.coo_array(edges)
    if edges.ndim != 2 or edges.shape[1] not in (2, 3) or edges.dtype.kind not in "iuf":
        raise InvalidInputError(
            "the graph must be lines of a row number and an object's number, (e, 2), or these and "
            f"a weight, (e, 3); got {edges.dtype} {edges.shape}"
        )
    if not len(edges):
        raise InvalidInputError("the graph has no edges: its array has no line")
    rows, objects, *weights = edges.T
    _refuse(edges, (rows != np.floor(rows)) | (objects != np.floor(objects)), "must be integers")
    _refuse(edges, (rows < 0) | (rows >= n_rows), f"must name rows by number, 0 to {n_rows - 1}")
    values = weights[0] if weights else np.ones(len(edges))
    _refuse(edges, ~((values > 0) & (values < np.inf)), "must have finite weights above 0")
    # Numbers of objects are names, so they may be of any size.
    names, columns = np.unique(objects, return_inverse=True)
    shape = (n_rows, len(names))
    return scipy.sparse.coo_array((values, (rows.astype(np.intp), columns)), shape=shape)


def _refuse(edges: NDArray[Any], bad: NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        place = int(np.argmax(bad))
        raise InvalidInputError(
            f"edges of the graph {rule}; number {place} of them has {edges[place].tolist()}"
        )


def _chosen(n_rows: int, known: Supervision, rows: int, random_state: int) -> NDArray[np.intp]:
    if n_rows <= rows:
        return np.arange(n_rows)
    related = known.related_rows()
    if len(related) > rows:
        raise InvalidInputError(
            f"pairs and triplets name {len(related)} rows, but at most {rows} are drawn; draw "
            "more rows, or give fewer of them"
        )
    # Sort a random order by preference; a stable sort keeps it random within each kind.
    order = np.random.default_rng(random_state).permutation(n_rows)
    labelled = related if known.labels is None else known.labels.labelled
    preference = np.where(np.isin(order, related), 0, np.where(np.isin(order, labelled), 1, 2))
    return np.sort(order[np.argsort(preference, kind="stable")][:rows])
