"""Connections to PostgreSQL, the statements that run on them, and PostgreSQL's errors as ours.

Statements have parameters ``$1``, ``$2``, ... What an async connection does too is written once, as
`Steps`: a generator that yields statements and is sent their rows. `run` and `run_async` drive it.
"""

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from pgvector.psycopg.bit import register_bit_info
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.sparsevec import register_sparsevec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, namedtuple_row, tuple_row
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

Connection = psycopg.Connection[Any]

Result = TypeVar("Result")


#: SQL for the schema and the version of pgvector.
EXTENSION: LiteralString = (
    "SELECT n.nspname, e.extversion FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
# SQL for the same and pgvector's types, in one trip to the server. TypeInfo.fetch would take four
# for each type, and look names up under the user's path.
_TYPES: LiteralString = (
    "SELECT n.nspname, e.extversion, t.typname, t.oid, t.typarray FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace LEFT JOIN pg_catalog.pg_type t "
    "ON t.typnamespace = n.oid AND t.typname IN ('vector', 'halfvec', 'sparsevec') "
    "WHERE e.extname = 'vector'"
)

_INSTALL_SCHEMA = "Run: pg-hashindex schema upgrade"


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


def refuse_kind(connection: psycopg.BaseConnection[Any], kind: type) -> None:
    """Refuse a connection that blocks where an async one is needed, or the other way round."""
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
    try:
        parts = psycopg.conninfo.conninfo_to_dict(_libpq(url))
    except psycopg.Error:
        parts = {}
        readable = False
    else:
        readable = not _is_ambiguous(url)
    if not readable:
        # libpq's message repeats the part that it cannot read, which may be the password.
        raise ConnectionFailedError(
            "cannot connect to the database: its URL cannot be read; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for characters such as @ : / %"
        )
    try:
        return psycopg.connect(_libpq(url), autocommit=autocommit)
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


def _libpq(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}" if separator else url


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


def execute(
    connection: Connection,
    statement: Any,
    values: Sequence[Any] | None = None,
    *,
    names: Mapping[str, sql.Composable] | None = None,
    binary: bool | None = None,
) -> psycopg.RawCursor[tuple[Any, ...]]:
    """Run a statement whose parameters are ``$1``, ``$2``, ...

    ``names`` are put in the places of a template in brackets. psycopg's other cursors would take a
    % in a name for a placeholder.
    """
    if names is not None:
        statement = sql.SQL(statement).format(**names)
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    return cursor.execute(statement, values, binary=binary)


def one_row(
    connection: Connection, statement: Any, values: Sequence[Any] | None = None, **more: Any
) -> tuple[Any, ...]:
    """Run a statement as `execute` does, and return the row that it always has."""
    row = execute(connection, statement, values, **more).fetchone()
    assert row is not None  # noqa: S101
    return row


def read_as(
    kind: type[Result],
    connection: Connection,
    statement: Any,
    values: Sequence[Any] | None = None,
) -> list[Result]:
    """Run a statement as `execute` does, and make an object of each row, by the columns' names."""
    cursor = psycopg.RawCursor(connection, row_factory=class_row(kind))
    return cursor.execute(statement, values).fetchall()


@dataclass(frozen=True)
class Statement:
    """A statement with its parameters; ``rows`` is a row factory of psycopg."""

    text: Any
    values: Sequence[Any] | None = None
    rows: Any = tuple_row
    binary: bool | None = None
    prepare: bool | None = None


#: Statements, whose rows are sent back; functions that compute, whose results are; and other steps,
#: which no second task of an async connection runs at the same time.
Steps: TypeAlias = Generator["Statement | Callable[[], Any] | Steps[Any]", Any, Result]

_alone: WeakKeyDictionary[psycopg.AsyncConnection[Any], asyncio.Lock] = WeakKeyDictionary()


def run(connection: Connection, steps: Steps[Result]) -> Result:
    """Run the statements of some steps one after another, and return what the steps return."""
    try:
        step = next(steps)
        while True:
            try:
                found: Any
                if isinstance(step, Statement):
                    cursor = psycopg.RawCursor(connection, row_factory=step.rows)
                    cursor.execute(step.text, step.values, prepare=step.prepare, binary=step.binary)
                    found = cursor.fetchall() if cursor.description else []
                else:
                    found = run(connection, step) if isinstance(step, Generator) else step()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(connection: psycopg.AsyncConnection[Any], steps: Steps[Result]) -> Result:
    """Run steps as `run` does; functions run in another thread."""
    try:
        step = next(steps)
        while True:
            try:
                found: Any
                if isinstance(step, Statement):
                    cursor = psycopg.AsyncRawCursor(connection, row_factory=step.rows)
                    await cursor.execute(
                        step.text, step.values, prepare=step.prepare, binary=step.binary
                    )
                    found = await cursor.fetchall() if cursor.description else []
                elif isinstance(step, Generator):
                    async with _alone.setdefault(connection, asyncio.Lock()):
                        found = await run_async(connection, step)
                else:
                    found = await asyncio.to_thread(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        result: Result = end.value
        return result


def warning_of(notice: psycopg.errors.Diagnostic) -> str | None:
    """Return a warning of the server with its hint; None for a notice of another kind."""
    if notice.severity_nonlocalized != "WARNING":
        return None
    return "; ".join(filter(None, [notice.message_primary, notice.message_hint]))


def check_idle(connection: Connection, why: str) -> None:
    """Refuse a connection that is closed or inside a transaction; ``why`` begins the message."""
    if connection.closed:
        raise ConnectionFailedError("the connection is closed; open another one")
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise InvalidInputError(
            f"{why}: call it outside a transaction, best on a connection in autocommit mode"
        )


@contextlib.contextmanager
def outside_transactions(connection: Connection, why: str) -> Iterator[None]:
    """Put a connection into autocommit mode; refuse it as `check_idle` does."""
    check_idle(connection, why)
    before = connection.autocommit
    connection.autocommit = True
    try:
        yield
    finally:
        if not connection.closed:
            connection.autocommit = before


class Named(Protocol):
    """An index, as far as messages name it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def swap_of(self) -> str | None:
        """The index whose swap it is built for."""

    @property
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""

    def has_part(self, message: str) -> bool:
        """Return whether what does not exist, by PostgreSQL's message, is a part of it."""


@contextlib.contextmanager
def translated_errors(index: Named | None = None, *, table: str | None = None) -> Iterator[None]:
    """Turn what psycopg or SQLAlchemy raises inside the block into a `HashIndexError`.

    If a part of ``index`` is missing, the message leads to its repair. ``table`` is the table that
    the block reads, for messages; that of the index by default.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, index, table) from error
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"text cannot be sent to PostgreSQL: {error}") from None
    except sa.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise _translate(error.orig, index, table) from error.orig
        raise


# SQLSTATEs of our own, for errors that PostgreSQL has none for.
_OURS: dict[str, type[HashIndexError]] = {
    "42X01": UnknownModelError,
    "42X02": UnknownIndexError,
    "42X03": MissingExtensionError,
    "42X04": DatabaseStateError,
    "0AX01": OldServerError,
}

# SQLSTATEs of PostgreSQL. Others of classes 22 and 42 are errors in what the caller gave: values,
# names and filters; our functions raise these too.
_COMMON: dict[str, type[HashIndexError]] = {
    **dict.fromkeys(("42710", "42P07", "42701", "42723", "23505"), DuplicateNameError),
    # Since PostgreSQL 18, a foreign key ON DELETE RESTRICT has a state of its own: 23001.
    **dict.fromkeys(("23503", "23001", "2BP01", "55006"), InUseError),
}


# A column that the tables of an earlier release lack, as our statements call it.
_OUR_COLUMN = re.compile(r"\b[im]\.\w")

# Functions of one index in an error's context; functions of the schema take other arguments.
_OWN_FUNCTION = re.compile(
    r"""PL/pgSQL function hashindex\.("?)(?:sync|search|within)_(.+?)\1\((?:\)|(?:\S+\.)?vector,)"""
)


def _index_of(index: Named | None, context: str) -> str | None:
    """Return the name of the index, or of the index whose function raised the error."""
    if index is not None:
        return index.swap_of or index.name
    # In a trigger, it may be another index.
    found = _OWN_FUNCTION.search(context)
    return None if found is None else found[2].replace('""', '"')


def _is_of_schema(state: str, message: str, context: str) -> bool:
    """Return whether the missing object is a part of schema hashindex."""
    if state == "42703":
        # Functions run the filters of callers, whose tables may have our aliases as names.
        return not context and _OUR_COLUMN.search(message) is not None
    words = message.replace('"', " ").split()
    missing = any(word == "hashindex" or word.startswith("hashindex.") for word in words)
    return missing and state in {"42P01", "42704", "42883", "3F000"}


# A function of ours names a type of pgvector that is not there.
_MOVED = re.compile(r'type "\S+\.(vector|halfvec)" does not exist|schema ".+" does not exist')


def _translate(
    error: psycopg.Error, index: Named | None = None, table: str | None = None
) -> HashIndexError:
    diagnosis = error.diag
    message = diagnosis.message_primary or str(error).strip()
    if diagnosis.message_detail:
        message += f" ({diagnosis.message_detail})"
    if diagnosis.message_hint:
        message += f"; {diagnosis.message_hint}"
    state = error.sqlstate or ""
    if state in _OURS:
        return _OURS[state](message)
    if state == "22000":
        name = _index_of(index, diagnosis.context or "")
        # pgvector's message has the dimensions, but not the column.
        advice = "" if name is None else f"; see pg-hashindex index check {shlex.quote(name)}"
        return InvalidInputError(message + advice)
    if (
        state in {"42704", "3F000"}
        and _MOVED.fullmatch(diagnosis.message_primary or "")
        and " function " in (diagnosis.context or "")
    ):
        return MissingSchemaError(
            f"pgvector is no longer in the schema that it was in: {message}. {_INSTALL_SCHEMA}"
        )
    if state in {"42P01", "42703", "42883", "3F000"}:
        has_part = index is not None and index.has_part(diagnosis.message_primary or "")
        name = _index_of(index if has_part else None, diagnosis.context or "")
        if name is not None:
            return InvalidInputError(
                f"{message}; a part of index {name!r} was renamed or dropped: run "
                f"pg-hashindex index check {shlex.quote(name)}, which says what to do"
            )
    if _is_of_schema(state, diagnosis.message_primary or "", diagnosis.context or ""):
        return MissingSchemaError(
            f"the schema hashindex is missing or old: {message.rstrip('.')}. {_INSTALL_SCHEMA}"
        )
    if state in {"42P01", "3F000"}:
        return InvalidInputError(f"{message}; check the name and the schema it is in")
    if state == "42501":
        remedy = "connect as the owner, or have it GRANT the right"
        return MissingRightsError(message if diagnosis.message_hint else f"{message}; {remedy}")
    if state == "25006":
        return DatabaseStateError(f"{message}; a standby only reads: connect to the primary server")
    if state == "55P03" or (state == "57014" and "timeout" in message):
        # PostgreSQL's message is like "canceling statement due to statement timeout".
        limit = message.rpartition("due to ")[2].replace(" ", "_")
        table = table if index is None else index.qualified_table
        return DatabaseStateError(
            f"{message}{'' if table is None else f', at work on {table}'}; run the command again "
            f"with more time (PGOPTIONS='-c {limit}=1h') or when fewer others use the table"
        )
    if state == "0A000" and message.startswith("cross-database references"):
        return InvalidInputError(message)
    if state in _COMMON:
        return _COMMON[state](message)
    # psycopg raises a DataError without a state, for NUL in text.
    if state[:2] in {"22", "42"} or isinstance(error, psycopg.DataError):
        return InvalidInputError(message)
    # Class 57: the server shuts down, has crashed, or is not up yet.
    if state in {"57P01", "57P02", "57P03"} or (
        isinstance(error, psycopg.OperationalError) and state[:2] in {"", "08"}
    ):
        return ConnectionFailedError(f"the connection failed: {message}")
    return DatabaseStateError(message)
