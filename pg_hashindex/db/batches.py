"""Vectors read in bulk: from pgvector's binary form straight into arrays.

A vector begins with its dimension and an unused number, 16 bits each. Its values follow: floats of
32 bits in a vector, of 16 bits in a halfvec. All numbers are big-endian. A Python object for each
vector would cost far more than its numbers: cursors return the bytes, and NumPy decodes a block of
vectors at once. Rows are streamed, so that they are decoded while the server sends the next ones.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, RawCursor, ServerCursor, capabilities, sql
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader

from ..errors import InvalidInputError
from .connection import Connection
from .gate import pass_gate, tables_in

# Rows decoded at a time: the most rows, and about the most bytes. Each larger block would be newly
# allocated memory, whose first use costs more than the decoding.
_BLOCK_ROWS = 1_000
_BLOCK_BYTES = 400_000
# Values decoded at a time; they stay in the processor's cache.
_BLOCK_VALUES = 100_000
# The most rows of a batch, and its numbers: 16 MB, of which several copies are made.
_BATCH_ROWS = 10_000
_BATCH_VALUES = 4_000_000
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


def rows_of_batch(dimension: int) -> int:
    """Return how many rows of a dimension a batch has; fewer of long vectors."""
    return max(1, min(_BATCH_ROWS, _BATCH_VALUES // dimension))


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


def stream(
    connection: Connection, query: sql.Composed, values: Sequence[Any] | None, block_rows: int
) -> Generator[list[tuple[Any, ...]]]:
    """Read rows in blocks, vectors as bytes; the connection is busy until the generator is closed.

    The connection is prepared and in a transaction.
    """
    for table in tables_in(query):
        pass_gate(connection, table)
    cursor = RawCursor(connection, row_factory=tuple_row)
    keep_binary(cursor)
    # A libpq older than 17 returns rows one by one, which takes longer.
    size = block_rows if capabilities.has_stream_chunked() else 1
    rows = cursor.stream(query, values, binary=True, size=size)
    # Also after an error.
    with closing(cast("Generator[tuple[Any, ...]]", rows)) as found:
        while block := list(islice(found, block_rows)):
            yield block


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Rows of a table: keys as text, float32 vectors (n, d), and codes as text or None."""

    ids: list[str]
    vectors: NDArray[np.float32]
    codes: list[str | None]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, wanted: NDArray[np.bool_]) -> "RowBatch":
        """Return the rows for which ``wanted`` (n,) is True."""
        return RowBatch(
            list(compress(self.ids, wanted)),
            self.vectors[wanted],
            list(compress(self.codes, wanted)),
        )


def read_batch(
    connection: Connection,
    query: sql.Composed,
    values: Sequence[Any],
    *,
    rows: int,
    dimension: int,
    table: str,
) -> RowBatch:
    """Read what a query returns.

    The query returns a key as text, a vector or halfvec that is not NULL, and a code as text or
    NULL, of ``rows`` rows at most; its parameters are ``$1``, ``$2``, ... A vector that has not
    ``dimension`` dimensions is refused, with its row's key and the ``table``.
    """
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * dimension)))
    ids: list[str] = []
    codes: list[str | None] = []
    vectors = np.empty((rows, dimension), dtype=np.float32)
    with closing(stream(connection, query, values, block_rows)) as blocks:
        for block in blocks:
            keys, binary, seen = zip(*block, strict=True)
            _check_dimension(keys, binary, dimension, table)
            decode_vectors(binary, vectors[len(ids) : len(ids) + len(block)])
            ids += keys
            codes += seen
    return RowBatch(ids, vectors[: len(ids)], codes)


def _check_dimension(
    keys: Sequence[str], vectors: Sequence[bytes], dimension: int, table: str
) -> None:
    if set(map(dimension_of, vectors)) == {dimension}:
        return
    for key, vector in zip(keys, vectors, strict=True):
        if dimension_of(vector) != dimension:
            raise InvalidInputError(
                f"row {key} of {table} has {dimension_of(vector)} dimensions, "
                f"the model takes {dimension}; fix or delete the row"
            )
