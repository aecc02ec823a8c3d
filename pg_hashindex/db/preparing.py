"""What connections of both kinds are checked for before pgvector's types are registered on them."""

from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row, tuple_row

from ..errors import InvalidInputError, MissingExtensionError, OldServerError

__all__ = ["EXTENSION", "RESTORED_PATH", "needs_types", "path_of_types", "refuse"]

#: Of pgvector: the schema and the version.
EXTENSION: LiteralString = (
    "SELECT n.nspname, e.extversion FROM pg_extension e "
    "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
#: Takes what ``SHOW search_path`` gave.
RESTORED_PATH: LiteralString = "SELECT set_config('search_path', %s, true)"


def refuse(connection: psycopg.BaseConnection[Any], kind: type) -> None:
    """Refuse a connection that blocks where an async one is needed, or the other way round.

    Raises
    ------
    InvalidInputError
    """
    if not isinstance(connection, kind):
        return
    if kind is psycopg.AsyncConnection:
        raise InvalidInputError(
            "the connection is a psycopg.AsyncConnection: search on it with AsyncHashIndex, and "
            "open a psycopg.Connection for everything else"
        )
    raise InvalidInputError(
        "the connection is a psycopg.Connection: AsyncHashIndex needs a psycopg.AsyncConnection; "
        "search on this one with HashIndex"
    )


def needs_types(connection: psycopg.BaseConnection[Any], row_factory: object) -> bool:
    """Check the shape of rows and the server, and say whether types are to be registered.

    Raises
    ------
    InvalidInputError, OldServerError
    """
    if row_factory not in (tuple_row, namedtuple_row):
        raise InvalidInputError(
            "the connection has a row_factory of its own; pg_hashindex needs rows as tuples, "
            "the default: open another connection, or set row_factory on your cursors instead"
        )
    if connection.adapters.types.get("vector") is not None:
        return False
    if connection.info.server_version < 150_000:
        raise OldServerError(
            f"PostgreSQL {connection.info.parameter_status('server_version')} is too old: "
            "pg_hashindex needs 15 or later; upgrade the server"
        )
    return True


def path_of_types(
    connection: psycopg.BaseConnection[Any], extension: tuple[str, str] | None
) -> sql.Composed:
    """Check pgvector, and write the statement after which its types are found by bare name.

    Raises
    ------
    MissingExtensionError, OldServerError
    """
    if extension is None:
        raise MissingExtensionError(
            f"the extension pgvector is not installed in database "
            f"{connection.info.dbname!r}; as its owner, run: CREATE EXTENSION vector;"
        )
    schema, version = extension
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 8):
        raise OldServerError(
            f"pgvector {version} is too old: pg_hashindex needs 0.8 or later; "
            "run: ALTER EXTENSION vector UPDATE;"
        )
    # The types are looked up by bare name, and pgvector may live outside the search_path.
    return sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema))
