"""Average precision, and its expectation where tied rows may stand in any order.

A group of t tied rows, r of them relevant, stands behind T rows, R of them relevant. Its i-th row
is relevant with probability r / t, and if it is, i - 1 other rows of the group stand before it,
each relevant with probability (r - 1) / (t - 1). So the precision at the relevant rows among the
first m rows of the group sums to

    sum_{i=1..m} r/t (R + 1 + (i - 1) (r - 1)/(t - 1)) / (T + i)
        = r/t ((R + 1) H + (r - 1)/(t - 1) (m - (T + 1) H)),   H = sum_{i=1..m} 1 / (T + i)

in expectation (McSherry and Najork, ECIR 2008), with m = t for a whole group.

MAP@R divides by the relevant rows within R, a random number where R cuts a group: after its first
m rows it is R + K, K hypergeometric. Given K = k these m rows are themselves a group of m rows, k
of them relevant, in random order, so the expectation is a sum over k.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from .ranks import Hits

__all__ = ["average_precision"]


def average_precision(hits: Hits, top: int | None = None) -> NDArray[np.float64]:
    """Compute the (expected) average precision of each query, over the first ``top`` rows.

    Returns
    -------
    float64 (n_queries,)
    """
    top = hits.n if top is None else top
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, hits.n + 1))])
    n_queries, end = len(hits.n_relevant), hits.start + hits.size
    whole = end <= top
    precisions = _expected_sum(harmonic, hits.start, hits.size, hits.before, hits.count)
    sums = np.bincount(hits.query, weights=precisions * whole, minlength=n_queries)
    found = np.bincount(hits.query, weights=hits.count * whole, minlength=n_queries)
    result: NDArray[np.float64] = sums / np.maximum(found, 1)
    # At most one group of a query is cut.
    for group in np.flatnonzero(~whole & (hits.start < top)):
        query = hits.query[group]
        result[query] = _cut(hits, harmonic, group, top, sums[query])
    return result


def _expected_sum(
    harmonic: NDArray[np.float64],
    start: NDArray[np.intp],
    size: NDArray[np.intp],
    before: NDArray[np.intp],
    count: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Sum the precision at the relevant rows of each group, in expectation."""
    # Differences of sums would cost a row of its own, without ties, some digits for nothing.
    H = np.where(size == 1, 1 / (start + 1), harmonic[start + size] - harmonic[start])
    others = (count - 1) / np.maximum(size - 1, 1)
    result: NDArray[np.float64] = (
        count / size * ((before + 1) * H + others * (size - (start + 1) * H))
    )
    return result


def _cut(
    hits: Hits, harmonic: NDArray[np.float64], group: np.intp, top: int, earlier: np.float64
) -> float:
    """Return the expectation for a query whose group of ties goes beyond ``top``."""
    start, size, before, count = (
        int(part[group]) for part in (hits.start, hits.size, hits.before, hits.count)
    )
    kept = top - start
    k = np.arange(max(0, kept - (size - count)), min(kept, count) + 1)
    logarithm = (
        _log_binomial(count, k) + _log_binomial(size - count, kept - k) - _log_binomial(size, kept)
    )
    probability = np.exp(logarithm)
    probability /= probability.sum()
    within = np.full(k.shape, kept)
    sums = _expected_sum(harmonic, np.full(k.shape, start), within, np.full(k.shape, before), k)
    values = (earlier + sums) / np.maximum(before + k, 1)
    return float(probability @ values)


def _log_binomial(n: int, k: NDArray[np.intp] | int) -> NDArray[np.float64]:
    result: NDArray[np.float64] = gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(n - k + 1)
    return result
