"""Batches of a table's rows: keys, vectors and versions, read straight into arrays.

Rows are streamed, so that they are decoded while the server sends the next ones.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from psycopg import RawCursor, capabilities, sql
from psycopg.rows import tuple_row

from ..errors import InvalidInputError
from .binary_vectors import decode_vectors, dimension_of, keep_binary
from .connection import Connection

# Rows decoded at a time: the most rows, and about the most bytes. Each larger block would be newly
# allocated memory, whose first use costs more than the decoding.
_BLOCK_ROWS = 1_000
_BLOCK_BYTES = 400_000


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Rows of a table: keys as text, float32 vectors (n, d), and the third column of the query."""

    ids: list[str]
    vectors: NDArray[np.float32]
    versions: list[str | None]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, wanted: NDArray[np.bool_]) -> "RowBatch":
        """Return the rows for which ``wanted`` (n,) is True."""
        return RowBatch(
            list(compress(self.ids, wanted)),
            self.vectors[wanted],
            list(compress(self.versions, wanted)),
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

    The connection is prepared and in a transaction. The query returns a key as text, a vector or
    halfvec that is not NULL, and text, of ``rows`` rows at most; its parameters are ``$1``, ``$2``,
    ... A vector that has not ``dimension`` dimensions is refused, with its row's key and the
    ``table``.
    """
    # A raw cursor, since the others take a % in a name for a placeholder.
    cursor = RawCursor(connection, row_factory=tuple_row)
    keep_binary(cursor)
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * dimension)))
    # A libpq older than 17 returns rows one by one, which takes longer.
    size = block_rows if capabilities.has_stream_chunked() else 1
    stream = cursor.stream(query, values, binary=True, size=size)
    ids: list[str] = []
    versions: list[str | None] = []
    vectors = np.empty((rows, dimension), dtype=np.float32)
    # The stream occupies the connection until it is closed, also after an error.
    with closing(cast("Generator[tuple[str, bytes, str | None]]", stream)) as found:
        while block := list(islice(found, block_rows)):
            keys, binary, seen = zip(*block, strict=True)
            _check_dimension(keys, binary, dimension, table)
            decode_vectors(binary, vectors[len(ids) : len(ids) + len(block)])
            ids += keys
            versions += seen
    return RowBatch(ids, vectors[: len(ids)], versions)


def _check_dimension(
    keys: Sequence[str], vectors: Sequence[bytes], dimension: int, table: str
) -> None:
    if set(map(dimension_of, vectors)) == {dimension}:
        return
    for key, vector in zip(keys, vectors, strict=True):
        if dimension_of(vector) != dimension:
            raise InvalidInputError(
                f"row {key} of {table} has {dimension_of(vector)} dimensions, "
                f"the model takes {dimension}; mend or remove the row"
            )
