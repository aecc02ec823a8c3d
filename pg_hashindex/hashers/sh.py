"""SH: spectral hashing (Weiss, Torralba & Fergus, NIPS 2008)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hashers.numerics.projections import centred_affine
from ..models.layers import Layer
from .base import Hasher
from .numerics.rows import RowSource
from .pcah import principal_directions
from .supervision.labels import Supervision

# A spread below this part of the widest is rounding.
_NO_SPREAD = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class SH(Hasher):
    """Waves along the principal directions, the slowest first.

    If the rows were uniform in a box along the principal directions, the smoothest uncorrelated
    functions of zero mean would be cos(k pi (v - a) / (b - a)): waves of k half periods along one
    direction, from the least value a of the rows to the greatest b. The bits are the signs of those
    with the smallest eigenvalues, (k / (b - a))^2: wide directions get several bits, narrow ones
    none. The paper's own eigenvalue, 1 - exp(-eps^2 (k pi / (b - a))^2 / 2), gives the same order
    for any eps (its part on out of sample extension); the authors' program orders by the former
    too. There may be more bits than dimensions.

    The training rows define the box; the same waves hash rows beyond it. One outlier widens the
    box, and then a bit may be the same for all other rows. Training reads the rows four times, or
    five if the variances fall steeply, and never holds them.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.

    Attributes
    ----------
    modes_ : intp (n_bits, 2)
        The principal direction of each bit, 0 for the greatest variance, and the half periods of
        its wave.
    low_, high_ : float64 (p,)
        The box: the least and the greatest projection of a row on each principal direction.
    """

    method = "sh"

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        _, directions = principal_directions(rows, mean, min(self.n_bits_, rows.dimension))
        low, high = _box(rows.through(centred_affine(directions.T, mean)))
        modes = slowest_modes(high - low, self.n_bits_)
        direction, half_periods = modes.T
        frequencies = half_periods * np.pi / (high - low)[direction]
        weights = frequencies[:, None] * directions.T[direction]
        self.modes_, self.low_, self.high_ = modes, low, high
        return [centred_affine(weights, mean, -frequencies * low[direction]), Layer("cos")]

    def _summary(self) -> dict[str, Any]:
        return {"directions": len(np.unique(self.modes_[:, 0]))}


def slowest_modes(widths: NDArray[np.float64], n_modes: int) -> NDArray[np.intp]:
    """Choose the waves with the smallest eigenvalues, (half periods / width)^2.

    Returns direction and half periods of each wave, intp (n_modes, 2), by rising eigenvalue, then
    by direction. At least one width is above 0.
    """
    wide = np.flatnonzero(widths > _NO_SPREAD * widths.max())
    # n_modes waves along the widest direction are slower than any wave with more half periods.
    most = np.ceil(n_modes * widths[wide] / widths.max()).astype(np.intp)
    direction = np.repeat(wide, most)
    half_periods = np.arange(len(direction)) - np.repeat(np.cumsum(most) - most, most) + 1
    slowest = np.argsort(half_periods / widths[direction], kind="stable")[:n_modes]
    return np.column_stack([direction, half_periods])[slowest]


def _box(rows: RowSource) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.full(rows.dimension, np.inf), np.full(rows.dimension, -np.inf)
    for block in rows.blocks():
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    return low, high
