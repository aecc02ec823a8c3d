"""What the supervised methods share that learn codes first, and a hash function to them after.

Rows become kernel features, centred; codes are learned from the labels; a ridge regression from
the features to the codes is the hash function. Rows with the same labels form a label set.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..layers import MAX_DIMENSION, Layer, affine, rbf, shift
from .base import centred_affine
from .checks import check_choice, check_integer, check_positive
from .kernels import choose_anchors, mean_squared_distance
from .rows import RowSource, scratch_array
from .supervision import Labels

__all__ = [
    "Features",
    "LabelSets",
    "Start",
    "check_learning",
    "cyclic_descent",
    "signs",
    "spread_codewords",
    "start_codes",
    "without_constant_bits",
]

#: What codes start from: codewords far from each other, or random signs.
Start = Literal["spread", "random"]

_BLOCK_ROWS = 4096
# Fewer, so that the codes of a block stay in the processor's cache from bit to bit.
_DESCENT_ROWS = 1024
# A kernel value that varies less than this (standard deviation) is too near to the rounding of
# float32, about 1e-7, to learn from. Other features: than this part of the most varying one.
_NO_SPREAD = 1e-4


def check_learning(n_anchors: Any, width: Any, ridge: Any, n_iter: Any, start: Any) -> None:
    """Refuse parameters that the methods share and that are out of range.

    Raises
    ------
    InvalidInputError
    """
    check_integer("n_anchors", n_anchors, 1, MAX_DIMENSION)
    check_positive("width", width)
    check_positive("ridge", ridge)
    check_integer("n_iter", n_iter, 1, 100_000)
    check_choice("start", start, ("spread", "random"))


class Features:
    """Features of all training rows, their mean and covariance, and regression from them.

    Holds n x m float32 values, in memory up to 1 GiB, beyond that in a temporary file.

    Parameters
    ----------
    rows : RowSource
    kernel : Layer or None
        An rbf layer; None takes the rows themselves as features.
    ridge : float
        Strength of the regressions, as a part of the mean variance of a feature, so that it means
        the same on any data.

    Attributes
    ----------
    mean : float64 (m,)
    covariance : float64 (m, m)
    penalty : float
        Of the squared weights of a regression, beside mean squared errors.

    Raises
    ------
    InvalidInputError
        If no feature varies.
    """

    def __init__(self, rows: RowSource, kernel: Layer | None, ridge: float) -> None:
        self.kernel = kernel
        n, m = rows.n_rows, rows.dimension
        if kernel is not None:
            m = kernel.output_dimension(m)
        self._values = scratch_array((n, m))
        start, centre, total, products = 0, np.zeros(m), np.zeros(m), np.zeros((m, m))
        for block in rows.blocks():
            values = block if kernel is None else kernel.apply(block)
            if not start:
                # Sums are taken about a centre near the mean, which is known only afterwards.
                centre = values.mean(axis=0, dtype=np.float64).astype(np.float32)
            held = self._values[start : start + len(block)]
            np.subtract(values, centre, out=held)
            exact = held.astype(np.float64)
            total += exact.sum(axis=0)
            products += exact.T @ exact
            start += len(block)
        self._offset = total / n
        self.mean = centre + self._offset
        self.covariance = products / n - np.outer(self._offset, self._offset)
        variances = np.diag(self.covariance)
        self._least_variance = _NO_SPREAD**2 * (1.0 if kernel else float(variances.max()))
        if variances.max() <= self._least_variance:
            raise InvalidInputError(
                f"all labelled rows are equally far from the {m} anchors; choose other anchors"
                if kernel
                else "all labelled rows are equal; label some that differ"
            )
        self.penalty = max(ridge * float(variances.mean()), self._least_variance)
        self._factor = scipy.linalg.cho_factor(
            self.covariance + self.penalty * np.eye(m), lower=True, check_finite=False
        )

    @classmethod
    def of_anchors(
        cls,
        rows: RowSource,
        anchors: ArrayLike | None,
        n_anchors: int,
        width: float,
        ridge: float,
        rng: np.random.Generator,
    ) -> "Features":
        """Take exp(-distance^2 / (width * mean squared distance)) to each anchor as features."""
        chosen = choose_anchors(rows, anchors, n_anchors, rng)
        mean_square = mean_squared_distance(rows, chosen)
        if mean_square == 0:
            raise InvalidInputError("all labelled rows are equal; label some that differ")
        return cls(rows, rbf(chosen, 1 / (float(width) * mean_square)), float(ridge))

    def __len__(self) -> int:
        return len(self._values)

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield the numbers and the centred features, float64 (n_i, m), of all rows in turn."""
        for start in range(0, len(self), _BLOCK_ROWS):
            part = slice(start, min(start + _BLOCK_ROWS, len(self)))
            yield part, self._values[part] - self._offset

    def by_label(self, labels: Labels, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum the centred features of the rows of each label, each row times its weight.

        Returns
        -------
        float64 (m, c)
        """
        result = np.zeros((labels.n_classes, len(self.mean)))
        for part, values in self.blocks():
            result += labels.indicator[part].T @ (weights[part, None] * values)
        return result.T

    def moments(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of the centred features and their variances, rows being weighted.

        Variances of features that do not vary are infinite: divided by, they leave nothing.
        """
        mean, squares = np.zeros(len(self.mean)), np.zeros(len(self.mean))
        for part, values in self.blocks():
            mean += weights[part] @ values
            squares += weights[part] @ np.square(values)
        mean /= weights.sum()
        variances = squares / weights.sum() - mean**2
        return mean, np.where(variances < self._least_variance, np.inf, variances)

    def regress(
        self, targets: NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit targets (n, k) by ridge regression; the intercept is free of the penalty.

        Returns
        -------
        weights : float64 (m, k)
            Of the centred features.
        intercept : float64 (k,)
        """
        products = np.zeros((len(self.mean), targets.shape[1]))
        for part, values in self.blocks():
            products += values.T @ targets[part].astype(np.float64)
        intercept: NDArray[np.float64] = targets.mean(axis=0, dtype=np.float64)
        weights = scipy.linalg.cho_solve(self._factor, products / len(self), check_finite=False)
        return weights, intercept

    def layers(
        self, weights: NDArray[np.float64], intercept: NDArray[np.float64] | None = None
    ) -> list[Layer]:
        """Return the layers of weights' (features - mean) + intercept.

        Raises
        ------
        InvalidInputError
            If one of them is the same for all rows but for rounding.
        """
        spread = np.sqrt(np.einsum("ij,ij->j", weights, self.covariance @ weights))
        if (flat := spread < _NO_SPREAD).any():
            raise InvalidInputError(
                f"the features of the rows say nothing about bit {int(flat.argmax())}, which the "
                "labels ask for; rows may be too few, or equal for different labels, or need "
                "kernel features with more anchors"
            )
        if self.kernel is None:
            layer = centred_affine(weights.T, self.mean)
            if intercept is None or layer.weights is None or layer.bias is None:
                return [layer]
            return [affine(layer.weights, layer.bias + intercept)]
        return [self.kernel, shift(-self.mean), affine(weights.T, intercept)]


class LabelSets:
    """The distinct sets of labels that rows have; with one label a row, the classes.

    Attributes
    ----------
    members : scipy.sparse.csr_array, float64 (g, c)
        The labels of each set.
    of_row : intp (n,)
        The set of each row.
    counts : float64 (g,)
        Rows of each set.
    """

    def __init__(self, labels: Labels) -> None:
        indicator = labels.indicator
        bits = np.empty((indicator.shape[0], (indicator.shape[1] + 7) // 8), np.uint8)
        for start in range(0, len(bits), _BLOCK_ROWS):
            dense = indicator[start : start + _BLOCK_ROWS].toarray() > 0
            bits[start : start + _BLOCK_ROWS] = np.packbits(dense, axis=1)
        whole = bits.view(np.dtype((np.void, bits.shape[1])))[:, 0]
        _, first, self.of_row = np.unique(whole, return_index=True, return_inverse=True)
        self.members = indicator[first].astype(np.float64)
        self.counts = np.bincount(self.of_row).astype(np.float64)

    def __len__(self) -> int:
        return len(self.counts)

    def balancing_weights(self) -> NDArray[np.float64]:
        """Return what a row of each set weighs, float64 (g,), with a mean of 1 over all rows.

        In proportion to 1 / sqrt(rows of its label), the mean over its labels: with one label a
        row, classes weigh as the root of their size.
        """
        by_label = 1 / np.sqrt(self.counts @ self.members)
        weights: NDArray[np.float64] = (self.members @ by_label) / self.members.sum(axis=1)
        weights *= self.counts.sum() / (weights @ self.counts)
        return weights

    def sharing(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values (g, k), for each set, over the sets that share a label with it, (g, k)."""
        result = np.empty_like(values)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = self.members[start : start + _BLOCK_ROWS] @ self.members.T
            block.data[:] = 1
            result[start : start + _BLOCK_ROWS] = block @ values
        return result


def spread_codewords(n_classes: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Draw codewords far from each other, one a class.

    Rows of a Hadamard matrix differ in just half of its columns. Of the smallest such matrix that
    has enough rows, columns are taken in random order, and with another choice of rows where more
    bits are asked for than there are columns. No bit is the same for all classes.

    Parameters
    ----------
    n_classes : int
        2 or more.
    n_bits : int
    rng : numpy.random.Generator

    Returns
    -------
    int8 (n_classes, n_bits), -1 and 1
    """
    order = 1 << (n_classes - 1).bit_length()
    columns: list[NDArray[np.int8]] = []
    while len(columns) < n_bits:
        rows = rng.permutation(order)[:n_classes]
        for number in 1 + rng.permutation(order - 1):
            # Entry (i, j) of Sylvester's matrix is the parity of the bits that i and j share.
            column = 1 - 2 * (np.bitwise_count(rows & number) & 1).astype(np.int8)
            if np.ptp(column) and len(columns) < n_bits:
                columns.append(column * np.int8(rng.choice((-1, 1))))
    return np.array(columns).T


def start_codes(
    sets: LabelSets, n_bits: int, start: Start, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Give each label set a code, int8 (g, n_bits), no bit of which is the same for all sets.

    "spread": the majority of its labels' `spread_codewords`, ties going to its first label.
    "random": random signs.
    """
    apart = spread_codewords(len(sets), n_bits, rng)
    if start == "random":
        result = signs(rng.random((len(sets), n_bits)) - 0.5)
    else:
        codewords = spread_codewords(sets.members.shape[1], n_bits, rng)
        first = sets.members.indices[sets.members.indptr[:-1]]
        result = signs(sets.members @ codewords + codewords[first] / 2)
    return without_constant_bits(result, apart)


def signs(values: NDArray[np.floating]) -> NDArray[np.int8]:
    """Return 1 where a value is above 0, as codes have it, and -1 elsewhere."""
    return np.where(values > 0, np.int8(1), np.int8(-1))


def without_constant_bits(new: NDArray[np.int8], old: NDArray[np.int8]) -> NDArray[np.int8]:
    """Keep old bits (columns) where a new one is the same for all rows: it would tell nothing."""
    return np.where((new == new[0]).all(axis=0), old, new)


def cyclic_descent(
    B: NDArray[np.int8],
    linear: NDArray[np.floating],
    quadratic: NDArray[np.float64],
    max_sweeps: int,
) -> NDArray[np.int8]:
    """Lower, for each code b, b'A b - 2 b'q bit by bit, the other bits held (DCC).

    A bit that would become the same for all rows keeps its values.

    Parameters
    ----------
    B : int8 (n, l), -1 and 1
        Where to start.
    linear : (n, l)
        A vector q for each row.
    quadratic : float64 (l, l)
        A, symmetric; its diagonal does not matter.
    max_sweeps : int
        Rows whose bits no longer change stop earlier.

    Returns
    -------
    int8 (n, l)
    """
    A = quadratic - np.diag(np.diag(quadratic))
    free = np.ones(B.shape[1], bool)
    while True:
        result = np.empty_like(B)
        for start in range(0, len(B), _DESCENT_ROWS):
            part = slice(start, start + _DESCENT_ROWS)
            # A bit of all rows is contiguous in the transposes.
            codes = np.ascontiguousarray(B[part].T, np.float64)
            q = np.ascontiguousarray(linear[part].T, np.float64)
            for _ in range(max_sweeps):
                before = codes.copy()
                for bit in np.flatnonzero(free):
                    codes[bit] = np.where(q[bit] - A[bit] @ codes > 0, 1.0, -1.0)
                if np.array_equal(before, codes):
                    break
            result[part] = codes.T
        constant = free & (result == result[0]).all(axis=0)
        if not constant.any():
            return result
        # The other bits have relied on these: all is done again, without them.
        free &= ~constant
