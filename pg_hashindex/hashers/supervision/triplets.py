"""Triplets, given or made from labels: a row, a near row and a far row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ..numerics.rows import row_slices
from .labels import Labels

# Rows whose distances to all others are computed at a time, and the most distances.
_BLOCK_ROWS = 1000
_BLOCK_VALUES = 1 << 24
# Combinations of two neighbours that are handled at a time.
_BLOCK_COMBINATIONS = 1 << 22


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Triplets and duplets, as the distinct pairs of rows that they name.

    A row with K near and K far neighbours gives K^2 triplets but only 2K pairs, and a hash function
    matters only by the pairs that it splits. So distances are computed by pair, in time that does
    not grow with the triplets.

    ``rows`` (m,) are the numbers of the distinct rows, rising. ``first`` < ``second`` (p,) are the
    two rows of each pair, as positions in these. ``near`` and ``far`` (t,) are the pairs (x, x+)
    and (x, x-) of each triplet, ``duplets`` (k,) the pairs that should be near, for the pairwise
    extension.
    """

    rows: NDArray[np.intp]
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    near: NDArray[np.intp]
    far: NDArray[np.intp]
    duplets: NDArray[np.intp]

    @classmethod
    def of(
        cls, triplets: NDArray[np.intp], duplets: NDArray[np.intp] | None = None
    ) -> "Comparisons":
        """Find the distinct rows and pairs of triplets (t, 3) and, if given, of duplets (k, 2).

        Both hold row numbers.
        """
        if duplets is None:
            duplets = np.empty((0, 2), np.intp)
        ends = np.concatenate([triplets[:, :2], triplets[:, ::2], duplets])
        rows, positions = np.unique(ends, return_inverse=True)
        ordered = np.sort(positions.reshape(ends.shape), axis=1)
        keys, pair = np.unique(ordered[:, 0] * len(rows) + ordered[:, 1], return_inverse=True)
        near, far, close = np.split(pair, (len(triplets), 2 * len(triplets)))
        return cls(rows, keys // len(rows), keys % len(rows), near, far, close)

    @property
    def n_pairs(self) -> int:
        """How many distinct pairs of rows there are."""
        return len(self.first)

    @property
    def n_triplets(self) -> int:
        """How many triplets there are; equal ones count each."""
        return len(self.near)

    def split_by(self, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which pairs a hash function splits, bool (p,), from its bits of ``rows``, (m,)."""
        result: NDArray[np.bool_] = bits[self.first] != bits[self.second]
        return result

    def margins(self, distances: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return d(x, x-) - d(x, x+) of each triplet, (t,), from the distances of pairs, (p,)."""
        result: NDArray[np.floating] = distances[self.far] - distances[self.near]
        return result

    def by_pair(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values of triplets (t,) by pair, + for far pairs and - for near ones, (p,).

        It is the transpose of `margins`.
        """
        result: NDArray[np.float64] = np.zeros(self.n_pairs)
        result += np.bincount(self.far, values, self.n_pairs)
        result -= np.bincount(self.near, values, self.n_pairs)
        return result


def label_triplets(
    X: NDArray[np.float32],
    labels: Labels,
    n_neighbours: int,
    max_triplets: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Join the nearest rows of the same class with the nearest of other classes, intp (t, 3).

    As in large margin nearest neighbours (Weinberger et al. 2006): for each row x of X (m, d), x+
    is one of the nearest rows that share a label with it and x- one of the nearest that share none,
    ``n_neighbours`` of either kind at the most. If that gives more than ``max_triplets``, each row
    keeps an equal number of random combinations. Each row has a label; labels that give no triplet
    are refused.
    """
    near, far = _neighbours(X, labels, n_neighbours)
    usable = np.flatnonzero((near >= 0).any(axis=1) & (far >= 0).any(axis=1))
    if not len(usable):
        raise InvalidInputError(
            f"labels give no triplet: none of the {len(X)} rows has both a row of the same class "
            "and one of another; label more rows, or give triplets"
        )
    return _combine(usable, near[usable], far[usable], max_triplets, rng)


def _neighbours(
    X: NDArray[np.float32], labels: Labels, n_neighbours: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the nearest rows with and without a shared label, (m, K); -1 fills missing ones."""
    n = len(X)
    k = min(n_neighbours, n - 1)
    # Centre, so that the expanded squared distance cancels least.
    centred = X - X.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Then squares are float32 numbers, whatever the scale. A power of two rounds nothing.
    centred = np.ldexp(centred, -np.frexp(np.abs(centred).max())[1])
    squares = np.einsum("ij,ij->i", centred, centred)
    near, far = np.empty((n, k), np.intp), np.empty((n, k), np.intp)
    for block in row_slices(n, max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // n))):
        distances = squares - 2 * (centred[block] @ centred.T)
        places = np.arange(len(distances))
        same = labels.same(block)
        far[block] = _nearest(np.where(same, np.float32(np.inf), distances), k)
        same[places, block.start + places] = False
        near[block] = _nearest(np.where(same, distances, np.float32(np.inf)), k)
    return near, far


def _nearest(distances: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    found = np.argpartition(distances, k - 1, axis=1)[:, :k]
    return np.where(np.isfinite(np.take_along_axis(distances, found, axis=1)), found, -1)


def _combine(
    rows: NDArray[np.intp],
    near: NDArray[np.intp],
    far: NDArray[np.intp],
    max_triplets: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Combine each near row of a row with each far row, or a random part of these combinations."""
    n, k = near.shape
    everything = n * k * k <= max_triplets
    # Rows have equal shares; random rows get one more for the remainder.
    shares = np.full(n, k * k if everything else max_triplets // n)
    if not everything:
        shares[rng.permutation(n)[: max_triplets % n]] += 1
    result = []
    size = max(1, _BLOCK_COMBINATIONS // (k * k))
    for block in row_slices(n, size):
        valid = (near[block, :, None] >= 0) & (far[block, None, :] >= 0)
        chosen = valid.reshape(-1, k * k)
        if not everything:
            order = np.where(chosen, rng.random(chosen.shape), np.inf)
            # A share may exceed the valid combinations; these are all that there are then.
            ranks = np.argsort(np.argsort(order, axis=1), axis=1)
            chosen = chosen & (ranks < shares[block, None])
        row, combination = np.nonzero(chosen)
        row += block.start
        result.append(
            np.column_stack([rows[row], near[row, combination // k], far[row, combination % k]])
        )
    return np.concatenate(result)
