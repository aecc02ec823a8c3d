"""DPSH: deep pairwise-supervised hashing (Li, Wang & Kang, IJCAI 2016)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..parameters import NotNegative, Positive, check_annotated
from .deep_hasher import DeepHasher

if TYPE_CHECKING:
    from .losses import PairwiseLoss

#: A name, or a function of tensors: projections (n, n_bits), which rows are similar, bool (n, n),
#: and, if pairs are given, which pairs are known, bool (n, n). It returns the sum of the losses of
#: all (known) ordered pairs of two rows.
PairLoss = Literal["dpsh", "balanced"] | Callable[[Any, Any], Any]


@dataclass(kw_only=True, eq=False, repr=False)
class DPSH(DeepHasher):
    """A network whose codes tell which rows share a label.

    It is the baseline of `BGDH`, which equals it with ``lam=0``. Codes are the signs of u = M'
    phi(x) + v, and training minimises

        L_s = sum log(1 + exp(Theta_ij)) - s_ij Theta_ij + eta sum ||b_i - u_i||^2

    over known pairs, Theta_ij = u_i'u_j / 2, b = sgn(u) and s_ij = 1 if two rows are similar
    (equation 4 of the paper on BGDH). Labelled rows are similar if they share a label; pairs that
    are given one by one come on top, and win over labels. Other rows only count in the mean and
    scale of the rows.

    phi is a perceptron by default, which SQL evaluates; with ``features="cnn-f"`` it is the
    convolutional network of the papers, and rows are encoded in Python.

    Parameters
    ----------
    n_bits
        By default 64.
    features
        The network phi.
    hidden
        Sizes of the perceptron's hidden layers, one or more; CNN-F does not use them.
    image_shape : (int, int, int), optional
        For CNN-F: height, width and channels of the images that rows hold, pixel by pixel.
    input_size
        Side in pixels that CNN-F stretches images to, 39 or more; full6 takes one cell of each
        channel at 64, and 36 at 224 as in the paper.
    dropout
        Dropout of CNN-F, while training.
    pairwise_loss
        "dpsh" is the first sum above; "balanced" gives half of its weight to similar pairs. A
        function takes u, float32 tensor (n, n_bits), and which rows are similar, bool tensor (n,
        n), and returns the sum of the losses of all ordered pairs of two rows. If pairs are given,
        it also takes which pairs are known, bool (n, n), and leaves out the others.
    theta_scale
        Factor of Theta in the named losses. With many bits, Theta of a similar pair is large long
        before all bits agree; a factor below 1 keeps the loss at work until they do.
    eta
        Weight of the distance of u from its signs.
    rounds
        Most rounds of ten batches.
    batch_rows
        Labelled rows in a batch, beside the rows of half as many given pairs; all known pairs
        among them count.
    optimizer
        sgd has a momentum of 0.9.
    learning_rate
        Rate of the optimiser.
    weight_decay
        With adam, the part of a weight that each step removes, times the learning rate (Loshchilov
        & Hutter 2019); with sgd, the factor of |weights|^2 / 2 in the loss.
    validation
        Share of the labelled rows, up to 0.5 and 1,000 rows, that are held back to decide when to
        stop; 0 for none. Given pairs are not held back, so with pairs alone training never stops
        early.
    patience
        Every five rounds the MAP of the held-back rows is measured. Training ends after this many
        measurements below the best, and keeps the network that had the best.
    device
        "auto" for a GPU if there is one, or a name that torch knows.
    progress
        Whether to draw a bar on stderr, with the losses.
    random_state
        Seed of weights, batches and contexts; None draws one and records it. The same seed gives
        the same model on one machine and device.
    """

    method = "dpsh"

    pairwise_loss: PairLoss = "dpsh"
    theta_scale: Positive = 1.0
    eta: NotNegative = 0.5

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        super().check_parameters()
        if not callable(self.pairwise_loss):
            check_annotated("pairwise_loss", self.pairwise_loss, Literal["dpsh", "balanced"])

    def _loss(self) -> "PairwiseLoss":
        from .losses import balanced_loss, dpsh_loss, with_quantization

        loss: Callable[..., Any]
        if callable(self.pairwise_loss):
            loss = self.pairwise_loss
        else:
            named = {"dpsh": dpsh_loss, "balanced": balanced_loss}[self.pairwise_loss]
            loss = functools.partial(named, scale=float(self.theta_scale))
        return with_quantization(loss, float(self.eta))
