"""Supervision of training rows: labels, pairs, triplets and graphs, in one checked form."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.vectors import SparseRows, as_labels, as_rows
from ..numerics.rows import RowSource
from .relations import read_graph, read_pairs, read_triplets

UNLABELLED = -1
_EVERY = slice(None)
_NONE = np.empty(0, np.intp)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of rows, one or several each.

    ``indicator``, sparse float32 (n, c), is 1 if a row has a label; rows of zeros are unlabelled.
    Sums by class are products with it, for one label a row and for several, and take time in the
    number of labels.
    """

    indicator: SparseRows

    @classmethod
    def read(cls, y: ArrayLike, n_rows: int) -> "Labels":
        """Check labels as ``fit`` takes them: integers (n,), or 0 and 1 (n, c), dense or sparse.

        A dense column (n, 1) is one label a row. -1, or a line of zeros, marks an unlabelled row.
        """
        if scipy.sparse.issparse(y):
            return cls._from_sparse(scipy.sparse.csr_array(y), n_rows)
        array = as_labels(y)
        if array.ndim not in (1, 2):
            raise InvalidInputError(
                "labels must be integers of shape (n,), or 0 and 1 of shape (n, c), got shape "
                f"{array.shape}"
            )
        if len(array) != n_rows:
            raise InvalidInputError(f"there are {len(array)} labels for {n_rows} rows")
        if array.dtype.kind not in "iub":
            raise InvalidInputError(
                f"labels must be integers, got an array of {array.dtype}; number the classes "
                "first, for instance by np.unique(labels, return_inverse=True)[1]"
            )
        if array.ndim == 1:
            return cls._from_numbers(array)
        return cls._from_sparse(scipy.sparse.csr_array(array), n_rows)

    @classmethod
    def _from_sparse(cls, given: SparseRows, n_rows: int) -> "Labels":
        if given.shape[0] != n_rows:
            raise InvalidInputError(f"there are {given.shape[0]} labels for {n_rows} rows")
        # Copy, since the steps below change the matrix in place.
        indicator = given.copy()
        indicator.sum_duplicates()
        indicator.eliminate_zeros()
        if (bad := indicator.data != 1).any():
            place = int(np.argmax(bad))
            row = int(np.searchsorted(indicator.indptr, place, side="right")) - 1
            raise InvalidInputError(
                f"labels of shape (n, c) must be 0 or 1, but row {row}, column "
                f"{indicator.indices[place]} is {indicator.data[place]}"
            )
        # Leave out columns without any row: they are not classes.
        return cls(indicator.astype(np.float32)[:, np.unique(indicator.indices)])

    @classmethod
    def _from_numbers(cls, numbers: NDArray[np.integer]) -> "Labels":
        if len(numbers) and numbers.min() < UNLABELLED:
            raise InvalidInputError(
                f"labels must be 0 or more, or {UNLABELLED} for an unlabelled row, but row "
                f"{int(numbers.argmin())} has {numbers.min()}"
            )
        labelled = np.flatnonzero(numbers != UNLABELLED)
        classes, places = np.unique(numbers[labelled], return_inverse=True)
        ones = np.ones(len(labelled), np.float32)
        shape = (len(numbers), len(classes))
        return cls(scipy.sparse.csr_array((ones, (labelled, places)), shape=shape))

    @property
    def n_classes(self) -> int:
        """The number of different labels."""
        return int(self.indicator.shape[1])

    @property
    def labelled(self) -> NDArray[np.intp]:
        """The numbers of the rows that have a label, rising."""
        result: NDArray[np.intp] = np.flatnonzero(np.diff(self.indicator.indptr))
        return result

    @property
    def single(self) -> bool:
        """Whether no row has more than one label."""
        return bool((np.diff(self.indicator.indptr) <= 1).all())

    def numbers(self) -> NDArray[np.intp]:
        """Return the class of each row, intp (n,), -1 for none; refuse several labels a row."""
        counts = np.diff(self.indicator.indptr)
        if (counts > 1).any():
            raise InvalidInputError(
                f"row {int(np.argmax(counts > 1))} has {counts.max()} labels; this method takes "
                "one a row"
            )
        result = np.full(len(counts), UNLABELLED, np.intp)
        result[counts == 1] = self.indicator.indices
        return result

    def take(self, rows: NDArray[np.integer]) -> "Labels":
        """Return the labels of some rows, with the same classes."""
        return Labels(self.indicator[rows])

    def hidden(self, rows: NDArray[np.integer]) -> "Labels":
        """Return the labels without those of some rows, with the same classes."""
        indicator = self.indicator.copy()
        line_of = np.repeat(np.arange(indicator.shape[0]), np.diff(indicator.indptr))
        indicator.data[np.isin(line_of, rows)] = 0
        indicator.eliminate_zeros()
        return Labels(indicator)

    def same(
        self, rows: NDArray[np.integer] | slice, others: NDArray[np.integer] | slice = _EVERY
    ) -> NDArray[np.bool_]:
        """Return which rows share a label with which others, bool (len(rows), len(others))."""
        shared = (self.indicator[rows] @ self.indicator[others].T).toarray()
        result: NDArray[np.bool_] = shared > 0
        return result


@dataclass(frozen=True, eq=False)
class Supervision:
    """Everything that is known about training rows besides their vectors, as `Hasher.fit` takes it.

    Pairs are intp (p, 3), triplets (t, 3). The graph is sparse float32 (n, m) with weights above 0;
    after `read` each object has an edge, after `restricted_to` some objects may have none.
    ``graph_features`` (n, k) are vectors to make a graph from, instead of the rows.
    """

    labels: Labels | None = None
    pairs: NDArray[np.intp] | None = None
    triplets: NDArray[np.intp] | None = None
    graph: SparseRows | None = None
    graph_features: NDArray[np.floating] | None = None

    def related_rows(self) -> NDArray[np.intp]:
        """Return the numbers of the rows that pairs or triplets name, rising."""
        named = [known[:, :width] for known, width in self._relations() if known is not None]
        return np.unique(np.concatenate([rows.ravel() for rows in named])) if named else _NONE

    def restricted_to(self, rows: NDArray[np.integer]) -> "Supervision":
        """Return what is known about some rows, rising, with all `related_rows`; renumber them."""
        pairs, triplets = (
            None
            if known is None
            else np.hstack([np.searchsorted(rows, known[:, :width]), known[:, width:]])
            for known, width in self._relations()
        )
        labels = None if self.labels is None else self.labels.take(rows)
        graph = None if self.graph is None else self.graph[rows]
        features = None if self.graph_features is None else self.graph_features[rows]
        return Supervision(labels, pairs, triplets, graph, features)

    def _relations(self) -> tuple[tuple[NDArray[np.intp] | None, int], ...]:
        return (self.pairs, 2), (self.triplets, 3)

    @classmethod
    def read(
        cls,
        n_rows: int,
        y: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        triplets: ArrayLike | None = None,
        graph: ArrayLike | SparseRows | None = None,
        graph_features: ArrayLike | None = None,
    ) -> "Supervision":
        """Check what ``fit`` takes."""
        if graph is not None and graph_features is not None:
            raise InvalidInputError("give either a graph, or features to make one from, not both")
        features = None
        if graph_features is not None:
            features = as_rows(graph_features)
            if len(features) != n_rows:
                raise InvalidInputError(
                    f"there are {len(features)} rows of features for the graph of {n_rows} rows"
                )
        return cls(
            None if y is None else Labels.read(y, n_rows),
            None if pairs is None else read_pairs(pairs, n_rows),
            None if triplets is None else read_triplets(triplets, n_rows),
            None if graph is None else read_graph(graph, n_rows),
            features,
        )


def check_classes(labels: Labels) -> None:
    """Refuse labels that do not distinguish any rows."""
    n_labelled = len(labels.labelled)
    if not n_labelled:
        raise InvalidInputError(
            f"none of the {labels.indicator.shape[0]} rows has a label; label some first"
        )
    if labels.n_classes < 2:
        some_unlabelled = n_labelled < labels.indicator.shape[0]
        hint = ", and -1 means no label: number classes from 0" if some_unlabelled else ""
        raise InvalidInputError(
            f"all {n_labelled} labelled rows have the same label; two or more are needed{hint}"
        )


def labelled_rows(rows: RowSource, labels: Labels | None) -> tuple[RowSource, Labels]:
    """Leave out unlabelled rows, for methods that do not use them; two classes must be left."""
    assert labels is not None  # noqa: S101  (`Hasher.fit` asks for what a method learns from)
    check_classes(labels)
    numbers = labels.labelled
    if len(numbers) == rows.n_rows:
        return rows, labels
    return rows.restricted_to(numbers), labels.take(numbers)
