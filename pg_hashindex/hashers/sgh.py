"""SGH: scalable graph hashing with feature transformation (Jiang & Li, IJCAI 2015)."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import leading_eigenvector, with_fixed_signs
from ..models.layers import MAX_DIMENSION, Layer, affine, normalize, rbf, shift
from .base import Hasher
from .numerics.kernels import check_size, choose_anchors, mean_squared_distance
from .numerics.rows import RowSource, row_slices, scratch_array
from .parameters import Positive, integer
from .supervision.labels import Supervision

# Added to the diagonal of Z, as in the paper.
_RIDGE = 1e-6
# Combinations of kernel values (unit weights) with a smaller standard deviation are too near to the
# rounding of float32, about 1e-7, to make a bit.
_NO_SPREAD = 1e-4
# Unit rows of float32 may be this much longer than 1.
_ROUNDING = 1e-5


@dataclass(kw_only=True, eq=False, repr=False)
class SGH(Hasher):
    """Bits that together rebuild the similarity of every pair of training rows.

    The similarity is S~_ij = 2 exp(-||x_i - x_j||^2 / rho) - 1, which P(x_i)'Q(x_j) approximates
    with vectors of d + 2 numbers, so the n x n matrix never exists. A bit is the sign of a
    combination of kernel values to the anchors; bits are learned one after another, each on the
    similarity that the others leave unexplained, and then once more in random order. Unlike in the
    paper, directions in which the kernel does not vary are left out.

    Training holds n x n_anchors float32 values: in memory up to 1 GiB, beyond that in a temporary
    file. The rows themselves are read five times and never held.

    Parameters
    ----------
    n_bits
        1 to 16,000; it may exceed d.
    n_anchors
        Kernel bases, drawn at random from the training rows, equal rows once; if there are fewer
        rows, all of them.
    anchors : array-like (m, d), optional
        Kernel bases to use instead, as rows of the input space.
    rho
        Width of the similarity. The approximation holds where ``|2 x'y| <= rho``, so rho must be
        at least twice the greatest squared length of a (scaled) row: 2 for unit rows.
    scale
        "unit" centres the rows by their mean and scales them to unit length; None leaves them as
        they are.
    normalize : {"l2"}, optional
        Scale rows to unit length before all this, for cosine distance.

    Attributes
    ----------
    anchors_ : float32 (m, d)
        The kernel bases, scaled like the rows.
    width_
        Mean squared distance of the (scaled) rows to the anchors; the kernel is
        exp(-distance^2 / (2 width_)).
    """

    method = "sgh"

    n_anchors: Annotated[int, integer(1, MAX_DIMENSION)] = 300
    anchors: ArrayLike | None = None
    rho: Positive = 2.0
    scale: Literal["unit"] | None = "unit"

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        scaling = [shift(-rows.mean()), normalize()] if self.scale == "unit" else []
        scaled = rows.through(*scaling)
        if self.scale is None:
            check_size(scaled)
        anchors = choose_anchors(scaled, self.anchors, self.n_anchors, rng)
        width = mean_squared_distance(scaled, anchors)
        kernel = rbf(anchors, 1 / (2 * width))
        graph = _Graph(scaled, kernel, anchors, float(self.rho))
        weights = graph.learn_bits(self.n_bits_, rng)
        self.anchors_, self.width_ = anchors, width
        # Only signs matter; float32 evaluates unit weights well.
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
        return [*scaling, kernel, shift(-graph.kernel_mean), affine(weights)]

    def _summary(self) -> dict[str, Any]:
        return {"anchors": len(self.anchors_), "width": self.width_}


class _Graph:
    """The similarity of all training rows, in the form that the eigenproblem of a bit needs.

    With T such that T'ZT = I, substituting w = T u turns the generalised eigenproblem of (A, Z)
    into that of T'AT alone and K into KT, so that removing a bit's term is a rank-one update. The
    inverse Cholesky factor of Z is one such T. Here T comes from the eigenvectors of Z, because
    they also show the directions in which the kernel does not vary. These are left out: their
    eigenvalues of 0 would be the greatest once bits have explained all the rest.

    ``kernel`` (n, r) is KT, K centred by ``kernel_mean`` (m,); ``similarity`` (r, r) is
    T'(K'P')(QK)T, and ``whitening`` (m, r) is T.
    """

    def __init__(
        self, scaled: RowSource, rbf_layer: Layer, anchors: NDArray[np.float32], rho: float
    ) -> None:
        n, m, d = scaled.n_rows, len(anchors), scaled.dimension
        # The mean is known only afterwards, so sums are taken about a centre near it.
        centre = rbf_layer.apply(anchors).mean(axis=0, dtype=np.float64)
        kernel = scratch_array((n, m))
        total, products = np.zeros(m), np.zeros((m, m))
        KP, P_total = np.zeros((m, d + 1)), np.zeros(d + 1)
        for part, block in scaled.placed_blocks():
            P = feature_map(block, rho)
            kernel[part] = rbf_layer.apply(block)
            K = kernel[part] - centre
            total += K.sum(axis=0)
            products += K.T @ K
            KP += K.T @ P
            P_total += P.sum(axis=0)
        offset = total / n
        products -= n * np.outer(offset, offset)
        KP -= np.outer(offset, P_total)
        self.whitening = _whitening(products, n)
        # P and Q differ only in the sign of their last number, 1. It cancels, since centred kernel
        # columns sum to 0, so the result is symmetric.
        KP = self.whitening.T @ KP
        self.similarity = KP @ KP.T
        self.kernel_mean = centre + offset
        self.kernel = _whiten(kernel, self.kernel_mean, self.whitening)

    def learn_bits(self, n_bits: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Learn the weights of the kernel values, float64 (n_bits, m)."""
        residual = n_bits * self.similarity
        directions = np.empty((n_bits, len(residual)))
        terms = np.zeros_like(directions)
        for bit in [*range(n_bits), *rng.permutation(n_bits)]:
            # The term is 0 in the first pass; the second puts the bit's own term back first.
            residual += np.outer(terms[bit], terms[bit])
            directions[bit] = leading_eigenvector(residual)
            terms[bit] = self._term(directions[bit])
            residual -= np.outer(terms[bit], terms[bit])
        return with_fixed_signs(directions @ self.whitening.T)

    def _term(self, direction: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return K's for the signs s of one bit, in one pass over the kernel."""
        direction32, result = direction.astype(np.float32), np.zeros(len(direction))
        for part in row_slices(len(self.kernel)):
            block = self.kernel[part]
            signs = np.where(block @ direction32 > 0, np.float32(1), np.float32(-1))
            result += signs @ block
        return result


def _whitening(products: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return T with T'ZT = I, for Z = K'K + ridge, on the directions in which K varies."""
    squares, directions = scipy.linalg.eigh(products, check_finite=False)
    varying = squares > n * _NO_SPREAD**2
    if not varying.any():
        raise InvalidInputError(
            f"all rows are equally far from the {len(products)} anchors; choose other anchors"
        )
    whitening: NDArray[np.float64] = directions[:, varying] / np.sqrt(squares[varying] + _RIDGE)
    return whitening


def _whiten(
    kernel: NDArray[np.float32], mean: NDArray[np.float64], whitening: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return (kernel - mean) T, in the memory of ``kernel``."""
    n, r = len(kernel), whitening.shape[1]
    # T has no more columns than rows, so no value is overwritten before it is read.
    result = kernel.reshape(-1)[: n * r].reshape(n, r)
    for rows in row_slices(n):
        result[rows] = (kernel[rows] - mean) @ whitening
    return result


def feature_map(X: NDArray[np.float32], rho: float) -> NDArray[np.float64]:
    """Return P(x) for each row, without its constant last number; refuse rows too long for it."""
    rows = X.astype(np.float64)
    squares = np.einsum("ij,ij->i", rows, rows)
    if 2 * squares.max() > rho * (1 + _ROUNDING):
        raise InvalidInputError(
            f"rho is {rho}, but must be at least twice the greatest squared length of a row, "
            f"{2 * squares.max():.6g} here; give that, or scale='unit'"
        )
    decay = np.exp(-squares / rho)
    linear = math.sqrt(2 * (math.e**2 - 1) / (math.e * rho)) * decay
    constant = math.sqrt((math.e**2 + 1) / math.e) * decay
    return np.column_stack([linear[:, None] * rows, constant])
