"""The graph of AGH: rows joined through the anchors that they share."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...models.layers import Layer, affine, squared_distances
from .base import with_fixed_signs
from .kmeans import nearest_to_rows
from .rows import RowSource, row_slices

# The greatest eigenvalue is 1. Shares in float32 cannot tell directions below this.
_NO_SPREAD = 1e-6
# Weights below this part of the greatest are rounding; they are set to 0.
_NO_WEIGHT = 1e-6
# Eigenvectors with a greater eigenvalue separate parts of the graph that few rows join.
_APART = 0.999
# Least mean square of the distances from the threshold of a second bit, for eigenvectors of unit
# variance; below it rounding makes the bit.
_FLAT = 1e-8


class AnchorGraph(NamedTuple):
    """The shares of all rows in the anchors."""

    anchors: NDArray[np.float32]  # (m, d), each with a share of some row
    width: float
    Z: Any  # scipy.sparse.csr_array (n, m)
    sums: NDArray[np.float64]  # (m,) Lambda

    @classmethod
    def measure(
        cls, rows: RowSource, anchors: NDArray[np.float32], n_nearest: int
    ) -> "AnchorGraph":
        """Compute the shares of all rows in their nearest anchors, in one pass.

        Anchors that are among the nearest of no row are left out.
        """
        n = rows.n_rows
        places, squares = nearest_to_rows(rows, anchors, n_nearest)
        width = float(np.sqrt(squares[:, -1]).mean(dtype=np.float64)) ** 2
        if not width:
            raise InvalidInputError(
                f"every row is at distance 0 from {n_nearest} anchors; give distinct anchors"
            )
        shares = np.exp((squares[:, :1].astype(np.float64) - squares) / width)
        shares /= shares.sum(axis=1, keepdims=True)
        used, places = np.unique(places, return_inverse=True)
        starts = np.arange(0, n * n_nearest + 1, n_nearest)
        Z = scipy.sparse.csr_array((shares.ravel(), places.ravel(), starts), shape=(n, len(used)))
        return cls(anchors[used], width, Z, np.asarray(Z.sum(axis=0)))

    def directions(
        self, n_directions: int, n_bits: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute the leading eigenvectors, without the constant one.

        Returns their eigenvalues, and weights (m, n_directions), Z times which has columns of zero
        mean and unit variance.
        """
        n, m = self.Z.shape
        roots = np.sqrt(self.sums)
        products = (self.Z.T @ self.Z).toarray() / np.outer(roots, roots)
        # Remove the constant eigenvector: it would mix with others of eigenvalue 1.
        products -= np.outer(roots, roots) / n
        values, vectors = scipy.linalg.eigh(products, check_finite=False)
        values, vectors = values[::-1], vectors[:, ::-1]
        n_apart = int(np.count_nonzero(values > _APART))
        if n_apart > 1:
            vectors[:, :n_apart] = self._by_distance(vectors[:, :n_apart])
        values, vectors = values[:n_directions], with_fixed_signs(vectors.T[:n_directions]).T
        if (found := int(np.count_nonzero(values > _NO_SPREAD))) < n_directions:
            raise InvalidInputError(
                f"n_bits is {n_bits}, which takes {n_directions} eigenvectors, but the graph of "
                f"{m} anchors has only {found} of use; ask for fewer bits, or for more anchors"
            )
        weights = vectors * np.sqrt(n / values) / roots[:, None]
        weights[np.abs(weights) < _NO_WEIGHT * np.abs(weights).max(axis=0)] = 0
        return values, weights

    def _by_distance(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rotate eigenvectors of equal eigenvalue so that the first ones separate distant parts.

        Any rotation of them is as good for the graph, so rounding would choose one. Here the
        eigenvectors of a kernel of the distances between anchors choose it.
        """
        distances = squared_distances(self.anchors, self.anchors)
        mass = np.sqrt(self.sums)[:, None] * vectors
        smoothness = mass.T @ np.exp(-distances / distances.mean()) @ mass
        turned: NDArray[np.float64] = vectors @ np.linalg.eigh(smoothness)[1][:, ::-1]
        return turned

    def thresholds(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute b+ and b- of each eigenvector, float64 (2, k).

        With y an eigenvector, e 1 where it is above 0 and 0 elsewhere, f is
        |y| - b+ e + b- (1 - e). Since L maps constants to 0, f'Lf depends on the thresholds by d =
        b+ + b- alone and is least at d = e'L|y| / e'Le; that f sums to 0 gives them from d.
        """
        k = weights.shape[1]
        n_above, above, total, squares = (np.zeros(k) for _ in range(4))
        ZE, ZA = np.zeros(weights.shape), np.zeros(weights.shape)
        for part in row_slices(self.Z.shape[0]):
            Z = self.Z[part]
            Y = Z @ weights
            E, A = (Y > 0).astype(np.float64), np.abs(Y)
            n_above += E.sum(axis=0)
            above += (E * A).sum(axis=0)
            total += A.sum(axis=0)
            squares += (A**2).sum(axis=0)
            ZE += Z.T @ E
            ZA += Z.T @ A
        n = self.Z.shape[0]
        n_below = n - n_above
        # L is I - Z Lambda^-1 Z'.
        ELE = n_above - (ZE**2 / self.sums[:, None]).sum(axis=0)
        ELA = above - (ZE * ZA / self.sums[:, None]).sum(axis=0)
        # If no edge leaves the rows above 0, f'Lf is the same for every d.
        cut = _NO_SPREAD * n < ELE
        d = np.divide(ELA, ELE, out=np.zeros(k), where=cut)
        # b+ >= 0 >= b- bounds d.
        low, high = -total / n_below, total / n_above
        d = np.clip(d, low, high)
        upper, lower = (total + n_below * d) / n, (total - n_above * d) / n
        beyond = squares - 2 * (upper * above + lower * (total - above))
        beyond += upper**2 * n_above + lower**2 * n_below
        # If the eigenvector has one value on each side, every row is at its threshold and rounding
        # would make the second bit. It repeats the first bit instead.
        d = np.where(beyond < _FLAT * n, low, d)
        # Rounding alone could leave a threshold on the wrong side of 0.
        upper, lower = (total + n_below * d) / n, (n_above * d - total) / n
        return np.array([np.maximum(upper, 0), np.minimum(lower, 0)])


def two_layers(
    weights: NDArray[np.float64], thresholds: NDArray[np.float64], n_bits: int
) -> list[Layer]:
    """Return layers, which SQL evaluates, that give both bits of each eigenvector.

    For y = w'z the second bit is 1 where y > b+ or y < b-, that is where |y - c| > h, with c = (b+
    + b-) / 2 and h = (b+ - b-) / 2. Two units u = relu(y - c) and v = relu(c - y) give both: y = u
    - v + c and |y - c| = u + v.

    Weights are float64 (m, k), thresholds (2, k), and n_bits is 2 k, or one less.
    """
    upper, lower = thresholds
    centre, half = (upper + lower) / 2, (upper - lower) / 2
    one = np.eye(len(centre))
    return [
        affine(np.vstack([weights.T, -weights.T]), np.concatenate([-centre, centre])),
        Layer("relu"),
        affine(
            np.block([[one, -one], [one, one]])[:n_bits], np.concatenate([centre, -half])[:n_bits]
        ),
    ]
