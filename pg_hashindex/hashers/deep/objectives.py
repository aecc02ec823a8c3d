"""What the methods minimise: the mean loss of a batch, and what changes between rounds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..supervision.discrete import cyclic_descent
from ..supervision.label_sets import LabelSets
from ..supervision.labels import Labels
from .losses import (
    PairwiseLoss,
    adsh_loss,
    csq_loss,
    dtsh_loss,
    greedyhash_loss,
    hashnet_loss,
    quantization,
)

#: Takes numbers of rows, and returns their projections as the network is now.
Project: TypeAlias = Callable[[NDArray[np.intp]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a batch, by number, and what is known about their pairs.

    ``similar`` is bool (n, n); ``known``, bool (n, n), says which pairs count, and is None if all
    pairs of two rows do. ``n_pairs`` is how many count, at least 1.
    """

    rows: NDArray[np.intp]
    similar: torch.Tensor
    known: torch.Tensor | None
    n_pairs: int


class Objective(nn.Module, ABC):
    """What training minimises; its parameters are trained with the network, its state is kept."""

    @abstractmethod
    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean loss of projections u, float32 (n, n_bits)."""

    def start_round(self, share: float, project: Project, rng: np.random.Generator) -> None:
        """Change what each round changes; ``share`` is the part of all rounds that is over."""


class PairObjective(Objective):
    """A loss of pairs, by their number, and ``eta`` times the distance of u from its signs."""

    def __init__(self, loss: PairwiseLoss, eta: float = 0.0) -> None:
        super().__init__()
        self.loss, self.eta = loss, eta

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over pairs."""
        known = [] if batch.known is None else [batch.known]
        loss = self.loss(u, batch.similar, *known)
        return (loss + self.eta * quantization(u)) / batch.n_pairs


class ContinuationObjective(Objective):
    """The loss of HashNet; tanh(beta u) comes closer to the sign of u from round to round."""

    def __init__(self, alpha: float, last_beta: float) -> None:
        super().__init__()
        self.alpha, self.last_beta, self.beta = alpha, last_beta, 1.0

    def start_round(self, share: float, project: Project, rng: np.random.Generator) -> None:
        """Let beta grow by the same factor in each round, from 1."""
        self.beta = self.last_beta**share

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over pairs."""
        loss = hashnet_loss(u, batch.similar, batch.known, alpha=self.alpha, beta=self.beta)
        return loss / batch.n_pairs


class CentreObjective(Objective):
    """The loss of CSQ; ``centres`` of -1 and 1, int8 (c, n_bits), are the codewords of classes.

    The centre of a row with several labels is the majority of theirs; ``ties``, int8 (n_bits,),
    decides where there is none.
    """

    def __init__(
        self, labels: Labels, centres: NDArray[np.int8], ties: NDArray[np.int8], weight: float
    ) -> None:
        super().__init__()
        self.labels, self.weight = labels, weight
        self.centres = centres.astype(np.float32)
        self.ties = ties.astype(np.float32) / 2

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over rows."""
        votes = self.labels.indicator[batch.rows] @ self.centres + self.ties
        targets = torch.from_numpy((votes > 0).astype(np.float32)).to(u.device)
        return csq_loss(u, targets, self.weight) / len(u)


class ClassifierObjective(Objective):
    """The loss of GreedyHash, with its classifier of codes."""

    def __init__(self, labels: Labels, n_bits: int, penalty: float, seed: int) -> None:
        super().__init__()
        self.labels, self.penalty = labels, penalty
        generator = torch.Generator().manual_seed(seed)
        first = torch.randn(labels.n_classes, n_bits, generator=generator) / n_bits**0.5
        self.weights = nn.Parameter(first)

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over rows."""
        members = self.labels.indicator[batch.rows].toarray()
        shares = torch.from_numpy(members / members.sum(axis=1, keepdims=True)).to(u.device)
        return greedyhash_loss(u, shares, self.weights, self.penalty) / len(u)


class TripletObjective(Objective):
    """The loss of DTSH over triplets of the batch, by their number, and of u from its signs.

    If a batch has more than ``most`` triplets, so many are drawn.
    """

    def __init__(self, margin: float, eta: float, most: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.margin, self.eta, self.most, self.rng = margin, eta, most, rng

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over triplets, and over rows."""
        triplets = draw_triplets(batch.similar.cpu().numpy(), self.most, self.rng)
        loss = dtsh_loss(u, torch.from_numpy(triplets).to(u.device), self.margin)
        return loss / max(1, len(triplets)) + self.eta * quantization(u) / len(u)


def draw_triplets(
    similar: NDArray[np.bool_], most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return triplets (q, p, n) with p similar to q, and n not, intp (t, 3): all, or ``most``.

    If there are more, each is as likely to be drawn as any other, with repetition.
    """
    others = similar & ~np.eye(len(similar), dtype=bool)
    query, positive = np.nonzero(others)
    n_negative = (~similar).sum(axis=1)
    first = np.concatenate([[0], np.cumsum(n_negative[query])])
    total = int(first[-1])
    places = np.arange(total) if total <= most else rng.integers(total, size=most)
    pair = np.searchsorted(first, places, side="right") - 1
    # The numbers of the negative rows of each query, in front.
    negatives = np.argsort(similar, axis=1, kind="stable")
    chosen = negatives[query[pair], places - first[pair]]
    result: NDArray[np.intp] = np.column_stack([query[pair], positive[pair], chosen])
    return result


class AsymmetricObjective(Objective):
    """The loss of ADSH, and the codes V of the rows that it learns from, ``kept``.

    Each round first updates V by the projections of some of these rows. S_ij is 1 if two rows share
    a label. If not, it is -1 or, with ``balance``, so small that S adds up to 0.
    """

    V: torch.Tensor
    squares: torch.Tensor

    def __init__(
        self,
        labels: Labels,
        kept: NDArray[np.intp],
        first: NDArray[np.int8],
        gamma: float,
        most_drawn: int,
        *,
        balance: bool,
    ) -> None:
        super().__init__()
        self.kept, self.gamma, self.most_drawn = kept, gamma, most_drawn
        self.sets = LabelSets.of_several(labels.take(kept))
        counts = self.sets.counts[:, None]
        sharing, n = self.sets.sharing(counts), len(kept)
        n_similar = float((counts * sharing).sum())
        self.other = n_similar / (n**2 - n_similar) if balance and n_similar < n**2 else 1.0
        squares = (sharing + self.other**2 * (n - sharing))[self.sets.of_row, 0]
        self.register_buffer("squares", torch.from_numpy(squares / n).float(), persistent=False)
        self.register_buffer("V", torch.from_numpy(first))

    def start_round(self, share: float, project: Project, rng: np.random.Generator) -> None:
        """Update V for rows drawn, Omega of the paper, whose projections are U."""
        n_drawn = min(self.most_drawn, len(self.kept))
        drawn = np.sort(rng.choice(len(self.kept), n_drawn, replace=False))
        U = np.tanh(project(self.kept[drawn]).astype(np.float64))
        linear = U.shape[1] * self._signed_sums(U, drawn)
        linear[drawn] += self.gamma * U
        V = cyclic_descent(self.V.cpu().numpy(), linear.__getitem__, U.T @ U, 1)
        self.V.copy_(torch.from_numpy(V))
        sums = self._signed_sums(V.astype(np.float64), np.arange(len(V)))
        self.sums = torch.from_numpy(sums.astype(np.float32)).to(self.V.device)
        self.gram = (self.V.T.float() @ self.V.float()) / len(V)

    def _signed_sums(
        self, values: NDArray[np.float64], places: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Return S'values, float64 (n, k), of the rows at ``places``."""
        by_set = np.zeros((len(self.sets), values.shape[1]))
        np.add.at(by_set, self.sets.of_row[places], values)
        of_similar = self.sets.sharing(by_set)
        sums: NDArray[np.float64] = of_similar - self.other * (values.sum(axis=0) - of_similar)
        return sums[self.sets.of_row]

    def forward(self, u: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over pairs of a row of the batch and one of ``kept``."""
        places = torch.from_numpy(np.searchsorted(self.kept, batch.rows)).to(u.device)
        own, n = self.V[places].float(), len(self.V)
        sums, squares = self.sums[places] / n, self.squares[places]
        return adsh_loss(u, own, sums, squares, self.gram, self.gamma / n) / len(u)
