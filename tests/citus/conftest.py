"""A Citus cluster, and a distributed table on it.

``PG_HASHINDEX_CITUS_URL`` names a database of a coordinator, which is in Citus's metadata, as a
role that may create extensions and schemas. Without it a cluster is started where ../shared/citus
is there; elsewhere these tests are skipped. Table ``rows_of_tests`` and the models of these tests
are made there, and dropped again; our schema stays.
"""

import numpy as np
import pytest
from fixtures.citus import MODEL, ROWS, TABLE, running_cluster
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import LSH


@pytest.fixture(scope="session")
def cluster():
    with running_cluster() as started:
        yield started


@pytest.fixture
def own_cluster(cluster):
    """One on which databases may be made."""
    if cluster.root is None:
        pytest.skip("the cluster of PG_HASHINDEX_CITUS_URL gets no further databases")
    return cluster


@pytest.fixture(scope="session")
def rows():
    return np.random.default_rng(7).standard_normal((ROWS, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def url(cluster, rows):
    """A database with a model of the rows."""
    with connect(cluster.url) as connection:
        connection.execute("DELETE FROM hashindex.model WHERE name LIKE 'citus_tests%'")
        store.save(connection, LSH(n_bits=16, random_state=3).fit(rows).to_model(MODEL))
    return cluster.url


@pytest.fixture
def session(url, rows):
    """A connection to the coordinator, and the distributed table with its rows."""
    with connect(url) as connection:
        create_table(connection, TABLE)
        connection.execute("SELECT create_distributed_table(%s, 'id')", [TABLE])
        fill(connection, TABLE, rows)
        yield connection
    with connect(url) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE} CASCADE".encode())


@pytest.fixture
def local(url, rows):
    """A connection to the coordinator, and the table there, which Citus knows nothing of."""
    with connect(url) as connection:
        create_table(connection, TABLE)
        fill(connection, TABLE, rows)
        yield connection
    with connect(url) as connection:
        connection.execute(
            "SELECT hashindex.drop_index(i.name) FROM hashindex.index i WHERE i.name = %s", [MODEL]
        )
        connection.execute(f"DROP TABLE IF EXISTS {TABLE} CASCADE".encode())


def create_table(connection, table):
    connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())
    connection.execute(
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, category text, embedding vector(8))".encode()
    )


def fill(connection, table, rows):
    copied = f"COPY {table} FROM STDIN".encode()
    with connection.cursor() as cursor, cursor.copy(copied) as copy:
        for number, row in enumerate(rows, start=1):
            copy.write_row((number, "abc"[number % 3], Vector(row)))
