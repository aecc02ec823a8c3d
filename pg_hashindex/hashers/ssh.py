"""SSH: semi-supervised hashing in a single shot (Wang, Kumar & Chang, CVPR 2010)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.linalg

from ..models.layers import Layer
from .base import Hasher
from .numerics.rows import RowSource
from .numerics.sequential import VaryingSpace
from .parameters import Factor, TooManyBitsError, integer
from .supervision.labels import Supervision
from .supervision.pairs import count_pairs, known_pairs


@dataclass(kw_only=True, eq=False, repr=False)
class SSH(Hasher):
    """PCAH with a covariance that known pairs adjust: all directions at once, orthogonal.

    With S_ij = 1 for pairs of neighbours and -1 for pairs of others, as in `S3PLH`, the directions
    are the leading eigenvectors of

        M = mean of S_ij x_i x_j' over the known pairs  +  eta C

    C being the covariance of all centred rows. It is the baseline that the paper on S3PLH calls
    PCAH with adjusted covariance (section 2.3). Later directions carry
    little of either term, so long codes get worse. Both terms are means, which the paper's are not,
    so eta means the same on any data.

    Training holds the coordinates of the rows in pairs as float32, in memory up to 1 GiB, beyond
    that in a temporary file. It reads all rows six times at most and never holds them.
    ``balance`` is not in the paper.

    Parameters
    ----------
    n_bits
        At most the number of directions in which the rows vary, so at most d.
    eta
        Weight of the covariance against the known pairs. 1e-12 to 1e12.
    balance
        Whether all neighbours together weigh as much as all others together.
    max_label_sets
        As of `S3PLH`.

    Attributes
    ----------
    eigenvalues_ : float64 (n_bits,)
        Those of M, falling, rows being in units of their greatest standard deviation.
    n_neighbours_, n_others_
        The known pairs of either kind.
    """

    method = "ssh"
    learns_from = ("labels", "pairs")
    bits_within_dimension = True

    eta: Factor = 0.03
    balance: bool = True
    max_label_sets: Annotated[int, integer(2, 2**31 - 1)] = 5000

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        kinds = known_pairs(given, self.max_label_sets)
        self.n_neighbours_, self.n_others_, weights = count_pairs(kinds, self.balance)
        space = VaryingSpace(rows)
        r = len(space.variances)
        if self.n_bits_ > r:
            raise TooManyBitsError(
                f"n_bits is {self.n_bits_}, but the rows vary in only {r} directions: ask for at "
                f"most {r} bits, or use s3plh",
                most=r,
            )
        M = self.eta * np.diag(space.variances)
        for kind in kinds:
            M += kind.all_pairs(space.coordinates(rows.restricted_to(kind.numbers)), weights)
        values, directions = scipy.linalg.eigh(
            M, subset_by_index=[r - self.n_bits_, r - 1], check_finite=False
        )
        self.eigenvalues_ = values[::-1]
        return [space.layer(directions.T[::-1])]

    def _summary(self) -> dict[str, Any]:
        return {"neighbour_pairs": self.n_neighbours_, "other_pairs": self.n_others_}
