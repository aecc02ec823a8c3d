"""Families of weak hash functions over the training rows.

`LinearFunctions` and `Stumps` have the same members: ``best`` searches for the function that
collects the most, ``draw`` draws one, and ``layer`` gives the projections of some.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray

from ...models.layers import Layer, affine
from ...models.vectors import SparseRows

# A projection with a smaller standard deviation, for unit weights and features of unit length, is
# rounding of float32.
_NO_SPREAD = 1e-5


class WeakFunction(NamedTuple):
    """A hash function h(x) = [weights'x > threshold], and its bits (m,) of the training rows."""

    weights: NDArray[np.float64]
    threshold: float
    bits: NDArray[np.bool_]


class Cut:
    """Charges (p,) on pairs of rows. A function collects those of the pairs that it splits."""

    def __init__(
        self,
        first: NDArray[np.intp],
        second: NDArray[np.intp],
        charges: NDArray[np.float64],
        n_rows: int,
    ) -> None:
        charged = np.flatnonzero(charges)
        self.first, self.second, self.charges = first[charged], second[charged], charges[charged]
        self.n_rows = n_rows

    def laplacian(self) -> SparseRows:
        """Return L with t'Lt = sum over pairs of charge (t_first - t_second)^2, float32 (m, m).

        For t in {-1, 1} that is 4 times the charges that the function collects. Charges are divided
        by the sum of their sizes.
        """
        charges = self.charges / np.abs(self.charges).sum()
        ends, other_ends = (self.first, self.second), (self.second, self.first)
        diagonal = np.arange(self.n_rows)
        degrees = sum(np.bincount(rows, charges, self.n_rows) for rows in ends)
        rows, columns = np.column_stack([ends, other_ends, (diagonal, diagonal)])
        values = np.concatenate([-charges, -charges, degrees]).astype(np.float32)
        return scipy.sparse.csr_array((values, (rows, columns)), shape=(self.n_rows, self.n_rows))

    def by_threshold(self, ranks: NDArray[np.integer], n_ranks: int) -> NDArray[np.float64]:
        """Return the charges that [rank > r] collects, r = 0 to ``n_ranks`` - 2, from ranks (m,).

        Thresholds from the lower rank of a pair to below its upper rank split it, so one cumulative
        sum gives all of them.
        """
        a, b = ranks[self.first], ranks[self.second]
        rising = np.bincount(np.minimum(a, b), self.charges, n_ranks)
        falling = np.bincount(np.maximum(a, b), self.charges, n_ranks)
        return np.cumsum(rising - falling, dtype=np.float64)[:-1]


class LinearFunctions:
    """h(x) = [v'x + b > 0], by the relaxation of the sign to tanh (equation 13).

    The relaxed objective is t'Lt with t = tanh(Xv + b): triplets enter only through L. L-BFGS
    improves the best of many random starts. Then the unrelaxed objective chooses the best of all
    thresholds along v. Features are centred and scaled to a mean squared length of 1, at which v ~
    N(0, 1) gives projections v'x of the size of b ~ U(-1, 1).

    ``max_iter`` are iterations of L-BFGS.
    """

    def __init__(self, X: NDArray[np.float32], n_starts: int, max_iter: int) -> None:
        self.n_starts, self.max_iter = n_starts, max_iter
        self.mean = X.mean(axis=0, dtype=np.float64)
        self.X = X - self.mean.astype(np.float32)
        # Keep the mean as float32 rounded it, since the rows are centred by that.
        self.mean = self.mean.astype(np.float32).astype(np.float64)
        # Equal rows have no length, and no spread, so that no function is found.
        self.length = float(np.sqrt(np.square(self.X, dtype=np.float64).sum() / len(X))) or 1.0
        self.X /= np.float32(self.length)

    def best(
        self, cut: Cut, known: Sequence[WeakFunction], rng: np.random.Generator
    ) -> WeakFunction | None:
        """Search for the function that collects the most; None if none splits the rows.

        It finds a local optimum, which depends on the draw; it may be a known one.
        """
        if not len(cut.charges):
            return None
        X, L, d = self.X, cut.laplacian(), self.X.shape[1]

        def loss(vb: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            t = np.tanh(X @ vb[:d].astype(np.float32) + np.float32(vb[d]))
            Lt = L @ t
            slope = 2 * Lt * (1 - t * t)
            gradient = np.append(slope @ X, slope.sum())
            return -float(t @ Lt), -gradient.astype(np.float64)

        vb = self._start(L, rng)
        # SciPy makes one step before it counts them.
        if self.max_iter:
            options = {"maxiter": self.max_iter}
            vb = scipy.optimize.minimize(loss, vb, jac=True, method="L-BFGS-B", options=options).x
        return self._function(
            vb[:d], lambda ranks, n_ranks: int(cut.by_threshold(ranks, n_ranks).argmax())
        )

    def draw(self, rng: np.random.Generator) -> WeakFunction | None:
        """Draw a direction, and a threshold with a fifth of the rows or more on either side."""
        return self._function(
            rng.standard_normal(self.X.shape[1]),
            lambda ranks, n_ranks: min(int(np.quantile(ranks, rng.uniform(0.2, 0.8))), n_ranks - 2),
        )

    def _function(
        self,
        direction: NDArray[np.float64],
        choose: Callable[[NDArray[np.intp], int], int],
    ) -> WeakFunction | None:
        """Make a function of a direction, and of a threshold chosen from the ranks of rows."""
        v = direction / np.linalg.norm(direction)
        projections = self.X @ v.astype(np.float32)
        spread = float(projections.std())
        if spread < _NO_SPREAD:
            return None
        values, ranks = np.unique(projections, return_inverse=True)
        k = choose(ranks, len(values))
        # Scale to unit spread, which float32 evaluates well.
        threshold = float(values[k].astype(np.float64) + values[k + 1]) / 2
        return WeakFunction(v / spread, threshold / spread, ranks > k)

    def _start(self, L: SparseRows, rng: np.random.Generator) -> NDArray[np.float64]:
        d = self.X.shape[1]
        V = rng.standard_normal((self.n_starts, d)).astype(np.float32)
        b = rng.uniform(-1, 1, self.n_starts).astype(np.float32)
        t = np.tanh(self.X @ V.T + b)
        k = int(np.argmax(np.einsum("ij,ij->j", t, L @ t)))
        return np.append(V[k], b[k]).astype(np.float64)

    def layer(self, functions: Sequence[WeakFunction]) -> Layer:
        """Return the layer of the functions' projections, of the features as they were given."""
        weights = np.array([function.weights for function in functions]) / self.length
        thresholds = np.array([function.threshold for function in functions])
        kept = weights.astype(np.float32)
        return affine(kept, -(kept.astype(np.float64) @ self.mean) - thresholds)


class Stumps:
    """h(x) = [x_f > threshold] for one feature f of float32 (m, d)."""

    def __init__(self, X: NDArray[np.float32]) -> None:
        self.X = X
        # (d, m), so that the ranks of one feature are contiguous.
        self.ranks = np.empty(X.shape[::-1], np.int32)
        for feature, values in enumerate(X.T):
            self.ranks[feature] = np.unique(values, return_inverse=True)[1]
        self.n_ranks = self.ranks.max(axis=1) + 1

    def best(
        self, cut: Cut, known: Sequence[WeakFunction], rng: np.random.Generator
    ) -> WeakFunction | None:
        """Search all functions for the one that collects the most; None if all are known."""
        taken: dict[int, list[int]] = {}
        for function in known:
            feature = int(np.argmax(function.weights))
            taken.setdefault(feature, []).append(int(self.ranks[feature][~function.bits].max()))
        most, place = -np.inf, None
        for feature in np.flatnonzero(self.n_ranks > 1).tolist():
            collected = cut.by_threshold(self.ranks[feature], int(self.n_ranks[feature]))
            collected[taken.get(feature, [])] = -np.inf
            rank = int(collected.argmax())
            if collected[rank] > most:
                most, place = float(collected[rank]), (feature, rank)
        return None if place is None else self._function(*place)

    def draw(self, rng: np.random.Generator) -> WeakFunction | None:
        """Draw a feature, and one of its thresholds."""
        feature = int(rng.integers(len(self.n_ranks)))
        if self.n_ranks[feature] < 2:
            return None
        return self._function(feature, int(rng.integers(self.n_ranks[feature] - 1)))

    def _function(self, feature: int, rank: int) -> WeakFunction:
        ranks, values = self.ranks[feature], self.X[:, feature]
        below, above = values[ranks <= rank].max(), values[ranks > rank].min()
        threshold = np.float32((np.float64(below) + np.float64(above)) / 2)
        # There is no number between neighbouring float32 numbers.
        threshold = below if threshold >= above else threshold
        # A power of 2 scales exactly, so that the layer gives the same bits.
        scale = 2.0 ** -np.round(np.log2(values.std(dtype=np.float64)))
        weights = np.zeros(self.X.shape[1])
        weights[feature] = scale
        return WeakFunction(weights, float(threshold) * scale, ranks > rank)

    def layer(self, functions: Sequence[WeakFunction]) -> Layer:
        """Return the layer of the functions' projections, with one-hot rows of weights."""
        weights = np.array([function.weights for function in functions])
        return affine(weights, -np.array([function.threshold for function in functions]))


WeakFunctions: TypeAlias = LinearFunctions | Stumps
