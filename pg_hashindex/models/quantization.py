"""Codes from projections, and queries as a few weighted codes that order rows.

**Codes.** A code has one bit for each of n projections p and each of t cuts, which all projections
share: all bits ``p > cut`` of the first cut, then those of the second, ... (a thermometer code).
One cut at 0 gives the signs. The Hamming distance of two codes counts the cuts between their
projections, so it ranks by distance as it is.

**Queries.** A bit in which a row differs from a query counts by the query's distance from the cut.
With z the n t numbers ``p - cut`` of the query, the sum of |z| over differing bits is, for evenly
spaced cuts, about half the squared distance of the projections over the spacing. It orders rows by
<z, signs of the row>. Any z is nearly sum_k a_k u_k with vectors of signs u_k: for a = 4, 2, 1 each
number has one of the 8 levels -7, -5, ... 7. For the Hamming distance H of two vectors of signs,
<u, s> = n t - 2 H(u, s), so

    <z, s> = constant - 2 sum_k a_k H(s, u_k).

A query is therefore a few codes of the row's own length with whole weights, and the distance of a
row is

    sum_k weight_k H(code, query_code_k).

These codes are:

- of most models 3, of weights 4, 2 and 1. For inner products z is not ``p - cut`` but the linear
  part of p, once for each cut: <z, signs> is then that of the query and the row's levels.
- of models with learned weights of bits, rounded to 0 to 15, with m_b the mask of bits whose weight
  holds 2^b, and q the query's code: popcount((c # q) & m_b) = (H(c, q) + H(c, q # ~m_b) -
  constant) / 2, that is q with weight 15, and 4 codes q # ~m_b with weights 1, 2, 4 and 8.

The same in SQL: ``hashindex._quantize`` in ``sql/110_layers.sql``, ``sql/125_query_codes.sql``.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from .codes import hamming_distances, pack, unpack

#: Cuts of projections, rising; one cut at 0 gives their signs.
Cuts: TypeAlias = tuple[float, ...]
SIGNS: Cuts = (0.0,)

# Step between the 8 levels of a query's numbers, in standard deviations: the best uniform quantiser
# for normal values (Max, "Quantizing for minimum distortion", 1960).
_QUERY_STEP = 0.586
# Bits of learned weights after rounding to whole numbers.
_WEIGHT_BITS = 4


def check_cuts(cuts: Cuts) -> Cuts:
    """Return cuts as float32 holds them; refuse others than finite rising numbers."""
    with np.errstate(over="ignore"):
        kept = tuple(float(np.float32(cut)) for cut in cuts)
    if not kept or not np.isfinite(kept).all() or (np.diff(kept) <= 0).any():
        raise InvalidInputError(f"cuts must be one or more finite rising numbers, got {cuts!r}")
    return kept


def above_cuts(projections: NDArray[np.floating], cuts: Cuts) -> NDArray[np.floating]:
    """Compute how far projections (m, n) are above each cut, (m, n t): codes are their signs."""
    if cuts == SIGNS:
        return projections
    return np.hstack([projections - projections.dtype.type(cut) for cut in cuts])


def quantize(projections: NDArray[np.floating], cuts: Cuts = SIGNS) -> NDArray[np.bool_]:
    """Compute the bits of codes, bool (m, n t), of projections (m, n)."""
    # Comparisons hold no differences, which take 4 bytes for each bit.
    return np.hstack([projections > projections.dtype.type(cut) for cut in cuts])


def query_codes(numbers: NDArray[np.floating]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Compute the weighted codes of queries by their projections.

    Numbers are (m, n), one for each bit of a code; codes are uint8 (m, 3, width), weights (3,). A
    row of zeros counts as level -1 throughout.
    """
    p = _normalized(numbers)
    beyond = [np.abs(p) > np.float32(k * _QUERY_STEP / np.sqrt(p.shape[1])) for k in (1, 2, 3)]
    # A size of m steps is past the first m edges.
    positive = p > 0
    bits = [positive, ~(positive ^ beyond[1]), ~(positive ^ beyond[0] ^ beyond[1] ^ beyond[2])]
    return np.stack([pack(each) for each in bits], axis=1), np.array([4, 2, 1])


@dataclass(frozen=True, eq=False)
class QueryOrder:
    """Codes and weights that order rows, for each of m queries.

    Codes are uint8 (m, k, width) and weights (k,), as `query_codes` or `weighted_query_codes` give
    them.
    """

    codes: NDArray[np.uint8]
    weights: NDArray[np.integer]

    def distances(self, part: slice, codes: NDArray[np.uint8]) -> NDArray[np.unsignedinteger]:
        """Compute distances of a part of the queries from codes uint8 (n, width), (queries, n)."""
        return code_distances(self.codes[part], self.weights, codes)


def weighted_query_codes(
    codes: NDArray[np.uint8], bit_weights: ArrayLike
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Compute the weighted codes of queries by learned weights of bits.

    Codes are uint8 (m, width), weights of bits 0 or more and at least one above 0; they are rounded
    to 0 to 15, the greatest being 15. Returns codes (m, 5, width) and their weights (5,).
    """
    given = np.asarray(bit_weights, dtype=np.float64)
    greatest = (1 << _WEIGHT_BITS) - 1
    rounded = np.rint(greatest * given / given.max()).astype(np.int64)
    bits = unpack(codes, len(given))
    planes = [rounded & (1 << b) != 0 for b in range(_WEIGHT_BITS)]
    found = [codes, *(pack(bits ^ ~plane) for plane in planes)]
    weights = [greatest, *(1 << b for b in range(_WEIGHT_BITS))]
    return np.stack(found, axis=1), np.array(weights)


def code_distances(
    queries: NDArray[np.uint8], weights: NDArray[np.integer], codes: NDArray[np.uint8]
) -> NDArray[np.unsignedinteger]:
    """Compute the distances of rows to the codes of queries, unsigned (m, n).

    Queries (m, k, width) and weights (k,) are as `query_codes` or `weighted_query_codes` give them.
    The type holds any sum of weighted Hamming distances.
    """
    if queries.ndim != 3 or queries.shape[1] != len(weights):
        raise InvalidInputError(
            f"query codes have shape {queries.shape} and there are {len(weights)} weights; give "
            "(queries, codes, bytes), and a weight for each code"
        )
    kind = np.min_scalar_type(max(1 << 8, 8 * queries.shape[2] * int(np.sum(weights))))
    distances = np.zeros((len(queries), len(codes)), dtype=kind)
    for place, weight in enumerate(weights):
        distances += kind.type(weight) * hamming_distances(queries[:, place], codes)
    return distances


def _normalized(projections: NDArray[np.floating]) -> NDArray[np.float32]:
    """Divide rows by their l2 norms as pgvector's l2_normalize does: zeros stay zeros."""
    p = projections.astype(np.float64)
    norms = np.sqrt(np.square(p).sum(axis=1, keepdims=True))
    return (p / np.where(norms > 0, norms, 1)).astype(np.float32)
