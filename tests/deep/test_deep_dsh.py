import functools
import itertools

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL, label_map
from fixtures.usps import Usps

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import DeepDSH
from pg_hashindex.models import codes

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.learning import Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import deep_dsh_loss  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

X, LABELS = clustered()
CLASS = np.array([0, 1, 2, 0, 1, 0])
SIMILAR = CLASS[:, None] == CLASS


def make(**params):
    return DeepDSH(**{**SMALL["deep-dsh"], "n_bits": 12, "random_state": 0, **params})


@functools.cache
def fitted():
    return make().fit(X[:300], LABELS[:300])


def literal_loss(u, pairs, margin, alpha):
    """The relaxed loss; its y is 1 for rows that are not similar."""
    total = 0.0
    for i, j in pairs:
        y, distance = 1.0 - SIMILAR[i, j], ((u[i] - u[j]) ** 2).sum()
        total += (1 - y) * distance / 2 + y * max(margin - distance, 0) / 2
        total += alpha * (abs(abs(u[i]) - 1).sum() + abs(abs(u[j]) - 1).sum())
    return total


def test_the_loss():
    u = np.random.default_rng(0).standard_normal((6, 4))
    pairs = [(i, j) for i, j in np.ndindex(6, 6) if i != j]
    # Some of the distances are above the margin.
    parameters = {"margin": 6.0, "alpha": 0.3}
    given = torch.tensor(u), torch.tensor(SIMILAR)
    expected = literal_loss(u, pairs, **parameters)
    assert deep_dsh_loss(*given, **parameters).item() == pytest.approx(expected)
    # Pairs of the first four rows alone.
    known = np.zeros((6, 6), bool)
    known[:4, :4] = True
    expected = literal_loss(u, [pair for pair in pairs if known[pair]], **parameters)
    found = deep_dsh_loss(*given, torch.tensor(known), **parameters)
    assert found.item() == pytest.approx(expected)


def test_codes_tell_which_rows_share_a_label():
    assert label_map(fitted()) > 0.9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self, **options: None)
        untrained = make().fit(X[:300], LABELS[:300])
    assert label_map(untrained) < 0.7


def test_several_labels_a_row():
    """Rows are near that share a label of either kind, and nearer that share both."""
    both = np.zeros((400, 12), int)
    both[np.arange(400), LABELS] = both[np.arange(400), 8 + LABELS % 4] = 1
    encoded = make().fit(X, both).encode(X)
    distances = codes.hamming_distances(encoded, encoded)
    shared = both @ both.T
    assert distances[shared == 0].mean() > distances[shared == 1].mean() + 1


def test_models_are_layers():
    """Which SQL evaluates."""
    model = fitted().to_model("m")
    assert model.network is None
    assert {layer.kind for layer in model.layers} == {"shift", "affine", "relu"}


@pytest.mark.slow
def test_images():
    params = {"features": "cnn-f", "image_shape": (4, 3, 1), "input_size": 39, "rounds": 1}
    hasher = make(**params, batch_rows=8, learning_rate=1e-4).fit(X[:40], LABELS[:40])
    assert hasher.to_model("m").network.kind == "torch"
    assert np.isfinite(hasher.project(X[:5])).all()


def test_pairs_alone_teach_classes():
    pairs = np.array([*itertools.combinations(range(80), 2)])
    signs = np.where(LABELS[pairs[:, 0]] == LABELS[pairs[:, 1]], 1, -1)
    hasher = make().fit(X, pairs=np.column_stack([pairs, signs]))
    assert label_map(hasher) > 0.8


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"margin": 0}, "margin must be .* 0"),
        ({"alpha": -1}, "alpha must be .* -1"),
        ({"hidden": []}, "hidden must be the sizes of 1 hidden layer"),
    ],
)
def test_refused_parameters(params, message):
    with pytest.raises(InvalidInputError, match=message):
        make(**params).fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.documents
@pytest.mark.parametrize("few", [False, True])
def test_usps(few, usps: Usps):
    """Well above ITQ, which has a MAP of .38, with 10,000 labels and with 1,000."""
    y = usps.y[usps.train].astype(int)
    if few:
        y[np.setdiff1d(np.arange(len(y)), usps.labelled)] = -1
    hasher = DeepDSH(n_bits=32, random_state=0).fit(usps.X[usps.train], y)
    pair = hasher.encode(usps.X[usps.query]), hasher.encode(usps.X[usps.database])
    relevant = usps.y[usps.query][:, None] == usps.y[usps.database]
    found = metrics.mean_average_precision(*pair, relevant)
    assert found > (0.8 if few else 0.93)
