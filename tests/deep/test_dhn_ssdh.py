import math

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL, label_map
from fixtures.usps import Usps

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS, ITQ

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.learning import Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import dhn_loss, ssdh_loss  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

X, LABELS = clustered()
FEW = np.where(np.arange(300) < 60, LABELS[:300], -1)
METHODS = ("dhn", "ssdh")


def make(name, **params):
    return HASHERS[name](**{**SMALL[name], "n_bits": 12, "random_state": 0, **params})


def test_the_loss_of_dhn():
    u, lam = np.random.default_rng(0).standard_normal((6, 4)), 0.3
    kinds = np.array([0, 1, 2, 0, 1, 0])
    z, similar = np.tanh(u), kinds[:, None] == kinds

    def literal(pairs):
        total = 0.0
        for i, j in pairs:
            product = z[i] @ z[j]
            total += math.log(1 + math.exp(product)) - similar[i, j] * product
            for row in (i, j):
                total += lam * sum(math.log(math.cosh(abs(x) - 1)) for x in z[row])
        return total

    pairs = [(i, j) for i, j in np.ndindex(6, 6) if i != j]
    given = torch.tensor(u), torch.tensor(similar)
    assert dhn_loss(*given, lam=lam).item() == pytest.approx(literal(pairs))
    known = np.zeros((6, 6), bool)
    known[:4, :4] = True
    found = dhn_loss(*given, torch.tensor(known), lam=lam)
    assert found.item() == pytest.approx(literal([pair for pair in pairs if known[pair]]))


def literal_ssdh(u, labels, margin, graph_margin, alpha, beta, n_nearest):
    """The parts of the loss by loops over rows, each with its weight."""
    n, c = labels.shape
    h, scores = 1 / (1 + np.exp(-u[:, :-c])), u[:, -c:]
    rows, known = range(n), labels.any(axis=1)

    def distance(i, j):
        return ((h[i] - h[j]) ** 2).sum()

    def share(i, j):
        return (labels[i] & labels[j]).any()

    def contrast(i, near, far):
        joined = np.mean([distance(i, j) for j in near])
        return (
            joined + np.mean([max(0, graph_margin - distance(i, j) ** 0.5) ** 2 for j in far])
        ) / 2

    def says(j, kind):
        """Whether a row has a label, or its scores say so."""
        return labels[j, kind] if known[j] else scores[j].argmax() == kind

    ranking, graph, pseudo = [], [], []
    for i in rows:
        triplets = [
            max(0, margin + distance(i, p) - distance(i, q)) / 2
            for p in rows
            for q in rows
            if i != p and share(i, p) and known[q] and not share(i, q) and not share(p, q)
        ]
        if known[i] and triplets:
            ranking.append(np.mean(triplets))
        order = sorted(rows, key=lambda j: -1 if i == j else distance(i, j))
        far = [order[r] for r in rows if 114 / 128 * n <= r < 124 / 128 * n]
        graph.append(contrast(i, order[1 : n_nearest + 1], far))
        if known[i]:
            continue
        first, last = scores[i].argmax(), scores[i].argmin()
        near = [j for j in rows if j != i and says(j, first) and not says(j, last)]
        far = [j for j in rows if j != i and says(j, last) and not says(j, first)]
        if near and far:
            pseudo.append(contrast(i, near, far))
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    entropy = [-np.log(chances[i][labels[i]]).sum() for i in rows if known[i]]
    assert ranking
    assert pseudo
    return np.mean(ranking) + alpha * np.mean(graph) + beta * np.mean(pseudo) + np.mean(entropy)


def test_the_loss_of_ssdh():
    rng = np.random.default_rng(0)
    labels = np.eye(3, dtype=bool)[rng.integers(0, 3, 40)]
    # Some rows have two labels, and a half none.
    labels[:5] |= labels[5:10]
    labels[20:] = False
    u = 3 * rng.standard_normal((40, 7 + 3))
    given = {"margin": 0.5, "graph_margin": 1.5, "alpha": 0.3, "beta": 0.7, "n_nearest": 4}
    found = ssdh_loss(torch.tensor(u), torch.tensor(labels), **given)
    assert found.item() == pytest.approx(literal_ssdh(u, labels, **given), rel=1e-5)


def test_a_batch_of_ssdh_without_pairs_of_any_kind_costs_nothing_but_the_entropy():
    labels = torch.tensor([[True, False], [False, True]])
    u = torch.zeros(2, 6, requires_grad=True)
    loss = ssdh_loss(u, labels, margin=1.0, graph_margin=1.0, alpha=0.1, beta=0.1, n_nearest=8)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert torch.isfinite(u.grad).all()


@pytest.mark.parametrize("name", METHODS)
def test_codes_tell_which_rows_share_a_label(name, monkeypatch):
    """And say more than those of ITQ, and of the network before the training."""
    hasher = make(name, rounds=30).fit(X[:300], FEW)
    found = label_map(hasher)
    assert found > label_map(ITQ(n_bits=12, random_state=0).fit(X[:300]))
    monkeypatch.setattr(Trainer, "run", lambda self, **options: None)
    assert found > label_map(make(name).fit(X[:300], FEW)) + 0.1
    model = hasher.to_model("m")
    assert model.network is None
    assert {layer.kind for layer in model.layers} == {"shift", "affine", "relu"}
    assert model.n_bits == 12


def test_unlabelled_rows_change_what_ssdh_learns():
    every, labelled = (make("ssdh").fit(X[rows], FEW[rows]) for rows in (slice(300), slice(60)))
    assert not np.allclose(every.project(X[:5]), labelled.project(X[:5]), rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_images(name):
    params = {"features": "cnn-f", "image_shape": (4, 3, 1), "input_size": 39, "rounds": 1}
    hasher = make(name, **params, batch_rows=8, learning_rate=1e-4).fit(X[:40], LABELS[:40])
    model = hasher.to_model("m")
    assert model.network.kind == "torch"
    np.testing.assert_array_equal(model.encode(X[:5]), hasher.encode(X[:5]))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("dhn", {"lam": -1}, "lam must be .* -1"),
        ("ssdh", {"margin": 0}, "margin must be .* 0"),
        ("ssdh", {"unlabelled_rows": 0}, "unlabelled_rows must be .* 0"),
        ("ssdh", {"beta": -1}, "beta must be .* -1"),
    ],
)
def test_refused_parameters(name, params, message):
    with pytest.raises(InvalidInputError, match=message):
        make(name, **params).fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_usps_with_few_labels(name, usps: Usps):
    """Well above ITQ, which has a MAP of .38, with 50 labels a class."""
    y = usps.y[usps.train].astype(int)
    for kind in range(10):
        y[np.flatnonzero(y == kind)[50:]] = -1
    hasher = HASHERS[name](n_bits=32, random_state=0).fit(usps.X[usps.train], y)
    pair = hasher.encode(usps.X[usps.query]), hasher.encode(usps.X[usps.database])
    relevant = usps.y[usps.query][:, None] == usps.y[usps.database]
    assert metrics.mean_average_precision(*pair, relevant) > 0.75
