"""Searches by connections that have searched before, of keys and filters of odd types."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.indexes import create_index, indexed, with_access
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

items_table = sa.Table("items", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True))
ITEMS = {"table": "items", "column": "embedding", "model": "lsh"}


def test_a_connection_that_searched_before_a_key_had_another_type(connection, items, model, url):
    """It does not run a statement again that it had prepared."""
    HashIndex.create(connection, "items", **ITEMS)
    query = np.ones(8, np.float32)
    with connect(url) as another:
        index = HashIndex.open(another, "items")
        for _ in range(7):
            before = index.search(query, 3)
        connection.execute("ALTER TABLE items ALTER id TYPE text")
        operations.repair(HashIndex.open(connection, "items"))
        for _ in range(3):
            assert [hit.id for hit in index.search(query, 3)] == [str(hit.id) for hit in before]


@pytest.mark.parametrize("filter_", ["true) OR (true", "true) -- (", "(true"])
def test_a_filter_cancels_no_where(connection, index, filter_):
    where = items_table.c.id == 3
    with pytest.raises(HashIndexError):
        index.search(np.ones(8), 5, filter=filter_, where=where)
    assert [hit.id for hit in index.search(np.ones(8), 5, filter="id > 1", where=where)] == [3]


def test_columns_of_types_that_have_an_equality_of_their_own(connection, index):
    """Without a filter, names are looked up in pg_catalog alone."""
    connection.execute(
        "CREATE DOMAIN weight AS real; CREATE DOMAIN heavier AS weight; "
        "ALTER TABLE items ADD w heavier DEFAULT 0.1, ADD price money DEFAULT 5"
    )
    found = "SELECT count(*) FROM hashindex.search('items_idx', %s, 5, where_equals => %s::jsonb)"
    query = Vector(np.ones(8))
    for equals in ('{"w": 0.1}', '{"w": 0.1, "price": 5}'):
        assert connection.execute(found.encode(), [query, equals]).fetchone() == (5,)


def test_citext_is_compared_without_case(connection, index):
    try:
        connection.execute("CREATE EXTENSION citext SCHEMA public")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server has no citext")
    connection.execute("ALTER TABLE items ADD email citext DEFAULT 'bob@x.org'")
    found = "SELECT count(*) FROM hashindex.search('items_idx', %s, 5, where_equals => %s::jsonb)"
    values = [Vector(np.ones(8)), '{"email": "Bob@X.org"}']
    assert connection.execute(found.encode(), values).fetchone() == (5,)


def test_a_key_column_named_place(connection, items, model):
    connection.execute(
        "CREATE TABLE events (event int, place int, embedding vector(8), "
        "PRIMARY KEY (event, place)); INSERT INTO events SELECT id, 1, embedding FROM items"
    )
    indexed(connection, "events", table="events")
    rows = connection.execute(
        "SELECT id FROM hashindex.candidates('events', %s, 7)", [Vector(np.ones(8))]
    ).fetchall()
    assert len(rows) == 7


def test_candidates_of_all_tenants_have_distances_of_codes(connection, items, model):
    """Also where the table is so small that a search would compare all rows."""
    create_index(connection, "kinds", tenant="category").encode()
    rows = connection.execute(
        "SELECT c.distance, i.embedding <-> %s FROM hashindex.candidates("
        "'kinds', %s, 20, all_tenants => true) c JOIN items i ON i.id = c.id::bigint",
        [Vector(np.ones(8)), Vector(np.ones(8))],
    ).fetchall()
    assert len(rows) == 20
    assert all(by_code != exact for by_code, exact in rows)


def test_a_partitioned_table_that_was_emptied_and_filled_while_a_search_waited(connection, url):
    from threading import Thread

    from fixtures.faults import eventually

    connection.execute(
        "CREATE TABLE parted (id bigint PRIMARY KEY, embedding vector(8)) PARTITION BY HASH (id); "
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 1, REMAINDER 0); "
        "INSERT INTO parted SELECT n, ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector"
        " FROM generate_series(1, 50) n"
    )
    HashIndex.create(connection, "parted", table="parted", column="embedding", model="none")
    failures = []
    with connect(url) as waiting:
        pid = [waiting.info.backend_pid]

        def search():
            try:
                waiting.execute("SELECT * FROM hashindex.search_parted('[1,2,3,4,5,6,7,8]')")
            except psycopg.Error as error:
                failures.append(error.sqlstate)

        thread = Thread(target=search)
        with connection.transaction():
            connection.execute("TRUNCATE parted")
            connection.execute("INSERT INTO parted VALUES (1, '[1,2,3,4,5,6,7,8]')")
            thread.start()
            locked = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
            eventually(lambda: connection.execute(locked, pid).rowcount > 0)
        thread.join(30)
    assert failures == ["40001"]


def test_a_tiny_query_by_cosine_over_halfvecs(connection):
    """It has no direction as halfvec; with and without a filter it gets rows."""
    connection.execute(
        "CREATE TABLE halves (id bigint PRIMARY KEY, embedding halfvec(8)); "
        "INSERT INTO halves SELECT n, ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)"
        "::vector::halfvec FROM generate_series(1, 50) n"
    )
    HashIndex.create(connection, "halves", table="halves", column="embedding", model="none")
    for filter_ in ("", ", filter => 'true'"):
        rows = connection.execute(
            f"SELECT * FROM hashindex.search_halves(%s::vector, 5{filter_})".encode(),
            [str([1e-9] * 8)],
        ).fetchall()
        assert len(rows) == 5


def test_a_session_whose_settings_of_pgvector_are_empty(index, url):
    """As after SET LOCAL before pgvector was loaded."""
    with_access(index, "lists")
    with connect(url) as session:
        with session.transaction():
            session.execute("SET LOCAL hnsw.ef_search = 100")
        session.execute("UPDATE items SET embedding = NULL WHERE id = 1")
    with connect(url) as session:
        with session.transaction():
            session.execute("SET LOCAL hnsw.ef_search = 100")
        session.execute("SELECT * FROM hashindex.near_duplicates('items_idx', 0.1, 1)")
