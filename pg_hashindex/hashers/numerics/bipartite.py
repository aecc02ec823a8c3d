"""Bipartite graphs between rows and objects, and contexts of rows from random walks."""

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...models.layers import squared_distances
from ...models.vectors import SparseRows
from .kmeans import nearest_centres, nearest_to_rows
from .rows import RowSource, row_slices

# Draws of a walk that visits no other row, at most.
_MOST_DRAWS = 100
# exp() of less is 0, which would delete the edge.
_LEAST_EXPONENT = -700.0
# Distances, and rows, in a block.
_BLOCK_PAIRS, _BLOCK_ROWS = 1 << 23, 256
# Edges by a radius, at most; they take 16 bytes each.
_MOST_EDGES = 20_000_000


class Contexts(NamedTuple):
    """Triples of Algorithm 1: a row, another row, and whether that is a context of the first."""

    rows: NDArray[np.intp]  # (t,)
    contexts: NDArray[np.intp]  # (t,)
    signs: NDArray[np.float32]  # (t,) 1 for a context, -1 for a row drawn uniformly


class BipartiteGraph:
    """Rows, objects, and the weighted edges between them (section 3.1 of the paper).

    Source: X. Yan, L. Zhang, W.-J. Li, "Semi-Supervised Deep Hashing with a Bipartite Graph", IJCAI
    2017.

    Edges are a sparse matrix (n, m) of weights above 0, each edge once. A graph in which no object
    joins two rows is refused, since no walk leaves a row. ``width`` is the rho of weights by
    distance.
    """

    def __init__(self, edges: SparseRows, width: float = 0.0) -> None:
        self.edges, self.width = edges, width
        self.n_rows, self.n_objects = edges.shape
        if not edges.nnz:
            raise InvalidInputError(
                "the graph has no edges; give some, or leave the graph out for one of landmarks"
            )
        if not len(self.connected):
            raise InvalidInputError(
                f"the graph has {edges.nnz} edges, but no object is joined with two rows or more, "
                "so it says nothing about which rows belong together"
            )

    @cached_property
    def connected(self) -> NDArray[np.intp]:
        """The numbers of the rows that share an object with another one, rising."""
        shared = np.bincount(self.edges.indices, minlength=self.n_objects) > 1
        reaching = scipy.sparse.csr_array(
            (shared[self.edges.indices].astype(np.int64), self.edges.indices, self.edges.indptr),
            shape=self.edges.shape,
        )
        result: NDArray[np.intp] = np.flatnonzero(np.asarray(reaching.sum(axis=1)))
        return result

    @cached_property
    def _to_objects(self) -> "_Steps":
        return _Steps(self.edges)

    @cached_property
    def _to_rows(self) -> "_Steps":
        return _Steps(scipy.sparse.csr_array(self.edges.T))

    def contexts(
        self,
        size: int,
        rng: np.random.Generator,
        *,
        positive: float,
        length: int,
        repeats: int = 1,
    ) -> Contexts:
        """Draw rows with contexts (Algorithm 1), in one batch.

        A step goes from a row to one of its objects, and from there to one of the object's rows,
        with probabilities in proportion to the weights of the edges. After ``length`` steps, one of
        the visits to rows other than the first is drawn as the context, each equally likely. A walk
        that visits no other row is drawn again. The paper draws first rows from all rows; here rows
        that no walk can leave, which have no context, are left out.

        Of ``size`` triples a share ``positive`` (r) are contexts, the others rows drawn uniformly;
        there may be fewer contexts if walks hardly ever leave a row. ``length`` is d. ``repeats``
        consecutive triples share a walk; each has the distribution of a walk of its own.
        """
        n_walks = -(-size // repeats)
        starts = self.connected[rng.integers(len(self.connected), size=n_walks)]
        visited, counts = self._walks(starts, rng, length)
        walk = np.repeat(np.arange(n_walks), repeats)[:size]
        is_context = rng.random(size) < positive
        contexts = rng.integers(self.n_rows, size=size)
        of = walk[is_context]
        # Draw one of the visits to another row by its rank among them.
        wanted = np.floor(rng.random(len(of)) * counts[-1, of]).astype(np.intp) + 1
        contexts[is_context] = visited[np.argmax(counts[:, of] == wanted, axis=0), of]
        kept = ~is_context
        kept[is_context] = counts[-1, of] > 0
        signs = np.where(is_context, 1, -1).astype(np.float32)
        return Contexts(starts[walk][kept], contexts[kept], signs[kept])

    def _walks(
        self, starts: NDArray[np.intp], rng: np.random.Generator, length: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Walk from each row, and again if no other row was visited.

        Returns, intp (length, n), the rows that each walk, a column, has visited, and how many of
        them so far were other rows than the first.
        """
        visited = np.empty((length, len(starts)), np.intp)
        counts = np.empty((length, len(starts)), np.intp)
        waiting = np.arange(len(starts))
        for _ in range(_MOST_DRAWS):
            place = starts[waiting]
            for step in range(length):
                place = self._to_rows.draw(self._to_objects.draw(place, rng), rng)
                visited[step, waiting] = place
            counts[:, waiting] = (visited[:, waiting] != starts[waiting]).cumsum(axis=0)
            waiting = waiting[counts[-1, waiting] == 0]
            if not len(waiting):
                break
        return visited, counts


class _Steps:
    """Draws of a neighbour, for many nodes of one side at a time."""

    def __init__(self, edges: SparseRows) -> None:
        self.first, self.end = edges.indptr[:-1], edges.indptr[1:]
        self.neighbours = edges.indices
        # The cumulative share of each edge among the edges of its node, plus the number of the
        # node. It rises throughout, so one search finds neighbours of many nodes.
        node = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
        # Sums of float32 weights may exceed float32.
        totals = np.bincount(node, edges.data, edges.shape[0])
        sums = np.cumsum(edges.data / totals[node], dtype=np.float64)
        before = np.concatenate([[0.0], sums])[self.first]
        self.shares = node + np.clip(sums - before[node], 0, 1)

    def draw(self, nodes: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw one neighbour of each node, all of which have some."""
        places = np.searchsorted(self.shares, nodes + rng.random(len(nodes)), side="right")
        # Rounding may put the last share of a node a little below 1.
        drawn: NDArray[np.intp] = self.neighbours[
            np.clip(places, self.first[nodes], self.end[nodes] - 1)
        ]
        return drawn


def anchor_graph(
    rows: RowSource,
    landmarks: NDArray[np.float32],
    n_nearest: int,
    weights: Literal["heat", "binary"],
    rho: float | None,
) -> BipartiteGraph:
    """Join each row to its nearest landmarks, in one pass over the rows.

    The weights are exp(-||x - o||^2 / rho), or 1 for "binary". By default rho is the mean squared
    distance along the edges, which suits rows of any scale.
    """
    n_nearest = min(n_nearest, len(landmarks))
    places, squares = nearest_to_rows(rows, landmarks, n_nearest)
    return _joined(_lines(places), places, squares, (rows.n_rows, len(landmarks)), weights, rho)


def neighbour_graph(
    rows: RowSource, n_nearest: int, weights: Literal["heat", "binary"], rho: float | None
) -> BipartiteGraph:
    """Join each row to its nearest other rows, which are the objects here.

    It takes time in the square of the number of rows, and holds all rows. Parameters are as for
    `anchor_graph`.
    """
    every = rows.rows(np.arange(rows.n_rows))
    # Centre, so that little cancels in float32.
    every -= every.mean(axis=0, dtype=np.float64).astype(np.float32)
    n, k = rows.n_rows, min(n_nearest, rows.n_rows - 1)
    places, squares = np.empty((n, k), np.intp), np.empty((n, k), np.float32)
    lengths = np.einsum("ij,ij->i", every, every)
    # Rounding may change the order of near rows, so a few more are compared exactly.
    n_likely = min(2 * k + 16, n - 1)
    # Numbers of the rows that are compared exactly, too.
    pairs = max(n, n_likely * every.shape[1])
    for part in row_slices(n, max(1, min(_BLOCK_ROWS, _BLOCK_PAIRS // pairs))):
        block = every[part]
        distances = (-2 * block) @ every.T + lengths
        distances[np.arange(len(block)), np.arange(part.start, part.stop)] = np.inf
        likely = np.sort(np.argpartition(distances, n_likely - 1, axis=1)[:, :n_likely])
        exact = np.square(block[:, None].astype(np.float64) - every[likely]).sum(axis=2)
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        places[part] = np.take_along_axis(likely, order, axis=1)
        squares[part] = np.take_along_axis(exact, order, axis=1)
    return _joined(_lines(places), places, squares, (n, n), weights, rho)


def radius_graph(
    rows: RowSource,
    objects: NDArray[np.float32],
    radius: float,
    weights: Literal["heat", "binary"],
    rho: float | None,
    *,
    own: bool = False,
) -> BipartiteGraph:
    """Join each row to all objects that are nearer than a radius.

    If the objects are the rows (``own``), a row is not joined to itself. A radius that joins no
    two, or more than half of all pairs, is refused. Other parameters are as for `anchor_graph`.
    """
    found: list[tuple[NDArray[Any], ...]] = []
    n_edges = 0
    most = min(_MOST_EDGES, rows.n_rows * len(objects) // 2)
    for whole, block in rows.placed_blocks():
        for part in row_slices(len(block), max(1, _BLOCK_PAIRS // len(objects))):
            distances = squared_distances(block[part], objects)
            numbers = whole.start + np.arange(part.start, part.stop)
            if own:
                distances[np.arange(len(numbers)), numbers] = np.inf
            if not found:
                usual = np.sqrt(np.median(distances.min(axis=1)))
            lines, places = np.nonzero(distances < radius**2)
            found.append((numbers[lines], places, distances[lines, places]))
            n_edges += len(lines)
            if n_edges > most:
                break
        if n_edges > most:
            break
    lines, places, squares = map(np.concatenate, zip(*found, strict=True))
    too_many = n_edges > most
    if too_many or np.bincount(places, minlength=1).max() < 2:
        what = f"gives more than {most} edges, too many to tell rows apart"
        raise InvalidInputError(
            f"radius={radius:g} {what if too_many else 'joins no object with two rows'}; half of "
            f"the rows have an object within {usual:g}"
        )
    return _joined(lines, places, squares, (rows.n_rows, len(objects)), weights, rho)


def edges_of_new_rows(
    X: NDArray[np.float32],
    objects: NDArray[np.float32],
    n_nearest: int,
    radius: float | None,
    weights: Literal["heat", "binary"],
    width: float,
) -> SparseRows:
    """Join new rows (q, d) to the objects of a graph as its rows were; ``width`` is its own."""
    squares: NDArray[np.floating]
    if radius is None:
        mean = objects.mean(axis=0, dtype=np.float64).astype(np.float32)
        places, squares = nearest_centres(X - mean, objects - mean, min(n_nearest, len(objects)))
        lines = _lines(places)
    else:
        distances = squared_distances(X, objects)
        lines, places = np.nonzero(distances < radius**2)
        squares = distances[lines, places]
    return _edges(lines, places, squares, (len(X), len(objects)), weights, width)


def shares(edges: SparseRows) -> SparseRows:
    """Scale the edges of each row to a sum of 1; rows without edges stay so."""
    totals = np.asarray(edges.sum(axis=1), dtype=np.float64)
    return scipy.sparse.diags_array(1 / np.where(totals > 0, totals, 1)) @ edges


def _lines(places: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(places)), places.shape[1])


def _joined(
    lines: NDArray[np.intp],
    places: NDArray[np.intp],
    squares: NDArray[np.floating],
    shape: tuple[int, int],
    weights: Literal["heat", "binary"],
    rho: float | None,
) -> BipartiteGraph:
    width = float(squares.mean(dtype=np.float64)) if rho is None else rho
    return BipartiteGraph(_edges(lines, places, squares, shape, weights, width), width)


def _edges(
    lines: NDArray[np.intp],
    places: NDArray[np.intp],
    squares: NDArray[np.floating],
    shape: tuple[int, int],
    weights: Literal["heat", "binary"],
    width: float,
) -> SparseRows:
    """Return edges from rows, rising, to places, which are this far apart."""
    values = np.ones(squares.size)
    if weights == "heat" and width:
        exponents = -squares.astype(np.float64).ravel() / width
        values = np.exp(np.maximum(exponents, _LEAST_EXPONENT))
    starts = np.searchsorted(lines, np.arange(shape[0] + 1))
    return scipy.sparse.csr_array((values, places.ravel(), starts), shape=shape)
