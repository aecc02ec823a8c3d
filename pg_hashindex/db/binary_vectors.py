"""Vectors in pgvector's binary form, decoded many at once.

The form is the dimension and an unused number, 16 bits each, and then the values, all of them
big-endian: floats of 32 bits of a vector, of 16 bits of a halfvec. An object for each vector costs
far more than its numbers do: cursors give the bytes as they are, and NumPy takes the numbers of a
block of vectors from them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, ServerCursor
from psycopg.types.string import ByteaBinaryLoader

__all__ = ["decode_vectors", "dimension_of", "keep_binary"]

# About this many values are decoded at a time: what stays in the processor's cache.
_BLOCK_VALUES = 100_000
# Of the dimension and the unused number.
_HEADER_BYTES = 4


def keep_binary(cursor: Cursor[Any] | ServerCursor[Any]) -> None:
    """Have a cursor give vectors as bytes, where its results are binary.

    Parameters
    ----------
    cursor : psycopg.Cursor or psycopg.ServerCursor
        Of a connection that was prepared.
    """
    # A domain comes as the type that it is of.
    for name in ("vector", "halfvec"):
        # What its caller has not registered comes as bytes anyway.
        found = cursor.connection.adapters.types.get(name)
        if found is not None:
            cursor.adapters.register_loader(found.oid, ByteaBinaryLoader)


def dimension_of(vector: bytes) -> int:
    """Return the dimension of a vector or halfvec in binary form."""
    return int.from_bytes(vector[:2], "big")


def decode_vectors(vectors: Sequence[bytes], out: NDArray[np.float32]) -> None:
    """Decode vectors of one type and dimension.

    Parameters
    ----------
    vectors : sequence of bytes
        n vectors in binary form, each of dimension d.
    out : float32 (n, d)
        Where their numbers go.
    """
    if not len(vectors):
        return
    dimension = out.shape[1]
    bytes_each = len(vectors[0]) - _HEADER_BYTES
    numbers = ">f4" if bytes_each == 4 * dimension else ">f2"
    # Dimension and unused number together are as long as one value, or as two.
    header = _HEADER_BYTES // np.dtype(numbers).itemsize
    step = max(1, _BLOCK_VALUES // dimension)
    for start in range(0, len(vectors), step):
        block = slice(start, start + step)
        rows = np.frombuffer(b"".join(vectors[block]), dtype=numbers)
        out[block] = rows.reshape(-1, header + dimension)[:, header:]
