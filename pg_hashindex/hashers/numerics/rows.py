"""Training rows: an array, or blocks that each pass reads again, for rows beyond memory."""

import copy
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.layers import Layer
from ...models.vectors import as_rows

#: A function without arguments that returns a fresh iterator of blocks (n_i, d) at every call.
BlockSource: TypeAlias = Callable[[], Iterable[ArrayLike]]
#: The rows that ``fit`` takes.
RowsLike: TypeAlias = ArrayLike | BlockSource

# Values in a block: 16 MB in float64. With twice as many, which fit caches less well, PCAH and SH
# took 1.5 times as long on 784 dimensions.
_BLOCK_VALUES = 1 << 21
_MAX_BLOCK_ROWS = 8192
# Larger arrays with a line for each row go to a temporary file.
_SCRATCH_BYTES = 1 << 30
# float32 holds the squares and sums of variances in this range.
_FLOAT32_VARIANCES = (1e-16, 1e16)
# Unit rows that differ by less than this in every dimension differ by rounding only.
_SAME_DIRECTION = 1e-6


class RowSource:
    """Training rows that can be read any number of times.

    Rows come out as float32, in blocks of one size whatever blocks the caller gives. So an array
    and blocks of the same rows give the same model.

    Rows are an array (n, d), or a function that returns a fresh iterator of blocks at every call.
    Each row goes through ``layers`` first. Rows that are not finite vectors of one dimension, or
    fewer than 2 distinct ones, are refused.
    """

    def __init__(self, X: RowsLike, layers: Sequence[Layer] = ()) -> None:
        if isinstance(X, Iterator):
            raise InvalidInputError(
                "training reads its rows more than once; "
                "pass a function that returns a fresh iterator of blocks, not an iterator"
            )
        self._blocks = X if callable(X) else partial(_one_block, as_rows(X))
        self._layers = tuple(layers)
        self.n_rows, self.dimension = self._scan()
        self._given_dimension = self.dimension

    def _scan(self) -> tuple[int, int]:
        """Count the rows, and check them all before any work is done."""
        n_rows, first, distinct = 0, None, False
        tolerance = _SAME_DIRECTION if any(x.kind == "normalize" for x in self._layers) else 0.0
        for block in self._read(None):
            if first is None:
                first = block[0].copy()
            n_rows += len(block)
            distinct = distinct or bool((np.abs(block - first) > tolerance).any())
        if first is None:
            raise InvalidInputError("there are no rows to train on")
        if not distinct:
            raise InvalidInputError(
                "training needs at least 2 distinct rows, got "
                + ("1 sample" if n_rows == 1 else f"{n_rows} rows, all equal")
            )
        return n_rows, len(first)

    def through(self, *layers: Layer) -> "RowSource":
        """Return the rows after further layers."""
        dimension = self.dimension
        for layer in layers:
            dimension = layer.output_dimension(dimension)
        return self._with(_layers=self._layers + layers, dimension=dimension)

    def untransformed(self) -> "RowSource":
        """Return the rows as they were given, before any layer."""
        return self._with(_layers=(), dimension=self._given_dimension)

    def restricted_to(self, numbers: NDArray[np.integer]) -> "RowSource":
        """Return only the rows of these distinct numbers, in rising order."""
        size = _block_rows(self._given_dimension)
        blocks = partial(_selected, self._blocks, np.sort(numbers), size)
        return self._with(_blocks=blocks, n_rows=len(numbers))

    def _with(self, **attributes: Any) -> "RowSource":
        result = copy.copy(self)
        vars(result).update(attributes)
        return result

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Read all rows once, in blocks float32 (n_i, d); the next block may overwrite this one."""
        n_rows = 0
        for block in self._read(self._given_dimension):
            n_rows += len(block)
            if n_rows <= self.n_rows:
                yield block
        if n_rows != self.n_rows:
            raise InvalidInputError(
                f"the row source gave {self.n_rows} rows at first and {n_rows} when read again; "
                "it must return a fresh iterator over the same rows at every call"
            )

    def placed_blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Read all rows as `blocks` does; yield the row numbers of each block, and the block."""
        start = 0
        for block in self.blocks():
            yield slice(start, start + len(block)), block
            start += len(block)

    def rows(self, numbers: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the rows of these distinct numbers, in the order of the numbers."""
        order = np.argsort(numbers)
        wanted, result = numbers[order], np.empty((len(numbers), self.dimension), np.float32)
        for part, block in self.placed_blocks():
            low, high = np.searchsorted(wanted, (part.start, part.stop))
            result[order[low:high]] = block[wanted[low:high] - part.start]
        return result

    def array(self) -> NDArray[np.float32]:
        """Return all rows, (n, d), in a `scratch_array`."""
        return gathered(self.blocks(), (self.n_rows, self.dimension))

    def transform(self, X: NDArray[np.floating]) -> NDArray[np.float32]:
        """Put other rows through the same layers."""
        return next(self._through([X.astype(np.float32)], self._layers))

    def mean(self) -> NDArray[np.float64]:
        """Return the mean row, float64 (d,)."""
        total = np.zeros(self.dimension)
        for block in self.blocks():
            total += block.sum(axis=0, dtype=np.float64)
        return total / self.n_rows

    def covariance(
        self, mean: NDArray[np.float64], dtype: type[np.floating] = np.float64
    ) -> NDArray[np.float64]:
        """Return the covariance matrix about ``mean``, float64 (d, d).

        float32 products within a block take less than half the time, with errors of about 1e-7 of
        the greatest variance; sums over blocks are always float64. If float32 cannot hold the
        variances, float64 is used anyway.
        """
        centre = mean.astype(dtype)
        total = np.zeros((self.dimension, self.dimension))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks():
                # Centre before the product: the difference of two large sums would cancel.
                centred = block - centre
                total += centred.T @ centred
            total /= self.n_rows
            # The float32 centre is not exactly the mean.
            offset = mean - centre
            total -= np.outer(offset, offset)
        low, high = _FLOAT32_VARIANCES
        if dtype is np.float32 and not low < total.diagonal().max() < high:
            return self.covariance(mean)
        return total

    def _read(self, dimension: int | None) -> Iterator[NDArray[np.float32]]:
        return self._through(self._regrouped(dimension), self._layers)

    @staticmethod
    def _through(
        blocks: Iterable[NDArray[np.float32]], layers: Sequence[Layer]
    ) -> Iterator[NDArray[np.float32]]:
        for block in blocks:
            result = block
            for layer in layers:
                result = layer.apply(result)
            yield result

    def _regrouped(self, dimension: int | None) -> Iterator[NDArray[np.float32]]:
        held: NDArray[np.float32] | None = None
        n_held = 0
        for number, given in enumerate(self._blocks()):
            try:
                rows = as_rows(given, dimension=dimension)
            except InvalidInputError as error:
                raise InvalidInputError(f"block {number} of the rows: {error}") from error
            if held is None:
                dimension = rows.shape[1]
                held = np.empty((_block_rows(dimension), dimension), np.float32)
            taken = 0
            while taken < len(rows):
                part = rows[taken : taken + len(held) - n_held]
                held[n_held : n_held + len(part)] = part
                taken, n_held = taken + len(part), n_held + len(part)
                if n_held == len(held):
                    yield held
                    n_held = 0
        if held is not None and n_held:
            yield held[:n_held]


def _block_rows(dimension: int) -> int:
    return min(_MAX_BLOCK_ROWS, max(1, _BLOCK_VALUES // dimension))


def row_slices(n_rows: int, size: int = 8192) -> Iterator[slice]:
    """Yield slices of ``size`` rows, to work on an array in blocks."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _one_block(array: NDArray[np.floating]) -> tuple[NDArray[np.floating]]:
    return (array,)


def _selected(source: BlockSource, numbers: NDArray[np.integer], size: int) -> Iterator[ArrayLike]:
    start = 0
    for block in source():
        rows = np.asarray(block)
        low, high = np.searchsorted(numbers, (start, start + len(rows)))
        chosen = numbers[low:high] - start
        # An array is one block, of which a pass must not copy the whole.
        for part in row_slices(len(chosen), size):
            yield rows[chosen[part]]
        start += len(rows)


def scratch_array(shape: tuple[int, int]) -> NDArray[np.float32]:
    """Return a float32 array, not initialised, for values of all rows.

    Up to 1 GiB it is in memory, beyond that in an unnamed file of the temporary folder
    (``TMPDIR``), which goes when the array goes.
    """
    if 4 * math.prod(shape) <= _SCRATCH_BYTES:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def gathered(blocks: Iterable[NDArray[np.floating]], shape: tuple[int, int]) -> NDArray[np.float32]:
    """Copy blocks of rows into a `scratch_array` of this shape, which they fill."""
    result = scratch_array(shape)
    start = 0
    for block in blocks:
        result[start : start + len(block)] = block
        start += len(block)
    return result
