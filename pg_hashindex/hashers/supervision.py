"""What rows are known to be: labels, pairs and triplets, checked and brought into one form."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from .rows import RowSource

__all__ = ["Labels", "Supervision", "check_classes", "labelled_rows"]

#: scipy.sparse.csr_array, which has no types of its own.
SparseRows: TypeAlias = Any

UNLABELLED = -1
_NONE = np.empty(0, np.intp)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of rows, one or several each.

    Attributes
    ----------
    indicator : scipy.sparse.csr_array, float32 (n, c)
        1 where a row has a label; rows without any are unlabelled. Sums by class are products
        with it, for one label a row and for several alike, and cost no more than the labels.
    """

    indicator: SparseRows

    @classmethod
    def read(cls, y: ArrayLike, n_rows: int) -> "Labels":
        """Check labels as ``fit`` takes them.

        Parameters
        ----------
        y : array-like (n,) of integers, or (n, c) of 0 and 1, dense or of scipy.sparse
            -1, or a line of zeros, marks an unlabelled row.
        n_rows : int
            The n that is asked for.

        Raises
        ------
        InvalidInputError
            If y has another shape or other values.
        """
        if scipy.sparse.issparse(y):
            return cls._from_sparse(scipy.sparse.csr_array(y), n_rows)
        try:
            array = np.asarray(y)
        except ValueError as error:
            raise InvalidInputError(f"labels cannot be read as an array: {error}") from error
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
        # A copy, so that the caller's own matrix keeps its entries as they are.
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
        # Columns that no row has would be classes of no row.
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
        """How many labels there are."""
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
        """Return the class of each row, intp (n,), -1 for none.

        Raises
        ------
        InvalidInputError
            If a row has several labels.
        """
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

    def same(self, rows: NDArray[np.integer] | slice) -> NDArray[np.bool_]:
        """Tell with which rows some of them share a label, bool (len(rows), n)."""
        shared = (self.indicator[rows] @ self.indicator.T).toarray()
        result: NDArray[np.bool_] = shared > 0
        return result


@dataclass(frozen=True, eq=False)
class Supervision:
    """All that is known about training rows beside their vectors.

    Attributes
    ----------
    labels : Labels, optional
    pairs : intp (p, 3), optional
        Two row numbers, and 1 for neighbours or -1 for others.
    triplets : intp (t, 3), optional
        Three row numbers: the first row is nearer to the second than to the third.
    """

    labels: Labels | None = None
    pairs: NDArray[np.intp] | None = None
    triplets: NDArray[np.intp] | None = None

    def related_rows(self) -> NDArray[np.intp]:
        """Return the numbers of the rows that pairs or triplets name, rising."""
        named = [known[:, :width] for known, width in self._relations() if known is not None]
        return np.unique(np.concatenate([rows.ravel() for rows in named])) if named else _NONE

    def restricted_to(self, rows: NDArray[np.integer]) -> "Supervision":
        """Return what is known about some rows, numbered anew in their order.

        Parameters
        ----------
        rows : integer (m,)
            Distinct row numbers, rising, among them all `related_rows`.
        """
        pairs, triplets = (
            None
            if known is None
            else np.hstack([np.searchsorted(rows, known[:, :width]), known[:, width:]])
            for known, width in self._relations()
        )
        labels = None if self.labels is None else self.labels.take(rows)
        return Supervision(labels, pairs, triplets)

    def _relations(self) -> tuple[tuple[NDArray[np.intp] | None, int], ...]:
        return (self.pairs, 2), (self.triplets, 3)

    @classmethod
    def read(
        cls,
        n_rows: int,
        y: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        triplets: ArrayLike | None = None,
    ) -> "Supervision":
        """Check what ``fit`` takes.

        Raises
        ------
        InvalidInputError
            If shapes, row numbers or values are not usable.
        """
        return cls(
            None if y is None else Labels.read(y, n_rows),
            None if pairs is None else _read_pairs(pairs, n_rows),
            None if triplets is None else _read_triplets(triplets, n_rows),
        )


def _read_pairs(pairs: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    array = _read_integers("pairs", pairs)
    _check_row_numbers("pairs", array[:, :2], n_rows)
    if (bad := ~np.isin(array[:, 2], (1, -1))).any():
        place = int(np.argmax(bad))
        raise InvalidInputError(
            f"the third number of a pair is 1 for neighbours or -1 for others; pair {place} has "
            f"{array[place, 2]}"
        )
    return array


def _read_triplets(triplets: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    array = _read_integers("triplets", triplets)
    _check_row_numbers("triplets", array, n_rows)
    return array


def _read_integers(what: str, given: ArrayLike) -> NDArray[np.intp]:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InvalidInputError(f"{what} cannot be read as an array: {error}") from error
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


def check_classes(labels: Labels) -> None:
    """Refuse labels that tell no rows apart.

    Raises
    ------
    InvalidInputError
        If no row has a label, or all that have one share it.
    """
    n_labelled = len(labels.labelled)
    if not n_labelled:
        raise InvalidInputError(
            f"none of the {labels.indicator.shape[0]} rows has a label; label some first"
        )
    if labels.n_classes < 2:
        raise InvalidInputError(
            f"all {n_labelled} labelled rows have the same label; two or more are needed"
        )


def labelled_rows(rows: RowSource, labels: Labels) -> tuple[RowSource, Labels]:
    """Leave out unlabelled rows, for methods that have no use for them.

    Returns
    -------
    RowSource, Labels
        Of the labelled rows, in their order.

    Raises
    ------
    InvalidInputError
        If fewer than two classes are left.
    """
    check_classes(labels)
    numbers = labels.labelled
    if len(numbers) == rows.n_rows:
        return rows, labels
    return rows.restricted_to(numbers), labels.take(numbers)
