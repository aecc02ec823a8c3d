"""Profiles: distributions of the projections of training rows, to detect drift of later rows.

The comparison is by the population stability index: of two distributions over the same bins, the
sum of ``(now - was) * log(now / was)``. Below 0.1 is usually called no change, above 0.25 a great
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .quantization import SIGNS, Cuts, quantize

#: Bins of a profile, each with about the same number of training rows.
BINS = 10

# Edges are moved by this part of the spread of all projections, so that rounding cannot move a
# number that many rows share across an edge.
_MARGIN = 1e-4


@dataclass(frozen=True, eq=False)
class Profile:
    """The distribution of the projections of some rows, and the count of ones of each bit.

    Nine rising ``edges`` (n_projections, 9) divide the values of a projection into ten bins of
    about equal counts: ``counts`` (n_projections, 10) are the rows below the first edge, from each
    edge to the next, and from the last edge on. They differ if many rows have the same projection.
    ``ones`` (n_bits,) are the rows with a 1 in each bit.
    """

    rows: int
    edges: NDArray[np.float32]
    counts: NDArray[np.int64]
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        n = len(self.edges)
        shapes = (self.edges.shape, self.counts.shape, self.ones.shape)
        fitting = ((n, BINS - 1), (n, BINS), (max(1, len(self.ones) // max(1, n)) * n,))
        if self.rows < 1 or n < 1 or shapes != fitting:
            raise InvalidInputError(
                f"a profile of {self.rows} rows has edges {shapes[0]}, counts {shapes[1]} and ones "
                f"{shapes[2]}; it needs 1 row or more, (n, 9), (n, 10), and a multiple of n"
            )
        if not np.isfinite(self.edges).all() or (np.diff(self.edges) < 0).any():
            raise InvalidInputError("the edges of a profile must be finite and rising")
        if (
            (self.counts < 0).any()
            or (self.counts.sum(axis=1) != self.rows).any()
            or ((self.ones < 0) | (self.ones > self.rows)).any()
        ):
            raise InvalidInputError(
                f"the counts of a profile must be 0 or more and add up to its {self.rows} rows"
            )

    @property
    def n_bits(self) -> int:
        """The number of bits."""
        return len(self.ones)

    @property
    def n_projections(self) -> int:
        """The number of projections."""
        return len(self.edges)

    @classmethod
    def of(cls, projections: NDArray[np.floating], cuts: Cuts = SIGNS) -> "Profile":
        """Make the profile of the projections (n, n_projections) of at least one row."""
        values = np.asarray(projections, dtype=np.float32)
        edges = np.quantile(values, np.arange(1, BINS) / BINS, axis=0, method="inverted_cdf").T
        margin = _MARGIN * values.std(dtype=np.float64) + 1e-6 * np.abs(edges)
        edges = np.sort((edges - margin).astype(np.float32), axis=1)
        ones = quantize(values, cuts).sum(axis=0)
        return cls(len(values), edges, _counted(values, edges), ones)

    def counted(self, projections: NDArray[np.floating]) -> NDArray[np.int64]:
        """Count other projections (n, n_projections) in the bins of this profile."""
        return _counted(np.asarray(projections, dtype=np.float32), self.edges)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values that `from_dict` takes."""
        return {
            "rows": self.rows,
            # The shortest decimal that gives the same float32.
            "edges": [[float(str(edge)) for edge in edges] for edges in self.edges],
            "counts": self.counts.tolist(),
            "ones": self.ones.tolist(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Profile":
        """Make a profile from the result of `as_dict`."""
        try:
            rows = value["rows"]
            edges = np.array(value["edges"], dtype=np.float32)
            counts, ones = _integers(value["counts"]), _integers(value["ones"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"not a profile: {error!r}") from error
        if type(rows) is not int:
            raise InvalidInputError(f"not a profile: it is of {rows!r} rows")
        return cls(rows, edges, counts, ones)


def stability_index(
    was: NDArray[np.integer], now: NDArray[np.integer]
) -> tuple[NDArray[np.float64], float]:
    """Compare distributions (n_bits, bins) bit by bit, and return the part of chance too.

    The index (n_bits,) is less its average under chance alone, so it may be below 0. Half a row is
    added to each bin, so that none is empty. Each bit has the same number of rows. The second
    number is the average contribution of chance to each free bin.
    """
    bins = was.shape[1]
    n_was, n_now = was[0].sum(), now[0].sum()
    a, b = (was + 0.5) / (n_was + bins / 2), (now + 0.5) / (n_now + bins / 2)
    noise = 1 / n_was + 1 / n_now
    index = ((b - a) * np.log(b / a)).sum(axis=1)
    return index - (bins - 1) * noise, float(noise)


def _counted(values: NDArray[np.float32], edges: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.stack(
        [
            np.bincount(np.searchsorted(of_bit, column, side="right"), minlength=BINS)
            for of_bit, column in zip(edges, values.T, strict=True)
        ]
    ).astype(np.int64)


def _integers(value: Any) -> NDArray[np.int64]:
    array = np.array(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{array.dtype} instead of integers")
    return array.astype(np.int64)
