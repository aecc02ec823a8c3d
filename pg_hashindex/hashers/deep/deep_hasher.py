"""Base of methods that train a network: its parameters, training and export.

torch is imported when they learn.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...models.codes import pack
from ...models.layers import Layer
from ...models.network import Network, known_rows
from ..base import Hasher
from ..numerics.bipartite import BipartiteGraph
from ..numerics.kernels import mean_squared_distance
from ..numerics.rows import RowSource, gathered
from ..parameters import (
    Factor,
    NotNegative,
    check_integer,
    integer,
    number,
)
from ..supervision.labels import UNLABELLED, Labels, Supervision, check_classes
from ..supervision.pairs import GivenPairs

if TYPE_CHECKING:
    from ...models.hash_network import Architecture, HashNetwork
    from .learning import Schedule, Trainer
    from .losses import LabelLoss, PairwiseLoss

_INSTALL = "pip install '.[torch]' in the checkout"
_MOST_UNITS = 16_000
#: The most steps, rows or units that a parameter may ask for.
MOST_STEPS = 10**9
_MOST_HELD_BACK = 1_000


@dataclass(kw_only=True, eq=False, repr=False)
class DeepHasher(Hasher):
    """A network that learns from batches of labelled rows; a method says what a batch costs.

    Rows without a label only count in the mean and scale of the rows, unless a method
    ``learns_unlabelled``. `DPSH` describes the parameters.
    """

    learns_from: ClassVar[tuple[str, ...]] = ("labels", "pairs")
    runtime_parameters = ("device", "progress")
    learns_unlabelled: ClassVar[bool] = False

    features: Literal["perceptron", "cnn-f"] = "perceptron"
    hidden: Sequence[int] = (512,)
    image_shape: Sequence[int] | None = None
    input_size: int = 224
    dropout: float = 0.5
    rounds: Annotated[int, integer(1, MOST_STEPS)] = 50
    batch_rows: Annotated[int, integer(2, MOST_STEPS)] = 128
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Factor = 1e-3
    weight_decay: NotNegative = 0.0
    validation: Annotated[float, number(0, 0.5)] = 0.1
    patience: Annotated[int, integer(1, MOST_STEPS)] = 5
    device: str = "auto"
    progress: bool = False

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        super().check_parameters()
        check_sizes("hidden", self.hidden, 1)
        if self.features == "cnn-f":
            _check_image_shape(self.image_shape)
            check_integer("input_size", self.input_size, 39, 4096)
            number(0, 1, "[)")("dropout", self.dropout)
        elif self.image_shape is not None:
            raise InvalidInputError("image_shape is for images, so it needs features='cnn-f'")

    def default_bits(self, dimension: int) -> int:  # noqa: D102
        return 64

    def _graph(
        self, rows: RowSource, given: Supervision, rng: np.random.Generator
    ) -> BipartiteGraph | None:
        """Return the graph to learn from; None uses the labelled rows only."""
        return None

    def _architecture(self, dimension: int, n_rows: int, labels: Labels) -> "Architecture":
        """Return the sizes of the network."""
        from ...models.hash_network import Architecture

        shape = None
        if self.features == "cnn-f" and self.image_shape is not None:
            height, width, channels = map(int, self.image_shape)
            shape = (height, width, channels)
        return Architecture(
            dimension,
            self.n_bits_,
            tuple(map(int, self.hidden)),
            image_shape=shape,
            input_size=int(self.input_size),
        )

    def _schedule(self) -> "Schedule":
        """Return the schedule, made of the parameters that have its names."""
        from .learning import Schedule

        given = {name: getattr(self, name, None) for name in Schedule.__dataclass_fields__}
        return Schedule(
            **{
                name: value.item() if isinstance(value, np.generic) else value
                for name, value in given.items()
                if value is not None
            }
        )

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        _check_kinds(given)
        _import_torch()
        from .export import to_layers, to_network
        from .learning import Trainer, find_device

        device = find_device(self.device)
        every = rows
        mean = every.mean()
        # The root mean square of the centred values.
        scale = math.sqrt(mean_squared_distance(every, mean[None]) / every.dimension)
        graph = self._graph(rows, given, rng)
        if graph is None and not self.learns_unlabelled:
            known = given.related_rows()
            if given.labels is not None:
                known = np.union1d(known, given.labels.labelled)
            rows, given = rows.restricted_to(known), given.restricted_to(known)
        labels = given.labels or Labels.read(np.full(rows.n_rows, UNLABELLED), rows.n_rows)
        pairs = None if given.pairs is None else GivenPairs.read(given.pairs, None)
        X = gathered(rows.blocks(), (rows.n_rows, rows.dimension))
        network = self._network_for(X, labels, mean, scale, device, rng)
        held_back = self._held_back(labels, rng)
        trainer = Trainer(
            network, X, labels, held_back, graph, self._schedule(), self._loss(), rng, pairs
        )
        trainer.run(progress=self.progress)
        self._keep_summary(trainer, graph)
        self._kept: Network | None = None
        if self.transductive:
            self.codes_ = pack(network.project(X) > 0)
            assert graph is not None  # noqa: S101  (it is what makes a method transductive)
            self._of_rows = network.cpu(), graph
            self._kept = known_rows(every.untransformed().blocks(), self.codes_, self.n_bits_)
            return []
        if self.features == "cnn-f":
            self._kept = to_network(network)
            return []
        return to_layers(network)

    def _network(self) -> Network | None:
        return self._kept

    def _network_for(
        self,
        X: NDArray[np.float32],
        labels: Labels,
        mean: NDArray[np.float64],
        scale: float,
        device: Any,
        rng: np.random.Generator,
    ) -> "HashNetwork":
        import torch

        from ...models.cnn import CNNF
        from ...models.hash_network import HashNetwork

        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        network = HashNetwork(self._architecture(X.shape[1], len(X), labels), generator)
        network.set_statistics(mean, scale)
        if isinstance(network.phi, CNNF):
            network.phi.dropout = float(self.dropout)
            network.phi.generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))
            network.phi.pixels.fit_statistics(X)
        return network.to(device)

    @abstractmethod
    def _loss(self) -> "PairwiseLoss | LabelLoss":
        """Return what a batch costs."""

    def _held_back(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw labelled rows to hold back, never the last row of a label."""
        order = rng.permutation(labels.labelled)
        n_held = min(round(self.validation * len(order)), _MOST_HELD_BACK)
        held, kept = order[:n_held], order[n_held:]
        left = np.asarray(labels.indicator[kept].sum(axis=0)) > 0
        gone = np.asarray((labels.indicator[held] @ ~left).astype(bool))
        result: NDArray[np.intp] = np.sort(held[~gone])
        return result

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

    def settings(self) -> dict[str, Any]:
        """Return the parameters as `Hasher.settings`, with lists as they are."""
        result = super().settings()
        given = {name: _plain(value) for name, value in self.get_params().items()}
        return {
            name: given[name] if isinstance(given[name], str | list) else value
            for name, value in result.items()
        }


def check_sizes(name: str, sizes: Any, least: int) -> None:
    """Refuse a value that is not a sequence of layer sizes."""
    if not isinstance(sizes, list | tuple) or len(sizes) < least:
        raise InvalidInputError(
            f"{name} must be the sizes of {least} hidden layer{'s' * (least != 1)} or more, as a "
            f"list, got {sizes!r}"
        )
    for size in sizes:
        check_integer(f"each size in {name}", size, 1, _MOST_UNITS)


def _check_kinds(given: Supervision) -> None:
    """Refuse labels and pairs that tell of neighbours only: all rows would get the same code."""
    if given.pairs is None:
        assert given.labels is not None  # noqa: S101  (learns_from asks for one of the two)
        check_classes(given.labels)
    elif (given.pairs[:, 2] == 1).all() and (given.labels is None or given.labels.n_classes < 2):
        raise InvalidInputError(
            f"all {len(given.pairs)} pairs are of neighbours, and no labels tell other rows apart; "
            "give pairs of others too, or labels"
        )


def _check_image_shape(shape: Any) -> None:
    if not isinstance(shape, list | tuple) or len(shape) != 3:
        raise InvalidInputError(
            "features='cnn-f' needs image_shape: height, width and channels of the images that "
            f"rows hold, for instance [28, 28, 1]; got {shape!r}"
        )
    for side in shape:
        check_integer("each side in image_shape", side, 1, _MOST_UNITS)


def _plain(value: Any) -> Any:
    """Return a parameter as a JSON value; functions become their names."""
    if isinstance(value, list | tuple):
        return [int(size) for size in value]
    if callable(value):
        return getattr(value, "__qualname__", repr(value))
    return value


def _import_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInputError(
            f"this method trains a neural network, which needs torch: {_INSTALL}"
        ) from error
