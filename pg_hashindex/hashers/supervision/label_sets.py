"""Sums by label, and the distinct label sets of rows, for supervised methods."""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...models.vectors import SparseRows
from ..numerics.rows import row_slices
from .labels import Labels

# Up to this many pairs of sets that share a label are held (48 MB); more are computed in blocks of
# this size.
_SHARING_PAIRS = 1 << 22


class LabelSets:
    """The distinct label sets of rows; with one label a row, the classes.

    Sets are ordered by their number of labels, then by their labels. Memory grows with the labels
    of all rows, not with rows x labels or sets x labels.

    ``members``, sparse (g, c), are the labels of each set, ``of_row`` (n,) the set of each row, and
    ``counts`` (g,) the rows of each set. It is ``single`` if each set is a single label. Each row
    has a label.
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
            # Compare rows as bytes, which is much faster. Big-endian numbers sort like their bytes.
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
        """Return the sets, and refuse fewer than two."""
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
        """Return the weight of a row of each set, float64 (g,), with a mean of 1 over all rows.

        The weight is in proportion to 1 / sqrt(rows of its label), averaged over its labels. So
        with one label a row, a class weighs the root of its size.
        """
        by_label = 1 / np.sqrt(self.counts @ self.members)
        weights: NDArray[np.float64] = (self.members @ by_label) / self.members.sum(axis=1)
        weights *= self.counts.sum() / (weights @ self.counts)
        return weights

    def gram(self, weights: NDArray[np.float64]) -> SparseRows:
        """Return Y Y' with weighted sets, sparse (c, c); it is diagonal with one label a row."""
        return self.members.T @ (self.members * weights[:, None]).tocsr()

    def sharing(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values (g, k), for each set, over the sets that share a label with it, (g, k).

        Time grows with the pairs of sets that share a label. With one label a row, each set shares
        with itself only.
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

    Sums change in place; labels that no row has are not touched. The indicator is sparse (n, c).
    """
    used, places = np.unique(indicator.indices, return_inverse=True)
    shape = (indicator.shape[0], len(used))
    narrow = scipy.sparse.csr_array((indicator.data, places, indicator.indptr), shape=shape)
    sums[used] += narrow.T @ values


def check_label_count(method: str, labels: Labels, most: int) -> None:
    """Refuse more labels than a method takes if rows have several."""
    n_rows, n_labels = labels.indicator.shape
    if n_labels > most and not labels.single:
        raise InvalidInputError(
            f"{method} takes at most {most:,} different labels where rows have several, but "
            f"{n_rows:,} rows have {n_labels:,}; use coarser labels, leave out rare ones, or use "
            "sdh, ksh or s3plh, which take any number"
        )
