"""S3PLH: semi-supervised sequential projection learning (Wang, Kumar & Chang, ICML 2010)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..models.layers import Layer
from .base import Hasher
from .numerics.rows import RowSource, row_slices
from .numerics.sequential import DirectionSequence, VaryingSpace
from .parameters import Factor, integer
from .supervision.labels import Supervision
from .supervision.pairs import count_pairs, known_pairs


@dataclass(kw_only=True, eq=False, repr=False)
class S3PLH(Hasher):
    """Bits that each put more weight on the known pairs that earlier bits got wrong.

    S_ij is 1 for pairs of neighbours, -1 for pairs of others and 0 for unknown pairs. Rows that
    share a label are neighbours, other labelled rows are not; explicit pairs add to that, and win
    if they contradict labels. The next direction w is the leading eigenvector of

        M_k = mean of S_ij x_i x_j' over the known pairs  +  eta C_k          (Algorithm 1)

    C_k being the covariance of all centred rows, labelled or not, from which earlier directions
    have been removed: X <- (I - w w')X. A pair whose bits contradict S, with S_ij w'x_i w'x_j < 0,
    then gains weight: S_ij <- S_ij - alpha w'x_i w'x_j (equation 10).

    The matrix S is never built: the gain of a pair does not depend on its weight so far, and the
    pairs that contradict labels are all pairs of certain groups. Each bit takes sums by group, so
    time and memory are linear in the labelled rows. Training holds the coordinates of these rows,
    and of the rows of explicit pairs, as float32: in memory up to 1 GiB each, beyond that in a
    temporary file. It also holds a few float64 values for each group and dimension; with as many
    labels as rows, that is several times the rows. It reads all rows five times at most.

    Both terms of M are means, over pairs and over rows, so eta means the same on any data. A study
    on training rows of three data sets led to the following differences from the paper (figures:
    label MAP of 32 bits on MNIST and USPS, 1,000 labels):

    - The rows of the pairs are not deflated, only the covariance is, as the paper's section 2.4
      has it ("the new direction may still have a component in the subspace spanned by the previous
      directions"), though its Algorithm 1 rewrites X. If both are deflated, the labels have no more
      to say after as many bits as there are classes: 0.23 and 0.22, against 0.47 and 0.50.
    - The paper's alpha is at most 1 / max ||x_i||^2, so that no pair gains more than 1 by a bit.
      Most pairs then gain almost nothing, since projections are shorter than rows: 0.46 and 0.22
      (``step_by="rows"``, over the rows of known pairs), or 0.49 on USPS with a greater eta, 0.1.
      The authors' program has alpha = 1 whatever the units of the data (``step_by="data"``): 0.54
      and 0.58 on pixels of 0 to 1. Here alpha = step / mean (w'x)^2, so wrong pairs soon outweigh
      the first S in any units.
    - With c classes, pairs of others outweigh neighbours c - 1 to 1. ``balance`` gives either kind
      half of the weight; False takes the mean over all pairs. With few labels this matters most:
      0.43 against 0.38 with 200 labels on MNIST.

    Parameters
    ----------
    n_bits
        It may exceed d: directions need not be orthogonal. Once the bits get all pairs right, as
        two distant classes allow, no new direction is found. Further bits are then orthogonal to
        all earlier ones, so there are at most as many bits as directions in which the rows vary.
    eta
        Weight of the covariance against the known pairs. 0.01 to 0.1 works well; with fewer
        labelled rows it may be greater. 1e-12 to 1e12, like step.
    step
        The weight that a contradicting pair of average projections gains by one bit; weights are 1
        at first.
    step_by
        The unit of step, as above. `S3PLH.paper` keeps the bound of the paper; `S3PLH.program` is
        the authors' program, whose codes follow small changes of eta: 0.1 % of it moves label MAP
        by up to 0.02.
    balance
        Whether all neighbours together weigh as much as all others together.
    max_label_sets
        Rows of several labels are grouped by label set, and time and memory grow with the pairs of
        sets that share a label, 12 bytes each. If there are more sets than this, only the most
        frequent ones are used, and other rows count as unlabelled. It has no effect with one label
        a row.

    Attributes
    ----------
    variances_ : float64 (n_bits,)
        The variance of the rows along each direction, relative to the greatest variance.
    n_neighbours_, n_others_
        The known pairs of either kind.
    """

    method = "s3plh"
    learns_from = ("labels", "pairs")
    # The paper names no eta, and the default is too small for its step.
    paper_parameters: ClassVar[Mapping[str, Any]] = {
        "eta": 0.1,
        "step": 1.0,
        "step_by": "rows",
        "balance": False,
    }
    paper_choices: ClassVar[Mapping[str, Any]] = {"eta": (0.01, 0.03, 0.1, 0.3, 1.0)}
    program_parameters: ClassVar[Mapping[str, Any]] = {
        # The program weights the pairs instead of the covariance: by 0.2 for 1,000 labelled rows.
        "eta": 1 / (0.2 * 999),
        "step": 1.0,
        "step_by": "data",
        "balance": False,
    }

    eta: Factor = 0.03
    step: Factor = 4.0
    step_by: Literal["bit", "rows", "data"] = "bit"
    balance: bool = True
    max_label_sets: Annotated[int, integer(2, 2**31 - 1)] = 5000

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        kinds = known_pairs(given, self.max_label_sets)
        self.n_neighbours_, self.n_others_, weights = count_pairs(kinds, self.balance)
        space = VaryingSpace(rows)
        known = [(kind, space.coordinates(rows.restricted_to(kind.numbers))) for kind in kinds]
        # Coordinates are in units of the rows' greatest deviation, which axes divide by.
        one = float(np.square(space.axes[:, 0]).sum())
        units = {"rows": max(_longest(X) for _, X in known), "data": one}
        sequence = DirectionSequence(space, self.n_bits_, self.method)
        supervised = np.zeros_like(sequence.covariance)
        for kind, X in known:
            supervised += kind.all_pairs(X, weights)
        for bit in range(self.n_bits_):
            direction = sequence.learn(supervised + self.eta * sequence.covariance)
            units["bit"] = sequence.variances[bit]
            for kind, X in known:
                supervised += (
                    self.step / units[self.step_by] * kind.wrong_pairs(X, weights, direction)
                )
        self.variances_ = sequence.variances
        return [sequence.layer()]

    def _summary(self) -> dict[str, Any]:
        return {
            "neighbour_pairs": self.n_neighbours_,
            "other_pairs": self.n_others_,
            "least_variance": float(self.variances_.min()),
        }


def _longest(X: NDArray[np.float32]) -> float:
    """Return the greatest squared length of a row."""
    lengths = (
        np.square(X[part], dtype=np.float64).sum(axis=1).max() for part in row_slices(len(X))
    )
    return float(max(lengths))
