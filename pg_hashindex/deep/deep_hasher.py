"""What the methods that train a neural network share. torch is imported when they learn."""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..hashers._common.base import Hasher
from ..hashers._common.bipartite import BipartiteGraph
from ..hashers._common.checks import check_choice, check_integer, check_positive, check_within
from ..hashers._common.kernels import mean_squared_distance
from ..hashers._common.rows import RowSource, gathered
from ..hashers._common.supervision import (
    Labels,
    SparseRows,
    Supervision,
    check_classes,
    labelled_rows,
)
from ..models.codes import pack
from ..models.layers import Layer
from ..models.network import Network, known_rows

if TYPE_CHECKING:
    from .learning import Schedule, Trainer
    from .networks import Architecture, HashNetwork

__all__ = ["DeepHasher", "check_sizes"]

_INSTALL = "pip install 'pg_hashindex[deep]'"
_MOST_UNITS = 16_000
_MOST_STEPS = 10**9
_MOST_HELD_BACK = 1_000

#: A function of projections (n, n_bits) and of which rows share a label, bool (n, n), both
#: tensors, that gives the sum of the losses of all ordered pairs of two rows.
PairLoss = Literal["dpsh", "balanced"] | Callable[[Any, Any], Any]


class DeepHasher(Hasher):
    """A hasher that trains a network on labelled rows, and perhaps on a graph of all rows."""

    learns_from = ("labels",)
    runtime_parameters: ClassVar[tuple[str, ...]] = ("device", "checkpoint", "progress")

    n_bits: int
    features: Literal["perceptron", "cnn-f"]
    hidden: Sequence[int]
    image_shape: Sequence[int] | None
    input_size: int
    dropout: float
    weights: str | Path | None
    pairwise_loss: PairLoss
    theta_scale: float
    eta: float
    rounds: int
    batch_rows: int
    optimizer: Literal["adam", "sgd"]
    learning_rate: float
    weight_decay: float
    validation: float
    patience: int
    device: str
    checkpoint: str | Path | None
    progress: bool

    codes_: NDArray[np.uint8]

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        check_choice("features", self.features, ("perceptron", "cnn-f"))
        check_choice("optimizer", self.optimizer, ("adam", "sgd"))
        check_sizes("hidden", self.hidden, 1)
        check_integer("rounds", self.rounds, 1, _MOST_STEPS)
        check_integer("batch_rows", self.batch_rows, 2, _MOST_STEPS)
        check_integer("patience", self.patience, 1, _MOST_STEPS)
        check_within("learning_rate", self.learning_rate)
        for name, value in (
            ("eta", self.eta),
            ("validation", self.validation),
            ("weight_decay", self.weight_decay),
        ):
            if value != 0:
                check_positive(name, value)
        check_positive("theta_scale", self.theta_scale)
        if self.validation > 0.5:
            raise InvalidInputError(
                f"validation is the share of labels held back, at most 0.5, got {self.validation}"
            )
        if not callable(self.pairwise_loss):
            check_choice("pairwise_loss", self.pairwise_loss, ("dpsh", "balanced"))
        if self.features == "cnn-f":
            _check_image_shape(self.image_shape)
            check_integer("input_size", self.input_size, 39, 4096)
            if self.dropout != 0:
                check_positive("dropout", self.dropout)
            if self.dropout >= 1:
                raise InvalidInputError(
                    f"dropout is the share of features left out, below 1, got {self.dropout}"
                )
        elif self.image_shape is not None or self.weights is not None:
            raise InvalidInputError(
                "image_shape and weights are for features='cnn-f', which takes rows for images"
            )
        for name, path in (("weights", self.weights), ("checkpoint", self.checkpoint)):
            if not isinstance(path, str | Path | None):
                raise InvalidInputError(f"{name} must be a path, got {path!r}")
        if self.checkpoint is not None and self.random_state is None:
            raise InvalidInputError(
                "checkpoint needs a random_state: without one every training is another one"
            )
        super().check_parameters()

    def _graph(
        self, rows: RowSource, given: Supervision, rng: np.random.Generator
    ) -> BipartiteGraph | None:
        """Return the graph to learn from; without one, as here, the labelled rows are enough."""
        return None

    def _architecture(self, dimension: int, n_rows: int) -> "Architecture":
        """Return the sizes of the network; without an embedding here."""
        from .networks import Architecture

        shape = None
        if self.features == "cnn-f" and self.image_shape is not None:
            height, width, channels = map(int, self.image_shape)
            shape = (height, width, channels)
        return Architecture(
            dimension,
            int(self.n_bits),
            tuple(map(int, self.hidden)),
            image_shape=shape,
            input_size=int(self.input_size),
        )

    def _schedule(self) -> "Schedule":
        """Return how to train it; without a graph here."""
        from .learning import Schedule

        return Schedule(
            rounds=int(self.rounds),
            batch_rows=int(self.batch_rows),
            optimizer=self.optimizer,
            learning_rate=float(self.learning_rate),
            eta=float(self.eta),
            patience=int(self.patience),
            weight_decay=float(self.weight_decay),
        )

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        assert given.labels is not None  # noqa: S101  (learns_from asks for them)
        check_classes(given.labels)
        _import_torch()
        from .checkpoints import Checkpoint
        from .export import to_layers
        from .learning import Trainer, find_device

        device = find_device(self.device)
        if self.checkpoint is not None:
            # A folder that is of no use is refused before any work.
            Checkpoint(Path(self.checkpoint), {})
        every, labels = rows, given.labels
        mean = every.mean()
        # The root mean square of the values of the rows about their mean.
        scale = math.sqrt(mean_squared_distance(every, mean[None]) / every.dimension)
        graph = self._graph(rows, given, rng)
        if graph is None:
            rows, labels = labelled_rows(rows, labels)
        X = gathered(rows.blocks(), (rows.n_rows, rows.dimension))
        network = self._network_for(X, mean, scale, device, rng)
        held_back = self._held_back(labels, rng)
        trainer = Trainer(network, X, labels, held_back, graph, self._schedule(), self._loss(), rng)
        trainer.run(self._checkpoint(X, labels, graph, rng), progress=self.progress)
        self._keep_summary(trainer, graph)
        self._kept: Network | None = None
        if self.transductive:
            self.codes_ = pack(network.project(X, device) > 0)
            self._kept = known_rows(every.untransformed().blocks(), self.codes_, self.n_bits)
            return []
        if self.features == "cnn-f":
            self._kept = network.to_network()
            return []
        return to_layers(network)

    def _network(self) -> Network | None:
        return self._kept

    def _network_for(
        self,
        X: NDArray[np.float32],
        mean: NDArray[np.float64],
        scale: float,
        device: Any,
        rng: np.random.Generator,
    ) -> "HashNetwork":
        import torch

        from .cnn import CNNF
        from .networks import HashNetwork

        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        network = HashNetwork(self._architecture(X.shape[1], len(X)), generator)
        network.set_statistics(mean, scale)
        if isinstance(network.phi, CNNF):
            network.phi.dropout = float(self.dropout)
            network.phi.generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))
            network.phi.fit_statistics(X)
            if self.weights is not None:
                network.phi.load_weights(Path(self.weights))
        return network.to(device)

    def _loss(self) -> Callable[[Any, Any], Any]:
        from .losses import balanced_loss, dpsh_loss

        if callable(self.pairwise_loss):
            return self.pairwise_loss
        loss = {"dpsh": dpsh_loss, "balanced": balanced_loss}[self.pairwise_loss]
        return functools.partial(loss, scale=float(self.theta_scale))

    def _held_back(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw labelled rows to stop by; never the last row of a label."""
        order = rng.permutation(labels.labelled)
        n_held = min(round(self.validation * len(order)), _MOST_HELD_BACK)
        held, kept = order[:n_held], order[n_held:]
        left = np.asarray(labels.indicator[kept].sum(axis=0)) > 0
        gone = np.asarray((labels.indicator[held] @ ~left).astype(bool))
        result: NDArray[np.intp] = np.sort(held[~gone])
        return result

    def _checkpoint(
        self,
        X: NDArray[np.float32],
        labels: Labels,
        graph: BipartiteGraph | None,
        rng: np.random.Generator,
    ) -> Any:
        if self.checkpoint is None:
            return None
        from .checkpoints import Checkpoint

        training = {
            name: str(_plain(value))
            for name, value in self.get_params().items()
            if name not in self.runtime_parameters
        }
        training |= {
            "method": self.method,
            "rows": _digest(X),
            "labels": _digest_of_sparse(labels.indicator),
            "graph": "none" if graph is None else _digest_of_sparse(graph.edges),
        }
        return Checkpoint(Path(self.checkpoint), training)

    def _keep_summary(self, trainer: "Trainer", graph: BipartiteGraph | None) -> None:
        self._summarized: dict[str, Any] = {
            "device": str(trainer.device),
            "rounds": trainer.round,
            "losses": {name: round(value, 6) for name, value in trainer.losses.items()},
        }
        if trainer.best is not None:
            self._summarized["best_round"] = trainer.best[1]
            self._summarized["held_back_labels"] = len(trainer.held_back)
        if graph is not None:
            self._summarized["graph"] = {
                "rows": graph.n_rows,
                "objects": graph.n_objects,
                "edges": int(graph.edges.nnz),
                "isolated_rows": graph.n_rows - len(graph.connected),
            }

    def _summary(self) -> dict[str, Any]:
        return self._summarized

    def _json_parameters(self) -> dict[str, Any]:
        result = super()._json_parameters()
        given = {name: _plain(value) for name, value in self.get_params().items()}
        return {
            name: given[name] if isinstance(given[name], str | list) else value
            for name, value in result.items()
        }


def check_sizes(name: str, sizes: Any, least: int) -> None:
    """Refuse what is not a sequence of sizes of layers.

    Raises
    ------
    InvalidInputError
    """
    if not isinstance(sizes, list | tuple) or len(sizes) < least:
        raise InvalidInputError(
            f"{name} must be the sizes of {least} hidden layer{'s' * (least != 1)} or more, as a "
            f"list, got {sizes!r}"
        )
    for size in sizes:
        check_integer(f"each size in {name}", size, 1, _MOST_UNITS)


def _check_image_shape(shape: Any) -> None:
    if not isinstance(shape, list | tuple) or len(shape) != 3:
        raise InvalidInputError(
            "features='cnn-f' needs image_shape: height, width and channels of the images that "
            f"rows hold, for instance [28, 28, 1]; got {shape!r}"
        )
    for side in shape:
        check_integer("each side in image_shape", side, 1, _MOST_UNITS)


def _plain(value: Any) -> Any:
    """Return a parameter as a JSON value; a function by its name."""
    if isinstance(value, list | tuple):
        return [int(size) for size in value]
    if callable(value):
        return getattr(value, "__qualname__", repr(value))
    return str(value) if isinstance(value, Path) else value


def _import_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInputError(
            f"this method trains a neural network, which needs torch: {_INSTALL}"
        ) from error


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _digest_of_sparse(matrix: SparseRows) -> str:
    # Whether indices have 32 bits or 64 depends on what the matrix was made from.
    places = (part.astype(np.int64) for part in (matrix.indptr, matrix.indices))
    return _digest(*places, matrix.data)
