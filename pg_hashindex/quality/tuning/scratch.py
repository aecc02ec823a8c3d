"""The scratch schema: copies of some rows, and all that is built on them, dropped in any case.

What is tried has to be committed: pages of an open transaction are read slower, and a long one
would hold up VACUUM in the whole database. So each run has a schema of its own, named by a random
token, and holds a lock of its session on it. Where a run could not clean up, since its process was
killed, the lock is free, and the next run drops what it left.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

from psycopg import RawCursor, sql

from ...db.connection import Connection, outside_transactions, prepare, translated_errors
from ...errors import MissingRightsError
from ...training.table_source import TableSource

__all__ = ["Scratch", "scratch"]

_PREFIX = "hashindex_tune_"

_MISSING_RIGHTS = """
    SELECT quote_ident(current_user), pg_catalog.array_remove(ARRAY[
        CASE WHEN NOT has_database_privilege(current_database(), 'CREATE')
            THEN 'CREATE ON DATABASE ' || quote_ident(current_database()) END,
        CASE WHEN NOT has_schema_privilege('hashindex', 'CREATE')
            THEN 'USAGE, CREATE ON SCHEMA hashindex' END,
        CASE WHEN NOT (has_table_privilege('hashindex.model', 'INSERT')
                       AND has_table_privilege('hashindex.model', 'DELETE'))
            THEN 'INSERT, DELETE ON hashindex.model' END,
        CASE WHEN NOT (has_table_privilege('hashindex.index', 'INSERT')
                       AND has_table_privilege('hashindex.index', 'UPDATE')
                       AND has_table_privilege('hashindex.index', 'DELETE'))
            THEN 'INSERT, UPDATE, DELETE ON hashindex.index' END
    ], NULL)
"""

_LEFT_OVER = """
    SELECT nspname FROM pg_catalog.pg_namespace
    WHERE nspname ~ ('^' || $1 || '[0-9a-f]{12}$') AND pg_has_role(nspowner, 'USAGE')
"""


class Scratch:
    """A scratch schema.

    Parameters
    ----------
    connection : psycopg.Connection
        In autocommit mode.
    schema : str
    """

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection, self.schema = connection, schema

    @property
    def token(self) -> str:
        """What names of models and indexes that are tried begin with."""
        return "tune_" + self.schema.removeprefix(_PREFIX)

    def table(self, name: str) -> sql.Identifier:
        """Return the full name of a table."""
        return sql.Identifier(self.schema, name)

    def create(self) -> None:
        """Make the schema."""
        with self.connection.transaction():
            self._execute("CREATE SCHEMA {schema}")
            self._execute(
                "COMMENT ON SCHEMA {schema} IS 'scratch tables of pg-hashindex tune; dropped at "
                "its end, or by the next run'"
            )

    def copy(self, name: str, source: TableSource, keys: Sequence[str]) -> int:
        """Copy rows into a table of columns id and embedding; return how many are there still.

        Parameters
        ----------
        name : str
            Of the new table.
        source : TableSource
            With its key.
        keys : sequence of str
        """
        names: dict[str, Any] = {
            "name": self.table(name),
            "key": sql.Identifier(source.key or ""),
            "type": sql.SQL(source.key_type or ""),
            "vector": sql.Identifier(source.vector),
            "table": source.table,
        }
        # Unlogged: neither the log nor replicas need to see it.
        self._execute(
            "CREATE UNLOGGED TABLE {name} AS SELECT {key} AS id, {vector} AS embedding "
            "FROM {table} WITH NO DATA",
            **names,
        )
        copied = self._execute(
            "INSERT INTO {name} SELECT b.{key}, b.{vector} FROM {table} b "
            "WHERE b.{key} = ANY ($1::text[]::{type}[]) AND b.{vector} IS NOT NULL",
            [list(keys)],
            **names,
        ).rowcount
        self._execute("ALTER TABLE {name} ADD PRIMARY KEY (id)", **names)
        self._execute("ANALYZE {name}", **names)
        return int(copied)

    def drop(self) -> None:
        """Drop the schema, and the indexes and models that were made for it."""
        with self.connection.transaction():
            self._execute(
                "SELECT hashindex.drop_index(i.name) FROM hashindex.index i "
                "WHERE i.schema_name = $1",
                [self.schema],
            )
            self._execute(
                "DELETE FROM hashindex.model m WHERE pg_catalog.starts_with(m.name, $1)",
                [self.token],
            )
            # Another run may have swept it.
            self._execute("DROP SCHEMA IF EXISTS {schema} CASCADE")

    def lock(self) -> bool:
        """Take the lock of the schema for this session, if it is free."""
        row = self._execute("SELECT hashindex._claim('tune', $1)", [self.schema]).fetchone()
        return bool(row[0])

    def unlock(self) -> None:
        """Give the lock back."""
        self._execute("SELECT hashindex._release('tune', $1)", [self.schema])

    def _execute(
        self,
        statement: LiteralString,
        values: Sequence[Any] | None = None,
        **names: sql.Composable,
    ) -> Any:
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        return RawCursor(self.connection).execute(
            sql.SQL(statement).format(schema=sql.Identifier(self.schema), **names), values
        )


@contextmanager
def scratch(connection: Connection) -> Iterator[Scratch]:
    """Make a scratch schema, and drop it with all that was made in it, whatever happens.

    Parameters
    ----------
    connection : psycopg.Connection

    Yields
    ------
    Scratch
        On the connection in autocommit mode.

    Raises
    ------
    InvalidInputError
        If the connection is inside a transaction.
    MissingRightsError
        If the role may not make what is needed.
    """
    prepare(connection)
    with outside_transactions(connection, "tuning commits what it tries"), translated_errors():
        _check_rights(connection)
        _sweep(connection)
        made = Scratch(connection, _PREFIX + secrets.token_hex(6))
        made.lock()
        try:
            made.create()
            try:
                yield made
            finally:
                # Of a session that has ended, the next run drops it.
                if not connection.closed:
                    made.drop()
        finally:
            if not connection.closed:
                made.unlock()


def _check_rights(connection: Connection) -> None:
    row = connection.execute(_MISSING_RIGHTS).fetchone()
    assert row is not None  # noqa: S101
    if row[1]:
        raise MissingRightsError(
            f"role {row[0]} may not make the scratch tables that settings are tried on; an owner "
            f"grants that with: {'; '.join(f'GRANT {right} TO {row[0]}' for right in row[1])}"
        )


def _sweep(connection: Connection) -> None:
    """Drop what runs have left that were killed."""
    rows = RawCursor(connection).execute(_LEFT_OVER, [_PREFIX]).fetchall()
    for (schema,) in rows:
        left = Scratch(connection, schema)
        if left.lock():
            try:
                left.drop()
            finally:
                left.unlock()
