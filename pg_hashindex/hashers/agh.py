"""AGH: anchor graph hashing, of one and two layers (Liu, Wang, Kumar & Chang, ICML 2011)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..hashers.numerics.projections import with_fixed_signs
from ..models.layers import MAX_DIMENSION, Layer, affine, affinity, squared_distances
from .base import Hasher
from .numerics.kernels import check_size, choose_anchors
from .numerics.kmeans import nearest_to_rows, sample_centres
from .numerics.rows import RowSource, row_slices
from .parameters import TooManyBitsError, integer
from .supervision.labels import Supervision

# Rows for each anchor, if there are too few rows for ``n_anchors``.
_ROWS_PER_ANCHOR = 10
# The greatest eigenvalue is 1. Shares in float32 cannot tell directions below this.
_NO_SPREAD = 1e-6
# Weights below this part of the greatest are rounding; they are set to 0.
_NO_WEIGHT = 1e-6
# Eigenvectors with a greater eigenvalue separate parts of the graph that few rows join.
_APART = 0.999
# Least mean square of the distances from the threshold of a second bit, for eigenvectors of unit
# variance; below it rounding makes the bit.
_FLAT = 1e-8


@dataclass(kw_only=True, eq=False, repr=False)
class AnchorHasher(Hasher):
    """A method that learns from a graph that joins rows through their nearest anchors.

    `AGH` describes the parameters and the attributes.
    """

    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] = 300
    anchors: ArrayLike | None = None
    n_nearest: Annotated[int, integer(2, MAX_DIMENSION)] = 3

    def _graph(
        self, rows: RowSource, n_directions: int, rng: np.random.Generator
    ) -> tuple["AnchorGraph", Layer]:
        """Return the graph of the rows, and the layer of the shares of any row."""
        anchors = self._choose_anchors(rows, n_directions, rng)
        graph = AnchorGraph(rows, anchors, self.n_nearest)
        self.anchors_, self.width_ = graph.anchors, graph.width
        return graph, affinity(graph.anchors, 1 / graph.width, int(self.n_nearest))

    def _choose_anchors(
        self, rows: RowSource, n_directions: int, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        if self.anchors is not None:
            anchors = choose_anchors(rows, self.anchors, self.n_anchors, rng)
        else:
            enough = max(rows.n_rows // _ROWS_PER_ANCHOR, 2 * n_directions, self.n_nearest)
            anchors = sample_centres(rows, min(int(self.n_anchors), enough, rows.n_rows), rng)
        if self.n_nearest > len(anchors):
            raise InvalidInputError(
                f"n_nearest is {self.n_nearest}, but there are only {len(anchors)} anchors; ask "
                "for fewer nearest ones, or give more anchors or rows"
            )
        return anchors

    def _summary(self) -> dict[str, Any]:
        return {"anchors": len(self.anchors_), "width": self.width_}


@dataclass(kw_only=True, eq=False, repr=False)
class AGH(AnchorHasher):
    """Eigenvectors of a graph that joins rows through their nearest anchors.

    Each row has shares in its `n_nearest` anchors, exp(-distance^2 / t) divided by their sum: Z, n
    x m and sparse. The similarity of rows is Z Lambda^-1 Z', Lambda being the column sums of Z, and
    the eigenvectors of that n x n matrix are Z W, with W = Lambda^-1/2 V Sigma^-1/2 from the
    eigenvectors V of the m x m matrix Lambda^-1/2 Z'Z Lambda^-1/2 and the diagonal matrix Sigma of
    their eigenvalues (the paper's part on anchor graphs). The constant eigenvector is left out. A
    new row has shares in its own anchors (the part on eigenfunctions), so SQL evaluates the layers
    `affinity` and `affine`.

    One layer: bits are the signs of the leading n_bits eigenvectors. Later eigenvectors cut up the
    graph's clusters, so two layers take half as many eigenvectors and give each a second bit (the
    part on hierarchical hashing). For rows above 0 it says whether they are above a threshold b+,
    for the others whether they are below b-. The two thresholds minimise f'Lf for the graph's
    Laplacian L, f being the distance of rows beyond their threshold, under the condition that f
    sums to 0. Here b+ >= 0 >= b- is a condition too; the paper leaves it to chance. Bits of the
    first layer come first.

    The paper does not say what t is; here as in the authors' program it is the square of the mean
    distance to the last of the nearest anchors. That program also drops every eigenvector with an
    eigenvalue above 0.999, which separate parts of the graph that few rows join. Here they are
    kept, since nothing else separates these parts. Rounding would decide how they split the parts,
    so they are rotated to separate distant parts first.

    Training holds n_nearest shares and anchor numbers for each row. It reads the rows four times
    and never holds them.

    Parameters
    ----------
    n_bits
        One layer: below the number of anchors. Two layers: below twice that number; where it is
        odd, the last eigenvector has no second bit.
    n_layers : {1, 2}
        Two layers find far better neighbours by label, and about the same by distance.
    n_anchors
        Anchors, found by five rounds of k-means on a sample. If there are fewer than ten rows for
        each, a tenth of the rows, but at least twice the number of eigenvectors.
    anchors : array-like (m, d), optional
        Anchors to use instead, as rows of the input space; those that are never among the nearest
        are left out.
    n_nearest
        Anchors in which a row has a share, at least 2.

    Attributes
    ----------
    anchors_ : float32 (m, d)
        The anchors, as `normalize` leaves them.
    width_
        The t above.
    eigenvalues_ : float64 (k,)
        Eigenvalues of the eigenvectors used, falling, at most 1.
    thresholds_ : float64 (2, k) or None
        b+ and b- of the eigenvectors, which have unit variance; None for one layer.
    """

    method = "agh"

    n_layers: Annotated[Literal[1, 2], integer(1, 2)] = 2

    @classmethod
    def takes_cuts(cls) -> bool:  # noqa: D102
        # With 3, 2,000 candidates hold less of the true ten texts than with 1.
        return False

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        n_directions = -(-self.n_bits_ // self.n_layers)
        graph, shares = self._graph(rows, n_directions, rng)
        self.eigenvalues_, weights = graph.directions(n_directions, self.n_bits_)
        if self.n_layers == 1:
            self.thresholds_ = None
            return [shares, affine(weights.T)]
        self.thresholds_ = graph.thresholds(weights)
        return [shares, *two_layers(weights, self.thresholds_, self.n_bits_)]


class AnchorGraph:
    """The shares of all rows in their nearest anchors, from one pass over the rows.

    ``Z`` (n, m) is sparse, and ``sums`` (m,) are Lambda. Anchors that are among the nearest of no
    row are left out.
    """

    def __init__(self, rows: RowSource, anchors: NDArray[np.float32], n_nearest: int) -> None:
        n = rows.n_rows
        places, squares = nearest_to_rows(rows, anchors, n_nearest)
        self.width = float(np.sqrt(squares[:, -1]).mean(dtype=np.float64)) ** 2
        if not self.width:
            raise InvalidInputError(
                f"every row is at distance 0 from {n_nearest} anchors; give distinct anchors"
            )
        shares = np.exp((squares[:, :1].astype(np.float64) - squares) / self.width)
        shares /= shares.sum(axis=1, keepdims=True)
        used, places = np.unique(places, return_inverse=True)
        starts = np.arange(0, n * n_nearest + 1, n_nearest)
        self.anchors = anchors[used]
        self.Z = scipy.sparse.csr_array(
            (shares.ravel(), places.ravel(), starts), shape=(n, len(used))
        )
        self.sums: NDArray[np.float64] = np.asarray(self.Z.sum(axis=0))

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
            raise TooManyBitsError(
                f"n_bits is {n_bits}, which takes {n_directions} eigenvectors, but the graph of "
                f"{m} anchors has only {found} of use; ask for fewer bits, or for more anchors",
                # An eigenvector gives one bit, or two.
                most=found * -(-n_bits // n_directions),
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
