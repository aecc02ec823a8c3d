"""Read data sets and their splits from files, or draw splits as the papers do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.supervision.labels import Labels
from ..models.vectors import SparseRows
from ..training.array_files import ArrayFile, find_named
from ..training.files import graph_of_edges
from .splits import (
    ROW_NUMBERS,
    Split,
    check_numbers,
    read_labels,
    read_relations,
    row_numbers,
    scaled_rows,
)


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
    smallest = int(sizes.min()) if len(sizes) else 0
    if smallest < needed:
        raise InvalidInputError(
            f"protocol {name} takes {protocol.queries} queries and {needed - protocol.queries} "
            f"training rows or more of each class, but the smallest class has {smallest} rows"
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
    given_rows = file.read_vectors(vectors, [name for name in names if name is not None])
    X = scaled_rows(given_rows)
    others = [path for path in (queries, train_rows) if isinstance(path, Path)]
    ends = [len(X)]
    for path, own in zip(others, ("test", "train"), strict=False):
        more = ArrayFile(path).read_vectors(usual=("X", own))
        if (more.dtype == np.uint8) != (given_rows.dtype == np.uint8):
            raise InvalidInputError(
                f"{path} has rows of {more.dtype}, {data} of {given_rows.dtype}, and uint8 is "
                "divided by 255; give both as uint8, or both as numbers of one scale"
            )
        rows = scaled_rows(more)
        if rows.shape[1] != X.shape[1]:
            raise InvalidInputError(
                f"{path} has rows of {rows.shape[1]} dimensions, {data} of {X.shape[1]}"
            )
        X = np.concatenate([X, rows])
        ends.append(len(X))
    y: Any = None
    if labels is not None or "y" in file.shapes:
        y = read_labels(find_named([file], labels or "y", flat=True)[0], len(X))
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
        train = row_numbers(numbers, len(X))["train"]
        named = _Named(file, None if split is None else ArrayFile(split), train, len(X))
        if isinstance(labelled, int):
            numbers["labelled"] = draw_labelled(y[train], labelled, seed)
        elif labelled is not None:
            numbers["labelled"] = named.places(labelled)
        if labelled is not None:
            _check_labelled(y[train[row_numbers(numbers, len(X))["labelled"]]])
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
        numbers = check_numbers(repr(name), array, rows, "rows")
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
        known = read_relations(array, width, len(self.train))
        return np.hstack([self.train[known[:, :width]], known[:, width:]])
