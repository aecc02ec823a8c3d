"""Sign: the sign of each dimension, the baseline for all methods that learn."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.layers import Layer, shift
from .base import Hasher
from .numerics.rows import RowSource
from .supervision.labels import Supervision

# Most values that a median holds at once (1 GiB of float32).
_MEDIAN_VALUES = 1 << 28


@dataclass(kw_only=True, eq=False, repr=False)
class Sign(Hasher):
    """One bit for each dimension: whether it is above its centre.

    Parameters
    ----------
    n_bits
        None means one bit for each dimension; no other number is possible.
    center
        The threshold of each dimension. None is 0: pgvector's ``binary_quantize``. The median gives
        every bit as many ones as zeros; it is exact up to 2**28 values (1 GiB), beyond that it is
        the median of a uniform sample of that size.
    random_state
        Seed of that sample.
    """

    method = "sign"
    paper_parameters = None

    center: Literal["mean", "median"] | None = "mean"

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        if self.n_bits_ != rows.dimension:
            raise InvalidInputError(
                f"sign gives one bit for each dimension, so n_bits must be {rows.dimension} or "
                f"left out, got {self.n_bits_}; for another length use itq, lsh or sgh"
            )
        center: NDArray[np.floating] = np.zeros(rows.dimension)
        if self.center == "mean":
            center = rows.mean()
        elif self.center == "median":
            center = _median(rows, rng)
        return [shift(-center)]

    @classmethod
    def takes_cuts(cls) -> bool:  # noqa: D102
        # Those of thermometer are its own with several cuts.
        return False

    def default_bits(self, dimension: int) -> int:  # noqa: D102
        return dimension


def _median(rows: RowSource, rng: np.random.Generator) -> NDArray[np.floating]:
    n_held = min(rows.n_rows, _MEDIAN_VALUES // rows.dimension)
    numbers = np.arange(rows.n_rows)
    if n_held < rows.n_rows:
        numbers = rng.choice(rows.n_rows, n_held, replace=False)
    result: NDArray[np.floating] = np.median(rows.rows(numbers), axis=0, overwrite_input=True)
    return result
