"""Pages of a table: keys, vectors and versions of many rows, read straight into arrays.

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

__all__ = ["Page", "read_page"]

# Rows that are decoded at a time: at most so many, and of about so many bytes. Larger blocks would
# be of memory that is new each time, and the first use of that costs more than the decoding.
_BLOCK_ROWS = 1_000
_BLOCK_BYTES = 400_000


@dataclass(frozen=True, eq=False)
class Page:
    """Rows of a table.

    Attributes
    ----------
    ids : list of str
        Their keys, as text.
    vectors : float32 (n, d)
    versions : list of str or None
        The third column of the query.
    """

    ids: list[str]
    vectors: NDArray[np.float32]
    versions: list[str | None]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, wanted: NDArray[np.bool_]) -> "Page":
        """Return the rows for which ``wanted`` (n,) is True."""
        return Page(
            list(compress(self.ids, wanted)),
            self.vectors[wanted],
            list(compress(self.versions, wanted)),
        )


def read_page(
    connection: Connection,
    query: sql.Composed,
    values: Sequence[Any],
    *,
    rows: int,
    dimension: int,
    table: str,
) -> Page:
    """Read what a query returns.

    Parameters
    ----------
    connection : psycopg.Connection
        Prepared, and in a transaction.
    query : psycopg.sql.Composed
        Of three columns: a key as text, a vector or halfvec that is not NULL, and text. Its
        parameters are ``$1``, ``$2``, ...
    values : sequence
        Its parameters.
    rows : int
        The most rows that it returns.
    dimension : int
        The d that all vectors must have.
    table : str
        Where they are from, for messages.

    Returns
    -------
    Page

    Raises
    ------
    InvalidInputError
        If a vector has another dimension; the message names the row.
    """
    # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
    cursor = RawCursor(connection, row_factory=tuple_row)
    keep_binary(cursor)
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * dimension)))
    # With a libpq older than 17 rows come one by one, which takes longer.
    size = block_rows if capabilities.has_stream_chunked() else 1
    stream = cursor.stream(query, values, binary=True, size=size)
    ids: list[str] = []
    versions: list[str | None] = []
    vectors = np.empty((rows, dimension), dtype=np.float32)
    # Until it is closed the stream keeps the connection for itself, whatever is raised here.
    with closing(cast("Generator[tuple[str, bytes, str | None]]", stream)) as found:
        while block := list(islice(found, block_rows)):
            keys, binary, seen = zip(*block, strict=True)
            _check_dimension(keys, binary, dimension, table)
            decode_vectors(binary, vectors[len(ids) : len(ids) + len(block)])
            ids += keys
            versions += seen
    return Page(ids, vectors[: len(ids)], versions)


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
