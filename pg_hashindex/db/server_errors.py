"""PostgreSQL's errors and warnings as ours."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from typing import Protocol

import psycopg
import sqlalchemy as sa

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

_INSTALL_SCHEMA = "Run: pg-hashindex schema upgrade"
# A function that an index has of its own.
_OF_INDEX = re.compile(r"function hashindex\.(search|candidates|within)_")


def warning_of(notice: psycopg.errors.Diagnostic) -> str | None:
    """Return a warning of the server with its hint; None for a notice of another kind."""
    if notice.severity_nonlocalized != "WARNING":
        return None
    return "; ".join(filter(None, [notice.message_primary, notice.message_hint]))


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


# Tables of an index, which a swap and a build replace.
_CODES = re.compile(r'relation "hashindex\..+_(codes|landmarks)(_\d+)?" does not exist')


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


# A function of the schema names a type of pgvector that does not exist.
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
            replaced = _CODES.search(diagnosis.message_primary or "")
            again = (
                ", or a swap or build replaced it meanwhile: run it again, or" if replaced else ":"
            )
            return InvalidInputError(
                f"{message}; a part of index {name!r} was renamed or dropped{again} run "
                f"pg-hashindex index check {shlex.quote(name)}, which says what to do"
            )
    missing = diagnosis.message_primary or ""
    if (state == "42883" and _OF_INDEX.match(missing)) or (
        state == "42P01" and _CODES.search(missing)
    ):
        return DatabaseStateError(
            f"{message.rstrip('.')}; its index was swapped, dropped or recreated meanwhile: run it "
            "again"
        )
    if _is_of_schema(state, diagnosis.message_primary or "", diagnosis.context or ""):
        return MissingSchemaError(
            f"the schema hashindex is missing or old: {message.rstrip('.')}. {_INSTALL_SCHEMA}"
        )
    if state in {"42P01", "3F000"}:
        return InvalidInputError(f"{message}; check the name and the schema it is in")
    if state == "42501":
        remedy = "connect as the owner, or have it GRANT the right"
        if message.startswith("must be owner"):
            # No right does; and indexes are changed by the administrator.
            remedy = "connect as a member of its owner and of the administrator of schema hashindex"
        return MissingRightsError(message if diagnosis.message_hint else f"{message}; {remedy}")
    if state == "25006":
        return DatabaseStateError(
            f"{message}; the server is a standby, or default_transaction_read_only is on: connect "
            "to the primary server, or as a role that may write"
        )
    if state == "55P03" or (state == "57014" and "timeout" in message):
        # PostgreSQL's message is like "canceling statement due to statement timeout".
        limit = message.rpartition("due to ")[2].replace(" ", "_")
        table = table if index is None else index.qualified_table
        return DatabaseStateError(
            f"{message}{'' if table is None else f' while accessing {table}'}; run the command "
            f"again with more time (PGOPTIONS='-c {limit}=1h') or when fewer others use the table"
        )
    if state in {"26000", "42P05"}:
        return DatabaseStateError(
            f"{message}: a pooler in transaction mode that does not track prepared statements gave "
            "this connection the session of another; connect to the server itself, or in Python "
            "set prepare_threshold = None on the connection"
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
