"""BGDH: semi-supervised deep hashing with a bipartite graph (Yan, Zhang & Li, IJCAI 2017)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.codes import pack
from ...models.layers import MAX_DIMENSION, normalize
from ...models.network import Network, known_rows
from ...models.vectors import SparseRows, as_rows
from ..numerics.bipartite import (
    BipartiteGraph,
    anchor_graph,
    edges_of_new_rows,
    neighbour_graph,
    radius_graph,
    shares,
)
from ..numerics.kernels import check_size, choose_anchors
from ..numerics.rows import RowSource
from ..parameters import Factor, NotNegative, Positive, integer, number
from ..supervision.labels import Labels, Supervision
from ..supervision.relations import read_graph
from .deep_hasher import MOST_STEPS, check_sizes
from .dpsh import DPSH

if TYPE_CHECKING:
    from ...models.hash_network import Architecture
    from .learning import Schedule


@dataclass(kw_only=True, eq=False, repr=False)
class BGDH(DPSH):
    """A network that learns from few labels, and from a graph of all rows.

    An object of the graph is anything that joins rows: a landmark near to them, or a tag, an owner
    or a click in the database. Each row has an embedding e that predicts its contexts, the rows
    that random walks from it visit. Features of the row and of its embedding make the code
    together,

        u = M' [phi(x); psi(e)] + v,   b = sgn(u)                               (equation 3)

    Training steps down L_s + lam L_g (equations 6 and 7): L_s is that of `DPSH` on the labelled
    rows, and L_g the mean of loss(e_i'w_c, gamma) over rows i, other rows c, and whether these are
    contexts (equation 2, Algorithm 1). It begins with L_g alone. Then each round has
    ``supervised_steps`` batches of labelled rows and ``graph_steps`` batches of contexts (Algorithm
    2). ``lam=0`` drops embeddings and graph, which leaves `DPSH`.

    In the inductive variant e = xi(x), a perceptron, so new rows and queries have codes too, and
    models are layers that SQL evaluates. In the transductive variant each training row has a free
    vector beside it, e_i = xi(x_i) + f_i, and only training rows have codes. So give `fit` all rows
    and queries, labelled or not; their codes are in ``codes_``. `place` gives codes to other rows
    by their edges.

    Differences from the paper, and choices that it leaves open:

    - Features come from a perceptron by default, since rows of a database are embeddings already;
      ``features="cnn-f"`` is the paper's network, for rows that are images. `BGDH.paper` has the
      eta and rho of its CIFAR-10 and gradient descent, but not a walk for each triple. Its rho, 1,
      suits rows whose nearest landmarks are at a distance of about 1.
    - L_s is divided by the number of pairs in a batch, so that one learning rate suits batches of
      any size. The paper's eta is 10 or 100.
    - L_s moves embeddings a tenth as fast as the rest: at the full rate, few labels bend the
      embeddings of all rows. For the same reason phi is small: it sees only labelled rows, and a
      wider one overfits them.
    - psi starts from embeddings scaled to unit variance; M and v start with a standard deviation of
      0.01.
    - The paper's transductive embeddings are free altogether. Here xi stays part of them: from a
      random start each row would need hundreds of contexts, and labels could move only the
      embeddings of labelled rows, where they move those of all rows through xi. Free vectors start
      from 0 after the pre-training, and as many batches of contexts follow before any labels.
    - Walks begin only at rows that share an object with another row, take edges in proportion to
      their weights, and give rows that share an object as contexts (`BipartiteGraph.contexts`):
      with ``graph="neighbours"`` rows with a common nearest row, not the nearest rows.
    - lam scales the steps on the graph, relative to those of the pre-training. For plain gradient
      descent that equals a factor of the loss, which Adam would ignore.

    Training holds the rows (float32, in a temporary file beyond 1 GiB), the edges, and for each row
    3 times ``embedding_size`` float32 numbers, 9 times in the transductive variant. A graph of
    landmarks computes n x n_landmarks distances, one of neighbours n^2. A graph by ``radius`` is
    refused if it joins no two, more than half of all pairs, or more than 20 million.

    Parameters
    ----------
    n_bits
        By default 64.
    variant
        Whether embeddings come from vectors alone, or training rows have vectors of their own too.
    graph_loss
        log(1 + exp(-gamma e'w)), or (gamma - e'w)^2.
    features
        The network phi.
    hidden
        Sizes of the hidden layers of phi if it is a perceptron, one or more.
    embedding_size
        Size of e and of psi(e).
    embedding_hidden
        Sizes of the hidden layers of xi.
    graph
        The graph to make if ``fit`` is given none: it joins rows to their nearest landmarks, which
        are random rows, or to their nearest other rows.
    n_landmarks
        More give better contexts; the cost grows in proportion.
    n_nearest
        Objects that each row is joined to.
    radius
        Join each row to all objects that are nearer, instead of to the ``n_nearest`` ones.
    edge_weights
        exp(-||x - o||^2 / rho), or 1.
    rho
        The mean squared distance along the edges by default.
    positive
        r, the share of contexts among the triples; the others name a random row.
    walk_length
        d, the steps of a walk, each to an object and from there to a row.
    lam
        Weight of the graph against the labels; 0 drops the graph.
    pretrain
        Batches of contexts before any labels; in the transductive variant as many again with free
        vectors.
    graph_steps, supervised_steps
        Batches of contexts (T2), and of labelled rows (T1), in a round.
    batch_contexts
        Triples in a batch (N2).
    contexts_per_row
        Triples in a batch that share a walk. In the paper each has its own walk, but walks, and xi
        of the rows that they begin at, take most of the time.
    embedding_rate
        Learning rate of embeddings on labels; a tenth of ``learning_rate`` by default.
    context_rate
        Learning rate of w on the graph. Once rows have vectors of their own, these and w have a
        quarter of it.
    image_shape, input_size, dropout, pairwise_loss, theta_scale, eta
        As in `DPSH`.
    rounds, batch_rows, weight_decay
        As in `DPSH`.
    optimizer, learning_rate, validation, patience, device, progress, random_state
        As in `DPSH`.

    Attributes
    ----------
    codes_ : uint8 (n, ceil(n_bits / 8))
        In the transductive variant, the codes of all rows, in row order.
    """

    method = "bgdh"
    takes_graph = True
    # Its network needs images, so `features` stays a matter of the rows. The paper names no rates;
    # those of Adam would hardly move a weight. With contexts_per_row=1 each triple would have its
    # own walk, which takes ten times as long.
    paper_parameters: ClassVar[Mapping[str, Any]] = {
        "eta": 10.0,
        "rho": 1.0,
        "optimizer": "sgd",
        "learning_rate": 0.01,
        "embedding_rate": 0.01,
        "context_rate": 100.0,
        "validation": 0.0,
    }

    variant: Literal["inductive", "transductive"] = "inductive"
    hidden: Sequence[int] = (64,)
    embedding_size: Annotated[int, integer(1, MOST_STEPS)] = 64
    embedding_hidden: Sequence[int] = (512, 512)
    graph: Literal["landmarks", "neighbours"] = "landmarks"
    n_landmarks: Annotated[int, integer(2, MOST_STEPS)] = 5000
    n_nearest: Annotated[int, integer(1, MOST_STEPS)] = 3
    radius: Positive | None = None
    edge_weights: Literal["heat", "binary"] = "heat"
    rho: Positive | None = None
    positive: Annotated[float, number(0, 1, "()")] = 0.5
    walk_length: Annotated[int, integer(1, MOST_STEPS)] = 10
    graph_loss: Literal["logistic", "square"] = "logistic"
    lam: NotNegative = 0.1
    pretrain: Annotated[int, integer(0, MOST_STEPS)] = 400
    graph_steps: Annotated[int, integer(0, MOST_STEPS)] = 5
    supervised_steps: Annotated[int, integer(1, MOST_STEPS)] = 10
    batch_contexts: Annotated[int, integer(1, MOST_STEPS)] = 4096
    contexts_per_row: Annotated[int, integer(1, MOST_STEPS)] = 8
    embedding_rate: Factor | None = None
    context_rate: Factor = 0.02

    codes_: NDArray[np.uint8] = field(init=False)

    def check_parameters(self) -> None:
        """Refuse parameters out of range; see `Hasher.check_parameters`."""
        super().check_parameters()
        check_sizes("embedding_hidden", self.embedding_hidden, 0)
        self._check_widths()

    def _check_widths(self) -> None:
        """Refuse branches that are too wide side by side; a shorter one keeps its last width."""
        phi, xi = list(self.hidden), [*self.embedding_hidden, self.embedding_size]
        for level in range(max(len(phi), len(xi))):
            width = phi[min(level, len(phi) - 1)] + xi[min(level, len(xi) - 1)]
            if width > MAX_DIMENSION:
                raise InvalidInputError(
                    f"hidden and embedding_hidden have {width} units side by side; a layer of a "
                    f"model has at most {MAX_DIMENSION}"
                )

    @property
    def transductive(self) -> bool:
        """Whether rows have vectors of their own, which only those of the training have."""
        return self.variant == "transductive" and bool(self.lam)

    def _graph(
        self, rows: RowSource, given: Supervision, rng: np.random.Generator
    ) -> BipartiteGraph | None:
        self._objects: NDArray[np.float32] | None = None
        self._by_features = given.graph_features is not None
        if not self.lam:
            return None
        if given.graph is not None:
            return BipartiteGraph(given.graph)
        if given.graph_features is not None:
            rows = RowSource(given.graph_features)
        check_size(rows)
        rho = None if self.rho is None else float(self.rho)
        own, k = self.graph == "neighbours", int(self.n_nearest)
        if own:
            objects = rows.rows(np.arange(rows.n_rows))
        else:
            objects = choose_anchors(rows, None, self.n_landmarks, rng)
        if self.transductive:
            self._objects = objects
        if self.radius is not None:
            return radius_graph(rows, objects, self.radius, self.edge_weights, rho, own=own)
        if own:
            return neighbour_graph(rows, k, self.edge_weights, rho)
        return anchor_graph(rows, objects, k, self.edge_weights, rho)

    def place(
        self,
        X: ArrayLike,
        *,
        graph: ArrayLike | SparseRows | None = None,
        graph_features: ArrayLike | None = None,
    ) -> NDArray[np.uint8]:
        """Give codes to new rows in the transductive variant, by their edges to training rows.

        The vector of its own that a new row gets is the mean of those of the training rows that it
        is joined to, by weight; rows joined to one object are joined to each other. Models that
        `to_model` makes afterwards have codes of these rows too, and of the training rows as
        before.

        Parameters
        ----------
        X : array-like (q, d)
        graph : array-like (q, n) of 0 and more, dense or of scipy.sparse, optional
            Weights of edges to the n training rows, for instance ``new @ old.T`` of the edges to
            common objects. By default rows are joined by distance, as in the training; after a
            training with a given graph it is needed.
        graph_features : array-like (q, k), optional
            Vectors to join rows by, if the training had some.

        Returns
        -------
        uint8 (q, ceil(n_bits / 8))

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If the variant is inductive, which encodes new rows anyway, if vectors or edges are
            missing or unusable, or if a row has no edge.
        """
        model = self.to_model(self.method)
        if model.network is None or model.network.kind != "rows":
            raise InvalidInputError("new rows are placed in the transductive variant; use encode")
        rows = as_rows(X, dimension=self.dimension_)
        network, edges = self._of_rows
        if graph is not None:
            joined = read_graph(graph, len(rows), edges.n_rows)
        else:
            joined = self._edges_by_distance(rows, graph_features)
        if (bare := np.flatnonzero(np.diff(joined.indptr) == 0)).size:
            raise InvalidInputError(
                f"{len(bare)} of {len(rows)} rows have no edge to a row of the training, the first "
                f"is row {bare[0]}; give each row an edge, or train again with these rows"
            )
        u = network.place(self._scaled(rows), shares(joined))
        new = known_rows(rows, pack(u > 0), self.n_bits_)
        every = {
            name: np.concatenate([model.network.arrays[name], new.arrays[name]])
            for name in new.arrays
        }
        distinct, first = np.unique(every["fingerprints"], return_index=True)
        arrays = {"fingerprints": distinct, "codes": every["codes"][first]}
        self._kept = Network("rows", {}, arrays, self.n_bits_)
        return self.encode(rows)

    def _scaled(self, rows: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return rows as the network takes them."""
        scaled = rows.astype(np.float32)
        return normalize().apply(scaled) if self._fitted_settings["normalize"] else scaled

    def _edges_by_distance(
        self, rows: NDArray[np.floating], graph_features: ArrayLike | None
    ) -> SparseRows:
        """Join new rows to training rows through the objects of the graph that training made."""
        graph = self._of_rows[1]
        if self._objects is None:
            raise InvalidInputError(
                "the training had a given graph; give the edges of new rows to its "
                f"{graph.n_rows} rows as a graph"
            )
        by = self._scaled(rows)
        if self._by_features != (graph_features is not None):
            raise InvalidInputError(
                "graph_features are needed here: the training made its graph from some"
                if self._by_features
                else "the training made its graph from the rows, so graph_features have no use"
            )
        if graph_features is not None:
            by = as_rows(graph_features, dimension=self._objects.shape[1]).astype(np.float32)
            if len(by) != len(rows):
                raise InvalidInputError(f"there are {len(by)} graph_features for {len(rows)} rows")
        fitted = self._fitted_settings
        found = edges_of_new_rows(
            by,
            self._objects,
            fitted["n_nearest"],
            fitted["radius"],
            fitted["edge_weights"],
            graph.width,
        )
        if fitted["graph"] == "neighbours":
            return found
        through = scipy.sparse.csr_array(found @ shares(scipy.sparse.csr_array(graph.edges.T)))
        through.eliminate_zeros()
        return through

    def _architecture(self, dimension: int, n_rows: int, labels: Labels) -> "Architecture":
        result = super()._architecture(dimension, n_rows, labels)
        if not self.lam:
            return result
        return replace(
            result,
            embedding_size=int(self.embedding_size),
            embedding_hidden=tuple(map(int, self.embedding_hidden)),
            n_embedded=n_rows if self.transductive else 0,
        )

    def _schedule(self) -> "Schedule":
        return replace(
            super()._schedule(),
            embedding_rate=float(self.embedding_rate or 0.1 * self.learning_rate),
        )
