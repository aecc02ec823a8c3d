"""ITQ-CCA: iterative quantization of directions correlated with labels (Gong & Lazebnik 2011)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import centred_affine, with_fixed_signs
from ..models.layers import Layer
from .base import Hasher, first_and_last
from .itq import learn_rotation, random_rotation
from .numerics.rows import RowSource
from .parameters import integer, number
from .supervision.label_sets import add_by_label, check_label_count
from .supervision.labels import Labels, Supervision, labelled_rows

# Smaller correlations are rounding.
_NO_CORRELATION = 1e-6
# Variances below this part of a squared length are rounding.
_NO_VARIANCE = 1e-20
# A ridge of this for each dimension is far above the rounding of float32 products.
_RIDGE_FOR_FLOAT32 = 1e-6
# With one label a row indicators sum to 1, so their covariance has no inverse without the ridge. A
# smaller ridge is near to the rounding of float64 sums.
_LEAST_RIDGE = 1e-10
# Most labels if rows have several: their covariance takes 200 MB, and so does its factor.
_MAX_LABELS = 5000


@dataclass(kw_only=True, eq=False, repr=False)
class ITQCCA(Hasher):
    """The directions most correlated with labels, rotated as ITQ rotates principal directions.

    Canonical correlation analysis of the rows with the indicators of their labels, one or several
    a row, gives directions w with Cxy Cyy^-1 Cyx w = r^2 Cxx w, of unit variance. Each is scaled by
    its correlation r (section 4 of the paper), so that better ones count for more in the rotation.
    Unlabelled rows are not used.

    With c classes and one label a row there are c - 1 such directions, whatever the dimensions of
    the rows. The authors' program takes n_bits eigenvectors anyway and scales the others by
    correlations that are 0 up to rounding, so its rotation sees rows padded with zeros. Here those
    directions are left out, and the rotation is r x n_bits with orthonormal rows, the part of it
    that matters. Codes longer than c - 1 bits divide the same c - 1 dimensions more finely, so
    there may also be more bits than dimensions.

    Training holds the labelled rows in those directions, at most n x n_bits float32 values: in
    memory up to 1 GiB, beyond that in a temporary file, and in memory a few float64 matrices of
    dimensions x labels, and of dimensions x dimensions. With one label a row, time is linear in
    labels. If rows have several, the covariance of labels by labels is factored; then there may be
    5,000 labels, which take 600 MB. The rows themselves are read five times and never held.

    Parameters
    ----------
    n_bits
        1 to 16,000. With two classes there is one direction, and all bits say the same.
    n_iter
        Rounds of the rotation's alternation.
    ridge
        Added to the diagonals of both covariance matrices, as a part of their mean variance; 1e-10
        to 1e12. From 0.0001 to 0.3 it made little difference on training rows of MNIST and
        USPS.

    Attributes
    ----------
    correlations_ : float64 (k,)
        The correlation of each direction with the labels, falling.
    quantization_loss_ : float64 (n_iter + 1,)
        As of `ITQ`.
    """

    method = "itq-cca"
    learns_from = ("labels",)

    n_iter: Annotated[int, integer(0, 100_000)] = 50
    ridge: Annotated[float, number(_LEAST_RIDGE, 1e12)] = 0.01

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        check_label_count(self.method, labels, _MAX_LABELS)
        mean = rows.mean()
        correlations, directions = correlated_directions(
            rows, labels, mean, self.n_bits_, float(self.ridge)
        )
        scaled = directions * correlations
        V = rows.through(centred_affine(scaled.T, mean)).array()
        start = random_rotation(V.shape[1], self.n_bits_, rng)
        rotation, self.quantization_loss_ = learn_rotation(V, start, self.n_iter)
        self.correlations_ = correlations
        return [centred_affine((scaled @ rotation).T, mean)]

    def _summary(self) -> dict[str, Any]:
        return {
            "directions": len(self.correlations_),
            "greatest_correlation": float(self.correlations_[0]),
            "quantization_loss": first_and_last(self.quantization_loss_),
        }


def correlated_directions(
    rows: RowSource, labels: Labels, mean: NDArray[np.float64], n_directions: int, ridge: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the directions of the rows that correlate most with labels.

    The problem Cxy Cyy^-1 Cyx w = r^2 Cxx w, solved by the singular values r of Lx^-1 Cxy Gy^-T,
    with Lx the lower Cholesky factor of Cxx and Gy Gy' = Cyy, ridges included, and w = Lx^-T u of
    the left singular vectors u.

    The ridge, at least 1e-10, is relative to the mean variance. Returns the correlations, falling,
    n_directions or as many as are above 0, and the directions, float64 (d, k), each with its
    largest entry above 0. But for the ridge, rows have unit variance along them. Rows or labels
    that do not vary are refused.
    """
    n = rows.n_rows
    coarse = ridge > _RIDGE_FOR_FLOAT32 * rows.dimension
    Cxx = rows.covariance(mean, np.float32 if coarse else np.float64)
    Cyx = np.zeros((labels.n_classes, rows.dimension))
    for part, block in rows.placed_blocks():
        # The mean of Y cancels, since centred rows sum to 0.
        add_by_label(Cyx, labels.indicator[part], block - mean)
    Cyx /= n
    # float32 cannot count beyond 2^24.
    shares = np.asarray(labels.indicator.sum(axis=0, dtype=np.float64)) / n
    variances = shares - shares**2
    if not (np.trace(Cxx) > _NO_VARIANCE * (mean @ mean) and variances.sum() > _NO_VARIANCE):
        raise InvalidInputError(
            f"the {n} labelled rows are all equal, or all have the same labels, so there is "
            "nothing to tell apart; label other rows too"
        )
    Cxx[np.diag_indices_from(Cxx)] += ridge * np.trace(Cxx) / rows.dimension
    Lx = np.linalg.cholesky(Cxx)
    whitened = scipy.linalg.solve_triangular(Lx, Cyx.T, lower=True, check_finite=False).T
    whiten = _whiten_single if labels.single else _whiten_several
    whitened = whiten(whitened, labels, shares, ridge * variances.mean())
    if len(whitened) > rows.dimension:
        # R of the QR factorisation has the same singular values, and is smaller.
        (whitened,) = scipy.linalg.qr(whitened, mode="r", overwrite_a=True, check_finite=False)
        whitened = whitened[: rows.dimension]
    left, correlations, _ = np.linalg.svd(whitened.T, full_matrices=False)
    k = min(n_directions, int(np.count_nonzero(correlations > _NO_CORRELATION)))
    if not k:
        raise InvalidInputError(
            "no direction of the rows correlates with their labels: all classes have the same "
            f"mean, or the ridge, {ridge:g}, outweighs what tells them apart; give a smaller ridge"
        )
    directions = scipy.linalg.solve_triangular(Lx, left[:, :k], lower=True, trans=1)
    return correlations[:k], with_fixed_signs(directions.T).T


def _whiten_several(
    values: NDArray[np.float64], labels: Labels, shares: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """Return Gy^-1 times the values (c, k), Gy the Cholesky factor of Cyy + ridge I."""
    Y = labels.indicator.astype(np.float64)
    Cyy = (Y.T @ Y).toarray()
    Cyy /= len(Y.indptr) - 1
    Cyy -= np.outer(shares, shares)
    Cyy[np.diag_indices_from(Cyy)] += ridge
    Ly = np.linalg.cholesky(Cyy)
    result: NDArray[np.float64] = scipy.linalg.solve_triangular(
        Ly, values, lower=True, check_finite=False
    )
    return result


def _whiten_single(
    values: NDArray[np.float64], labels: Labels, shares: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """Return the same for one label a row, in time and memory linear in the labels.

    With p the shares, D = diag(p) + ridge I and q = D^-1/2 p, Cyy + ridge I = D - p p' is
    D^1/2 (I - q q') D^1/2, and (I - q q')^-1/2 = I + ((1 - q'q)^-1/2 - 1) / q'q q q'.
    """
    D = shares + ridge
    q = shares / np.sqrt(D)
    # This is 1 - q'q, since shares sum to 1; the difference itself would cancel.
    rest = float(np.sum(shares * ridge / D))
    scaled = values / np.sqrt(D)[:, None]
    scaled += np.outer(q, (rest**-0.5 - 1) / (q @ q) * (q @ scaled))
    return scaled
