"""ITQ: iterative quantization (Gong & Lazebnik, CVPR 2011)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..layers import Layer
from .base import Hasher, Normalize, centred_affine
from .checks import check_integer
from .pcah import principal_directions
from .rows import RowSource, scratch_array
from .supervision import Supervision

__all__ = ["ITQ"]

_BLOCK_ROWS = 8192


class ITQ(Hasher):
    """The principal directions, rotated so that the signs lose as little as possible.

    The rotation R minimises ||sign(VR) - VR||, V being the rows in the principal directions, by
    alternation: the signs for a given rotation, then the rotation for given signs (orthogonal
    Procrustes). Training holds V, n x n_bits float32 values: in memory up to 1 GiB, beyond that in
    a temporary file. The rows themselves are read three times and never held.

    Parameters
    ----------
    n_bits : int
        At most d: a rotation makes no new directions.
    n_iter : int
        Rounds of the alternation.
    random_state : int, optional
        Seed of the first rotation; None draws one and records it.
    normalize : {"l2"}, optional
        Scale rows to unit length first, for cosine distance.

    Attributes
    ----------
    quantization_loss_ : float64 (n_iter + 1,)
        ||sign(VR) - VR||^2 / n before each round and after the last; it never rises.
    """

    method = "itq"

    quantization_loss_: NDArray[np.float64]

    def __init__(
        self,
        *,
        n_bits: int = 128,
        n_iter: int = 50,
        random_state: int | None = None,
        normalize: Normalize = None,
    ) -> None:
        self.n_bits: int = n_bits
        self.n_iter = n_iter
        self.random_state = random_state
        self.normalize = normalize

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        check_integer("n_iter", self.n_iter, 0, 100_000)
        super().check_parameters()

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        if self.n_bits > rows.dimension:
            raise InvalidInputError(
                f"itq rotates principal directions, of which there are {rows.dimension}, one for "
                f"each dimension; n_bits is {self.n_bits}: ask for at most {rows.dimension} bits, "
                "or use sgh or lsh, which have no such limit"
            )
        mean = rows.mean()
        _, directions = principal_directions(rows, mean, self.n_bits)
        V = scratch_array((rows.n_rows, self.n_bits))
        start = 0
        for block in rows.blocks():
            V[start : start + len(block)] = (block - mean) @ directions
            start += len(block)
        rotation = self._rotate(V, _random_rotation(self.n_bits, rng))
        return [centred_affine((directions @ rotation).T, mean)]

    def _rotate(self, V: NDArray[np.float32], rotation: NDArray[np.float64]) -> NDArray[np.float64]:
        losses = []
        for _ in range(self.n_iter):
            loss, correlation = _quantize(V, rotation)
            losses.append(loss)
            left, _, right = np.linalg.svd(correlation)
            rotation = left @ right
        losses.append(_quantize(V, rotation)[0])
        self.quantization_loss_ = np.array(losses)
        return rotation

    def _summary(self) -> dict[str, Any]:
        first, last = self.quantization_loss_[[0, -1]]
        return {"quantization_loss": {"first": float(first), "last": float(last)}}


def _quantize(
    V: NDArray[np.float32], rotation: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return ||B - VR||^2 / n and V'B, for the signs B of VR, in one pass over V."""
    n, n_bits = V.shape
    loss, correlation = 0.0, np.zeros((n_bits, n_bits))
    rotation32 = rotation.astype(np.float32)
    for start in range(0, n, _BLOCK_ROWS):
        block = V[start : start + _BLOCK_ROWS]
        rotated = block @ rotation32
        signs = np.where(rotated > 0, np.float32(1), np.float32(-1))
        correlation += block.T @ signs
        rotated -= signs
        loss += float(np.einsum("ij,ij->", rotated, rotated, dtype=np.float64))
    return loss / n, correlation


def _random_rotation(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw an orthogonal matrix, all equally likely."""
    Q, R = np.linalg.qr(rng.standard_normal((size, size)))
    # The signs of R's diagonal are the factorisation's choice, not chance.
    result: NDArray[np.float64] = Q * np.where(np.diag(R) < 0, -1, 1)
    return result
