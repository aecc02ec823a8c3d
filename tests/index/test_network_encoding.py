"""Encoding in Python: no code is ever stale, and rows that the model does not know wait."""

import sys
import threading
import time
import types

import numpy as np
import psycopg
import pytest
from fixtures.indexes import create_index
from fixtures.known import OTHERS, UNKNOWN, assert_queued
from pgvector import Vector
from psycopg import sql
from psycopg.pq import TransactionStatus

import pg_hashindex.models
from pg_hashindex import store
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import LSH, FastH
from pg_hashindex.index import encoding
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows

pytestmark = pytest.mark.newest

NEVER = list(range(UNKNOWN[0], UNKNOWN[1] + 1))


def meanwhile(monkeypatch, write):
    """Have something done once, after a page was read and before its codes are written."""
    encode, done = Model.encode, []

    def encode_slowly(self, X):
        if not done:
            done.append(True)
            write()
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", encode_slowly)


def flipped(model, vectors):
    """Know the same rows, by codes of which every bit is another."""
    rows = vectors[: UNKNOWN[0] - 1]
    other_bits = np.packbits(np.unpackbits(model.encode(rows), axis=1)[:, :12] ^ 1, axis=1)
    return known_rows(rows, other_bits, 12)


def remake(index, model):
    """Drop an index, and make it with another model under the same name."""
    row = index.row
    index.drop()
    return HashIndex.create(
        row.connection,
        row.name,
        table=row.qualified_table,
        column=row.column_name,
        model=model,
    )


@pytest.mark.parametrize("batch_rows", [None, 97])
def test_rows_that_the_model_does_not_know_wait(queued, batch_rows):
    assert_queued(queued, range(1, 301))
    queued.connection.execute("UPDATE items SET embedding = NULL WHERE id = 5")
    assert queued.encode(batch_rows=batch_rows) == 289
    assert_queued(queued, NEVER)
    assert queued.encode(batch_rows=batch_rows) == 0
    assert queued.waiting() == 10


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_a_vector_that_changes_while_its_batch_is_encoded(queued, other, monkeypatch, level):
    """The row gets the code of its new vector, or none, never that of the one that was read."""

    def write():
        other.execute("UPDATE items SET embedding = %s WHERE id = 10", [Vector(OTHERS[0])])
        other.execute("UPDATE items SET embedding = %s WHERE id = 11", [Vector(OTHERS[15])])
        other.execute("UPDATE items SET embedding = NULL WHERE id = 12")
        other.execute("UPDATE items SET category = 'new' WHERE id = 13")
        other.execute("DELETE FROM items WHERE id = 14")
        other.execute("UPDATE items SET id = 1000 WHERE id = 15")
        other.execute("DELETE FROM items WHERE id = 16")
        other.execute("INSERT INTO items VALUES (16, 'new', %s)", [Vector(OTHERS[1])])

    queued.connection.execute(f"SET default_transaction_isolation TO '{level}'")
    meanwhile(monkeypatch, write)
    # One batch: all of its rows were read before they changed.
    written = queued.encode()
    monkeypatch.undo()
    assert_queued(queued, [11, *NEVER])
    assert written == 287


def test_a_change_that_commits_between_snapshot_and_lock(queued, other, monkeypatch):
    """The statement that writes codes sees the old version, and locks the new one."""
    create = encoding._Encoder.__init__

    def slow(self, *arguments):
        create(self, *arguments)
        self.names["unchanged"] = sql.SQL(
            "b.xmin::text = s.version AND (SELECT pg_sleep(0.6)) IS NOT NULL"
        )

    monkeypatch.setattr(encoding._Encoder, "__init__", slow)
    changed = []

    def change():
        time.sleep(0.3)
        other.execute("UPDATE items SET embedding = %s WHERE id = 1", [Vector(OTHERS[15])])
        changed.append(time.monotonic())

    writer = threading.Thread(target=change)
    meanwhile(monkeypatch, writer.start)
    queued.encode()
    writer.join()
    assert changed
    assert_queued(queued, [1, *NEVER])


@pytest.mark.parametrize("moment", ["before", "between batches"])
def test_an_index_that_is_made_again_with_another_model(
    queued, other, known_model, vectors, monkeypatch, moment
):
    """None of the old model's codes is written into it."""
    store.save(other, Model("flip", "byhand", 8, (), network=flipped(known_model, vectors)))

    def make_again():
        remake(HashIndex.open(other, "items_idx"), "flip")

    if moment == "before":
        make_again()
    else:
        meanwhile(monkeypatch, make_again)
        with pytest.raises(DatabaseStateError, match="was dropped or recreated .* run the comm"):
            queued.encode(batch_rows=100)
        monkeypatch.undo()
    again = HashIndex.open(other, "items_idx")
    assert_queued(again, range(1, 301))
    # The same object continues, with the current model.
    assert queued.encode() == 290
    assert_queued(again, NEVER)


def test_an_index_encoded_in_sql_that_is_made_again(index, other, vectors):
    store.save(other, LSH(n_bits=12, random_state=9).fit(vectors).to_model("flip"))
    again = remake(HashIndex.open(other, "items_idx"), "flip")
    assert again.waiting() == 300
    assert index.encode() == 300
    assert_queued(again, [])


def test_rows_that_stay_locked(queued, other, monkeypatch):
    monkeypatch.setattr(encoding, "_PATIENCE", 0.3)
    with other.transaction():
        other.execute("UPDATE items SET embedding = %s WHERE id = 30", [Vector(OTHERS[2])])
        with pytest.raises(DatabaseStateError, match="row 30 of .* locked or changed by other"):
            queued.encode()
    assert_queued(queued, [30, *NEVER])
    assert queued.encode() == 1
    assert_queued(queued, NEVER)


def test_rows_that_never_rest_do_not_keep_it_running(queued, other, monkeypatch):
    encode, calls = Model.encode, []

    def encode_slowly(self, X):
        calls.append(len(X))
        other.execute("UPDATE items SET category = 'x' WHERE id = 1")
        other.execute(
            "UPDATE items SET embedding = %s WHERE id = %s",
            [Vector(OTHERS[len(calls) % 10]), 1 + len(calls)],
        )
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", encode_slowly)
    queued.encode()
    assert len(calls) == encoding._MOST_PASSES
    monkeypatch.undo()
    assert queued.waiting() > 10
    queued.encode()
    assert_queued(queued, NEVER)


@pytest.mark.parametrize("autocommit", [True, False])
def test_nothing_is_locked_while_the_network_runs(queued, url, monkeypatch, autocommit):
    statuses = []
    with psycopg.connect(url, autocommit=autocommit) as own:
        index = HashIndex.open(own, "items_idx")
        own.commit()
        meanwhile(monkeypatch, lambda: statuses.append(own.info.transaction_status))
        assert index.encode(batch_rows=100) == 290
        assert statuses == [TransactionStatus.IDLE]
        assert own.info.transaction_status == TransactionStatus.IDLE
    assert_queued(queued, NEVER)


@pytest.fixture
def torch_index(connection, items, monkeypatch):
    """An index of a neural network that takes the signs of twelve sums, and what evaluates it."""
    weights = np.random.default_rng(2).standard_normal((12, 8)).astype(np.float32)
    module = types.ModuleType("hash_network")
    built = types.SimpleNamespace(project=lambda X: X @ weights.T)
    module.build = lambda config, arrays, n_bits: built  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pg_hashindex.models.hash_network", module)
    monkeypatch.setattr(pg_hashindex.models, "hash_network", module, raising=False)
    model = Model("net", "dpsh", 8, (), network=Network("torch", {}, {"w": weights}, 12))
    store.save(connection, model)
    return create_index(connection, "net", model="net"), built


def test_a_neural_network_knows_every_row(torch_index):
    index, _ = torch_index
    assert (index.encoded_in, index.network) == ("python", "torch")
    assert index.encode() == 300
    assert_queued(index, [])
    index.connection.execute("UPDATE items SET embedding = %s WHERE id = 7", [Vector(OTHERS[15])])
    assert_queued(index, [7])
    assert index.search(OTHERS[14], 1, candidates=300)[0].id != 7
    # A row without a code is a query all the same.
    assert len(index.search_like(7, 3)) == 3
    assert index.encode() == 1
    assert index.search(OTHERS[15], 1, candidates=1)[0] == (7, 0)


def test_trees_know_every_row(connection, items, vectors):
    labels = (vectors[:, 0] > 0).astype(int) + 2 * (vectors[:, 1] > 0)
    model = FastH(n_bits=12, n_trees=3, random_state=0).fit(vectors, labels).to_model("forest")
    store.save(connection, model)
    index = create_index(connection, "i", model="forest")
    assert (index.encoded_in, index.network) == ("python", "trees")
    index.encode()
    assert index.waiting() == 0
    connection.execute("UPDATE items SET embedding = %s WHERE id = 10", [Vector(OTHERS[0])])
    assert index.waiting() == 1
    assert index.encode() == 1
    assert index.search(OTHERS[0], k=1)[0].id == 10


def test_batches_grow_with_the_speed_of_the_network(torch_index, monkeypatch):
    index, built = torch_index
    project, sizes, seconds_a_row = built.project, [], 0.0

    def watched(X):
        sizes.append(len(X))
        time.sleep(seconds_a_row * len(X))
        return project(X)  # type: ignore[no-any-return]

    monkeypatch.setattr(built, "project", watched)
    assert index.encode() == 300
    assert sizes == [32, 128, 140]
    sizes.clear()
    index.connection.execute("UPDATE items SET embedding = l2_normalize(embedding) WHERE id <= 40")
    monkeypatch.setattr(encoding, "_NETWORK_SECONDS", 0.02)
    seconds_a_row = 0.005
    assert index.encode() == 40
    assert sizes[0] == 32
    assert max(sizes[1:]) <= 4
    sizes.clear()
    seconds_a_row = 0.0
    index.connection.execute("UPDATE items SET embedding = embedding + embedding")
    assert index.encode(batch_rows=100) == 300
    assert sizes == [100, 100, 100]
