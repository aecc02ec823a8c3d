"""A data set divided into queries, a database and training rows, and the ground truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.supervision.labels import Labels, Supervision
from ..hashers.supervision.relations import read_pairs, read_triplets
from ..metrics.ranking import Distances
from ..metrics.truth import (
    RelevantRows,
    relevant_by_distance,
    relevant_by_number,
    rows_of_fraction,
)
from ..models.model import Model
from ..models.vectors import SparseRows, as_rows
from ..quality.scores import Measures, Scores, score, sharing_labels
from ..training.array_files import ArrayFile
from ..training.files import numbered_labels

TruthKind = Literal["label", "nearest-fraction", "nearest-k", "file"]


@dataclass(frozen=True)
class Truth:
    """A rule for which rows of the database are relevant to a query.

    Parameters
    ----------
    kind
        A shared label, being among the nearest by Euclidean distance, or among the nearest that a
        file has.
    amount
        The fraction of the database, or the number of rows, that is relevant.
    file
        Row numbers of the nearest, nearest first, a line for each query: of a .ivecs or .npy file,
        or array neighbors of a .hdf5 file.
    """

    kind: TruthKind
    amount: float | None = None
    file: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(TruthKind):
            raise InvalidInputError(
                f"truth {self.kind!r} is unknown; use {', '.join(get_args(TruthKind))}"
            )
        if (self.amount is None) != (self.kind == "label"):
            raise InvalidInputError(f"truth by {self.kind} has amount {self.amount}")
        if (self.file is None) == (self.kind == "file"):
            raise InvalidInputError(f"truth by {self.kind} has file {self.file}")

    @property
    def name(self) -> str:
        """The name it has in results."""
        if self.amount is None:
            return "label"
        if self.file is not None:
            return f"first {self.amount} of {self.file.name}"
        by_number = self.kind == "nearest-k"
        return f"nearest {self.amount}" if by_number else f"nearest {100 * self.amount:g} %"


#: Arrays of a split, and whether it must have them.
ROW_NUMBERS = {"query": True, "database": True, "train": True, "anchors": False, "labelled": False}


@dataclass(frozen=True, eq=False)
class Split:
    """Queries, a database and training rows.

    Attributes
    ----------
    queries, database, train : floating (n_queries, d), (n, d), (n_train, d)
    query_labels, labels, train_labels : integers (m,), or (m, c) dense or sparse, optional
        Labels of the queries, the database and the training rows, as ``fit`` takes them.
    train_places : intp (n_train,), optional
        Which row of the database each training row is, where all are.
    anchors, labelled
        Training rows, by their place: kernel bases, and the rows whose labels are known to methods
        that learn from few labels.
    pairs : intp (p, 3), optional
        Two training rows, by their place, and 1 for neighbours or -1 for others.
    train_graph, graph : sparse (n_train, m), (n + n_queries, m), optional
        Weights of edges between rows and m objects, as ``fit`` takes them: of the training rows,
        and of the database and then the queries, from which a transductive method learns.
    train_graph_features, graph_features : floating (n_train, k), (n + n_queries, k), optional
        Vectors of the same rows, to make a graph from.
    triplets : intp (t, 3), optional
        Three training rows each, by their place: the first is nearer to the second than to the
        third.
    """

    queries: NDArray[np.floating]
    database: NDArray[np.floating]
    train: NDArray[np.floating]
    query_labels: NDArray[np.integer] | SparseRows | None = None
    labels: NDArray[np.integer] | SparseRows | None = None
    train_labels: NDArray[np.integer] | SparseRows | None = None
    train_places: NDArray[np.intp] | None = None
    anchors: NDArray[np.intp] | None = None
    labelled: NDArray[np.intp] | None = None
    train_graph: SparseRows | None = None
    graph: SparseRows | None = None
    triplets: NDArray[np.intp] | None = None
    pairs: NDArray[np.intp] | None = None
    train_graph_features: NDArray[np.floating] | None = None
    graph_features: NDArray[np.floating] | None = None
    _relevant: dict[Truth, RelevantRows] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        numbers: Mapping[str, ArrayLike],
        graph: ArrayLike | SparseRows | None = None,
        triplets: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        graph_features: ArrayLike | None = None,
    ) -> "Split":
        """Divide the rows of a data set.

        Parameters
        ----------
        X : array-like (n, d)
            Bytes (uint8), which is how images come, are divided by 255.
        y : array-like (n,) of integers or names, or (n, c) of 0 and 1, dense or sparse, optional
            -1, an empty name or a line of zeros marks an unlabelled row.
        numbers : mapping of str to array-like
            Row numbers of X: ``query``, ``database`` and ``train``; and as places among the
            training rows ``anchors`` and ``labelled``, both optional.
        graph : array-like (n, m) of 0 and more, dense or of scipy.sparse, optional
            Weights of edges between the rows of X and m objects.
        triplets : array-like (t, 3) of integers, optional
            Row numbers of X. Triplets that name other rows than those of the training are left
            out.
        pairs : array-like (p, 3) of integers, optional
            Two row numbers of X, and 1 for neighbours or -1 for others; likewise.
        graph_features : array-like (n, k), optional
            Vectors of the rows of X to make a graph from, in place of ``graph``.

        Raises
        ------
        InvalidInputError
            If rows, labels or row numbers are not usable, or a row is query and in the database;
            or no training row has an edge, or no triplet or pair is of training rows; or there
            are both a graph and features to make one from.
        """
        rows = scaled_rows(X)
        labels = None if y is None else read_labels(y, len(rows))
        places = row_numbers(numbers, len(rows))
        query, database, train = (places[name] for name in ("query", "database", "train"))
        if len(both := np.intersect1d(query, database)):
            raise InvalidInputError(
                f"row {both[0]} is a query and in the database; a query must not find itself"
            )
        known = Supervision.read(len(rows), graph=graph, graph_features=graph_features)
        edges, features = known.graph, known.graph_features
        in_database = _find(train, database, len(rows))
        everything = np.concatenate([database, query])
        if edges is not None and not edges[train].nnz:
            raise InvalidInputError("no training row has an edge of the graph")
        return cls(
            rows[query],
            rows[database],
            rows[train],
            None if labels is None else labels[query],
            None if labels is None else labels[database],
            None if labels is None else labels[train],
            train_places=in_database if (in_database >= 0).all() else None,
            anchors=places.get("anchors"),
            labelled=places.get("labelled"),
            train_graph=None if edges is None else edges[train],
            graph=None if edges is None else edges[everything],
            triplets=None if triplets is None else _of_training(triplets, 3, train, len(rows)),
            pairs=None if pairs is None else _of_training(pairs, 2, train, len(rows)),
            train_graph_features=None if features is None else features[train],
            graph_features=None if features is None else features[everything],
        )

    def relevant(self, truth: Truth) -> RelevantRows:
        """Return which rows are relevant to which query, computed once.

        The truth is never whole in memory: labels are compared when lines are read, and of the
        nearest rows only the numbers are kept.

        Raises
        ------
        InvalidInputError
            If there are no labels, or no query shares one with a row of the database; or the
            amount is out of range.
        """
        if truth in self._relevant:
            return self._relevant[truth]
        if truth.amount is None:
            relevant = self._same_label()
        elif truth.file is not None:
            relevant = self._of_file(truth.file, int(truth.amount))
        else:
            by_number, n = truth.kind == "nearest-k", len(self.database)
            k = int(truth.amount) if by_number else rows_of_fraction(truth.amount, n)
            relevant = relevant_by_distance(self.queries, self.database, k)
        self._relevant[truth] = relevant
        return relevant

    def _same_label(self) -> RelevantRows:
        if self.query_labels is None or self.labels is None:
            raise InvalidInputError(
                "there are no labels; take nearest-fraction or nearest-k as truth"
            )
        return sharing_labels(self.query_labels, self.labels)

    def _of_file(self, path: Path, k: int) -> RelevantRows:
        numbers = np.asarray(ArrayFile(path).read_vectors(usual=("neighbors",)))
        n, shape = len(self.database), (len(self.queries), k)
        if numbers.ndim != 2 or numbers.dtype.kind not in "iu":
            raise InvalidInputError(
                f"{path} has no row numbers of the nearest, a line for each query, but "
                f"{numbers.dtype} {numbers.shape}"
            )
        if len(numbers) != shape[0] or not 1 <= k <= numbers.shape[1]:
            raise InvalidInputError(
                f"{path} has the {numbers.shape[1]} nearest of {len(numbers)} queries; wanted are "
                f"the {k} nearest of {shape[0]}"
            )
        numbers = numbers[:, :k]
        if numbers.min() < 0 or numbers.max() >= n:
            raise InvalidInputError(
                f"{path} has row numbers from {numbers.min()} to {numbers.max()}, but the database "
                f"has {n} rows, numbered from 0"
            )
        return relevant_by_number(numbers, n)

    def score(
        self,
        model: Model,
        codes: NDArray[np.uint8],
        truths: Sequence[Truth],
        measures: Measures,
        distances: Distances | None = None,
    ) -> dict[str, Scores]:
        """Take all measures of a model's codes of the database, by the name of the truth."""
        labels = self.query_labels, self.labels
        return score(
            model,
            self.queries,
            codes,
            {truth.name: self.relevant(truth) for truth in truths},
            measures,
            labels=None if labels[0] is None or labels[1] is None else (labels[0], labels[1]),
            distances=distances,
        )


def scaled_rows(X: ArrayLike) -> NDArray[np.floating]:
    """Check rows, and divide bytes by 255, floating (n, d)."""
    rows = as_rows(X)
    return rows / np.float32(255) if getattr(X, "dtype", None) == np.uint8 else rows


def read_labels(y: ArrayLike | SparseRows, n: int) -> NDArray[np.integer] | SparseRows:
    """Check the labels of n rows, and number names."""
    if scipy.sparse.issparse(y):
        Labels.read(y, n)
        return scipy.sparse.csr_array(y)
    array = numbered_labels(y)
    Labels.read(array, n)
    return array


def row_numbers(given: Mapping[str, ArrayLike], n: int) -> dict[str, NDArray[np.intp]]:
    """Check the arrays of `ROW_NUMBERS` for n rows."""
    result: dict[str, NDArray[np.intp]] = {}
    for name, needed in ROW_NUMBERS.items():
        if name not in given:
            if needed:
                raise InvalidInputError(
                    f"the split has no {name!r}; it needs the row numbers query, database and train"
                )
            continue
        # Kernel bases and labelled rows are chosen among the training rows.
        rows = n if needed else len(result["train"])
        of_what = "rows" if needed else "training rows"
        array = check_numbers(f"{name!r} of the split", given[name], rows, of_what)
        if len(np.unique(array)) < len(array):
            raise InvalidInputError(f"{name!r} of the split has a row twice")
        result[name] = array
    return result


def check_numbers(what: str, given: ArrayLike, rows: int, of_what: str) -> NDArray[np.intp]:
    """Check numbers of rows, each below ``rows``, and return them as integers."""
    array = np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise InvalidInputError(
            f"{what} must be one or more row numbers, got {array.dtype} {array.shape}"
        )
    if array.min() < 0 or array.max() >= rows:
        raise InvalidInputError(
            f"{what} has numbers from {array.min()} to {array.max()}, but there are {rows} "
            f"{of_what}, numbered from 0"
        )
    return array.astype(np.intp)


def _find(rows: NDArray[np.intp], among: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Return the places of rows among others of n rows; -1 where one is not there."""
    place = np.full(n, -1, np.intp)
    place[among] = np.arange(len(among))
    return place[rows]


def _of_training(
    relations: ArrayLike, width: int, train: NDArray[np.intp], n: int
) -> NDArray[np.intp]:
    """Name the rows of triplets or pairs by their places in the training; leave out others."""
    named = read_relations(relations, width, n)
    places = _find(named[:, :width], train, n)
    inside = (places >= 0).all(axis=1)
    if not inside.any():
        what = "triplets" if width == 3 else "pairs"
        raise InvalidInputError(f"none of the {len(named)} {what} is of training rows alone")
    return np.hstack([places, named[:, width:]])[inside]


def read_relations(relations: ArrayLike, width: int, n: int) -> NDArray[np.intp]:
    """Check triplets, or pairs with their signs, of n rows."""
    return read_triplets(relations, n) if width == 3 else read_pairs(relations, n)
