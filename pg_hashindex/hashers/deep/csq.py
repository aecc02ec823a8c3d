"""CSQ: central similarity quantization (Yuan et al., CVPR 2020)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..parameters import NotNegative
from ..supervision.discrete import random_codes, spread_codewords
from ..supervision.labels import Labels
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .objectives import Objective

# Draws of centres, of which the one with the greatest smallest distance is taken.
_DRAWS = 20


@dataclass(kw_only=True, eq=False, repr=False)
class CSQ(DeepHasher):
    """A network that draws the rows of each class to a codeword of the class, its hash centre.

    Codes are the signs of u, h = 1 / (1 + exp(-u)), and training minimises L_C + lam L_Q: L_C is
    the binary cross-entropy of h and the centre of the row, the mean over bits, and L_Q the sum of
    log cosh(|2 h - 1| - 1), which draws h to 0 or 1.

    Centres come from columns of a Hadamard matrix, none of them the same for all classes, for any
    number of bits and classes; the paper takes rows of the matrix, where its order is the number of
    bits. With ``centres="random"`` their bits are drawn (Bernoulli with 0.5). Of 20 draws, the
    centres that are the farthest apart are taken. The centre of a row with several labels is the
    majority of theirs, and of random bits where two are equal.

    Parameters
    ----------
    n_bits
        By default 64.
    centres
        How the codewords of classes are made.
    lam
        Weight of L_Q.
    features, hidden, image_shape, input_size, dropout, weights
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, checkpoint, progress, random_state
        As in `DPSH`.

    Attributes
    ----------
    classes_ : intp (n_classes,)
        The labels, or the numbers of their columns, rising.
    class_codes_ : bool (n_classes, n_bits)
        The codeword of each.
    """

    method = "csq"

    centres: Literal["hadamard", "random"] = "hadamard"
    lam: NotNegative = 0.01

    classes_: NDArray[np.integer] = field(init=False)
    class_codes_: NDArray[np.bool_] = field(init=False)

    def _objective(
        self, labels: Labels, kept: NDArray[np.intp], rng: np.random.Generator
    ) -> "Objective":
        from .objectives import CentreObjective

        centres = self._centres(labels.n_classes, rng)
        self.classes_, self.class_codes_ = labels.classes, centres > 0
        ties = random_codes(1, self.n_bits_, rng)[0]
        return CentreObjective(labels, centres, ties, float(self.lam))

    def _class_codes(self) -> dict[str, str]:
        codewords = ("".join(map(str, code)) for code in self.class_codes_.astype(np.uint8))
        return dict(zip(map(str, self.classes_), codewords, strict=True))

    def _centres(self, n_classes: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return codewords of -1 and 1, int8 (n_classes, n_bits)."""
        make = spread_codewords if self.centres == "hadamard" else random_codes
        return max((make(n_classes, self.n_bits_, rng) for _ in range(_DRAWS)), key=_apart)


def _apart(centres: NDArray[np.int8]) -> float:
    """Return the smallest distance of two codewords, up to a constant and a factor."""
    products = centres.astype(np.float32) @ centres.T.astype(np.float32)
    np.fill_diagonal(products, -np.inf)
    return -float(products.max())
