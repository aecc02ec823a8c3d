"""Indexes of models that keep 4 levels of each projection."""

import numpy as np
import psycopg
import pytest
from fixtures.indexes import create_index, indexed
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.models.model import Model
from pg_hashindex.quality.code_scores import score_codes

pytestmark = pytest.mark.newest


@pytest.fixture
def finer(connection, lsh_model):
    saved = Model("finer", "lsh", lsh_model.dimension, lsh_model.layers, lsh_model.metric, levels=4)
    return store.save(connection, saved)


@pytest.fixture
def index(connection, items, finer):
    return indexed(connection, "i", model="finer")


def kept_codes(connection):
    return dict(connection.execute("SELECT id, code::text FROM hashindex.i_codes").fetchall())


def as_text(model, rows):
    bits = codes.unpack(model.encode(rows), model.n_bits)
    return ["".join("01"[bit] for bit in row) for row in bits.astype(int)]


def findings(connection, full):
    found = operations.check(HashIndex.open(connection, "i"), full=full).findings
    return {finding.check: (finding.status, finding.detail) for finding in found}


def test_store(connection, finer):
    assert store.load(connection, "finer").levels == 4
    assert store.load(connection, "finer").checksum == finer.checksum
    stored = store.describe(connection, "finer")
    assert (stored.levels, stored.n_bits) == (4, 2 * finer.n_projections)


def test_changed_levels_are_noticed(connection, lsh_model):
    store.save(connection, lsh_model)
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER USER")
    connection.execute("UPDATE hashindex.model SET levels = 4")
    with pytest.raises(DatabaseStateError, match="its checksum is"):
        store.load(connection, lsh_model.name)
    with pytest.raises(psycopg.errors.CheckViolation, match="model_levels_check"):
        connection.execute("UPDATE hashindex.model SET levels = 3")


def test_rows_are_encoded_and_kept_fresh(connection, index, finer, vectors):
    expected = dict(enumerate(as_text(finer, vectors), 1))
    assert kept_codes(connection) == expected
    connection.execute("INSERT INTO items VALUES (1000, 'a', %s)", [Vector(-vectors[4])])
    connection.execute("UPDATE items SET embedding = %s WHERE id = 7", [Vector(3 * vectors[8])])
    changed = as_text(finer, np.stack([-vectors[4], 3 * vectors[8]]))
    assert kept_codes(connection) == expected | {1000: changed[0], 7: changed[1]}


def test_rows_are_encoded_in_sql(connection, items, finer, vectors):
    connection.execute("SELECT hashindex.declare_index('i', %s, 'embedding', 'finer')", [items])
    assert kept_codes(connection) == dict(enumerate(as_text(finer, vectors), 1))
    assert HashIndex.open(connection, "i").encode() == 0


def test_check_and_repair(connection, index, finer):
    before = kept_codes(connection)
    for full in (False, True):
        assert findings(connection, full)["wrong_codes"][0] == "ok"
    # A bit of the second half, which no sign tells.
    projections = finer.project(
        np.stack([v.to_numpy() for (v,) in connection.execute("SELECT embedding FROM items")])
    )
    deviation = np.linalg.norm(projections, axis=1) / np.sqrt(finer.n_projections)
    place = int((np.abs(projections[9]) / deviation[9] - 1).argmax())
    wrong = list(before[10])
    wrong[finer.n_projections + place] = "10"[int(wrong[finer.n_projections + place])]
    connection.execute(
        "UPDATE hashindex.i_codes SET code = %s::bit varying WHERE id = 10", ["".join(wrong)]
    )
    assert findings(connection, True)["wrong_codes"] == (
        "broken",
        "1 of 300 codes are not what the model gives their rows",
    )
    operations.repair(index, full=True)
    assert kept_codes(connection) == before
    assert findings(connection, True)["wrong_codes"][0] == "ok"


def test_codes_are_scored_by_the_asymmetric_distance(connection, items, finer, lsh_model):
    store.save(connection, lsh_model)
    found = []
    for model in (finer.name, lsh_model.name):
        made = create_index(connection, f"of_{model}", model=model)
        (scores,) = score_codes(made, queries=30).values()
        found.append(scores.values["MAP"])
    assert found[0] > found[1]
