"""SIKH: binary codes of shift-invariant kernels (Raginsky & Lazebnik, NIPS 2009)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import centred_affine
from ..models.layers import Layer, shift
from .base import Hasher
from .numerics.kernels import mean_squared_distance
from .numerics.rows import RowSource
from .parameters import Positive
from .supervision.labels import Supervision

# Default width, relative to the root mean square distance of two rows. Of widths from 0.4 to 1.2,
# those from 0.7 to 0.9 ranked the nearest 2 % best on training rows of MNIST, USPS and text
# embeddings, with 32 and 128 bits.
_WIDTH = 0.8
# A wave is drawn again if less than this share of a sample of this many rows is on one side of it,
# up to this many times.
_SAMPLE_ROWS = 2000
_LEAST_SHARE = 0.1
_MOST_DRAWS = 30
# Least width, relative to the root mean square distance of two rows. Arguments of the cosines grow
# as the width falls; below this float32 rounds them by 0.01 or more.
_LEAST_WIDTH = 1e-4


@dataclass(kw_only=True, eq=False, repr=False)
class SIKH(Hasher):
    """Signs of random waves, whose Hamming distance estimates a Gaussian kernel.

    A bit is 1 where cos(w'x + b) + t > 0, with w from N(0, I / width^2), b from [0, 2 pi] and t
    from [-1, 1], all at random (section 2 of the paper). The expected share of differing bits of
    two rows grows with their distance up to about the width, and is constant far beyond. Only the
    width is learned, so short codes rank worse than those of LSH.

    One thing differs from the paper: a wave that puts more than nine in ten rows on one side is
    drawn again, with new w, b and t. If rows do not span many periods, that is one wave in four,
    whose bits would be almost useless. If 30 draws do not help, the wave that splits the rows most
    evenly is taken.

    Training reads the rows four times, and holds 2,000 of them.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.
    width
        Width of the kernel exp(-distance^2 / (2 width^2)); the paper's gamma is 1 / width^2. The
        default is 0.8 of the root mean square distance of two rows; the least is 0.0001 of it,
        since finer waves are rounding. The paper takes the mean distance to the 50th neighbour,
        which depends on the number of rows; for 10,000 rows it is 0.6 (images) or 0.8 (text
        embeddings) of the same distance.

    Attributes
    ----------
    width_
        The width used.
    """

    method = "sikh"

    width: Positive | None = None

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        # The mean squared distance of two rows is twice that to the mean.
        distance = math.sqrt(2 * mean_squared_distance(rows, mean[None]))
        self.width_ = _WIDTH * distance if self.width is None else float(self.width)
        if self.width_ < _LEAST_WIDTH * distance:
            raise InvalidInputError(
                f"width is {self.width_:.6g}, but the root mean square distance of two rows is "
                f"{distance:.6g}: the waves would be too fine for float32; give at least "
                f"{_LEAST_WIDTH * distance:.6g}"
            )
        directions, phases, thresholds = self._draw(rows, mean, rng)
        # Centred rows keep the arguments of the cosines small, so that float32 holds them well.
        # Phases are uniform, so centring does not change the distribution of codes.
        return [centred_affine(directions, mean, phases), Layer("cos"), shift(thresholds)]

    def _draw(
        self, rows: RowSource, mean: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Draw w, b and t of all bits, (n_bits, d) and twice (n_bits,)."""
        size = min(rows.n_rows, _SAMPLE_ROWS)
        sample = rows.rows(rng.choice(rows.n_rows, size, replace=False)) - mean
        directions = np.empty((self.n_bits_, rows.dimension))
        phases, thresholds = np.empty(self.n_bits_), np.empty(self.n_bits_)
        # The share of rows on the smaller side of each wave. It starts below 0, so that any wave is
        # taken first.
        shares = np.full(self.n_bits_, -1.0)
        for _ in range(_MOST_DRAWS):
            wanted = np.flatnonzero(shares < _LEAST_SHARE)
            if not len(wanted):
                break
            w = rng.standard_normal((len(wanted), rows.dimension)) / self.width_
            b = rng.uniform(0, 2 * np.pi, len(wanted))
            t = rng.uniform(-1, 1, len(wanted))
            ones = (np.cos(sample @ w.T + b) + t > 0).mean(axis=0)
            found = np.minimum(ones, 1 - ones)
            better = found > shares[wanted]
            taken = wanted[better]
            directions[taken], phases[taken], thresholds[taken] = w[better], b[better], t[better]
            shares[taken] = found[better]
        if constant := int(np.count_nonzero(shares == 0)):
            raise InvalidInputError(
                f"with a width of {self.width_:.6g}, {constant} of {self.n_bits_} bits were the "
                f"same for all of {size} rows after {_MOST_DRAWS} draws: nearly all rows are much "
                "nearer to each other than that; give a smaller width"
            )
        return directions, phases, thresholds

    def _summary(self) -> dict[str, Any]:
        return {"width": self.width_}
