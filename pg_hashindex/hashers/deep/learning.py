"""Algorithm 2 of BGDH: alternate batches of labelled rows and batches of contexts in the graph."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import nn

from ...db.progress import Progress, show_progress
from ...errors import InvalidInputError, TrainingError
from ...metrics import mean_average_precision
from ...models.codes import pack
from ...models.hash_network import HashNetwork
from ..numerics.bipartite import BipartiteGraph
from ..supervision.labels import Labels
from ..supervision.pairs import GivenPairs
from .losses import GraphLoss, LabelLoss, PairwiseLoss, graph_loss

# Rounds between measurements on the held-back rows.
_LOOK_ROUNDS = 5
# Most rows that a measurement ranks.
_MOST_BESIDE = 5_000
_MOMENTUM = 0.9
# Once rows have vectors of their own, these and the contexts learn at a smaller rate.
_FREE_RATE = 0.25
_ADVICE = "train again with a lower learning_rate, and look for extreme values in the rows"


@dataclass(frozen=True)
class Schedule:
    """How long to train, and in which steps; `BGDH` describes each field."""

    rounds: int
    batch_rows: int
    optimizer: Literal["adam", "sgd"]
    learning_rate: float
    patience: int
    weight_decay: float = 0.0
    supervised_steps: int = 10
    unlabelled_rows: int = 0
    lam: float = 0.0
    pretrain: int = 0
    graph_steps: int = 0
    batch_contexts: int = 0
    contexts_per_row: int = 1
    graph_loss: GraphLoss = "logistic"
    positive: float = 0.5
    walk_length: int = 1
    embedding_rate: float = 0.0
    context_rate: float = 0.0


def find_device(name: str) -> torch.device:
    """Return a device by its name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Reading the value refuses torch's device "meta", which has none.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).split("\n")[0]
        raise InvalidInputError(f"device {name!r} cannot be used: {reason}") from error
    return device


class Trainer:
    """The training of one network: its state, and the steps that change it.

    The network is on its device. ``X`` float32 (n, d) may be in a file. ``held_back`` intp (h,) are
    labelled rows that decide when to stop; training does not use their labels. A network with
    embeddings needs the graph. ``rng`` draws batches and contexts. Given ``pairs`` win over labels.
    """

    def __init__(
        self,
        network: HashNetwork,
        X: NDArray[np.float32],
        labels: Labels,
        held_back: NDArray[np.intp],
        graph: BipartiteGraph | None,
        schedule: Schedule,
        loss: PairwiseLoss | LabelLoss,
        rng: np.random.Generator,
        pairs: GivenPairs | None = None,
    ) -> None:
        self.network, self.X, self.labels, self.graph = network, X, labels, graph
        if pairs is not None:
            self.ends = np.column_stack([pairs.numbers[pairs.left], pairs.numbers[pairs.right]])
            half = scipy.sparse.coo_array((pairs.signs, self.ends.T), shape=(len(X), len(X)))
            self.signs = scipy.sparse.csr_array(half + half.T)
        self.pairs = pairs
        self.schedule, self.rng = schedule, rng
        self.device = network.mean.device
        self.loss = loss
        self.held_back = held_back
        self.labelled = np.setdiff1d(labels.labelled, held_back)
        self.unlabelled = np.setdiff1d(np.arange(len(X)), labels.labelled)
        self.contexts: nn.Embedding | None = None
        self.optimizers = self._optimizers()
        self.pretrained = self.round = 0
        self.losses: dict[str, float] = {}
        self.best: tuple[float, int, dict[str, Any]] | None = None

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        s, network = self.schedule, self.network
        embedding = [p for name, p in network.named_parameters() if name.startswith("xi.")]
        own = [p for name, p in network.named_parameters() if name.startswith("embeddings.")]
        known = {id(p) for p in (*embedding, *own)}
        rest = [p for p in network.parameters() if id(p) not in known]
        groups: list[dict[str, Any]] = [{"params": rest}]
        if embedding:
            groups.append({"params": embedding, "lr": s.embedding_rate})
        result = {"supervised": self._optimizer(groups, s.learning_rate)}
        if own:
            result["own"] = self._sparse_optimizer(own, s.embedding_rate)
        if self.graph is not None:
            size = network.architecture.embedding_size
            # Weights begin as zeros: torch would draw them from its global generator.
            zeros = torch.zeros(self.graph.n_rows, size, device=self.device)
            self.contexts = nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
                zeros, freeze=False, sparse=True
            )
            contexts = list(self.contexts.parameters())
            # Each loss has its own moments, since the two differ in size.
            result["contexts"] = self._sparse_optimizer(contexts, s.context_rate)
            result["graph"] = self._optimizer([{"params": embedding}], s.learning_rate)
            if own:
                result["own graph"] = self._sparse_optimizer(own, _FREE_RATE * s.context_rate)
        return result

    def _optimizer(self, groups: list[dict[str, Any]], rate: float) -> torch.optim.Optimizer:
        decay = self.schedule.weight_decay
        if self.schedule.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=rate, momentum=_MOMENTUM, weight_decay=decay)
        # AdamW shrinks weights by rate * decay, whatever the length of Adam's step.
        return torch.optim.AdamW(groups, lr=rate, weight_decay=decay)

    def _sparse_optimizer(self, given: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        # No momentum: for rows that a batch does not name, it would make every step dense.
        if self.schedule.optimizer == "sgd":
            return torch.optim.SGD(given, lr=rate)
        return torch.optim.SparseAdam(given, lr=rate)

    def run(self, *, progress: bool = False) -> None:
        """Train to the end, and keep the best network.

        A loss or weight that is no longer finite raises `TrainingError`.
        """
        s = self.schedule
        total = self._n_pretrain + s.rounds * (s.supervised_steps + self._graph_steps)
        with show_progress(bars=progress), Progress("training", total, "batch") as bar:
            for done in self._rounds():
                losses = (f"{name}={value:.3g}" for name, value in self.losses.items())
                bar.update(done, ", ".join(losses))
        self._check_weights()
        if self.best is not None:
            self.network.load_state_dict(self.best[2])

    @property
    def _own(self) -> bool:
        """Whether rows get vectors of their own."""
        return bool(self.network.architecture.n_embedded)

    @property
    def _n_pretrain(self) -> int:
        return 0 if self.graph is None else self.schedule.pretrain * (1 + self._own)

    @property
    def _graph_steps(self) -> int:
        # With lambda = 0 steps on the graph would change nothing.
        return self.schedule.graph_steps if self.graph is not None and self.schedule.lam else 0

    @property
    def _patience_is_over(self) -> bool:
        looks = (self.round - self.best[1]) // _LOOK_ROUNDS if self.best is not None else 0
        return looks >= self.schedule.patience

    def _rounds(self) -> Iterator[int]:
        """Train piece by piece; yield the number of batches of each."""
        s = self.schedule
        self.network.train()
        while self.pretrained < self._n_pretrain:
            # Stop where rows get their own vectors, and at the end.
            end = s.pretrain if self.pretrained < s.pretrain else self._n_pretrain
            n_steps = min(s.graph_steps or 1, end - self.pretrained)
            self._batches("graph", self._graph_step, n_steps)
            self.pretrained += n_steps
            if self._own and self.pretrained == s.pretrain:
                self._scale_rates(_FREE_RATE, "contexts")
            yield n_steps
        self._weigh_graph()
        while self.round < s.rounds and not self._patience_is_over:
            self._batches("labels", self._supervised_step, s.supervised_steps)
            self._batches("graph", self._graph_step, self._graph_steps)
            self.round += 1
            if len(self.held_back) and (self.round % _LOOK_ROUNDS == 0 or self.round == s.rounds):
                self._look()
            yield s.supervised_steps + self._graph_steps

    def _weigh_graph(self) -> None:
        """Scale steps on the graph by lambda.

        For plain gradient descent that equals lambda times the loss; Adam ignores the size of a
        loss.
        """
        if self.graph is None:
            return
        if self._own and not self.schedule.pretrain:
            self._scale_rates(_FREE_RATE, "contexts")
        self.network.scale_embeddings(self.X)
        self._scale_rates(self.schedule.lam, "graph", "own graph", "contexts")

    def _scale_rates(self, factor: float, *names: str) -> None:
        for name in names:
            for group in self.optimizers[name].param_groups if name in self.optimizers else ():
                group["lr"] *= factor

    def _batches(self, name: str, step: Callable[[], torch.Tensor], n_steps: int) -> None:
        if not n_steps:
            return
        # Read once for all batches, since each read waits for the GPU.
        loss = float(torch.stack([step() for _ in range(n_steps)]).mean())
        if not np.isfinite(loss):
            place = f"round {self.round + 1} of {self.schedule.rounds}"
            if self.pretrained < self._n_pretrain:
                place = f"batch {self.pretrained + n_steps} of the pre-training"
            raise TrainingError(f"the loss of the {name} became {loss} in {place}; {_ADVICE}")
        self.losses[name] = loss

    def _check_weights(self) -> None:
        """Refuse weights that are not finite; the last step may have made them so."""
        held = [*self.network.named_parameters()]
        held += [] if self.contexts is None else [*self.contexts.named_parameters("contexts")]
        for name, parameter in held:
            if not torch.isfinite(parameter).all():
                raise TrainingError(
                    f"{name} of the network is no longer finite after round {self.round} of "
                    f"{self.schedule.rounds}; {_ADVICE}"
                )

    def _graph_step(self) -> torch.Tensor:
        """Minimise L_g on one batch of contexts (Algorithm 2, lines 13 to 15)."""
        assert self.graph is not None  # noqa: S101
        assert self.contexts is not None  # noqa: S101
        s = self.schedule
        drawn = self.graph.contexts(
            s.batch_contexts,
            self.rng,
            positive=s.positive,
            length=s.walk_length,
            repeats=s.contexts_per_row,
        )
        if not len(drawn.rows):
            # No walk of this batch has left its row.
            return torch.zeros((), device=self.device)
        numbers, places = np.unique(drawn.rows, return_inverse=True)
        rows = torch.from_numpy(numbers).to(self.device)
        others = torch.from_numpy(drawn.contexts).to(self.device)
        free = self.pretrained >= s.pretrain
        embedded = self.network.embed(self._rows(numbers), rows if free else None)
        # Indexing would add gradients in the order of torch's threads.
        embedded = torch.nn.functional.embedding(torch.from_numpy(places).to(self.device), embedded)
        scores = (embedded * self.contexts(others)).sum(dim=1)
        loss = graph_loss(scores, torch.from_numpy(drawn.signs).to(self.device), s.graph_loss)
        self._step(("graph", "contexts", *(["own graph"] if free else [])), loss)
        return loss.detach()

    def _supervised_step(self) -> torch.Tensor:
        """Minimise L_s on one batch (Algorithm 2, lines 6 to 10).

        A batch has ``batch_rows`` labelled rows, and the rows of half as many given pairs; all
        known pairs among them count. Methods that learn from unlabelled rows have some of these
        too. The loss is a mean, so that one learning rate suits batches of any size.
        """
        size = min(self.schedule.batch_rows, len(self.labelled))
        drawn = np.sort(self.rng.choice(self.labelled, size, replace=False))
        if self.schedule.unlabelled_rows:
            size = min(self.schedule.unlabelled_rows, len(self.unlabelled))
            drawn = np.union1d(drawn, self.rng.choice(self.unlabelled, size, replace=False))
        if self.pairs is not None:
            size = min(self.schedule.batch_rows // 2, len(self.ends))
            drawn = np.union1d(drawn, self.rng.choice(self.ends, size, replace=False))
        u = self.network(self._rows(drawn), torch.from_numpy(drawn).to(self.device))
        loss = self._supervised_loss(u, drawn)
        self._step(("supervised", "own"), loss)
        return loss.detach()

    def _supervised_loss(self, u: torch.Tensor, rows: NDArray[np.intp]) -> torch.Tensor:
        if self.network.architecture.n_classes:
            given = torch.from_numpy(self.labels.indicator[rows].toarray() > 0)
            return self.loss(u, given.to(self.device))
        similar, known = self.labels.same(rows, rows), []
        n_pairs = len(rows) * (len(rows) - 1)
        if self.pairs is not None:
            given = self.signs[rows][:, rows].toarray()
            similar = np.where(given == 0, similar, given > 0)
            labelled = np.isin(rows, self.labelled)
            counting = np.outer(labelled, labelled) | (given != 0)
            np.fill_diagonal(counting, False)
            n_pairs, known = int(counting.sum()), [torch.from_numpy(counting).to(self.device)]
        loss = self.loss(u, torch.from_numpy(similar).to(self.device), *known)
        return loss / max(1, n_pairs)

    def _step(self, names: tuple[str, ...], loss: torch.Tensor) -> None:
        used = [self.optimizers[name] for name in names if name in self.optimizers]
        self.network.zero_grad(set_to_none=True)
        for optimizer in used:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in used:
            optimizer.step()

    def _rows(self, numbers: NDArray[np.intp]) -> torch.Tensor:
        return torch.from_numpy(self.X[numbers]).to(self.device)

    def _codes(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        return pack(self.network.project(self.X[rows], rows) > 0)

    def _look(self) -> None:
        """Keep the network if its MAP on the held-back rows is the best so far."""
        found = self._held_back_map()
        self.losses["held-back MAP"] = found
        # Among equals keep the later one, which has learned more.
        if self.best is None or found >= self.best[0]:
            self.best = (found, self.round, copy.deepcopy(self.network.state_dict()))

    def _held_back_map(self) -> float:
        """Return the MAP of held-back rows as queries among the rows that are learned from.

        It is better than the loss of these pairs, which rises long before the ranking gets worse,
        because it measures how sure the network is of its mistakes.
        """
        beside = self.labelled[:: -(-len(self.labelled) // _MOST_BESIDE)]
        query_codes, codes = (self._codes(rows) for rows in (self.held_back, beside))
        shared = self.labels.same(self.held_back, beside)
        return mean_average_precision(query_codes, codes, shared, ties="average")
