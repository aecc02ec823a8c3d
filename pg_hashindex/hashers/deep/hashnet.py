"""HashNet: deep learning to hash by continuation (Cao, Long, Wang & Yu, ICCV 2017)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..parameters import Factor, Positive
from ..supervision.labels import Labels
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .objectives import Objective


@dataclass(kw_only=True, eq=False, repr=False)
class HashNet(DeepHasher):
    """A network whose activation becomes the sign during the training.

    Codes are the signs of u, and training minimises

        L = sum w_ij (log(1 + exp(alpha h_i'h_j)) - s_ij alpha h_i'h_j),   h = tanh(beta u)

    over pairs of rows, the paper's weighted likelihood: s_ij = 1 if two rows share a label, and
    w_ij gives similar pairs the same weight in all as the others, without the paper's factor for
    rows that share some of several labels. beta grows by the same factor in each round, from 1 to
    ``last_beta``, where the paper trains in stages of growing beta; as beta grows, tanh(beta u)
    becomes sgn(u).
    Pairs that are given one by one win over labels, as in `DPSH`.

    Parameters
    ----------
    n_bits
        By default 64.
    alpha
        Factor of h_i'h_j; by default 10 / n_bits, so that the product of any two codes is in
        [-10, 10].
    last_beta
        beta at the end of the training.
    features, hidden, image_shape, input_size, dropout, weights
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, checkpoint, progress, random_state
        As in `DPSH`.
    """

    method = "hashnet"
    learns_from = ("labels", "pairs")

    alpha: Positive | None = None
    last_beta: Factor = 10.0

    def _objective(
        self, labels: Labels, kept: NDArray[np.intp], rng: np.random.Generator
    ) -> "Objective":
        from .objectives import ContinuationObjective

        alpha = 10 / self.n_bits_ if self.alpha is None else float(self.alpha)
        return ContinuationObjective(alpha, float(self.last_beta))
