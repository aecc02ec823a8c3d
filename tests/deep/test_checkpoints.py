"""A training that was cut off goes on as if it had not been; other files are refused."""

import functools
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL

from pg_hashindex.errors import InvalidInputError, TrainingError
from pg_hashindex.hashers import BGDH, DPSH, HASHERS

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep import checkpoints, learning  # noqa: E402
from pg_hashindex.hashers.deep.checkpoints import Checkpoint  # noqa: E402
from pg_hashindex.hashers.deep.learning import Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import dpsh_loss  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

X, LABELS = clustered()
Y = np.where(np.arange(400) < 100, LABELS, -1)
TAGS = np.eye(10)[np.arange(400) % 10]
IMAGES = {"features": "cnn-f", "image_shape": (4, 3, 1), "input_size": 39, "dropout": 0.5}

KINDS = {
    "dpsh": (DPSH, {}),
    "inductive": (BGDH, {}),
    "transductive": (BGDH, {"variant": "transductive"}),
    "inductive, sgd": (BGDH, {"optimizer": "sgd", "learning_rate": 0.1}),
    "transductive, sgd": (BGDH, {"variant": "transductive", "optimizer": "sgd"}),
}
OTHERS = ("deep-dsh", "dtsh", "hashnet", "adsh", "greedyhash", "csq")


def make(kind, **params):
    method, options = (HASHERS[kind], {}) if kind in OTHERS else KINDS[kind]
    given = {"n_bits": 8, "random_state": 4, "validation": 0.2, "rounds": 9}
    return method(**{**SMALL[method.method], **given, **options, **params})


@functools.cache
def never_interrupted(kind):
    return make(kind).fit(X, Y)


def checksum(hasher):
    return hasher.to_model("m").checksum


@pytest.fixture
def often(monkeypatch):
    """Have the state written after every round."""
    monkeypatch.setattr(learning, "_CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(learning, "_CHECKPOINT_SHARE", 0)


@pytest.fixture
def interrupted(often, monkeypatch):
    """Fit until the state was written so many times, then stop as Ctrl-C does."""

    def fit(hasher, writes, X=X, y=Y, **known):
        write, left = Checkpoint.write, [writes]

        def counted(self, state):
            write(self, state)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "write", counted)
            with pytest.raises(KeyboardInterrupt):
                hasher.fit(X, y, **known)

    return fit


# Training is cut off in one of the 10 pieces of the pre-training, or the 9 rounds after it.
@pytest.mark.parametrize(
    ("kind", "writes"),
    [
        *((kind, n) for kind in ("dpsh", *OTHERS) for n in (1, 7)),
        *((kind, n) for kind in list(KINDS)[1:] for n in (3, 10, 11, 16)),
    ],
)
def test_goes_on_where_it_was_interrupted(kind, writes, interrupted, tmp_path):
    """Bit for bit: weights, moments, draws, the best network so far."""
    file = tmp_path / "c.pt"
    expected = never_interrupted(kind)
    interrupted(make(kind, checkpoint=file), writes)
    resumed = make(kind, checkpoint=str(file)).fit(X, Y)
    assert checksum(resumed) == checksum(expected)
    for name in ("losses", "rounds", "best_round"):
        assert resumed.training_[name] == expected.training_[name]
    assert os.listdir(tmp_path) == ["c.pt"]


@pytest.mark.slow
def test_a_network_with_dropout_goes_on(interrupted, tmp_path):
    file = tmp_path / "c.pt"
    params = {"lam": 0, "supervised_steps": 1, "batch_rows": 8, "rounds": 2, **IMAGES}
    rows, y = X[:40], LABELS[:40]
    expected = make("inductive", **params).fit(rows, y)
    interrupted(make("inductive", checkpoint=file, **params), 1, rows, y)
    assert checksum(make("inductive", checkpoint=file, **params).fit(rows, y)) == checksum(expected)


def test_interrupted_twice(interrupted, tmp_path):
    file = tmp_path / "c.pt"
    for writes in (4, 9):
        interrupted(make("inductive", checkpoint=file), writes)
    found = make("inductive", checkpoint=file).fit(X, Y)
    assert checksum(found) == checksum(never_interrupted("inductive"))


@pytest.mark.parametrize("kind", list(KINDS)[:3])
def test_a_finished_training_is_not_repeated(kind, tmp_path, monkeypatch):
    file = tmp_path / "c.pt"
    expected = make(kind, checkpoint=file).fit(X, Y)
    assert checksum(expected) == checksum(never_interrupted(kind))
    for step in ("_graph_step", "_supervised_step", "_look"):
        monkeypatch.delattr(Trainer, step)
    assert checksum(make(kind, checkpoint=file).fit(X, Y)) == checksum(expected)


def test_a_training_that_ended_early_is_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "_LOOK_ROUNDS", 1)
    file = tmp_path / "c.pt"
    params = {"patience": 1, "rounds": 200, "learning_rate": 0.05, "checkpoint": file}
    expected = make("dpsh", **params).fit(X, Y)
    assert expected.training_["rounds"] == expected.training_["best_round"] + 1 < 200
    again = make("dpsh", **params).fit(X, Y)
    assert checksum(again) == checksum(expected)
    assert again.training_["rounds"] == expected.training_["rounds"]


@pytest.fixture
def finished(tmp_path):
    """Return the file of a training on a graph."""
    file = tmp_path / "c.pt"
    make("inductive", checkpoint=file, rounds=1).fit(X, Y, graph=TAGS)
    return file


def read(file):
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("kind", "params", "data", "differing"),
    [
        ("inductive", {"n_bits": 9}, {}, "n_bits 8 instead of 9;"),
        ("inductive", {"hidden": [32, 8]}, {}, r"hidden \[32\] instead of \[32, 8\];"),
        ("inductive", {"lam": 0.5}, {}, r"lam 0\.1 instead of 0\.5;"),
        ("inductive", {"random_state": 5}, {}, "random_state 4 instead of 5;"),
        ("inductive", {"pairwise_loss": dpsh_loss}, {}, "pairwise_loss dpsh instead of dpsh_loss;"),
        ("inductive", {}, {"X": X + 1}, r"rows \w{16} instead of \w{16};"),
        ("inductive", {}, {"X": X[::-1]}, r"rows \w{16} instead of \w{16};"),
        ("inductive", {}, {"y": np.roll(Y, 1)}, r"labels \w{16} instead of \w{16};"),
        ("inductive", {}, {"graph": 2 * TAGS}, r"graph \w{16} instead of \w{16};"),
        ("inductive", {}, {"graph": None}, r"graph \w{16} instead of \w{16};"),
        ("transductive", {}, {}, "variant inductive instead of transductive;"),
    ],
)
def test_the_file_of_another_training_is_refused(kind, params, data, differing, finished):
    """It says what differs, and stays as it is."""
    before = finished.read_bytes()
    given = {"X": X, "y": Y, "graph": TAGS, **data}
    hasher = make(kind, **{"rounds": 1, **params, "checkpoint": finished})
    with pytest.raises(InvalidInputError, match=rf"another training, with {differing} give anoth"):
        hasher.fit(**given)
    assert finished.read_bytes() == before


def test_the_file_of_another_method_is_refused(finished):
    with pytest.raises(InvalidInputError, match="method bgdh instead of dpsh"):
        make("dpsh", checkpoint=finished, rounds=1).fit(X, Y)


def test_how_training_runs_may_differ(finished):
    """The data in blocks, and labels in another form, are the same training."""
    hasher = make("inductive", checkpoint=finished, rounds=np.int64(1), progress=True, device="cpu")
    one_hot = (Y[:, None] == np.arange(8)).astype(int)
    hasher.fit(lambda: iter(np.split(X.astype(float), 3 * [7])), one_hot, graph=TAGS.tolist())
    assert hasher.training_["rounds"] == 1


class Code:
    """Executed by whoever unpickles it."""

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def refuse(file, match="is not a checkpoint of a training.* give another file, or remove this one"):
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(InvalidInputError, match=match):
        make("inductive", checkpoint=file, rounds=1).fit(X, Y, graph=TAGS)
    if before is not None:
        assert file.read_bytes() == before


@pytest.mark.parametrize("form", [pickle.dumps, "torch", "legacy", "inside"])
def test_code_is_not_executed(form, finished, tmp_path):
    code = Code()
    code.path = str(tmp_path / "executed")
    if form == "inside":
        torch.save(read(finished) | {"state": code}, finished)
    elif isinstance(form, str):
        torch.save(code, finished, _use_new_zipfile_serialization=form == "torch")
    else:
        finished.write_bytes(form(code))
    refuse(finished)
    assert not Path(code.path).exists()


@pytest.mark.parametrize("size", [0, 1, 2, 10, 100, 0.3, 0.6, 0.99, -1])
def test_a_truncated_file_is_refused(size, finished):
    whole = finished.read_bytes()
    length = int(size * len(whole)) if isinstance(size, float) else size
    finished.write_bytes(whole[:length])
    refuse(finished)


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 1000,
        b"PK\x03\x04" + b"\x07" * 500,
        b"\x80\x02]q\x00.",
        b"training: yes\n" * 30,
        struct.pack("<q", 10**15) * 9,
        np.random.default_rng(0).bytes(5000),
    ],
    ids=["zeros", "zip", "pickle", "text", "sizes", "noise"],
)
def test_foreign_files_are_refused(content, tmp_path):
    (tmp_path / "c.pt").write_bytes(content)
    refuse(tmp_path / "c.pt")


def test_other_archives_are_refused(finished, tmp_path):
    np.savez(tmp_path / "c.npz", X=X)
    refuse(tmp_path / "c.npz")
    (tmp_path / "folder").mkdir()
    refuse(tmp_path / "folder")
    for held in ([1, 2], 5, {"state": {}}, {"training": 3, "state": {}}, torch.ones(3)):
        torch.save(held, finished)
        refuse(finished)


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {},
        lambda state: None,
        lambda state: without(state, "rng"),
        lambda state: state | {"rng": "{}"},
        lambda state: state | {"rng": "no json"},
        lambda state: state | {"optimizers": {}},
        lambda state: state | {"network": without(state["network"], "psi.weight")},
        lambda state: state | {"network": state["network"] | {"psi.weight": torch.ones(2)}},
    ],
)
def test_states_of_another_release_are_refused(change, finished):
    """The file names the right training, but holds a state that does not fit it."""
    held = read(finished)
    torch.save(held | {"state": change(held["state"])}, finished)
    refuse(finished)


def test_an_interrupted_write_leaves_the_last_file_whole(often, tmp_path, monkeypatch):
    file = tmp_path / "c.pt"
    save, writes = torch.save, []

    def failing(value, stream):
        writes.append(1)
        if len(writes) == 15:
            stream.write(b"half of")
            raise OSError(28, "No space left on device")
        save(value, stream)

    monkeypatch.setattr(checkpoints.torch, "save", failing)
    with pytest.raises(OSError, match="No space left"):
        make("inductive", checkpoint=file).fit(X, Y)
    assert os.listdir(tmp_path) == ["c.pt"]
    assert (read(file)["state"]["pretrained"], read(file)["state"]["round"]) == (20, 4)
    monkeypatch.undo()
    found = make("inductive", checkpoint=file).fit(X, Y)
    assert checksum(found) == checksum(never_interrupted("inductive"))


broken = []


def sometimes(u, similar):
    """Be no number from some call on, as long as ``broken`` says so."""
    if u.requires_grad and broken:
        broken[0] -= 1
        if broken[0] < 0:
            return dpsh_loss(u, similar) * float("nan")
    return dpsh_loss(u, similar)


@pytest.mark.usefixtures("often")
def test_a_nan_loss_keeps_the_last_good_state(tmp_path):
    """From which the same training goes on, if what broke it is mended."""
    file = tmp_path / "c.pt"
    broken[:] = [35]
    with pytest.raises(TrainingError, match="became nan in round 4 of 9"):
        make("dpsh", checkpoint=file, pairwise_loss=sometimes).fit(X, Y)
    broken.clear()
    state = read(file)["state"]
    assert state["round"] == 3
    assert all(torch.isfinite(value).all() for value in state["network"].values())
    found = make("dpsh", checkpoint=file, pairwise_loss=sometimes).fit(X, Y)
    assert checksum(found) == checksum(make("dpsh", pairwise_loss=sometimes).fit(X, Y))


last = []


def steep_at_last(u, similar):
    """Have the very last step of round 3 take the weights beyond numbers; no loss shows it."""
    last.append(1)
    return dpsh_loss(u, similar) * (1e30 if len(last) == 30 else 1)


@pytest.mark.usefixtures("often")
def test_nan_weights_are_not_written(tmp_path):
    file = tmp_path / "c.pt"
    params = {"optimizer": "sgd", "learning_rate": 1e10, "validation": 0}
    last.clear()
    with pytest.raises(TrainingError, match=r"(after|in) round \d"):
        make("dpsh", checkpoint=file, pairwise_loss=steep_at_last, **params).fit(X, Y)
    if file.exists():
        assert all(torch.isfinite(v).all() for v in read(file)["state"]["network"].values())
