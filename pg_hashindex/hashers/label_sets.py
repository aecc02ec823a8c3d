"""The distinct sets of labels that rows have: what supervised methods compute by, not by row."""

import numpy as np
from numpy.typing import NDArray

from .supervision import Labels

__all__ = ["LabelSets"]

_BLOCK_ROWS = 4096


class LabelSets:
    """The distinct sets of labels that rows have; with one label a row, the classes.

    Attributes
    ----------
    members : scipy.sparse.csr_array, float64 (g, c)
        The labels of each set.
    of_row : intp (n,)
        The set of each row.
    counts : float64 (g,)
        Rows of each set.
    """

    def __init__(self, labels: Labels) -> None:
        indicator = labels.indicator
        bits = np.empty((indicator.shape[0], (indicator.shape[1] + 7) // 8), np.uint8)
        for start in range(0, len(bits), _BLOCK_ROWS):
            dense = indicator[start : start + _BLOCK_ROWS].toarray() > 0
            bits[start : start + _BLOCK_ROWS] = np.packbits(dense, axis=1)
        whole = bits.view(np.dtype((np.void, bits.shape[1])))[:, 0]
        _, first, self.of_row = np.unique(whole, return_index=True, return_inverse=True)
        self.members = indicator[first].astype(np.float64)
        self.counts = np.bincount(self.of_row).astype(np.float64)

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

    def sharing(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values (g, k), for each set, over the sets that share a label with it, (g, k)."""
        result = np.empty_like(values)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = self.members[start : start + _BLOCK_ROWS] @ self.members.T
            block.data[:] = 1
            result[start : start + _BLOCK_ROWS] = block @ values
        return result
