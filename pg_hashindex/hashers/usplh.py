"""USPLH: unsupervised sequential projection learning (Wang, Kumar & Chang, ICML 2010)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..models.layers import Layer
from ._common.base import Hasher
from ._common.checks import Positive, integer, number
from ._common.rows import RowSource, row_slices
from ._common.sequential import DirectionSequence, VaryingSpace
from ._common.supervision import Supervision

__all__ = ["USPLH"]

# The paper takes 2,000 of 10,000 rows for each set: one in five.
_PSEUDO_SHARE = 5


@dataclass(kw_only=True, eq=False, repr=False)
class USPLH(Hasher):
    """Bits that each correct the splits of rows near the boundaries of earlier bits.

    The first direction is the principal one. Each bit w then makes pseudo-labels: r- and r+ are the
    rows nearest to its boundary on either side, R- and R+ the farthest from it. Pairs of r- and r+
    are near each other but have different bits: neighbours, S_ij = 1. Pairs of r- and R-, and of r+
    and R+, are far from each other but have the same bit: S_ij = -1. With T_k the mean of S_ij x_i
    x_j' over all these pairs, the next direction is the leading eigenvector of

        M_k = sum over i < k of decay^(k-1-i) T_i  +  eta C_k          (Algorithm 2)

    C_k being the covariance of the centred rows after earlier directions have been removed, X <- (I
    - w w')X. The sum over all pairs of two sets is a product of two sums, so S is never built.

    Both terms are means, over pairs and over rows, so eta means the same on any data. A study on
    training rows of three data sets decided two points that the paper leaves open. T_k is made from
    rows without the directions before w_k, but with w_k itself, in the order of Algorithm 2: this
    keeps later bits from using w_k again, while other directions stay available. Rows without w_k,
    or the original rows, score far less. And the sets are chosen by the projections that make the
    codes, w'x of the original rows.

    Training holds the rows' coordinates, n x d float32 values at most: in memory up to 1 GiB,
    beyond that in a temporary file. The rows themselves are read four times.

    Parameters
    ----------
    n_bits : int
        It may exceed d, unless the rows vary in one or two directions only.
    eta : float
        Weight of the covariance against the pseudo-labels. 0.003 to 0.03 works well; greater values
        give principal directions.
    decay : float
        Factor of the pseudo-labels of earlier bits after each further bit, the paper's lambda;
        above 0, at most 1.
    n_pseudo : int, optional
        Rows in each of the four sets; None takes a fifth of the rows, which is the paper's 2,000
        for 10,000 rows. A set has at most half of the rows on its side of the boundary, so that r
        and R do not overlap.

    Attributes
    ----------
    variances_ : float64 (n_bits,)
        The variance of the rows along each direction, relative to the greatest variance.
    """

    method = "usplh"

    eta: Positive = 0.01
    decay: Annotated[float, number(0, 1, "(]")] = 0.5
    n_pseudo: Annotated[int, integer(1, 2**63 - 1)] | None = None

    variances_: NDArray[np.float64] = field(init=False)

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        space = VaryingSpace.measure(rows)
        X = space.coordinates(rows)
        n_pseudo = self.n_pseudo or max(1, rows.n_rows // _PSEUDO_SHARE)
        sequence = DirectionSequence(space, self.n_bits, self.method)
        pseudo = np.zeros_like(sequence.covariance)
        for _ in range(self.n_bits):
            # Keep the deflation before w, since T_k is made of rows that still have w.
            deflation = sequence.deflation.copy()
            direction = sequence.learn(pseudo + self.eta * sequence.covariance)
            sets = pseudo_sets(_project(X, direction), n_pseudo)
            pseudo *= self.decay
            pseudo += _pair_term(sets, [_total(X, numbers) @ deflation.T for numbers in sets])
        self.variances_ = sequence.variances
        return [sequence.layer()]

    def _summary(self) -> dict[str, Any]:
        return {"least_variance": float(self.variances_.min())}


def pseudo_sets(projections: NDArray[np.float32], n_pseudo: int) -> list[NDArray[np.intp]]:
    """Choose the rows of pseudo-labels by their projections.

    Parameters
    ----------
    projections : float32 (n,)
        The boundary is at 0; 0 itself counts as below, as in codes.
    n_pseudo : int
        Rows in each set. If a side has fewer than twice as many, each set gets half of the side,
        and the near set the odd row.

    Returns
    -------
    list of intp arrays
        The row numbers of r-, R-, r+ and R+, each row once. Among equal projections, earlier rows
        count as smaller.
    """
    below = np.flatnonzero(projections <= 0)
    above = np.flatnonzero(projections > 0)
    sets = []
    for side, outwards in ((below, -1), (above, 1)):
        n_near, n_far = min(n_pseudo, (len(side) + 1) // 2), min(n_pseudo, len(side) // 2)
        values = projections[side]
        lowest, highest = (n_near, n_far) if outwards > 0 else (n_far, n_near)
        low, high = side[_least(values, lowest)], side[_greatest(values, highest)]
        sets += [low, high] if outwards > 0 else [high, low]
    return sets


def _least(values: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Return the places of the least values, the first ones among equals."""
    if not count:
        return np.empty(0, np.intp)
    last = np.partition(values, count - 1)[count - 1]
    below = np.flatnonzero(values < last)
    return np.concatenate([below, np.flatnonzero(values == last)[: count - len(below)]])


def _greatest(values: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Return the places of the greatest values, the last ones among equals."""
    return len(values) - 1 - _least(-values[::-1], count)


def _pair_term(
    sets: list[NDArray[np.intp]], totals: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the mean of S_ij x_i x_j' over the pairs, for the sums of the rows of each set."""
    (near_below, far_below, near_above, far_above) = map(len, sets)
    total_below, total_far_below, total_above, total_far_above = totals
    n_pairs = near_below * near_above + near_below * far_below + near_above * far_above
    product = np.outer(total_below, total_above - total_far_below)
    product -= np.outer(total_above, total_far_above)
    result: NDArray[np.float64] = (product + product.T) / (2 * n_pairs)
    return result


def _project(X: NDArray[np.float32], direction: NDArray[np.float64]) -> NDArray[np.float32]:
    direction32, result = direction.astype(np.float32), np.empty(len(X), np.float32)
    for part in row_slices(len(X)):
        result[part] = X[part] @ direction32
    return result


def _total(X: NDArray[np.float32], numbers: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the sum of the rows of these numbers, float64 (r,)."""
    result = np.zeros(X.shape[1])
    for part in row_slices(len(numbers)):
        result += X[numbers[part]].sum(axis=0, dtype=np.float64)
    return result
