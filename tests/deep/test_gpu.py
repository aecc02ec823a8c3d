"""Training on a GPU, where there is one: the same methods, up to rounding."""

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL

from pg_hashindex.hashers import BGDH, DeepDSH
from pg_hashindex.models import codes

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

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


def test_deep_dsh_learns_as_much():
    given = {**SMALL["deep-dsh"], "n_bits": 12, "random_state": 1}
    on_gpu, on_cpu = (DeepDSH(device=device, **given).fit(X, Y) for device in ("cuda", "cpu"))
    assert apart(on_gpu) > 0.8 * apart(on_cpu)
