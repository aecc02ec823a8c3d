"""Which places true neighbours take among all rows by their codes: recall for any candidates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .. import codes
from ..catalog import Ranking
from ..model import Model

__all__ = ["CodeRanks", "rankings_of"]

# What sql/125_weights.sql rounds the weights of bits to.
_STEPS = 15
# What hashindex.pool keeps by Hamming distance before it orders by weights.
_POOL = (10, 2000)
_BLOCK_ROWS = 4096
_QUERIES = 64


def rankings_of(model: Model) -> tuple[Ranking, ...]:
    """Return the orders of candidates that a model can serve, the best first."""
    plain: tuple[Ranking, ...] = ("hamming",)
    if model.network is None:
        plain = ("asymmetric", *plain)
    return plain if model.bit_weights is None else ("weighted", *plain)


class CodeRanks:
    """Places of the true neighbours of queries in each order of all codes.

    Parameters
    ----------
    model : Model
    queries : float32 (m, d)
    packed : uint8 (n, ceil(n_bits / 8))
        Codes of the rows.
    neighbours : intp (m, j)
        Numbers of rows.
    right : bool or float64 (m, j)
        Which of them are right answers, or for how many right ones each stands.
    k : int
        Answers of a query, at most j.
    """

    def __init__(
        self,
        model: Model,
        queries: NDArray[np.float32],
        packed: NDArray[np.uint8],
        neighbours: NDArray[np.intp],
        right: NDArray[np.bool_] | NDArray[np.float64],
        k: int,
    ) -> None:
        self.n_rows = len(packed)
        self._right, self._k = right, min(k, neighbours.shape[1])
        bits = codes.unpack(model.encode(queries), model.n_bits).astype(np.float32)
        self._places: dict[Ranking, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for ranking in rankings_of(model):
            self._places[ranking] = _places(
                _weights(model, queries, ranking), bits, packed, neighbours
            )

    @property
    def rankings(self) -> Sequence[Ranking]:
        """The orders there are, the best first."""
        return tuple(self._places)

    def recall(self, candidates: float, ranking: Ranking, share: float = 1) -> float:
        """Return the recall of an exact search of all codes.

        Parameters
        ----------
        candidates : float
        ranking : {"hamming", "asymmetric", "weighted"}
        share : float
            Part of the table that the rows are: as many of the candidates are looked for among
            them.

        Returns
        -------
        float
            Expected over the order of ties.
        """
        hits = _chances(self._places[ranking], candidates * share)
        if ranking != "hamming":
            # Before weights order them, a pool is kept by Hamming distance.
            pool = max(_POOL[0] * candidates, _POOL[1])
            hits *= _chances(self._places["hamming"], pool * share)
        found = np.minimum((hits * self._right).sum(axis=1), self._k)
        return float(found.mean() / self._k)

    def least(
        self, recall: float, ranking: Ranking, choices: Sequence[int], share: float = 1
    ) -> int:
        """Return the least number of candidates that reaches a recall, or the last choice.

        Parameters
        ----------
        recall : float
        ranking, share
            As `recall`.
        choices : sequence of int
            Rising.
        """
        for candidates in choices:
            if self.recall(candidates, ranking, share) >= recall:
                return candidates
        return choices[-1]


def _chances(
    places: tuple[NDArray[np.int64], NDArray[np.int64]], candidates: float
) -> NDArray[np.float64]:
    """Return how likely each row is among so many, where it shares its place with others."""
    before, same = places
    return np.clip((candidates - before) / np.maximum(same, 1), 0.0, 1.0)


def _weights(model: Model, queries: NDArray[np.float32], ranking: Ranking) -> NDArray[np.float32]:
    """Return whole weights of bits for each query, (m, n_bits)."""
    shape = (len(queries), model.n_bits)
    if ranking == "hamming":
        return np.ones(shape, np.float32)
    if ranking == "weighted":
        weights = np.broadcast_to(np.asarray(model.bit_weights, np.float32), shape)
    else:
        weights = np.abs(model.project(queries)).astype(np.float32)
    greatest = weights.max(axis=1, keepdims=True)
    weights = np.where(greatest > 0, weights, 1)
    result: NDArray[np.float32] = np.rint(_STEPS * weights / np.where(greatest > 0, greatest, 1))
    return result.astype(np.float32)


def _places(
    weights: NDArray[np.float32],
    bits: NDArray[np.float32],
    packed: NDArray[np.uint8],
    neighbours: NDArray[np.intp],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count for each neighbour the rows before it, and those at its own distance."""
    before, same = np.zeros(neighbours.shape, np.int64), np.zeros(neighbours.shape, np.int64)
    n_bits = bits.shape[1]
    width = int(weights.sum(axis=1).max()) + 1
    for first in range(0, len(bits), _QUERIES):
        part = slice(first, first + _QUERIES)
        # |x - q| of bits x and q is q + x (1 - 2 q).
        factors = (weights[part] * (1 - 2 * bits[part])).T
        start = (weights[part] * bits[part]).sum(axis=1)
        n_part = len(start)
        counts = np.zeros(n_part * width, np.int64)
        offsets = np.arange(n_part) * width
        for block in range(0, len(packed), _BLOCK_ROWS):
            of_rows = codes.unpack(packed[block : block + _BLOCK_ROWS], n_bits)
            far = (of_rows.astype(np.float32) @ factors + start).astype(np.int64) + offsets
            counts += np.bincount(far.ravel(), minlength=len(counts))
        table = counts.reshape(n_part, width)
        up_to = table.cumsum(axis=1)
        for row in range(n_part):
            of_rows = codes.unpack(packed[neighbours[first + row]], n_bits)
            far = (of_rows.astype(np.float32) @ factors[:, row] + start[row]).astype(np.int64)
            same[first + row] = table[row, far]
            before[first + row] = up_to[row, far] - table[row, far]
    return before, same
