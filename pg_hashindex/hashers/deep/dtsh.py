"""DTSH: deep supervised hashing with triplet labels (Wang, Shi & Kitani, ACCV 2016)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from ..parameters import NotNegative, integer
from ..supervision.labels import Labels
from .deep_hasher import MOST_STEPS, DeepHasher

if TYPE_CHECKING:
    from .objectives import Objective


@dataclass(kw_only=True, eq=False, repr=False)
class DTSH(DeepHasher):
    """A network that maximises the likelihood of triplets of rows.

    Codes are the signs of u. In a triplet (q, p, n), q shares a label with p and none with n, and
    training minimises

        L = - sum log sigma(Theta_qp - Theta_qn - margin) + eta sum ||b - u||^2,   b = sgn(u)

    with Theta_ij = u_i'u_j / 2 and sigma(x) = 1 / (1 + exp(-x)). The first sum is divided by the
    number of triplets, the second by that of rows.

    Parameters
    ----------
    n_bits
        By default 64.
    margin
        By how much Theta_qp should be greater; by default n_bits / 2, as in the paper.
    eta
        Weight of the distance of u from its signs, the paper's lambda.
    batch_triplets
        Most triplets of a batch; if its rows have more, so many are drawn.
    features, hidden, image_shape, input_size, dropout, weights
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, checkpoint, progress, random_state
        As in `DPSH`.
    """

    method = "dtsh"

    margin: NotNegative | None = None
    eta: NotNegative = 0.1
    batch_triplets: Annotated[int, integer(1, MOST_STEPS)] = 20_000

    def _objective(
        self, labels: Labels, kept: NDArray[np.intp], rng: np.random.Generator
    ) -> "Objective":
        from .objectives import TripletObjective

        margin = self.n_bits_ / 2 if self.margin is None else float(self.margin)
        return TripletObjective(margin, float(self.eta), int(self.batch_triplets), rng)
