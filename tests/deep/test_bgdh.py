"""BGDH learns from rows without labels, and from what joins them, where DPSH cannot."""

import functools
from dataclasses import dataclass

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
RATES = ("learning_rate", "embedding_rate", "context_rate")
#: Whatever the defaults are.
SHARED = {**SMALL["dpsh"], "n_bits": BITS, "hidden": (16,), "eta": 0.1}
GRAPH = {
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
    def draw(cls, seed, *, spread, labelled):
        rng = np.random.default_rng(seed)
        classes = np.arange(ROWS + 200) % CLASSES
        centres = spread * rng.standard_normal((CLASSES, DIMENSION))
        X = centres[classes] + rng.standard_normal((len(classes), DIMENSION))
        y = np.full(ROWS, -1)
        y[: labelled * CLASSES] = classes[: labelled * CLASSES]
        X = X.astype(np.float32)
        return cls(X[:ROWS], classes[:ROWS], y, X[ROWS:], classes[ROWS:])

    def tags(self, seed):
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

    def of_queries(self, hasher):
        """MAP by class of rows that the training did not see."""
        pair = hasher.encode(self.queries), hasher.encode(self.X)
        relevant = self.query_classes[:, None] == self.classes
        return metrics.mean_average_precision(*pair, relevant)

    def of_unlabelled(self, hasher):
        """MAP by class of the rows without a label among all."""
        rest = self.y < 0
        encoded = hasher.encode(self.X)
        relevant = self.classes[rest][:, None] == self.classes
        return metrics.mean_average_precision(encoded[rest], encoded, relevant)


def bgdh(**params):
    return BGDH(**{**SHARED, **GRAPH, "random_state": 0, **params})


def test_unlabelled_rows_help():
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


@functools.cache
def of_vectors_that_say_nothing():
    """Return a task, and the score that vectors alone have."""
    task = Task.draw(0, spread=0.0, labelled=2)
    return task, task.of_unlabelled(bgdh(**TRANSDUCTIVE).fit(task.X, task.y))


def test_a_semantic_graph_says_what_vectors_do_not():
    task, by_vectors = of_vectors_that_say_nothing()
    by_tags = bgdh(**TRANSDUCTIVE).fit(task.X, task.y, graph=task.tags(0))
    assert by_vectors < 0.3
    assert task.of_unlabelled(by_tags) > 0.45
    assert np.array_equal(by_tags.encode(task.X), by_tags.codes_)


def test_a_semantic_graph_helps_new_rows():
    """As far as vectors tell something; the graph need not be there to encode them."""
    task = Task.draw(0, spread=0.5, labelled=2)
    by_vectors = bgdh().fit(task.X, task.y)
    by_tags = bgdh().fit(task.X, task.y, graph=task.tags(0))
    assert task.of_queries(by_tags) > task.of_queries(by_vectors) + 0.05
    found = by_tags.training_["graph"]
    assert found["edges"] == task.tags(0).nnz
    assert (found["rows"], found["objects"], found["isolated_rows"]) == (ROWS, 20, 0)


@pytest.mark.parametrize("variant", ["inductive", "transductive"])
def test_without_the_graph_it_is_dpsh(variant):
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
def test_losses_fall(variant):
    task = Task.draw(0, spread=1.0, labelled=20)
    params = {"variant": variant, "validation": 0.2}
    early = bgdh(rounds=1, pretrain=2, **params).fit(task.X, task.y).training_["losses"]
    late = bgdh(rounds=20, **params).fit(task.X, task.y).training_["losses"]
    assert set(early) == set(late) == {"graph", "labels", "held-back MAP"}
    for name in ("graph", "labels"):
        assert late[name] < 0.99 * early[name], name


def test_the_papers_preset_is_trained():
    """With gradient descent; a rate near 0 leaves the network as it began."""
    task = Task.draw(0, spread=1.0, labelled=20)
    small = {**SMALL["bgdh"], **GRAPH, "n_bits": BITS, "rounds": 30, "random_state": 0}
    del small["validation"]
    for name in RATES:
        small.pop(name)
    untrained = dict.fromkeys(RATES, 1e-9)
    trained = BGDH.paper(**small).fit(task.X, task.y)
    start = BGDH.paper(**{**small, **untrained}).fit(task.X, task.y)
    for loss in ("graph", "labels"):
        assert trained.training_["losses"][loss] < 0.9 * start.training_["losses"][loss], loss
    assert task.of_queries(trained) > task.of_queries(start) + 0.2


@pytest.mark.parametrize(
    "params",
    [
        {"graph": "neighbours"},
        {"edge_weights": "binary"},
        {"rho": 0.5},
        {"radius": 5.0},
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
def test_each_parameter_says_something(params):
    task = Task.draw(0, spread=1.0, labelled=10)
    small = {"rounds": 2, "pretrain": 3}
    usual = bgdh(**small).fit(task.X, task.y)
    other = bgdh(**{**small, **params}).fit(task.X, task.y)
    assert np.isfinite(other.project(task.X)).all()
    assert not np.array_equal(other.project(task.X), usual.project(task.X))


@pytest.mark.parametrize("given", [False, True])
def test_transductive_codes_are_of_the_rows_of_the_training(given):
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
        with pytest.raises(InvalidInputError, match="not one of the 500 rows .* trained on"):
            hasher.encode(unknown)


def test_rows_without_edges_are_counted():
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
def test_refuses_graphs(graph, message, monkeypatch):
    """Before anything is trained."""
    from pg_hashindex.hashers.deep.learning import Trainer

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
        ({"radius": 0}, "radius must be .* 0"),
        ({"context_rate": -1.0}, "context_rate must be .* -1"),
        ({"embedding_rate": float("nan")}, "embedding_rate must be .* nan"),
        ({"lam": -0.5}, "lam must be .* -0.5"),
        ({"positive": 0}, "positive must be .* 0"),
        ({"positive": 1.0}, "positive must be .* below 1, got 1.0"),
    ],
)
def test_refuses_parameters(params, message):
    with pytest.raises(InvalidInputError, match=message):
        bgdh(**params).check_parameters()


def test_refuses_values_beyond_float32():
    task = Task.draw(0, spread=1.0, labelled=20)
    with pytest.raises(InvalidInputError, match="mean squared distance of the rows is"):
        bgdh().fit(task.X.astype(np.float64) * 1e30, task.y)
    with pytest.raises(InvalidInputError, match="have 17000 units side by side"):
        bgdh(hidden=(9000,), embedding_hidden=(8000,)).check_parameters()


def test_the_graph_may_come_from_other_vectors():
    """Rows say nothing here, and features beside them do; the network sees the rows."""
    task, by_vectors = of_vectors_that_say_nothing()
    clear = Task.draw(0, spread=3.0, labelled=2)
    hasher = bgdh(**TRANSDUCTIVE).fit(task.X, task.y, graph_features=clear.X)
    assert task.of_unlabelled(hasher) > by_vectors
    landmarks = bgdh(rounds=1, pretrain=1, normalize="l2").fit(task.X, task.y)
    assert landmarks.training_["graph"]["edges"] == 3 * ROWS


SHORT = TRANSDUCTIVE | {"rounds": 2, "pretrain": 5}


@pytest.mark.parametrize(
    "params",
    [{}, {"graph": "neighbours"}, {"graph": "neighbours", "radius": 4.5}, {"normalize": "l2"}],
    ids=str,
)
def test_a_training_row_is_placed_by_its_edges(params):
    """Written out: shares in objects, from there in rows, and equation 3 with their mean vector."""
    task = Task.draw(0, spread=1.0, labelled=10)
    hasher = bgdh(**SHORT, **params).fit(task.X, task.y)
    rows = task.X / np.linalg.norm(task.X, axis=1)[:, None] if "normalize" in params else task.X
    new = task.queries[:30]
    seen = new / np.linalg.norm(new, axis=1)[:, None] if "normalize" in params else new
    network, graph = hasher._of_rows
    objects = hasher._objects
    assert objects is not None
    squares = ((seen[:, None].astype(float) - objects) ** 2).sum(axis=2)
    limit = params.get("radius", 0) ** 2 or np.sort(squares, axis=1)[:, 2:3] + 1e-9
    weights = np.where(squares < limit, np.exp(-squares / graph.width), 0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    if "graph" not in params:
        back = graph.edges.toarray().T
        weights = weights @ (back / np.maximum(back.sum(axis=1, keepdims=True), 1e-300))
        weights /= weights.sum(axis=1, keepdims=True)
    else:
        assert np.array_equal(objects, rows)
    placed = weights.any(axis=1)
    u = network.place(seen[placed].astype(np.float32), scipy.sparse.csr_array(weights[placed]))
    before = hasher.codes_.copy()
    # Parameters of the next training.
    hasher.set_params(normalize=None, n_nearest=1, graph="landmarks", radius=9.0)
    found = hasher.place(new[placed])
    assert np.array_equal(np.unpackbits(found, axis=1)[:, :BITS], u > 0)
    # The model knows them from now on, and the rows of the training as before.
    assert np.array_equal(hasher.to_model("m").encode(new[placed]), found)
    assert np.array_equal(hasher.encode(task.X), before)
    assert np.array_equal(hasher.place(task.X[:9]), before[:9])


def test_rows_are_placed_by_given_edges():
    """By an edge to one row, a row with the same vector gets the code of that row."""
    task = Task.draw(0, spread=1.0, labelled=10)
    tags = task.tags(0)
    hasher = bgdh(**SHORT).fit(task.X, task.y, graph=tags)
    shifted = task.X[:5] + np.float32(1e-6)
    found = hasher.place(shifted, graph=np.eye(ROWS)[:5])
    assert np.array_equal(found, hasher.codes_[:5])
    assert len(hasher.place(task.queries[:4], graph=tags[:4] @ tags.T)) == 4
    for graph, message in (
        (None, "the training had a given graph; give the edges of new rows to its 500 rows"),
        (np.ones((2, ROWS - 1)), "the graph has 499 columns, but there are 500 training rows"),
        (np.ones((1, ROWS)), "the graph has 1 rows, but there are 2 vectors"),
        (np.eye(ROWS)[:2] * [[1], [0]], "1 of 2 rows have no edge .* the first is row 1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            hasher.place(task.queries[:2], graph=graph)
    with pytest.raises(InvalidInputError, match="placed in the transductive variant; use encode"):
        bgdh(rounds=1, pretrain=1).fit(task.X, task.y).place(task.queries)


def test_rows_are_placed_by_features():
    task, clear = Task.draw(0, spread=0.0, labelled=2), Task.draw(0, spread=3.0, labelled=2)
    hasher = bgdh(**SHORT).fit(task.X, task.y, graph_features=clear.X)
    assert len(hasher.place(task.queries, graph_features=clear.queries)) == 200
    with pytest.raises(InvalidInputError, match="graph_features are needed here"):
        hasher.place(task.queries)
    with pytest.raises(InvalidInputError, match="there are 3 graph_features for 200 rows"):
        hasher.place(task.queries, graph_features=clear.queries[:3])
    with pytest.raises(InvalidInputError, match="so graph_features have no use"):
        bgdh(**SHORT).fit(task.X, task.y).place(task.queries, graph_features=clear.queries)


def test_refuses_features_that_do_not_fit():
    task = Task.draw(0, spread=1.0, labelled=2)
    with pytest.raises(InvalidInputError, match="3 rows of features for the graph of 500 rows"):
        bgdh().fit(task.X, task.y, graph_features=task.X[:3])
    with pytest.raises(InvalidInputError, match="either a graph, or features to make one from"):
        bgdh().fit(task.X, task.y, graph=np.ones((ROWS, 2)), graph_features=task.X)
    with pytest.raises(InvalidInputError, match="radius=0.01 joins no object with two rows"):
        bgdh(radius=0.01, graph="neighbours").fit(task.X, task.y)
