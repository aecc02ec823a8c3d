"""A Citus cluster that somebody else runs, and a distributed table on it.

``PG_HASHINDEX_CITUS_URL`` is a database of the coordinator, which is in Citus's metadata, as a role
that may create extensions and schemas. Table ``hashindex_items``, an index on it and the model of
these tests are made there, and dropped again; our schema stays.
"""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.database import Connection, connect, create_engine
from pg_hashindex.errors import UnknownIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex

URL = os.environ.get("PG_HASHINDEX_CITUS_URL")
ROWS = 2000
INDEX = "citus_tests_idx"
TABLE = "hashindex_items"
MODEL = "citus_tests"


@pytest.fixture(scope="session")
def rows() -> NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal((ROWS, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def cluster() -> str:
    """The URL of the cluster, with our schema in it."""
    if URL is None:
        pytest.skip("PG_HASHINDEX_CITUS_URL names no Citus cluster")
    with psycopg.connect(URL, autocommit=True) as connection:
        for extension in ("citus", "vector"):
            connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}".encode())
    engine = create_engine(URL)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    return URL


@pytest.fixture
def session(cluster: str, rows: NDArray[np.float32]) -> Iterator[Connection]:
    """A connection to the coordinator, and the distributed table with its rows and model."""
    with connect(cluster) as connection:
        _clear(connection)
        connection.execute(
            f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, category text, embedding vector(8));"
            f"SELECT create_distributed_table('{TABLE}', 'id')".encode()
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
            for number, row in enumerate(rows, start=1):
                copy.write_row((number, "abc"[number % 3], Vector(row)))
        store.save(connection, LSH(n_bits=16, random_state=3).fit(rows).to_model(MODEL))
        yield connection
        _clear(connection)


def _clear(connection: Connection) -> None:
    with contextlib.suppress(UnknownIndexError):
        HashIndex.open(connection, INDEX).drop()
    connection.execute(f"DROP TABLE IF EXISTS {TABLE} CASCADE".encode())
    connection.execute("DELETE FROM hashindex.model WHERE name = %s", [MODEL])


@pytest.fixture(params=["table", "column"])
def spread(request: pytest.FixtureRequest, session: Connection) -> HashIndex:
    """An encoded index of the distributed table, once for each layout."""
    index = HashIndex.create(
        session, INDEX, table=TABLE, column="embedding", model=MODEL, layout=request.param
    )
    assert index.encode() == ROWS
    return HashIndex.open(session, INDEX)
