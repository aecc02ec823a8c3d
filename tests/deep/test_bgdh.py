"""BGDH learns from rows without labels, and from what joins them, where DPSH cannot."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from fixtures.deep import SMALL
from numpy.typing import NDArray

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import BGDH, DPSH
from pg_hashindex.models.model import Model

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_torch_thread")

BITS, CLASSES, ROWS, DIMENSION = 12, 5, 500, 20
TRANSDUCTIVE = {"variant": "transductive", "batch_contexts": 4096, "context_rate": 0.08}
#: Whatever the defaults are.
SHARED: dict[str, Any] = {
    **SMALL["dpsh"],
    "n_bits": BITS,
    "hidden": (16,),
    "eta": 0.1,
}
GRAPH: dict[str, Any] = {
    "embedding_size": 16,
    "embedding_hidden": (64,),
    "n_landmarks": 100,
    "n_nearest": 3,
    "pretrain": 100,
    "graph_steps": 2,
    "supervised_steps": 10,
    "batch_contexts": 512,
    "contexts_per_row": 1,
    "lam": 0.1,
    "positive": 0.5,
    "walk_length": 5,
    "embedding_rate": 1e-3,
    "context_rate": 0.05,
}


@dataclass
class Task:
    """Rows about a centre for each class, few of them labelled, and others to ask with."""

    X: NDArray[np.float32]
    classes: NDArray[np.intp]
    y: NDArray[np.intp]
    queries: NDArray[np.float32]
    query_classes: NDArray[np.intp]

    @classmethod
    def draw(cls, seed: int, *, spread: float, labelled: int) -> "Task":
        rng = np.random.default_rng(seed)
        classes = np.arange(ROWS + 200) % CLASSES
        centres = spread * rng.standard_normal((CLASSES, DIMENSION))
        X = centres[classes] + rng.standard_normal((len(classes), DIMENSION))
        y = np.full(ROWS, -1)
        y[: labelled * CLASSES] = classes[: labelled * CLASSES]
        X = X.astype(np.float32)
        return cls(X[:ROWS], classes[:ROWS], y, X[ROWS:], classes[ROWS:])

    def tags(self, seed: int) -> scipy.sparse.csr_array:
        """Join each row to two of 20 tags, nine in ten of which are of its class."""
        rng = np.random.default_rng(seed)
        shape = (ROWS, 2)
        meant = np.where(
            rng.random(shape) < 0.9, self.classes[:, None], rng.integers(CLASSES, size=shape)
        )
        tags = meant + CLASSES * rng.integers(4, size=shape)
        graph = np.zeros((ROWS, 4 * CLASSES))
        np.add.at(graph, (np.arange(ROWS)[:, None], tags), 1)
        return scipy.sparse.csr_array(graph)

    def of_queries(self, hasher: Any) -> float:
        """MAP by class of rows that the training did not see."""
        pair = hasher.encode(self.queries), hasher.encode(self.X)
        relevant = self.query_classes[:, None] == self.classes
        return metrics.mean_average_precision(*pair, relevant)

    def of_unlabelled(self, hasher: Any) -> float:
        """MAP by class of the rows without a label among all."""
        rest = self.y < 0
        encoded = hasher.encode(self.X)
        relevant = self.classes[rest][:, None] == self.classes
        return metrics.mean_average_precision(encoded[rest], encoded, relevant)


def bgdh(**params: Any) -> BGDH:
    return BGDH(**{**SHARED, **GRAPH, "random_state": 0, **params})


def test_unlabelled_rows_help() -> None:
    """With one label a class, in either variant."""
    gains = []
    for seed in range(2):
        task = Task.draw(seed, spread=1.0, labelled=1)
        baseline = DPSH(**SHARED, random_state=seed).fit(task.X, task.y)
        inductive = bgdh(random_state=seed).fit(task.X, task.y)
        transductive = bgdh(random_state=seed, **TRANSDUCTIVE).fit(task.X, task.y)
        gains.append(
            [
                task.of_queries(inductive) - task.of_queries(baseline),
                task.of_unlabelled(transductive) - task.of_unlabelled(baseline),
            ]
        )
    assert (np.mean(gains, axis=0) > 0.1).all()


def test_a_semantic_graph_says_what_vectors_do_not() -> None:
    task = Task.draw(0, spread=0.0, labelled=2)
    by_vectors = bgdh(**TRANSDUCTIVE).fit(task.X, task.y)
    by_tags = bgdh(**TRANSDUCTIVE).fit(task.X, task.y, graph=task.tags(0))
    assert task.of_unlabelled(by_vectors) < 0.3
    assert task.of_unlabelled(by_tags) > 0.45
    assert np.array_equal(by_tags.encode(task.X), by_tags.codes_)


def test_a_semantic_graph_helps_new_rows() -> None:
    """As far as vectors tell something; the graph need not be there to encode them."""
    task = Task.draw(0, spread=0.5, labelled=2)
    by_vectors = bgdh().fit(task.X, task.y)
    by_tags = bgdh().fit(task.X, task.y, graph=task.tags(0))
    assert task.of_queries(by_tags) > task.of_queries(by_vectors) + 0.05
    found = by_tags.training_["graph"]
    assert found["edges"] == task.tags(0).nnz
    assert (found["rows"], found["objects"], found["isolated_rows"]) == (ROWS, 20, 0)


@pytest.mark.parametrize("variant", ["inductive", "transductive"])
def test_without_the_graph_it_is_dpsh(variant: str) -> None:
    task = Task.draw(0, spread=1.0, labelled=20)
    shared = SHARED | {"random_state": 5, "validation": 0.2, "rounds": 12}
    expected = DPSH(**shared).fit(task.X, task.y)
    found = BGDH(**{**shared, **GRAPH, "variant": variant, "lam": 0}).fit(task.X, task.y)
    assert not found.transductive
    assert found.to_model("m").network is None
    assert (
        Model("m", "any", DIMENSION, found.layers_).checksum
        == Model("m", "any", DIMENSION, expected.layers_).checksum
    )
    assert found.training_["losses"] == expected.training_["losses"]
    assert "graph" not in found.training_


@pytest.mark.parametrize("variant", ["inductive", "transductive"])
def test_losses_fall(variant: str) -> None:
    task = Task.draw(0, spread=1.0, labelled=20)
    params = {"variant": variant, "validation": 0.2}
    early = bgdh(rounds=1, pretrain=2, **params).fit(task.X, task.y).training_["losses"]
    late = bgdh(rounds=20, **params).fit(task.X, task.y).training_["losses"]
    assert set(early) == set(late) == {"graph", "labels", "held-back MAP"}
    for name in ("graph", "labels"):
        assert late[name] < 0.99 * early[name], name


@pytest.mark.parametrize(
    "params",
    [
        {"graph": "neighbours"},
        {"edge_weights": "binary"},
        {"rho": 0.5},
        {"graph_loss": "square"},
        {"positive": 0.2},
        {"walk_length": 1},
        {"lam": 1.0},
        {"embedding_hidden": ()},
        {"embedding_rate": 1e-2},
        {"context_rate": 0.01},
        {"optimizer": "sgd"},
        {"random_state": 1},
    ],
    ids=str,
)
def test_each_parameter_says_something(params: dict[str, Any]) -> None:
    task = Task.draw(0, spread=1.0, labelled=10)
    small = {"rounds": 2, "pretrain": 3}
    usual = bgdh(**small).fit(task.X, task.y)
    other = bgdh(**{**small, **params}).fit(task.X, task.y)
    assert np.isfinite(other.project(task.X)).all()
    assert not np.array_equal(other.project(task.X), usual.project(task.X))


@pytest.mark.parametrize("given", [False, True])
def test_transductive_codes_are_of_the_rows_of_the_training(given: bool) -> None:
    task = Task.draw(0, spread=1.0, labelled=10)
    source = np.split(task.X, [100, 101, 400])
    small = TRANSDUCTIVE | {"rounds": 2, "pretrain": 5, "normalize": "l2"}
    hasher = bgdh(**small)
    assert hasher.transductive
    hasher.fit((lambda: iter(source)) if given else task.X, task.y)
    assert np.array_equal(hasher.encode(task.X[::-1]), hasher.codes_[::-1])
    again = bgdh(**small).fit(task.X, task.y)
    assert np.array_equal(hasher.codes_, again.codes_)
    assert hasher.to_model("m").checksum == again.to_model("m").checksum
    # By the vector as it is in the table, not as the training scales it.
    for unknown in (task.queries, 2 * task.X):
        with pytest.raises(InvalidInputError, match="none of the 500 rows .* trained on"):
            hasher.encode(unknown)


def test_rows_without_edges_are_counted() -> None:
    task = Task.draw(0, spread=1.0, labelled=10)
    graph = np.zeros((ROWS, 3))
    graph[:300, 0] = 1
    graph[300, 1] = 1
    hasher = bgdh(rounds=2, pretrain=5).fit(task.X, task.y, graph=graph)
    assert hasher.training_["graph"]["isolated_rows"] == 200


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((ROWS - 1, 2)), "the graph has 499 rows, but there are 500 vectors"),
        (np.ones(ROWS), "must be a matrix"),
        (np.zeros((ROWS, 2)), "no edges"),
        (np.eye(ROWS), "500 edges, but no object is joined with two rows"),
    ],
)
def test_refuses_graphs(graph: NDArray[Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is trained."""
    from pg_hashindex.deep.learning import Trainer

    monkeypatch.setattr(Trainer, "run", lambda *given, **options: pytest.fail("a training began"))
    task = Task.draw(0, spread=1.0, labelled=2)
    with pytest.raises(InvalidInputError, match=message):
        bgdh().fit(task.X, task.y, graph=graph)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"variant": "both"}, "variant must be .*inductive.*'both'"),
        ({"graph": "anchors"}, "graph must be .*landmarks.*'anchors'"),
        ({"edge_weights": "rbf"}, "edge_weights must be .*'rbf'"),
        ({"graph_loss": "hinge"}, "graph_loss must be .*'hinge'"),
        ({"embedding_hidden": 512}, "embedding_hidden must be the sizes .* got 512"),
        ({"embedding_size": 0}, "embedding_size must be .* 0"),
        ({"n_landmarks": 1}, "n_landmarks must be .* 1"),
        ({"n_nearest": 0}, "n_nearest must be .* 0"),
        ({"walk_length": 0}, "walk_length must be .* 0"),
        ({"pretrain": -1}, "pretrain must be .* -1"),
        ({"graph_steps": -1}, "graph_steps must be .* -1"),
        ({"supervised_steps": 0}, "supervised_steps must be .* 0"),
        ({"batch_contexts": 0}, "batch_contexts must be .* 0"),
        ({"rho": 0}, "rho must be .* 0"),
        ({"context_rate": -1.0}, "context_rate must be .* -1"),
        ({"embedding_rate": float("nan")}, "embedding_rate must be .* nan"),
        ({"lam": -0.5}, "lam must be .* -0.5"),
        ({"positive": 0}, "positive must be .* 0"),
        ({"positive": 1.0}, "positive must be .* below 1, got 1.0"),
    ],
)
def test_refuses_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        bgdh(**params).check_parameters()


def test_refuses_what_float32_cannot_hold() -> None:
    task = Task.draw(0, spread=1.0, labelled=20)
    with pytest.raises(InvalidInputError, match="mean squared distance of the rows is"):
        bgdh().fit(task.X.astype(np.float64) * 1e30, task.y)
    with pytest.raises(InvalidInputError, match="have 17000 units side by side"):
        bgdh(hidden=(9000,), embedding_hidden=(8000,)).check_parameters()
