"""DPSH, and what all methods do that train a network: losses, held-back labels, bad input."""

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL
from fixtures.usps import shared_file

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError, TrainingError
from pg_hashindex.hashers import BGDH, DPSH
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.learning import Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import dpsh_loss  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

X, LABELS = clustered()
FEW = np.where(np.arange(400) < 100, LABELS, -1)
IMAGES = {"features": "cnn-f", "image_shape": [4, 3, 1], "input_size": 39}


def dpsh(**params):
    return DPSH(**{**SMALL["dpsh"], "n_bits": 8, "random_state": 0, **params})


def bgdh(**params):
    return BGDH(**{**SMALL["bgdh"], "n_bits": 8, "random_state": 0, **params})


@pytest.fixture
def untrained(monkeypatch):
    """Have it be an error that a training begins."""
    monkeypatch.setattr(Trainer, "run", lambda *given, **options: pytest.fail("a training began"))


def test_codes_tell_which_rows_share_a_label():
    hasher = dpsh(n_bits=12).fit(X[:300], LABELS[:300])
    pair = hasher.encode(X[300:]), hasher.encode(X[:300])
    relevant = LABELS[300:, None] == LABELS[:300]
    assert metrics.mean_average_precision(*pair, relevant) > 0.9


def test_several_labels_a_row():
    """Rows are near that share a label of either kind, and nearer that share both."""
    both = np.zeros((400, 12), int)
    both[np.arange(400), LABELS] = both[np.arange(400), 8 + LABELS % 4] = 1
    encoded = dpsh(n_bits=12).fit(X, both).encode(X)
    distances = codes.hamming_distances(encoded, encoded)
    shared = both @ both.T
    assert distances[shared == 0].mean() > distances[shared == 1].mean() + 2


def test_unlabelled_rows_are_left_out_of_the_batches():
    """Their vectors say what rows are like on average, nothing else."""
    shown = []

    def noted(u, similar):
        shown.append(u.shape)
        return dpsh_loss(u, similar)

    dpsh(pairwise_loss=noted, batch_rows=1000, rounds=2).fit(X, FEW)
    assert shown == [(100, 8)] * 20
    others = X.copy()
    others[100:200] = X[200:300]
    others[200:300] = X[100:200]
    expected = dpsh().fit(X, FEW)
    np.testing.assert_allclose(dpsh().fit(others, FEW).project(X), expected.project(X), atol=1e-3)


def test_seeds():
    checksums = {dpsh(random_state=seed).fit(X, FEW).to_model("m").checksum for seed in range(3)}
    assert len(checksums) == 3


@pytest.mark.parametrize(
    "hasher",
    [
        dpsh(validation=0.2, rounds=1),
        bgdh(rounds=1),
        bgdh(rounds=1, variant="transductive"),
        # dpsh with a single batch in a round.
        bgdh(**IMAGES, lam=0, rounds=2, supervised_steps=1, batch_rows=8),
    ],
    ids=["dpsh", "inductive", "transductive", "cnn-f"],
)
def test_torch_is_left_as_it_was(hasher):
    """Its global generator, and how many threads it has: whoever else uses it notices nothing."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    settings = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    first = hasher.fit(X[:40], LABELS[:40]).to_model("m").checksum
    torch.rand(5)
    assert hasher.fit(X[:40], LABELS[:40]).to_model("m").checksum == first
    assert torch.is_grad_enabled()
    assert (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()) == settings
    assert torch.get_num_threads() == threads
    generator = torch.Generator()
    generator.set_state(state)
    torch.rand(5, generator=generator)
    assert torch.equal(torch.get_rng_state(), generator.get_state())


def twice(u, similar):
    return 2 * dpsh_loss(u, similar)


def test_pairwise_losses():
    """One may be given; models record its name."""
    usual, balanced = (dpsh(pairwise_loss=name).fit(X, FEW) for name in ("dpsh", "balanced"))
    own, same = (dpsh(pairwise_loss=loss).fit(X, FEW) for loss in (twice, dpsh_loss))
    assert own.to_model("m").parameters["pairwise_loss"] == "twice"
    assert balanced.to_model("m").parameters["pairwise_loss"] == "balanced"
    assert np.array_equal(same.project(X), usual.project(X))
    for other in (own, balanced):
        assert not np.array_equal(other.project(X), usual.project(X))


@pytest.mark.parametrize("several", [False, True])
def test_the_last_row_of_a_label_is_not_held_back(several):
    y = np.repeat([-1, 0, 1, 2, 3], [50, 60, 10, 2, 1])
    indicator = (y[:, None] == np.arange(4)).astype(int)
    if several:
        # A label that only the last row of another one has beside it.
        indicator[-1, 0] = 1
    labels = Labels.read(indicator, len(y))
    sizes = set()
    for seed in range(40):
        held = dpsh(validation=0.5)._held_back(labels, np.random.default_rng(seed))
        assert np.array_equal(held, np.unique(held))
        assert indicator[held].any(axis=1).all()
        kept = np.delete(indicator, held, axis=0)
        assert kept.any(axis=0).all()
        sizes.add(len(held))
    # A few less than half of 73 where a label had none else.
    assert sizes <= set(range(32, 37))
    assert len(sizes) > 1
    assert len(dpsh(validation=0)._held_back(labels, np.random.default_rng(0))) == 0


def test_held_back_labels_are_counted():
    summary = dpsh(validation=0.1, rounds=7).fit(X, FEW).training_
    assert summary["held_back_labels"] == 10
    assert summary["best_round"] in {5, 7}
    assert set(summary["losses"]) == {"labels", "held-back MAP"}
    assert summary["rounds"] == 7
    assert summary["device"] == "cpu"
    without = dpsh(validation=0, rounds=3).fit(X, FEW).training_
    assert set(without["losses"]) == {"labels"}
    assert not {"held_back_labels", "best_round"} & set(without)


def test_labels_of_one_row_each_can_be_learned_from():
    """Two labelled rows of two classes: one batch of one pair, and nothing to hold back."""
    y = np.full(400, -1)
    y[:2] = 0, 1
    hasher = dpsh(validation=0.5).fit(X, y)
    assert "held_back_labels" not in hasher.training_
    assert np.isfinite(hasher.project(X)).all()


@pytest.mark.parametrize(
    "params",
    [
        {"optimizer": "sgd", "learning_rate": 1e6},
        {"optimizer": "sgd", "learning_rate": 1e12},
        {"learning_rate": 1e12},
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [dpsh, bgdh])
def test_nan_losses(make, params):
    hasher = make(**params)
    with pytest.raises(TrainingError, match=r"the loss of the (labels|graph) became (nan|inf) in"):
        hasher.fit(X, FEW)
    assert not hasattr(hasher, "layers_")


def steep(u, similar):
    return 1e30 * dpsh_loss(u, similar)


@pytest.mark.parametrize("variant", ["inductive", "transductive"])
def test_nan_weights(variant):
    """The last step of all may be the one that goes too far, with no loss after it."""
    params = {"rounds": 1, "supervised_steps": 1, "pretrain": 0, "graph_steps": 0}
    far = {"pairwise_loss": steep, "optimizer": "sgd", "learning_rate": 1e12}
    with pytest.raises(TrainingError, match="no longer finite after round 1 of 1; .* learning_"):
        bgdh(**params, **far, variant=variant).fit(X, FEW)


@pytest.mark.parametrize("scale", [1e-15, 1e12])
def test_rows_of_any_scale(scale):
    expected = dpsh().fit(X, FEW).encode(X)
    found = dpsh().fit(X * np.float32(scale), FEW).encode(X * np.float32(scale))
    assert codes.hamming_distances(found, expected).diagonal().mean() < 0.2


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu9", "device 'tpu9' cannot be used: "),
        ("cuda:99", "device 'cuda:99' cannot be used: "),
        ("meta", "device 'meta' cannot be used: "),
        ("", "device '' cannot be used: "),
        (None, "device None cannot be used: "),
        (3.5, r"device 3\.5 cannot be used: "),
    ],
)
@pytest.mark.usefixtures("untrained")
def test_missing_devices(device, message):
    with pytest.raises(InvalidInputError, match=message):
        dpsh(device=device).fit(X, FEW)


@pytest.mark.usefixtures("untrained")
def test_missing_gpu():
    if torch.cuda.device_count():
        pytest.skip("there is a GPU")
    with pytest.raises(InvalidInputError, match="device 'cuda' cannot be used: .*(CUDA|NVIDIA)"):
        dpsh(device="cuda").fit(X, FEW)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"hidden": []}, r"hidden must be the sizes of 1 hidden layer or more.* got \[\]"),
        ({"hidden": "64,32"}, "hidden must be .* got '64,32'"),
        ({"hidden": 64}, "hidden must be .* as a list, got 64"),
        ({"hidden": ["64"]}, "each size in hidden must be .*'64'"),
        ({"hidden": [64, 0]}, "each size in hidden must be .* 0"),
        ({"hidden": [64, True]}, "each size in hidden must be .*True"),
        ({"features": "resnet"}, "features must be .*'resnet'"),
        ({"optimizer": "adamw"}, "optimizer must be .*'adamw'"),
        ({"pairwise_loss": "hinge"}, "pairwise_loss must be .*'hinge'"),
        ({"rounds": 0}, "rounds must be .* 0"),
        ({"batch_rows": 1}, "batch_rows must be .* 1"),
        ({"batch_rows": "all"}, "batch_rows must be .*'all'"),
        ({"patience": 0}, "patience must be .* 0"),
        ({"learning_rate": 0}, "learning_rate must be .* 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be .* inf"),
        ({"eta": -1}, "eta must be .* -1"),
        ({"weight_decay": -1}, "weight_decay must be .* -1"),
        ({"theta_scale": 0}, "theta_scale must be .* 0"),
        ({"validation": 0.9}, r"validation must be .* to 0\.5, got 0\.9"),
        ({"validation": -0.1}, r"validation must be .* -0\.1"),
        ({"validation": "0.1"}, r"validation must be .*'0\.1'"),
        ({"image_shape": [4, 3, 1]}, "image_shape is for images"),
        ({"features": "cnn-f"}, r"needs image_shape: height, width and channels.* got None"),
        ({**IMAGES, "image_shape": [4, 3]}, r"needs image_shape.* got \[4, 3\]"),
        ({**IMAGES, "image_shape": [4, 0, 1]}, "each side in image_shape must be .* 0"),
        ({**IMAGES, "image_shape": [2, 3, 2]}, r"ends in 2 channels; images have 1 or 3"),
        ({**IMAGES, "image_shape": [4, 4, 1]}, r"\(n, 16\) for images of 4 x 4 pixels"),
        ({**IMAGES, "input_size": 38}, "input_size must be .* 38"),
        ({**IMAGES, "dropout": 1.0}, r"dropout must be .* below 1, got 1\.0"),
        ({**IMAGES, "dropout": -0.1}, r"dropout must be .* -0\.1"),
    ],
)
@pytest.mark.usefixtures("untrained")
def test_refused_before_training(params, message):
    with pytest.raises(InvalidInputError, match=message):
        dpsh(**params).fit(X, FEW)


@pytest.mark.slow
@pytest.mark.documents
def test_images():
    """CNN-F from scratch on 300 images of digits; codes by chance have a MAP of 0.1."""
    with np.load(shared_file("mnist.npz")) as mnist:
        rng = np.random.default_rng(0)
        drawn = [rng.permutation(np.flatnonzero(mnist["y"] == digit))[:60] for digit in range(10)]
        train, rest = (
            rng.permutation(np.concatenate([rows[part] for rows in drawn]))
            for part in (slice(30), slice(30, 60))
        )
        pixels, digits = mnist["X"].astype(np.float32) / 255, mnist["y"]
    hasher = DPSH(
        n_bits=24,
        features="cnn-f",
        image_shape=(28, 28, 1),
        input_size=64,
        dropout=0,
        pairwise_loss="balanced",
        eta=0.1,
        rounds=5,
        batch_rows=25,
        learning_rate=1e-4,
        validation=0,
        random_state=0,
    ).fit(pixels[train], digits[train].astype(int))
    encoded = hasher.encode(pixels[rest])
    found = [
        metrics.mean_average_precision(
            encoded[[row]], np.delete(encoded, row, axis=0), np.delete(same, row)[None]
        )
        for row, same in enumerate(digits[rest][:, None] == digits[rest])
    ]
    assert np.mean(found) > 0.5
