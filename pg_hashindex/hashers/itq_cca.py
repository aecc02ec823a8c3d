"""ITQ-CCA: iterative quantization of the directions that tell labels (Gong & Lazebnik 2011)."""

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..layers import Layer
from .base import Hasher, Normalize, centred_affine, with_fixed_signs
from .checks import check_integer, check_positive
from .itq import learn_rotation, random_rotation
from .kernels import kernel_values
from .rows import RowSource
from .supervision import Labels, Supervision, labelled_rows

__all__ = ["ITQCCA", "correlated_directions"]

# Smaller correlations are what rounding leaves of none at all.
_NO_CORRELATION = 1e-6
# Variances below this part of a squared length are too.
_NO_VARIANCE = 1e-20
# A ridge of this for each dimension is far above the rounding of float32 products.
_RIDGE_FOR_FLOAT32 = 1e-6
# Below this, rounding of float64 sums shows in what the ridge must carry: the indicators of one
# label a row sum to 1, so their covariance alone has no inverse.
_LEAST_RIDGE = 1e-10


class ITQCCA(Hasher):
    """The directions most correlated with labels, rotated as ITQ rotates principal directions.

    Canonical correlation analysis of the rows with the indicators of their labels, one or several
    a row, gives directions w with Cxy Cyy^-1 Cyx w = r^2 Cxx w, of unit variance. Each is scaled
    by its correlation r (section 4 of the paper), so that the better ones count for more in the
    rotation. Unlabelled rows play no part.

    With c classes and one label a row there are c - 1 such directions, whatever the dimensions of
    the rows. The authors' program takes n_bits eigenvectors all the same and scales those beyond
    by correlations that are 0 up to rounding: the rotation of n_bits dimensions then only sees
    rows padded with zeros. Here those directions are left out, and the rotation is the part of it
    that matters, r x n_bits with orthonormal rows: codes longer than c - 1 bits divide the same
    c - 1 dimensions more finely. So there may also be more bits than dimensions.

    Training holds the labelled rows in those directions, at most n x n_bits float32 values: in
    memory up to 1 GiB, beyond that in a temporary file. The rows themselves are read five times
    and never held.

    Parameters
    ----------
    n_bits : int
        1 to 16,000. With two classes there is one direction, and all bits say the same.
    n_iter : int
        Rounds of the rotation's alternation.
    ridge : float
        Added to the diagonals of both covariance matrices, as a part of their mean variance; at
        least 1e-10. From 0.0001 to 0.3 it made little difference on training rows of MNIST and
        USPS.
    random_state : int, optional
        Seed of the first rotation; None draws one and records it.
    normalize : {"l2"}, optional
        Scale rows to unit length first, for cosine distance.

    Attributes
    ----------
    correlations_ : float64 (k,)
        The correlation of each direction with the labels, falling.
    quantization_loss_ : float64 (n_iter + 1,)
        As of `ITQ`.
    """

    method = "itq-cca"
    learns_from = ("labels",)

    correlations_: NDArray[np.float64]
    quantization_loss_: NDArray[np.float64]

    def __init__(
        self,
        *,
        n_bits: int = 128,
        n_iter: int = 50,
        ridge: float = 0.01,
        random_state: int | None = None,
        normalize: Normalize = None,
    ) -> None:
        self.n_bits: int = n_bits
        self.n_iter = n_iter
        self.ridge = ridge
        self.random_state = random_state
        self.normalize = normalize

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        check_integer("n_iter", self.n_iter, 0, 100_000)
        check_positive("ridge", self.ridge)
        if self.ridge < _LEAST_RIDGE:
            raise InvalidInputError(
                f"ridge must be at least {_LEAST_RIDGE}, far above rounding, got {self.ridge!r}"
            )
        super().check_parameters()

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        assert given.labels is not None  # noqa: S101
        rows, labels = labelled_rows(rows, given.labels)
        mean = rows.mean()
        correlations, directions = correlated_directions(
            rows, labels, mean, self.n_bits, float(self.ridge)
        )
        scaled = directions * correlations
        V = kernel_values(rows, centred_affine(scaled.T, mean))
        start = random_rotation(V.shape[1], self.n_bits, rng)
        rotation, self.quantization_loss_ = learn_rotation(V, start, self.n_iter)
        self.correlations_ = correlations
        return [centred_affine((scaled @ rotation).T, mean)]

    def _summary(self) -> dict[str, Any]:
        first, last = self.quantization_loss_[[0, -1]]
        return {
            "directions": len(self.correlations_),
            "greatest_correlation": float(self.correlations_[0]),
            "quantization_loss": {"first": float(first), "last": float(last)},
        }


def correlated_directions(
    rows: RowSource, labels: Labels, mean: NDArray[np.float64], n_directions: int, ridge: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the directions of the rows that correlate most with labels.

    The problem Cxy Cyy^-1 Cyx w = r^2 Cxx w, solved by the singular values r of Lx^-1 Cxy Ly^-T,
    with L the lower Cholesky factors of Cxx and Cyy, ridges included, and w = Lx^-T u of the left
    singular vectors u.

    Parameters
    ----------
    rows : RowSource
        All labelled.
    labels : Labels
    mean : float64 (d,)
        The mean row.
    n_directions : int
        The most to return.
    ridge : float
        As a part of the mean variance; at least 1e-10.

    Returns
    -------
    correlations : float64 (k,)
        Falling; k is less than n_directions where no more are above 0.
    directions : float64 (d, k)
        As columns, each with its largest entry above 0; rows have unit variance along them, save
        for the ridge.

    Raises
    ------
    InvalidInputError
        If rows or labels do not vary, or no direction correlates with the labels.
    """
    # In float64, since float32 counts stop at 2^24.
    n, Y = rows.n_rows, labels.indicator.astype(np.float64)
    coarse = ridge > _RIDGE_FOR_FLOAT32 * rows.dimension
    Cxx = rows.covariance(mean, np.float32 if coarse else np.float64)
    Cxy = np.zeros((rows.dimension, labels.n_classes))
    start = 0
    for block in rows.blocks():
        # The mean of Y drops out, since centred rows sum to 0.
        Cxy += (Y[start : start + len(block)].T @ (block - mean)).T / n
        start += len(block)
    shares = np.asarray(Y.sum(axis=0, dtype=np.float64)) / n
    Cyy = (Y.T @ Y).toarray() / n - np.outer(shares, shares)
    if not (np.trace(Cxx) > _NO_VARIANCE * (mean @ mean) and np.trace(Cyy) > _NO_VARIANCE):
        raise InvalidInputError(
            f"the {n} labelled rows are all equal, or all have the same labels, so there is "
            "nothing to tell apart; label other rows too"
        )
    Lx, Ly = _factor(Cxx, ridge), _factor(Cyy, ridge)
    whitened = scipy.linalg.solve_triangular(Lx, Cxy, lower=True)
    whitened = scipy.linalg.solve_triangular(Ly, whitened.T, lower=True).T
    left, correlations, _ = np.linalg.svd(whitened, full_matrices=False)
    k = min(n_directions, int(np.count_nonzero(correlations > _NO_CORRELATION)))
    if not k:
        raise InvalidInputError(
            "no direction of the rows correlates with their labels: all classes have the same "
            f"mean, or the ridge, {ridge:g}, outweighs what tells them apart; give a smaller ridge"
        )
    directions = scipy.linalg.solve_triangular(Lx, left[:, :k], lower=True, trans=1)
    return correlations[:k], with_fixed_signs(directions.T).T


def _factor(covariance: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    size = len(covariance)
    mean_variance = np.trace(covariance) / size
    return np.linalg.cholesky(covariance + ridge * mean_variance * np.eye(size))
