"""Discrete codes of supervised methods, learned before the hash function: starts and descent."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..numerics.rows import row_slices
from .label_sets import LabelSets

#: Starting codes: codewords far from each other, or random signs.
Start = Literal["spread", "random"]

# Few, so that the codes of a block stay in the processor's cache.
_DESCENT_ROWS = 1024


def spread_codewords(n_classes: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Draw codewords far from each other, one for each of two or more classes, int8 of -1 and 1.

    Rows of a Hadamard matrix differ in just half of its columns. The smallest such matrix with
    enough rows gives its columns in random order. If more bits are needed, another choice of rows
    gives more columns. No bit is the same for all classes.
    """
    order = 1 << (n_classes - 1).bit_length()
    columns: list[NDArray[np.int8]] = []
    while len(columns) < n_bits:
        rows = rng.permutation(order)[:n_classes]
        for number in 1 + rng.permutation(order - 1):
            if len(columns) == n_bits:
                break
            # Entry (i, j) of Sylvester's matrix is the parity of the bits that i and j share.
            column = 1 - 2 * (np.bitwise_count(rows & number) & 1).astype(np.int8)
            if np.ptp(column):
                columns.append(column * np.int8(rng.choice((-1, 1))))
    return np.array(columns).T


def start_codes(
    sets: LabelSets, n_bits: int, start: Start, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Give each label set a code, int8 (g, n_bits), no bit of which is the same for all sets.

    "spread": the majority of its labels' `spread_codewords`; ties go to its first label. "random":
    random signs for each set; `random_codes` draws them for each row.
    """
    apart = spread_codewords(len(sets), n_bits, rng)
    if start == "random":
        result = signs(rng.random((len(sets), n_bits)) - 0.5)
    else:
        codewords = spread_codewords(sets.members.shape[1], n_bits, rng)
        first = sets.members.indices[sets.members.indptr[:-1]]
        result = signs(sets.members @ codewords + codewords[first] / 2)
    return without_constant_bits(result, apart)


def random_codes(n_rows: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Give each row random signs, int8 (n_rows, n_bits)."""
    result = np.empty((n_rows, n_bits), np.int8)
    for part in row_slices(n_rows):
        result[part] = signs(rng.random(result[part].shape) - 0.5)
    return result


def signs(values: NDArray[np.floating]) -> NDArray[np.int8]:
    """Return 1 where a value is above 0, as codes have it, and -1 elsewhere."""
    return np.where(values > 0, np.int8(1), np.int8(-1))


def without_constant_bits(new: NDArray[np.int8], old: NDArray[np.int8]) -> NDArray[np.int8]:
    """Keep the old bit (column) if the new one is the same for all rows."""
    return np.where((new == new[0]).all(axis=0), old, new)


def cyclic_descent(
    B: NDArray[np.int8],
    linear: Callable[[slice], NDArray[np.floating]],
    quadratic: NDArray[np.float64],
    max_sweeps: int,
    kept: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """Lower, for each code b, b'A b - 2 b'q bit by bit, the other bits held (DCC).

    A bit that would become the same for all rows is taken from ``kept``.

    Starts from ``B``, int8 (n, l) of -1 and 1. ``linear`` returns q (n_i, l) of a slice of rows;
    ``quadratic`` is A, symmetric, and its diagonal does not matter. A block stops before
    ``max_sweeps`` when its bits no longer change. ``kept`` is B by default.
    """
    A = quadratic - np.diag(np.diag(quadratic))
    free = np.ones(B.shape[1], bool)
    while True:
        result = B.copy()
        if kept is not None:
            result[:, ~free] = kept[:, ~free]
        for part in row_slices(len(B), _DESCENT_ROWS):
            # In the transposes, one bit of all rows is contiguous.
            codes = np.ascontiguousarray(result[part].T, np.float64)
            q = np.ascontiguousarray(linear(part).T, np.float64)
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
        # Other bits were chosen with these, so start again without them.
        free &= ~constant
