"""Files of NumPy, MATLAB and TEXMEX, written by NumPy, SciPy or by hand."""

import os
import struct
import sys
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.training.array_files import ArrayFile, find_named
from pg_hashindex.training.files import load_sample

ROWS = np.arange(12.0, dtype=np.float32).reshape(4, 3) / 8


def texmex(path, rows, form):
    path.write_bytes(b"".join(struct.pack(f"<i{len(row)}{form}", len(row), *row) for row in rows))
    return path


def mat(path, **arrays):
    scipy.io.savemat(path, arrays)
    return path


@pytest.mark.parametrize(
    ("suffix", "form", "rows", "kind"),
    [
        (".fvecs", "f", [[0.5, -2.0, 3.0], [1.0, 0.25, 8.0]], np.float32),
        (".bvecs", "B", [[0, 255], [7, 8], [1, 2]], np.uint8),
        (".ivecs", "i", [[-1], [1 << 30]], np.int32),
        (".FVECS", "f", [[0.5]], np.float32),
    ],
)
def test_texmex(tmp_path, suffix, form, rows, kind):
    file = ArrayFile(texmex(tmp_path / f"rows{suffix}", rows, form))
    array = file.read_vectors()
    assert array.tolist() == rows
    assert array.dtype == kind
    assert file.read("X").tolist() == rows
    assert find_named([], str(file.path))[0].tolist() == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no whole row"),
        (b"\x02\x00", "no whole row"),
        (
            struct.pack("<i2f", 2, 1, 1)[:-1],
            "a row of 2 dimensions has 12 bytes, and 11 bytes are 0",
        ),
        (struct.pack("<i2fi", 2, 1, 1, 2), "16 bytes are 1 rows and 4 bytes"),
        (struct.pack("<if", 0, 1), "a first row of 0 dimensions"),
        (struct.pack("<if", -1, 1), "a first row of -1 dimensions"),
        (struct.pack("<if", 1 << 30, 1), "rows have 1 to 16000 dimensions"),
        (struct.pack("<i2fi2f", 2, 1, 1, 1, 1, 1), "row 1 has 1 dimensions, the first one has 2"),
    ],
)
def test_texmex_that_is_damaged(tmp_path, content, message):
    path = tmp_path / "rows.fvecs"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        load_sample(path)


def test_matlab_has_no_lists_and_no_whole_numbers(tmp_path):
    """Labels and row numbers come as columns of doubles, text as cells or padded letters."""
    path = mat(
        tmp_path / "d.mat",
        fea=ROWS.astype(float),
        gnd=np.array([[3.0], [1.0], [-1.0], [3.0]]),
        numbers=np.array([[1, 2]], np.uint16),
        words=np.array(["a", "bcd", "", "a"], dtype=object),
        letters=np.array(["a", "bcd", "", "a"]),
        tags=scipy.sparse.csc_array(np.eye(4)),
        one=scipy.sparse.csc_array([[1.0], [0.0]]),
        halves=np.array([[0.5, 1]]),
        mask=np.array([True, False]),
    )
    file = ArrayFile(path)
    np.testing.assert_array_equal(file.read_vectors("fea"), ROWS)
    assert file.read_flat("gnd").tolist() == [3, 1, -1, 3]
    assert file.read_flat("gnd").dtype == np.int64
    assert file.read("gnd").shape == (4, 1)
    assert file.read_flat("numbers").tolist() == [1, 2]
    assert file.read_flat("words").tolist() == ["a", "bcd", "", "a"]
    assert file.read_flat("letters").tolist() == ["a", "bcd", "", "a"]
    assert file.read_flat("tags").toarray().tolist() == np.eye(4).tolist()
    assert file.read_flat("tags").dtype == np.int64
    assert file.read_flat("one").tolist() == [1, 0]
    assert file.read_flat("halves").tolist() == [0.5, 1]
    assert file.read_flat("mask").tolist() == [True, False]
    assert file.read_flat("mask").dtype == np.bool_
    sample = load_sample(path, vectors="fea", labels="gnd")
    assert sample.y.tolist() == [3, 1, -1, 3]
    named = load_sample(path, vectors="fea", labels="words")
    assert named.y.tolist() == [0, 1, -1, 0]
    known = load_sample(path, vectors="fea", graph="tags")
    assert known.graph.toarray().tolist() == np.eye(4).tolist()


def test_vectors_are_the_only_array_of_rows_and_columns(tmp_path):
    path = mat(tmp_path / "d.mat", fea=ROWS, gnd=np.ones((4, 1)))
    np.testing.assert_array_equal(load_sample(path).X, ROWS)
    path = mat(tmp_path / "two.mat", fea=ROWS, other=ROWS)
    with pytest.raises(InvalidInputError, match="no array X in .*it holds fea, other.*be named"):
        load_sample(path)
    np.testing.assert_array_equal(load_sample(path, vectors="other").X, ROWS)


def test_files_of_matlab_that_are_refused(tmp_path):
    good = mat(tmp_path / "good.mat", X=ROWS, s={"a": 1}, y=np.ones((3, 1)))
    (tmp_path / "cut.mat").write_bytes(good.read_bytes()[:-40])
    (tmp_path / "empty.mat").touch()
    # The header that MATLAB writes before HDF5.
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "new.mat").write_bytes(header.ljust(512, b"\x00") + b"\x89HDF\r\n\x1a\n")
    for name, options, message in (
        ("good.mat", {"labels": "gnd"}, r"no array 'gnd' in .*good.mat \(it holds X, s, y\)"),
        ("good.mat", {"vectors": "fea"}, "no array 'fea' in"),
        ("good.mat", {"labels": "s"}, "s of .* is neither of numbers nor of text"),
        ("good.mat", {"labels": "y"}, "there are 3 labels for 4 rows"),
        ("cut.mat", {}, "cannot read arrays from .*cut.mat"),
        ("empty.mat", {}, "cannot read arrays from .*empty.mat"),
        ("none.mat", {}, "cannot read arrays from .*No such file"),
        ("new.mat", {}, r"version 7.3 \(HDF5\); save it in MATLAB .* '-v7'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            load_sample(tmp_path / name, **options)


def test_an_array_may_stand_in_a_file_of_its_own(tmp_path):
    rows = texmex(tmp_path / "rows.fvecs", ROWS, "f")
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "two.npz", a=[1], b=[2])
    pairs = mat(tmp_path / "pairs.mat", p=np.array([[0.0, 1.0, -1.0]]))
    sample = load_sample(rows, labels=str(tmp_path / "y.npy"))
    assert sample.y.tolist() == [0, 1, 0, 1]
    assert load_sample(rows, pairs=str(pairs)).pairs.tolist() == [[0, 1, -1]]
    for name, message in (
        ("y", r"no array 'y' in .*rows.fvecs \(a file of one array\); .* a file of one array"),
        (str(tmp_path / "none.npy"), "cannot read arrays from .*none.npy"),
        (str(tmp_path / "two.npz"), r"two.npz \(it holds a, b\) is to be a file of one array"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            load_sample(rows, labels=name)


def test_fbin(tmp_path):
    rows = np.arange(6, dtype="<f4").reshape(3, 2)
    path = tmp_path / "base.fbin"
    path.write_bytes(np.array(rows.shape, "<i4").tobytes() + rows.tobytes())
    assert load_sample(path).X.tolist() == rows.tolist()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInputError, match="3 rows of 2 dimensions, 32 bytes, and it has 31"):
        load_sample(path)


@pytest.mark.parametrize(
    "content", [b"", b"1.0,2.0\n", b"PAR1", b"\x89HDF\r\n\x1a\n", b"IxF2", b"[[1, 2]]"]
)
def test_files_of_other_kinds(tmp_path, content):
    path = tmp_path / "x.data"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"cannot read arrays from .*: it is none of "):
        load_sample(path)


def test_what_is_not_a_file_or_not_an_array(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w") as archive:
        archive.writestr("X.npy", b"")
    for name, message in (("pipe", "not a regular file"), ("empty.npz", "X of .* is not an array")):
        with pytest.raises(InvalidInputError, match=message):
            load_sample(tmp_path / name)


def test_hdf5(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "glove.hdf5"
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = ROWS, ROWS[:2]
        file.create_group("others")
        file.create_dataset("zeros", (1 << 20, 256), "f4", compression="gzip")
    assert load_sample(path).X.tolist() == ROWS.tolist()
    assert load_sample(path, vectors="test").X.tolist() == ROWS[:2].tolist()
    for name, message in (
        ("others", "others of .* is not an array"),
        ("none", "no array 'none' in .*it holds others, test, train, zeros"),
        ("zeros", "would take 1,074 MB"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            load_sample(path, vectors=name)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(InvalidInputError, match="cannot read arrays from .*glove.hdf5"):
        load_sample(path)


def test_hdf5_reads_no_other_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    X = np.ones((4, 3), "f4")
    (tmp_path / "secret.bin").write_bytes(X.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = X
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        outside = [(str(tmp_path / "secret.bin"), 0, X.nbytes)]
        file.create_dataset("outside", X.shape, X.dtype, external=outside)
        layout = h5py.VirtualLayout(X.shape, X.dtype)
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", X.shape)
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "X")
        file["soft"] = h5py.SoftLink("/outside")
        file["train"], file["test"] = X, h5py.ExternalLink(str(tmp_path / "other.h5"), "X")
    for name in ("outside", "virtual"):
        with pytest.raises(InvalidInputError, match="keeps its numbers in other files"):
            ArrayFile(path).read(name)
    for name in ("link", "soft"):
        with pytest.raises(InvalidInputError, match=f"{name} of .* is a link"):
            ArrayFile(path).read(name)
    # Queries are not those of train instead.
    with pytest.raises(InvalidInputError, match="test of .* is a link"):
        ArrayFile(path).read_vectors(usual=("test", "train"))
    assert ArrayFile(path).read_vectors().shape == X.shape


def test_hdf5_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(InvalidInputError, match="x.h5 needs h5py: pip install h5py"):
        load_sample(tmp_path / "x.h5")


@pytest.mark.parametrize("kind", ["npz", "mat"])
def test_a_small_file_of_a_large_array(tmp_path, kind):
    """It is refused by its size before it is unpacked."""
    path, zeros = tmp_path / f"rows.{kind}", np.zeros((1 << 18, 300), np.float32)
    if kind == "npz":
        np.savez_compressed(path, X=zeros)
    else:
        scipy.io.savemat(path, {"X": zeros}, do_compression=True)
    with pytest.raises(InvalidInputError, match="X of .* would take 315 MB of memory"):
        load_sample(path)


def test_vectors_beside_arrays_of_other_kinds(tmp_path):
    path = tmp_path / "mixed.npz"
    names = np.array(["a", None], dtype=object)
    np.savez(path, names=names, emb=np.ones((2, 3), np.float32))
    assert ArrayFile(path).read_vectors().shape == (2, 3)
    np.savez(path, names=names)
    with pytest.raises(InvalidInputError, match="cannot read arrays"):
        ArrayFile(path).read_vectors()
