"""Rows that training knew have the codes that it learned; new rows and queries are hashed.

The learned codes are those of a hasher that is fitted here beside `train`, on the same rows.
"""

from dataclasses import replace

import numpy as np
import pytest
from fixtures.health import findings, set_code
from fixtures.indexes import create_index, indexed
from fixtures.known import stored_codes
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError, InvalidInputError
from pg_hashindex.hashers import FSDH, SADIH, SDH
from pg_hashindex.hashers.supervision.labels import Supervision
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows
from pg_hashindex.training import held_back, train

pytestmark = pytest.mark.newest

BITS = 12
#: No label tells of these rows of table items.
UNLABELLED = slice(280, 300)
# Few kernel bases, so that the hash function misses some learned bits.
PARAMETERS = {"n_anchors": 10}
TURN = "UPDATE items SET embedding = embedding * '[-1,-1,-1,-1,-1,-1,-1,-1]' WHERE id = %s"


def labels_of(rows):
    """Give three classes that a hash function cannot tell apart everywhere."""
    y = (rows[:, 0] + np.random.default_rng(1).standard_normal(len(rows)) > 0).astype(np.intp)
    y[rows[:, 1] > 0.8] = 2
    y[UNLABELLED] = -1
    return y


def texts(packed):
    return [code.to_text() for code in codes.to_postgres(packed, BITS)]


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
    return texts(replace(trained, learned=None).encode(vectors))


@pytest.fixture(scope="module")
def expected(vectors, hashed):
    """The codes that rows 1 to 300 should have."""
    y = labels_of(vectors)
    seen = np.setdiff1d(np.arange(300), held_back(300, Supervision.read(300, y), 0))
    hasher = SDH(n_bits=BITS, random_state=0, n_anchors=10).fit(vectors[seen], y[seen])
    result = list(hashed)
    for row, code in zip(seen[y[seen] >= 0], texts(hasher.codes_), strict=True):
        result[row] = code
    # Else these tests would tell nothing.
    assert 20 < sum(a != b for a, b in zip(result, hashed, strict=True)) < 250
    return result


@pytest.fixture
def taught(connection, items, trained):
    store.save(connection, trained)
    index = create_index(connection, model="taught")
    assert index.encode() == 300
    return index


def codes_by_row(index):
    stored = stored_codes(index)
    return [stored[key][0] for key in sorted(stored)]


def learned_row(expected, hashed):
    """Return the first place where the learned code is another than the hashed one."""
    return next(i for i in range(300) if expected[i] != hashed[i])


def assert_well(index):
    for full in (False, True):
        assert findings(index, full=full)["wrong_codes"].status == "ok"
    assert operations.repair(index, full=True).done == ()


def test_rows_get_learned_codes(taught, expected):
    assert codes_by_row(taught) == expected
    assert taught.encoded_in == "sql"
    assert_well(taught)


def test_writes_are_hashed(taught, vectors, expected, hashed):
    place = learned_row(expected, hashed)
    execute = taught.connection.execute
    # A row's other columns do not touch its code, nor does its own vector.
    execute("UPDATE items SET category = 'z', embedding = embedding")
    assert codes_by_row(taught) == expected
    # Another vector gives another code at once, and the former vector the hashed one.
    execute(TURN, [place + 1])
    turned = texts(taught.loaded_model.encode(-vectors[place : place + 1]))[0]
    assert codes_by_row(taught)[place] == turned
    execute(TURN, [place + 1])
    assert codes_by_row(taught)[place] == hashed[place]
    # Both codes are right.
    assert_well(taught)
    # A new row with a vector that training knew.
    execute("INSERT INTO items VALUES (301, 'a', %s)", [Vector(vectors[place])])
    assert codes_by_row(taught)[300] == hashed[place]
    assert taught.encode() == 0


def test_wrong_codes_are_found(taught, expected, hashed, vectors):
    place = learned_row(expected, hashed)
    set_code(taught, "~code", f"id IN ({place + 1}, 300)")
    found = findings(taught, full=True)["wrong_codes"]
    assert (found.status, found.value) == ("broken", pytest.approx(2 / 300))
    operations.repair(taught, full=True)
    assert codes_by_row(taught) == expected
    # The learned code of another row is wrong.
    other = next(i for i in range(300) if expected[i] not in (expected[place], hashed[place]))
    set_code(taught, f"B'{expected[other]}'", f"id = {place + 1}")
    assert findings(taught, full=True)["wrong_codes"].value == pytest.approx(1 / 300)


def test_a_vector_that_changes_while_its_batch_is_encoded(
    taught, other, monkeypatch, vectors, expected, hashed
):
    place = learned_row(expected, hashed)
    taught.connection.execute("DELETE FROM hashindex.items_idx_codes")
    row_codes = Model.row_codes

    def meanwhile(self, X, projections=None):
        other.execute(TURN, [place + 1])
        return row_codes(self, X, projections)

    monkeypatch.setattr(Model, "row_codes", meanwhile)
    assert taught.encode() == 299
    turned = texts(taught.loaded_model.encode(-vectors[place : place + 1]))[0]
    assert codes_by_row(taught) == [*expected[:place], turned, *expected[place + 1 :]]


@pytest.mark.parametrize("taught", ["table"], indirect=True)
def test_landmarks(taught, vectors, expected, hashed):
    place = learned_row(expected, hashed)
    taught.connection.execute("DELETE FROM items WHERE id = %s", [place + 1])
    taught.connection.execute(
        "INSERT INTO items VALUES (%s, 'a', %s)", [place + 1, Vector(vectors[place])]
    )
    taught.configure(access="landmarks").encode()
    index = HashIndex.open(taught.connection, "items_idx")
    assert index.access == "landmarks"
    # Building reads all rows again.
    assert codes_by_row(index) == expected
    for _ in range(2):
        index.connection.execute(TURN, [place + 1])
    assert codes_by_row(index)[place] == hashed[place]
    index.rebalance()
    assert codes_by_row(HashIndex.open(taught.connection, "items_idx")) == expected
    assert_well(HashIndex.open(taught.connection, "items_idx"))


def test_swap(index, trained, vectors, expected):
    before = codes_by_row(index)
    store.save(index.connection, trained)
    operations.swap(index, "taught", force=True, queries=20)
    assert codes_by_row(HashIndex.open(index.connection, "items_idx")) == expected
    operations.rollback(index)
    assert codes_by_row(HashIndex.open(index.connection, "items_idx")) == before


def test_tenants_and_halfvec(connection, items, trained, vectors):
    """Rows are known as the column has them; a row of another tenant is hashed."""
    connection.execute("ALTER TABLE items ALTER embedding TYPE halfvec(8)")
    rounded = vectors.astype(np.float16).astype(np.float32)
    hashed = trained.encode(rounded)
    turned = np.packbits(np.unpackbits(hashed, axis=1)[:, :BITS] ^ 1, axis=1)
    learned = known_rows(rounded[:100], turned[:100], BITS)
    store.save(connection, replace(trained, learned=learned))
    index = indexed(connection, model="taught", tenant="category")
    assert codes_by_row(index) == texts(np.concatenate([turned[:100], hashed[100:]]))
    connection.execute("UPDATE items SET category = 'z' WHERE id <= 10")
    assert codes_by_row(index)[:100] == texts(np.concatenate([hashed[:10], turned[10:100]]))
    assert_well(index)


def test_queries_are_hashed(taught, vectors):
    """A search orders by the projection of the query, whatever the learned code of its row."""
    hits = taught.search(vectors[0], 300, candidates=300)
    distances = np.linalg.norm(vectors - vectors[0], axis=1)
    assert [hit.distance for hit in hits] == pytest.approx(sorted(distances), abs=1e-5)
    balls = taught.within(vectors[0], 3)
    code = np.array(list(texts(taught.loaded_model.encode(vectors[:1]))[0]))
    near = [
        key
        for key, text in enumerate(codes_by_row(taught), 1)
        if (np.array(list(text or "")) != code).sum() <= 3
    ]
    assert sorted(hit.id for hit in balls) == near


def test_the_store_and_files_keep_them(connection, trained, vectors, expected):
    # 280 rows have a label, and 26 of them are held back.
    assert trained.training["learned_codes"] == 254
    assert trained.learned is not None
    store.save(connection, trained)
    for model in (store.load(connection, "taught"), Model.from_bytes(trained.to_bytes())):
        assert model.checksum == trained.checksum != replace(trained, learned=None).checksum
        assert texts(model.row_codes(vectors)) == expected
        assert texts(model.row_codes(vectors[:0])) == []
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
        known = model.learned.knows(vectors)
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
