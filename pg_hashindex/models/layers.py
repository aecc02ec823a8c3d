"""The layers of models; ``sql/110_layers.sql`` evaluates the same ones.

=========== ============================== =============================================
kind        carries                        maps a row x to
=========== ============================== =============================================
normalize                                  x / ||x||; the zero vector stays
shift       bias (d)                       x + bias
affine      weights (m, d), bias (m)       weights x + bias
rbf         weights (m, d), scale          exp(-scale ||x - w_i||^2), w_i the anchors
affinity    weights (m, d), scale, nearest the same for the nearest anchors, divided by
                                           their sum; 0 for the others
relu                                       max(x, 0)
tanh                                       tanh(x)
sin, cos                                   sin(x), cos(x)
=========== ============================== =============================================
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .vectors import MAX_DIMENSION as MAX_DIMENSION
from .vectors import as_array

LayerKind = Literal["normalize", "shift", "affine", "rbf", "affinity", "relu", "tanh", "sin", "cos"]

_WITH_WEIGHTS = ("affine", "rbf", "affinity")
_WITH_BIAS = ("shift", "affine")
_WITH_SCALE = ("rbf", "affinity")
_WITH_NEAREST = ("affinity",)


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a model.

    Parameters
    ----------
    kind
        One of the kinds in the table above.
    weights : float32 (m, d), optional
    bias : float32 (m,), optional
    nearest
        1 to m.

    Raises
    ------
    InvalidInputError
        If the kind is unknown, an argument is missing or not used by the kind, or values are not
        finite.
    """

    kind: LayerKind
    weights: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None
    scale: float | None = None
    nearest: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(LayerKind):
            raise InvalidInputError(
                f"layer kind {self.kind!r} is unknown; known are {', '.join(get_args(LayerKind))}"
            )
        self._check_array("weights", self.weights, 2, self.kind in _WITH_WEIGHTS)
        self._check_array("bias", self.bias, 1, self.kind in _WITH_BIAS)
        if (self.scale is not None) != (self.kind in _WITH_SCALE):
            raise InvalidInputError(f"a layer of kind {self.kind} has scale {self.scale}")
        # Keep the float32 of the database, so that both sides use the same value.
        if self.scale is not None:
            try:
                with np.errstate(over="ignore"):
                    object.__setattr__(self, "scale", float(np.float32(self.scale)))
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInputError(f"scale must be a number, got {self.scale!r}") from error
            if not (np.isfinite(self.scale) and self.scale > 0):
                raise InvalidInputError(f"scale must be finite and above 0, got {self.scale}")
        if (self.nearest is not None) != (self.kind in _WITH_NEAREST):
            raise InvalidInputError(f"a layer of kind {self.kind} has nearest {self.nearest}")
        n_anchors = 0 if self.weights is None else len(self.weights)
        if self.nearest is not None and not (
            isinstance(self.nearest, int) and 1 <= self.nearest <= n_anchors
        ):
            raise InvalidInputError(
                f"nearest must be an integer from 1 to the number of anchors, {n_anchors}, got "
                f"{self.nearest!r}"
            )
        if (
            self.weights is not None
            and self.bias is not None
            and len(self.weights) != len(self.bias)
        ):
            raise InvalidInputError(
                f"a layer has {len(self.weights)} rows of weights but {len(self.bias)} biases"
            )

    def _check_array(
        self, what: str, value: NDArray[np.float32] | None, ndim: int, wanted: bool
    ) -> None:
        if (value is not None) != wanted:
            raise InvalidInputError(
                f"a layer of kind {self.kind} {'needs' if wanted else 'takes no'} {what}"
            )
        if value is None:
            return
        given = as_array(f"{what} of a layer of kind {self.kind}", value)
        if given.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"{what} of a layer of kind {self.kind} must be numbers, got an array of "
                f"{given.dtype}"
            )
        # Values beyond float32 become infinite and are refused below.
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(given, dtype=np.float32)
        if array.ndim != ndim or not 1 <= max(array.shape) <= MAX_DIMENSION or 0 in array.shape:
            raise InvalidInputError(
                f"{what} of a layer of kind {self.kind} have shape {array.shape}; "
                f"each side must be 1 to {MAX_DIMENSION}"
            )
        if not np.isfinite(array).all():
            raise InvalidInputError(f"{what} of a layer of kind {self.kind} are not all finite")
        array.flags.writeable = False
        object.__setattr__(self, what, array)

    def output_dimension(self, dimension: int) -> int:
        """Return the output dimension for an input dimension."""
        expected = dimension
        if self.weights is not None:
            expected = self.weights.shape[1]
        elif self.bias is not None:
            expected = len(self.bias)
        if expected != dimension:
            raise InvalidInputError(
                f"a layer of kind {self.kind} takes {expected} dimensions, got {dimension}"
            )
        return dimension if self.weights is None else len(self.weights)

    def apply(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Evaluate the layer on rows, float32 (n, d); returns float32 (n, m)."""
        result: NDArray[Any]
        match self:
            case Layer(kind="normalize"):
                norms = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
                result = X / np.where(norms > 0, norms, 1)
            case Layer(kind="shift", bias=np.ndarray() as bias):
                result = X + bias
            case Layer(kind="affine", weights=np.ndarray() as weights, bias=np.ndarray() as bias):
                result = X @ weights.T + bias
            case Layer(kind="rbf", weights=np.ndarray() as anchors, scale=float() as scale):
                result = np.exp(-scale * squared_distances(X, anchors))
            case Layer(
                kind="affinity",
                weights=np.ndarray() as anchors,
                scale=float() as scale,
                nearest=int() as nearest,
            ):
                result = _affinities(squared_distances(X, anchors), scale, nearest)
            case Layer(kind="relu"):
                result = np.maximum(X, 0)
            case Layer(kind="tanh"):
                result = np.tanh(X)
            case Layer(kind="sin"):
                result = np.sin(X)
            case _:
                result = np.cos(X)
        return result.astype(np.float32, copy=False)


def _affinities(distances: NDArray[np.float64], scale: float, nearest: int) -> NDArray[np.float64]:
    if nearest < distances.shape[1]:
        # A stable order takes the first of equally distant anchors, as SQL does.
        order = np.argsort(distances, axis=1, kind="stable")
        np.put_along_axis(distances, order[:, nearest:], np.inf, axis=1)
    # Relative to the nearest anchor, whose value is 1, so that the sum is never 0.
    result: NDArray[np.float64] = np.exp(-scale * (distances - distances.min(axis=1)[:, None]))
    result /= result.sum(axis=1, keepdims=True)
    return result


def squared_distances(X: NDArray[np.floating], Y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Compute the squared Euclidean distance of every row of X (n, d) to every row of Y (m, d).

    It uses float64, since the expansion ||x||^2 - 2 x'y + ||y||^2 would lose most digits of small
    distances in float32.
    """
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    distances: NDArray[np.float64] = X @ Y.T
    distances *= -2
    distances += np.einsum("ij,ij->i", X, X)[:, None]
    distances += np.einsum("ij,ij->i", Y, Y)[None, :]
    return np.maximum(distances, 0, out=distances)


def normalize() -> Layer:
    """Return the layer that scales each row to unit length."""
    return Layer("normalize")


def shift(bias: NDArray[np.floating]) -> Layer:
    """Return the layer that adds ``bias`` (d,) to each row."""
    return Layer("shift", bias=bias.astype(np.float32))


def affine(weights: NDArray[np.floating], bias: NDArray[np.floating] | None = None) -> Layer:
    """Return the layer W x + b; without a bias, b is zero."""
    if bias is None:
        bias = np.zeros(len(weights))
    return Layer("affine", weights.astype(np.float32), bias.astype(np.float32))


def rbf(anchors: NDArray[np.floating], scale: float) -> Layer:
    """Return the layer of exp(-scale ||x - anchor||^2) for each row of ``anchors``."""
    return Layer("rbf", anchors.astype(np.float32), scale=scale)


def affinity(anchors: NDArray[np.floating], scale: float, nearest: int) -> Layer:
    """Return the layer of each row's shares in its nearest anchors, by exp(-scale distance^2)."""
    return Layer("affinity", anchors.astype(np.float32), scale=scale, nearest=nearest)
