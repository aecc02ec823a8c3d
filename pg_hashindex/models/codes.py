"""Binary codes: the only place that decides the order of their bits.

A code of ``n_bits`` bits is kept as ``ceil(n_bits / 8)`` bytes, most significant bit first, the
unused low bits of the last byte zero. That is also the wire format of PostgreSQL's ``bit(n)``, so
no bit changes place between NumPy and the database.
"""

import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

from ..db.connection import Connection
from ..errors import InvalidInputError

#: The codes that rows get if training knew them: hashed like all others, or learned.
RowCodes = Literal["hashed", "learned"]

# Weights become whole numbers whose sum has this many bits, so that float64 adds them exactly.
_WEIGHT_BITS = 51
# Bits of codes that are held as numbers at a time.
_BLOCK_BITS = 1 << 22


def code_bytes(n_bits: int) -> int:
    """Return the number of bytes that hold ``n_bits`` bits."""
    return (n_bits + 7) // 8


def pack(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Pack booleans (n, n_bits) into codes, uint8 (n, ceil(n_bits / 8))."""
    return np.packbits(bits, axis=1)


def unpack(codes: NDArray[np.uint8], n_bits: int) -> NDArray[np.bool_]:
    """Unpack codes into booleans (n, n_bits); the inverse of `pack`."""
    _check_width(codes, n_bits)
    return np.unpackbits(codes, axis=1, count=n_bits).astype(bool)


@dataclass(frozen=True, eq=False)
class CodeArray:
    """Codes (n, width) as one ``bit[]`` parameter; see `send_code_arrays`."""

    codes: NDArray[np.uint8]
    n_bits: int

    def __post_init__(self) -> None:
        _check_width(self.codes, self.n_bits)

    def to_binary(self) -> bytes:
        """Return PostgreSQL's binary form of the array, all codes at once."""
        n_codes, width = self.codes.shape
        if not n_codes:
            return struct.pack(">iii", 0, 0, types["bit"].oid)
        elements = np.empty(
            n_codes, dtype=[("length", ">i4"), ("n_bits", ">i4"), ("code", np.uint8, (width,))]
        )
        elements["length"] = 4 + width
        elements["n_bits"] = self.n_bits
        elements["code"] = self.codes
        # One dimension, no NULL, numbered from 1.
        return struct.pack(">iiiii", 1, 0, types["bit"].oid, n_codes, 1) + elements.tobytes()


class _CodeArrayDumper(Dumper):
    format = Format.BINARY
    oid = types["bit"].array_oid

    def dump(self, obj: CodeArray) -> bytes:
        return obj.to_binary()


def send_code_arrays(connection: Connection) -> None:
    """Have a connection take a `CodeArray` as a parameter."""
    connection.adapters.register_dumper(CodeArray, _CodeArrayDumper)


def hamming_distances(queries: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Count the differing bits of every query code and every code, uint16 (n_queries, n).

    Callers pass queries in blocks, since it takes 10 bytes of memory for each entry.
    """
    if queries.shape[1] != codes.shape[1]:
        raise InvalidInputError(
            f"query codes have {queries.shape[1]} bytes and codes {codes.shape[1]}; "
            "encode both with the same model"
        )
    query_words, code_words = _as_words(queries), _as_words(codes)
    distances = np.zeros((len(queries), len(codes)), dtype=np.uint16)
    for word in range(query_words.shape[1]):
        # One word of the codes at a time keeps the temporary to n_queries x n.
        distances += np.bitwise_count(query_words[:, word, None] ^ code_words[None, :, word])
    return distances


def spherical_distances(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Divide the differing bits of every query code and every code by the bits that both have.

    Source: Heo, Lee, He, Chang & Yoon, "Spherical Hashing", CVPR 2012. Two codes that differ and
    have no bit in common are farther than all others, at 8 width + 1 for codes of ``width`` bytes;
    two codes without bits are at 0. Returns float64 (n_queries, n); callers pass queries in blocks,
    as to `hamming_distances`.
    """
    differing = hamming_distances(queries, codes)
    query_words, code_words = _as_words(queries), _as_words(codes)
    common = np.zeros(differing.shape, dtype=np.uint16)
    for word in range(query_words.shape[1]):
        common += np.bitwise_count(query_words[:, word, None] & code_words[None, :, word])
    result = np.where(differing, 8.0 * queries.shape[1] + 1, 0.0)
    return np.divide(differing, common, out=result, where=common > 0)


def weighted_distances(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], weights: ArrayLike
) -> NDArray[np.float64]:
    """Add up the weights of the differing bits of every query code and every code.

    Weights are first rounded to multiples of 2**-51 of a power of two above their sum. Then sums
    are exact in any order, so that equal weights give the ties of `hamming_distances`.

    Weights (n_bits,) are 0 or more, at least one above 0. Returns float64 (n_queries, n); callers
    pass queries in blocks, as to `hamming_distances`.
    """
    whole, exponent = _whole_weights(weights)
    n_bits = len(whole)
    weighted = _as_signs(queries, n_bits) * whole
    result = np.empty((len(queries), len(codes)))
    step = max(1, _BLOCK_BITS // n_bits)
    for start in range(0, len(codes), step):
        block = slice(start, start + step)
        # For signs s and t, (1 - s t) / 2 is 1 if the bits differ.
        result[:, block] = weighted @ _as_signs(codes[block], n_bits).T
    np.subtract(whole.sum(), result, out=result)
    return np.ldexp(result, exponent - 1, out=result)


def check_weights(what: str, weights: NDArray[np.floating]) -> None:
    """Refuse numbers that cannot be weights of bits."""
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise InvalidInputError(
            f"{what} must be finite, 0 or more, and at least one above 0, got "
            f"{weights.min()} to {weights.max()}"
        )


def _whole_weights(weights: ArrayLike) -> tuple[NDArray[np.float64], int]:
    """Return whole numbers, and the power of two that turns them into the weights."""
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise InvalidInputError(f"weights have shape {array.shape}; give one for each bit")
    check_weights("weights", array)
    # Scale below 1 first, so that the sum of any weights is finite.
    largest = int(np.frexp(array.max())[1])
    scaled = np.ldexp(array, -largest)
    exponent = int(np.frexp(scaled.sum())[1]) - _WEIGHT_BITS
    return np.rint(np.ldexp(scaled, -exponent)), exponent + largest


def _as_signs(codes: NDArray[np.uint8], n_bits: int) -> NDArray[np.float64]:
    return np.where(unpack(codes, n_bits), 1.0, -1.0)


def _as_words(codes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    padding = -codes.shape[1] % 8
    return np.ascontiguousarray(np.pad(codes, ((0, 0), (0, padding)))).view(np.uint64)


def _check_width(codes: NDArray[np.uint8], n_bits: int) -> None:
    if codes.ndim != 2 or codes.shape[1] != code_bytes(n_bits):
        raise InvalidInputError(
            f"codes have shape {codes.shape}; {n_bits} bits need (n, {code_bytes(n_bits)})"
        )
