"""Blocks of a table's rows by COPY in binary form: keys as their bytes, vectors as an array.

Keys go back to the server as the bytes that came, so their type does not matter. If all rows of a
block are equally long, as with keys of numbers or uuids, NumPy reads and writes the block as one
array.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...db.connection import Connection
from ...db.gate import reading
from ...hashers.numerics.rows import row_slices

if TYPE_CHECKING:
    from .training import Halves

#: Keys in binary form, each column after its length: an array (n, length) if they are equally long,
#: else one bytes object each.
Keys: TypeAlias = NDArray[np.uint8] | Sequence[bytes]

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
# Flags, and the length of an extension: both are zero.
_HEADER = _SIGNATURE + bytes(8)
_TRAILER = b"\xff\xff"
# The number of columns; each of them begins with its length.
_COUNT_BYTES, _LENGTH_BYTES = 2, 4
_TENANT_BYTES = 4
# The dimension and an unused number.
_VECTOR_HEADER_BYTES = 4
_BIT_HEADER_BYTES = 4
# Landmarks that are written at a time.
_LANDMARK_ROWS = 8192


class WrongDimensionError(Exception):
    """A vector has another dimension than the others; a query of the server finds which one."""


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a table: keys, vectors (n, d), and the numbers of their tenants (n,), if any."""

    keys: Keys
    vectors: NDArray[np.float32]
    tenants: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def select(self, wanted: NDArray[np.bool_]) -> "Block":
        """Return the rows for which ``wanted`` (n,) is True."""
        if wanted.all():
            return self
        keys = self.keys
        kept = keys[wanted] if isinstance(keys, np.ndarray) else list(compress(keys, wanted))
        tenants = None if self.tenants is None else self.tenants[wanted]
        return Block(kept, self.vectors[wanted], tenants)


def read_blocks(
    connection: Connection,
    query: sql.Composable,
    most_rows: int,
    *,
    dimension: int,
    has_tenants: bool = False,
    key_columns: int = 1,
) -> Iterator[Block]:
    """Read a query of key and vector or halfvec, block by block; the last one may be empty.

    The number of the tenant, an integer, comes before the vector where there are tenants. None of
    them is NULL, and the query has no parameters. A vector of another dimension raises
    `WrongDimensionError`.
    """
    copy = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(query)
    tenant_part = _LENGTH_BYTES + _TENANT_BYTES if has_tenants else 0
    rows: list[bytes] = []
    with reading(connection, copy), connection.cursor() as cursor, cursor.copy(copy) as source:
        for data in source:
            row = bytes(data)
            if row.startswith(_SIGNATURE):
                # The first message holds the header and the first row.
                row = row[len(_HEADER) :]
            if row and row != _TRAILER:
                rows.append(row)
            if len(rows) == most_rows:
                yield _parse(rows, dimension, tenant_part, key_columns)
                rows = []
    yield _parse(rows, dimension, tenant_part, key_columns)


def _parse(rows: list[bytes], dimension: int, tenant_part: int, key_columns: int) -> Block:
    """Cut rows into their parts, by places that are counted from the end of the key."""
    # The numbers of the vector begin here.
    start = tenant_part + _LENGTH_BYTES + _VECTOR_HEADER_BYTES
    if not rows:
        tenants = np.empty(0, np.intp) if tenant_part else None
        return Block([], np.empty((0, dimension), np.float32), tenants)
    key = _end_of_key(rows[0], key_columns)
    # The part after the key is equally long in all rows if their vectors are.
    tail = len(rows[0]) - key
    number = (tail - start) // dimension
    if number not in (2, 4) or tail != start + number * dimension:
        raise WrongDimensionError
    if len(set(map(len, rows))) == 1:
        parts = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
        if (_ends_of_keys(parts, key_columns) != key).any():
            raise WrongDimensionError
        keys: Keys = parts[:, _COUNT_BYTES:key]
        tails = parts[:, key:]
    else:
        keys = [row[_COUNT_BYTES:-tail] for row in rows]
        if any(_end_of_key(row, key_columns) != len(row) - tail for row in rows):
            raise WrongDimensionError
        tails = np.frombuffer(b"".join([row[-tail:] for row in rows]), np.uint8)
        tails = tails.reshape(len(rows), tail)
    header = start - _VECTOR_HEADER_BYTES
    if (tails[:, header : header + 2] != np.array([dimension], ">u2").view(np.uint8)).any():
        raise WrongDimensionError
    vectors = np.ascontiguousarray(tails[:, start:]).view(">f4" if number == 4 else ">f2")
    tenants = None
    if tenant_part:
        numbers = np.ascontiguousarray(tails[:, _LENGTH_BYTES:tenant_part])
        tenants = numbers.view(">i4")[:, 0].astype(np.intp)
    return Block(keys, vectors.astype(np.float32), tenants)


def texts_of(keys: Keys, encoding: str) -> list[str]:
    """Return keys of one column of type text, which COPY gave in the encoding of the client."""
    return [bytes(key)[_LENGTH_BYTES:].decode(encoding) for key in keys]


def _end_of_key(row: bytes, columns: int) -> int:
    """Return the place after the key of a row."""
    place = _COUNT_BYTES
    for _ in range(columns):
        length = int.from_bytes(row[place : place + _LENGTH_BYTES], "big")
        place += _LENGTH_BYTES + length
    return place


def _ends_of_keys(rows: NDArray[np.uint8], columns: int) -> NDArray[np.int64]:
    """Return the places after the keys of rows (n, bytes), as `_end_of_key` does."""
    places = np.full(len(rows), _COUNT_BYTES, np.int64)
    for _ in range(columns):
        at = places[:, None] + np.arange(_LENGTH_BYTES)
        lengths = np.take_along_axis(rows, at, axis=1)
        places += _LENGTH_BYTES + lengths.view(">i4")[:, 0]
    return places


def copy_format(
    keys: Keys,
    landmarks: NDArray[np.integer],
    codes: NDArray[np.uint8],
    n_bits: int,
    *,
    key_columns: int = 1,
) -> bytes:
    """Return what ``COPY (id, landmark, code) FROM STDIN (FORMAT binary)`` takes.

    Keys are as `Block` has them, of ``key_columns`` columns; landmarks are integers (n,), codes
    uint8 (n, width).
    """
    tails = np.empty(
        len(codes),
        [
            ("landmark_bytes", ">i4"), ("landmark", ">i4"),
            ("code_bytes", ">i4"), ("n_bits", ">i4"), ("code", np.uint8, (codes.shape[1],)),
        ],
    )  # fmt: skip
    tails["landmark_bytes"] = 4
    tails["landmark"] = landmarks
    tails["code_bytes"] = _BIT_HEADER_BYTES + codes.shape[1]
    tails["n_bits"] = n_bits
    tails["code"] = codes
    columns = key_columns + 2
    if isinstance(keys, np.ndarray):
        rows = np.empty(
            len(codes),
            [
                ("columns", ">i2"), ("key", np.uint8, (keys.shape[1],)), ("tail", tails.dtype),
            ],
        )  # fmt: skip
        rows["columns"] = columns
        rows["key"] = keys
        rows["tail"] = tails
        return _HEADER + rows.tobytes() + _TRAILER
    parts = [_HEADER]
    for key, tail in zip(keys, tails, strict=True):
        parts += [columns.to_bytes(_COUNT_BYTES, "big"), key, tail.tobytes()]
    return b"".join([*parts, _TRAILER])


def landmarks_in_copy_format(points: "Halves", dimension: int) -> Iterator[bytes]:
    """Return what ``COPY (landmark, centre) FROM STDIN (FORMAT binary)`` takes, in parts.

    Centres of landmarks 0 to m - 1 are written as halfvec, which holds 65504 at most. They
    come in a random order, which is that of the graph's insertions: a graph built in the order of
    their numbers, near ones together, finds .948 of the true ten in 64 lists instead of .951.
    """
    row = np.dtype(
        [
            ("columns", ">i2"), ("landmark_bytes", ">i4"), ("landmark", ">i4"),
            ("centre_bytes", ">i4"), ("dimension", ">u2"), ("unused", ">u2"),
            ("centre", ">f2", (dimension,)),
        ]
    )  # fmt: skip
    order = np.random.default_rng(0).permutation(len(points))
    yield _HEADER
    for part in row_slices(len(points), _LANDMARK_ROWS):
        rows = np.zeros(len(order[part]), row)
        rows["columns"] = 2
        rows["landmark_bytes"] = 4
        rows["landmark"] = order[part]
        rows["centre_bytes"] = _VECTOR_HEADER_BYTES + 2 * dimension
        rows["dimension"] = dimension
        rows["centre"] = points[order[part]]
        yield rows.tobytes()
    yield _TRAILER
