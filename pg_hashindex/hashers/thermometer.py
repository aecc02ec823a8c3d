"""Thermometer: a few cuts of each coordinate, without any rotation."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.codes import hamming_distances, pack
from ..models.layers import Layer, shift
from ..models.model import MAX_BITS, Metric
from ..models.quantization import quantize
from .base import Hasher
from .numerics.rows import RowSource
from .supervision.labels import Supervision

# The rows that the cuts are chosen by, and their numbers if they are long; the queries among them.
_SAMPLE_ROWS = 5_000
_SAMPLE_VALUES = 2_000_000
_LEAST_ROWS = 1_000
_QUERIES = 100
_K = 10
_RECALL = 0.98
# A candidate takes a vector of 32 bits a dimension, and 16 codes of one a dimension and cut.
_READ = 32 // 16


@dataclass(kw_only=True, eq=False, repr=False)
class Thermometer(Hasher):
    """One bit for each coordinate and cut: whether the coordinate less its mean is above the cut.

    A thermometer code of a number has a bit for each of t rising cuts, so the Hamming distance of
    two codes is the number of cuts between the numbers: that of two rows is the Manhattan distance
    of their coordinates' levels. Manhattan hashing (Kong, Li & Guo, SIGIR 2012) ranks by that
    distance too, of PCA or ITQ projections whose levels it writes as natural binary numbers, with
    cuts by k-means for each projection. That takes log2(t + 1) bits instead of t, which no Hamming
    distance can compare. Here the coordinates are not rotated and all have the same cuts, multiples
    of the standard deviation of all of them: what is learned is a mean and one number.

    It suits embeddings, whose coordinates carry about as much each. Where they hang together, as
    those of image descriptors do, ITQ with cuts needs fewer candidates.

    Parameters
    ----------
    n_bits
        Bits of a code: 1 to 8 times the dimension of the rows. None takes the cuts whose candidates
        are read with the fewest bits, by the rows themselves: for each candidate that plain Hamming
        distance needs at recall .98, 32 bits a dimension of its vector, and about 16 codes that
        pgvector's graph compares. ``n_bits_`` is the dimension.
    """

    method = "thermometer"
    paper_parameters = None

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        if self.n_bits_ not in range(rows.dimension, 8 * rows.dimension + 1, rows.dimension):
            raise InvalidInputError(
                f"thermometer has a bit for each dimension and cut, so n_bits must be 1 to 8 times "
                f"{rows.dimension}, or left out; got {self.n_bits}"
            )
        self.n_bits_ = rows.dimension
        mean = rows.mean()
        places = _every(np.arange(rows.n_rows), _SAMPLE_ROWS)
        sample = rows.rows(_every(places, max(_LEAST_ROWS, _SAMPLE_VALUES // rows.dimension)))
        self._sample, self._mean = sample, mean
        self._chosen: dict[Metric, int] = {}
        known = self.n_bits is not None or len(sample) <= _K + 1
        self._known_cuts = self.default_cuts(self.n_bits_) if known else None
        return [shift(-mean)]

    def default_bits(self, dimension: int) -> int:  # noqa: D102
        return dimension

    def default_cuts(self, n_projections: int) -> int:  # noqa: D102
        if self.n_bits is not None:
            return int(self.n_bits) // n_projections
        return max(1, min(3, MAX_BITS // n_projections))

    def _own_cuts(self, metric: Metric) -> int:
        return self.chosen_cuts(metric)

    def chosen_cuts(self, metric: Metric) -> int:  # noqa: D102
        if self._known_cuts is not None:
            return self._known_cuts
        if metric not in self._chosen:
            self._chosen[metric] = self._best_cuts(metric)
        return self._chosen[metric]

    def _n_bits_again(self, n_cuts: int) -> int:
        return self.n_bits_ * n_cuts

    def _best_cuts(self, metric: Metric) -> int:
        n = len(self._sample)
        asking = np.arange(1, min(_QUERIES, n) + 1) * max(1, n // _QUERIES) - 1
        near = _neighbours(self._sample, asking, metric)
        projections = (self._sample - self._mean).astype(np.float32)
        costs: list[int] = []
        chosen = 1
        # Until the cost has risen twice. One more cut takes space, and has to save a tenth: SQL's
        # hashindex._choose_cuts does the same.
        for cuts in range(1, min(8, MAX_BITS // self.n_bits_) + 1):
            if (len(costs) > 2 and costs[-3] < costs[-2] < costs[-1]) or (
                costs and _K * (_READ + cuts) >= min(costs)
            ):
                break
            packed = pack(quantize(projections, self._cuts(cuts, metric)))
            costs.append(_enough(packed, asking, near) * (_READ + cuts))
            if 10 * costs[-1] < 9 * costs[chosen - 1]:
                chosen = cuts
        return chosen


def _every(places: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return some of the places, evenly spaced, and no more than `most`."""
    step = -(-len(places) // most)
    return places[step - 1 :: step]


def _neighbours(
    X: NDArray[np.floating], asking: NDArray[np.intp], metric: Metric
) -> list[NDArray[np.intp]]:
    """Return the ten rows nearest to each of some rows, and what ties with the tenth."""
    rows = X.astype(np.float64)
    squares = np.square(rows).sum(axis=1)
    far = -rows[asking] @ rows.T
    if metric != "ip":
        far += squares / 2
    far[np.arange(len(asking)), asking] = np.inf
    last = np.partition(far, _K - 1, axis=1)[:, [_K - 1]]
    return [np.flatnonzero(line) for line in far <= last + 1e-12 * squares.max()]


def _enough(
    packed: NDArray[np.uint8], asking: NDArray[np.intp], near: list[NDArray[np.intp]]
) -> int:
    """Return the fewest candidates by Hamming distance that hold enough neighbours of rows."""
    before, same = [], []
    for query, places in zip(asking, near, strict=True):
        line = hamming_distances(packed[[query]], packed)[0]
        others = np.sort(np.delete(line, query))
        before.append(np.searchsorted(others, line[places]))
        same.append(np.searchsorted(others, line[places], "right") - before[-1])

    def recall(candidates: int) -> float:
        hits = (
            np.clip((candidates - b) / s, 0, 1).sum() for b, s in zip(before, same, strict=True)
        )
        return sum(min(_K, float(found)) for found in hits) / (_K * len(asking))

    # Any order of equal distances is as likely, so the recall is that expected.
    return bisect_left(range(len(packed)), _RECALL - 1e-9, lo=_K, hi=len(packed) - 1, key=recall)
