"""ITQ: iterative quantization (Gong & Lazebnik, CVPR 2011)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..hashers.numerics.projections import centred_affine
from ..models.layers import Layer
from .base import Hasher, first_and_last
from .numerics.rows import RowSource, row_slices
from .parameters import integer, number
from .pcah import principal_directions
from .supervision.labels import Supervision

_BLOCK_ROWS = 2048
# Below this quotient of squared singular values, rotations would have an error above 1e-10.
_SMALL = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class ITQ(Hasher):
    """The principal directions, rotated so that taking signs loses as little as possible.

    The rotation R minimises ||sign(VR) - VR||, V being the rows in the principal directions, by
    alternation: the signs for a given rotation, then the rotation for given signs (orthogonal
    Procrustes). Training holds V, n x n_bits float32 values: in memory up to 1 GiB, beyond that in
    a temporary file. It reads the rows four times, or five if the variances fall steeply, and never
    holds them.

    Parameters
    ----------
    n_bits
        At most d: a rotation makes no new directions.
    n_iter
        The most rounds of the alternation.
    tolerance
        Training ends once a round raises sum |VR|, which lowers the loss by twice as much, by less
        than this part of it; 0 for all rounds.
    extrapolation
        V' sign(VR), of which a round takes the nearest rotation, is continued by this part of its
        last change. With 1, about 15 rounds have the loss of 50 of the paper's, which is 0.

    Attributes
    ----------
    quantization_loss_ : float64 (rounds + 1,)
        ||sign(VR) - VR||^2 / n before each round and after the last; it never rises.
    """

    method = "itq"
    bits_within_dimension = True

    paper_parameters: ClassVar[Mapping[str, Any]] = {"tolerance": 0.0, "extrapolation": 0.0}

    n_iter: Annotated[int, integer(0, 100_000)] = 50
    tolerance: Annotated[float, number(0, 1)] = 6e-4
    extrapolation: Annotated[float, number(0, 1)] = 1.0

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        mean = rows.mean()
        _, directions = principal_directions(rows, mean, self.n_bits_)
        V = rows.through(centred_affine(directions.T, mean)).array()
        start = random_rotation(self.n_bits_, self.n_bits_, rng)
        rotation, self.quantization_loss_ = learn_rotation(
            V, start, self.n_iter, self.tolerance, self.extrapolation
        )
        return [centred_affine((directions @ rotation).T, mean)]

    def _summary(self) -> dict[str, Any]:
        return {"quantization_loss": first_and_last(self.quantization_loss_)}


def learn_rotation(
    V: NDArray[np.float32],
    rotation: NDArray[np.float64],
    n_iter: int,
    tolerance: float = 0.0,
    extrapolation: float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rotate rows by alternation so that their signs approximate them best.

    Gong & Lazebnik, section 2.2, with two additions. If a code has more bits than the rows have
    dimensions, R is r x n_bits with orthonormal rows. A square R for rows padded with zeros would
    give the same, since its other rows play no part. And V' sign(VR) may be extrapolated by its
    last change; a rotation that is worse for it is dropped, and training continues without.

    Starts from R, r x n_bits; r is at most n_bits. ``tolerance`` and ``extrapolation`` are as of
    `ITQ`. Returns R, and ||sign(VR) - VR||^2 / n before each round and after the last, which never
    rises.
    """
    total, square = np.zeros(V.shape[1]), 0.0
    for block in _blocks(V):
        total += block.sum(axis=0, dtype=np.float64)
        square += float(np.einsum("ij,ij->", block, block, dtype=np.float64))
    losses: list[float] = []
    best, kept = -np.inf, rotation
    before: NDArray[np.float64] | None = None
    for _ in range(n_iter + 1):
        # V'B for the signs B, computed from the bits: a sign is twice its bit, less 1.
        rotation32 = rotation.astype(np.float32)
        correlation = np.zeros(rotation.shape)
        for block in _blocks(V):
            correlation += block.T @ (block @ rotation32 > 0).astype(np.float32)
        correlation = 2 * correlation - total[:, None]
        # ||VR|| is ||V||, so the loss needs no further pass.
        products = float(np.vdot(correlation, rotation))
        gain = products - best
        if gain < 0 and extrapolation and before is not None:
            extrapolation, correlation = 0.0, before
        else:
            best, kept = products, rotation
        losses.append(rotation.shape[1] + (square - 2 * best) / len(V))
        if len(losses) > n_iter or 0 <= gain < tolerance * best:
            break
        further = correlation
        if extrapolation and before is not None:
            further = correlation + extrapolation * (correlation - before)
        before = correlation
        rotation = nearest_rotation(further)
    return kept, np.array(losses)


def nearest_rotation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the R with orthonormal rows that has the greatest product with a matrix (r, n_bits).

    With C = U s W', R is U W' = (C C')^(-1/2) C. The eigenvectors of C C' take half of the time of
    singular vectors, but lose digits if some singular values are small.
    """
    squares, left = np.linalg.eigh(matrix @ matrix.T)
    if squares[0] > _SMALL * squares[-1]:
        right = (left.T @ matrix) / np.sqrt(squares)[:, None]
    else:
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
    result: NDArray[np.float64] = left @ right
    return result


def _blocks(V: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for part in row_slices(len(V), _BLOCK_ROWS):
        yield V[part]


def random_rotation(r: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw r orthonormal rows of n_bits numbers, uniformly."""
    Q, R = np.linalg.qr(rng.standard_normal((n_bits, r)))
    # The factorisation chooses the signs of R's diagonal; undo that, so that the draw is uniform.
    result: NDArray[np.float64] = (Q * np.where(np.diag(R) < 0, -1, 1)).T
    return result
