"""The server of `retrieval.py` and `memory.py`, and a database for each data set."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector, Vector
from psycopg import sql
from retrieval_data import FILTERS, DataSet

from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.quality.measuring import Prepared
from pg_hashindex.server import EmbeddedServer
from pg_hashindex.server.demo import new_database

# The graph of HNSW over a million rows of 384 dimensions takes about 2 GB while it is built.
SETTINGS = {
    "shared_buffers": "4GB",
    "maintenance_work_mem": "4GB",
    "work_mem": "64MB",
    "effective_cache_size": "12GB",
    "max_parallel_maintenance_workers": "2",
    "max_parallel_workers_per_gather": "2",
    # Waiting for the disk would hide the cost of an index.
    "synchronous_commit": "off",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    # Autovacuum would start at random times; tables are vacuumed after each build instead, untimed.
    "autovacuum": "off",
    # JIT costs a scan of a million rows more than it saves, and our functions have it off.
    "jit": "off",
}
QUICK_SETTINGS = SETTINGS | {
    "shared_buffers": "256MB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "1GB",
}
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


class Session:
    """A connection to a database, and its statements."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(self, statement: Any) -> Prepared:
        """Prepare a statement with parameters $1, $2, ..."""
        return Prepared(self.connection, sql.SQL(statement))

    def value(self, statement: str, parameters: Sequence[Any] | None = None) -> Any:
        """Run a statement and return the first value of its first row."""
        row = self.connection.execute(statement, parameters).fetchone()
        return None if row is None else row[0]

    def set(self, settings: Mapping[str, Any]) -> None:
        """Set these settings in the session, and reset all others."""
        self.connection.execute("RESET ALL")
        for name, value in settings.items():
            self.connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])


class Database:
    """A database that holds one data set in the table ``items``."""

    def __init__(self, server: EmbeddedServer, name: str, drawn: DataSet) -> None:
        self.server, self.name, self.drawn = server, name, drawn

    @property
    def uri(self) -> str:
        """The address of the database."""
        return self.server.uri(self.name)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session."""
        with connect(self.uri) as connection:
            yield Session(connection)

    def execute(self, statement: str) -> None:
        """Run a statement in a session of its own."""
        with self.session() as session:
            session.connection.execute(statement.encode())

    def value(self, statement: str, parameters: Sequence[Any] | None = None) -> Any:
        """Run a statement in a session of its own; return the first value of its first row."""
        with self.session() as session:
            return session.value(statement, parameters)

    def settle(self) -> None:
        """Vacuum like autovacuum would have done soon after, and write dirty pages."""
        self.execute("VACUUM ANALYZE")
        self.execute("CHECKPOINT")

    def restart(
        self,
        settings: Mapping[str, str],
        within: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        """Stop the server, drop the caches of the operating system, and start the server again.

        ``within``: Entered while the server starts; the caches are dropped only where it is
        given.
        """
        self.server.stop()
        if within is not None:
            os.sync()
            DROP_CACHES.write_text("3")
        with within or contextlib.nullcontext():
            self.server.start(until_exit=True, settings=settings)


@contextlib.contextmanager
def running(settings: Mapping[str, str], kept: Path | None = None) -> Iterator[EmbeddedServer]:
    """Start a server in a folder; without one, in a folder that is removed afterwards."""
    folder = kept or Path(tempfile.mkdtemp(prefix="pg_hashindex-retrieval-"))
    folder.mkdir(parents=True, exist_ok=True)
    # If this process is root, the server runs as another user.
    folder.chmod(0o755)
    try:
        server = EmbeddedServer(folder / "data")
        server.start(until_exit=True, settings=settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        if kept is None:
            shutil.rmtree(folder)


@contextlib.contextmanager
def served(settings: Mapping[str, str]) -> Iterator[str]:
    """Run a server with one empty database that has schema hashindex; give its address."""
    with running(settings) as server:
        yield new_database(server, "benchmark")


def load(connection: Connection, X: NDArray[Any], table: str = "items", first: int = 0) -> None:
    """Make and fill a table of a key and vectors, without filters."""
    columns = f"id bigint PRIMARY KEY, embedding vector({X.shape[1]})"
    connection.execute(f"CREATE TABLE {table} ({columns})".encode())
    copy_rows(connection, table, enumerate(X, first))
    connection.execute(f"VACUUM ANALYZE {table}".encode())


def copy_rows(
    connection: Connection,
    table: str,
    rows: Iterable[Sequence[Any]],
    filters: Sequence[str] = (),
    kind: str = "vector",
) -> None:
    """COPY rows of a key, the columns of filters, and a vector."""
    columns = ", ".join(["id", *filters, "embedding"])
    as_vector = Vector if kind == "vector" else HalfVector
    statement = f"COPY {table} ({columns}) FROM STDIN (FORMAT binary)"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.set_types(["int8", *("int4" for _ in filters), kind])
        for *others, vector in rows:
            copy.write_row((*others, as_vector(vector)))


@contextlib.contextmanager
def database(server: EmbeddedServer, drawn: DataSet) -> Iterator[Database]:
    """Make a database with a data set, and drop it afterwards."""
    name = f"retrieval_{drawn.name.replace('-', '_')}"
    try:
        new_database(server, name)
        opened = Database(server, name, drawn)
        _load(opened)
        yield opened
    finally:
        _as_admin(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextlib.contextmanager
def copied(original: Database) -> Iterator[Database]:
    """Copy a database, file by file, and drop the copy afterwards."""
    copy = Database(original.server, f"{original.name}_copy", original.drawn)
    drop = f"DROP DATABASE IF EXISTS {copy.name} WITH (FORCE)"
    made = f"CREATE DATABASE {copy.name} TEMPLATE {original.name} STRATEGY file_copy"
    _as_admin(original.server, drop, made)
    try:
        yield copy
    finally:
        _as_admin(original.server, drop)


def _as_admin(server: EmbeddedServer, *statements: str) -> None:
    with psycopg.connect(server.uri(), autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement.encode())


def _load(opened: Database) -> None:
    drawn = opened.drawn
    filters = "".join(f"{column} integer NOT NULL, " for column in FILTERS.values())
    opened.execute(
        f"CREATE TABLE items (id bigint PRIMARY KEY, {filters}"
        f"embedding {drawn.type}({drawn.rows.shape[1]}))"
    )
    columns = filter_values(drawn.buckets[: len(drawn.rows)])
    values = (column.tolist() for column in columns.values())
    rows = zip(range(len(drawn.rows)), *values, drawn.rows, strict=True)
    with opened.session() as session:
        copy_rows(session.connection, "items", rows, [*columns], drawn.type)
    for column in FILTERS.values():
        opened.execute(f"CREATE INDEX items_{column} ON items ({column})")
    opened.settle()


def filter_values(bucket: NDArray[np.int32]) -> dict[str, NDArray[np.int32]]:
    """Return the columns that rows in these buckets are filtered by."""
    return {column: bucket // share for share, column in FILTERS.items()}
