"""Statements that make, change and drop declared indexes, as text that scripts can run too."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.engine.mock import MockConnection

from ...db.server_errors import warning_of
from ...db.sql_files import query
from .specification import IndexSpec, qualified

#: SQLSTATE of the warning that rows wait for a command that encodes them.
NOT_ENCODED = "01X01"


def create_statement(spec: IndexSpec) -> str:
    """Return SQL that makes an index; with defer, only if it is missing and its model exists."""
    table = spec.qualified_table
    values = {
        "name": sql.SQL("hashindex._declared_name({}, {})").format(
            sql.Literal(spec.name), sql.Literal(table)
        ),
        "table_name": table,
        "column_name": spec.column,
        **spec.stated,
    }
    return function_call("_declare_deferred" if spec.defer else "create_index", values)


def drop_statement(
    name: str, *, table: str | None = None, schema: str | None = None, if_exists: bool = False
) -> str:
    """Return SQL that drops an index; with if_exists, only one that exists, of that table."""
    named = name_on(name, table, schema)
    if not if_exists:
        return sql.SQL("SELECT hashindex.drop_index({})").format(named).as_string(None)
    statement = sql.SQL(
        "SELECT hashindex.drop_index(i.name) FROM hashindex.index i WHERE i.name = {}"
    ).format(named)
    if table is not None:
        statement += sql.SQL(
            " AND to_regclass(pg_catalog.format('%I.%I', i.schema_name, i.table_name))::oid "
            "= to_regclass({})::oid"
        ).format(sql.Literal(qualified(schema, table)))
    return statement.as_string(None)


def name_on(name: str, table: str | None = None, schema: str | None = None) -> sql.Composed:
    """Return SQL for the name of the index that is declared under a name on a table.

    By default the table that the search_path finds under the bare name of the index's table.
    """
    if table is None:
        return sql.SQL(
            "coalesce((SELECT hashindex._declared_name(i.name, "
            "to_regclass(pg_catalog.quote_ident(i.table_name))) "
            "FROM hashindex.index i WHERE i.name = {0}), {0})"
        ).format(sql.Literal(name))
    names = {"name": name, "table": qualified(schema, table), "bare": table, "schema": schema}
    # On one line, as the rest of a statement.
    statement = sql.SQL(" ".join(query("alembic.declared").split()))
    return sql.SQL("({})").format(
        statement.format(**{word: sql.Literal(value) for word, value in names.items()})
    )


def swap_statement(name: sql.Composable, options: dict[str, Any]) -> str:
    """Return SQL that gives an index another set; lists, where no row has to be encoded for it."""
    return function_call("_declare_swap", {"index_name": name, **options})


def configure_statement(name: sql.Composable, options: dict[str, Any]) -> str:
    """Return SQL that changes the defaults of searches."""
    return function_call("configure_index", {"name": name, **options})


def read_key(columns: Sequence[str], index: str, answers: str) -> str:
    """Return what may stand after FROM for answers with the text of a key of several columns.

    It has a column for each of the key, and the distance. All are given as SQL; columns and index
    are literals. The order of the columns in the text is that of the index.
    """
    places = ", ".join(
        f"pg_catalog.array_position(i.key_columns, {column}) OPERATOR(pg_catalog.-) 1 AS n_{n}"
        for n, column in enumerate(columns)
    )
    # A value of type jsonb is not unpacked: "a" is its text, not a.
    values = ", ".join(
        f"CASE pg_catalog.to_regtype(i.key_types[i.n_{n} OPERATOR(pg_catalog.+) 1]) "
        f"WHEN 'pg_catalog.jsonb'::pg_catalog.regtype "
        f"THEN pg_catalog.json_array_element(s.id::pg_catalog.json, i.n_{n})::pg_catalog.text "
        f"ELSE pg_catalog.json_array_element_text(s.id::pg_catalog.json, i.n_{n}) END"
        for n, _ in enumerate(columns)
    )
    # find_index refuses an unknown name. From an empty catalog the search would not be called.
    return (
        f"(WITH i AS MATERIALIZED (SELECT i.key_types, {places} "  # noqa: S608
        f"FROM hashindex.find_index({index}) i) "
        f"SELECT {values}, s.distance FROM {answers} s, i)"
    )


def function_call(function: str, values: dict[str, Any]) -> str:
    """Return SQL that calls a function of schema hashindex by the names of its parameters."""
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(
            sql.SQL(name), value if isinstance(value, sql.Composable) else sql.Literal(value)
        )
        for name, value in values.items()
    )
    call = sql.SQL("SELECT hashindex.{}({})").format(sql.SQL(function), arguments)
    return call.as_string(None)


def run(connection: sa.Connection | MockConnection, statement: str) -> sa.CursorResult[Any] | None:
    """Run a statement unchanged; on a mock connection, print it as DDL."""
    if isinstance(connection, MockConnection):
        connection.execute(sa.DDL(statement.replace("%", "%%")))  # type: ignore[no-untyped-call]
        return None
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


@contextlib.contextmanager
def noticed(
    connection: sa.Connection | MockConnection,
    tell: Callable[[str], None],
    *,
    encodes: bool = False,
) -> Iterator[None]:
    """Pass on the warnings of the server if psycopg is the driver.

    They are issued after the block, since psycopg swallows errors that its handlers raise.
    ``encodes``: without those that rows wait to be encoded, which the caller does.
    """
    driver = getattr(connection, "connection", None)
    driver = getattr(driver, "driver_connection", None)
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        yield
        return

    warnings: list[str | None] = []

    def handler(diagnosis: psycopg.errors.Diagnostic) -> None:
        if not (encodes and diagnosis.sqlstate == NOT_ENCODED):
            warnings.append(warning_of(diagnosis))

    driver.add_notice_handler(handler)
    try:
        yield
    finally:
        driver.remove_notice_handler(handler)
    for warning in filter(None, warnings):
        tell(warning)
