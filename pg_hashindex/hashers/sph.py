"""SpH: spherical hashing (Heo, Lee, He, Chang & Yoon, CVPR 2012)."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.layers import Layer, rbf, shift, squared_distances
from .base import Hasher
from .numerics.kernels import check_size
from .numerics.rows import RowSource
from .parameters import integer
from .supervision.labels import Supervision

# Tolerances of the mean and of the deviation of overlaps, relative to a quarter, as in the paper.
_MEAN, _DEVIATION = 0.10, 0.15
# Balls with a squared radius above this multiple of the mean squared distance are planes: the rows
# are too few to share as they ought to.
_FAR = 1e6
# Rows whose mean a first pivot is.
_ROWS_PER_PIVOT = 5


@dataclass(kw_only=True, eq=False, repr=False)
class SpH(Hasher):
    """Balls that each hold half of the rows, and each two of which share a quarter.

    A bit says whether a row is in a ball: nearer to pivot p_k than t_k. On a sample of m rows, the
    paper's iterative optimization moves pivots and radii by turns: t_k becomes the median distance
    to p_k, and with o_ij the rows that balls i and j share,

        p_i gains the mean over j of (o_ij - m / 4) / (m / 4) (p_i - p_j) / 2

    until overlaps are within a tenth of m / 4 in the mean, and deviate by 15 % of it. The layers
    are those of a kernel: exp(-distance^2 / t) is above exp(-t_k^2 / t) in the ball, t being the
    mean of the t_k^2.

    Differences from the paper: the first pivots are means of 5 random rows each, not random rows,
    so there may be more bits than rows; equal rows count once; the round nearest to both limits is
    kept. Searches rank codes as all codes here, by Hamming distance or by the query's projection;
    `bench hash` also ranks by the paper's distance, the Hamming distance divided by the number of
    balls that hold both rows. On USPS with 64 bits the nearest 2 % have a MAP of 0.544 by the
    former and 0.549 by the latter, and rows of one label 0.342 and 0.315.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.
    max_rows
        Rows to learn from, drawn at random where there are more.
    n_iter
        Rounds at most.

    Attributes
    ----------
    pivots_ : float64 (n_bits, d)
        The centres of the balls.
    radii_ : float64 (n_bits,)
        Their radii.
    overlaps_ : float64 (rounds,)
        The mean of |o_ij - m / 4| / (m / 4) in each round; 0 for one bit.
    """

    method = "sph"

    max_rows: Annotated[int, integer(2, 1_000_000)] = 5000
    n_iter: Annotated[int, integer(1, 100_000)] = 100

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        mean = rows.mean()
        chosen = np.sort(rng.permutation(rows.n_rows)[: self.max_rows])
        drawn = rows.rows(chosen)
        _, first_places = np.unique(drawn, axis=0, return_index=True)
        X = (drawn[np.sort(first_places)] - mean).astype(np.float32)
        if len(X) < 2:
            raise InvalidInputError(
                f"the {len(chosen)} rows that were drawn are all equal; give a greater max_rows"
            )
        pivots = X[rng.integers(len(X), size=(self.n_bits_, _ROWS_PER_PIVOT))].mean(axis=1)
        width = 2 * np.square(X, dtype=np.float64).sum(axis=1).mean()
        best, overlaps = np.inf, list[float]()
        for _ in range(self.n_iter):
            distances = squared_distances(X, pivots)
            squares = np.median(distances, axis=0)
            inside = (distances <= squares).astype(np.float32)
            excess = (inside.T @ inside).astype(np.float64) / (len(X) / 4) - 1
            overlaps.append(_mean_of_pairs(np.abs(excess)))
            spread = _mean_of_pairs(np.square(excess)) - _mean_of_pairs(excess) ** 2
            error = max(overlaps[-1] / _MEAN, math.sqrt(max(spread, 0)) / _DEVIATION)
            if error < best:
                best, kept = error, (pivots, squares)
            if best <= 1 or squares.mean() > _FAR * width:
                break
            pivots = pivots + forces(excess, pivots)
        pivots, squares = kept
        self.pivots_, self.radii_ = pivots + mean, np.sqrt(squares)
        self.overlaps_ = np.array(overlaps)
        scale = 1 / float(squares.mean())
        return [rbf(self.pivots_, scale), shift(-np.exp(-scale * squares))]

    def _summary(self) -> dict[str, Any]:
        return {"rounds": len(self.overlaps_), "overlap": float(self.overlaps_.min())}


def forces(excess: NDArray[np.float64], pivots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over j of excess_ij (p_i - p_j) / 2; the diagonal plays no part."""
    result: NDArray[np.float64] = excess.sum(axis=1)[:, None] * pivots - excess @ pivots
    return result / (2 * len(pivots))


def _mean_of_pairs(values: NDArray[np.float64]) -> float:
    """Return the mean of a square matrix without its diagonal; 0 if that is all."""
    n = len(values)
    return float((values.sum() - np.trace(values)) / max(n * (n - 1), 1))
