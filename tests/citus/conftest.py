"""A Citus cluster, and a distributed table on it.

``PG_HASHINDEX_CITUS_URL`` names a database of a coordinator, which is in Citus's metadata, as a
role that may create extensions and schemas. Without it a cluster is started where ../shared/citus
is there; elsewhere these tests are skipped. Table ``rows_of_tests``, indexes on it and the models
of these tests are made there, and dropped again; our schema stays.
"""

import contextlib
import functools

import numpy as np
import pytest
from fixtures.citus import INDEX, MODEL, ROWS, TABLE, running_cluster
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import ITQ, LSH
from pg_hashindex.index.handle import HashIndex


@pytest.fixture(scope="session")
def cluster():
    with running_cluster() as started:
        yield started


@pytest.fixture
def own_cluster(cluster):
    """One whose nodes may be stopped."""
    if cluster.root is None:
        pytest.skip("the cluster of PG_HASHINDEX_CITUS_URL is somebody's: its nodes stay up")
    return cluster


@pytest.fixture(scope="session")
def rows():
    return np.random.default_rng(7).standard_normal((ROWS, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def filled(cluster, rows):
    """The URL, of a database with the models and a table to copy rows from."""
    fill(cluster.url, rows)
    return cluster.url


def fill(url, rows):
    with connect(url) as connection:
        _drop_indexes(connection)
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}, rows_to_copy CASCADE".encode())
        connection.execute("DELETE FROM hashindex.model WHERE name LIKE 'citus_tests%'")
        connection.execute(
            "CREATE TABLE rows_to_copy (id bigint PRIMARY KEY, category text, embedding vector(8))"
        )
        connection.execute("SELECT create_distributed_table('rows_to_copy', 'id')")
        with connection.cursor() as cursor, cursor.copy("COPY rows_to_copy FROM STDIN") as copy:
            for number, row in enumerate(rows, start=1):
                copy.write_row((number, "abc"[number % 3], Vector(row)))
        store.save(connection, LSH(n_bits=16, random_state=3).fit(rows).to_model(MODEL))
        store.save(connection, ITQ(n_bits=8, random_state=3).fit(rows).to_model(f"{MODEL}_itq"))


def distribute_rows(connection, table=TABLE):
    connection.execute(
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, category text, embedding vector(8))".encode()
    )
    connection.execute("SELECT create_distributed_table(%s, 'id')", [table])
    connection.execute(f"INSERT INTO {table} SELECT * FROM rows_to_copy".encode())


@contextlib.contextmanager
def _distributed(url):
    """Make the distributed table with its rows; drop it and its indexes."""
    with connect(url) as connection:
        distribute_rows(connection)
        yield connection
    with connect(url) as connection:
        _drop_indexes(connection)
        connection.execute(f"DROP TABLE IF EXISTS {TABLE} CASCADE".encode())


@pytest.fixture
def session(filled):
    """A connection to the coordinator, and the distributed table with its rows."""
    with _distributed(filled) as connection:
        yield connection


def _drop_indexes(connection):
    names = connection.execute(
        "SELECT name FROM hashindex.index WHERE swap_of IS NULL AND name LIKE 'citus_tests%'"
    ).fetchall()
    for (name,) in names:
        HashIndex.open(connection, name).drop()


def _make(session, **more):
    options = {"table": TABLE, "column": "embedding", "model": MODEL, **more}
    HashIndex.create(session, INDEX, **options).encode()
    return HashIndex.open(session, INDEX)


@pytest.fixture
def make(session):
    """Makes an index of the distributed table, and encodes it."""
    return functools.partial(_make, session)


#: Options of indexes.
KINDS = {
    "scan": {"access": "scan"},
    "landmarks": {"access": "landmarks"},
    "hamming": {"ranking": "hamming"},
}


@pytest.fixture(params=["scan", "landmarks"])
def spread(request, make):
    """An encoded index of the distributed table, once for each access path."""
    return make(**KINDS[request.param])


@pytest.fixture(scope="module", params=["scan", "landmarks"])
def kept(request, filled):
    """The URL, of the table with such an index for all tests of a module, which change nothing."""
    with _distributed(filled) as connection:
        _make(connection, **KINDS[request.param])
        yield filled


@pytest.fixture
def shared(kept):
    """That index, on a connection of the test's own."""
    with connect(kept) as connection:
        yield HashIndex.open(connection, INDEX)


@pytest.fixture
def listed(make):
    """An index by landmarks, with a filter column."""
    return make(access="landmarks", filter_columns=["category"])
