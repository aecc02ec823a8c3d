"""Answers: those that a plain reading of the definition gives, in the same order."""

import asyncio
import inspect
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.indexes import create_index, indexed
from pgvector import Vector
from psycopg import sql
from psycopg.pq import TransactionStatus

from pg_hashindex import AsyncHashIndex
from pg_hashindex.db.connection import connect
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import DatabaseStateError, InvalidInputError, UnknownIndexError
from pg_hashindex.index.handle import HashIndex

items_table = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


def expected(index, vectors, query, k, candidates):
    """The ids by definition: the candidates of the index, in the order of the exact distance.

    `test_candidates` holds these against Python; the choice among equal codes is not defined.
    """
    rows = index.connection.execute(
        "SELECT id::bigint FROM hashindex.candidates(%s, %s, %s)",
        [index.name, Vector(query), max(candidates, k)],
    ).fetchall()
    return nearest(vectors, query, k, np.array([row[0] for row in rows]) - 1)


def nearest(vectors, query, k, rows):
    """The ids of the rows that are nearest by exact distance, of those named."""
    exact = np.linalg.norm(vectors[rows].astype(np.float64) - query, axis=1)
    return [int(row) + 1 for row in rows[np.lexsort((rows, exact))[:k]]]


def test_equals_the_definition(index, vectors):
    queries = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    for query, k, candidates in product(queries, [1, 10, 40], [1, 20, 100, 300, 5000]):
        hits = index.search(query, k, candidates=candidates)
        assert [hit.id for hit in hits] == expected(index, vectors, query, k, candidates)
        distances = [np.linalg.norm(vectors[hit.id - 1] - query) for hit in hits]
        np.testing.assert_allclose([hit.distance for hit in hits], distances, rtol=1e-5)


def test_default_candidates_are_200_and_more_for_more_answers(index, vectors):
    query = -vectors[0]
    for k in (10, 13, 250):
        wanted = expected(index, vectors, query, k, 20 * max(k, 10))
        assert [hit.id for hit in index.search(query, k)] == wanted


def test_defaults_of_the_index(index, vectors):
    query = -vectors[0]
    index = index.configure(candidates=12)
    assert (index.candidates, index.access) == (12, "scan")
    wanted = expected(index, vectors, query, 5, 12)
    assert [hit.id for hit in index.search(query, 5)] == wanted
    assert generic(index, query, wanted=5) == wanted


@pytest.mark.reads
@pytest.mark.newest
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": 0}, "candidates is 0; it must be 1 or more"),
        ({"effort": 3}, "effort is for lists with landmarks, and index .* has none"),
        ({"access": "lists"}, "index .* is changed by candidates, effort; got access"),
    ],
)
def test_defaults_that_are_refused(index, change, message):
    before = index.candidates
    with pytest.raises(InvalidInputError, match=message):
        index.configure(**change)
    assert index.open(index.connection, index.name).candidates == before


@pytest.mark.newest
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": 0}, "candidates is 0"),
        ({"effort": 0}, "effort is 0"),
        ({"effort": -1}, "effort is -1"),
    ],
)
@pytest.mark.parametrize("where", [None, items_table.c.id > 0])
@pytest.mark.reads
def test_arguments_that_are_refused(index, vectors, arguments, message, where):
    with pytest.raises(InvalidInputError, match=message):
        index.search(vectors[0], where=where, **arguments)


@pytest.mark.parametrize(("metric", "operator"), [("l2", "<->"), ("cosine", "<=>"), ("ip", "<#>")])
def test_metrics(connection, items, model, vectors, metric, operator):
    index = indexed(connection, "by_metric", metric=metric)
    hits = index.search(vectors[3], 10, candidates=300)
    exact = connection.execute(
        f"SELECT id, embedding {operator} %s AS d FROM items ORDER BY d, id LIMIT 10",
        [Vector(vectors[3])],
    ).fetchall()
    assert [tuple(hit) for hit in hits] == exact


def test_where_restricts_the_candidates(index, vectors):
    """In a small table all rows that match are compared."""
    kept = np.flatnonzero(["abc"[i % 3] == "b" for i in range(300)])
    hits = index.search(vectors[0], 30, candidates=40, where=items_table.c.category == "b")
    assert [hit.id for hit in hits] == nearest(vectors, vectors[0], 30, kept)


def test_where_takes_any_condition(index, vectors):
    condition = items_table.c.category.in_(["a", "c"]) & (
        items_table.c.id.between(50, 250) | (items_table.c.category == "it's 100% $1")
    )
    kept = np.flatnonzero([50 <= i + 1 <= 250 and "abc"[i % 3] != "b" for i in range(300)])
    hits = index.search(vectors[0], 10, candidates=25, where=condition)
    assert [hit.id for hit in hits] == nearest(vectors, vectors[0], 10, kept)


@pytest.mark.newest
@pytest.mark.reads
def test_where_refuses_other_tables(index, vectors):
    orders = sa.Table("orders", sa.MetaData(), sa.Column("item", sa.Integer))
    with pytest.raises(InvalidInputError, match="orders.item"):
        index.search(vectors[0], where=orders.c.item == 1)
    with pytest.raises(InvalidInputError, match="SQLAlchemy expression .* got str"):
        index.search(vectors[0], where="id = 1")  # type: ignore[arg-type]


def generic(index, query, /, wanted=30, **where):
    rows = index.connection.execute(
        "SELECT id, distance FROM hashindex.search(%s, %s, %s, where_equals => %s)",
        [index.name, Vector(query), wanted, json.dumps(where)],
    ).fetchall()
    return [int(row_id) for row_id, _ in rows]


def test_where_equals(index, vectors):
    kept = np.flatnonzero(["abc"[i % 3] == "b" for i in range(300)])
    query = vectors[9]
    assert generic(index, query, category="b") == nearest(vectors, query, 30, kept)
    assert generic(index, query, category="b", id=5) == [5]
    assert generic(index, query, category=None) == []
    assert generic(index, query, category="b' OR true --") == []
    assert generic(index, query) == expected(index, vectors, query, 30, 200)


@pytest.mark.newest
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ('{"colour": 1}', "column items.colour does not exist"),
        ('{"category\\" = category --": 1}', "does not exist"),
        ('{"category": ["a"]}', "Values are text, numbers"),
        ('["category"]', "not a JSON object"),
    ],
)
@pytest.mark.reads
def test_where_equals_refuses(index, where, message):
    with pytest.raises(psycopg.Error) as caught:
        index.connection.execute(
            "SELECT * FROM hashindex.search(%s, '[1,2,3,4,5,6,7,8]', where_equals => %s)",
            [index.name, where],
        )
    assert message in f"{caught.value.diag.message_primary} {caught.value.diag.message_hint}"


@pytest.mark.newest
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "2 dimensions, expected 8"),
        (([[1.0] * 8],), "a query is one vector"),
        (([np.nan] * 8,), "is nan; vectors must be finite"),
        (([np.inf] * 8,), "is inf"),
        ((["a"] * 8,), "must be numbers"),
        (([0.0] * 8, 0), "k is 0; it must be 1 or more"),
        (([0.0] * 8, -3), "k is -3"),
    ],
)
@pytest.mark.reads
def test_refused_from_python(index, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        index.search(*arguments)


@pytest.mark.newest
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("search('other', '[1,2,3,4,5,6,7,8]')", 'index "other" does not exist'),
        ("search(NULL, '[1,2,3,4,5,6,7,8]')", 'index "NULL" does not exist'),
        ("search_items_idx('[1,2,3,4,5,6,7,NaN]')", "NaN not allowed"),
    ],
)
@pytest.mark.reads
def test_refused_in_sql(index, call, message):
    with pytest.raises(psycopg.Error, match=message):
        index.connection.execute(f"SELECT * FROM hashindex.{call}")


@pytest.mark.reads
def test_like_a_row(index, vectors):
    around = index.search(vectors[4], 7)
    assert around[0].id == 5
    assert index.search_like(5, 6) == around[1:]
    assert index.search_like("5", 6, where=items_table.c.id != around[1].id)[0] == around[2]
    with pytest.raises(InvalidInputError, match="no row with id = 999"):
        index.search_like(999)
    with pytest.raises(InvalidInputError, match="the key is None; give one of id"):
        index.search_like(None)
    with pytest.raises(InvalidInputError, match="k is 0"):
        index.search_like(5, 0)
    with pytest.raises(InvalidInputError, match="invalid input syntax for type bigint"):
        index.search_like("five")


@pytest.mark.reads
def test_unknown_index(connection):
    with pytest.raises(UnknownIndexError, match='"nothing" does not exist'):
        HashIndex.open(connection, "nothing")


def test_typed_function_gives_the_key_s_own_type(index):
    row = index.connection.execute(
        "SELECT pg_typeof(id)::text, pg_typeof(distance)::text "
        "FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]') LIMIT 1"
    ).fetchone()
    assert row == ("bigint", "double precision")


def test_in_a_read_only_transaction_and_under_any_search_path(index, vectors):
    connection = index.connection
    before = index.search(vectors[0])
    filtered = index.search(vectors[0], where=items_table.c.id < 100)
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("SET LOCAL search_path TO ''")
        assert index.search(vectors[0]) == before
        # The condition is the caller's own SQL, so its names resolve as everywhere.
        connection.execute("SET LOCAL search_path TO public")
        assert index.search(vectors[0], where=items_table.c.id < 100) == filtered
        assert (
            len(
                connection.execute(
                    "SELECT * FROM hashindex.search('items_idx', %s)", [Vector(vectors[0])]
                ).fetchall()
            )
            == 10
        )


def test_empty_table(connection, model):
    connection.execute("CREATE TABLE nothing (id int PRIMARY KEY, embedding vector(8))")
    index = create_index(connection, "nothing", table="nothing")
    assert index.encode() == 0
    assert index.search(np.zeros(8)) == []


def test_search_works_on_a_connection_of_the_caller_s_own(url, index):
    with psycopg.connect(url) as own:  # neither autocommit nor pgvector's types
        hits = HashIndex.open(own, "items_idx").search(np.ones(8))
    with connect(url) as ours:
        assert HashIndex.open(ours, "items_idx").search(np.ones(8)) == hits


def test_an_unknown_index_leaves_no_transaction_open(url, index):
    with psycopg.connect(url) as own:
        with pytest.raises(UnknownIndexError):
            HashIndex.open(own, "missing")
        assert own.info.transaction_status == TransactionStatus.IDLE
        own.execute("SELECT 1")
        with pytest.raises(UnknownIndexError):
            HashIndex.open(own, "missing")
        assert own.info.transaction_status == TransactionStatus.INERROR


def test_tables_named_like_parts_of_the_query(connection, model):
    for name in ("c", "codes", "query"):
        connection.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, k int, candidates int, "
            "codes bit(12), c vector(8))"
        )
        connection.execute(
            f"INSERT INTO {name} SELECT n, n % 3, 1, repeat('1', 12)::bit(12), "
            f"ARRAY[n, 1, 2, 3, -n, 5, 6, 7]::vector FROM generate_series(-50, 50) n"
        )
        index = indexed(connection, f"i_{name}", table=name, column="c")
        assert [hit.id for hit in index.search([3, 1, 2, 3, -3, 5, 6, 7], 1)] == [3]
        table = sa.Table(name, sa.MetaData(), sa.Column("k", sa.Integer))
        assert index.search([3, 1, 2, 3, -3, 5, 6, 7], 1, where=table.c.k == 0)[0].id == 3
        assert generic(index, [3, 1, 2, 3, -3, 5, 6, 7], k=0)[0] == 3


def test_numbers_in_where_equals(index):
    index.connection.execute("ALTER TABLE items ADD price numeric, ADD words text")
    index.connection.execute("UPDATE items SET price = 2.50, words = '5' WHERE id = 7")
    for where in ({"id": 7}, {"id": 7.0}, {"price": 2.5}, {"words": 5}):
        assert generic(index, [1.0] * 8, **where) == [7]
    assert generic(index, [1.0] * 8, id=7.5) == []


@pytest.mark.parametrize(
    ("key_type", "value", "expected"),
    [("mood", "happy", "happy"), ("uuid", str(uuid.UUID(int=5)), None)],
)
def test_keys_of_the_user_s_own_types(connection, model, key_type, value, expected):
    """In a schema that is on the path of the table's maker alone."""
    connection.execute("CREATE SCHEMA types; CREATE TYPE types.mood AS ENUM ('sad', 'happy')")
    connection.execute("SET search_path TO types, public")
    connection.execute(f"CREATE TABLE public.keyed (k {key_type} PRIMARY KEY, v vector(8))")
    connection.execute("INSERT INTO keyed VALUES (%s, '[1,2,3,4,5,6,7,8]')", [value])
    connection.execute("SET search_path TO public")
    index = create_index(connection, "keyed", table="keyed", column="v")
    assert index.encode() == 1
    assert index.search([1.0] * 8)[0].id == (expected or uuid.UUID(value))
    assert index.search_like(value) == []


@pytest.mark.newest
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("macaddr", ["08:00:2b:01:02:03", "08:00:2b:01:02:04"]),
        ("pg_lsn", ["16/B374D848", "0/1"]),
        ("money", ["$1.50", "$2,000.00"]),
        ("bytea", ["\\x00ff", "\\x"]),
        ("jsonb", ['{"a": [1, "\'"]}', "7"]),
        ("interval", ["1 mon 2 days", "03:00:00"]),
        ("bit varying", ["101", "0"]),
        ('"char"', ["a", "b"]),
        ("inet", ["10.0.0.1", "::1"]),
        ("timestamptz", ["2024-02-03 04:05:06.7+00", "1999-01-01 00:00:00+00"]),
        ("double precision", ["0.1", "1e-300"]),
        ("numeric", ["1.50", "NaN"]),
        ("character(5)", ["a", "b  c"]),
        ("date", ["infinity", "0044-03-15 BC"]),
        ("date", ["-infinity", "10000-02-29"]),
        ("timestamp", ["12345-01-02 03:04:05.006", "0001-12-31 23:59:59 BC"]),
        ("timestamptz", ["infinity", "12345-01-02 03:04:05+00"]),
        ("time", ["24:00:00", "12:30:00"]),
        ("timetz", ["24:00:00+05:30", "24:00:00-01:00"]),
    ],
)
def test_a_key_that_a_search_gives_finds_its_row(connection, model, on, kind, values, several):
    key = "tenant, k" if several else "k"
    connection.execute(
        f"CREATE TABLE keyed (tenant int DEFAULT 7, k {kind}, v vector(8), PRIMARY KEY ({key}))"
    )
    for value in values:
        connection.execute("INSERT INTO keyed (k, v) VALUES (%s, '[1,2,3,4,5,6,7,8]')", [value])
    index = indexed(connection, "keyed", table="keyed", column="v")
    for found in (
        index.search([1.0] * 8),
        index.search([1.0] * 8, filter="tenant = 7"),
        index.within([1.0] * 8, index.n_bits),
    ):
        assert len(found) == 2
        for hit, other in zip(found, found[::-1], strict=True):
            (near,) = index.search_like(hit.id)
            assert str(near.id) == str(other.id)
            (near,) = index.within_like(hit.id, index.n_bits)
            assert str(near.id) == str(other.id)
            if not several:
                literal = sql.Literal(str(hit.id)).as_string()
                (same,) = index.search([1.0] * 8, filter=f"k = {literal}")
                assert str(same.id) == str(hit.id)
                key = hit.id
                for _ in range(2):
                    key = json.loads(on("search", "keyed", "--like", key, "--json").stdout)[0]["id"]
                assert str(index.search_like(key)) == str(index.search_like(hit.id))


def test_a_search_is_one_statement_at_most_three_frames_below(index, vectors, monkeypatch):
    """From `HashIndex.search` to the cursor's ``execute``, both counted."""
    depths = []
    execute = psycopg.Cursor.execute

    def counted(cursor, *arguments, **more):
        frame, depth = inspect.currentframe(), 1
        while frame is not None and frame.f_code is not HashIndex.search.__code__:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
        return execute(cursor, *arguments, **more)

    category = sa.column("category")
    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    index.search(vectors[3])
    assert depths == [3]
    index.search(vectors[3], where=category == "a")
    assert depths == [3, 3]


def test_a_key_that_is_named_distance(connection, items, model, vectors):
    connection.execute("ALTER TABLE items RENAME id TO distance")
    index = indexed(connection)
    exact = index.search(vectors[7], candidates=300)
    assert index.search(vectors[7], filter="distance > 0") == exact
    found = connection.execute(
        "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s)",
        [Vector(vectors[7])],
    )
    assert found.fetchall() == exact


def test_a_function_of_a_dropped_index(connection):
    """As a swap meets it whose index is dropped meanwhile; the schema is not to blame."""
    with (
        pytest.raises(DatabaseStateError, match="recreated meanwhile"),
        translated_errors(),
    ):
        connection.execute("SELECT hashindex.search_gone('[1]'::vector)")


@pytest.mark.parametrize("wrong", ["postgresql://localhost/x", None])
def test_open_wants_a_connection(wrong):
    with pytest.raises(InvalidInputError, match=r"a connection of psycopg is needed, .*connect\("):
        HashIndex.open(wrong, "items_idx")
    with pytest.raises(InvalidInputError, match=r"needed, .*AsyncConnection.connect\("):
        asyncio.run(AsyncHashIndex.open(wrong, "items_idx"))


def test_threads_share_an_index(index, vectors):
    """Blocks of a connection that two threads have begun would never commit."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: index.search_like(row, 3)[0].id, range(1, 121)))
        with pytest.raises(InvalidInputError):
            list(pool.map(lambda _: index.search([1.0], 3), range(40)))
    assert len(found) == 120
    assert index.connection.info.transaction_status == TransactionStatus.IDLE
    index.connection.execute("CREATE TABLE committed ()")
    with connect(index.connection.info.dsn) as other:
        other.execute("SELECT FROM committed")


def test_a_connection_that_prepares_each_statement(url, index, vectors):
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        made = HashIndex.create(
            connection, "prepared", table="items", column="embedding", model="lsh",
            access="lists", candidates=20, effort=8,
        )  # fmt: skip
        assert made.waiting() == 0
        assert len(made.search(vectors[0], 5)) == 5


def test_what_a_cancelled_search_left_is_passed_over(index, vectors):
    """The gate of a search prepares a statement, which outlives the transaction."""
    connection = index.connection
    connection.execute("PREPARE hashindex_read AS SELECT 1")
    found = connection.execute(
        "SELECT id FROM hashindex.search('items_idx', %s, 5)", [Vector(vectors[0])]
    ).fetchall()
    assert len(found) == 5
    assert not connection.execute(
        "SELECT FROM pg_prepared_statements WHERE name = 'hashindex_read'"
    ).fetchall()


def test_a_materialised_view_of_a_search(index, vectors):
    connection = index.connection
    connection.execute(
        "CREATE MATERIALIZED VIEW near AS SELECT i.id AS row, s.id FROM items i, LATERAL "
        "hashindex.search('items_idx', i.embedding, 3) s WHERE i.id <= 20"
    )
    connection.execute("REFRESH MATERIALIZED VIEW near")
    found = connection.execute("SELECT row, array_agg(id) FROM near GROUP BY row").fetchall()
    assert {row for row, ids in found if str(row) in map(str, ids)} == {*range(1, 21)}
