"""Algorithm 2, step by step: gradients written out, the schedule, and when it ends."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from pg_hashindex.errors import TrainingError
from pg_hashindex.hashers.numerics.bipartite import BipartiteGraph
from pg_hashindex.hashers.supervision.labels import Labels

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep import learning  # noqa: E402
from pg_hashindex.hashers.deep.learning import Schedule, Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import dpsh_loss, with_quantization  # noqa: E402
from pg_hashindex.models.hash_network import Architecture, HashNetwork  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

ROWS, DIMENSION, BITS, SIZE = 30, 6, 4, 3
RATE, EMBEDDING_RATE, CONTEXT_RATE, LAM, ETA = 0.5, 0.05, 2.0, 0.25, 0.3
ARCHITECTURES = {
    "dpsh": Architecture(DIMENSION, BITS, (7,)),
    "inductive": Architecture(DIMENSION, BITS, (7,), SIZE, (5,)),
    "transductive": Architecture(DIMENSION, BITS, (7,), SIZE, (5,), n_embedded=ROWS),
}
X = np.random.default_rng(0).standard_normal((ROWS, DIMENSION)).astype(np.float32)
Y = np.where(np.arange(ROWS) % 3 < 2, np.arange(ROWS) % 4, -1)
LABELLED = np.flatnonzero(Y >= 0)

each_variant = pytest.mark.parametrize("variant", list(ARCHITECTURES))
with_a_graph = pytest.mark.parametrize("variant", ["inductive", "transductive"])


def trainer(variant, held_back=(), loss=dpsh_loss, **changes):
    schedule = {
        "rounds": 1,
        "batch_rows": ROWS,
        "optimizer": "sgd",
        "learning_rate": RATE,
        "patience": 3,
        "supervised_steps": 0,
        "lam": LAM,
        "batch_contexts": 200,
        "walk_length": 2,
        "embedding_rate": EMBEDDING_RATE,
        "context_rate": CONTEXT_RATE,
    }
    network = HashNetwork(ARCHITECTURES[variant], torch.Generator().manual_seed(1))
    with torch.no_grad():
        # Large enough that rounding does not hide its gradients.
        network.head.weight.mul_(30)
    graph = None
    if variant != "dpsh":
        edges = scipy.sparse.random_array((ROWS, 5), density=0.5, rng=np.random.default_rng(2))
        graph = BipartiteGraph(scipy.sparse.csr_array(edges))
    result = Trainer(
        network,
        X,
        Labels.read(Y, ROWS),
        np.array(held_back, np.intp),
        graph,
        Schedule(**(schedule | changes)),
        with_quantization(loss, ETA),
        np.random.default_rng(3),
    )
    if result.contexts is not None:
        with torch.no_grad():
            # From zeros, the first step would leave embeddings as they are.
            result.contexts.weight.normal_(0, 0.5, generator=torch.Generator().manual_seed(4))
    return result


def weights(given):
    result = {name: p.detach().numpy().copy() for name, p in given.network.named_parameters()}
    if given.contexts is not None:
        result["contexts"] = given.contexts.weight.detach().numpy().copy()
    return result


class Step:
    """The state before and after one step."""

    def __init__(self, name, given):
        self.name, self.before = name, weights(given)
        self.network = copy.deepcopy(given.network).double()
        if given.contexts is not None:
            self.contexts = given.contexts.weight.detach().double().requires_grad_()

    def assert_down(self, loss, rates):
        """Each parameter has moved by its rate times its gradient; those without one stayed."""
        loss.backward()
        gradients = {name: p.grad for name, p in self.network.named_parameters()}
        if "contexts" in self.before:
            gradients["contexts"] = self.contexts.grad
        gradients = {name: g.to_dense() for name, g in gradients.items() if g is not None}
        assert {name for name in gradients if name.split(".")[0] in rates} == set(gradients)
        for name, after in self.after.items():
            expected = np.zeros_like(after)
            if name in gradients:
                expected = -rates[name.split(".")[0]] * gradients[name].numpy()
                assert np.abs(expected).max() > 1e-4, name
            np.testing.assert_allclose(after - self.before[name], expected, rtol=1e-3, atol=1e-6)


def run(given):
    """Train; return all steps."""
    steps = []

    def note(name):
        step = getattr(given, name)

        def noted():
            steps.append(Step(name[1:], given))
            loss = step()
            steps[-1].after, steps[-1].loss = weights(given), loss.item()
            return loss

        setattr(given, name, noted)

    note("_graph_step")
    note("_supervised_step")
    given.run()
    return steps


@each_variant
@pytest.mark.parametrize("held_back", [(), (0, 4)])
def test_a_supervised_step_goes_down_equation_4(variant, held_back):
    (step,) = run(trainer(variant, held_back, supervised_steps=1))
    rows = [row for row in LABELLED if row not in held_back]
    u = step.network(torch.from_numpy(X[rows]).double(), torch.tensor(rows))
    loss = 0
    for i in range(len(rows)):
        for j in range(len(rows)):
            if i != j:
                theta = u[i] @ u[j] / 2
                similar = float(Y[rows[i]] == Y[rows[j]])
                loss = loss - (similar * theta - torch.log(1 + torch.exp(theta)))
        loss = loss + ETA * ((torch.sign(u[i].detach()) - u[i]) ** 2).sum()
    loss = loss / (len(rows) * (len(rows) - 1))
    assert step.loss == pytest.approx(loss.item(), rel=1e-5)
    rates = dict.fromkeys(("phi", "psi", "head"), RATE)
    step.assert_down(loss, rates | {"xi": EMBEDDING_RATE, "embeddings": EMBEDDING_RATE})


@each_variant
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_decay_takes_its_part_of_each_weight(variant, optimizer):
    """The weights of the network decay; what each row has of its own moves by the losses alone."""
    decay = 0.2
    (plain,) = run(trainer(variant, supervised_steps=1, optimizer=optimizer))
    (decayed,) = run(trainer(variant, supervised_steps=1, optimizer=optimizer, weight_decay=decay))
    rates = {"xi": EMBEDDING_RATE, "embeddings": 0, "contexts": 0}
    for name, before in plain.before.items():
        rate = rates.get(name.split(".")[0], RATE)
        lost = plain.after[name] - decayed.after[name]
        np.testing.assert_allclose(lost, rate * decay * before, rtol=1e-3, atol=1e-6)


@with_a_graph
@pytest.mark.parametrize("kind", ["logistic", "square"])
def test_a_graph_step_goes_down_equation_2(variant, kind, monkeypatch):
    """With the labels lambda times as far, which for gradient descent is lambda times the loss."""
    given = trainer(variant, graph_loss=kind, pretrain=1, graph_steps=1)
    draw, drawn = given.graph.contexts, []
    monkeypatch.setattr(
        given.graph,
        "contexts",
        lambda *a, **options: drawn.append(draw(*a, **options)) or drawn[-1],
    )
    steps = run(given)
    # Rows get vectors of their own after a pre-training without.
    by_xi = {"xi": RATE, "contexts": CONTEXT_RATE}
    free = dict.fromkeys(("embeddings", "contexts"), learning._FREE_RATE * CONTEXT_RATE)
    phases = {"inductive": [by_xi, by_xi], "transductive": [by_xi, free, free]}[variant]
    assert len(steps) == len(drawn) == len(phases)
    for number, (step, rates) in enumerate(zip(steps, phases, strict=True)):
        if rates is free:
            # The second step of xi has momentum.
            step.network.xi.requires_grad_(False)
            step.after |= {name: step.before[name] for name in step.after if name[:3] == "xi."}
        numbers = torch.arange(ROWS) if rates is free else None
        e = step.network.embed(torch.from_numpy(X).double(), numbers)
        loss = 0
        for row, other, sign in zip(*drawn[number], strict=True):
            score = e[row] @ step.contexts[other]
            one = (
                (sign - score) ** 2 if kind == "square" else torch.log(1 + torch.exp(-sign * score))
            )
            loss = loss + one / len(drawn[number].rows)
        assert step.loss == pytest.approx(loss.item(), rel=1e-5)
        # Vectors in tables have no momentum.
        if number == 0 or rates is free:
            share = LAM if number == len(phases) - 1 else 1
            step.assert_down(loss, {name: share * rate for name, rate in rates.items()})


@with_a_graph
def test_steps_on_the_graph_are_lambda_times_as_long(variant):
    """Without a pre-training, the first one of xi."""
    moved = []
    for lam in (1.0, LAM):
        (step,) = run(trainer(variant, lam=lam, graph_steps=1))
        moved.append({name: step.after[name] - step.before[name] for name in step.after})
    for name, whole in moved[0].items():
        np.testing.assert_allclose(moved[1][name], LAM * whole, rtol=1e-3, atol=1e-6)
    name = {"inductive": "xi.0.weight", "transductive": "embeddings.weight"}[variant]
    assert np.abs(moved[0][name]).max() > 1e-3


@with_a_graph
def test_batches_alternate_as_the_schedule_says(variant):
    given = trainer(
        variant,
        rounds=3,
        supervised_steps=4,
        graph_steps=2,
        pretrain=7,
        batch_rows=6,
        learning_rate=0.01,
    )
    steps = "".join(step.name[0] for step in run(given))
    # Transductive networks go through it once by xi alone, and once with free vectors.
    pretrain = {"inductive": 7, "transductive": 14}[variant]
    assert steps == "g" * pretrain + "ssssgg" * 3
    assert (given.pretrained, given.round) == (pretrain, 3)


def test_batches_are_of_labelled_rows_alone():
    """A batch has the size asked for, other rows each time, and none that is held back."""
    shown = []

    def noted(u, similar):
        assert similar.diagonal().all()
        assert torch.equal(similar, similar.T)
        shown.append(u.detach().numpy())
        return dpsh_loss(u, similar)

    held_back = LABELLED[::5]
    given = trainer("dpsh", held_back, noted, supervised_steps=30, batch_rows=6, learning_rate=1e-9)
    known = given.network.project(X)
    given.run()
    seen = set()
    for u in shown[:30]:
        distances = np.abs(u[:, None] - known).max(axis=2)
        rows = distances.argmin(axis=1)
        assert distances.min(axis=1).max() < 1e-5
        assert len(set(rows)) == 6
        seen |= set(rows.tolist())
    assert seen == set(LABELLED) - set(held_back)


@pytest.fixture
def looks(monkeypatch):
    """Have the MAP of the held-back labels be as a test wants; note the network at each look."""
    monkeypatch.setattr(learning, "_LOOK_ROUNDS", 2)
    looks = SimpleNamespace(values=[], networks=[])

    def found(self):
        looks.networks.append(weights(self))
        return looks.values[len(looks.networks) - 1]

    monkeypatch.setattr(learning.Trainer, "_held_back_map", found)
    return looks


@pytest.mark.parametrize(
    ("values", "best", "ended"),
    [
        # Patience of 3 looks after the best one; of equal ones the later.
        ([0.5, 0.7, 0.6, 0.65, 0.6, 0.9], 2, 5),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 8, 8),
        ([0.5, 0.4, 0.45, 0.7, 0.6, 0.6, 0.6, 0.9], 4, 7),
        ([0.6, 0.5, 0.6, 0.5, 0.5, 0.5], 3, 6),
    ],
)
def test_the_network_of_the_best_look_is_kept(values, best, ended, looks):
    looks.values += values
    given = trainer("dpsh", LABELLED[:4], dpsh_loss, rounds=16, supervised_steps=1)
    given.run()
    assert len(looks.networks) == ended
    assert given.round == 2 * ended
    assert given.best[:2] == (values[best - 1], 2 * best)
    assert given.losses["held-back MAP"] == values[ended - 1]
    kept = weights(given)
    for name, expected in looks.networks[best - 1].items():
        assert np.array_equal(kept[name], expected)
    if best != ended:
        assert not np.array_equal(kept["head.weight"], looks.networks[-1]["head.weight"])


def test_the_last_round_is_looked_at(looks):
    looks.values += [0.3, 0.4, 0.5]
    given = trainer("dpsh", LABELLED[:4], dpsh_loss, rounds=5, supervised_steps=1)
    given.run()
    assert given.best[1] == given.round == 5


def test_without_labels_held_back_it_goes_to_the_end(looks):
    given = trainer("dpsh", (), dpsh_loss, rounds=11, supervised_steps=1)
    given.run()
    assert (given.round, given.best, looks.networks) == (11, None, [])
    assert list(given.losses) == ["labels"]


def test_a_look_is_the_map_of_the_rows_held_back():
    held_back = LABELLED[::4]
    given = trainer("dpsh", held_back, dpsh_loss, batch_rows=5)
    bits = given.network.project(X) > 0
    others = np.setdiff1d(LABELLED, held_back)
    precisions = []
    for row in held_back:
        distances = (bits[others] != bits[row]).sum(axis=1)
        same = np.asarray(Y)[others] == np.asarray(Y)[row]
        # Over all orders of equal distances, by many draws of one.
        drawn = np.random.default_rng(0).random((400, len(others)))
        order = np.lexsort((drawn, np.broadcast_to(distances, drawn.shape)))
        found = same[order]
        at_rank = found.cumsum(axis=1) / np.arange(1, len(others) + 1)
        precisions.append(((at_rank * found).sum(axis=1) / found.sum(axis=1)).mean())
    assert given._held_back_map() == pytest.approx(np.mean(precisions), abs=0.02)
    assert given.network.training


@pytest.mark.parametrize(
    ("after", "place"),
    [(0, "round 1 of 4"), (2, "round 1 of 4"), (3, "round 2 of 4"), (11, "round 4 of 4")],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_errors_say_where_a_loss_went_wrong(after, place, value):
    calls = []

    def loss(u, similar):
        calls.append(1)
        return dpsh_loss(u, similar) * (value if len(calls) > after else 1)

    given = trainer("dpsh", loss=loss, rounds=4, supervised_steps=3, learning_rate=0.01)
    with pytest.raises(TrainingError, match=rf"the labels became (nan|inf) in {place}; train"):
        given.run()


def test_errors_say_where_the_graph_went_wrong(monkeypatch):
    calls = []
    real = learning.graph_loss

    def loss(*args):
        calls.append(1)
        return real(*args) * (math.nan if len(calls) > 5 else 1)

    monkeypatch.setattr(learning, "graph_loss", loss)
    given = trainer("inductive", pretrain=8, learning_rate=0.01, context_rate=0.01)
    with pytest.raises(TrainingError, match=r"of the graph became nan in batch 6 of the pre-train"):
        given.run()
