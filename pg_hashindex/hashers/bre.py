"""BRE: binary reconstructive embeddings (Kulis & Darrell, NIPS 2009)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.layers import MAX_DIMENSION, Layer, affine, normalize, rbf, shift, squared_distances
from .base import Hasher, first_and_last
from .numerics.kernels import check_size
from .numerics.rows import RowSource
from .parameters import Factor, integer
from .supervision.labels import Labels, Supervision

# Values of a kernel below this move no row across 0 but by rounding.
_NO_KERNEL = 1e-9
# Weights begin as standard normal numbers. Greater ones would leave the rest to float32's rounding.
_MOST_WEIGHT = 100.0
# Objectives and weights that differ by less, relative to their sizes, differ by rounding only.
_ROUNDING = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class BRE(Hasher):
    """Kernel functions whose codes' Hamming distances rebuild the distances of the rows.

    Minimises, over the weights W of n_bits functions h_p(x) = [w_p'(k(x) - mean) > 0],

        sum over pairs i, j of (d_ij - (1 / n_bits) sum over p of (h_p(x_i) - h_p(x_j))^2)^2

    with d_ij = ||x_i - x_j||^2 / 4 for rows that are centred and scaled to unit length. The paper's
    coordinate descent takes one weight at a time. As it grows, rows change sides one after another,
    each at a number known beforehand, and between these numbers the objective is constant; so one
    sort gives the best interval. The weight moves to the middle of it. A round takes one weight of
    each function, drawn at random.

    Differences from the paper: all functions share the ``n_anchors`` bases, so a code takes that
    many distances, not n_bits times as many. Distances are a quarter of the squared length, not a
    half, since rows are centred: Hamming distances end at 1. Pairs are each row with its
    ``n_pairs`` nearest rows and as many others, drawn at random. No function becomes the same for
    all rows.

    Training holds ``max_rows`` rows, their kernel values, pairs and distances from each other.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.
    n_anchors
        Kernel bases, drawn from the rows that are learned from; the paper's s.
    width
        The kernel is exp(-distance^2 / (width * mean squared distance of rows and bases)).
    max_rows
        Rows to learn from, drawn at random where there are more.
    n_pairs
        Near pairs of a row, and further pairs.
    n_iter
        Rounds.

    Attributes
    ----------
    objective_ : float64 (n_iter + 1,)
        The mean over the pairs of the squared error, before the first round and after each.
    """

    method = "bre"

    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] = 300
    width: Factor = 0.7
    max_rows: Annotated[int, integer(4, 10_000)] = 1000
    n_pairs: Annotated[int, integer(1, 10_000)] = 25
    n_iter: Annotated[int, integer(0, 100_000)] = 100

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        scaling = [shift(-rows.mean()), normalize()]
        drawn = np.sort(rng.permutation(rows.n_rows)[: self.max_rows])
        X = rows.through(*scaling).rows(drawn)
        i, j, d = self._pairs(X, None if given.labels is None else given.labels.take(drawn), rng)
        bases = np.unique(X[rng.permutation(len(X))[: self.n_anchors]], axis=0)
        if len(bases) < 2:
            raise InvalidInputError(
                "the rows that were drawn as kernel bases all lie in one direction from the mean; "
                "give a greater max_rows or n_anchors"
            )
        scale = 1 / (self.width * float(squared_distances(X, bases).mean()))
        kernel = rbf(bases, scale)
        K = kernel.apply(X).astype(np.float64)
        mean = K.mean(axis=0)
        functions = Functions(K - mean, i, j, d, rng.standard_normal((self.n_bits_, len(bases))))
        objective = [functions.objective()]
        for _ in range(self.n_iter):
            for bit in range(self.n_bits_):
                functions.improve(bit, int(rng.integers(len(bases))))
            objective.append(functions.objective())
        self.objective_ = np.array(objective)
        W = functions.W
        return [*scaling, kernel, shift(-mean), affine(W / np.linalg.norm(W, axis=1)[:, None])]

    def _pairs(
        self, X: NDArray[np.float32], labels: Labels | None, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """Return the pairs of rows to learn from, and the distances to rebuild."""
        distances = squared_distances(X, X) / 4
        np.fill_diagonal(distances, -1)
        near = np.argsort(distances, axis=1, kind="stable")[:, 1 : self.n_pairs + 1]
        others = rng.integers(1, len(X), (len(X), self.n_pairs)) + np.arange(len(X))[:, None]
        j = np.hstack([near, others % len(X)]).ravel()
        i = np.repeat(np.arange(len(X)), len(j) // len(X))
        return i, j, distances[i, j]

    def _summary(self) -> dict[str, Any]:
        return {"objective": first_and_last(self.objective_)}


class Functions:
    """Weights W (b, m) of kernel values K (n, m), and pairs i, j whose distances d they rebuild."""

    def __init__(
        self,
        K: NDArray[np.float64],
        i: NDArray[np.intp],
        j: NDArray[np.intp],
        d: NDArray[np.float64],
        W: NDArray[np.float64],
    ) -> None:
        self.K, self.i, self.j, self.W = np.asfortranarray(K), i, j, W
        self.projections = W @ K.T
        above = self.projections > 0
        self._residual = d - (above[:, i] != above[:, j]).mean(axis=0)

    def objective(self) -> float:
        """Return the mean squared error of the pairs."""
        return float(np.square(self._residual).mean())

    def improve(self, bit: int, base: int) -> None:
        """Move one weight to the middle of the interval in which the objective is least."""
        b, n = len(self.W), len(self.K)
        k, w = self.K[:, base], self.W[bit, base]
        moving = np.abs(k) > _NO_KERNEL
        others = self.projections[bit] - w * k
        # Row i changes sides where the weight is at[i]; far below all of these, it is on `first`.
        at = np.divide(-others, k, out=np.full(n, np.inf), where=moving)
        first = np.where(moving, k < 0, others > 0)
        order = np.argsort(at, kind="stable")
        rank = np.empty(n, np.intp)
        rank[order] = np.arange(n)
        # The pair's term is residual^2 if the function gives both rows the same bit, and
        # (residual - 1 / b)^2 otherwise: a constant and the cost below.
        above = self.projections[bit] > 0
        apart = above[self.i] != above[self.j]
        residual = self._residual + apart / b
        cost = (1 / b - 2 * residual) / b
        cost = np.where(first[self.i] != first[self.j], -cost, cost)
        # After t changes the pair has changed if just one of its rows has.
        ranks = rank[self.i], rank[self.j]
        change = np.bincount(np.minimum(*ranks), cost, n) - np.bincount(np.maximum(*ranks), cost, n)
        costs = np.append(0, np.cumsum(change))
        ones = first.sum() + np.append(0, np.cumsum(np.where(first[order], -1, 1)))
        # Bounds of the intervals between changes.
        ends = np.concatenate([[-_MOST_WEIGHT], np.sort(at[moving]), [_MOST_WEIGHT]])
        ends = np.clip(ends, -_MOST_WEIGHT, _MOST_WEIGHT)
        t = np.arange(len(ends) - 1)
        usable = (ones[t] > 0) & (ones[t] < n) & (np.diff(ends) > _ROUNDING)
        found = np.where(usable, costs[t], np.inf)
        rounding = _ROUNDING * np.abs(cost).sum()
        if not found.min() < costs[np.searchsorted(ends[1:-1], w)] - rounding:
            return
        best = int(np.argmax(found <= found.min() + rounding))
        self.W[bit, base] = (ends[best] + ends[best + 1]) / 2
        self.projections[bit] = others + self.W[bit, base] * k
        above = self.projections[bit] > 0
        self._residual = residual - (above[self.i] != above[self.j]) / b
