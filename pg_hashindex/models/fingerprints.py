"""Fingerprints of rows: 64 bits that identify a vector."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Values in a block, 8 bytes each.
_BLOCK_VALUES = 1 << 20


def fingerprints(X: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Compute the fingerprints of rows, 64 bits of each row as float32.

    A fingerprint is two multilinear hashes of the row's 32-bit words with fixed multipliers. Their
    high halves are strongly universal (Lemire & Kaser, "Strongly universal string hashing is fast",
    2014): two different rows share a fingerprint with a probability of about 2**-64, for any
    values. 0.0 and -0.0 are the same.
    """
    result = np.empty(len(X), dtype=np.uint64)
    multipliers = _multipliers(X.shape[1])
    step = max(1, _BLOCK_VALUES // X.shape[1])
    for start in range(0, len(X), step):
        # The sum turns -0.0 into 0.0.
        block = np.ascontiguousarray(X[start : start + step], dtype=np.float32) + np.float32(0)
        sums = block.view(np.uint32).astype(np.uint64) @ multipliers
        high = sums >> np.uint64(32)
        result[start : start + step] = (high[:, 0] << np.uint64(32)) | high[:, 1]
    return result


@lru_cache(maxsize=8)
def _multipliers(dimension: int) -> NDArray[np.uint64]:
    """Return fixed odd numbers (dimension, 2) by SplitMix64 (Steele, Lea & Flood 2014)."""
    # Stored models hold fingerprints, so never change these numbers.
    z = np.arange(1, 2 * dimension + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    return z.reshape(dimension, 2)
