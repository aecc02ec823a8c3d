"""GreedyHash: codes by the sign, with the gradient passed on (Su et al., NeurIPS 2018)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..parameters import NotNegative
from ..supervision.labels import Labels
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .objectives import Objective


@dataclass(kw_only=True, eq=False, repr=False)
class GreedyHash(DeepHasher):
    """A network with the sign as its last layer, and a classifier of its codes.

    Training minimises the cross-entropy of the classes that a linear classifier predicts from b =
    sgn(u), plus ``penalty`` times the sum of |u - b|^3. The sign passes the gradient of b on to u
    as it is: this is the greedy step of the paper, and the penalty keeps u near b, so that the step
    is right. A row with several labels is to be predicted as each of them with an equal share.

    Parameters
    ----------
    n_bits
        By default 64.
    penalty
        Weight of the distance of u from its signs, the paper's alpha; the sum over bits of the mean
        over rows.
    features, hidden, image_shape, input_size, dropout, weights
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, checkpoint, progress, random_state
        As in `DPSH`.
    """

    method = "greedyhash"

    penalty: NotNegative = 0.1

    def _objective(
        self, labels: Labels, kept: NDArray[np.intp], rng: np.random.Generator
    ) -> "Objective":
        from .objectives import ClassifierObjective

        seed = int(rng.integers(2**63))
        return ClassifierObjective(labels, self.n_bits_, float(self.penalty), seed)
