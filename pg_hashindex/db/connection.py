"""Connections to PostgreSQL: opening and checking them, with pgvector's types."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, LiteralString

import psycopg
import sqlalchemy as sa
from pgvector.psycopg.bit import register_bit_info
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.sparsevec import register_sparsevec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row, tuple_row
from psycopg.types import TypeInfo

from ..errors import (
    ConnectionFailedError,
    InvalidInputError,
    MissingExtensionError,
    OldServerError,
)
from .server_errors import translated_errors
from .sql_files import query
from .statements import Statement, Steps, execute, run

Connection = psycopg.Connection[Any]

#: Settings that statements and what is read of their answers depend on, as they begin.
SETTINGS = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "array_nulls": "on",
    "bytea_output": "hex",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
}
_SETTLE = query("connection.settle")

_CANCEL_SECONDS = 5.0

#: SQL for the schema and the version of pgvector.
EXTENSION: LiteralString = (
    "SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
_TYPES = query("connection.types")


def connect(url: str) -> Connection:
    """Open a connection that knows pgvector's types, in autocommit mode.

    Parameters
    ----------
    url
        A libpq URI or key=value string, or an SQLAlchemy URL (``postgresql+psycopg://...``).

    Raises
    ------
    ConnectionFailedError
        If the server cannot be reached.
    MissingExtensionError, OldServerError
        If the server cannot serve pg_hashindex.
    """
    connection = _open(url)
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: Connection) -> None:
    """Check the server and register pgvector's types on a connection of the caller's own.

    Does nothing the second time.
    """
    refuse_kind(connection, psycopg.AsyncConnection)
    if not needs_types(connection, connection.row_factory):
        return
    with translated_errors(), connection.transaction():
        run(connection, register_types(connection))


def refuse_kind(connection: object, kind: type) -> None:
    """Refuse what is not a connection, or one that blocks where an async one is needed."""
    if not isinstance(connection, psycopg.BaseConnection):
        wanted = "connect" if kind is psycopg.AsyncConnection else "psycopg.AsyncConnection.connect"
        raise InvalidInputError(
            f"a connection of psycopg is needed, got {type(connection).__name__}; make one with "
            f"{wanted}(URL)"
        )
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
    """Check the shape of rows and the server; return whether types have to be registered."""
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
    if connection.info.encoding == "ascii":
        raise InvalidInputError(
            "the connection has client_encoding SQL_ASCII, so that psycopg reads text as bytes; "
            "connect with client_encoding='utf8'"
        )
    return True


def register_types(connection: psycopg.BaseConnection[Any]) -> "Steps[None]":
    """Check pgvector, and register its types."""
    found = yield Statement(_TYPES)
    if not found:
        raise MissingExtensionError(
            f"the extension pgvector is not installed in database "
            f"{connection.info.dbname!r}; as its owner, run: CREATE EXTENSION vector;"
        )
    version = found[0][1]
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 8):
        raise OldServerError(
            f"pgvector {version} is too old: pg_hashindex needs 0.8 or later; "
            "run: ALTER EXTENSION vector UPDATE;"
        )
    infos: Any = {name: TypeInfo(name, oid, array) for _, _, name, oid, array in found}
    register_bit_info(connection, psycopg.postgres.types["bit"])
    # pgvector's own register_vector finds only bare names.
    register_halfvec_info(connection, infos.get("halfvec"))
    register_sparsevec_info(connection, infos.get("sparsevec"))
    # This type is registered last, so if it is known, all are.
    register_vector_info(connection, infos.get("vector"))


def create_engine(url: str) -> sa.Engine:
    """Make an SQLAlchemy engine, for migrations, from any URL that `connect` takes."""
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: _open(url, autocommit=False),
        poolclass=sa.NullPool,
        # SQLAlchemy would look the type up on the user's path.
        use_native_hstore=False,
    )


def _open(url: str, *, autocommit: bool = True) -> Connection:
    if not isinstance(url, str):
        raise ConnectionFailedError(
            f"cannot connect to the database: its URL must be text, got {url!r}; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    try:
        parts = psycopg.conninfo.conninfo_to_dict(_libpq(url))
    except psycopg.Error:
        parts = {}
        readable = False
    else:
        readable = not _is_ambiguous(url)
    scheme = url.partition("://")[0].partition("+")[0]
    if "://" in url and scheme.isalnum() and scheme not in ("postgresql", "postgres"):
        raise ConnectionFailedError(
            f"cannot connect to the database: its URL begins with {scheme}://, not postgresql://"
        )
    if unknown := _unknown_parameters(url):
        raise ConnectionFailedError(
            f"cannot connect to the database: its URL has {unknown}, which PostgreSQL's library "
            "does not know, as URLs for other drivers have; leave it out (for ssl=require write "
            "sslmode=require)"
        )
    if not readable:
        # libpq's message repeats the part that it cannot read, which may be the password.
        raise ConnectionFailedError(
            "cannot connect to the database: its URL cannot be read; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for characters such as @ : / %"
        )
    try:
        # A database of SQL_ASCII would give text as bytes.
        connection = psycopg.connect(_libpq(url), autocommit=True, client_encoding="utf8")
        try:
            settle(connection)
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection
    # A UnicodeError is of a host that cannot be a name, such as "..." in an example.
    except (psycopg.Error, UnicodeError) as error:
        reason = str(error).strip()
        for name, value in parts.items():
            if name not in _SHOWN and len(str(value)) > 2:
                reason = reason.replace(str(value), "...")
        # The error itself may hold a secret too.
        raise ConnectionFailedError(
            f"cannot connect to {_without_secrets(parts)}: {reason}; "
            "check the URL and that the server runs"
        ) from None


def settle(connection: Connection) -> list[tuple[str, str]]:
    """Set what differs from `SETTINGS` in a session; return the names with the values before."""
    given = [list(SETTINGS), list(SETTINGS.values())]
    return [(name, before) for name, before, _ in execute(connection, _SETTLE, given)]


def _libpq(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}" if separator else url


def _unknown_parameters(url: str) -> str:
    """Name the parameters of a URL that libpq does not know."""
    # A ? before the @ is part of a password.
    _, separator, query = url.rpartition("@")[2].partition("?")
    if "://" not in url or not separator:
        return ""
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    names = [part.partition("=")[0] for part in query.split("&")]
    # libpq takes ssl=true alone.
    unknown = [name for name in names if name not in known]
    unknown += ["ssl"] * ("ssl" in names and "ssl=true" not in query.split("&"))
    return ", ".join(name for name in unknown if name.isidentifier())


def _is_ambiguous(url: str) -> bool:
    """Return whether libpq may take a part of the password for a host, a port or a database.

    It does so if an @ or a / in the password is not escaped.
    """
    _, separator, rest = url.partition("://")
    before, _, after = rest.partition("@")
    return bool(separator) and "@" in rest and ("@" in after or any(c in before for c in "/?#"))


# Other parts may hold a secret: password, sslpassword, oauth_client_secret, options.
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode")


def _without_secrets(parts: Mapping[str, Any]) -> str:
    shown = {name: parts[name] for name in _SHOWN if name in parts}
    return psycopg.conninfo.make_conninfo("", **shown) or "the default database"


def check_idle(connection: Connection, why: str) -> None:
    """Refuse a connection that is closed or inside a transaction; ``why`` begins the message."""
    if connection.closed:
        raise ConnectionFailedError("the connection is closed; open another one")
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise InvalidInputError(
            f"{why}: call it outside a transaction, best on a connection in autocommit mode"
        )


def close_if_cut_off(connection: Connection) -> None:
    """Cancel a statement that an exception of a signal handler has cut off, and close.

    psycopg does so for Ctrl-C and SystemExit alone.
    """
    if not connection.closed and connection.info.transaction_status == TransactionStatus.ACTIVE:
        with contextlib.suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_SECONDS)
        connection.close()


@contextlib.contextmanager
def outside_transactions(connection: Connection, why: str) -> Iterator[None]:
    """Put a connection into autocommit mode, with our settings; refuse it as `check_idle` does."""
    check_idle(connection, why)
    before = connection.autocommit, connection.isolation_level, connection.read_only
    connection.autocommit, connection.isolation_level, connection.read_only = True, None, None
    settings = settle(connection)
    try:
        yield
    finally:
        close_if_cut_off(connection)
        if not connection.closed:
            # Ctrl-C after BEGIN and before the block that ends it.
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            for setting in settings:
                execute(connection, "SELECT pg_catalog.set_config($1, $2, false)", setting)
            connection.autocommit, connection.isolation_level, connection.read_only = before
