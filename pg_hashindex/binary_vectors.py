"""Vectors in pgvector's binary form, decoded many at once.

The form is the dimension and an unused number, 16 bits each, and then the values as 32-bit floats,
all of them big-endian. An object for each vector costs far more than its numbers do: cursors give
the bytes as they are, and NumPy takes the numbers of a block of vectors from them.
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


def keep_binary(cursor: Cursor[Any] | ServerCursor[Any]) -> None:
    """Have a cursor give vectors as bytes, where its results are binary.

    Parameters
    ----------
    cursor : psycopg.Cursor or psycopg.ServerCursor
        Of a connection that was prepared.
    """
    # A domain comes as the type that it is of.
    vector = cursor.connection.adapters.types["vector"]
    cursor.adapters.register_loader(vector.oid, ByteaBinaryLoader)


def dimension_of(vector: bytes) -> int:
    """Return the dimension of a vector in binary form."""
    return len(vector) // 4 - 1


def decode_vectors(vectors: Sequence[bytes], out: NDArray[np.float32]) -> None:
    """Decode vectors of one dimension.

    Parameters
    ----------
    vectors : sequence of bytes
        n vectors in binary form, each of dimension d.
    out : float32 (n, d)
        Where their numbers go.
    """
    dimension = out.shape[1]
    step = max(1, _BLOCK_VALUES // dimension)
    for start in range(0, len(vectors), step):
        block = slice(start, start + step)
        # Dimension and unused number together are as long as one value.
        numbers = np.frombuffer(b"".join(vectors[block]), dtype=">f4").reshape(-1, 1 + dimension)
        out[block] = numbers[:, 1:]
