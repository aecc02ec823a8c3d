"""Deep DSH: deep supervised hashing (Liu, Wang, Shan & Chen, CVPR 2016)."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..parameters import NotNegative, Positive
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .losses import PairwiseLoss


@dataclass(kw_only=True, eq=False, repr=False)
class DeepDSH(DeepHasher):
    """A network with a contrastive loss and a regulariser that draws its outputs to -1 and 1.

    The paper calls it DSH; here `DSH` is density-sensitive hashing. Codes are the signs of u, and
    training minimises the sum over pairs of rows, the paper's relaxed loss, of

        s ||u_i - u_j||^2 / 2 + (1 - s) max(margin - ||u_i - u_j||^2, 0) / 2
            + alpha (|| |u_i| - 1 ||_1 + || |u_j| - 1 ||_1)

    where s = 1 if two rows share a label (the paper's y = 0). Pairs that are given one by one win
    over labels, as in `DPSH`.

    Parameters
    ----------
    n_bits
        By default 64.
    margin
        Squared distance beyond which rows without a common label are far enough apart; by default
        2 n_bits, as in the paper: half of the bits differ.
    alpha
        Weight of the regulariser.
    features, hidden, image_shape, input_size, dropout
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, progress, random_state
        As in `DPSH`.
    """

    method = "deep-dsh"

    margin: Positive | None = None
    alpha: NotNegative = 0.01

    def _loss(self) -> "PairwiseLoss":
        from .losses import deep_dsh_loss

        margin = 2.0 * self.n_bits_ if self.margin is None else float(self.margin)
        return functools.partial(deep_dsh_loss, margin=margin, alpha=float(self.alpha))
