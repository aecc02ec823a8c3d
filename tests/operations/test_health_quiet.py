"""A healthy index is reported as such, whatever its table, access path and names."""

import numpy as np
import pytest
from fixtures.code_indexes import fill
from fixtures.health import ALWAYS, assert_quiet, findings, index_with_profile
from fixtures.indexes import indexed, with_access
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.training import train

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_each_access_path(connection, items, vectors, lsh_model, access):
    index = index_with_profile(connection, lsh_model, vectors)
    with_access(index, access)
    assert_quiet(index)
    lists = {"lists", "landmarks"} if access == "lists" else set()
    assert set(findings(index)) == ALWAYS | lists
    connection.execute("DELETE FROM items WHERE id % 10 = 0")
    connection.execute("UPDATE items SET embedding = NULL WHERE id % 10 = 1")
    connection.execute(
        "INSERT INTO items SELECT id + 1000, category, embedding FROM items WHERE id < 30"
    )
    assert_quiet(index)


def test_few_rows(connection, lsh_model):
    fill(connection, "items", np.zeros((0, 8), np.float32))
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((40, 8)).astype(np.float32)
    index = index_with_profile(connection, lsh_model, rng.standard_normal((5000, 8)))
    assert_quiet(index)
    assert findings(index)["wrong_codes"].detail == "there are no codes to check"
    for count in (1, 2, 40):
        connection.execute("TRUNCATE items")
        for number, row in enumerate(rows[:count], 1):
            connection.execute(
                "INSERT INTO items (id, embedding) VALUES (%s, %s)", [number, Vector(row)]
            )
        assert_quiet(index)
    connection.execute("UPDATE items SET embedding = NULL")
    assert_quiet(index)


def test_after_a_swap_and_a_rollback(connection, vectors, index):
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    index.swap(model="other", force=True)
    found = findings(index)
    assert {f.status for f in found.values()} == {"ok"}
    assert "state former: codes of lsh:1 in lists" in found["other_set"].detail
    assert found["other_set"].advice is not None
    assert "index prune items_idx" in found["other_set"].advice
    # A handle from before the swap sees the index after it.
    assert len(index.open(connection, "items_idx").loaded_model.encode(vectors)[0]) == 3
    index.rollback()
    index.open(connection, "items_idx").prune()
    assert_quiet(index)


def test_rows_of_a_model_that_was_trained_on_them(connection):
    rng = np.random.default_rng(6)
    rows = (rng.standard_normal((1500, 8)) @ rng.standard_normal((8, 8))).astype(np.float32)
    model = train(rows, "trained", "itq", n_bits=8)
    assert model.profile is not None
    # A tenth of the rows was held back.
    assert model.profile.rows == 1350
    fill(connection, "items", rows)
    store.save(connection, model)
    index = indexed(connection, model="trained")
    assert_quiet(index)
