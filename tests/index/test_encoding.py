"""Bulk encoding: complete, resumable, and safe beside writers."""

import threading

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.indexes import begin_lists, create_index, indexed, without_codes
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.work import claimed_work
from pg_hashindex.errors import DatabaseStateError, InUseError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import encoding
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model


def test_encodes_every_row_once(unencoded):
    unencoded.connection.execute("UPDATE items SET embedding = NULL WHERE id = 5")
    assert unencoded.encode(batch_rows=64) == 299
    assert_fresh(unencoded)
    assert unencoded.encode() == 0


@pytest.mark.newest
@pytest.mark.parametrize("batch_rows", [1, 299, 300, 301])
def test_page_borders(unencoded, batch_rows):
    assert unencoded.encode(batch_rows=batch_rows) == 300
    assert_fresh(unencoded)


def test_writes_survive_a_crash(unencoded):
    # The servers of tests wait for no disk.
    unencoded.connection.execute("SET synchronous_commit TO on")
    unencoded.encode(batch_rows=100)
    row = unencoded.connection.execute(
        "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()"
    ).fetchone()
    # At the end of a page the next insert comes behind the header of the next page.
    assert row[0] in (0, 24, 40)


def test_goes_on_where_it_stopped(unencoded, monkeypatch):
    class Stopped(Exception):
        pass

    write = encoding._Encoder._write
    batches = []

    def stop_at_the_third(self, batch):
        if len(batches) == 2:
            raise Stopped
        batches.append(len(batch))
        return write(self, batch)

    monkeypatch.setattr(encoding._Encoder, "_write", stop_at_the_third)
    with pytest.raises(Stopped):
        unencoded.encode(batch_rows=50)
    monkeypatch.undo()
    assert unencoded.summary().codes == 100
    assert unencoded.encode(batch_rows=50) == 200
    assert_fresh(unencoded)


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_a_row_deleted_after_its_page_was_read(unencoded, other, monkeypatch, level):
    """Deleted, set to NULL, changed: none may end with the code of what was read."""
    unencoded.connection.execute(f"SET default_transaction_isolation TO '{level}'")
    encode = Model.encode

    def write_in_between(self, X):
        other.execute("DELETE FROM items WHERE id = 10")
        other.execute("UPDATE items SET embedding = NULL WHERE id = 11")
        other.execute("UPDATE items SET embedding = '[1,-1,1,-1,1,-1,1,-1]' WHERE id = 12")
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", write_in_between)
    unencoded.encode()
    assert_fresh(unencoded)


def test_rows_locked_by_a_writer_are_found_later(unencoded, other):
    """The encoder waits for no session, and leaves out no row."""
    locked = threading.Event()
    release = threading.Event()

    def hold():
        with other.transaction():
            other.execute("UPDATE items SET category = 'held' WHERE id <= 30")
            locked.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(30)
    threading.Timer(0.5, release.set).start()
    assert unencoded.encode(batch_rows=100) == 300
    holder.join()
    assert_fresh(unencoded)


def test_gives_up_on_rows_that_stay_locked(unencoded, other, monkeypatch):
    monkeypatch.setattr(encoding, "_PATIENCE", 0.3)
    with other.transaction():
        other.execute("UPDATE items SET category = 'held' WHERE id = 30")
        with pytest.raises(DatabaseStateError, match="row 30 of .* has been locked"):
            unencoded.encode()
    assert unencoded.encode() == 1
    assert_fresh(unencoded)


@pytest.mark.newest
@pytest.mark.slow
def test_beside_live_writers(unencoded, url):
    """Three writers at full speed while the encoder goes over 5,000 rows in small batches."""
    unencoded.connection.execute(
        "INSERT INTO items SELECT 1000 + n, 'a', "
        "ARRAY(SELECT random() - 0.5 + 0 * n FROM generate_series(1, 8))::real[]::vector "
        "FROM generate_series(1, 5000) n"
    )
    without_codes(unencoded)
    stop = threading.Event()
    written = [0, 0, 0]
    errors = []

    def write(number):
        rng = np.random.default_rng(number)
        with connect(url) as session:
            while not stop.is_set():
                row_id = int(rng.integers(1000, 6000))
                value = Vector(rng.standard_normal(8).astype(np.float32))
                try:
                    match rng.integers(5):
                        case 0:
                            session.execute("DELETE FROM items WHERE id = %s", [row_id])
                        case 1:
                            session.execute(
                                "INSERT INTO items VALUES (%s, 'n', %s) ON CONFLICT DO NOTHING",
                                [row_id + 3000, value],
                            )
                        case 2:
                            session.execute(
                                "UPDATE items SET embedding = NULL WHERE id = %s", [row_id]
                            )
                        case 3:
                            session.execute(
                                "UPDATE items SET category = 'u' WHERE id BETWEEN %s AND %s",
                                [row_id, row_id + 20],
                            )
                        case _:
                            session.execute(
                                "UPDATE items SET embedding = %s WHERE id = %s", [value, row_id]
                            )
                    written[number] += 1
                except psycopg.errors.DeadlockDetected:
                    continue  # two writers, in each other's way without us
                except Exception as error:
                    errors.append(error)
                    return

    writers = [threading.Thread(target=write, args=[number]) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        unencoded.encode(batch_rows=100)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert errors == []
    assert min(written) > 0
    assert_fresh(unencoded)


def test_a_row_that_comes_while_its_old_code_is_deleted(connection, items, model, url):
    index = indexed(connection)
    connection.execute(
        "SET session_replication_role = replica; DELETE FROM items WHERE id = 7; "
        "RESET session_replication_role"
    )
    with connect(url) as encoder, psycopg.connect(url) as writer:
        writer.execute("INSERT INTO items SELECT 7, category, embedding FROM items WHERE id = 8")
        encoding_it = threading.Thread(target=HashIndex.open(encoder, "items_idx").encode)
        encoding_it.start()
        waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
        eventually(lambda: connection.execute(waits).fetchone() == (True,))
        writer.commit()
        encoding_it.join(60)
    assert_fresh(index)


def test_one_encoder_at_a_time(unencoded, url):
    with (
        connect(url) as session,
        claimed_work(session, "encode", "items_idx"),
    ):
        with pytest.raises(InUseError, match="being encoded by another session"):
            unencoded.encode()
    assert unencoded.encode() == 300


@pytest.mark.newest
def test_refused_inside_a_transaction(unencoded):
    with (
        unencoded.connection.transaction(),
        pytest.raises(InvalidInputError, match="outside a transaction"),
    ):
        unencoded.encode()


@pytest.mark.newest
def test_refuses_a_senseless_batch(unencoded):
    with pytest.raises(InvalidInputError, match="batch_rows must be 1 or more, got 0"):
        unencoded.encode(batch_rows=0)


def test_a_row_of_another_dimension(connection, model):
    """Possible where the triggers were off: the encoder names the row."""
    connection.execute("CREATE TABLE loose (id int PRIMARY KEY, embedding vector)")
    index = create_index(connection, "loose", table="loose")
    connection.execute("SET session_replication_role = replica")
    connection.execute("INSERT INTO loose VALUES (42, '[1,2,3]')")
    connection.execute("RESET session_replication_role")
    with pytest.raises(InvalidInputError, match="row 42 .* 3 dimensions, the model takes 8"):
        index.encode()


def test_a_locked_row_costs_no_second_pass_over_the_others(unencoded, other, monkeypatch):
    monkeypatch.setattr(encoding, "_PATIENCE", 0.5)
    write, read = encoding._Encoder._write, []

    def count(self, batch):
        read.append(len(batch))
        return write(self, batch)

    monkeypatch.setattr(encoding._Encoder, "_write", count)
    with other.transaction():
        other.execute("UPDATE items SET category = 'held' WHERE id = 1")
        with pytest.raises(DatabaseStateError, match="row 1 of"):
            unencoded.encode()
    assert read[0] == 300
    assert set(read[1:]) == {1}


def test_an_index_that_is_made_again_meanwhile(index, other, vectors):
    store.save(other, LSH(n_bits=12, random_state=9).fit(vectors).to_model("flip"))
    made = HashIndex.open(other, "items_idx").row
    HashIndex.open(other, "items_idx").drop()
    place = {"table": made.qualified_table, "column": made.column_name}
    again = begin_lists(other, made.name, **place, model="flip")
    assert again.waiting() == 300
    assert index.encode() == 300
    assert_fresh(again)
