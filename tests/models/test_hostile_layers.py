"""Layers, models and files of models that somebody made up: refused with a HashIndexError."""

import io
import json
import zipfile

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models.layers import Layer, affine, rbf
from pg_hashindex.models.model import Model

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("dimension", [0, -1, 16_001, 2.0, 2.5])
def test_dimensions_are_refused(dimension):
    with pytest.raises(InvalidInputError, match="is not in 1 to 16000"):
        Model("m", "byhand", dimension, [Layer("relu")])


def test_dimensions_of_numpy_are_as_good():
    assert Model("m", "byhand", np.int64(2), [affine(np.eye(2))]).n_bits == 2


def written(model, members=None, compression=zipfile.ZIP_STORED, **changes):
    """The file of a model with a header and members of somebody else."""
    with np.load(io.BytesIO(model.to_bytes())) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | changes
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            file.writestr(f"{name}.npy", (members or {}).get(name, member.getvalue()))
    return buffer.getvalue()


@pytest.fixture
def model():
    return Model("m", "sgh", 3, [rbf(np.eye(3)[:2], 0.5), affine(np.eye(2))], bit_weights=[1, 2])


def npy(descr, shape, data=b""):
    """An array as NumPy stores it, of a header that says what it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"no array",
        npy("'<f4'", (10**12, 3)),
        npy("'<f4'", (2, 3)),
        npy("'<f4'", (-2, 3), bytes(24)),
        npy("'|O'", (2, 3), b"cos\nsystem\n(S'true'\ntR."),
        npy("'<U3'", (2, 3), bytes(72)),
        npy("'<c16'", (2, 3), bytes(96)),
        npy("[('a', '<f4')]", (2, 3), bytes(24)),
        npy("'<f8'", (2, 3), np.full((2, 3), 1e300).tobytes()),
        npy("'<f4'", (2, 3), np.full((2, 3), NAN, np.float32).tobytes()),
        npy("'<f4'", (3, 3), bytes(36)),
        npy("'<f4'", "(2, 3), 'x': [", bytes(24)),
        npy("'<f4'", "(__import__('os').abort(),)", bytes(24)),
    ],
    ids=range(14),
)
def test_arrays_of_files_are_refused(model, member):
    with pytest.raises(InvalidInputError):
        Model.from_bytes(written(model, {"weights_0": member}))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": [{"kind": "relu", "scale": None}] * 100_000},
        {"layers": [{"kind": "affine"}]},
        {"layers": [None]},
        {"layers": {"kind": "relu"}},
        {"layers": None},
        {"dimension": 1e400},
        {"dimension": 10**400},
        {"dimension": [3]},
        {"name": 7},
        {"name": "\x00"},
        {"metric": ["l2"]},
        {"parameters": 7},
        {"training": "x"},
        {"checksum": None},
        {"format": "1"},
        {"network": {"kind": "rows"}},
        {"network": 7},
        {"profile": 7},
        {"profile": {}},
        {"profile": {"rows": 0, "edges": [], "counts": [], "ones": []}},
        {"profile": {"rows": 1, "edges": [[0] * 9], "counts": [[1] + [0] * 9], "ones": [1]}},
        {
            "profile": {
                "rows": 1,
                "edges": [[NAN] * 9] * 2,
                "counts": [[1] + [0] * 9] * 2,
                "ones": [1] * 2,
            }
        },
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_headers_of_files_are_refused(model, changes):
    with pytest.raises(InvalidInputError):
        Model.from_bytes(written(model, **changes))


@pytest.mark.parametrize("scale", [0, -1, NAN, INFINITE, 10**400, "x", None, [1], {}])
def test_widths_in_files_are_refused(model, scale):
    layers = [{"kind": "rbf", "scale": scale}, {"kind": "affine", "scale": None}]
    with pytest.raises(InvalidInputError):
        Model.from_bytes(written(model, layers=layers))


def test_a_header_nested_too_deep_is_refused(model):
    deep = b"[" * 100_000
    member = io.BytesIO()
    np.save(member, np.frombuffer(deep, dtype=np.uint8))
    with pytest.raises(InvalidInputError, match="not a model file"):
        Model.from_bytes(written(model, {"header": member.getvalue()}))
