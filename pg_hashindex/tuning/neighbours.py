"""The true neighbours of queries among rows that come in blocks."""

import numpy as np
from numpy.typing import NDArray

from ..model import Metric

__all__ = ["NearestRows"]

# Rows kept beyond the k-th, of which those at its distance are as good.
_MORE = 16
# Of the distance's scale: what float32 products are off by.
_ROUNDING = 1e-6


class NearestRows:
    """Find the k nearest rows of each query by the exact distance.

    Parameters
    ----------
    queries : float32 (m, d)
    k : int
    metric : {"l2", "cosine", "ip"}

    Attributes
    ----------
    n_rows : int
        Seen so far.
    """

    def __init__(self, queries: NDArray[np.float32], k: int, metric: Metric) -> None:
        self.k, self.n_rows = k, 0
        self._metric: Metric = metric
        self._queries = queries if metric != "cosine" else _unit(queries)
        self._far = np.full((len(queries), 0), np.inf)
        self._numbers = np.full((len(queries), 0), -1)
        self._scale = np.zeros(len(queries))

    def add(self, rows: NDArray[np.float32]) -> None:
        """See more rows (b, d); they are numbered on."""
        far, scale = self._distances(rows)
        self._scale = np.maximum(self._scale, scale)
        numbers = np.broadcast_to(np.arange(len(rows)) + self.n_rows, far.shape)
        self.n_rows += len(rows)
        far = np.concatenate([self._far, far], axis=1)
        numbers = np.concatenate([self._numbers, numbers], axis=1)
        most = min(self.k + _MORE, far.shape[1])
        # In order of the rows among equals, as far as the partition does not choose.
        places = np.argpartition(far, most - 1, axis=1)[:, :most]
        places.sort(axis=1)
        near = np.take_along_axis(far, places, axis=1)
        order = np.argsort(near, axis=1, kind="stable")
        self._far = np.take_along_axis(near, order, axis=1)
        self._numbers = np.take_along_axis(
            np.take_along_axis(numbers, places, axis=1), order, axis=1
        )

    def found(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the nearest rows, and which of them are right answers.

        Returns
        -------
        numbers : intp (m, j)
            k or a few more, the nearest first.
        right : bool (m, j)
            Those no farther than the k-th: of rows at its distance any will do.
        """
        last = self._far[:, [min(self.k, self._far.shape[1]) - 1]]
        return self._numbers, self._far <= last + _ROUNDING * self._scale[:, None]

    def _distances(
        self, rows: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what orders rows (m, b), and its scale for each query (m,)."""
        if self._metric == "cosine":
            units = _unit(rows)
            far = -(self._queries @ units.T).astype(np.float64)
            # pgvector's distance to a row of zeros is NaN, the last of all.
            far[:, ~units.any(axis=1)] = np.inf
            return far, np.ones(len(far))
        products = (self._queries @ rows.T).astype(np.float64)
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        own = np.einsum("ij,ij->i", self._queries, self._queries, dtype=np.float64)
        if self._metric == "ip":
            return -products, np.sqrt(own * squares.max(initial=0))
        return squares - 2 * products, own + squares.max(initial=0)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    result: NDArray[np.float32] = (rows / np.maximum(lengths, 1e-30)[:, None]).astype(np.float32)
    return result
