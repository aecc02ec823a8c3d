"""PCAH: the signs of the leading principal components."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..hashers.numerics.projections import centred_affine, with_fixed_signs
from ..models.layers import Layer
from .base import Hasher
from .numerics.rows import RowSource
from .parameters import TooManyBitsError
from .supervision.labels import Supervision

# A variance below this part of the leading one is rounding.
_NO_VARIANCE = 1e-12
# Up to this many dimensions float64 costs almost nothing.
_FEW_DIMENSIONS = 64
# float32 products give directions well that have at least this part of the leading variance.
_FLOAT32_SEES = 1e-4
# The products of rows with each other give directions well that have at least this part.
_PRODUCTS_SEE = 1e-8


@dataclass(kw_only=True, eq=False, repr=False)
class PCAH(Hasher):
    """The leading principal directions, one bit each.

    Later directions carry less variance but count as much as the first, so long codes rank worse
    than short ones; ITQ corrects that.

    Parameters
    ----------
    n_bits
        At most the number of directions in which the rows vary, so at most d.

    Attributes
    ----------
    explained_variance_ : float64 (n_bits,)
        The variance of the rows along each direction.
    """

    method = "pcah"
    bits_within_dimension = True

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        variances, directions = principal_directions(rows, mean, self.n_bits_)
        varying = int(np.count_nonzero(variances > _NO_VARIANCE * variances[0]))
        if varying < self.n_bits_:
            raise TooManyBitsError(
                f"n_bits is {self.n_bits_}, but the rows vary in only {varying} directions; the "
                "bits of the others would be noise: ask for fewer bits, or use itq, sgh or lsh",
                most=varying,
            )
        self.explained_variance_ = variances
        return [centred_affine(directions.T, mean)]


def principal_directions(
    rows: RowSource, mean: NDArray[np.float64], n_directions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the directions of greatest variance, (d, n_directions), and the variances, falling.

    One pass over the rows takes float32 products. If they are too coarse for the last directions,
    another pass takes float64 products. Rows that are fewer than their dimensions are multiplied
    with each other, which makes the smaller eigenproblem. Directions are orthonormal, each with its
    largest entry above 0.
    """
    if n_directions < rows.n_rows < rows.dimension:
        centred = rows.array() - mean
        variances, found = _leading(centred @ centred.T / rows.n_rows, n_directions)
        if variances[0] >= _PRODUCTS_SEE * variances[-1]:
            return _falling(variances, centred.T @ found / np.sqrt(rows.n_rows * variances))
    if rows.dimension > _FEW_DIMENSIONS:
        coarse = rows.covariance(mean, np.float32)
        _, found = _leading((coarse / coarse.diagonal().max()).astype(np.float32), n_directions)
        # Make them orthonormal in float64, and the best ones of the space that they span.
        directions = np.linalg.qr(found.astype(np.float64))[0]
        variances, turn = np.linalg.eigh(directions.T @ coarse @ directions)
        if variances[0] >= _FLOAT32_SEES * variances[-1]:
            return _falling(variances, directions @ turn)
    return _falling(*_leading(rows.covariance(mean), n_directions))


def _leading(
    covariance: NDArray[np.floating], n_directions: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    d = len(covariance)
    variances, directions = scipy.linalg.eigh(
        covariance, subset_by_index=[d - n_directions, d - 1], check_finite=False
    )
    return variances, directions


def _falling(
    variances: NDArray[np.float64], directions: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return variances[::-1], with_fixed_signs(directions.T[::-1]).T
