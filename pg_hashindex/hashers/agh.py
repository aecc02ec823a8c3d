"""AGH: anchor graph hashing, of one and two layers (Liu, Wang, Kumar & Chang, ICML 2011)."""

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import MAX_DIMENSION, Layer, affine, affinity
from ._common.anchor_graph import AnchorGraph, two_layers
from ._common.base import Hasher
from ._common.checks import integer
from ._common.kernels import check_size, choose_anchors
from ._common.kmeans import sample_centres
from ._common.rows import RowSource
from ._common.supervision import Supervision

# Rows for each anchor, if there are too few rows for ``n_anchors``.
_ROWS_PER_ANCHOR = 10


class AGH(Hasher):
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
    n_bits : int
        One layer: below the number of anchors. Two layers: below twice that number; where it is
        odd, the last eigenvector has no second bit.
    n_layers : {1, 2}
        Two layers find far better neighbours by label, and about the same by distance.
    n_anchors : int
        Anchors, found by five rounds of k-means on a sample. If there are fewer than ten rows for
        each, a tenth of the rows, but at least twice the number of eigenvectors.
    anchors : array-like (m, d), optional
        Anchors to use instead, as rows of the input space; those that are never among the nearest
        are left out.
    n_nearest : int
        Anchors in which a row has a share, at least 2.

    Attributes
    ----------
    anchors_ : float32 (m, d)
        The anchors, as `normalize` leaves them.
    width_ : float
        The t above.
    eigenvalues_ : float64 (k,)
        Eigenvalues of the eigenvectors used, falling, at most 1.
    thresholds_ : float64 (2, k) or None
        b+ and b- of the eigenvectors, which have unit variance; None for one layer.
    """

    method = "agh"

    n_layers: Annotated[Literal[1, 2], integer(1, 2)] = 2
    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] = 300
    anchors: ArrayLike | None = None
    n_nearest: Annotated[int, integer(2, MAX_DIMENSION)] = 3

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        n_directions = -(-self.n_bits // self.n_layers)
        graph = AnchorGraph.measure(
            rows, self._choose_anchors(rows, n_directions, rng), self.n_nearest
        )
        self.eigenvalues_, weights = graph.directions(n_directions, self.n_bits)
        self.anchors_, self.width_ = graph.anchors, graph.width
        shares = affinity(graph.anchors, 1 / graph.width, int(self.n_nearest))
        if self.n_layers == 1:
            self.thresholds_ = None
            return [shares, affine(weights.T)]
        self.thresholds_ = graph.thresholds(weights)
        return [shares, *two_layers(weights, self.thresholds_, self.n_bits)]

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
