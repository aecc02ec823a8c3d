"""Data sets from files: queries, a database, training rows, and the ground truth."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ...errors import UNREADABLE, InvalidInputError
from ...hashers._common.supervision import Labels, SparseRows
from ...metrics.truth import (
    RelevantRows,
    relevant_by_distance,
    relevant_by_label,
    rows_of_fraction,
)
from ...models.vectors import as_rows
from ...training.sampling import number_labels

__all__ = [
    "QUERIES",
    "ROW_NUMBERS",
    "TRAIN_ROWS",
    "Split",
    "Truth",
    "TruthKind",
    "draw_split",
    "load_split",
    "scaled_rows",
]

TruthKind = Literal["label", "nearest-fraction", "nearest-k"]


@dataclass(frozen=True)
class Truth:
    """A rule for which rows of the database are relevant to a query.

    Parameters
    ----------
    kind : {"label", "nearest-fraction", "nearest-k"}
        A shared label, or being among the nearest by Euclidean distance.
    amount : float, optional
        The fraction of the database, or the number of rows, that is relevant.
    """

    kind: TruthKind
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(TruthKind):
            raise InvalidInputError(
                f"truth {self.kind!r} is unknown; use {', '.join(get_args(TruthKind))}"
            )
        if (self.amount is None) != (self.kind == "label"):
            raise InvalidInputError(f"truth by {self.kind} has amount {self.amount}")

    @property
    def name(self) -> str:
        """The name it has in results."""
        match self:
            case Truth(kind="nearest-fraction", amount=amount) if amount is not None:
                return f"nearest {100 * amount:g} %"
            case Truth(kind="nearest-k", amount=amount):
                return f"nearest {amount}"
        return "label"


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
    anchors, labelled : intp, optional
        Training rows, by their place: kernel bases, and the rows whose labels are known to methods
        that learn from few labels.
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
    _relevant: dict[Truth, RelevantRows] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, X: ArrayLike, y: ArrayLike | None = None, *, numbers: Mapping[str, ArrayLike]
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

        Raises
        ------
        InvalidInputError
            If rows, labels or row numbers are not usable, or a row is query and in the database.
        """
        rows = scaled_rows(X)
        labels = None if y is None else _labels(y, len(rows))
        places = _row_numbers(numbers, len(rows))
        query, database, train = (places[name] for name in ("query", "database", "train"))
        if len(both := np.intersect1d(query, database)):
            raise InvalidInputError(
                f"row {both[0]} is a query and in the database; a query must not find itself"
            )
        return cls(
            rows[query],
            rows[database],
            rows[train],
            None if labels is None else labels[query],
            None if labels is None else labels[database],
            None if labels is None else labels[train],
            train_places=_places(train, database, len(rows)),
            anchors=places.get("anchors"),
            labelled=places.get("labelled"),
        )

    def relevant(self, truth: Truth) -> RelevantRows:
        """Return which rows are relevant to which query, computed once.

        The truth is never whole in memory: labels are compared when lines are read, and of the
        nearest rows only the numbers are kept.

        Parameters
        ----------
        truth : Truth

        Returns
        -------
        RelevantRows (n_queries, n)

        Raises
        ------
        InvalidInputError
            If there are no labels, or no query shares one with a row of the database; or the
            amount is out of range.
        """
        if truth not in self._relevant:
            self._relevant[truth] = self._compute(truth)
        return self._relevant[truth]

    def _compute(self, truth: Truth) -> RelevantRows:
        if truth.kind == "label":
            return self._same_label()
        amount = truth.amount or 0
        by_number = truth.kind == "nearest-k"
        k = int(amount) if by_number else rows_of_fraction(amount, len(self.database))
        return relevant_by_distance(self.queries, self.database, k)

    def _same_label(self) -> RelevantRows:
        if self.query_labels is None or self.labels is None:
            raise InvalidInputError(
                "there are no labels; take nearest-fraction or nearest-k as truth"
            )
        relevant = relevant_by_label(self.query_labels, self.labels)
        if not relevant.any():
            queries, rows = (
                len(Labels.read(y, n).labelled)
                for y, n in (
                    (self.query_labels, len(self.queries)),
                    (self.labels, len(self.database)),
                )
            )
            raise InvalidInputError(
                f"none of the {len(self.queries)} queries shares a label with a row of the "
                f"database ({queries} queries and {rows} rows have one); label more rows, or take "
                "nearest-fraction or nearest-k as truth"
            )
        return relevant


def scaled_rows(X: ArrayLike) -> NDArray[np.floating]:
    """Check rows, and divide bytes by 255, floating (n, d)."""
    rows = as_rows(X)
    return rows / np.float32(255) if getattr(X, "dtype", None) == np.uint8 else rows


def _labels(y: ArrayLike | SparseRows, n: int) -> NDArray[np.integer] | SparseRows:
    if scipy.sparse.issparse(y):
        Labels.read(y, n)
        return scipy.sparse.csr_array(y)
    array: NDArray[Any] = np.asarray(y)
    if array.dtype.kind in "US" and array.ndim == 1:
        array = number_labels([name or None for name in array.astype(str).tolist()])[0]
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
        array = np.asarray(given[name])
        if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
            raise InvalidInputError(
                f"{name!r} of the split must be one or more row numbers, got {array.dtype} "
                f"{array.shape}"
            )
        # Kernel bases and labelled rows are chosen among the training rows.
        rows = n if needed else len(result["train"])
        if array.min() < 0 or array.max() >= rows:
            raise InvalidInputError(
                f"{name!r} of the split has numbers from {array.min()} to {array.max()}, but there "
                f"are {rows} {'rows' if needed else 'training rows'}"
            )
        if len(np.unique(array)) < len(array):
            raise InvalidInputError(f"{name!r} of the split has a row twice")
        result[name] = array.astype(np.intp)
    return result


def _places(train: NDArray[np.intp], database: NDArray[np.intp], n: int) -> NDArray[np.intp] | None:
    """Find the training rows in the database; None if one is not there."""
    place = np.full(n, -1, np.intp)
    place[database] = np.arange(len(database))
    found: NDArray[np.intp] = place[train]
    return found if (found >= 0).all() else None


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
    queries : int, optional
        By default 1,000, and at most a tenth of the rows.
    train_rows : int, optional
        By default 10,000; where the database has no more, all of it.
    random_state : int

    Raises
    ------
    InvalidInputError
        If rows or labels are not usable, or too few.
    """
    X = scaled_rows(X)
    n = len(X)
    n_queries = max(1, min(QUERIES, n // 10)) if queries is None else queries
    if not 1 <= n_queries < n:
        raise InvalidInputError(
            f"queries must be from 1 to one less than the rows, {n}; got {n_queries}"
        )
    n_train = min(TRAIN_ROWS if train_rows is None else train_rows, n - n_queries)
    if n_train < 2:
        raise InvalidInputError(f"train_rows must be 2 or more, got {n_train}")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(n)
    database = np.sort(order[n_queries:])
    train = np.sort(rng.choice(database, n_train, replace=False))
    numbers = {"query": np.sort(order[:n_queries]), "database": database, "train": train}
    return Split.of(X, y, numbers=numbers)


def load_split(
    data: Path,
    split: Path | None = None,
    *,
    queries: int | None = None,
    train_rows: int | None = None,
    random_state: int = 0,
) -> Split:
    """Read a data set, and its split or draw one.

    Parameters
    ----------
    data : Path
        An ``.npz`` archive with rows ``X`` and, where there are labels, ``y``.
    split : Path, optional
        An ``.npz`` archive with the row numbers that `Split.of` takes.
    queries, train_rows, random_state : int, optional
        As `draw_split` takes them, where no split is given.

    Raises
    ------
    InvalidInputError
        If a file cannot be read, or does not hold what it should.
    """
    arrays = _read(data, ("X", "y"))
    if "X" not in arrays:
        raise InvalidInputError(f"{data} has no array X; put the rows there, and their labels in y")
    X, y = arrays["X"], arrays.get("y")
    if split is None:
        return draw_split(X, y, queries=queries, train_rows=train_rows, random_state=random_state)
    if queries is not None or train_rows is not None:
        raise InvalidInputError(
            f"{split} says which rows are queries and training rows; give no numbers of them"
        )
    return Split.of(X, y, numbers=_read(split, ROW_NUMBERS))


def _read(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read only these arrays, since others may hold objects that NumPy refuses to read."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InvalidInputError(f"{path} is a single array; use an .npz archive")
            return {name: loaded[name] for name in names if name in loaded.files}
    except InvalidInputError:
        raise
    except UNREADABLE as error:
        raise InvalidInputError(f"cannot read arrays from {path}: {error}") from error
