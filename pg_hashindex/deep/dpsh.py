"""DPSH: deep pairwise-supervised hashing (Li, Wang & Kang, IJCAI 2016)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..hashers._common.base import Normalize
from .deep_hasher import DeepHasher, PairLoss

__all__ = ["DPSH"]


class DPSH(DeepHasher):
    """A network whose codes say which labelled rows share a label.

    The baseline of `BGDH`, and what that is with ``lam=0``: codes are the signs of
    u = M' phi(x) + v, and training steps down

        L_s = sum log(1 + exp(Theta_ij)) - s_ij Theta_ij + eta sum ||b_i - u_i||^2

    over pairs of labelled rows, Theta_ij = u_i'u_j / 2, b = sgn(u) and s_ij 1 where two rows share
    a label (equation 4 of the paper on BGDH). Unlabelled rows say what rows are like on average,
    nothing else.

    phi is a perceptron by default, which SQL evaluates; with ``features="cnn-f"`` it is the
    convolutional network of the papers, and rows are encoded in Python.

    Parameters
    ----------
    n_bits : int
    features : {"perceptron", "cnn-f"}
    hidden : sequence of int
        Sizes of the perceptron's hidden layers, one or more; not used by CNN-F.
    image_shape : (int, int, int), optional
        For CNN-F: height, width and channels of the images that rows hold, pixel by pixel.
    input_size : int
        Side in pixels that CNN-F stretches images to, 39 or more; full6 has one cell of each
        channel at 64, and 36 at 224 as in the paper.
    dropout : float
        Of CNN-F, while training.
    weights : path, optional
        A file of weights that CNN-F starts from; see `pg_hashindex.deep.cnn.CNNF.load_weights`.
    pairwise_loss : {"dpsh", "balanced"} or callable
        The first sum above; with pairs that share a label counting half of it; or a function of
        u, float32 tensor (n, n_bits), and of which rows share a label, bool tensor (n, n), that
        gives the sum of the losses of all ordered pairs of two rows.
    theta_scale : float
        What Theta is multiplied by in the named losses. With many bits Theta of a similar pair is
        large long before all bits agree; with less than 1, the loss goes on to ask for them.
    eta : float
        What the distance of u from its signs counts.
    rounds : int
        Rounds of ten batches, at the most.
    batch_rows : int
        Labelled rows in a batch; all pairs among them are looked at.
    optimizer : {"adam", "sgd"}
        sgd has a momentum of 0.9.
    learning_rate : float
    weight_decay : float
        With adam, what each weight loses at each step, as a part of it and of the learning rate
        (Loshchilov & Hutter 2019); with sgd, the factor of |weights|^2 / 2 in the loss.
    validation : float
        Share of the labelled rows held back to tell when to stop, up to 0.5 and 1,000 rows; 0 for
        none.
    patience : int
        Training ends when so many looks, one in five rounds, found no network that ranks the rows
        of the held-back ones' labels as well as the best did (MAP), which is kept.
    device : str
        "auto" for a GPU where there is one, or a name that torch knows.
    checkpoint : path, optional
        A file to keep the state of the training in, every 20 seconds or less often where it is
        large; where it is there, training goes on from it. Needs a random_state.
    progress : bool
        Whether to draw a bar on stderr, with the losses.
    random_state : int, optional
        Seed of weights, batches and contexts; None draws one and records it. The same seed gives
        the same model on one machine and device.
    normalize : {"l2"}, optional
        Scale rows to unit length first, for cosine distance.
    """

    method = "dpsh"

    def __init__(
        self,
        *,
        n_bits: int = 64,
        features: Literal["perceptron", "cnn-f"] = "perceptron",
        hidden: Sequence[int] = (512,),
        image_shape: Sequence[int] | None = None,
        input_size: int = 224,
        dropout: float = 0.5,
        weights: str | Path | None = None,
        pairwise_loss: PairLoss = "dpsh",
        theta_scale: float = 1.0,
        eta: float = 0.5,
        rounds: int = 50,
        batch_rows: int = 128,
        optimizer: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        validation: float = 0.1,
        patience: int = 5,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: bool = False,
        random_state: int | None = None,
        normalize: Normalize = None,
    ) -> None:
        self.n_bits: int = n_bits
        self.features = features
        self.hidden = hidden
        self.image_shape = image_shape
        self.input_size = input_size
        self.dropout = dropout
        self.weights = weights
        self.pairwise_loss = pairwise_loss
        self.theta_scale = theta_scale
        self.eta = eta
        self.rounds = rounds
        self.batch_rows = batch_rows
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation = validation
        self.patience = patience
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state
        self.normalize = normalize
