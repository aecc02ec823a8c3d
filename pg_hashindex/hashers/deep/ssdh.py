"""SSDH: semi-supervised deep hashing (Zhang & Peng, TCSVT 2017)."""

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from ..parameters import NotNegative, Positive, integer
from ..supervision.labels import Labels
from .deep_hasher import MOST_STEPS, DeepHasher

if TYPE_CHECKING:
    from ...models.hash_network import Architecture
    from .losses import LabelLoss


@dataclass(kw_only=True, eq=False, repr=False)
class SSDH(DeepHasher):
    """A network that ranks triplets of labelled rows, and keeps a graph of each batch.

    Codes are the signs of u = M' phi(x) + v. A second layer beside M gives scores of the classes.
    Each batch has labelled and unlabelled rows, and costs, with h = 1 / (1 + exp(-u)),

        ranking of triplets + alpha graph + beta pseudo-labels + cross-entropy of the scores

    A triplet of labelled rows costs max(0, margin + ||h_i - h_p||^2 - ||h_i - h_q||^2). The graph
    joins each row to the nearest rows of the batch by h, so it changes as the network learns.
    Unlabelled rows count as rows of the class with the highest score, and as none of that with the
    lowest. Rows that are joined should be near, others apart by ``graph_margin``.

    It is the loss of the authors' program, but for two things: the program draws one triplet and
    one pair of each kind a row, where here the mean over all counts; and it takes the cross-entropy
    of the sigmoid of the scores, by the gradient of a softmax.

    Parameters
    ----------
    n_bits
        By default 64.
    margin
        Of triplets.
    graph_margin
        Distance beyond which rows are far enough apart in the graph, and by pseudo-labels.
    alpha
        Weight of the graph.
    beta
        Weight of the pseudo-labels.
    n_nearest
        Rows of the batch that the graph joins a row to.
    unlabelled_rows
        Unlabelled rows in a batch, beside ``batch_rows`` labelled ones.
    features, hidden, image_shape, input_size, dropout
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, progress, random_state
        As in `DPSH`.
    """

    method = "ssdh"
    learns_from = ("labels",)
    learns_unlabelled = True

    batch_rows: Annotated[int, integer(2, MOST_STEPS)] = 64
    unlabelled_rows: Annotated[int, integer(1, MOST_STEPS)] = 64
    margin: Positive = 1.0
    graph_margin: Positive = 3.0
    alpha: NotNegative = 0.1
    beta: NotNegative = 0.1
    n_nearest: Annotated[int, integer(1, MOST_STEPS)] = 8

    def _architecture(self, dimension: int, n_rows: int, labels: Labels) -> "Architecture":
        result = super()._architecture(dimension, n_rows, labels)
        return replace(result, n_classes=labels.n_classes)

    def _loss(self) -> "LabelLoss":
        from .losses import ssdh_loss

        names = ("margin", "graph_margin", "alpha", "beta", "n_nearest")
        return functools.partial(ssdh_loss, **{name: getattr(self, name) for name in names})
