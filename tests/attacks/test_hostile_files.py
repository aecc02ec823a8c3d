"""Files of vectors and of models, cut short or with a byte changed: read, or refused."""

import io
import json

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from pg_hashindex.cli import main

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.models.model import Model
from pg_hashindex.training.files import load_sample


def saved(kind):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    buffer = io.BytesIO()
    if kind == "npy":
        np.save(buffer, rows)
    elif kind == "npz":
        np.savez(buffer, X=rows, y=np.array([0, 1, 0, -1]))
    elif kind == "mat":
        scipy.io.savemat(buffer, {"X": rows, "y": [0, 1, 0, -1]}, do_compression=True)
    elif kind == "fvecs":
        lengths = np.full((4, 1), 3, np.int32).view(np.float32)
        buffer.write(np.hstack([lengths, rows]).tobytes())
    else:
        np.savez_compressed(buffer, X=rows, y=np.array(["a", "b", "", "a"]))
    return buffer.getvalue()


KINDS = ("npy", "npz", "compressed", "mat", "fvecs")


def read(path, data, kind):
    """Whether a file of this can be read; anything but our own error is a failure."""
    path.write_bytes(data)
    try:
        sample = load_sample(path, labels=None if kind in ("npy", "fvecs") else "y")
    except InvalidInputError:
        return False
    assert sample.X.ndim == 2
    assert np.isfinite(sample.X).all()
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header")
@pytest.mark.filterwarnings("ignore::scipy.io.matlab.MatReadWarning")
def test_vectors_with_a_byte_changed(tmp_path, kind):
    data, path = saved(kind), tmp_path / f"rows.{kind}"
    assert read(path, data, kind)
    refused = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= (0x01, 0x20, 0xFF)[place % 3]
        refused += not read(path, bytes(damaged), kind)
    assert refused > len(data) / 10


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_cut_short(tmp_path, kind):
    data, path = saved(kind), tmp_path / f"rows.{kind}"
    for length in range(len(data)):
        # Rows that are whole are a file too.
        whole = kind == "fvecs" and length > 0 and length % 16 == 0
        assert read(path, data[:length], kind) == whole


@pytest.fixture
def model_file():
    rows = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    return LSH(n_bits=6).fit(rows).to_model("m").to_bytes()


@pytest.mark.parametrize("place", [0, 30, 200, -30])
def test_damaged_models_are_not_imported(tmp_path, model_file, place):
    """And the command line says so in a line, before it connects to anything."""
    damaged = bytearray(model_file)
    damaged[place] ^= 0xFF
    for name, data in (("damaged", bytes(damaged)), ("cut", model_file[:place])):
        path = tmp_path / name
        path.write_bytes(data)
        result = CliRunner().invoke(
            main, ["model", "import", str(path), "--database-url", "host=/nowhere"]
        )
        assert result.exit_code == 3
        assert isinstance(result.exception, SystemExit)
        assert result.output.startswith("Error: ")
        assert "connection" not in result.output


@pytest.mark.parametrize("method", [5, None, ["lsh"], {"a": 1}])
def test_a_model_whose_method_is_no_name(method):
    rows = np.random.default_rng(1).standard_normal((30, 8)).astype(np.float32)
    data = LSH(n_bits=12, random_state=0).fit(rows).to_model("lsh").to_bytes()
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | {"method": method}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    with pytest.raises(InvalidInputError, match="is not the name of a method"):
        Model.from_bytes(buffer.getvalue())
