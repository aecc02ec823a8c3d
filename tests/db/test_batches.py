"""Bulk encoding reads batches of vectors, and writes arrays of codes, both in binary form."""

import decimal
import string
import uuid

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists, create_index, indexed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pgvector import HalfVector, Vector
from psycopg import sql
from psycopg.pq import TransactionStatus

from pg_hashindex import store
from pg_hashindex.db import batches
from pg_hashindex.db.batches import decode_vectors, dimension_of
from pg_hashindex.db.statements import execute
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes, layers
from pg_hashindex.models.codes import CodeArray, send_code_arrays
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

ONE_DATABASE = settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
READ = "SELECT id::text, embedding, category FROM items WHERE id > $1 ORDER BY items.id LIMIT $2"


def read(connection, after, rows):
    with connection.transaction():
        return batches.read_batch(
            connection, sql.SQL(READ).format(), [after, rows], rows=rows, dimension=8, table="items"
        )


@given(hnp.arrays(np.float32, st.tuples(st.integers(0, 9), st.integers(1, 9))))
def test_decoding_undoes_encoding(vectors):
    binary = [Vector(vector).to_binary() for vector in vectors]
    assert set(map(dimension_of, binary)) <= {vectors.shape[1]}
    decoded = np.empty_like(vectors)
    decode_vectors(binary, decoded)
    # As integers: every bit, of NaN and -0.0 too.
    assert np.array_equal(decoded.view(np.uint32), vectors.view(np.uint32))


@given(hnp.arrays(np.float16, st.tuples(st.integers(0, 9), st.integers(1, 9))))
def test_decoding_undoes_encoding_of_halves(vectors):
    binary = [HalfVector(vector).to_binary() for vector in vectors]
    assert set(map(dimension_of, binary)) <= {vectors.shape[1]}
    decoded = np.full(vectors.shape, 9, np.float32)
    decode_vectors(binary, decoded)
    np.testing.assert_array_equal(decoded, vectors.astype(np.float32))


@pytest.mark.parametrize("dimension", [1, 2000, 16_000])
def test_decoding_in_blocks(dimension):
    rows = 2 * 100_000 // dimension + 3
    vectors = np.random.default_rng(dimension).standard_normal((rows, dimension), np.float32)
    decoded = np.zeros((rows + 1, dimension), np.float32)
    decode_vectors([Vector(vector).to_binary() for vector in vectors], decoded[:rows])
    assert np.array_equal(decoded[:rows], vectors)
    assert not decoded[rows].any()
    halves = vectors.astype(np.float16)
    decode_vectors([HalfVector(half).to_binary() for half in halves], decoded[:rows])
    assert np.array_equal(decoded[:rows], halves.astype(np.float32))
    assert not decoded[rows].any()


@ONE_DATABASE
@given(st.integers(1, 150), st.integers(0, 9), st.randoms(use_true_random=False))
def test_an_array_of_codes(connection, n_bits, rows, random):
    bits = np.array([[random.random() < 0.5 for _ in range(n_bits)] for _ in range(rows)], bool)
    packed = codes.pack(bits.reshape(rows, n_bits))
    send_code_arrays(connection)
    found = execute(
        connection,
        "SELECT u.code::text FROM unnest($1) WITH ORDINALITY u(code, place) ORDER BY u.place",
        [CodeArray(packed, n_bits)],
    ).fetchall()
    assert found == [("".join("01"[int(bit)] for bit in row),) for row in bits]


def test_refuses_an_array_of_codes_of_another_width():
    with pytest.raises(InvalidInputError, match=r"shape \(3, 2\); 17 bits need \(n, 3\)"):
        CodeArray(np.zeros((3, 2), np.uint8), 17)


@pytest.mark.parametrize("block_rows", [1, 7, 299, 300])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_batch_is_all_of_its_blocks(connection, items, vectors, monkeypatch, block_rows, chunked):
    """With a libpq older than 17 too, which cannot give several rows at a time."""
    monkeypatch.setattr(batches, "_BLOCK_ROWS", block_rows)
    if not chunked:
        monkeypatch.setattr(psycopg.capabilities, "has_stream_chunked", lambda: False)
    batch = read(connection, 0, 1000)
    assert len(batch) == 300
    assert batch.ids == [str(i) for i in range(1, 301)]
    assert batch.codes == ["abc"[i % 3] for i in range(300)]
    assert np.array_equal(batch.vectors, vectors)
    batch = read(connection, 290, 4)
    assert batch.ids == ["291", "292", "293", "294"]
    assert np.array_equal(batch.vectors, vectors[290:294])


def test_an_empty_batch(connection, items):
    batch = read(connection, 300, 10)
    assert (batch.ids, batch.codes, batch.vectors.shape) == ([], [], (0, 8))
    assert len(batch) == 0


def test_some_rows_of_a_batch(connection, items, vectors):
    batch = read(connection, 0, 5).select(np.array([False, True, False, False, True]))
    assert (batch.ids, batch.codes) == (["2", "5"], ["b", "b"])
    assert np.array_equal(batch.vectors, vectors[[1, 4]])


def by_hand(dimension, n_bits):
    """Whole numbers alone: sums of them are exact, whoever adds them up."""
    weights = np.random.default_rng(5).integers(-3, 4, (n_bits, dimension))
    return Model("by hand", "byhand", dimension, (layers.affine(weights.astype(np.float32)),))


KEYS = {
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.uuids(),
    "text": st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
        st.text("\"'\\%{},NUL $1\n\t\r", max_size=6),
    ),
    "varchar(4)": st.text(string.printable.strip(), max_size=4),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=5).map(
        decimal.Decimal.normalize
    ),
    "double precision": st.floats(allow_nan=False).map(lambda x: x + 0.0),
    "timestamptz": st.datetimes().map(lambda moment: f"{moment.isoformat()}+00"),
    "bytea": st.binary(max_size=12).map(lambda value: "\\x" + value.hex()),
    "of_text": st.text(string.printable, max_size=5),
}


@pytest.mark.parametrize("key_type", KEYS)
def test_keys_go_there_and_back(connection, key_type):
    store.save(connection, by_hand(3, 13))
    connection.execute("CREATE DOMAIN of_text AS text CHECK (value <> 'never')")
    connection.execute(f"CREATE TABLE keyed (k {key_type} PRIMARY KEY, v vector(3))")
    index = begin_lists(connection, "keyed", table="keyed", column="v", model="by hand")
    # No trigger may encode the rows.
    connection.execute("SET session_replication_role = replica")

    @settings(max_examples=8)
    @given(st.lists(KEYS[key_type], min_size=1, max_size=9))
    def check(keys):
        connection.execute("TRUNCATE keyed, hashindex.set_1_codes")
        rows = 0
        for number, key in enumerate(keys):
            rows += connection.execute(
                f"INSERT INTO keyed VALUES (%s::text::{key_type}, %s) ON CONFLICT DO NOTHING",
                [str(key), Vector([number, -1, number % 3])],
            ).rowcount
        assert index.encode(batch_rows=4) == rows
        assert_fresh(index)

    check()


@pytest.mark.parametrize(("dimension", "n_bits"), [(1, 1), (1, 9), (2000, 13)])
def test_short_and_long_vectors(connection, dimension, n_bits):
    store.save(connection, by_hand(dimension, n_bits))
    connection.execute("CREATE TABLE sized (id uuid PRIMARY KEY, v vector)")
    rows = np.random.default_rng(1).integers(-4, 5, (60, dimension))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO sized VALUES (%s, %s)",
            [(uuid.UUID(int=i * 7919), Vector(row)) for i, row in enumerate(rows)],
        )
    index = begin_lists(connection, "sized", table="sized", column="v", model="by hand")
    assert index.encode(batch_rows=23) == 60
    assert_fresh(index)


def test_a_batch_of_any_size(connection, items, model):
    index = create_index(connection, "any")
    assert index.encode(batch_rows=10**15) == 300
    assert_fresh(index)


@pytest.fixture
def loose(connection, model):
    """2,000 rows without codes, more than a socket holds, number 1,500 of another dimension."""
    store.save(connection, by_hand(500, 12))
    connection.execute("CREATE TABLE loose (id int PRIMARY KEY, v vector)")
    index = begin_lists(connection, "loose", table="loose", column="v", model="by hand")
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        "INSERT INTO loose SELECT n, array_fill(1, ARRAY[CASE n WHEN 1500 THEN 7 ELSE 500 END]) "
        "FROM generate_series(1, 2000) n"
    )
    connection.execute("RESET session_replication_role")
    return index


def test_a_row_of_another_dimension_among_others(loose):
    with pytest.raises(InvalidInputError, match="row 1500 .* 7 dimensions, the model takes 500"):
        loose.encode(batch_rows=1000)
    assert loose.connection.info.transaction_status == TransactionStatus.IDLE
    assert loose.summary().codes == 1000
    loose.connection.execute("DELETE FROM loose WHERE id = 1500")
    assert loose.encode() == 999
    assert_fresh(loose)


def test_interrupted_while_the_server_sends(loose, monkeypatch):
    """The connection is as before: neither in a transaction nor held by a stream."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batches, "decode_vectors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loose.encode()
    assert loose.connection.info.transaction_status == TransactionStatus.IDLE
    loose.connection.execute("UPDATE loose SET v = array_fill(1, ARRAY[500]) WHERE id = 1500")
    assert loose.encode() == 1999
    assert_fresh(loose)


def test_needs_no_right_to_make_temporary_tables(connection, items, model):
    indexed(connection)
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id <= 100")
    connection.execute(
        "DO $$ BEGIN CREATE ROLE plain_encoder; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    connection.execute(
        "GRANT SELECT, UPDATE ON items TO plain_encoder;"
        "SELECT hashindex.grant_reader('items_idx', 'plain_encoder');"
        "GRANT UPDATE ON hashindex.index, hashindex.index_set TO plain_encoder;"
        "GRANT ALL ON hashindex.claim, hashindex.set_1_codes TO plain_encoder"
    )
    connection.execute(
        f'REVOKE TEMPORARY ON DATABASE "{connection.info.dbname}" FROM PUBLIC, plain_encoder'
    )
    connection.execute("SET ROLE plain_encoder")
    index = HashIndex.open(connection, "items_idx")
    assert index.encode() == 100
    connection.execute("RESET ROLE")
    assert_fresh(index)
    assert index.encode() == 0
