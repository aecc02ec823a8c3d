"""A table that logical replication fills: its index is fresh, or its check says that it is not."""

import shutil
import time

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index
from fixtures.servers import SETTINGS, make_folder
from pgvector import Vector

from pg_hashindex import operations, schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.hashers import LSH
from pg_hashindex.server import EmbeddedServer

pytestmark = pytest.mark.slow

X = np.random.default_rng(1).standard_normal((400, 8)).astype(np.float32)
ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(8))"


@pytest.fixture(scope="module")
def both(server):
    """A server of the same version that writes what publications need."""
    folder = make_folder("pg_hashindex-logical-")
    both = EmbeddedServer(folder / "data", version=server.version)
    both.start(until_exit=True, settings=SETTINGS | {"wal_level": "logical"})
    yield both
    both.stop()
    shutil.rmtree(folder)


@pytest.fixture
def publisher(both):
    with fresh_database(both, "publisher") as session:
        session.execute(ITEMS)
        write(session, range(200))
        session.execute("CREATE PUBLICATION all_items FOR TABLE items")
        # In one server, making it with the subscription would wait for itself.
        session.execute("SELECT pg_create_logical_replication_slot('copied', 'pgoutput')")
        yield session


@pytest.fixture
def subscriber(both, publisher):
    with fresh_database(both, "subscriber") as session:
        engine = create_engine(both.uri("subscriber"))
        with engine.begin() as upgrading:
            schema.upgrade(upgrading)
        engine.dispose()
        session.execute(ITEMS)
        store.save(session, LSH(n_bits=16).fit(X).to_model("lsh"))
        yield session
        session.execute("ALTER SUBSCRIPTION copy DISABLE")
        session.execute("ALTER SUBSCRIPTION copy SET (slot_name = NONE); DROP SUBSCRIPTION copy")


class fresh_database:  # noqa: N801
    """A database with pgvector, for as long as the block takes."""

    def __init__(self, server, name):
        self.server, self.name = server, name

    def __enter__(self):
        with psycopg.connect(self.server.uri(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {self.name}".encode())
        with psycopg.connect(self.server.uri(self.name), autocommit=True) as bare:
            bare.execute("CREATE EXTENSION vector")
        self.session = connect(self.server.uri(self.name))
        return self.session

    def __exit__(self, *_):
        self.session.close()
        with psycopg.connect(self.server.uri(), autocommit=True) as admin:
            admin.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s AND NOT active",
                [self.name],
            )
            admin.execute(f"DROP DATABASE {self.name} WITH (FORCE)".encode())


def write(session, numbers):
    with session.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i in numbers:
            copy.write_row((i, Vector(X[i])))


def wait_until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def content(session):
    row = session.execute(
        "SELECT count(*), md5(string_agg(i.id || i.embedding::text, '' ORDER BY i.id)) FROM items i"
    ).fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("fires", ["ORIGIN", "REPLICA", "ALWAYS"])
def test_a_subscriber(both, publisher, subscriber, fires):
    """The worker that applies changes fires triggers of rows alone, and these where they say so."""
    index = create_index(subscriber, "i")
    if fires != "ORIGIN":
        for (trigger,) in subscriber.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass AND NOT tgisinternal"
        ).fetchall():
            subscriber.execute(f"ALTER TABLE items ENABLE {fires} TRIGGER {trigger}".encode())
    subscriber.execute(
        f"CREATE SUBSCRIPTION copy CONNECTION '{both.uri('publisher')}' PUBLICATION all_items "
        "WITH (create_slot = false, slot_name = 'copied')".encode()
    )
    wait_until(lambda: content(subscriber) == content(publisher))
    follows = fires != "ORIGIN"
    assert index.waiting() == (0 if follows else 200)
    index.encode()
    assert_fresh(index)

    write(publisher, range(200, 300))
    publisher.execute(
        "UPDATE items SET embedding = embedding - embedding - embedding WHERE id < 50"
    )
    publisher.execute("DELETE FROM items WHERE id BETWEEN 50 AND 99")
    wait_until(lambda: content(subscriber) == content(publisher))
    health = operations.check(index, full=True)
    # One that fires for replicas alone is reported too: the subscriber's own writers need it.
    told = {found.check for found in health.findings if found.status != "ok"} - {"triggers"}
    assert told == (set() if follows else {"rows_without_code", "wrong_codes", "codes_without_row"})
    operations.repair(index, full=True)
    index.encode()
    assert_fresh(index)


def test_an_index_on_a_function_follows(both, publisher, subscriber):
    """PostgreSQL keeps it: the worker that applies changes needs no trigger."""
    subscriber.execute(
        "SELECT hashindex.create_functions('lsh');"
        "ALTER TABLE items ADD code bit(16) "
        "GENERATED ALWAYS AS (hashindex.code_lsh(embedding)) STORED;"
        "CREATE INDEX by_code ON items USING hnsw "
        "((hashindex.code_lsh(embedding)::bit(16)) bit_hamming_ops)"
    )
    subscriber.execute(
        f"CREATE SUBSCRIPTION copy CONNECTION '{both.uri('publisher')}' PUBLICATION all_items "
        "WITH (create_slot = false, slot_name = 'copied')".encode()
    )
    wait_until(lambda: content(subscriber) == content(publisher))
    write(publisher, range(200, 300))
    wait_until(lambda: content(subscriber) == content(publisher))
    right = "SELECT count(*) FROM items WHERE code = hashindex.code_lsh(embedding)"
    assert subscriber.execute(right).fetchone() == (300,)
    subscriber.execute("SET enable_seqscan = off")
    for place in (7, 250):
        query = (
            "SELECT id FROM (SELECT id, embedding FROM items ORDER BY "
            "hashindex.code_lsh(embedding)::bit(16) <~> (SELECT hashindex.code_lsh($1)) LIMIT 9) c "
            "ORDER BY embedding <-> $1 LIMIT 1"
        ).replace("$1", "%s")
        shown = subscriber.execute(f"EXPLAIN {query}".encode(), [Vector(X[place])] * 2).fetchall()
        assert "by_code" in str(shown)
        assert subscriber.execute(query.encode(), [Vector(X[place])] * 2).fetchone() == (place,)
