import io
import json

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models.layers import affine, rbf, shift
from pg_hashindex.models.model import Model


@pytest.fixture
def model():
    layers = [rbf(np.arange(6.0).reshape(2, 3), 0.5), shift(np.ones(2)), affine(np.eye(2))]
    return Model("packages", "sgh", 3, layers, "cosine", {"n_bits": 2}, {"rows": 9})


def rewritten(model, **changes):
    with np.load(io.BytesIO(model.to_bytes())) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | changes
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_any_damaged_byte_is_noticed_or_harmless(model):
    data = model.to_bytes()
    refused = 0
    for place in range(len(data)):
        for mask in (0x01, 0x08, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= mask
            try:
                again = Model.from_bytes(bytes(damaged))
            except InvalidInputError:
                refused += 1
            else:
                # Dates and the like, which are not part of the model.
                assert again.checksum == model.checksum
                assert (again.name, again.parameters) == (model.name, model.parameters)
    assert refused > 2 * len(data)


def test_cut_files_are_refused(model):
    data = model.to_bytes()
    for length in range(len(data)):
        with pytest.raises(InvalidInputError):
            Model.from_bytes(data[:length])


@pytest.mark.parametrize("data", [b"", b"no model", b"\x93NUMPY\x01\x00", b"PK\x03\x04"])
def test_other_files_are_refused(data):
    with pytest.raises(InvalidInputError, match="not a model file"):
        Model.from_bytes(data)


def test_pickles_are_not_opened():
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{"format": 1}], dtype=object))
    with pytest.raises(InvalidInputError, match="not a model file"):
        Model.from_bytes(buffer.getvalue())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2, this release reads 1; upgrade"),
        ({"cuts": []}, "cuts must be one or more finite rising numbers"),
        # The codes of another model.
        ({"cuts": [0.5]}, "damaged: its checksum is"),
        ({"checksum": "0" * 64}, "damaged: its checksum is"),
        ({"dimension": 4}, "takes 3 dimensions, got 4"),
        ({"name": "a:b"}, "cannot name a model"),
        ({"metric": "l3"}, "metric 'l3' is unknown"),
        ({"layers": []}, "got 0"),
        ({"layers": 7}, "not a model file"),
        ({"dimension": "x"}, "not a model file"),
    ],
)
def test_wrong_headers_are_refused(model, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        Model.from_bytes(rewritten(model, **changes))


def test_equal_models_have_equal_checksums(model):
    same = Model("other name", "sgh", 3, model.layers)
    assert same.checksum == model.checksum
    moved = [*model.layers[:2], affine(np.eye(2)[::-1])]
    assert Model("packages", "sgh", 3, moved).checksum != model.checksum
