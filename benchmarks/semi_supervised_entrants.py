"""The methods of `semi_supervised.py`: settings, supervision, and graphs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from semi_supervised_data import DataSet, side_by_side, word_graph

from pg_hashindex.hashers import Hasher
from pg_hashindex.hashers.numerics.bipartite import anchor_graph
from pg_hashindex.hashers.numerics.kernels import choose_anchors
from pg_hashindex.hashers.numerics.rows import RowSource
from pg_hashindex.papers import Method, Split

BITS = (12, 24, 32, 48)
SEEDS = (0, 1, 2)
# Labelled rows of each class.
LABELS = {"mnist": (50, 250, 500), "packages": (20,)}
GRAPH_BITS = 32

_COSINE = {"normalize": "l2"}
# No labels are held back: the number of rounds was chosen on rows that are neither in the database
# nor among the queries.
_DEEP = {"device": "cpu", "validation": 0.0}
_DPSH = {**_DEEP, "hidden": (1024,), "learning_rate": 3e-4, "rounds": 100}
# With 58 classes few pairs share one. Without decay DPSH has a MAP of .99 among its labelled rows
# and .43 among others; each method gets the decay that suits it best.
_MANY_CLASSES = {
    **_DEEP,
    **_COSINE,
    "pairwise_loss": "balanced",
    "theta_scale": 0.25,
    "batch_rows": 256,
    "rounds": 100,
}
_OF_MANY_CLASSES = {
    **_DEEP,
    **_COSINE,
    "batch_rows": 256,
    "rounds": 100,
    "weight_decay": 2.0,
}
_WIDE = {
    "hidden": (512,),
    "embedding_size": 256,
    "walk_length": 2,
    "pretrain": 300,
    "batch_contexts": 2048,
}
# By data set and method; a graph of names adds to the settings of its variant.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "mnist": {
        **{name: {} for name in ("lfh", "cosdish", "isohash", "sph")},
        "bgdh-i": {**_DEEP},
        "bgdh-t": {**_DEEP},
        "dpsh": _DPSH,
        "sdh": {**_COSINE},
        "s3plh": {},
        "itq": {},
        "deep-dsh": _DPSH,
    },
    "packages": {
        "bgdh-i": {**_MANY_CLASSES, **_WIDE, "weight_decay": 1.0},
        "bgdh-t": {**_MANY_CLASSES, **_WIDE, "weight_decay": 1.0},
        "dpsh": {**_MANY_CLASSES, "weight_decay": 2.0},
        "sdh": {**_COSINE},
        "s3plh": {**_COSINE},
        "itq": {**_COSINE},
        "deep-dsh": _OF_MANY_CLASSES,
        "bgdh-i-words": {},
        "bgdh-t-words": {},
        "bgdh-i-both": {},
        "bgdh-t-both": {},
    },
}


@dataclass(frozen=True)
class Entrant:
    """A method and its settings here."""

    name: str
    hasher: str
    variant: Literal["inductive", "transductive"] | None = None
    #: "words" of names, "both" words and landmarks, or None for the method's own graph.
    graph: Literal["words", "both"] | None = None
    #: SDH, LFH, COSDISH and the deep methods other than BGDH learn only from labelled rows.
    rows: Literal["all", "labelled"] = "all"

    @property
    def plain(self) -> str:
        """The name of the same method with its own graph."""
        return self.name.removesuffix(f"-{self.graph}")

    def bits(self, data: str) -> Sequence[int]:
        """Return the numbers of bits that it is run with."""
        if self.name not in SETTINGS[data]:
            return ()
        if self.graph is None:
            return BITS
        return (GRAPH_BITS,) if data == "packages" else ()

    def parameters(self, data: str) -> dict[str, Any]:
        """Return its parameters without bits and seed."""
        settings = SETTINGS[data]
        variant = {} if self.variant is None else {"variant": self.variant}
        return variant | settings[self.plain] | settings[self.name]

    def method(self, data: str, **others: Any) -> Method:
        """Return the method with its parameters, some of them replaced."""
        return Method(self.hasher, self.parameters(data) | others, self.name, labels="labelled")

    def split(self, drawn: DataSet, method: Method, bits: int, seed: int) -> Split:
        """Return the split with the rows and the graph that it learns from."""
        split = drawn.split
        if self.rows == "labelled":
            rows = split.labelled
            assert rows is not None
            return replace(
                split,
                train=split.train[rows],
                train_labels=split.train_labels[rows],
                train_places=rows,
                labelled=np.arange(len(rows)),
            )
        if self.graph is None:
            return split
        hasher = method.make(bits, seed)
        read = method.transductive_data if hasher.transductive else method.training_data
        X, _ = read(split)
        edges = word_graph(drawn.names[: len(X)])
        if self.graph == "both":
            edges = side_by_side(edges, landmark_graph(X, hasher))
        return replace(split, graph=edges, train_graph=edges)


def landmark_graph(X: NDArray[np.floating], hasher: Hasher) -> scipy.sparse.csr_array:
    """Join rows with random landmarks, as the hasher itself would."""
    given, rows = hasher.get_params(), RowSource(X)
    rng = np.random.default_rng(given["random_state"])
    landmarks = choose_anchors(rows, None, given["n_landmarks"], rng)
    graph = anchor_graph(rows, landmarks, given["n_nearest"], given["edge_weights"], given["rho"])
    return graph.edges


ENTRANTS = {
    entrant.name: entrant
    for entrant in (
        Entrant("bgdh-i", "bgdh", "inductive"),
        Entrant("bgdh-t", "bgdh", "transductive"),
        Entrant("dpsh", "dpsh", rows="labelled"),
        Entrant("deep-dsh", "deep-dsh", rows="labelled"),
        Entrant("sdh", "sdh", rows="labelled"),
        Entrant("s3plh", "s3plh"),
        Entrant("itq", "itq"),
        Entrant("lfh", "lfh", rows="labelled"),
        Entrant("cosdish", "cosdish", rows="labelled"),
        Entrant("isohash", "isohash"),
        Entrant("sph", "sph"),
        Entrant("bgdh-i-words", "bgdh", "inductive", "words"),
        Entrant("bgdh-t-words", "bgdh", "transductive", "words"),
        Entrant("bgdh-i-both", "bgdh", "inductive", "both"),
        Entrant("bgdh-t-both", "bgdh", "transductive", "both"),
    )
}
