"""IsoHash: isotropic hashing (Kong & Li, NIPS 2012)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..hashers.numerics.projections import centred_affine, with_fixed_signs
from ..models.layers import Layer
from .base import Hasher
from .itq import random_rotation
from .numerics.rows import RowSource
from .parameters import integer
from .pcah import principal_directions
from .supervision.labels import Supervision


@dataclass(kw_only=True, eq=False, repr=False)
class IsoHash(Hasher):
    """The principal directions, rotated so that the rows have the same variance along each.

    With L the variances along the principal directions, it looks for a rotation such that the
    diagonal of Q L Q' is constant, by the paper's lift and projection, from a random rotation:

        lift: T is the nearest matrix of constant diagonal, the mean of L, to Z
        projection: Z = Q L Q' is the nearest matrix of eigenvalues L to T, whose eigenvectors,
            ordered as L, are Q

    Training reads the rows three times, or four if the variances fall steeply, and never holds
    them; the rotation takes time in n_bits alone.

    Parameters
    ----------
    n_bits
        At most d: a rotation makes no new directions.
    n_iter
        Rounds at most. Training ends once all variances are within 0.1 % of their mean.

    Attributes
    ----------
    variances_ : float64 (n_bits,)
        The variance of the rows along each direction.
    """

    method = "isohash"
    bits_within_dimension = True

    n_iter: Annotated[int, integer(0, 100_000)] = 100

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        variances, directions = principal_directions(rows, mean, self.n_bits_)
        variances = np.maximum(variances, 0)
        Q = isotropic_rotation(
            variances, random_rotation(self.n_bits_, self.n_bits_, rng), self.n_iter
        )
        self.variances_ = np.square(Q) @ variances
        return [centred_affine(with_fixed_signs(Q @ directions.T), mean)]

    def _summary(self) -> dict[str, Any]:
        return {"variance_ratio": float(self.variances_.min() / self.variances_.max())}


def isotropic_rotation(
    variances: NDArray[np.float64], Q: NDArray[np.float64], n_iter: int
) -> NDArray[np.float64]:
    """Turn Q by lift and projection so that diag(Q L Q') is nearly constant; L falls."""
    mean = variances.mean()
    for _ in range(n_iter):
        Z = (Q * variances) @ Q.T
        if np.abs(Z.diagonal() - mean).max() <= 1e-3 * mean:
            break
        np.fill_diagonal(Z, mean)
        # Eigenvalues rise in `eigh`, and fall in L.
        Q = np.linalg.eigh(Z)[1][:, ::-1]
    return Q
