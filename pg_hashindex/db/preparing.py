"""What connections of both kinds are checked for before pgvector's types are registered on them."""

from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
from pgvector.psycopg.bit import register_bit_info
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.sparsevec import register_sparsevec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import sql
from psycopg.rows import namedtuple_row, tuple_row

from ..errors import InvalidInputError, MissingExtensionError, OldServerError

__all__ = ["EXTENSION", "OWN_PATH", "RESTORED_PATH", "Type", "needs_types", "refuse", "types_of"]

#: Of pgvector: the schema and the version.
EXTENSION: LiteralString = (
    "SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
#: Under it psycopg looks types up, so that nothing of somebody else's is called.
OWN_PATH: LiteralString = "SET LOCAL search_path TO pg_catalog, pg_temp"
#: Takes what ``SHOW search_path`` gave.
RESTORED_PATH: LiteralString = "SELECT pg_catalog.set_config('search_path', %s, true)"

#: A type's name in full, and what registers it: register_vector of pgvector finds bare names alone.
Type = tuple[sql.Identifier, Callable[[psycopg.BaseConnection[Any], Any], None]]


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


def types_of(
    connection: psycopg.BaseConnection[Any], extension: tuple[str, str] | None
) -> list[Type]:
    """Check pgvector, and return the types that are to be registered.

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
    return [
        (sql.Identifier("pg_catalog", "bit"), register_bit_info),
        (sql.Identifier(schema, "halfvec"), register_halfvec_info),
        (sql.Identifier(schema, "sparsevec"), register_sparsevec_info),
        # The last: it tells that all are registered.
        (sql.Identifier(schema, "vector"), register_vector_info),
    ]
