"""Which places true neighbours take among all rows by their codes: recall for any candidates."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...index.catalog import Ranking
from ...models import codes
from ...models.model import Model
from ...models.quantization import query_codes, weighted_query_codes

__all__ = ["CodeRanks", "rankings_of"]

# A scan keeps this many by the first terms of a distance before it orders by all of them, times
# the candidates and at the least; see the pool in sql/131_templates.sql.
_POOL = (10, 2000)
_BLOCK_ROWS = 4096
_QUERIES = 64

# Of each neighbour: rows before it, and rows at its own distance.
_Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def rankings_of(model: Model) -> tuple[Ranking, ...]:
    """Return the orders of candidates that a model can serve, the best first."""
    # Plain Hamming distance takes the levels next to 0 for far apart.
    plain: tuple[Ranking, ...] = ("hamming",) if model.levels == 2 else ()
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
        self._places: dict[Ranking, _Places] = {}
        self._rough_places: dict[Ranking, _Places] = {}
        for ranking in rankings_of(model):
            asked, weights = _query_codes(model, queries, ranking)
            self._places[ranking] = _places(asked, weights, packed, neighbours)
            if ranking != "hamming":
                # As hashindex._code_distance has it: the query's signs.
                first = [0, 3] if model.levels == 4 else [0]
                few = weights[first] if len(first) > 1 else np.ones(1, np.int64)
                self._rough_places[ranking] = _places(asked[:, first], few, packed, neighbours)

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
        if ranking in self._rough_places:
            pool = max(_POOL[0] * candidates, _POOL[1])
            hits *= _chances(self._rough_places[ranking], pool * share)
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


def _chances(places: _Places, candidates: float) -> NDArray[np.float64]:
    """Return how likely each row is among so many, where it shares its place with others."""
    before, same = places
    return np.clip((candidates - before) / np.maximum(same, 1), 0.0, 1.0)


def _query_codes(
    model: Model, queries: NDArray[np.float32], ranking: Ranking
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the weighted codes of queries that a ranking compares rows with."""
    if ranking == "asymmetric":
        return query_codes(model.project(queries), model.levels)
    own = model.encode(queries)
    if ranking == "weighted" and model.bit_weights is not None:
        return weighted_query_codes(own, model.bit_weights)
    return own[:, None], np.ones(1, np.int64)


def _places(
    asked: NDArray[np.uint8],
    weights: NDArray[np.int64],
    packed: NDArray[np.uint8],
    neighbours: NDArray[np.intp],
) -> _Places:
    """Count for each neighbour the rows before it, and those at its own distance."""
    before, same = np.zeros(neighbours.shape, np.int64), np.zeros(neighbours.shape, np.int64)
    n_bits = 8 * packed.shape[1]
    for first in range(0, len(asked), _QUERIES):
        bits = np.unpackbits(asked[first : first + _QUERIES], axis=2).astype(np.float32)
        # |x - u| of bits x and u is u + x (1 - 2 u): the distance is a constant and x times these.
        # They are whole, and their sums below 2**24, so that float32 adds them exactly.
        factors = np.einsum("k,qkn->nq", weights.astype(np.float32), 1 - 2 * bits)
        # The least that there can be counts as 0.
        start = -np.minimum(factors, 0).sum(axis=0)
        width = int(np.abs(factors).sum(axis=0).max()) + 1
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
