"""HashNet, CSQ, GreedyHash, DTSH, ADSH and deep DSH: what each adds to the common training."""

import functools
import itertools

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL
from fixtures.usps import Usps

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import make_hasher
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes
from pg_hashindex.training import train

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.learning import Trainer  # noqa: E402
from pg_hashindex.hashers.deep.objectives import (  # noqa: E402
    AsymmetricObjective,
    Batch,
    CentreObjective,
    ContinuationObjective,
    draw_triplets,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")

METHODS = ("deep-dsh", "dtsh", "hashnet", "adsh", "greedyhash", "csq")
X, LABELS = clustered()
each_method = pytest.mark.parametrize("name", METHODS)


def make(name, **params):
    return make_hasher(name, **{**SMALL[name], "n_bits": 12, "random_state": 0, **params})


@functools.cache
def fitted(name):
    return make(name).fit(X[:300], LABELS[:300])


def label_map(hasher):
    pair = hasher.encode(X[300:]), hasher.encode(X[:300])
    return metrics.mean_average_precision(*pair, LABELS[300:, None] == LABELS[:300])


@each_method
def test_codes_tell_which_rows_share_a_label(name):
    assert label_map(fitted(name)) > 0.9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self, *given, **options: None)
        untrained = make(name).fit(X[:300], LABELS[:300])
    assert label_map(untrained) < 0.7


@each_method
def test_several_labels_a_row(name):
    """Rows are near that share a label of either kind, and nearer that share both."""
    both = np.zeros((400, 12), int)
    both[np.arange(400), LABELS] = both[np.arange(400), 8 + LABELS % 4] = 1
    encoded = make(name).fit(X, both).encode(X)
    distances = codes.hamming_distances(encoded, encoded)
    shared = both @ both.T
    assert distances[shared == 0].mean() > distances[shared == 1].mean() + 1


@each_method
def test_models_are_layers(name):
    """Which SQL evaluates."""
    model = fitted(name).to_model("m")
    assert model.network is None
    assert {layer.kind for layer in model.layers} == {"shift", "affine", "relu"}


@pytest.mark.slow
@each_method
def test_images(name):
    params = {"features": "cnn-f", "image_shape": (4, 3, 1), "input_size": 39, "rounds": 1}
    hasher = make(name, **params, batch_rows=8, learning_rate=1e-4).fit(X[:40], LABELS[:40])
    assert hasher.to_model("m").network.kind == "torch"
    assert np.isfinite(hasher.project(X[:5])).all()


@pytest.mark.parametrize("name", ["hashnet", "deep-dsh"])
def test_pairs_alone_teach_classes(name):
    pairs = np.array([*itertools.combinations(range(80), 2)])
    signs = np.where(LABELS[pairs[:, 0]] == LABELS[pairs[:, 1]], 1, -1)
    hasher = make(name).fit(X, pairs=np.column_stack([pairs, signs]))
    assert label_map(hasher) > 0.8


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("hashnet", {"alpha": 0}, "alpha must be .* 0"),
        ("hashnet", {"last_beta": 0.0}, r"last_beta must be .* 0\.0"),
        ("csq", {"centres": "bernoulli"}, "centres must be .*'bernoulli'"),
        ("csq", {"lam": -1}, "lam must be .* -1"),
        ("greedyhash", {"penalty": -0.1}, r"penalty must be .* -0\.1"),
        ("dtsh", {"margin": -1}, "margin must be .* -1"),
        ("dtsh", {"eta": "much"}, "eta must be .*'much'"),
        ("dtsh", {"batch_triplets": 0}, "batch_triplets must be .* 0"),
        ("adsh", {"gamma": float("inf")}, "gamma must be .* inf"),
        ("adsh", {"balance": 1}, "balance must be True or False, got 1"),
        ("adsh", {"query_rows": 1}, "query_rows must be .* 1"),
        ("deep-dsh", {"margin": 0}, "margin must be .* 0"),
        ("deep-dsh", {"alpha": -1}, "alpha must be .* -1"),
        *((name, {"hidden": []}, "hidden must be the sizes of 1 hidden layer") for name in METHODS),
    ],
)
def test_refused_parameters(name, params, message):
    with pytest.raises(InvalidInputError, match=message):
        make(name, **params).fit(X, LABELS)


def test_beta_grows_by_the_same_factor_in_each_round():
    objective, betas = ContinuationObjective(0.1, 16.0), []
    for number in range(4):
        objective.start_round(number / 4, None, None)
        betas.append(objective.beta)
    np.testing.assert_allclose(betas, [1, 2, 4, 8])


@pytest.mark.parametrize("centres", ["hadamard", "random"])
def test_each_class_has_a_codeword(centres):
    hasher = make("csq", centres=centres, n_bits=16).fit(X, 7 * LABELS + 3)
    assert np.array_equal(hasher.classes_, 7 * np.arange(8) + 3)
    words = hasher.class_codes_
    assert (words.shape, words.dtype) == ((8, 16), bool)
    apart = (words[:, None] != words).sum(axis=2)[~np.eye(8, dtype=bool)]
    assert apart.min() >= (6 if centres == "hadamard" else 4)
    # Rows have the codeword of their class, but for a few bits.
    bits = codes.unpack(hasher.encode(X), 16).astype(bool)
    assert (bits == words[LABELS]).mean() > 0.95


def test_the_columns_of_labels_name_the_classes():
    """A column that no row has is no class."""
    indicator = np.zeros((400, 11), int)
    indicator[np.arange(400), LABELS + 2] = 1
    hasher = make("csq", rounds=1).fit(X, indicator)
    assert np.array_equal(hasher.classes_, np.arange(2, 10))


def test_the_centre_of_several_labels_is_their_majority():
    centres = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, 1, 1, 1]], np.int8)
    labels = Labels.read(np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]]), 3)
    objective = CentreObjective(labels, centres, np.array([-1, 1, -1, 1], np.int8), 0.0)
    batch = Batch(np.array([0, 1, 2]), torch.eye(3) > 0, None, 6)
    # Two labels that differ leave it to the ties.
    right = torch.tensor([[1.0, 1, -1, -1], [1, 1, -1, -1], [1, 1, 1, -1]]) * 50
    assert objective(right, batch).item() == pytest.approx(0, abs=1e-12)
    for row, bit in np.ndindex(3, 4):
        wrong = right.clone()
        wrong[row, bit] *= -1
        assert objective(wrong, batch).item() > 1


def test_triplets_of_a_batch():
    """All there are, or so many of them, each as likely."""
    classes = np.array([0, 1, 0, 2, 1, 0])
    similar = classes[:, None] == classes
    every = {
        (q, p, n)
        for q, p, n in itertools.product(range(6), repeat=3)
        if q != p and similar[q, p] and not similar[q, n]
    }
    rng = np.random.default_rng(0)
    found = draw_triplets(similar, len(every), rng)
    assert len(found) == len(every)
    assert set(map(tuple, found.tolist())) == every
    drawn = np.concatenate([draw_triplets(similar, len(every) - 1, rng) for _ in range(2000)])
    triplets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert set(map(tuple, triplets.tolist())) == every
    assert counts.min() > 0.8 * counts.mean()
    assert draw_triplets(np.ones((4, 4), bool), 10, rng).shape == (0, 3)
    assert draw_triplets(np.eye(4, dtype=bool), 10, rng).shape == (0, 3)


def adsh_objective(y, balance, most_drawn, gamma=3.0, n_bits=5):
    rng = np.random.default_rng(5)
    labels, kept = Labels.read(y, len(y)), np.arange(1, len(y))
    first = rng.choice(np.array([-1, 1], np.int8), (len(kept), n_bits))
    return AsymmetricObjective(labels, kept, first, gamma, most_drawn, balance=balance)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("balance", [False, True])
def test_adsh_updates_its_codes_bit_by_bit(several, balance):
    """By the formula of the paper, with S written out; then the loss of a batch, literally."""
    y = np.arange(13) % 3
    if several:
        y = np.random.default_rng(6).random((13, 4)) < 0.4
        y[:, 0] |= ~y.any(axis=1)
        y = y.astype(int)
    indicator = Labels.read(y, 13).indicator.toarray()[1:]
    similar = indicator @ indicator.T > 0
    S = np.where(similar, 1.0, -similar.sum() / (~similar).sum() if balance else -1.0)
    assert not balance or abs(S.sum()) < 1e-9
    objective = adsh_objective(y, balance, most_drawn=8)
    projections = np.random.default_rng(7).standard_normal((13, 5)).astype(np.float32)
    expected = objective.V.numpy().astype(float)
    asked = []

    def project(rows):
        asked.append(rows)
        return projections[rows]

    objective.start_round(0.0, project, np.random.default_rng(8))
    (rows,) = asked
    assert len(set(rows)) == 8
    U = np.tanh(projections[rows].astype(float))
    known = np.zeros((12, 5))
    known[rows - 1] = U
    Q = -2 * 5 * S[:, rows - 1] @ U - 2 * 3.0 * known
    for k in range(5):
        others = np.delete(np.arange(5), k)
        V_k = -np.sign(2 * expected[:, others] @ (U[:, others].T @ U[:, k]) + Q[:, k])
        assert np.ptp(V_k) > 0
        expected[:, k] = V_k
    assert np.array_equal(objective.V.numpy(), expected)

    u = np.random.default_rng(9).standard_normal((3, 5))
    batch, total = np.array([2, 5, 9]), 0.0
    for i, row in enumerate(batch - 1):
        h = np.tanh(u[i])
        total += sum((h @ expected[j] - 5 * S[row, j]) ** 2 for j in range(12))
        total += 3.0 * ((expected[row] - h) ** 2).sum()
    given = Batch(batch, torch.eye(3) > 0, None, 6)
    found = objective(torch.from_numpy(u.astype(np.float32)), given)
    assert found.item() == pytest.approx(total / (3 * 12), rel=1e-4)


def test_learned_codes_of_adsh():
    """V for the rows that training uses, the network's codes for those held back."""
    y = np.where(np.arange(400) < 300, LABELS, -1)
    hasher = make("adsh", validation=0.2).fit(X, y)
    learned = codes.unpack(hasher.codes_, 12)
    assert len(learned) == 300
    agreeing = (learned == codes.unpack(hasher.encode(X[:300]), 12)).mean(axis=1)
    assert agreeing.mean() > 0.9
    assert (agreeing == 1).sum() >= 60
    # Rows of a class have nearly the same codes.
    for label in range(8):
        of_class = learned[LABELS[:300] == label]
        assert (of_class == np.round(of_class.mean(axis=0))).mean() > 0.9
    model = train(
        X, "m", "adsh", y=LABELS, codes="learned", n_bits=12, force=True, parameters=SMALL["adsh"]
    )
    assert model.learned is not None


@pytest.mark.slow
@each_method
@pytest.mark.parametrize("few", [False, True])
def test_usps(name, few, usps: Usps):
    """Well above ITQ, which has a MAP of .38, with 10,000 labels and with 1,000."""
    y = usps.y[usps.train].astype(int)
    if few:
        y[np.setdiff1d(np.arange(len(y)), usps.labelled)] = -1
    hasher = make_hasher(name, n_bits=32, random_state=0).fit(usps.X[usps.train], y)
    pair = hasher.encode(usps.X[usps.query]), hasher.encode(usps.X[usps.database])
    relevant = usps.y[usps.query][:, None] == usps.y[usps.database]
    found = metrics.mean_average_precision(*pair, relevant)
    assert found > (0.8 if few else 0.93)
