"""Connections to PostgreSQL, and PostgreSQL's errors as ours."""

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy as sa
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo

from ..errors import (
    ConnectionFailedError,
    DatabaseStateError,
    DuplicateNameError,
    HashIndexError,
    InUseError,
    InvalidInputError,
    MissingExtensionError,
    MissingRightsError,
    MissingSchemaError,
    OldServerError,
    UnknownIndexError,
    UnknownModelError,
)
from . import preparing, tables

if TYPE_CHECKING:
    from ..index.row import IndexRow

__all__ = [
    "Connection",
    "check_idle",
    "connect",
    "create_engine",
    "outside_transactions",
    "prepare",
    "translated_errors",
]

Connection = psycopg.Connection[Any]

_INSTALL_SCHEMA = "Run: pg-hashindex schema upgrade"


def connect(url: str) -> Connection:
    """Open a connection that knows pgvector's types, in autocommit mode.

    Parameters
    ----------
    url : str
        A libpq URI or key=value string, or an SQLAlchemy URL (``postgresql+psycopg://...``).

    Returns
    -------
    psycopg.Connection

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

    Raises
    ------
    InvalidInputError
        If the connection gives rows in another shape than tuples.
    MissingExtensionError, OldServerError
        If the server cannot serve pg_hashindex.
    """
    preparing.refuse(connection, psycopg.AsyncConnection)
    if not preparing.needs_types(connection, connection.row_factory):
        return
    with translated_errors(), connection.transaction():
        extension = connection.execute(preparing.EXTENSION).fetchone()
        types = preparing.types_of(connection, extension)
        before = connection.execute("SHOW search_path").fetchone()
        connection.execute(preparing.OWN_PATH)
        for name, register in types:
            register(connection, TypeInfo.fetch(connection, name))
        connection.execute(preparing.RESTORED_PATH, before)


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
    try:
        parts = psycopg.conninfo.conninfo_to_dict(_libpq(url))
    except psycopg.Error:
        parts = {}
        readable = False
    else:
        readable = not _is_ambiguous(url)
    if not readable:
        # libpq's message repeats what it cannot read, be it the password.
        raise ConnectionFailedError(
            "cannot connect to the database: its URL cannot be read; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for characters such as @ : / %"
        )
    try:
        return psycopg.connect(_libpq(url), autocommit=autocommit)
    except psycopg.Error as error:
        reason = str(error).strip()
        for name, value in parts.items():
            if name not in _SHOWN and len(str(value)) > 2:
                reason = reason.replace(str(value), "...")
        # The error itself, too, may say what is secret.
        raise ConnectionFailedError(
            f"cannot connect to {_without_secrets(parts)}: {reason}; "
            "check the URL and that the server runs"
        ) from None


def _libpq(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}" if separator else url


def _is_ambiguous(url: str) -> bool:
    """Say whether libpq may take a part of the password for a host, a port or a database.

    It does where an @ or a / in it is not escaped.
    """
    _, separator, rest = url.partition("://")
    before, _, after = rest.partition("@")
    return bool(separator) and "@" in rest and ("@" in after or any(c in before for c in "/?#"))


# All else may hold a secret: password, sslpassword, oauth_client_secret, options.
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode")


def _without_secrets(parts: Mapping[str, Any]) -> str:
    shown = {name: parts[name] for name in _SHOWN if name in parts}
    return psycopg.conninfo.make_conninfo("", **shown) or "the default database"


def check_idle(connection: Connection, why: str) -> None:
    """Refuse a connection that is inside a transaction, or closed.

    Parameters
    ----------
    connection : psycopg.Connection
    why : str
        For the message.

    Raises
    ------
    InvalidInputError
        If it is inside a transaction.
    ConnectionFailedError
        If it is closed.
    """
    if connection.closed:
        raise ConnectionFailedError("the connection is closed; open another one")
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise InvalidInputError(
            f"{why}: call it outside a transaction, best on a connection in autocommit mode"
        )


@contextlib.contextmanager
def outside_transactions(connection: Connection, why: str) -> Iterator[None]:
    """Put a connection into autocommit mode.

    Parameters
    ----------
    connection : psycopg.Connection
    why : str
        For the message.

    Raises
    ------
    InvalidInputError
        If it is inside a transaction.
    ConnectionFailedError
        If it is closed.
    """
    check_idle(connection, why)
    before = connection.autocommit
    connection.autocommit = True
    try:
        yield
    finally:
        if not connection.closed:
            connection.autocommit = before


@contextlib.contextmanager
def translated_errors(index: "IndexRow | None" = None) -> Iterator[None]:
    """Turn what psycopg or SQLAlchemy raises inside the block into a `HashIndexError`.

    Parameters
    ----------
    index : IndexRow, optional
        What the block is about: where a part of it is missing, the message leads to its repair.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, index) from error
    except sa.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise _translate(error.orig, index) from error.orig
        raise


# SQLSTATEs that our own functions raise, and that PostgreSQL raises for arguments of theirs.
_INVALID_INPUT = frozenset(
    {
        "22000",  # data_exception: pgvector on dimensions
        "22003",  # numeric_value_out_of_range
        "22004",  # null_value_not_allowed
        "22007",  # invalid_datetime_format
        "22008",  # datetime_field_overflow
        "22012",  # division_by_zero
        "2201B",  # invalid_regular_expression
        "22023",  # invalid_parameter_value
        "22P02",  # invalid_text_representation
        "42601",  # syntax_error: names and conditions that the caller wrote
        "42602",  # invalid_name
        "42702",  # ambiguous_column
        "42703",  # undefined_column
        "42803",  # grouping_error
        "42804",  # datatype_mismatch
        "42809",  # wrong_object_type
        "42883",  # undefined_function
        "42P02",  # undefined_parameter
        "42P11",  # invalid_cursor_definition: a filter that is several statements
        "42P16",  # invalid_table_definition
        "42P20",  # windowing_error
    }
)


# What is missing, as PostgreSQL's messages name it; hashindex_items is some table of the user's.
_OF_OUR_SCHEMA = re.compile(r'\bhashindex\.|schema "hashindex"')
# A column that the table of an earlier release lacks; our statements call the tables so.
_NEW_COLUMN = re.compile(
    r"column (?:i\.(?:{})|m\.(?:{})) does not exist".format(
        *("|".join(table.c.keys()) for table in (tables.index, tables.model))
    )
)


# The functions of one index, as a context names them; ours take other arguments.
_OWN_FUNCTION = re.compile(
    r"""PL/pgSQL function hashindex\.("?)(?:sync|search|within)_(.+?)\1\((?:\)|(?:\S+\.)?vector,)"""
)


# What pgvector says of a row and a query.
_OTHER_DIMENSION = re.compile("different (?:vector|halfvec) dimensions")


def _broken_index(index: "IndexRow | None", message: str, context: str) -> str | None:
    """Return the name of the index that something is a part of that does not exist."""
    return _index_of(index if index is not None and _is_missing(index, message) else None, context)


def _index_of(index: "IndexRow | None", context: str) -> str | None:
    """Return the name of an index, or of the one whose function an error came from."""
    if index is not None:
        return index.swap_of or index.name
    # Where triggers run, the index may be another one.
    found = _OWN_FUNCTION.search(context)
    return None if found is None else found[2].replace('""', '"')


def _is_missing(index: "IndexRow", message: str) -> bool:
    """Say whether something that does not exist is a table, column or function of an index."""
    kind, _, rest = message.removesuffix(" does not exist").partition(" ")
    name = rest.strip('"')
    if kind == "column":
        columns = (index.column_name, index.id_column, index.code_column)
        return any(name == column or rest.endswith(f".{column}") for column in columns)
    if kind == "function":
        return any(f"{verb}_{index.name}" in rest for verb in ("search", "within"))
    return name.startswith(f"hashindex.{index.storage}_") or name in (
        index.schema_name,
        f"{index.schema_name}.{index.table_name}",
    )


def _translate(error: psycopg.Error, index: "IndexRow | None" = None) -> HashIndexError:
    diagnosis = error.diag
    message = diagnosis.message_primary or str(error).strip()
    if diagnosis.message_detail:
        message += f" ({diagnosis.message_detail})"
    if diagnosis.message_hint:
        message += f"; {diagnosis.message_hint}"
    state = error.sqlstate or ""
    if state == "22000" and _OTHER_DIMENSION.match(message):
        name = _index_of(index, diagnosis.context or "")
        if name is not None:
            return InvalidInputError(
                f"{message}: the column of index {name!r} holds vectors of another dimension than "
                f"its model takes; see pg-hashindex index check {shlex.quote(name)}"
            )
    if state == "42704" and message.startswith("model "):
        return UnknownModelError(message)
    if state == "42704" and message.startswith("index "):
        return UnknownIndexError(message)
    if state == "42704" and message.startswith("role "):
        return InvalidInputError(message)
    if state == "42704" and "pgvector" in message:
        return MissingExtensionError(message)
    if state == "0A000" and re.search("is too old|is older than", message):
        return OldServerError(message)
    if state in {"42P01", "42703", "42883", "3F000"}:
        name = _broken_index(index, diagnosis.message_primary or "", diagnosis.context or "")
        if name is not None:
            return InvalidInputError(
                f"{message}; what index {name!r} consists of was renamed or dropped: run "
                f"pg-hashindex index repair {shlex.quote(name)}"
            )
    ours = state in {"42P01", "42883", "42704", "3F000"} and _OF_OUR_SCHEMA.search(message)
    if ours or (state == "42703" and _NEW_COLUMN.search(message)):
        return MissingSchemaError(
            f"the schema hashindex is missing or old: {message.rstrip('.')}. {_INSTALL_SCHEMA}"
        )
    if state in {"42P01", "3F000"}:
        return InvalidInputError(f"{message}; check the name and the schema it is in")
    if state == "42501":
        remedy = "" if diagnosis.message_hint else "; have the owner GRANT the right"
        return MissingRightsError(message + remedy)
    if state in {"42710", "42P07", "42701", "42723", "23505"}:
        return DuplicateNameError(message)
    # From PostgreSQL 18 on a foreign key ON DELETE RESTRICT has a state of its own.
    if state in {"23503", "23001", "2BP01", "55006"}:
        return InUseError(message)
    if state == "25006":
        return DatabaseStateError(f"{message}; a standby only reads: connect to the primary server")
    if state == "0A000" and message.startswith("cross-database references"):
        return InvalidInputError(message)
    if state in _INVALID_INPUT:
        return InvalidInputError(message)
    # Of class 57: the server shuts down, has crashed, or is not up yet.
    if state in {"57P01", "57P02", "57P03"} or (
        isinstance(error, psycopg.OperationalError) and state[:2] in {"", "08"}
    ):
        return ConnectionFailedError(f"the connection failed: {message}")
    return DatabaseStateError(message)
