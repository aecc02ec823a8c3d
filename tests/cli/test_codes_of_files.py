"""``model encode`` and ``model import`` with files of arrays and of Faiss."""

import numpy as np
import pytest
import scipy.io

from pg_hashindex.hashers import LSH
from pg_hashindex.models.model import Model


@pytest.fixture
def files(tmp_path):
    X = np.random.default_rng(2).standard_normal((60, 9)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    scipy.io.savemat(tmp_path / "rows.mat", {"fea": X, "other": X[:3]})
    return tmp_path, X


@pytest.fixture
def own(on, files):
    """A model of 12 bits, stored from a file under a name of its own."""
    folder, X = files
    model = LSH(n_bits=12, random_state=0).fit(X).to_model("lsh")
    (folder / "m").write_bytes(model.to_bytes())
    assert on("model", "import", folder / "m", "--name", "own").stderr == "imported model own:1\n"
    return model


def test_codes_of_a_file(on, files, own):
    folder, X = files
    target = folder / "codes.npy"
    encode = ("model", "encode", "own")
    on(*encode, "--from", folder / "rows.npy", "--to", target)
    codes = np.load(target)
    assert np.array_equal(codes, own.encode(X))
    assert (codes.shape, codes.dtype) == ((60, 2), np.uint8)
    refused = on(*encode, "--from", folder / "rows.npy", "--to", target, code=3)
    assert refused.stderr == f"Error: {target} is there already; give --force to replace it\n"
    named = ("--from", folder / "rows.mat", "--column", "other", "--to", target, "--force")
    said = on(*encode, *named).stderr
    assert said.endswith(f"wrote {target}, 0 kB\n")
    assert np.array_equal(np.load(target), own.encode(X[:3]))


def test_a_full_disk_leaves_no_half_of_codes(on, files, own, full_disk):
    folder, _ = files
    (folder / "codes.npy").write_bytes(b"before")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    target = folder / "codes.npy"
    arguments = ("model", "encode", "own", "--from", folder / "rows.npy", "--to", target)
    said = on(*arguments, "--force", code=3).stderr
    assert said == f"Error: cannot write {target}: No space left on device\n"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_refuses(on, files, own):
    folder, X = files
    np.save(folder / "few.npy", X[:, :4])
    rows, codes = folder / "rows.npy", folder / "codes.npy"
    for arguments, code, message in (
        (("own", "--from", rows, "--to", folder / "codes.bin"), 2, "must end in .npy or .faiss"),
        (("none", "--from", rows, "--to", codes), 3, 'model "none" does not exist'),
        (("own", "--from", folder / "none.npy", "--to", codes), 3, "No such file"),
        (("own", "--from", folder / "rows.mat", "--to", codes), 3, "no array X in .*fea, other"),
        (("own", "--from", folder / "few.npy", "--to", codes), 3, "4 dimensions, expected 9"),
        (("own", "--from", rows, "--to", folder / "no" / "c.npy"), 3, "cannot write .*c.npy: No"),
    ):
        refused = on("model", "encode", *arguments, code=code)
        (line,) = [line for line in refused.stderr.splitlines() if line.startswith("Error: ")]
        assert pytest.RaisesExc(ValueError, match=message).matches(ValueError(line)), line
        assert not codes.exists()
    refused = on("model", "import", folder / "m", "--metric", "l2", code=2)
    assert "--metric is for files of Faiss" in refused.stderr


def test_warns_where_hamming_distances_do_not_rank(on, files):
    folder, X = files
    layers = LSH(n_bits=8, random_state=0).fit(X).layers_
    model = Model("weighted", "byhand", X.shape[1], layers, bit_weights=np.arange(8))
    (folder / "weighted").write_bytes(model.to_bytes())
    on("model", "import", folder / "weighted")
    said = on(
        "model", "encode", "weighted", "--from", folder / "rows.npy", "--to", folder / "c.npy"
    )
    assert (
        "warning: model weighted has weights of bits, so Hamming distances of its codes"
        in said.stderr
    )
    assert np.array_equal(np.load(folder / "c.npy"), model.encode(X))


def test_faiss_and_back(on, files):
    """A rotation that Faiss learned gives an index's codes, which Faiss searches as its own."""
    faiss = pytest.importorskip("faiss", reason="Faiss is not installed (extra faiss)")
    folder, X = files
    index = faiss.index_factory(9, "ITQ8,LSH")
    index.train(X)
    index.add(X)
    faiss.write_index(index, str(folder / "rotation.faiss"))
    said = on("model", "import", folder / "rotation.faiss", "--metric", "cosine").stderr
    assert said == "imported model rotation:1\n"
    shown = on("model", "show", "rotation").stdout
    assert "shift > normalize > affine > affine" in shown
    assert "cosine" in shown
    target = folder / "codes.faiss"
    on("model", "encode", "rotation", "--from", folder / "rows.npy", "--to", target)
    on("model", "encode", "rotation", "--from", folder / "rows.npy", "--to", folder / "q.npy")
    distances, _ = faiss.read_index_binary(str(target)).search(np.load(folder / "q.npy"), 60)
    expected, _ = index.search(X, 60)
    assert np.array_equal(distances, expected)
    turned = np.packbits(np.unpackbits(index.sa_encode(X), axis=1, bitorder="little"), axis=1)
    assert np.array_equal(np.load(folder / "q.npy"), turned)


def test_the_file_of_a_model_is_read_as_before(on, own, files):
    folder, X = files
    assert "is not a name" not in on("model", "import", folder / "m").stderr
    on("model", "export", "lsh", folder / "again")
    assert np.array_equal(
        Model.from_bytes((folder / "again").read_bytes()).encode(X), own.encode(X)
    )


def test_trains_on_an_array_of_matlab(on, files):
    folder, X = files
    options = ("--method", "lsh", "--bits", 6, "--force")
    refused = on("model", "train", "t", "--from", folder / "rows.mat", *options, code=3)
    assert "no array X in" in refused.stderr
    on("model", "train", "t", "--from", folder / "rows.mat", "--column", "fea", *options)
    on("model", "train", "u", "--from", folder / "rows.npy", *options)
    codes = []
    for name in ("t", "u"):
        on("model", "export", name, folder / name)
        codes.append(Model.from_bytes((folder / name).read_bytes()).encode(X))
    assert np.array_equal(*codes)
