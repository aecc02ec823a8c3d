"""The connections of a vector store: from a URL, an engine or a single connection."""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Union

import psycopg
import sqlalchemy as sa

from ...db.connection import Connection, connect
from ...db.owners import prepare_schema
from ...db.server_errors import translated_errors
from ...errors import ConnectionFailedError, InvalidInputError

#: The sources of connections.
Source = Union[str, sa.Engine, Connection, "Connections"]


class Connections:
    """Lends connections to one thread at a time.

    A URL is made into an engine, which `close` disposes of. An engine must have psycopg 3. Copies,
    also pickled ones, are made of the URL.
    """

    def __init__(self, source: "str | sa.Engine | Connection") -> None:
        self._source = source
        self._engine: sa.Engine | None = None
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._finalizer: Any = None
        if isinstance(source, psycopg.Connection):
            self._connection = source
        elif isinstance(source, str):
            self._engine = sa.create_engine(
                "postgresql+psycopg://", creator=partial(connect, source), pool_pre_ping=True,
                # SQLAlchemy would look the type up on the user's path.
                use_native_hstore=False,
            )  # fmt: skip
            self._finalizer = weakref.finalize(self, self._engine.dispose)
            _pools.add(self)
        elif not isinstance(source, sa.Engine):
            raise InvalidInputError(
                "a vector store is made on a URL, an sqlalchemy.Engine or a psycopg.Connection, "
                f"got {type(source).__name__}"
            )
        elif source.dialect.driver != "psycopg":
            raise InvalidInputError(
                f"the engine has driver {source.dialect.driver!r}; make it with psycopg 3: "
                "create_engine('postgresql+psycopg://...')"
            )
        else:
            self._engine = source

    @classmethod
    def of(cls, source: Source) -> "Connections":
        """Return an object that lends connections from a source, which may be one already."""
        return source if isinstance(source, cls) else cls(source)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy it with other connections; refuse what has no URL."""
        if not isinstance(self._source, str):
            raise TypeError(
                "a vector store on a connection or an engine has no copies; make it on a URL"
            )
        return Connections, (self._source,)

    @contextmanager
    def lent(self) -> Iterator[Connection]:
        """Lend a connection that knows pgvector's types; database errors become ours."""
        with translated_errors():
            if self._engine is None:
                assert self._connection is not None  # noqa: S101
                # psycopg serializes the statements of threads, but not whole transactions.
                with self._lock:
                    prepare_schema(self._connection)
                    yield self._connection
                return
            try:
                lent = self._engine.raw_connection()
            except sa.exc.TimeoutError as error:
                raise ConnectionFailedError(
                    f"no connection of the pool came free: {error.args[0]}; make the store on an "
                    "sqlalchemy.Engine with a larger pool"
                ) from error
            try:
                connection = lent.driver_connection
                assert isinstance(connection, psycopg.Connection)  # noqa: S101
                prepare_schema(connection)
                yield connection
            finally:
                lent.close()

    @contextmanager
    def lent_to_read(self) -> Iterator[Connection]:
        """Lend a connection as `lent` does, and leave no transaction open after reading."""
        with self.lent() as connection:
            if connection.autocommit:
                yield connection
            else:
                with connection.transaction():
                    yield connection

    def close(self) -> None:
        """Close the connections that were opened here."""
        if self._finalizer is not None:
            self._finalizer()

    def forget(self) -> None:
        """Begin with no connections, in a forked child: those that are open are the parent's."""
        if self._engine is not None:
            self._engine.dispose(close=False)


# Those that were made on a URL.
_pools: weakref.WeakSet[Connections] = weakref.WeakSet()


def _forget_all() -> None:
    for each in list(_pools):
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
