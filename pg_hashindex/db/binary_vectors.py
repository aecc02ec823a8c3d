"""Vectors in pgvector's binary form, decoded many at once.

A vector begins with its dimension and an unused number, 16 bits each. Its values follow: floats of
32 bits in a vector, of 16 bits in a halfvec. All numbers are big-endian. A Python object for each
vector would cost far more than its numbers: cursors return the bytes, and NumPy decodes a block of
vectors at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, ServerCursor
from psycopg.types.string import ByteaBinaryLoader

# Values decoded at a time: so many stay in the processor's cache.
_BLOCK_VALUES = 100_000
# Bytes of the dimension and the unused number.
_HEADER_BYTES = 4


def keep_binary(cursor: Cursor[Any] | ServerCursor[Any]) -> None:
    """Have a cursor give vectors as bytes, where its results are binary."""
    # PostgreSQL sends a domain as its base type.
    for name in ("vector", "halfvec"):
        # In binary, types that the caller has not registered come as bytes anyway.
        found = cursor.connection.adapters.types.get(name)
        if found is not None:
            cursor.adapters.register_loader(found.oid, ByteaBinaryLoader)


def dimension_of(vector: bytes) -> int:
    """Return the dimension of a vector or halfvec in binary form."""
    return int.from_bytes(vector[:2], "big")


def decode_vectors(vectors: Sequence[bytes], out: NDArray[np.float32]) -> None:
    """Decode n vectors of one type and dimension d into ``out`` (n, d)."""
    if not len(vectors):
        return
    dimension = out.shape[1]
    bytes_each = len(vectors[0]) - _HEADER_BYTES
    numbers = ">f4" if bytes_each == 4 * dimension else ">f2"
    # The dimension and the unused number are together as long as one float32 or two float16.
    header = _HEADER_BYTES // np.dtype(numbers).itemsize
    step = max(1, _BLOCK_VALUES // dimension)
    for start in range(0, len(vectors), step):
        block = slice(start, start + step)
        rows = np.frombuffer(b"".join(vectors[block]), dtype=numbers)
        out[block] = rows.reshape(-1, header + dimension)[:, header:]
