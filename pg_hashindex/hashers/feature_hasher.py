"""Features of training rows that codes are regressed on: kernel values, or the rows themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NoReturn

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import centred_affine
from ..models.layers import MAX_DIMENSION, Layer, affine, shift
from .base import Hasher
from .numerics.kernels import choose_anchors, gaussian, mean_squared_distance
from .numerics.rows import RowSource, row_slices, scratch_array
from .parameters import Factor, integer
from .supervision.label_sets import add_by_label
from .supervision.labels import Labels

_BLOCK_ROWS = 4096
# Kernel values with a smaller standard deviation are too near to the rounding of float32, about
# 1e-7, to learn from. For other features it is relative to the greatest deviation.
_NO_SPREAD = 1e-4


class Features:
    """Features of all training rows, their mean and covariance, and regression from them.

    It holds n x m float32 values, in memory up to 1 GiB, beyond that in a temporary file.

    Features are those of an rbf layer, or the rows themselves without one. ``ridge`` is the penalty
    of regressions divided by the mean variance of a feature, so that it means the same on any data;
    ``penalty`` is the factor of squared weights in a regression of mean squared errors. ``mean`` is
    (m,) and ``covariance`` (m, m). Features that do not vary are refused.
    """

    def __init__(self, rows: RowSource, kernel: Layer | None, ridge: float) -> None:
        self.kernel = kernel
        if kernel is not None:
            rows = rows.through(kernel)
        n, m = rows.n_rows, rows.dimension
        self._values = scratch_array((n, m))
        centre, total, products = np.zeros(m), np.zeros(m), np.zeros((m, m))
        for part, values in rows.placed_blocks():
            if not part.start:
                # The mean is known only afterwards, so sums are taken about a centre near it.
                centre = values.mean(axis=0, dtype=np.float64).astype(np.float32)
            self._values[part] = values - centre
            exact = self._values[part].astype(np.float64)
            total += exact.sum(axis=0)
            products += exact.T @ exact
        self._offset = total / n
        self.mean = centre + self._offset
        self.covariance = products / n - np.outer(self._offset, self._offset)
        variances = np.diag(self.covariance)
        self._least_variance = _NO_SPREAD**2 * (1.0 if kernel else float(variances.max()))
        self._ridge = ridge
        if variances.max() <= self._least_variance:
            raise InvalidInputError(
                f"all labelled rows are equally far from the {m} anchors; choose other anchors, "
                "or a width nearer to 1"
                if kernel
                else "all labelled rows are equal; label some that differ"
            )
        self.penalty = max(ridge * float(variances.mean()), self._least_variance)
        self._factor = scipy.linalg.cho_factor(
            self.covariance + self.penalty * np.eye(m), lower=True, check_finite=False
        )

    def __len__(self) -> int:
        return len(self._values)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield the numbers and the centred features, float64 (n_i, m), of all rows in turn."""
        for part in row_slices(len(self), _BLOCK_ROWS):
            yield part, self._values[part] - self._offset

    def by_label(self, labels: Labels, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the centred features of each label's rows, times their weights, (m, c)."""
        result = np.zeros((labels.n_classes, len(self.mean)))
        for part, values in self.blocks():
            add_by_label(result, labels.indicator[part], weights[part, None] * values)
        return result.T

    def moments(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of the centred features and their variances, rows being weighted.

        Features that do not vary get an infinite variance: dividing by it removes them.
        """
        mean, squares = np.zeros(len(self.mean)), np.zeros(len(self.mean))
        for part, values in self.blocks():
            mean += weights[part] @ values
            squares += weights[part] @ np.square(values)
        mean /= weights.sum()
        variances = squares / weights.sum() - mean**2
        return mean, np.where(variances < self._least_variance, np.inf, variances)

    def regress(
        self, targets: NDArray[np.integer] | NDArray[np.floating]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit targets (n, k) by ridge regression; the intercept is not penalised.

        Returns weights (m, k) of the centred features, and the intercept (k,).
        """
        products = np.zeros((len(self.mean), targets.shape[1]))
        for part, values in self.blocks():
            products += values.T @ targets[part].astype(np.float64)
        intercept: NDArray[np.float64] = targets.mean(axis=0, dtype=np.float64)
        weights = scipy.linalg.cho_solve(self._factor, products / len(self), check_finite=False)
        return weights, intercept

    def layers(
        self,
        weights: NDArray[np.float64],
        intercept: NDArray[np.float64],
        targets: NDArray[np.int8] | None = None,
    ) -> list[Layer]:
        """Return the layers of weights' (features - mean) + intercept.

        ``targets`` (n, k), -1 and 1, are those of the regression. With a class of few rows, all
        rows may come out on one side of 0; the threshold of such a bit moves to the middle between
        the mean of the rows with 1 and that of the others. A bit that is the same for all rows, or
        depends on rounding, is refused.
        """
        spread = np.sqrt(np.einsum("ij,ij->j", weights, self.covariance @ weights))
        if (flat := spread < _NO_SPREAD).any():
            self._refuse(int(flat.argmax()))
        intercept = intercept.copy()
        constant = self._constant_bits(weights, intercept)
        if targets is not None and len(constant):
            intercept[constant] -= self._middle(
                weights[:, constant], intercept[constant], targets[:, constant]
            )
            constant = self._constant_bits(weights, intercept)
        if len(constant):
            self._refuse(int(constant[0]))
        if self.kernel is None:
            return [centred_affine(weights.T, self.mean, intercept)]
        return [self.kernel, shift(-self.mean), affine(weights.T, intercept)]

    def _constant_bits(
        self, weights: NDArray[np.float64], intercept: NDArray[np.float64]
    ) -> NDArray[np.intp]:
        """Return the numbers of the bits that are the same for all rows."""
        ones, zeros = np.zeros((2, len(intercept)), bool)
        for _, values in self.blocks():
            # After the first block most bits are known to differ and need no further rows.
            open_bits = np.flatnonzero(~(ones & zeros))
            if not len(open_bits):
                break
            above = values @ weights[:, open_bits] + intercept[open_bits] > 0
            ones[open_bits] |= above.any(axis=0)
            zeros[open_bits] |= ~above.all(axis=0)
        return np.flatnonzero(~(ones & zeros))

    def _middle(
        self,
        weights: NDArray[np.float64],
        intercept: NDArray[np.float64],
        targets: NDArray[np.int8],
    ) -> NDArray[np.float64]:
        """Return the middle between the mean projections of rows with 1 and with -1, (k,)."""
        total, difference = np.zeros((2, len(intercept)))
        for part, values in self.blocks():
            projections = values @ weights + intercept
            total += projections.sum(axis=0)
            difference += (targets[part] * projections).sum(axis=0)
        n_ones = np.count_nonzero(targets > 0, axis=0)
        ones, zeros = (total + difference) / 2, (total - difference) / 2
        middle: NDArray[np.float64] = (ones / n_ones + zeros / (len(self) - n_ones)) / 2
        return middle

    def _refuse(self, bit: int) -> NoReturn:
        raise InvalidInputError(
            f"the features of the rows say nothing about bit {bit}, which they are to give; rows "
            "may be too few, or equal for different labels, or need kernel features with more "
            f"anchors, or the ridge, {self._ridge:g}, may be too great"
        )


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureHasher(Hasher):
    """A method that learns codes of labelled rows, and regresses them on features of the rows.

    `SDH` describes the parameters.
    """

    learns_from: ClassVar[tuple[str, ...]] = ("labels",)

    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] | None = None
    anchors: ArrayLike | None = None
    width: Factor = 0.7
    sigma: Factor | None = None
    ridge: Factor = 1e-4

    def _features(self, rows: RowSource, rng: np.random.Generator) -> Features:
        kernel = None
        if self.anchors is not None or self.n_anchors is not None:
            anchors = choose_anchors(rows, self.anchors, self.n_anchors or 0, rng)
            width = self.width
            if self.sigma is not None:
                # Equal rows have no distance; `gaussian` refuses them.
                width = 2 * self.sigma**2 / (mean_squared_distance(rows, anchors) or 1)
            kernel = gaussian(rows, anchors, width)
        return Features(rows, kernel, float(self.ridge))
