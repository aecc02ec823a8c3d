"""Data sets from files: queries, a database, training rows, and the ground truth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

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
from ..models.vectors import SparseRows, as_labels, as_rows
from ..quality.scores import Measures, Scores, score, sharing_labels
from ..training.array_files import ArrayFile, find_named
from ..training.files import graph_of_edges
from ..training.sampling import number_labels

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
        labels = None if y is None else _labels(y, len(rows))
        places = _row_numbers(numbers, len(rows))
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


def _labels(y: ArrayLike | SparseRows, n: int) -> NDArray[np.integer] | SparseRows:
    if scipy.sparse.issparse(y):
        Labels.read(y, n)
        return scipy.sparse.csr_array(y)
    array = as_labels(y)
    if array.dtype.kind in "US" and array.ndim == 1:
        array = number_labels([name or None for name in array.astype(str).tolist()])
    Labels.read(array, n)
    return array


def _row_numbers(given: Mapping[str, ArrayLike], n: int) -> dict[str, NDArray[np.intp]]:
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
        array = _check_numbers(f"{name!r} of the split", given[name], rows, of_what)
        if len(np.unique(array)) < len(array):
            raise InvalidInputError(f"{name!r} of the split has a row twice")
        result[name] = array
    return result


def _check_numbers(what: str, given: ArrayLike, rows: int, of_what: str) -> NDArray[np.intp]:
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
    named = _read_relations(relations, width, n)
    places = _find(named[:, :width], train, n)
    inside = (places >= 0).all(axis=1)
    if not inside.any():
        what = "triplets" if width == 3 else "pairs"
        raise InvalidInputError(f"none of the {len(named)} {what} is of training rows alone")
    return np.hstack([places, named[:, width:]])[inside]


def _read_relations(relations: ArrayLike, width: int, n: int) -> NDArray[np.intp]:
    return read_triplets(relations, n) if width == 3 else read_pairs(relations, n)


@dataclass(frozen=True)
class Protocol:
    """How many rows of each class are drawn, so that numbers stand beside those of papers.

    The other rows are the database.

    Parameters
    ----------
    queries
        Of each class.
    train
        Training rows of each class, out of the database; None takes all of it.
    labelled
        Training rows of each class whose labels methods may learn from; None is all.
    """

    queries: int
    train: int | None = None
    labelled: int | None = None


#: By name: the first and second setting of DPSH (Li, Wang & Kang, IJCAI 2016), and that of BGDH
#: (Yan, Zhang & Li, IJCAI 2017). On CIFAR-10, 1,000 queries and 5,000 training rows; 10,000 and
#: 50,000; and 1,000 queries and 59,000 training rows, 5,000 of them labelled.
PROTOCOLS: Mapping[str, Protocol] = {
    "few-train": Protocol(100, train=500),
    "all-train": Protocol(1_000),
    "few-labels": Protocol(100, labelled=500),
}


def _protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise InvalidInputError(f"protocol {name!r} is unknown; known are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


#: Queries and training rows drawn by default, at most.
QUERIES = 1_000
TRAIN_ROWS = 10_000


def draw_split(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    queries: int | None = None,
    train_rows: int | None = None,
    random_state: int = 0,
) -> Split:
    """Draw queries, keep the other rows as database, and draw training rows among those.

    Parameters
    ----------
    X : array-like (n, d)
        Bytes (uint8) are divided by 255.
    y : array-like (n,) or (n, c), optional
    queries
        By default 1,000, and at most a tenth of the rows.
    train_rows
        By default 10,000; where the database has no more, all of it.

    Raises
    ------
    InvalidInputError
        If rows or labels are not usable, or too few.
    """
    X = scaled_rows(X)
    return Split.of(X, y, numbers=_draw_numbers(len(X), queries, train_rows, random_state))


def _draw_numbers(
    n: int, queries: int | None, train_rows: int | None, random_state: int
) -> dict[str, NDArray[np.intp]]:
    n_queries = max(1, min(QUERIES, n // 10)) if queries is None else queries
    if not 1 <= n_queries < n:
        raise InvalidInputError(
            f"queries must be from 1 to one less than the rows, {n}; got {n_queries}"
        )
    rng = np.random.default_rng(random_state)
    order = rng.permutation(n)
    database = np.sort(order[n_queries:])
    train = _draw_train(database, train_rows, rng)
    return {"query": np.sort(order[:n_queries]), "database": database, "train": train}


def _draw_train(
    database: NDArray[np.intp], train_rows: int | None, rng: np.random.Generator
) -> NDArray[np.intp]:
    n_train = min(TRAIN_ROWS if train_rows is None else train_rows, len(database))
    if n_train < 2:
        raise InvalidInputError(f"train_rows must be 2 or more, got {n_train}")
    return np.sort(rng.choice(database, n_train, replace=False))


def _draw_of_classes(
    name: str, y: NDArray[np.integer] | SparseRows | None, random_state: int
) -> dict[str, NDArray[np.intp]]:
    """Draw queries and training rows as a protocol says."""
    protocol = _protocol(name)
    if y is None or y.ndim != 1:
        raise InvalidInputError(
            f"protocol {name} draws rows of each class, so rows must have one label each; "
            f"{'there are none: name their array' if y is None else 'these have several'}"
        )
    sizes = np.unique(y[y >= 0], return_counts=True)[1]
    needed = protocol.queries + (protocol.train or protocol.labelled or 1)
    if sizes.min(initial=len(y)) < needed:
        raise InvalidInputError(
            f"protocol {name} takes {protocol.queries} queries and {needed - protocol.queries} "
            f"training rows or more of each class, but the smallest class has {sizes.min()} rows"
        )
    query = draw_labelled(y, protocol.queries, random_state)
    database = train = np.setdiff1d(np.arange(len(y)), query)
    if protocol.train is not None:
        train = database[draw_labelled(y[database], protocol.train, random_state)]
    return {"query": query, "database": database, "train": train}


def _beside(
    ends: Sequence[int], train_rows: int | None, random_state: int
) -> dict[str, NDArray[np.intp]]:
    """Return the rows of a database, of queries after it, and of training after these or drawn."""
    database, query = np.arange(ends[0]), np.arange(ends[0], ends[1])
    if len(ends) > 2:
        return {"query": query, "database": database, "train": np.arange(ends[1], ends[2])}
    train = _draw_train(database, train_rows, np.random.default_rng(random_state))
    return {"query": query, "database": database, "train": train}


def draw_labelled(y: ArrayLike | SparseRows, count: int, random_state: int) -> NDArray[np.intp]:
    """Draw rows of each class; fewer rows with the same seed are among the more.

    Parameters
    ----------
    y : array-like (n,) or (n, c), dense or sparse
        As ``fit`` takes labels.
    count
        Rows of each class; a smaller class gives all of its rows.

    Returns
    -------
    intp (m,)
        Row numbers, rising.

    Raises
    ------
    InvalidInputError
        If no row has a label, or there are no rows to draw.
    """
    if count < 1:
        raise InvalidInputError(f"labelled must be 1 or more rows of each class, got {count}")
    classes = Labels.read(y, np.shape(y)[0]).indicator.tocsc()
    if not classes.shape[1]:
        raise InvalidInputError("none of the training rows has a label to keep")
    rng = np.random.default_rng(random_state)
    drawn = [
        rng.permutation(np.sort(rows))[:count]
        for rows in np.split(classes.indices, classes.indptr[1:-1])
    ]
    return np.unique(np.concatenate(drawn)).astype(np.intp)


def load_split(
    data: Path, split: Path | None = None, *, random_state: int = 0, **options: Any
) -> Split:
    """Read a data set, and its split or draw one: the first one of `load_splits`."""
    return next(load_splits(data, split, random_state=random_state, **options))


def load_splits(
    data: Path,
    split: Path | None = None,
    *,
    splits: int = 1,
    protocol: str | None = None,
    queries: int | Path | None = None,
    train_rows: int | Path | None = None,
    vectors: str | None = None,
    labels: str | None = None,
    labelled: str | int | None = None,
    graph: str | None = None,
    triplets: str | None = None,
    pairs: str | None = None,
    graph_features: str | None = None,
    random_state: int = 0,
) -> Iterator[Split]:
    """Read a data set, and its split or draw some.

    Files are of NumPy, MATLAB or TEXMEX, as `ArrayFile` reads them. An argument that names an array
    may name a file of one array instead. Arrays are looked for in the split, where they name
    training rows by their places, then in the data, where they name rows of X.

    Parameters
    ----------
    data
        A file with rows ``X`` and, where there are labels, ``y``.
    split
        A file with the row numbers that `Split.of` takes.
    splits
        How many to draw, each by a seed of its own from ``random_state`` on.
    protocol
        A key of `PROTOCOLS`, by which to draw.
    queries, train_rows
        As `draw_split` takes them, where there is neither split nor protocol; or files of other
        rows than those of the data, as SIFT1M has them. Then all rows of the data are the database,
        and labels, pairs and the like number its rows, those of the queries and those of training,
        one after the other.
    vectors, labels
        Names of the arrays of rows and labels, if they are not ``X`` and ``y``; without an ``X``
        the only array of two dimensions has the rows.
    labelled
        The training rows whose labels methods may learn from: the name of an array of row numbers,
        or of a bool for each row; or a number of rows of each class, as `draw_labelled` draws them.
    graph
        The name of an array of edges, as `load_sample` takes it.
    triplets
        The name of an array of row numbers (t, 3).
    pairs
        The name of an array of two row numbers and 1 or -1, (p, 3).
    graph_features
        The name of an array with a vector for each row of X, also in the split.
    random_state
        The seed of the draws.

    Yields
    ------
    Split

    Raises
    ------
    InvalidInputError
        Before the first one, if a file cannot be read, or does not hold what it should, or there
        are too few rows for that number of splits; or the labelled rows do not say which rows
        are neighbours and which are not.
    """
    file = ArrayFile(data)
    names = (labels, graph, triplets, pairs, graph_features)
    X = scaled_rows(file.read_vectors(vectors, [name for name in names if name is not None]))
    others = [path for path in (queries, train_rows) if isinstance(path, Path)]
    ends = [len(X)]
    for path, own in zip(others, ("test", "train"), strict=False):
        rows = scaled_rows(ArrayFile(path).read_vectors(usual=("X", own)))
        if rows.shape[1] != X.shape[1]:
            raise InvalidInputError(
                f"{path} has rows of {rows.shape[1]} dimensions, {data} of {X.shape[1]}"
            )
        X = np.concatenate([X, rows])
        ends.append(len(X))
    y: Any = None
    if labels is not None or "y" in file.shapes:
        y = _labels(find_named([file], labels or "y", flat=True)[0], len(X))
    seeds = range(random_state, random_state + splits)
    if splits < 1:
        raise InvalidInputError(f"splits must be 1 or more, got {splits}")
    if (split or protocol) and (queries is not None or train_rows is not None):
        raise InvalidInputError(
            f"{split or f'protocol {protocol}'} says which rows are queries and training rows; "
            "give no numbers of them"
        )
    drawn: list[dict[str, Any]]
    if split is not None:
        if splits > 1 or protocol is not None:
            raise InvalidInputError(f"{split} is one split; leave it out to have others drawn")
        given = ArrayFile(split)
        drawn = [{name: given.read_flat(name) for name in ROW_NUMBERS if name in given.shapes}]
    elif protocol is not None:
        drawn = [_draw_of_classes(protocol, y, seed) for seed in seeds]
        labelled = _protocol(protocol).labelled if labelled is None else labelled
    elif others:
        if not isinstance(queries, Path):
            raise InvalidInputError(f"{train_rows} has training rows; give a file of queries too")
        if splits > 1:
            raise InvalidInputError(f"{queries} has the queries, so there is one split")
        drawn = [_beside(ends, train_rows if isinstance(train_rows, int) else None, random_state)]
    else:
        drawn = [_draw_numbers(len(X), queries, train_rows, seed) for seed in seeds]  # type: ignore[arg-type]
    if splits > 1 and len({numbers["query"].tobytes() for numbers in drawn}) < splits:
        raise InvalidInputError(
            f"{len(X)} rows are too few for {splits} different splits with "
            f"{len(drawn[0]['query'])} queries; take fewer splits"
        )
    if labelled is not None and y is None:
        raise InvalidInputError(f"{data} has no labels y, of which some could be kept")

    def read(numbers: dict[str, Any], seed: int) -> Split:
        train = _row_numbers(numbers, len(X))["train"]
        named = _Named(file, None if split is None else ArrayFile(split), train, len(X))
        if isinstance(labelled, int):
            numbers["labelled"] = draw_labelled(y[train], labelled, seed)
        elif labelled is not None:
            numbers["labelled"] = named.places(labelled)
        if labelled is not None:
            _check_labelled(y[train[_row_numbers(numbers, len(X))["labelled"]]])
        return Split.of(
            X,
            y,
            numbers=numbers,
            graph=None if graph is None else named.edges(graph),
            triplets=None if triplets is None else named.relations(triplets, 3),
            pairs=None if pairs is None else named.relations(pairs, 2),
            graph_features=None if graph_features is None else named.find(graph_features)[0],
        )

    return map(read, drawn, seeds)


def _check_labelled(y: NDArray[np.integer] | SparseRows) -> None:
    """Refuse labels that make no pair of neighbours, or no pair of others."""
    sizes = np.asarray(Labels.read(y, y.shape[0]).indicator.sum(axis=0))
    if len(sizes) < 2 or sizes.max() < 2:
        raise InvalidInputError(
            f"the {y.shape[0]} labelled training rows have {len(sizes)} classes, of "
            f"{sizes.max(initial=0):.0f} rows at most; two classes are needed, one of them of two "
            "rows"
        )


@dataclass(frozen=True)
class _Named:
    """Arrays of a split and of its data, by name."""

    data: ArrayFile
    split: ArrayFile | None
    train: NDArray[np.intp]
    n: int

    def find(self, name: str, *, flat: bool = False) -> tuple[NDArray[Any], bool]:
        """Return an array, and whether it is of the split."""
        files = [self.data] if self.split is None else [self.split, self.data]
        array, file = find_named(files, name, flat=flat)
        return array, file is not None and file is self.split

    def places(self, name: str) -> NDArray[Any]:
        """Return places of training rows; other rows of the data are left out."""
        array, of_split = self.find(name, flat=True)
        rows = len(self.train) if of_split else self.n
        if array.dtype == np.bool_ and array.shape == (rows,):
            array = np.flatnonzero(array)
        if of_split:
            return array
        numbers = _check_numbers(repr(name), array, rows, "rows")
        found: NDArray[np.intp] = np.flatnonzero(np.isin(self.train, numbers))
        if not len(found):
            raise InvalidInputError(f"no training row is among the rows of {name!r}")
        return found

    def edges(self, name: str) -> SparseRows:
        """Return a graph of all rows."""
        array, of_split = self.find(name)
        if not of_split:
            return graph_of_edges(array, self.n)
        edges = graph_of_edges(array, len(self.train))
        shape = (self.n, edges.shape[1])
        return scipy.sparse.coo_array((edges.data, (self.train[edges.row], edges.col)), shape=shape)

    def relations(self, name: str, width: int) -> NDArray[Any]:
        """Return triplets of row numbers, or pairs of them with their signs."""
        array, of_split = self.find(name)
        if not of_split:
            return array
        known = _read_relations(array, width, len(self.train))
        return np.hstack([self.train[known[:, :width]], known[:, width:]])
