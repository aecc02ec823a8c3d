"""DGH: discrete graph hashing (Liu, Mu, Kumar & Chang, NIPS 2014)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..models.codes import pack
from ..models.layers import Layer, affine
from .agh import AnchorGraph, AnchorHasher
from .base import first_and_last
from .numerics.kernels import check_size
from .numerics.rows import RowSource, row_slices, scratch_array
from .parameters import NotNegative, integer
from .supervision.discrete import signs
from .supervision.labels import Supervision

# Smaller gradients are rounding: the greatest of a bit is 2 + rho times a few.
_NO_GRADIENT = 1e-9
# Singular values of centred codes below this part of sqrt(n) are 0.
_NO_SPREAD = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class DGH(AnchorHasher):
    """Codes that cut few edges of the graph of `AGH`, learned without relaxing them.

    With the similarity A = Z Lambda^-1 Z' of `AGH`, it maximises, over codes B in {-1, 1} (n, r)
    and over Y with columns that sum to 0 and Y'Y = n I (the paper's objective),

        Q = trace(B'A B) + rho trace(B'Y)

    by turns. The second term keeps bits balanced and uncorrelated, without a constraint on B.

        B-step: B becomes sgn(2 A B + rho Y), again and again; where that is 0, bits stay. A has no
            negative eigenvalue, so Q never falls (the signed gradient method).
        Y-step: with B less its column means = U S V', Y = sqrt(n) U V', the best for this B. If B
            has fewer independent columns than bits, random orthogonal ones complete U.

    A new row with shares z in its anchors has the code sgn(B'Z Lambda^-1 z), the best one for its
    similarities to the training rows, so SQL evaluates the layers `affinity` and `affine`.

    Differences from the paper: anchors, width and eigenvectors are those of `AGH`.

    Training holds n_nearest shares and anchor numbers for each row, and n x n_bits float32 values,
    in memory up to 1 GiB, beyond that in a temporary file, and a few bytes for each bit of a row.

    Parameters
    ----------
    n_bits
        Below the number of anchors.
    start : {"rotated", "eigenvectors"}
        The first B and Y, from the leading eigenvectors H of A. "eigenvectors", the paper's DGH-I,
        takes sgn(H) and sqrt(n) H; "rotated" first finds the rotation R and the B of greatest
        trace(R'H'A B), by turns, and takes this B and sqrt(n) H R. It stands for the paper's DGH-R,
        whose own objective for R we have not seen.
    rho
        Weight of balanced and uncorrelated bits.
    n_iter
        Rounds of both steps, the paper's T_G; training ends earlier if no bit changes.
    n_steps
        Steps for B in a round, the paper's T_B; and rounds for R.
    n_anchors, anchors, n_nearest
        As of `AGH`.

    Attributes
    ----------
    codes_ : uint8 (n, ceil(n_bits / 8))
        The learned codes of all rows.
    objective_ : float64 (rounds + 1,)
        Q / (n r) at first, and after each round.
    anchors_, width_, eigenvalues_
        As of `AGH`.
    """

    method = "dgh"

    start: Literal["rotated", "eigenvectors"] = "rotated"
    rho: NotNegative = 0.1
    n_iter: Annotated[int, integer(0, 100_000)] = 20
    n_steps: Annotated[int, integer(1, 100_000)] = 100

    @classmethod
    def takes_cuts(cls) -> bool:  # noqa: D102
        # As for AGH: its distances are those of the graph.
        return False

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        graph, shares = self._graph(rows, self.n_bits_, rng)
        self.eigenvalues_, weights = graph.directions(self.n_bits_, self.n_bits_)
        rotation = np.eye(self.n_bits_)
        B = signs_of(graph, weights)
        if self.start == "rotated":
            rotation, B = rotated(graph, self.eigenvalues_, weights, self.n_steps)
        codes = Codes(graph, B, weights @ rotation, float(self.rho))
        objective = [codes.objective()]
        for _ in range(self.n_iter):
            changed = codes.improve_codes(self.n_steps)
            codes.improve_directions(rng)
            objective.append(codes.objective())
            if not changed:
                break
        self.codes_, self.objective_ = pack(codes.B > 0), np.array(objective)
        return [shares, affine(codes.sums_by_anchor().T)]

    def _summary(self) -> dict[str, Any]:
        return super()._summary() | {"objective": first_and_last(self.objective_)}


def signs_of(graph: AnchorGraph, weights: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return the signs of Z times the weights (m, r), int8 (n, r)."""
    result = np.empty((graph.Z.shape[0], weights.shape[1]), np.int8)
    for part in row_slices(len(result)):
        result[part] = signs(graph.Z[part] @ weights)
    return result


def rotated(
    graph: AnchorGraph,
    eigenvalues: NDArray[np.float64],
    weights: NDArray[np.float64],
    n_steps: int,
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Return the rotation R and the codes B of greatest trace(R'H'A B), found by turns.

    Z times the weights is sqrt(n) H, and H'A = diag(eigenvalues) H'. So B is the sign of H
    diag(eigenvalues) R, and R = P Q' for diag(eigenvalues) H'B = P S Q'.
    """
    scaled = weights * eigenvalues
    rotation, B = np.eye(len(eigenvalues)), signs_of(graph, scaled)
    for _ in range(n_steps):
        products = scaled.T @ (graph.Z.T @ B.astype(np.float64))
        left, _, right = scipy.linalg.svd(products, check_finite=False)
        rotation = left @ right
        before, B = B, signs_of(graph, scaled @ rotation)
        if np.array_equal(before, B):
            break
    return rotation, B


class Codes:
    """The codes B, int8 (n, r), and Y, float32 (n, r), at first Z times ``weights`` (m, r)."""

    def __init__(
        self, graph: AnchorGraph, B: NDArray[np.int8], weights: NDArray[np.float64], rho: float
    ) -> None:
        self.B, self.Y = B, scratch_array(B.shape)
        self._Z, self._sums, self._rho = graph.Z, graph.sums, rho
        for part in row_slices(len(B)):
            self.Y[part] = self._Z[part] @ weights

    def sums_by_anchor(self) -> NDArray[np.float64]:
        """Return Lambda^-1 Z'B, (m, r)."""
        sums: NDArray[np.float64] = self._Z.T @ self.B.astype(np.float64)
        return sums / self._sums[:, None]

    def objective(self) -> float:
        """Return Q / (n r)."""
        total = float((np.square(self.sums_by_anchor()) * self._sums[:, None]).sum())
        for part in row_slices(len(self.B)):
            total += self._rho * float((self.B[part] * self.Y[part].astype(np.float64)).sum())
        return total / self.B.size

    def improve_codes(self, n_steps: int) -> bool:
        """Make B the sign of the gradient until it stays, Y being held; return whether it moved."""
        moved = False
        for _ in range(n_steps):
            sums, changed = self.sums_by_anchor(), False
            for part in row_slices(len(self.B)):
                gradient = 2 * (self._Z[part] @ sums) + self._rho * self.Y[part]
                new = np.where(np.abs(gradient) < _NO_GRADIENT, self.B[part], signs(gradient))
                changed = changed or not np.array_equal(new, self.B[part])
                self.B[part] = new
            moved = moved or changed
            if not changed:
                break
        return moved

    def improve_directions(self, rng: np.random.Generator) -> None:
        """Make Y the best for B."""
        n = len(self.B)
        mean = self.B.mean(axis=0, dtype=np.float64)
        products = np.zeros((len(mean), len(mean)))
        for part in row_slices(n):
            block = self.B[part].astype(np.float64)
            products += block.T @ block
        squares, V = np.linalg.eigh(products - n * np.outer(mean, mean))
        full = squares > _NO_SPREAD**2 * n
        to_left = V[:, full] / np.sqrt(squares[full])
        for part in row_slices(n):
            self.Y[part] = np.sqrt(n) * ((self.B[part] - mean) @ (to_left @ V[:, full].T))
        if not full.all():
            left = np.column_stack([np.full(n, 1 / np.sqrt(n)), (self.B - mean) @ to_left])
            others = rng.standard_normal((n, np.count_nonzero(~full)))
            for _ in range(2):
                # Twice, since what is left of a vector may be small.
                others = np.linalg.qr(others - left @ (left.T @ others))[0]
            self.Y += (np.sqrt(n) * (others @ V[:, ~full].T)).astype(np.float32)
