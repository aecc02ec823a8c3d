"""SIKH: binary codes of shift-invariant kernels (Raginsky & Lazebnik, NIPS 2009)."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..layers import Layer, affine, shift
from .base import Hasher, Normalize, centred_affine
from .checks import check_positive
from .kernels import mean_squared_distance
from .rows import RowSource
from .supervision import Supervision

__all__ = ["SIKH"]

# Of the root mean square distance of two rows. Among 0.4 to 1.2, 0.7 to 0.9 ranked the nearest
# 2 % best on training rows of MNIST, USPS and text embeddings, with 32 and 128 bits.
_WIDTH = 0.8
# The rows that tell whether a bit is the same for nearly all of them, and the least share of them
# that must differ.
_SAMPLE_ROWS = 2000
_LEAST_SHARE = 0.1
_MOST_DRAWS = 100


class SIKH(Hasher):
    """Signs of random waves, whose Hamming distance tells the value of a Gaussian kernel.

    A bit is 1 where cos(w'x + b) + t > 0, with w from N(0, I / width^2), b from [0, 2 pi] and t
    from [-1, 1], all at random (equation 4 of the paper). The expected share of differing bits of
    two rows grows with their distance up to about the width, and tells nothing of distances far
    beyond. Nothing but the width is learned, so short codes rank worse than those of LSH.

    One thing differs from the paper: a wave that puts nine in ten rows on one side is drawn anew,
    w, b and t. Where rows are not spread over many periods of the waves, that is one wave in
    four, and such bits are all but lost.

    Parameters
    ----------
    n_bits : int
        1 to 16,000; it may exceed d.
    width : float, optional
        Of the kernel exp(-distance^2 / (2 width^2)); the paper's gamma is 1 / width^2. By
        default 0.8 times the root mean square distance of two rows. The paper takes the mean
        distance to the 50th neighbour, which depends on how many rows there are; it comes to 0.6
        (images) or 0.8 (text embeddings) times the same for 10,000 rows.
    random_state : int, optional
        Seed of the waves; None draws one and records it.
    normalize : {"l2"}, optional
        Scale rows to unit length first, for cosine distance.

    Attributes
    ----------
    width_ : float
        The width used.
    """

    method = "sikh"

    width_: float

    def __init__(
        self,
        *,
        n_bits: int = 128,
        width: float | None = None,
        random_state: int | None = None,
        normalize: Normalize = None,
    ) -> None:
        self.n_bits: int = n_bits
        self.width = width
        self.random_state = random_state
        self.normalize = normalize

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        if self.width is not None:
            check_positive("width", self.width)
        super().check_parameters()

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        if self.width is not None:
            self.width_ = float(self.width)
        else:
            # Two rows are twice as far from each other as each from the mean, in squares.
            squares = 2 * mean_squared_distance(rows, mean[None])
            self.width_ = _WIDTH * math.sqrt(squares)
        directions, phases, thresholds = self._draw(rows, mean, rng)
        # About the mean the arguments of the cosines are small, and float32 holds them well. The
        # phases being uniform, it makes no difference to the codes otherwise.
        waves = centred_affine(directions, mean)
        assert waves.weights is not None  # noqa: S101
        assert waves.bias is not None  # noqa: S101
        return [affine(waves.weights, waves.bias + phases), Layer("cos"), shift(thresholds)]

    def _draw(
        self, rows: RowSource, mean: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Draw w, b and t of all bits, (n_bits, d) and twice (n_bits,)."""
        size = min(rows.n_rows, _SAMPLE_ROWS)
        sample = rows.rows(rng.choice(rows.n_rows, size, replace=False)) - mean
        directions = np.empty((self.n_bits, rows.dimension))
        phases, thresholds = np.empty(self.n_bits), np.empty(self.n_bits)
        wanted = np.arange(self.n_bits)
        for _ in range(_MOST_DRAWS):
            shape = (len(wanted), rows.dimension)
            directions[wanted] = rng.standard_normal(shape) / self.width_
            phases[wanted] = rng.uniform(0, 2 * np.pi, len(wanted))
            thresholds[wanted] = rng.uniform(-1, 1, len(wanted))
            waves = np.cos(sample @ directions[wanted].T + phases[wanted])
            ones = (waves + thresholds[wanted] > 0).mean(axis=0)
            wanted = wanted[(ones < _LEAST_SHARE) | (ones > 1 - _LEAST_SHARE)]
            if not len(wanted):
                return directions, phases, thresholds
        raise InvalidInputError(
            f"with a width of {self.width_:.6g}, {len(wanted)} of {self.n_bits} bits were the same "
            f"for nine rows in ten after {_MOST_DRAWS} draws: nearly all rows are much nearer to "
            "each other than that; give a smaller width"
        )

    def _summary(self) -> dict[str, Any]:
        return {"width": self.width_}
