"""How large an index will be, estimated from a table's facts."""

import math

#: The most dimensions that pgvector's HNSW takes: of a vector, of a halfvec, of bits.
HNSW_DIMENSIONS = {"vector": 2000, "halfvec": 4000}
_NUMBER_BYTES = {"vector": 4, "halfvec": 2, "bit": 1 / 8}
_PAGE = 8168
# An element's header and the neighbours that it has with m = 16, as pgvector 0.8 writes them.
_ELEMENT_BYTES = 290
# The header of a list's entry, with its line pointer and that of a vector.
_ENTRY_BYTES = 20
# A row of codes without its code, its entries in two b-trees, and its part of the landmarks.
_LISTED_BYTES = 130


def hnsw_bytes(rows: int, kind: str, dimension: int) -> int:
    """Return how large an HNSW index (m = 16) over a vector, halfvec or bit will be, roughly."""
    a_page = max(1, _PAGE // (math.ceil(_NUMBER_BYTES[kind] * dimension) + _ELEMENT_BYTES))
    return -(-rows // a_page) * 8192


def ivfflat_bytes(rows: int, kind: str, dimension: int) -> int:
    """Return how large an IVFFlat index over a vector, halfvec or bit will be, roughly."""
    a_page = max(1, _PAGE // (math.ceil(_NUMBER_BYTES[kind] * dimension) + _ENTRY_BYTES))
    # As many lists as the schema makes: hashindex._ivfflat_lists.
    lists = max(10, min(32768, round(min(rows / 300, 2 * math.sqrt(rows)))))
    # The last page of a list is half full.
    return (-(-rows // a_page) + -(-lists // 2) + -(-lists // a_page)) * 8192


def lists_bytes(rows: int, bits: int) -> int:
    """Return how much an index by lists adds to a table, with landmarks."""
    return math.ceil(rows * (bits / 8 + _LISTED_BYTES))


def megabytes(n_bytes: float) -> str:
    """Write a size for people."""
    if n_bytes >= 10e9:
        return f"{n_bytes / 1e9:.0f} GB"
    if n_bytes < 1e5:
        return f"{n_bytes / 1e3:.0f} kB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes >= 10e6 else f"{n_bytes / 1e6:.1f} MB"


def as_setting(n_bytes: int) -> str:
    """Write a size as PostgreSQL's settings are written: 128MB are 128 * 1024 * 1024 bytes."""
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if n_bytes % size == 0:
            return f"{n_bytes // size}{unit}"
    return f"{n_bytes}B"
