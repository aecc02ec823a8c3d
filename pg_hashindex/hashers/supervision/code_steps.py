"""The steps by which SDH and FSDH alternate between codes and weights of labels."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..numerics.rows import row_slices
from .discrete import cyclic_descent, signs, without_constant_bits
from .label_sets import add_by_label, check_label_count
from .labels import Labels

_MAX_SWEEPS = 10
# Least penalty, as a part of the trace of the matrix that it is added to. Less is lost in rounding.
_LEAST_PENALTY = 1e-12
# Most labels if rows have several: their Cholesky factor takes 200 MB.
_MAX_LABELS = 5000


class CodeSteps(ABC):
    """Codes B, weights W between codes and labels, and the steps that improve both.

    Codes start from ``B``, int8 (n, n_bits) of -1 and 1. A bit that the first step would make the
    same for all rows is taken from ``apart`` instead; in later steps such a bit keeps its values.
    """

    W: NDArray[np.float64]

    def __init__(self, labels: Labels, B: NDArray[np.int8], apart: NDArray[np.int8]) -> None:
        self.labels, self.B, self._kept = labels, B, apart

    @abstractmethod
    def fit_weights(self) -> None:
        """Set W."""

    @abstractmethod
    def loss(self) -> float:
        """Return the part of the objective that depends on labels."""

    @abstractmethod
    def _next_codes(self, F: NDArray[np.float32], nu: float) -> NDArray[np.int8]:
        """Return the codes of the next step."""

    def fit_codes(self, F: NDArray[np.float32], nu: float) -> bool:
        """Set B from the hash function's values (n, n_bits), and return whether it changed."""
        new = self._next_codes(F, nu)
        changed = not np.array_equal(new, self.B)
        self.B = self._kept = new
        return changed

    def _sums_by_label(self) -> NDArray[np.float64]:
        """Return Y'B, float64 (c, n_bits)."""
        result = np.zeros((self.labels.n_classes, self.B.shape[1]))
        for part in row_slices(len(self.B)):
            add_by_label(result, self.labels.indicator[part], self.B[part].astype(np.float64))
        return result


class CodesToLabels(CodeSteps):
    """The steps of SDH: ||Y - B W||^2 + penalty ||W||^2, W being (n_bits, c)."""

    def __init__(
        self, labels: Labels, B: NDArray[np.int8], apart: NDArray[np.int8], penalty: float
    ) -> None:
        super().__init__(labels, B, apart)
        self._penalty = max(penalty, _LEAST_PENALTY * B.size)
        self._measure()

    def fit_weights(self) -> None:
        """Set W; see `CodeSteps.fit_weights`."""
        products = self._products + self._penalty * np.eye(len(self._products))
        self.W = scipy.linalg.solve(products, self._sums.T, assume_a="pos")

    def fit_codes(self, F: NDArray[np.float32], nu: float) -> bool:
        """Set B; see `CodeSteps.fit_codes`."""
        changed = super().fit_codes(F, nu)
        self._measure()
        return changed

    def loss(self) -> float:
        """Return the part of the objective; see `CodeSteps.loss`."""
        # Expanded, since Y - B W takes time in rows x labels.
        fitted = np.sum((self._products @ self.W) * self.W) - 2 * np.sum(self._sums.T * self.W)
        error = self.labels.indicator.nnz + fitted
        return float(error + self._penalty * np.square(self.W).sum())

    def _next_codes(self, F: NDArray[np.float32], nu: float) -> NDArray[np.int8]:
        def linear(part: slice) -> NDArray[np.float64]:
            result: NDArray[np.float64] = self.labels.indicator[part] @ self.W.T + nu * F[part]
            return result

        return cyclic_descent(self.B, linear, self.W @ self.W.T, _MAX_SWEEPS, self._kept)

    def _measure(self) -> None:
        """Compute B'B and Y'B, which W and the loss depend on."""
        self._sums = self._sums_by_label()
        self._products = np.zeros((self.B.shape[1], self.B.shape[1]))
        for part in row_slices(len(self.B)):
            block = self.B[part].astype(np.float64)
            self._products += block.T @ block


class LabelsToCodes(CodeSteps):
    """The steps of FSDH: ||B - Y W||^2 + penalty ||W||^2, W being (c, n_bits).

    If each row has one label, Y'Y is diagonal, and time and memory are linear in the labels.
    """

    def __init__(
        self, labels: Labels, B: NDArray[np.int8], apart: NDArray[np.int8], penalty: float
    ) -> None:
        check_label_count("fsdh", labels, _MAX_LABELS)
        super().__init__(labels, B, apart)
        indicator = labels.indicator.astype(np.float64)
        self._penalty = max(penalty, _LEAST_PENALTY * indicator.nnz)
        products = indicator.T @ indicator
        self._diagonal = products.diagonal() + self._penalty
        self._factor = None
        if not labels.single:
            dense = products.toarray()
            np.fill_diagonal(dense, self._diagonal)
            self._factor = scipy.linalg.cho_factor(dense, overwrite_a=True, check_finite=False)

    def fit_weights(self) -> None:
        """Set W; see `CodeSteps.fit_weights`."""
        sums = self._sums_by_label()
        if self._factor is None:
            self.W = sums / self._diagonal[:, None]
        else:
            self.W = scipy.linalg.cho_solve(self._factor, sums, check_finite=False)

    def loss(self) -> float:
        """Return the part of the objective; see `CodeSteps.loss`."""
        error = squared_distance(self.B, lambda part: self.labels.indicator[part] @ self.W)
        return float(error + self._penalty * np.square(self.W).sum())

    def _next_codes(self, F: NDArray[np.float32], nu: float) -> NDArray[np.int8]:
        new = np.empty_like(self.B)
        for part in row_slices(len(new)):
            new[part] = signs(self.labels.indicator[part] @ self.W + nu * F[part])
        return without_constant_bits(new, self._kept)


def squared_distance(B: NDArray[np.int8], fitted: Callable[[slice], NDArray[np.floating]]) -> float:
    """Return ||B - fitted||^2, with a function that returns fitted values for a slice of rows."""
    result = 0.0
    for part in row_slices(len(B)):
        result += float(np.square(B[part] - fitted(part)).sum(dtype=np.float64))
    return result
