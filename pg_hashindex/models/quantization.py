"""Codes from projections, and queries as the few weighted codes that make every ranking.

**Codes.** A model keeps 2 or 4 levels of each projection. With 2 levels a code is the signs. With
4, let p be the n projections divided by their own l2 norm, and t = 1 / sqrt(n) their standard
deviation about 0. The level of a projection is 2 s1 + s2 with signs s1 and s2: -3, -1, 1 or 3, cut
at -t, 0 and t. Bits 1 and 0 stand for the signs 1 and -1: v1 holds those of s1, v2 those of s2, and
the code is v1 followed by v2, 2 n bits.

**Cuts.** With 2 levels a code may have one bit for each projection and each of t cuts, which all
projections share: all bits ``p > cut`` of the first cut, then those of the second, ... (a
thermometer code, n t bits). One cut at 0 gives the signs. The Hamming distance of two codes counts
the cuts between their projections, so it ranks by distance as it is. What holds below for n signs
of p holds for the n t signs of ``p - cut``.

**Queries.** A ranking orders rows by <p, levels of the row>, p being the projections of the query.
Any p is nearly sum_k a_k u_k with vectors of signs u_k: for a = 4, 2, 1 each projection has one of
the 8 levels -7, -5, ... 7. For signs s of the row and the Hamming distance H of two vectors of
signs, <u, s> = n - 2 H(u, s). So with 2 levels

    <p, s> = constant - 2 sum_k a_k H(s, u_k).

With 4 levels the row's second sign counts half as much as its first,

    <p, 2 s1 + s2> = 2 (<p, s1> + <p / 2, s2>).

So for s1 each projection has the 16 levels 8 u1 + 4 u2 + 2 u3 + u4, and half of p has, in the same
units, the 8 levels 4 u1 + 2 u2 + u3, which are 8 u1 + 4 (-u1) + 2 u2 + u3:

    <p, 2 s1 + s2> = constant - 4 (8 H(code, u1 || u1) + 4 H(code, u2 || ~u1)
                                   + 2 H(code, u3 || u2) + H(code, u4 || u3)).

A query is therefore a few codes of the row's own length with whole weights, and the distance of a
row is

    sum_k weight_k H(code, query_code_k).

The rankings are:

- ``hamming``: the query's own code, weight 1.
- ``asymmetric``: 3 codes of weights 4, 2 and 1 for 2 levels, 4 of weights 8, 4, 2 and 1 for 4.
- ``weighted``: bits have learned weights, rounded to 0 to 15. With m_b the mask of bits whose
  weight holds 2^b, and q the query's code, popcount((c # q) & m_b) = (H(c, q) + H(c, q # ~m_b) -
  constant) / 2: that is q with weight 15, and 4 codes q # ~m_b with weights 1, 2, 4 and 8.

**Numbers.** <p, levels of the row> orders rows by direction alone. Codes of 4 levels have two
numbers beside them in a table of codes: the length |r| of the row's projections r, and the fit
1 / <r / |r|, levels>. Then <p, r> is nearly |r| fit <p, levels> (the estimator of RaBitQ: Gao and
Long, 2024), and with D the distance above and s the step of the 16 levels, <p, levels> is nearly
(2 s |p| / sqrt(n)) (15 n - D). What grows with the distance of the projections is therefore

    |r|^2 - 2 <p, r> = |r| (|r| + fit (4 s |p| / sqrt(n)) (D - 15 n)).

For inner products of vectors, p is the linear part of the query's projection, and rows are ordered
by -<p, r>. Codes of 2 levels have no numbers: they are for labels too, which lengths say nothing
about (with SDH on USPS the MAP falls from .957 to .934).

The same in SQL: ``hashindex._quantize`` in ``sql/110_layers.sql``.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from .codes import hamming_distances, pack, unpack

#: Levels of each projection that a code keeps; 2 levels are its sign.
Levels: TypeAlias = Literal[2, 4]
LEVELS: tuple[Levels, ...] = (2, 4)

#: Cuts of projections, rising; one cut at 0 gives their signs.
Cuts: TypeAlias = tuple[float, ...]
SIGNS: Cuts = (0.0,)

#: The orders of candidates; see above.
Ranking: TypeAlias = Literal["hamming", "asymmetric", "weighted"]

# Steps between the 8 and the 16 levels of a query's projection, in standard deviations: the best
# uniform quantisers for normal values (Max, "Quantizing for minimum distortion", 1960).
_QUERY_STEPS: dict[Levels, float] = {2: 0.586, 4: 0.335}
# The greatest length that is kept: a real holds it.
_LONGEST = 3e38
# Bits of learned weights after rounding to whole numbers.
_WEIGHT_BITS = 4


def check_levels(levels: object) -> None:
    """Refuse a number of levels other than 2 and 4."""
    if type(levels) is not int or levels not in LEVELS:
        raise InvalidInputError(f"levels must be 2 or 4, got {levels!r}")


def bits_of(levels: Levels) -> int:
    """Return the bits of a code that each projection takes: log2 of the levels."""
    return levels.bit_length() - 1


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


def quantize(
    projections: NDArray[np.floating], levels: Levels, cuts: Cuts = SIGNS
) -> NDArray[np.bool_]:
    """Compute the bits of codes, bool (m, n t log2(levels)), of projections (m, n)."""
    if levels == 2:
        return above_cuts(projections, cuts) > 0
    normalized = _normalized(projections)
    v1 = normalized > 0
    v2 = ~(v1 ^ (np.abs(normalized) > _threshold(1.0, normalized.shape[1])))
    return np.hstack([v1, v2])


def row_numbers(projections: NDArray[np.floating]) -> NDArray[np.float32]:
    """Compute the two numbers that codes of 4 levels have beside them, float32 (m, 2).

    The first is the length of the projections (m, n) of a row, at most 3e38. The second is the fit
    of the code to their direction u, 1 / <u, levels>; both are 0 where all projections are.
    """
    sizes = np.abs(_normalized(projections))
    large = sizes > _threshold(1.0, sizes.shape[1])
    # einsum adds up in float64 without copies of the arrays, in half the time.
    squares = np.einsum("ij,ij->i", projections, projections, dtype=np.float64)
    along = sizes.sum(axis=1, dtype=np.float64)
    along += 2 * np.einsum("ij,ij->i", sizes, large, dtype=np.float64)
    fits = np.divide(1, along, out=np.zeros_like(along), where=along > 0)
    return np.stack([np.minimum(np.sqrt(squares), _LONGEST), fits], axis=1).astype(np.float32)


def distances_to_edges(
    projections: NDArray[np.floating], levels: Levels, cuts: Cuts = SIGNS
) -> NDArray[np.floating]:
    """Compute the distance of each projection from the value at which a bit of its code changes.

    If it is tiny beside the row's projections (m, n), rounding may decide the bit. Returns the
    distance for each bit of the code, (m, n t log2(levels)), in units of the projections.
    """
    size: NDArray[np.floating] = np.abs(above_cuts(projections, cuts))
    if levels == 2:
        return size
    norm = np.linalg.norm(projections.astype(np.float64), axis=1, keepdims=True)
    to_large = np.abs(size - norm / np.sqrt(projections.shape[1]))
    distances: NDArray[np.floating] = np.hstack([size, np.minimum(size, to_large)])
    return distances


def query_codes(
    projections: NDArray[np.floating], levels: Levels
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Compute the weighted codes of queries, for the asymmetric ranking of codes of these levels.

    Projections are (m, n), codes uint8 (m, k, width) and weights (k,); k is 3 for 2 levels and 4
    for 4. A row of zeros counts as level -1 throughout.
    """
    p = _normalized(projections)
    n = p.shape[1]
    step = _QUERY_STEPS[levels]
    beyond = [np.abs(p) > _threshold(k * step, n) for k in range(1, 2 * levels)]
    # A size of m steps is past the first m edges. A bit of m, of value v, is whether it is past an
    # odd number of the edges v, 2 v, 3 v, ...
    u = [p > 0]
    for value in (2, 1) if levels == 2 else (4, 2, 1):
        u.append(~(u[0] ^ np.logical_xor.reduce(beyond[value - 1 :: value])))
    if levels == 4:
        u = [np.hstack(halves) for halves in zip(u, (u[0], ~u[0], u[1], u[2]), strict=True)]
    weights = 1 << np.arange(len(u))[::-1]
    return np.stack([pack(bits) for bits in u], axis=1), weights


@dataclass(frozen=True, eq=False)
class QueryOrder:
    """What rows are ordered by, for each of m queries.

    Codes are uint8 (m, k, width) and weights (k,), as `query_codes` or `weighted_query_codes` give
    them. With ``scales`` (m,), the numbers of rows count too; by inner products if ``product``.
    """

    codes: NDArray[np.uint8]
    weights: NDArray[np.integer]
    scales: NDArray[np.float64] | None = None
    product: bool = False
    #: What is taken from the distance of codes: 15 for each projection.
    middle: int = 0

    @classmethod
    def of_numbers(cls, projections: NDArray[np.floating], *, product: bool) -> "QueryOrder":
        """Return the order of rows with 4 levels and numbers, for queries' projections (m, n)."""
        n = projections.shape[1]
        codes, weights = query_codes(projections, 4)
        lengths = np.sqrt(np.square(projections.astype(np.float64)).sum(axis=1))
        scales = 4 * _QUERY_STEPS[4] / np.sqrt(n) * lengths
        return cls(codes, weights, scales, product, int(weights.sum()) * n)

    def distances(
        self, part: slice, codes: NDArray[np.uint8], numbers: NDArray[np.float32] | None = None
    ) -> NDArray[np.unsignedinteger] | NDArray[np.float64]:
        """Compute what a part of the queries orders n rows by, (queries, n).

        Rows have codes uint8 (n, width), and, if the order counts them, numbers (n, 2).
        """
        apart = code_distances(self.codes[part], self.weights, codes)
        if self.scales is None or numbers is None:
            return apart
        lengths, fits = numbers.astype(np.float64).T
        along = fits * (apart.astype(np.float64) - self.middle)
        if not self.product:
            along = lengths + self.scales[part, None] * along
        result: NDArray[np.float64] = lengths * along
        return result


def weighted_query_codes(
    codes: NDArray[np.uint8], bit_weights: ArrayLike
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Compute the weighted codes of queries, for the ranking by learned weights of bits.

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
    """Compute the distances that a ranking orders rows by, unsigned (m, n).

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


def _threshold(deviations: float, n: int) -> np.float32:
    """Return a number of standard deviations of n projections whose norm is 1."""
    return np.float32(deviations / np.sqrt(n))
