"""Sequential projection learning (Wang, Kumar & Chang, ICML 2010): what S3PLH and USPLH share."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ...hashers.numerics.projections import centred_affine, leading_eigenvector, with_fixed_signs
from ...models.layers import Layer
from ..parameters import TooManyBitsError
from .rows import RowSource, gathered

# A direction with a variance below this part of the greatest is near to the rounding of float32:
# its spread is 1e-4 of the widest, and float32 rounds to about 1e-7.
_NO_VARIANCE = 1e-8
# Directions with a greater cosine give the same bit to all but 1.4 % of the rows.
_NEAR_COPY = 0.999
# Directions with a greater cosine give the same bit to all but 0.05 % of the rows.
_COPY = 1 - 1e-6
# Singular values of unit directions below this are rounding.
_DEPENDENT = 1e-6


class VaryingSpace:
    """The space in which rows vary, found in two passes over them; other directions give no bits.

    Coordinates are along the principal directions, in units of the greatest standard deviation:
    lengths and angles are those of the rows, whatever the size of the rows' values. A coordinate is
    axes'(x - mean), ``axes`` being (d, r). The ``variances`` (r,) of the coordinates fall from 1.
    """

    def __init__(self, rows: RowSource) -> None:
        self.mean = rows.mean()
        variances, directions = scipy.linalg.eigh(rows.covariance(self.mean), check_finite=False)
        greatest = variances[-1]
        varying = variances > _NO_VARIANCE * greatest
        self.axes: NDArray[np.float64] = directions[:, varying][:, ::-1] / np.sqrt(greatest)
        self.variances: NDArray[np.float64] = variances[varying][::-1] / greatest

    def coordinates(self, rows: RowSource) -> NDArray[np.float32]:
        """Return the coordinates of all rows, (n, r); see `scratch_array`."""
        shape = (rows.n_rows, len(self.variances))
        return gathered(((block - self.mean) @ self.axes for block in rows.blocks()), shape)

    def layer(
        self, directions: NDArray[np.float64], cuts: NDArray[np.float64] | None = None
    ) -> Layer:
        """Return the layer of projections on directions (n_bits, r), cut at 0 or at ``cuts``."""
        weights = directions @ self.axes.T
        fixed = with_fixed_signs(weights)
        if cuts is None:
            return centred_affine(fixed, self.mean)
        turned = np.where(np.einsum("ij,ij->i", fixed, weights) < 0, cuts, -cuts)
        return centred_affine(fixed, self.mean, turned)


class DirectionSequence:
    """Directions w_1 .. w_K, each the leading eigenvector of what it is given.

    Each direction is then removed from the rows: X <- (I - w w')X. The rows themselves are not
    rewritten. Their covariance is, and ``deflation``, the product of all (I - w w'), applies to
    sums of rows.

    Directions need not be orthogonal, so there may be more of them than dimensions. If the matrix
    has hardly changed since an earlier direction, the leading eigenvector is that direction again,
    and its bit would be a copy. Then the best direction orthogonal to all earlier ones is taken,
    while there is one. The paper does not mention this; it happens with two classes that one bit
    separates.

    ``covariance`` is that of the deflated rows; ``variances`` (n_bits,) are those of the rows, not
    deflated, along each direction. The name of the method is for messages.
    """

    def __init__(self, space: VaryingSpace, n_bits: int, method: str) -> None:
        self.space = space
        self.covariance = np.diag(space.variances)
        self.deflation = np.eye(len(space.variances))
        self.variances = np.empty(n_bits)
        self._directions = np.empty((n_bits, len(space.variances)))
        self._n_learned = 0
        self._method = method

    def learn(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Learn the next direction from a matrix (r, r), and remove it from the rows.

        A copy of an earlier direction is refused if no orthogonal one is left.
        """
        earlier = self._directions[: self._n_learned]
        direction = leading_eigenvector(matrix)
        likeness = float(np.abs(earlier @ direction).max(initial=0))
        if likeness > _NEAR_COPY:
            others = scipy.linalg.null_space(earlier, rcond=_DEPENDENT)
            if others.shape[1]:
                direction = others @ leading_eigenvector(others.T @ matrix @ others)
            elif likeness > _COPY:
                self._refuse()
        self._directions[self._n_learned] = direction
        self.variances[self._n_learned] = np.square(direction) @ self.space.variances
        self._n_learned += 1
        self.deflation -= np.outer(direction, direction @ self.deflation)
        self.covariance -= np.outer(direction, direction @ self.covariance)
        self.covariance -= np.outer(self.covariance @ direction, direction)
        return direction

    def layer(self, cuts: NDArray[np.float64] | None = None) -> Layer:
        """Return the layer of all projections, cut at 0 or at ``cuts`` (n_bits,)."""
        return self.space.layer(self._directions, cuts)

    def _refuse(self) -> None:
        raise TooManyBitsError(
            f"n_bits is {len(self._directions)}, but after {self._n_learned} bits {self._method} "
            "finds only copies of earlier ones, since the rows vary in a space of dimension "
            f"{len(self.deflation)}: ask for at most {self._n_learned} bits, or use sgh or lsh",
            most=self._n_learned,
        )
