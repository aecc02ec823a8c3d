"""LSH: random hyperplanes through the mean of the rows."""

from dataclasses import dataclass

import numpy as np

from ..hashers.numerics.projections import centred_affine
from ..models.layers import Layer
from .base import Hasher
from .numerics.rows import RowSource
from .supervision.labels import Supervision


@dataclass(kw_only=True, eq=False, repr=False)
class LSH(Hasher):
    """Random Gaussian directions after centring: it learns nothing but the mean.

    As bits are added, the share of differing bits of two rows tends to the angle between them, seen
    from the mean, divided by pi.

    Parameters
    ----------
    n_bits
        1 to 16,000.
    """

    method = "lsh"

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        directions = rng.standard_normal((self.n_bits_, rows.dimension))
        return [centred_affine(directions, rows.mean())]
