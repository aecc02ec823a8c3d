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
# Messages are in the language of the server: SQLSTATEs say what is wrong, and a pattern looks for
# names alone.
# A function that an index has of its own.
_OF_INDEX = re.compile(r"\bhashindex\.\"?search_")


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
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""

    def has_part(self, state: str, message: str) -> bool:
        """Return whether what does not exist, by an error of PostgreSQL, is a part of it."""


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
    r"""\bhashindex\.("?)(?:sync|search)_(.+?)\1\((?:\)|(?:\S+\.)?vector,)"""
)


# Tables of an index, which a swap and a build replace.
_CODES = re.compile(r"\bhashindex\..+_(codes|landmarks)(_\d+)?\b")


def _index_of(index: Named | None, context: str) -> str | None:
    """Return the name of the index, or of the index whose function raised the error."""
    if index is not None:
        return index.name
    # In a trigger, it may be another index.
    found = _OWN_FUNCTION.search(context)
    return None if found is None else found[2].replace('""', '"')


def _is_of_schema(state: str, message: str, context: str) -> bool:
    """Return whether the missing object is a part of schema hashindex."""
    if state == "42703":
        # Functions run the filters of callers, whose tables may have our aliases as names.
        return not context and _OUR_COLUMN.search(message) is not None
    missing = _SCHEMA.search(message) is not None
    return missing and state in {"42P01", "42704", "42883", "3F000"}


# The schema hashindex, or something in it.
_SCHEMA = re.compile(r"(?<![\w-])hashindex(?![\w-])")

# A type of pgvector, with its schema.
_TYPE = re.compile(r"\S\.(vector|halfvec)\b")


def _has_moved(state: str, message: str, context: str) -> bool:
    """Return whether a function names a type of pgvector, or its schema, that does not exist."""
    return bool(context) and (
        state == "3F000" or (state == "42704" and bool(_TYPE.search(message)))
    )


# Limits of the server by the states of their errors. A person may cancel a statement too.
_LIMITS = {
    "25P03": "idle_in_transaction_session_timeout",
    "25P04": "transaction_timeout",
    "55P03": "lock_timeout",
    "57014": "statement_timeout",
    "57P05": "idle_session_timeout",
}

# Functions of PostgreSQL that refuse the name of another database's object.
_READ_NAMES = {"RangeVarGetRelidExtended", "DeconstructQualifiedName", "makeRangeVarFromNameList"}


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
    if _has_moved(state, diagnosis.message_primary or "", diagnosis.context or ""):
        return MissingSchemaError(
            f"pgvector is no longer in the schema that it was in: {message}. {_INSTALL_SCHEMA}"
        )
    if state in {"42P01", "42703", "42883", "3F000"}:
        has_part = index is not None and index.has_part(state, diagnosis.message_primary or "")
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
    if (state == "42883" and _OF_INDEX.search(missing)) or (
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
        remedy = (
            "have the right granted, or connect as a member of its owner and of the administrator "
            "of schema hashindex"
        )
        return MissingRightsError(message if diagnosis.message_hint else f"{message}; {remedy}")
    if state == "25006":
        return DatabaseStateError(
            f"{message}; the server is a standby, or default_transaction_read_only is on: connect "
            "to the primary server, or as a role that may write"
        )
    if state == "55P03" and diagnosis.message_hint:
        # Ours, of work that others do.
        return InUseError(message)
    if limit := _LIMITS.get(state):
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
    if state == "0A000" and diagnosis.source_function in _READ_NAMES:
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
        return ConnectionFailedError(f"the connection failed: {message}; run the command again")
    return DatabaseStateError(message)
