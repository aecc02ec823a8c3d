"""DSH: density sensitive hashing (Jin, Li, Lin & Cai, IEEE Transactions on Cybernetics 2014)."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from ..hashers.numerics.projections import centred_affine
from ..models.layers import Layer, squared_distances
from .base import Hasher
from .numerics.kernels import check_size
from .numerics.kmeans import nearest_to_rows, sample_centres
from .numerics.rows import RowSource
from .parameters import TooManyBitsError, integer, number
from .supervision.labels import Supervision


@dataclass(kw_only=True, eq=False, repr=False)
class DSH(Hasher):
    """Planes midway between neighbouring groups of rows, those that split the rows most evenly.

    The rows are cut into ``groups * n_bits`` groups by k-means. Two groups are adjacent if the
    centre of one is among the ``n_nearest`` that are nearest to that of the other, and give the
    plane of the points that are as near to one centre as to the other:

        w = m_i - m_j,   t = w'(m_i + m_j) / 2

    The bits are the planes of the greatest entropy of the shares of rows on either side, the rows
    of a group being counted on the side of its centre.

    Differences from the paper: k-means takes five rounds on a sample of 20 rows for each group, not
    three on all rows. If there are fewer planes than bits, more groups count as adjacent.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.
    groups
        Groups for each bit, the paper's alpha, 1 to 100.
    n_nearest
        Nearest groups that are adjacent, the paper's r.

    Attributes
    ----------
    centres_ : float32 (k, d)
        The centres of the groups.
    entropies_ : float64 (n_bits,)
        The entropy of each bit by groups, in nats, falling; at most log 2.
    """

    method = "dsh"

    groups: Annotated[float, number(1, 100)] = 1.5
    n_nearest: Annotated[int, integer(1, 16_000)] = 3

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        n_groups = min(max(2, math.ceil(self.groups * self.n_bits_)), rows.n_rows)
        self.centres_ = sample_centres(rows, n_groups, rng)
        places, _ = nearest_to_rows(rows, self.centres_, 1)
        counts = np.bincount(places[:, 0], minlength=len(self.centres_))
        mean = rows.mean()
        # Products of centred rows lose the fewest digits.
        centres = self.centres_ - mean
        first, second = self._adjacent(centres).T
        weights = centres[first] - centres[second]
        middle = np.einsum("ij,ij->i", weights, centres[first] + centres[second]) / 2
        entropies = plane_entropies(centres @ weights.T > middle, counts)
        # Rounding must not decide between planes that split groups alike.
        chosen = np.argsort(-entropies.round(9), kind="stable")[: self.n_bits_]
        self.entropies_ = entropies[chosen]
        return [centred_affine(weights[chosen], mean, -middle[chosen])]

    def _adjacent(self, centres: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the pairs of adjacent groups, (p, 2), at least as many as bits."""
        k = len(centres)
        if (most := k * (k - 1) // 2) < self.n_bits_:
            raise TooManyBitsError(
                f"n_bits is {self.n_bits_}, but {k} groups of rows have only {most} "
                "planes between them; ask for fewer bits, or give more rows or groups",
                most=most,
            )
        distances = squared_distances(centres, centres)
        np.fill_diagonal(distances, np.inf)
        order = np.argsort(distances, axis=1, kind="stable")
        for n_nearest in range(min(int(self.n_nearest), k - 1), k):
            near = np.zeros((k, k), bool)
            np.put_along_axis(near, order[:, :n_nearest], values=True, axis=1)
            pairs = np.argwhere(np.triu(near | near.T))
            if len(pairs) >= self.n_bits_:
                break
        return pairs

    def _summary(self) -> dict[str, Any]:
        return {"groups": len(self.centres_), "least_entropy": float(self.entropies_[-1])}


def plane_entropies(above: NDArray[np.bool_], counts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return -p log p - q log q of each plane, p being the share of rows in groups above it."""
    p = counts @ above / counts.sum()
    return np.asarray(-scipy.special.xlogy(p, p) - scipy.special.xlogy(1 - p, 1 - p))
