"""Checks of input vectors, shared by hashers, models and searches."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import HalfVector, Vector

from ..errors import InvalidInputError, RowsLeftOutWarning

#: scipy.sparse.csr_array, which has no types of its own.
SparseRows: TypeAlias = Any

#: The most dimensions that a pgvector ``vector`` may have.
MAX_DIMENSION = 16_000

#: Rows are trained on if they are shorter: squares of 1e8 of them add up within float32.
LARGEST_LENGTH = 1e15

# Keys that a warning names.
_NAMED_KEYS = 5

# Rows in a block, so that memory does not grow with the input.
_BLOCK_ROWS = 8192


def as_vector(value: Vector | HalfVector) -> Vector:
    """Return a value of a ``vector`` or ``halfvec`` column as a `Vector`."""
    if isinstance(value, Vector):
        return value
    return Vector(value.to_numpy().astype(np.float32))


def are_trainable(X: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which rows (n, d) can be trained on: sums of their squares stay within float32."""
    lengths: NDArray[np.floating] = np.linalg.norm(X.astype(np.float64, copy=False), axis=1)
    return lengths < LARGEST_LENGTH


def have_directions(X: NDArray[np.floating], metric: str | None) -> NDArray[np.bool_]:
    """Return which rows (n, d) have a distance: by cosine, a row of zeros has none."""
    there: NDArray[np.bool_] = (X != 0).any(axis=1)
    return there if metric == "cosine" else np.ones(len(X), dtype=bool)


def warn_of_zeros(table: str, count: int) -> None:
    """Warn once of rows of zeros that were left out, if there are some."""
    if count:
        rows = "1 row" if count == 1 else f"{count} rows"
        warnings.warn(
            f"left out {rows} of {table} whose vector is zero, which has no cosine distance; "
            "embeddings that failed may look so",
            RowsLeftOutWarning,
            stacklevel=3,
        )


def warn_of_left_out(table: str, keys: Sequence[str], count: int, what: str) -> None:
    """Warn once of rows that were left out, by their number and the first keys."""
    named = ", ".join(keys[:_NAMED_KEYS]) + ", ..." * (count > _NAMED_KEYS)
    rows = "1 row" if count == 1 else f"{count} rows"
    warnings.warn(
        f"left out {rows} of {table} whose numbers are too large {what}"
        f"{named and ': key ' + named}; correct or remove them",
        RowsLeftOutWarning,
        stacklevel=3,
    )


def as_array(what: str, value: ArrayLike) -> NDArray[Any]:
    """Return a value as an array; refuse sparse and masked ones, and lists of different lengths."""
    if hasattr(value, "nnz"):
        raise InvalidInputError(f"{what} are sparse, which is not supported; give X.toarray()")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError(
            f"{what} have masked values, which are no numbers; leave these rows out, or give "
            "X.filled(VALUE)"
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidInputError(f"{what} cannot be read as an array: {error}") from error


def as_labels(y: ArrayLike) -> NDArray[Any]:
    """Return labels as an array; a column (n, 1), as MATLAB's files hold, is one label a row."""
    array = as_array("labels", y)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def as_rows(X: ArrayLike, dimension: int | None = None) -> NDArray[np.floating]:
    """Check that X holds finite vectors as rows, and return it as a float array.

    Float types stay as they are; anything else numeric becomes float32. The array has two
    dimensions, and ``dimension`` columns if that is given. NumPy's TypeError comes through, if an
    array of objects holds one that is not a number.
    """
    array = as_array("vectors", X)
    if array.dtype.kind in "iubO":
        try:
            array = array.astype(np.float32)
        except ValueError as error:
            raise InvalidInputError(f"vectors must be numbers: {error}") from None
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"vectors must be numbers. Complex data not supported: {array.dtype}"
        )
    if array.dtype.kind != "f":
        raise InvalidInputError(f"vectors must be numbers, got an array of {array.dtype}")
    if array.ndim != 2:
        raise InvalidInputError(
            f"vectors must be the rows of an array (n, d), got shape {array.shape}. Reshape your "
            "data: one vector is X.reshape(1, -1)"
        )
    if dimension is not None and array.shape[1] != dimension:
        raise InvalidInputError(f"vectors have {array.shape[1]} dimensions, expected {dimension}")
    if array.shape[1] == 0:
        raise InvalidInputError(
            f"vectors have 0 dimensions: 0 feature(s) (shape={array.shape}) while a minimum of 1 "
            "is required."
        )
    if array.shape[1] > MAX_DIMENSION:
        raise InvalidInputError(f"{array.shape[1]} dimensions are not in 1 to {MAX_DIMENSION}")
    for start in range(0, len(array), _BLOCK_ROWS):
        # Vectors are float32, as in pgvector, so a float64 beyond its range becomes infinite.
        with np.errstate(over="ignore"):
            finite = np.isfinite(array[start : start + _BLOCK_ROWS].astype(np.float32, copy=False))
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InvalidInputError(
                f"row {start + row}, dimension {column} is {array[start + row, column]}; "
                "vectors must be finite float32 numbers, without NaN or inf"
            )
    return array
