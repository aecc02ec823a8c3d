"""A model may keep the codes that training gave to its rows; an index hashes all rows.

The learned codes are those of a hasher that is fitted here beside `train`, on the same rows.
"""

from dataclasses import replace

import numpy as np
import pytest
from fixtures.health import findings
from fixtures.indexes import create_index
from fixtures.known import code_texts, stored_codes

from pg_hashindex import store
from pg_hashindex.errors import DatabaseStateError, InvalidInputError
from pg_hashindex.hashers import FSDH, SADIH, SDH
from pg_hashindex.hashers.supervision.labels import Supervision
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows
from pg_hashindex.training import held_back, train

pytestmark = pytest.mark.newest

BITS = 12
#: No label tells of these rows of table items.
UNLABELLED = slice(280, 300)
# Few kernel bases, so that the hash function misses some learned bits.
PARAMETERS = {"n_anchors": 10}


def labels_of(rows):
    """Give three classes that a hash function cannot tell apart everywhere."""
    y = (rows[:, 0] + np.random.default_rng(1).standard_normal(len(rows)) > 0).astype(np.intp)
    y[rows[:, 1] > 0.8] = 2
    y[UNLABELLED] = -1
    return y


@pytest.fixture(scope="module")
def trained(vectors):
    model = train(
        vectors,
        "taught",
        "sdh",
        y=labels_of(vectors),
        n_bits=BITS,
        codes="learned",
        parameters=PARAMETERS,
        force=True,
    )
    # No profile, since tests write rows that would be drift.
    return replace(model, profile=None)


@pytest.fixture(scope="module")
def hashed(vectors, trained):
    """The codes of rows 1 to 300 without learned ones."""
    return code_texts(replace(trained, learned=None).encode(vectors), BITS)


@pytest.fixture(scope="module")
def expected(vectors, hashed):
    """The codes that rows 1 to 300 should have."""
    y = labels_of(vectors)
    seen = np.setdiff1d(np.arange(300), held_back(300, Supervision.read(300, y), 0))
    hasher = SDH(n_bits=BITS, random_state=0, n_anchors=10).fit(vectors[seen], y[seen])
    result = list(hashed)
    for row, code in zip(seen[y[seen] >= 0], code_texts(hasher.codes_, BITS), strict=True):
        result[row] = code
    # Else these tests would tell nothing.
    assert 20 < sum(a != b for a, b in zip(result, hashed, strict=True)) < 250
    return result


def test_an_index_hashes_every_row(connection, items, trained, hashed):
    store.save(connection, trained)
    index = create_index(connection, model="taught")
    assert index.encode() == 300
    connection.execute("UPDATE items SET embedding = embedding - embedding + embedding")
    stored = stored_codes(index)
    assert [stored[key][0] for key in sorted(stored)] == hashed
    assert findings(index, full=True)["wrong_codes"].status == "ok"


def test_the_store_and_files_keep_them(connection, trained, vectors, expected):
    # 280 rows have a label, and 26 of them are held back.
    assert trained.training["learned_codes"] == 254
    assert trained.learned is not None
    store.save(connection, trained)
    for model in (store.load(connection, "taught"), Model.from_bytes(trained.to_bytes())):
        assert model.checksum == trained.checksum != replace(trained, learned=None).checksum
        assert code_texts(model.row_codes(vectors), BITS) == expected
        assert code_texts(model.row_codes(vectors[:0]), BITS) == []
    described = store.describe(connection, "taught")
    assert (described.evaluated_in, described.network) == ("sql", None)
    with pytest.raises(InvalidInputError, match="which only Python reads"):
        store.script(connection, "taught")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM hashindex.model_part",
        "UPDATE hashindex.model_part SET data = set_byte(data, 3, 77)",
        "UPDATE hashindex.model_part SET data = substring(data FROM 11)",
        "UPDATE hashindex.model_part SET data = data || data",
    ],
)
def test_damage_is_noticed(connection, trained, damage):
    store.save(connection, trained)
    connection.execute("ALTER TABLE hashindex.model_part DISABLE TRIGGER immutable")
    connection.execute(damage.encode())
    with pytest.raises(DatabaseStateError, match="is damaged"):
        store.load(connection, "taught")


def test_rows_are_recognised_before_any_layer(vectors):
    """Rows of other lengths are other rows, though cosine scales all to one length."""
    y = np.where(labels_of(vectors) > 0, 1, 0)
    for method, kind in (("fsdh", FSDH), ("sadih", SADIH)):
        model = train(
            vectors,
            "m",
            method,
            y=y,
            n_bits=8,
            metric="cosine",
            codes="learned",
            force=True,
            random_state=4,
        )
        assert model.learned is not None
        _, known = model.learned.places(vectors)
        hasher = kind(n_bits=8, normalize="l2", random_state=4).fit(vectors[known], y[known])
        assert (model.row_codes(vectors)[known] == hasher.codes_).all()
        assert (model.row_codes(2 * vectors) == model.encode(vectors)).all()
        assert (model.row_codes(vectors)[~known] == model.encode(vectors[~known])).all()
        assert known.sum() == model.training["rows"] == 271


def test_what_is_refused(vectors, trained, known_model):
    y = labels_of(vectors)
    given = {"n_bits": 8, "codes": "learned", "force": True}
    with pytest.raises(InvalidInputError, match=r"itq learns no codes .* sdh, fsdh, sadih$"):
        train(vectors, "m", "itq", **given)
    with pytest.raises(InvalidInputError, match="models of sdh have one cut, not 3"):
        train(vectors, "m", "sdh", y=y, cuts=3, **{**given, "n_bits": 9})
    with pytest.raises(InvalidInputError, match="learns from labels; give some"):
        train(vectors, "m", "sdh", **given)
    learned = trained.learned
    assert learned is not None
    with pytest.raises(InvalidInputError, match="has a network; learned codes"):
        replace(known_model, learned=learned)
    with pytest.raises(InvalidInputError, match="has learned codes, so it has one cut"):
        replace(trained, cuts=(0.0, 1.0))
    short = known_rows(vectors, np.zeros((300, 1), np.uint8), 8)
    torch = Network("torch", {}, {"a": np.ones(2)}, BITS)
    for wrong in (short, torch):
        with pytest.raises(InvalidInputError, match="must be of kind rows, with the 12 bits"):
            replace(trained, learned=wrong)
