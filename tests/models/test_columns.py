"""Codes in a column of the user's own table: filled in batches, continued, and refused."""

import threading
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from fixtures.known import code_texts
from pgvector import Bit, Vector

from pg_hashindex import HashIndex, encode_column, operations, store
from pg_hashindex.errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
    OtherModelWarning,
    SlowWritesWarning,
    UnknownModelError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.models import columns
from pg_hashindex.models.codes import pack
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows

BITS = 12
ROWS = 300


@pytest.fixture
def coded(connection, items, model):
    """Table items with a column for codes of model lsh."""
    connection.execute(f"ALTER TABLE items ADD COLUMN code bit({BITS})")
    return items


def fill(connection, name="lsh", table="items", column="embedding", into="code", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return encode_column(connection, name, table, column, into, **options)


def codes_of(connection, table="items", key="id"):
    statement = f"SELECT {key}, code::text FROM {table} ORDER BY {key}"
    return dict(connection.execute(statement).fetchall())


def expected(model, vectors):
    return dict(enumerate(code_texts(model.encode(vectors), BITS), 1))


def refused(connection, kind, message, **options):
    with pytest.raises(kind, match=message) as caught:
        fill(connection, **options)
    assert "\n" not in str(caught.value)


def test_every_row_gets_its_code(connection, coded, model, vectors):
    done = fill(connection, batch_rows=70)
    assert (done.model, done.written, done.unchanged, done.left_out) == ("lsh:1", ROWS, 0, 0)
    assert codes_of(connection) == expected(model, vectors)
    again = fill(connection)
    assert (again.written, again.unchanged) == (0, ROWS)


def test_codes_are_those_of_sql_and_of_queries(connection, coded, model, vectors):
    fill(connection)
    differing = "SELECT id FROM items WHERE code <> hashindex.encode('lsh', embedding)"
    assert connection.execute(differing).fetchall() == []
    (query,) = map(Bit, code_texts(model.encode(vectors[:1]), BITS))
    nearest = "SELECT id FROM items ORDER BY bit_count(code # %s), id LIMIT 1"
    assert connection.execute(nearest, [query]).fetchone() == (1,)


def test_a_run_that_was_cut_off_is_continued(connection, coded, model, vectors, monkeypatch):
    encode, calls = Model.encode, []

    def cut_off(self, X):
        calls.append(len(X))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", cut_off)
    with pytest.raises(KeyboardInterrupt):
        fill(connection, batch_rows=70)
    monkeypatch.undo()
    assert sum(code is not None for code in codes_of(connection).values()) == 140
    done = fill(connection, missing=True)
    assert (done.written, done.unchanged) == (160, 0)
    assert codes_of(connection) == expected(model, vectors)


def test_missing_leaves_codes_alone(connection, coded, model, vectors):
    fill(connection)
    connection.execute("UPDATE items SET code = NULL WHERE id IN (7, 8)")
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 8")
    assert fill(connection, missing=True).written == 1
    assert codes_of(connection) == expected(model, vectors) | {8: None}


def test_a_row_without_a_vector_loses_its_code(connection, coded):
    fill(connection)
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 8")
    done = fill(connection)
    assert (done.written, done.unchanged, done.left_out) == (1, ROWS - 1, 0)
    assert codes_of(connection)[8] is None


def test_a_key_of_several_columns_and_another_key(connection, coded, model, vectors):
    connection.execute(
        'CREATE TABLE "odd %s name" AS SELECT category AS "shop %", id::numeric(9, 1) AS "the id", '
        "gen_random_uuid() AS other, embedding, code FROM items"
    )
    connection.execute(
        'ALTER TABLE "odd %s name" ADD PRIMARY KEY ("shop %", "the id"), ADD UNIQUE (other), '
        "ALTER other SET NOT NULL"
    )
    for key in (None, "other"):
        connection.execute('UPDATE "odd %s name" SET code = NULL')
        done = fill(connection, table='"odd %s name"', key_columns=key, batch_rows=41)
        assert done.written == ROWS
        found = codes_of(connection, '"odd %s name"', '"the id"')
        assert {int(key): code for key, code in found.items()} == expected(model, vectors)


def test_a_partitioned_table_and_half_vectors(connection, model, vectors):
    connection.execute(
        "CREATE TABLE parted (id bigint PRIMARY KEY, embedding halfvec(8), code bit(12)) "
        "PARTITION BY HASH (id)"
    )
    for part in range(3):
        connection.execute(
            f"CREATE TABLE part_{part} PARTITION OF parted "
            f"FOR VALUES WITH (MODULUS 3, REMAINDER {part})"
        )
    with connection.cursor() as cursor:
        rows = [(number, Vector(row)) for number, row in enumerate(vectors, 1)]
        cursor.executemany("INSERT INTO parted VALUES (%s, %s::vector::halfvec)", rows)
    assert fill(connection, table="parted", batch_rows=70).written == ROWS
    halves = vectors.astype(np.float16).astype(np.float32)
    assert codes_of(connection, "parted") == expected(model, halves)


def test_the_throttle(connection, coded):
    began = time.monotonic()
    fill(connection, rows_per_second=400)
    assert 0.5 < time.monotonic() - began < 10
    refused(connection, InvalidInputError, "rows_per_second must be above 0", rows_per_second=0)
    refused(connection, InvalidInputError, "batch_rows must be 1 or more", batch_rows=0)


# Rows that a model cannot encode.


def test_rows_that_are_too_large_are_named(connection, coded, model):
    steep = Model("steep", "byhand", 8, [affine(np.full((BITS, 8), 3e38, np.float32))])
    store.save(connection, steep)
    fill(connection)
    connection.execute("UPDATE items SET embedding = '[0,0,0,0,0,0,0,0]' WHERE id > 2")
    connection.execute("UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id <= 2")
    done = fill(connection, "steep", batch_rows=70)
    assert done.left_out == 2
    assert done.reasons == dict.fromkeys(["1", "2"], "its numbers are too large for the model")
    found = codes_of(connection)
    assert (found[1], found[2], found[3]) == (None, None, "0" * BITS)
    # They are tried again, and named again.
    assert fill(connection, "steep", missing=True).left_out == 2


def test_rows_of_another_dimension_are_named(connection, coded, model, vectors):
    connection.execute("ALTER TABLE items ALTER embedding TYPE vector")
    connection.execute("UPDATE items SET embedding = '[1,2,3]' WHERE id = 7")
    done = fill(connection)
    assert done.reasons == {"7": "it has 3 dimensions, the model takes 8"}
    assert codes_of(connection) == expected(model, vectors) | {7: None}


def test_another_dimension_is_refused(connection, coded):
    connection.execute("ALTER TABLE items ADD short vector(3)")
    message = "column 'short' of items has 3 dimensions, model lsh:1 takes 8"
    refused(connection, InvalidInputError, message, column="short")


# Models of all kinds.


def test_learned_codes_of_rows(connection, coded, model, vectors):
    learned = pack(np.random.default_rng(1).random((40, BITS)) > 0.5)
    store.save(
        connection, replace(model, name="taught", learned=known_rows(vectors[:40], learned, BITS))
    )
    hashed = expected(model, vectors)
    fill(connection, "taught")
    assert codes_of(connection) == hashed
    fill(connection, "taught", codes="learned")
    assert codes_of(connection) == hashed | dict(enumerate(code_texts(learned, BITS), 1))
    refused(connection, InvalidInputError, "lsh:1 has no learned codes", codes="learned")
    refused(connection, InvalidInputError, "codes must be hashed or learned", codes="both")


def test_a_model_that_knows_only_its_rows(connection, coded, vectors):
    learned = pack(np.random.default_rng(1).random((298, BITS)) > 0.5)
    network = known_rows(vectors[2:], learned, BITS)
    store.save(connection, Model("rows", "bgdh", 8, [], network=network))
    for chosen in (None, "learned"):
        done = fill(connection, "rows", codes=chosen)
        assert (done.left_out, [*done.reasons]) == (2, ["1", "2"])
        assert "the model was not trained on it" in done.reasons["1"]
        found = codes_of(connection)
        assert found == {1: None, 2: None} | dict(enumerate(code_texts(learned, BITS), 3))
    message = "rows:1 has codes only for the rows that it was trained on"
    refused(connection, InvalidInputError, message, name="rows", codes="hashed")


def test_a_network_of_trees(connection, coded, vectors):
    rng = np.random.default_rng(2)
    arrays = {
        "features": rng.integers(0, 8, (BITS, 2, 1)).astype(np.int32),
        "thresholds": np.zeros((BITS, 2, 1), np.float32),
        "leaves": rng.standard_normal((BITS, 2, 2)).astype(np.float32),
    }
    network = Network("trees", {"dimension": 8}, arrays, BITS)
    trees = store.save(connection, Model("trees", "fasth", 8, [], network=network))
    fill(connection, "trees")
    assert codes_of(connection) == expected(trees, vectors)


def test_codes_of_another_model_are_not_mixed(connection, coded, model, vectors):
    fill(connection)
    other = LSH(n_bits=BITS, random_state=9).fit(vectors).to_model("lsh")
    store.save(connection, other)
    connection.execute("UPDATE items SET code = NULL WHERE id <= 7")
    message = "column 'code' of items has other codes than model lsh:2"
    refused(connection, InvalidInputError, message, missing=True)
    assert fill(connection, "lsh:1", missing=True).written == 7
    assert codes_of(connection) == expected(model, vectors)
    fill(connection, "lsh:2")
    assert codes_of(connection) == expected(other, vectors)


# Other sessions.


def test_no_row_gets_the_code_of_a_former_vector(
    connection, other, coded, model, vectors, monkeypatch
):
    encode = Model.encode
    changed = vectors.copy()

    def meanwhile(self, X):
        made = encode(self, X)
        if not other.info.transaction_status and len(X) == 70 and changed[0, 0] != 9:
            changed[0] = 9
            other.execute("UPDATE items SET embedding = %s WHERE id = 1", [Vector(changed[0])])
            other.execute("DELETE FROM items WHERE id = 2")
        return made

    monkeypatch.setattr(Model, "encode", meanwhile)
    done = fill(connection, batch_rows=70)
    monkeypatch.undo()
    assert done.written == ROWS - 1
    wanted = expected(model, changed)
    del wanted[2]
    assert codes_of(connection) == wanted


def test_a_locked_row_is_waited_for_and_nothing_else(connection, other, coded, model, vectors):
    with other.transaction(force_rollback=True):
        other.execute("UPDATE items SET category = 'x' WHERE id = 5")
        thread = threading.Thread(target=fill, args=(connection,))
        thread.start()
        deadline = time.monotonic() + 20
        with_code = "SELECT count(*) FROM items WHERE code IS NOT NULL"
        while other.execute(with_code).fetchone() != (ROWS - 1,):
            assert time.monotonic() < deadline
        # A writer of other rows does not wait.
        other.execute("SET LOCAL lock_timeout = '1s'")
        other.execute("UPDATE items SET category = 'y' WHERE id = 6")
    thread.join(20)
    assert codes_of(connection) == expected(model, vectors)


def test_a_row_that_stays_locked(connection, other, coded, monkeypatch):
    monkeypatch.setattr(columns, "_PATIENCE", 0.3)
    with other.transaction():
        other.execute("SELECT FROM items WHERE id = 5 FOR UPDATE")
        message = "row 5 of items has been locked .*299 codes were written: run it again"
        refused(connection, DatabaseStateError, message)
    assert fill(connection, missing=True).written == 1


# Columns and tables that cannot take codes.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "",
            r"items has no column 'code'; run: ALTER TABLE .*items\" ADD COLUMN \"code\" bit\(12\)",
        ),
        ("ADD code text", "is of type text, and codes of model lsh:1 are"),
        (
            "ADD code bit(13)",
            r"is of type bit\(13\), and codes of model lsh:1 are bit\(12\); run: ",
        ),
        ("ADD code varbit(12)", r"is of type bit varying\(12\)"),
        ("ADD code bit(12) GENERATED ALWAYS AS (B'000000000000') STORED", "is generated"),
        ("ADD code bit(12) NOT NULL DEFAULT B'000000000000'", "is NOT NULL.*DROP NOT NULL"),
    ],
)
def test_columns_that_are_refused(connection, items, model, change, message):
    if change:
        connection.execute(f"ALTER TABLE items {change}")
    refused(connection, InvalidInputError, message)


def test_tables_that_are_refused(connection, coded):
    connection.execute("CREATE VIEW seen AS SELECT * FROM items")
    connection.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM items")
    connection.execute("CREATE TABLE bare AS SELECT * FROM items")
    connection.execute("CREATE TABLE above (LIKE items INCLUDING ALL)")
    connection.execute("CREATE TABLE below () INHERITS (above)")
    connection.execute("CREATE TABLE keyed (code bit(12) PRIMARY KEY, embedding vector(8))")
    for table, message in {
        "seen": "seen is neither a table nor",
        "kept": "kept is a materialised view",
        "bare": "bare has no primary key",
        "above": "other tables inherit from above",
        "keyed": "column 'code' of keyed is a part of its key",
        "nowhere": "'nowhere' is not a table",
    }.items():
        refused(connection, InvalidInputError, message, table=table)
    refused(connection, InvalidInputError, "is of type bigint, not vector", column="id")
    refused(connection, InvalidInputError, "no column 'nothing'", column="nothing")
    refused(connection, UnknownModelError, 'model "none" does not exist', name="none")
    with connection.transaction():
        refused(connection, InvalidInputError, "call it outside a transaction")


def test_what_an_index_reads_is_refused(connection, index):
    refused(connection, InvalidInputError, "is read by index items_idx", into="embedding")
    (codes,) = connection.execute(
        "SELECT 'set_' || id || '_codes' FROM hashindex.index_set"
    ).fetchone()
    connection.execute(f"ALTER TABLE hashindex.{codes} ADD v vector(8)")
    message = "is a table of pg_hashindex; use a table of your own"
    refused(connection, InvalidInputError, message, table=f"hashindex.{codes}", column="v")


def test_an_index_of_the_same_table_stays_right(connection, index, model, vectors):
    connection.execute("ALTER TABLE items ADD code bit(12)")
    fill(connection)
    assert codes_of(connection) == expected(model, vectors)
    assert operations.check(index, full=True).status == "ok"


def test_an_index_that_searches_the_column_by_another_model_is_named(
    connection, coded, model, vectors
):
    fill(connection)
    given = {"table": "items", "column": "embedding", "code_column": "code"}
    index = HashIndex.create(connection, "coded", model="lsh", **given)
    other = LSH(n_bits=BITS, random_state=5).fit(vectors).to_model("other")
    store.save(connection, other)
    message = (
        "index coded searches column 'code' of items by codes of model lsh:1, and .* run: "
        "pg-hashindex index swap coded --model other:1 --code-column code$"
    )
    with pytest.warns(SlowWritesWarning), pytest.warns(OtherModelWarning, match=message):
        encode_column(connection, "other", "items", "embedding", "code")
    index.swap(model="other:1", code_column="code", force=True)
    assert codes_of(connection) == expected(other, vectors)
    assert index.model == "other"
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherModelWarning)
        encode_column(connection, "other", "items", "embedding", "code", missing=True)


def test_indexes_and_triggers_are_named_before(connection, coded):
    connection.execute("CREATE INDEX by_code ON items USING hnsw (code bit_hamming_ops)")
    connection.execute("CREATE INDEX by_part ON items (id) WHERE code IS NULL")
    connection.execute(
        "CREATE FUNCTION notes() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'"
    )
    for name, event in {"audit": "UPDATE", "other": "UPDATE OF embedding", "new": "INSERT"}.items():
        connection.execute(
            f"CREATE TRIGGER {name} BEFORE {event} ON items FOR EACH ROW EXECUTE FUNCTION notes()"
        )
    with pytest.warns(SlowWritesWarning) as said:
        encode_column(connection, "lsh", "items", "embedding", "code")
    first, second = (str(warning.message) for warning in said)
    assert "index by_code, by_part has column 'code' of items" in first
    assert "trigger audit of items fires" in second
    # Maintenance of a column with an index is not a first fill.
    with pytest.warns(SlowWritesWarning, match="trigger audit"):
        encode_column(connection, "lsh", "items", "embedding", "code", missing=True)


def test_a_trigger_that_keeps_a_row_back(connection, coded, model, vectors):
    connection.execute(
        "CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF old.id = 7 THEN RETURN NULL; END IF; RETURN new; END'"
    )
    connection.execute(
        "CREATE TRIGGER keep BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION keeps()"
    )
    with pytest.warns(SlowWritesWarning):
        done = encode_column(connection, "lsh", "items", "embedding", "code")
    assert (done.written, done.reasons) == (
        ROWS - 1,
        {"7": "a trigger keeps it from being written"},
    )
    assert codes_of(connection) == expected(model, vectors) | {7: None}


# Rights.


@pytest.fixture
def reader(connection, as_role, coded):
    """A role that may read the model and the table, but not write."""
    session = as_role("encoder")
    connection.execute("GRANT SELECT ON hashindex.model, items TO encoder")
    return session


def test_a_role_without_the_right_to_write(connection, reader, model, vectors):
    refused(reader, MissingRightsError, "permission denied for table items")
    connection.execute("GRANT UPDATE (code) ON items TO encoder")
    assert fill(reader).written == ROWS
    assert codes_of(connection) == expected(model, vectors)
    connection.execute("REVOKE SELECT ON items FROM encoder")
    refused(reader, MissingRightsError, "permission denied for table items")


def test_row_security_hides_rows(connection, reader):
    connection.execute("GRANT UPDATE ON items TO encoder")
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY own ON items USING (category = 'a')")
    refused(reader, MissingRightsError, "row security of items hides rows from this role")
    assert fill(connection).written == ROWS


def test_a_table_that_gets_another_owner_is_left(connection, other, coded, as_role, monkeypatch):
    as_role("stranger")
    encode, calls = Model.encode, []

    def meanwhile(self, X):
        calls.append(X)
        if len(calls) == 2:
            other.execute("ALTER TABLE items OWNER TO stranger")
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", meanwhile)
    refused(connection, MissingRightsError, "stranger", batch_rows=70)
    assert sum(code is not None for code in codes_of(connection).values()) == 70
