import os
import pickle

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError

torch = pytest.importorskip("torch")

from pg_hashindex.models.weight_files import read_weights  # noqa: E402

SHAPES = {"conv.weight": (4, 3, 2, 2), "conv.bias": (4,), "full.weight": (5, 4), "mean": (2,)}


def weights():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def write(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    return path


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("name", ["w.npz", "w.pt", "w.pth"])
def test_reads_what_was_written(name, tmp_path):
    path = write(tmp_path / name, {n: a.astype(np.float64) for n, a in weights().items()})
    found = read_weights(path, SHAPES)
    assert same(found, weights())
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


def test_reads_halves_of_torch(tmp_path):
    half = {"conv.bias": torch.tensor([1.5, 2.0], dtype=torch.bfloat16)}
    torch.save(half, tmp_path / "w.pt")
    assert read_weights(tmp_path / "w.pt", {"conv.bias": (2,)})["conv.bias"].tolist() == [1.5, 2]


@pytest.mark.parametrize("name", ["w.npz", "w.pt"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"conv.weight": np.zeros((2, 2, 3, 4))},
            r"conv\.weight has shape \(2, 2, 3, 4\), must be \(4, 3, 2, 2\), out x in x height x w",
        ),
        ({"conv.bias": None}, r"network: conv\.bias of shape \(4,\) is missing$"),
        ({"conv.bias": np.array([0, 1, 2, np.nan])}, r"conv\.bias holds NaN"),
        ({"conv.bias": np.full(4, 1e300)}, r"conv\.bias holds .* too large"),
        ({"conv.bias": np.zeros(4, dtype=int)}, r"conv\.bias is of type int64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message, name, tmp_path):
    arrays = {n: a for n, a in (weights() | change).items() if a is not None}
    path = write(tmp_path / name, arrays)
    with pytest.raises(InvalidInputError, match=f"{name}.*{message}"):
        read_weights(path, SHAPES)


def test_arrays_of_other_names_are_refused(tmp_path):
    others = {f"other_{number}": np.zeros(1) for number in range(10)}
    path = write(tmp_path / "w.npz", weights() | others)
    with pytest.raises(
        InvalidInputError, match="not of this network: other_0, .*other_7 and 2 mor"
    ):
        read_weights(path, SHAPES)


def test_optional_arrays_may_be_missing_together(tmp_path):
    arrays = weights()
    del arrays["mean"]
    path = write(tmp_path / "w.npz", arrays)
    assert same(read_weights(path, SHAPES, optional=["mean"]), arrays)
    with pytest.raises(InvalidInputError, match=r"mean of shape \(2,\) is missing"):
        read_weights(path, SHAPES, optional=["mean", "conv.bias"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.npz", None, "No such file"),
        ("w.pt", None, "No such file"),
        ("w.npz", b"", "No data left"),
        ("w.npz", b"PK\x03\x04 damaged", "zip"),
        ("w.pt", b"", "empty or cut off"),
        ("w.pt", b"PK\x03\x04 damaged", "not a ZIP archive"),
        ("w.mat", b"", r"use an \.npz, \.pt or \.pth file"),
    ],
)
def test_unreadable_files_are_refused(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"cannot read weights from .*{name}: .*{message}"):
        read_weights(tmp_path / name, SHAPES)


def test_a_file_cut_short_is_refused(tmp_path):
    for name in ("w.npz", "w.pt"):
        path = write(tmp_path / name, weights())
        whole = path.read_bytes()
        for end in range(1, len(whole), 97):
            path.write_bytes(whole[:end])
            with pytest.raises(InvalidInputError, match="cannot read weights"):
                read_weights(path, SHAPES)


def test_files_without_named_arrays_are_refused(tmp_path):
    for content in (torch.zeros(3), {"conv.bias": 1.0}, {0: torch.zeros(2)}):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(InvalidInputError, match=r"w\.pt holds no state dict"):
            read_weights(tmp_path / "w.pt", SHAPES)
    with (tmp_path / "w.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InvalidInputError, match=r"w\.npz is a single array"):
        read_weights(tmp_path / "w.npz", SHAPES)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("name", ["plain.npz", "plain.pt", "entry.npz", "whole.pt", "entry.pt"])
def test_nothing_in_a_file_is_executed(name, tmp_path):
    sprung, path = tmp_path / "sprung", tmp_path / name
    arrays = weights()
    if name.startswith("plain"):
        path.write_bytes(pickle.dumps(Trap(sprung)))
    elif name == "entry.npz":
        np.savez(path, **arrays | {"conv.bias": np.array([Trap(sprung)])})
    else:
        torch.save(Trap(sprung) if name == "whole.pt" else arrays | {"mean": Trap(sprung)}, path)
    with pytest.raises(InvalidInputError, match=f"{name}: .*(something other than weights|pickle)"):
        read_weights(path, SHAPES)
    assert not sprung.exists()
