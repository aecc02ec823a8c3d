"""Training on a GPU, where there is one: the same methods, up to rounding."""

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL

from pg_hashindex.hashers import BGDH, make_hasher
from pg_hashindex.models import codes

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from pg_hashindex.hashers.deep import learning  # noqa: E402
from pg_hashindex.hashers.deep.checkpoints import Checkpoint  # noqa: E402

X, LABELS = clustered()
Y = np.where(np.arange(400) < 100, LABELS, -1)
KINDS = {
    "dpsh": {"lam": 0},
    "inductive": {},
    "transductive": {"variant": "transductive", "batch_contexts": 1024},
    "cnn-f": {
        "features": "cnn-f",
        "image_shape": (4, 3, 1),
        "input_size": 39,
        "learning_rate": 1e-4,
        "rounds": 5,
    },
}
each_kind = pytest.mark.parametrize("kind", list(KINDS))


def fit(kind, **params):
    given = {**SMALL["bgdh"], "n_bits": 12, "random_state": 1, "validation": 0.1, **KINDS[kind]}
    return BGDH(**{**given, **params}).fit(X, Y)


def apart(hasher):
    """Return how much farther rows of other classes are than those of the same."""
    encoded = hasher.encode(X)
    distances = codes.hamming_distances(encoded, encoded)
    same = LABELS[:, None] == LABELS
    return distances[~same].mean() - distances[same].mean()


@each_kind
def test_a_gpu_is_found_and_learns_as_much(kind):
    """Its models are evaluated without it."""
    hasher = fit(kind, device="auto")
    assert hasher.training_["device"].startswith("cuda")
    assert apart(hasher) > 0.8 * apart(fit(kind, device="cpu"))


@each_kind
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_training_goes_on_from_a_gpu(kind, device, tmp_path, monkeypatch):
    """There, or where there is none."""
    file = tmp_path / "c.pt"
    write = Checkpoint.write

    def interrupted(self, state):
        write(self, state)
        if state["round"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learning, "_CHECKPOINT_SECONDS", 0)
        patch.setattr(learning, "_CHECKPOINT_SHARE", 0)
        patch.setattr(Checkpoint, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(kind, device="cuda", checkpoint=file)
    hasher = fit(kind, device=device, checkpoint=file)
    assert hasher.training_["device"].startswith(device)
    assert apart(hasher) > 0.8 * apart(fit(kind, device="cuda"))


@pytest.mark.parametrize("name", ["deep-dsh", "dtsh", "hashnet", "adsh", "greedyhash", "csq"])
def test_other_methods_learn_as_much(name):
    given = {**SMALL[name], "n_bits": 12, "random_state": 1}
    on_gpu, on_cpu = (
        make_hasher(name, device=device, **given).fit(X, Y) for device in ("cuda", "cpu")
    )
    assert apart(on_gpu) > 0.8 * apart(on_cpu)
