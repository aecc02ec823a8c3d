"""Tables and queries that a caller names as a source of lines; none of them is trusted.

They run in a read-only transaction and by the extended protocol, which takes a single statement.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import Column, sql
from psycopg.postgres import types

from ..errors import HashIndexError, InvalidInputError
from .connection import Connection
from .server_errors import translated_errors
from .statements import execute
from .table_source import TableSource, find_relation

# No table's name begins so: a keyword of SQL, a bracket or a comment.
_QUERY = re.compile(r"\s*(\(|--|/\*|(select|with|values|table)\b)", re.IGNORECASE)

_FRACTIONAL = frozenset(types[name].oid for name in ("numeric", "float4", "float8"))


def find_query(connection: Connection, what: str, query: str) -> sql.Composable:
    """Return what may stand after FROM for a table, a view or a query; ``what`` begins messages."""
    if _QUERY.match(query):
        # The line break keeps a comment at the end from hiding the bracket.
        return sql.SQL("({}\n)").format(sql.SQL(query.rstrip("; \t\r\n")))
    try:
        relation, _, _ = find_relation(connection, query)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{what}: {error}; give a table, or a query that begins with SELECT, WITH, VALUES or "
            "TABLE"
        ) from error
    return relation


def columns_of(connection: Connection, relation: sql.Composable) -> Sequence[Column]:
    """Describe the columns of a source that `find_query` returned, without reading its lines."""
    # A raw cursor with a parameter uses the extended protocol.
    described = execute(
        connection, sql.SQL("SELECT * FROM {} known LIMIT $1").format(relation), [0]
    )
    return described.description or []


def exact_text(name: str, column: Column) -> sql.Composable:
    """Return SQL for a column under a name, for a cast to a key's type that must not round it."""
    value = sql.Identifier(name)
    if column.type_code not in _FRACTIONAL:
        return value
    # 1.00 is the integer 1, but a plain cast would round 1.5 too.
    return sql.SQL("trim_scale({}::numeric)::text").format(value)


@contextmanager
def errors_naming(what: str, source: TableSource) -> Iterator[None]:
    """Add to PostgreSQL's messages which query failed, and to which type its keys were cast."""
    try:
        with translated_errors():
            yield
    except HashIndexError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error):
            raise
        message = f"{what}: {str(error).rstrip('.')}"
        if isinstance(cause, psycopg.DataError | psycopg.errors.CannotCoerce):
            raise InvalidInputError(
                f"{message}; as key {source.known_key.name} of {source.name} is of type "
                f"{source.known_key.type_name}"
            ) from cause
        if isinstance(cause, psycopg.errors.UndefinedColumn):
            raise InvalidInputError(message) from cause
        raise type(error)(message) from cause
