"""The network of BGDH: features of a row and of its embedding, and codes from both.

    u = M' [phi(x); psi(e)] + v                                     (equation 3)

phi is a perceptron, or CNN-F for images; e is xi(x), a perceptron, to which the transductive
variant adds a free vector of each row. Without embeddings it is the network of DPSH.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..errors import InvalidInputError
from .cnn import CNNF
from .vectors import SparseRows

#: Weights (m, d) and biases (m,) of an affine map.
Affine: TypeAlias = tuple[NDArray[np.floating], NDArray[np.floating]]

# Standard deviation of M and v at first. With the paper's variance of 0.01, projections of a wide
# network start so large that their signs hardly change any more.
_HEAD_DEVIATION = 0.01
# Images in a block for CNN-F, and rows in a block for perceptrons.
_IMAGES, _ROWS = 64, 8192
# Raised here and in torch by sizes and arrays that fit no network.
_NO_NETWORK = (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError)


@dataclass(frozen=True)
class Architecture:
    """The sizes of a network.

    ``hidden`` are the hidden layers of phi if it is a perceptron; the last gives the features.
    ``image_shape`` and ``input_size`` are those of `CNNF`. ``embedding_size`` is the size of e and
    of psi(e), 0 for none, and ``embedding_hidden`` are the hidden layers of xi. ``n_embedded`` rows
    have a vector of their own in their embedding. Beside projections the network gives scores of
    ``n_classes`` classes, which training alone uses.
    """

    dimension: int
    n_bits: int
    hidden: tuple[int, ...]
    embedding_size: int = 0
    embedding_hidden: tuple[int, ...] = ()
    n_embedded: int = 0
    n_classes: int = 0
    image_shape: tuple[int, int, int] | None = None
    input_size: int = 224

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Architecture":
        """Read the result of ``dataclasses.asdict`` after a way through JSON.

        A value that is not a size is refused; the network checks whether the sizes fit. A missing
        or unknown field is a TypeError.
        """
        read: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in config.items()
        }
        for name, value in read.items():
            least, sizes = (1, value) if isinstance(value, tuple) else (0, (value,))
            if value is not None and not all(isinstance(x, int) and x >= least for x in sizes):
                raise InvalidInputError(f"{name} is {value!r}, which is not a size")
        return cls(**read)


class HashNetwork(nn.Module):
    """The network, from rows to projections; the generator draws all weights."""

    def __init__(self, architecture: Architecture, generator: torch.Generator) -> None:
        super().__init__()
        a = self.architecture = architecture
        self.register_buffer("mean", torch.zeros(a.dimension))
        self.register_buffer("scale", torch.ones(1))
        self.phi: nn.Module
        if a.image_shape is None:
            self.phi = nn.Sequential(*_hidden_layers(a.dimension, a.hidden, generator))
            width = a.hidden[-1]
        else:
            self.phi = CNNF(a.image_shape, input_size=a.input_size)
            self.phi.reset_parameters(generator)
            width = self.phi.output_dimension
        if a.embedding_size:
            size = a.embedding_size
            last = (a.dimension, *a.embedding_hidden)[-1]
            self.xi = nn.Sequential(
                *_hidden_layers(a.dimension, a.embedding_hidden, generator),
                _linear(last, size, 1 / math.sqrt(last), generator),
            )
            if a.n_embedded:
                # Skip the weights that torch would draw from its global generator.
                self.embeddings = nn.utils.skip_init(  # type: ignore[no-untyped-call]
                    nn.Embedding, a.n_embedded, size, sparse=True
                )
                nn.init.zeros_(self.embeddings.weight)
            self.psi = _linear(size, size, math.sqrt(2 / size), generator)
            width += size
        self.head = _linear(width, a.n_bits + a.n_classes, _HEAD_DEVIATION, generator)
        _draw(self.head.bias, _HEAD_DEVIATION, generator)

    mean: torch.Tensor
    scale: torch.Tensor

    def set_statistics(self, mean: NDArray[np.floating], scale: float) -> None:
        """Set the mean that perceptrons subtract from rows, and the scale that they divide by."""
        with torch.no_grad():
            self.mean.copy_(torch.from_numpy(mean.astype(np.float32)))
            self.scale.fill_(scale)

    def standardized(self, X: torch.Tensor) -> torch.Tensor:
        """Return rows as perceptrons take them."""
        return (X - self.mean) / self.scale

    def embed(self, X: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        """Return embeddings, float32 (n, embedding_size), of rows (n, d).

        Row numbers, int64 (n,), are needed if rows have vectors of their own.
        """
        result: torch.Tensor = self.xi(self.standardized(X))
        if self.architecture.n_embedded and rows is not None:
            result = result + self.embeddings(rows)
        return result

    @torch.no_grad()
    def scale_embeddings(self, X: NDArray[np.float32]) -> None:
        """Scale psi as if embeddings had unit variance, whatever size pre-training gave them.

        Up to 8,192 of the rows, which are as for `project`, are used.
        """
        rows = np.linspace(0, len(X) - 1, min(len(X), _ROWS)).astype(np.intp)
        device = self.psi.weight.device
        embedded = self.embed(
            torch.from_numpy(X[rows]).to(device), torch.from_numpy(rows).to(device)
        )
        deviation = float(embedded.std(dim=0, correction=0).mean())
        if deviation > 0:
            self.psi.weight /= deviation

    def forward(self, X: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Compute projections u and scores of classes, float32 (n, n_bits + n_classes).

        `embed` describes the parameters.
        """
        # CNN-F has its own mean and scale of pixels.
        seen = self.standardized(X) if self.architecture.image_shape is None else X
        features = self.phi(seen)
        if self.architecture.embedding_size:
            embedded = torch.relu(self.psi(self.embed(X, rows)))
            features = torch.cat([features, embedded], dim=1)
        result: torch.Tensor = self.head(features)
        return result

    @torch.no_grad()
    def project(
        self,
        X: NDArray[np.float32],
        numbers: NDArray[np.intp] | None = None,
    ) -> NDArray[np.float32]:
        """Compute the projections of rows (n, d), in blocks, float32 (n, n_bits).

        Row numbers matter if rows have vectors of their own; by default they are 0, 1, 2, ...
        """
        if X.shape[1] != self.architecture.dimension:
            raise InvalidInputError(
                f"the network of this model takes {self.architecture.dimension} dimensions, got "
                f"{X.shape[1]}"
            )
        was_training, _ = self.training, self.eval()
        size = _ROWS if self.architecture.image_shape is None else _IMAGES
        numbers = np.arange(len(X)) if numbers is None else numbers
        result = np.empty((len(X), self.architecture.n_bits), np.float32)
        for start in range(0, len(X), size):
            block = torch.tensor(X[start : start + size], device=self.mean.device)
            rows = torch.from_numpy(numbers[start : start + size]).to(block.device)
            result[start : start + size] = self(block, rows)[:, : result.shape[1]].cpu().numpy()
        self.train(was_training)
        return result

    @torch.no_grad()
    def place(self, X: NDArray[np.float32], shares: SparseRows) -> NDArray[np.float32]:
        """Compute the projections of new rows (q, d), which have shares (q, n) in known rows."""
        own = self.embeddings.weight.numpy()
        self.embeddings.weight = nn.Parameter(torch.from_numpy((shares @ own).astype(np.float32)))
        try:
            return self.project(X)
        finally:
            self.embeddings.weight = nn.Parameter(torch.from_numpy(own))


def build(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_bits: int
) -> HashNetwork:
    """Build a network from what its model keeps; it projects rows and trains no more."""
    try:
        architecture = Architecture.of(config)
        if architecture.n_bits != n_bits:
            raise InvalidInputError(f"it gives {architecture.n_bits} numbers for {n_bits} bits")
        result = HashNetwork(architecture, torch.Generator())
        # Copies, since the arrays of a network are read-only.
        result.load_state_dict({name: torch.tensor(a) for name, a in arrays.items()})
    except _NO_NETWORK as error:
        raise InvalidInputError(f"the network of this model cannot be built: {error}") from error
    return result.eval()


def linear_layers(module: nn.Module) -> list[Affine]:
    """Return weights (m, d) and biases (m,) of the linear layers in a module, in their order."""
    return [
        (part.weight.detach().cpu().numpy(), part.bias.detach().cpu().numpy())
        for part in module.modules()
        if isinstance(part, nn.Linear)
    ]


def _hidden_layers(
    dimension: int, sizes: Sequence[int], generator: torch.Generator
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size in sizes:
        # He et al. 2015: a layer and its ReLU keep the variance.
        layers += [_linear(dimension, size, math.sqrt(2 / dimension), generator), nn.ReLU()]
        dimension = size
    return layers


def _linear(n_in: int, n_out: int, deviation: float, generator: torch.Generator) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
    _draw(layer.weight, deviation, generator)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def _draw(parameter: torch.Tensor, deviation: float, generator: torch.Generator) -> None:
    parameter.normal_(0, deviation, generator=generator)
