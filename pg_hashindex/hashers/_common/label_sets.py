"""Sums by label, and the distinct sets of labels of rows: what supervised methods compute by."""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InvalidInputError
from .rows import row_slices
from .supervision import Labels, SparseRows

__all__ = ["LabelSets", "add_by_label", "check_label_count"]

# Which sets share a label is held where there are no more pairs of them than this (48 MB), and
# worked on in blocks of as many where there are.
_SHARING_PAIRS = 1 << 22


class LabelSets:
    """The distinct sets of labels that rows have; with one label a row, the classes.

    Sets of fewer labels come first, then those of lesser labels. Memory grows with the labels of
    all rows, and never with rows or sets times labels.

    Parameters
    ----------
    labels : Labels
        Of rows that have some.

    Attributes
    ----------
    members : scipy.sparse.csr_array, float64 (g, c)
        The labels of each set.
    of_row : intp (n,)
        The set of each row.
    counts : float64 (g,)
        Rows of each set.
    single : bool
        Whether each set is one label: then so is each label one set.
    """

    def __init__(self, labels: Labels) -> None:
        indicator = labels.indicator.sorted_indices()
        lengths = np.diff(indicator.indptr)
        self.of_row = np.empty(len(lengths), np.intp)
        first: list[NDArray[np.intp]] = []
        found = 0
        for length in np.unique(lengths):
            numbers = np.flatnonzero(lengths == length)
            places = indicator.indptr[numbers][:, None] + np.arange(length)
            # As bytes, which are sorted far sooner than rows; those of big-endian numbers sort as
            # the numbers do.
            members = np.ascontiguousarray(indicator.indices[places], ">i4")
            whole = members.view(np.dtype((np.void, 4 * length)))[:, 0]
            _, chosen, of_row = np.unique(whole, return_index=True, return_inverse=True)
            self.of_row[numbers] = found + of_row
            first.append(numbers[chosen])
            found += len(chosen)
        self.members = indicator[np.concatenate(first)].astype(np.float64)
        self.counts = np.bincount(self.of_row).astype(np.float64)
        self.single = bool(lengths.max() == 1)
        self._shared: SparseRows | None = None

    @classmethod
    def of_several(cls, labels: Labels) -> "LabelSets":
        """Return the sets, of which there must be two or more.

        Raises
        ------
        InvalidInputError
        """
        result = cls(labels)
        if len(result) < 2:
            raise InvalidInputError(
                f"the {len(result.of_row)} labelled rows that are learned from all have the same "
                "labels, so there is nothing to tell apart; label other rows too"
            )
        return result

    def __len__(self) -> int:
        return len(self.counts)

    def balancing_weights(self) -> NDArray[np.float64]:
        """Return what a row of each set weighs, float64 (g,), with a mean of 1 over all rows.

        In proportion to 1 / sqrt(rows of its label), the mean over its labels: with one label a
        row, classes weigh as the root of their size.
        """
        by_label = 1 / np.sqrt(self.counts @ self.members)
        weights: NDArray[np.float64] = (self.members @ by_label) / self.members.sum(axis=1)
        weights *= self.counts.sum() / (weights @ self.counts)
        return weights

    def gram(self, weights: NDArray[np.float64]) -> SparseRows:
        """Return Y Y', sparse (c, c), sets being weighted; with one label a row it is diagonal."""
        return self.members.T @ (self.members * weights[:, None]).tocsr()

    def sharing(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values (g, k), for each set, over the sets that share a label with it, (g, k).

        Time grows with the pairs of sets that do: with one label a row there are none but a set
        and itself.
        """
        if self.single:
            return values.copy()
        if self._shared is None and self._most_pairs() <= _SHARING_PAIRS:
            self._shared = self._pairs(slice(None))
        if self._shared is not None:
            shared: NDArray[np.float64] = self._shared @ values
            return shared
        result = np.empty_like(values)
        size = max(1, _SHARING_PAIRS // len(self))
        for part in row_slices(len(self), size):
            result[part] = self._pairs(part) @ values
        return result

    def _pairs(self, part: slice) -> SparseRows:
        result = self.members[part] @ self.members.T
        result.data[:] = 1
        return result

    def _most_pairs(self) -> float:
        return float(np.square(self.members.sum(axis=0)).sum())


def add_by_label(
    sums: NDArray[np.float64], indicator: SparseRows, values: NDArray[np.floating]
) -> None:
    """Add to each label's sum (c, k) the values (n, k) of the rows that have it.

    Parameters
    ----------
    sums : float64 (c, k)
        Changed in place, and only where the rows have a label.
    indicator : scipy.sparse.csr_array (n, c)
    values : (n, k)
    """
    used, places = np.unique(indicator.indices, return_inverse=True)
    shape = (indicator.shape[0], len(used))
    narrow = scipy.sparse.csr_array((indicator.data, places, indicator.indptr), shape=shape)
    sums[used] += narrow.T @ values


def check_label_count(method: str, labels: Labels, most: int) -> None:
    """Refuse more labels than a method takes where rows have several.

    Raises
    ------
    InvalidInputError
    """
    n_rows, n_labels = labels.indicator.shape
    if n_labels > most and not labels.single:
        raise InvalidInputError(
            f"{method} takes at most {most:,} different labels where rows have several, but "
            f"{n_rows:,} rows have {n_labels:,}: labels should group rows, so use coarser ones, or "
            "leave out those of few rows; sdh, ksh and s3plh take any number"
        )
