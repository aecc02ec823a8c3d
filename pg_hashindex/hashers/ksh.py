"""KSH: supervised hashing with kernels (Liu, Wang, Ji, Jiang & Chang, CVPR 2012)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import leading_eigenvector, with_fixed_signs
from ..models.layers import MAX_DIMENSION, Layer, affine, shift
from .base import Hasher
from .numerics.kernels import choose_anchors, gaussian
from .numerics.rows import RowSource
from .parameters import Factor, integer
from .supervision.label_sets import LabelSets
from .supervision.labels import Labels, Supervision, check_classes

# Combinations of kernel values (unit weights) with a smaller standard deviation are too near to the
# rounding of float32, about 1e-7, to make a bit. Three times as much costs precision at search.
_NO_SPREAD = 3e-3


@dataclass(kw_only=True, eq=False, repr=False)
class KSH(Hasher):
    """Bits, one after another, whose products rebuild which labelled rows share a label.

    With kernel values K of l labelled rows, centred, and S_ij = 1 where rows i and j share a label,
    else -1, it minimises ||sum_k h_k h_k' - r S||^2, r bits, greedily: bit k is h = sgn(K a) that
    maximises h'R h, R = r S - (sum of the h h' before). It starts from the spectral relaxation: the
    a of greatest a'K'R K a for a'K'K a = l. Then a smooth surrogate is minimised, -g'R g with g = 2
    / (1 + exp(-K a)) - 1; the better one of the two by h'R h is kept.

    Differences from the paper: L-BFGS minimises the surrogate, not Nesterov's method, with the same
    gradient; R is never built, since S follows from label sets and the rest of R from the bits so
    far; K is whitened first, which removes directions in which it does not vary.

    Training holds 2 x max_labelled x n_anchors and max_labelled x n_bits float64 values. With one
    label a row, time does not grow with the number of labels; if rows have several, each step takes
    time for every pair of label sets that share a label. Once the bits separate all classes, as one
    bit does with two distant classes, further bits are nearly copies.

    Parameters
    ----------
    n_bits
        1 to 16,000.
    n_anchors
        Kernel bases, 2 or more, drawn at random from the training rows, equal rows once; if there
        are fewer rows, all of them.
    anchors : array-like (m, d), optional
        Kernel bases to use instead, as rows of the input space.
    width
        The kernel is exp(-distance^2 / (width * mean squared distance of rows and anchors)); 1e-12
        to 1e12.
    max_labelled
        Labelled rows that bits are learned from, drawn at random where there are more; time grows
        in proportion. The paper takes 1,000 to 2,000, but more generalise better: of 8,000 training
        rows, 2,000, 5,000 and all gave a MAP of 0.91, 0.95 and 0.95 on MNIST, 0.51, 0.59 and 0.62
        on text embeddings.
    n_iter
        Iterations of L-BFGS for a bit, at most; 0 keeps the spectral relaxation.

    Attributes
    ----------
    objective_ : float64 (n_bits + 1,)
        ||sum_k h_k h_k' - r S||^2 / (r l)^2 before the first bit and after each: it starts at 1.
    """

    method = "ksh"
    learns_from = ("labels",)

    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] = 300
    anchors: ArrayLike | None = None
    width: Factor = 0.7
    max_labelled: Annotated[int, integer(2, 1_000_000)] = 5000
    n_iter: Annotated[int, integer(0, 100_000)] = 50

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        assert given.labels is not None  # noqa: S101  (learns_from asks for them)
        anchors = choose_anchors(rows, self.anchors, self.n_anchors, rng)
        kernel = gaussian(rows, anchors, self.width)
        mean = rows.through(kernel).mean()
        check_classes(given.labels)
        numbers = given.labels.labelled
        if len(numbers) > self.max_labelled:
            numbers = numbers[np.sort(rng.choice(len(numbers), self.max_labelled, replace=False))]
        known = given.labels.take(numbers)
        K = kernel.apply(rows.rows(numbers)) - mean
        learning = _Bits(K, known, self.n_bits_)
        weights = np.array([learning.next(self.n_iter) for _ in range(self.n_bits_)])
        self.objective_ = learning.objective
        return [kernel, shift(-mean), affine(weights)]

    def _summary(self) -> dict[str, Any]:
        return {"objective": float(self.objective_[-1])}


class _Bits:
    """The similarities that the bits so far leave unexplained, and the step to the next bit."""

    def __init__(self, K: NDArray[np.float64], labels: Labels, n_bits: int) -> None:
        squares, directions = scipy.linalg.eigh(K.T @ K, check_finite=False)
        varying = squares > len(K) * _NO_SPREAD**2
        if not varying.any() or np.ptp(K, axis=0).max() < _NO_SPREAD:
            raise InvalidInputError(
                f"all {len(K)} labelled rows are equally far from the {K.shape[1]} anchors; "
                "choose other anchors, or a width nearer to 1"
            )
        # Z'Z = l I for Z = K T, which makes the spectral relaxation an ordinary eigenproblem.
        self._whitening = directions[:, varying] * np.sqrt(len(K) / squares[varying])
        self._Z = K @ self._whitening
        self._sets = LabelSets.of_several(labels)
        places = (self._sets.of_row, np.arange(len(K)))
        self._sum_by_set = scipy.sparse.csr_array((np.ones(len(K)), places))
        self._scale = n_bits
        self._bits, self._n_learned = np.empty((n_bits, len(K))), 0
        self._matrix = self._Z.T @ self._scale_similar(self._Z)
        # ||r S||^2
        self._values = [float(n_bits) ** 2 * len(K) ** 2]

    @property
    def objective(self) -> NDArray[np.float64]:
        """The loss before the first bit and after each, relative to the first."""
        return np.array(self._values) / self._values[0]

    def _scale_similar(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return r S times values (l, k)."""
        by_set = self._sum_by_set @ values
        similar: NDArray[np.float64] = 2 * self._sets.sharing(by_set) - by_set.sum(axis=0)
        return self._scale * similar[self._sets.of_row]

    def _residual(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return R times values (l,)."""
        similar = self._scale_similar(values[:, None])[:, 0]
        bits = self._bits[: self._n_learned]
        return similar - (bits @ values) @ bits

    def next(self, n_iter: int) -> NDArray[np.float64]:
        """Learn the next bit and return its weights of the kernel values, float64 (m,)."""
        start = with_fixed_signs(leading_eigenvector(self._matrix)[None])[0]
        candidates = [start]
        if n_iter:
            found = scipy.optimize.minimize(
                self._surrogate,
                start,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": n_iter},
            )
            candidates.append(found.x)
        bits = [np.where(self._Z @ a > 0, 1.0, -1.0) for a in candidates]
        gains = [float(h @ self._residual(h)) for h in bits]
        # A bit that is the same for all rows is useless.
        best = int(
            np.argmax([-np.inf if np.ptp(h) == 0 else g for h, g in zip(bits, gains, strict=True)])
        )
        h = bits[best]
        # ||R - h h'||^2 = ||R||^2 - 2 h'R h + l^2
        self._values.append(self._values[-1] - 2 * gains[best] + len(h) ** 2)
        self._bits[self._n_learned] = h
        self._n_learned += 1
        term = self._Z.T @ h
        self._matrix -= np.outer(term, term)
        # Only signs matter; float32 evaluates unit variance well.
        direction = candidates[best] / np.linalg.norm(candidates[best])
        weights: NDArray[np.float64] = self._whitening @ direction
        return weights

    def _surrogate(self, a: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return -g'R g / l^2 for g = 2 / (1 + exp(-Z a)) - 1, and its gradient."""
        g = np.tanh(self._Z @ a / 2)
        Rg = self._residual(g)
        n = len(g) ** 2
        return -float(g @ Rg) / n, -(self._Z.T @ (Rg * (1 - g**2))) / n
