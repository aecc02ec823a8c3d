"""STH: self-taught hashing (Zhang, Wang, Cai & Lu, SIGIR 2010)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
from numpy.typing import NDArray

from ..hashers.numerics.projections import with_fixed_signs
from ..models.codes import pack
from ..models.layers import Layer, squared_distances
from ..models.vectors import SparseRows
from .feature_hasher import FeatureHasher
from .numerics.bipartite import neighbour_graph
from .numerics.kernels import check_size
from .numerics.rows import RowSource
from .parameters import TooManyBitsError, integer
from .supervision.discrete import signs
from .supervision.labels import Supervision

# The weight of an edge of usual length.
_USUAL = np.exp(-1)
# Edges of a smaller weight join nothing: to the eigenvectors they are rounding.
_LEAST = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class STH(FeatureHasher):
    """Eigenvectors of the graph of nearest neighbours, cut at their medians, and their regression.

    Two rows are joined if one is among the ``n_nearest`` nearest to the other, with the weight
    exp(-distance^2 / t), t being the mean squared distance along the edges. With W the matrix of
    weights and D the diagonal matrix of their sums, the paper's first stage, the Laplacian
    eigenmap, minimises

        trace(Y'(D - W) Y)   where Y'D Y = I and Y'D 1 = 0

    by the eigenvectors (D - W) y = lambda D y of the least eigenvalues, without the constant one. A
    bit of a row is 1 where its y is above the median. The second stage learns these bits, so that
    new rows have codes too.

    Differences from the paper: the bits are learned by ridge regression, not by a linear support
    vector machine for each: all bits take one factor, and label MAP is the same (USPS, 32 bits:
    0.311 in 0.04 s, against 0.313 in 15 s by scikit-learn). Weights are those of a heat kernel, the
    paper's other choice being the cosine, which may be below 0; those below 1e-6 are dropped. If
    the graph falls into parts, rounding would decide how eigenvectors split them, so each part is
    joined to that of the nearest mean by an edge of usual length. Equal rows count once.

    Training holds up to ``max_rows`` rows and some 2 n_nearest edges for each; time grows with the
    square of ``max_rows``.

    Parameters
    ----------
    n_bits
        At most two less than there are distinct rows.
    n_nearest
        Nearest rows that a row is joined to, the paper's k.
    max_rows
        Rows to learn from, drawn at random where there are more.
    n_anchors, anchors, width, ridge
        As of `SDH`. Without anchors, as in the paper, the hash function is linear.

    Attributes
    ----------
    codes_ : uint8 (n, ceil(n_bits / 8))
        The bits of the first stage, of the rows that were drawn, in row order.
    eigenvalues_ : float64 (n_bits,)
        The lambdas, rising.
    """

    method = "sth"
    learns_from = ()

    n_nearest: Annotated[int, integer(2, 16_000)] = 25
    max_rows: Annotated[int, integer(3, 1_000_000)] = 10_000

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        check_size(rows)
        drawn = np.sort(rng.permutation(rows.n_rows)[: self.max_rows])
        _, first, of_row = np.unique(
            rows.rows(drawn), axis=0, return_index=True, return_inverse=True
        )
        if self.n_bits_ > len(first) - 2:
            raise TooManyBitsError(
                f"n_bits is {self.n_bits_}, but must be at most two less than there are distinct "
                f"rows to learn from, {len(first)}; ask for fewer bits, or give more rows",
                most=len(first) - 2,
            )
        rows = rows.restricted_to(drawn[first])
        edges = neighbour_graph(rows, self.n_nearest, "heat", None).edges
        W = edges.maximum(edges.T).tocsr()
        W.data[W.data < _LEAST] = 0
        W.eliminate_zeros()
        W = joined(W, rows.array())
        start = rng.standard_normal(rows.n_rows)
        self.eigenvalues_, Y = eigenmap(W, self.n_bits_, start)
        B = signs(Y - np.median(Y, axis=0))
        # `restricted_to` keeps the order of the rows, `np.unique` has its own.
        self.codes_ = pack(B[np.argsort(np.argsort(first))[of_row]] > 0)
        features = self._features(rows, rng)
        return features.layers(*features.regress(B), B)

    def _summary(self) -> dict[str, Any]:
        return {"greatest_eigenvalue": float(self.eigenvalues_[-1])}


def joined(W: SparseRows, X: NDArray[np.float32]) -> SparseRows:
    """Join the parts of a graph, each to that of the nearest mean, by their rows nearest to it."""
    n_parts, part = scipy.sparse.csgraph.connected_components(W, directed=False)
    while n_parts > 1:
        members = scipy.sparse.csr_array((np.ones(len(X)), (part, np.arange(len(X)))))
        means = (members @ X) / np.bincount(part)[:, None]
        distances = squared_distances(means, means)
        np.fill_diagonal(distances, np.inf)
        for one, other in enumerate(distances.argmin(axis=1)):
            ends = [
                of[squared_distances(X[of], means[to, None])[:, 0].argmin()]
                for of, to in ((np.flatnonzero(part == one), other),
                               (np.flatnonzero(part == other), one))
            ]  # fmt: skip
            edge = scipy.sparse.csr_array(([_USUAL] * 2, (ends, ends[::-1])), W.shape)
            W = W.maximum(edge)
        n_parts, part = scipy.sparse.csgraph.connected_components(W, directed=False)
    return W


def eigenmap(
    W: SparseRows, n_vectors: int, start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least eigenvalues of (D - W) y = lambda D y, and y (n, n_vectors), but constants.

    With y = D^-1/2 v they are 1 - mu for the greatest eigenvalues mu of D^-1/2 W D^-1/2.
    """
    roots = np.sqrt(W.sum(axis=1))
    scale = scipy.sparse.diags_array(1 / roots)
    scaled, constant = (scale @ W @ scale).tocsr(), roots / np.linalg.norm(roots)
    # The eigenvalues are -1 to 1. That of the constant becomes -2, the least of all: 0 would be
    # among the greatest if there are many bits.
    without_constant = scipy.sparse.linalg.LinearOperator(
        W.shape, lambda v: scaled @ v - 3 * constant * (constant @ v), dtype=np.float64
    )
    values, vectors = scipy.sparse.linalg.eigsh(without_constant, n_vectors, which="LA", v0=start)
    order = np.argsort(-values)
    return 1 - values[order], with_fixed_signs(vectors[:, order].T).T / roots[:, None]
