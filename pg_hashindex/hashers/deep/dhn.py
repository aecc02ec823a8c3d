"""DHN: deep hashing network (Zhu, Long, Wang & Cao, AAAI 2016)."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..parameters import NotNegative
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .losses import PairwiseLoss


@dataclass(kw_only=True, eq=False, repr=False)
class DHN(DeepHasher):
    """A network with the likelihood of pairs, and a prior that draws its outputs to -1 and 1.

    Codes are the signs of z = tanh(u), u = M' phi(x) + v, and training minimises the sum over pairs
    of rows of

        log(1 + exp(z_i'z_j)) - s z_i'z_j + lam sum_k (log cosh(|z_ik| - 1) + log cosh(|z_jk| - 1))

    where s = 1 if two rows share a label. The second part is a smooth form of the distance || |z| -
    1 ||_1, which a Laplacian prior with two modes gives. Pairs that are given one by one win over
    labels, as in `DPSH`.

    Parameters
    ----------
    n_bits
        By default 64.
    lam
        Weight of the second part.
    features, hidden, image_shape, input_size, dropout
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, progress, random_state
        As in `DPSH`.
    """

    method = "dhn"

    lam: NotNegative = 0.01

    def _loss(self) -> "PairwiseLoss":
        from .losses import dhn_loss

        return functools.partial(dhn_loss, lam=float(self.lam))
