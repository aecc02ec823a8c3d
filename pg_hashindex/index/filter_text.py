"""Filters of SQLAlchemy as ``hashindex.search`` takes them: text, and the tenant.

`filter_text` quotes the values of a filter; `filter_sql` writes SQL by which the server quotes
them, since a statement that SQLAlchemy compiles gets its values later.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql.psycopg import PGCompiler_psycopg, PGDialect_psycopg
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import (
    BinaryExpression,
    BindParameter,
    BooleanClauseList,
    ClauseElement,
    ColumnClause,
)

from ..errors import InvalidInputError


class _FilterCompiler(PGCompiler_psycopg):
    """Writes the bare name of a column's table, whose schema may be translated elsewhere.

    With a subquery, which may read a table of the same name, names stay qualified.
    """

    @cached_property
    def _has_subquery(self) -> bool:
        return any(isinstance(one, sa.SelectBase) for one in visitors.iterate(self.statement))

    def visit_column(  # type: ignore[override]
        self, column: ColumnClause[Any], include_table: bool = True, **kw: Any
    ) -> str:
        table = column.table
        if not include_table or not isinstance(table, sa.Table) or self._has_subquery:
            return str(super().visit_column(column, include_table=include_table, **kw))
        text = super().visit_column(column, include_table=False, **kw)
        return f"{self.preparer.quote(table.name)}.{text}"


# For psycopg's own quoting.
_PSYCOPG = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_PSYCOPG.statement_compiler = _FilterCompiler
# SQLAlchemy's own pattern takes a word with a line break at its end for one without.
_PSYCOPG.identifier_preparer.legal_characters = re.compile(r"[A-Za-z0-9_$]+\Z")

# Marks the place of a value; the text of SQL never contains it.
_MARK = "\0"

# Marks a schema until the statement runs with its schema_translate_map.
_SCHEMA = re.compile(r"(__\[SCHEMA_[^\]]+\])")

_NO_LIST = (
    "a search cannot be restricted by IN with a named parameter, in text(), or with tuples, arrays "
    "or values of a type with a bind_expression; write column == any_(...) with an array, or or_()"
)


def filter_text(
    connection: Any, where: sa.ColumnElement[bool], table_name: str, qualified_table: str
) -> str:
    """Write a filter on the searched table as SQL, with its values as psycopg quotes them.

    The table is given by its bare name, and as SQL writes it, for messages. A filter that is
    not an SQLAlchemy expression, or that names another table, is refused.
    """
    if not isinstance(where, sa.ColumnElement):
        raise InvalidInputError(
            f"where must be an SQLAlchemy expression on {qualified_table}, "
            f"got {type(where).__name__}"
        )
    for element in visitors.iterate(where):
        table = getattr(element, "table", None)
        if isinstance(table, sa.Table) and table.name != table_name:
            raise InvalidInputError(
                f"where names column {element}; only columns of {qualified_table} can "
                "restrict this search"
            )
    statement = where.compile(dialect=_PSYCOPG)
    assert isinstance(statement, SQLCompiler)  # noqa: S101
    # Lists of IN get their parameters, and the conversion of their values, only here.
    expanded = statement.construct_expanded_state()
    processors = {**statement._bind_processors, **expanded.processors}
    values = {
        name: process(value) if callable(process := processors.get(name)) else value
        for name, value in expanded.parameters.items()
    }
    blocking = isinstance(connection, psycopg.Connection)
    cursor = (psycopg.ClientCursor if blocking else psycopg.AsyncClientCursor)(connection)
    return str(cursor.mogrify(expanded.statement, values))


def conjuncts(clause: Any) -> Iterator[Any]:
    """Split a filter at its ANDs."""
    if isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for part in clause.clauses:
            yield from conjuncts(part)
    elif clause is not None:
        yield clause


def tenant_in(
    clauses: Iterable[Any], is_tenant: Callable[[ColumnClause[Any]], bool]
) -> BindParameter[Any] | None:
    """Return the value that one part of a filter compares the column of tenants with.

    Only integers, text and UUIDs mean the same in JSON.
    """
    for clause in clauses:
        if isinstance(clause, BinaryExpression) and clause.operator is operators.eq:
            left, value = clause.left, clause.right
            if (
                isinstance(left, ColumnClause)
                and isinstance(value, BindParameter)
                and isinstance(value.type, sa.Integer | sa.String | sa.Uuid)
                and not isinstance(value.type, sa.CHAR | sa.Enum)
                and is_tenant(left)
            ):
                return value
    return None


class _TextCompiler(_FilterCompiler):
    """Writes markers for values, each with the cast that the dialect gives it.

    ``outer`` is the compiler of the statement that has the filter.
    """

    def __init__(self, clause: ClauseElement, outer: SQLCompiler) -> None:
        self.marked: list[tuple[BindParameter[Any], str]] = []
        # with_loader_criteria applies to subqueries too.
        self._global_attributes = dict(outer._global_attributes)
        around = outer.stack[-1]
        # A correlated subquery must not add the outer statement's tables to its own FROM.
        self._default_stack_entry = {  # type: ignore[typeddict-item]
            "correlate_froms": around["correlate_froms"] - around["asfrom_froms"],
            "asfrom_froms": set(),
        }
        super().__init__(_DIALECT, clause, schema_translate_map=outer.schema_translate_map)

    def visit_bindparam(  # type: ignore[override]
        self, bindparam: BindParameter[Any], skip_bind_expression: bool = False, **kw: Any
    ) -> str:
        if bindparam.expanding:
            raise CompileError(_NO_LIST)
        kind: Any = bindparam.type
        wrapped = kind.dialect_impl(_DIALECT).bind_expression(bindparam) is not None
        if wrapped and not skip_bind_expression:
            return str(super().visit_bindparam(bindparam, **kw))  # type: ignore[no-untyped-call]
        cast = "" if (plain := _plain(kind)) is None else self._cast(kind, plain)
        if not cast and bindparam.unique:
            # A new parameter: here its type is text, while the statement has it in another type.
            bindparam = _retyped(bindparam, kind)
        self.marked.append((bindparam, cast))
        return f"{_MARK}{len(self.marked) - 1}{_MARK}{cast}"

    def _cast(self, kind: Any, plain: Any) -> str:
        # Without a cast, 1.5 beside an integer column would be taken for an integer.
        if plain.render_bind_cast:
            return str(self.render_bind_cast(kind, plain, ""))  # type: ignore[no-untyped-call]
        kinds = self.dialect.type_compiler_instance
        free = _unbounded(plain) or plain
        return f"::{kinds.process(free, identifier_preparer=self.preparer)}"

    def render_literal_value(self, value: Any, type_: Any, **kw: Any) -> str:
        # PGCompiler doubles backslashes until it has seen a server, but servers take them as they
        # are.
        return str(SQLCompiler.render_literal_value(self, value, type_, **kw))

    def visit_in_op_binary(self, binary: BinaryExpression[Any], operator: Any, **kw: Any) -> str:
        return self._in(binary, "= ANY", " IN ", **kw)

    def visit_not_in_op_binary(
        self, binary: BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        return self._in(binary, "<> ALL", " NOT IN ", **kw)

    def _in(self, binary: BinaryExpression[Any], of_array: str, of_query: str, **kw: Any) -> str:
        left, right = binary.left, binary.right
        if isinstance(right, BindParameter) and right.expanding:
            return (
                f"({self.process(left, **kw)} {of_array} ({self.process(_as_array(right), **kw)}))"
            )
        return f"({self.process(left, **kw)}{of_query}{self.process(right, **kw)})"


def _retyped(parameter: BindParameter[Any], kind: Any) -> BindParameter[Any]:
    """Return a parameter with the same values under another name."""
    retyped: BindParameter[Any] = sa.type_coerce(parameter, kind).typed_expression
    return retyped


def _as_array(values: BindParameter[Any]) -> BindParameter[Any]:
    """Return the values of an IN as one parameter."""
    kind: Any = values.type
    impl = kind.dialect_impl(_DIALECT)
    if (
        isinstance(kind, sa.types.TupleType)
        or isinstance(impl, sa.ARRAY)
        or impl.bind_expression(values) is not None
        or not values.unique
    ):
        raise CompileError(_NO_LIST)
    item = kind if _unbounded(_unwrapped(kind, _DIALECT)) is None else _Unbounded(kind)
    # An array of one dimension: a value that is a list (JSON, a vector) is not an inner array.
    array = _retyped(values, ARRAY(item, dimensions=1))
    array.expanding = False
    return array


def _unwrapped(type_: Any, dialect: Any) -> Any:
    """Return the dialect's own type, also that of a decorator."""
    impl = type_.dialect_impl(dialect)
    if isinstance(impl, sa.types.TypeDecorator):
        return _unwrapped(impl.load_dialect_impl(dialect), dialect)
    return impl


def _plain(type_: Any) -> Any:
    """Return the dialect's own type if values have to be cast to it, else None."""
    impl = _unwrapped(type_, _DIALECT)
    # Paths of JSON are arrays of text for some operators, and jsonpath for others.
    if isinstance(impl, sa.types.NullType | sa.JSON.JSONPathType):
        return None
    # The arguments of such an expression seldom have the type of its result.
    if isinstance(impl, sa.types.UserDefinedType):
        value: Any = sa.bindparam(None, type_=impl)
        return impl if impl.bind_expression(value) is None else None
    return impl


def _unbounded(impl: Any) -> sa.types.TypeEngine[Any] | None:
    """Return the type without its length or precision."""
    if isinstance(impl, sa.Float):
        return sa.Double()
    if isinstance(impl, sa.Numeric):
        return sa.Numeric()
    if isinstance(impl, sa.String) and impl.length and not isinstance(impl, sa.Enum):
        return sa.String()
    return None


class _Unbounded(sa.types.TypeDecorator[Any]):
    """Values of a type with a length or precision, to which an array would cut them."""

    impl = sa.types.NullType
    cache_ok = True

    def __init__(self, bounded: sa.types.TypeEngine[Any]) -> None:
        super().__init__()
        self.bounded = bounded

    def load_dialect_impl(self, dialect: Any) -> Any:
        return dialect.type_descriptor(_unbounded(_unwrapped(self.bounded, dialect)))

    def bind_processor(self, dialect: Any) -> Any:
        return self.bounded.dialect_impl(dialect).bind_processor(dialect)

    def literal_processor(self, dialect: Any) -> Any:
        return self.bounded.dialect_impl(dialect).literal_processor(dialect)


# Paramstyle format would double every % in the text.
_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


def filter_sql(clause: ClauseElement, key: Sequence[Any], compiler: SQLCompiler, **kw: Any) -> str:
    """Write SQL for the text of a filter, in which the server quotes the values.

    With a ``key``, columns, the clause is a statement that selects keys of rows. The compiler is
    that of the statement around the filter, which gets the values as parameters; ``kw`` are
    arguments for compiling them. What cannot be written so is a CompileError.
    """
    written = _TextCompiler(clause, compiler)
    text = written.string
    if key:
        preparer = written.preparer
        table = preparer.format_table(key[0].table)
        columns = ", ".join(f"{table}.{preparer.quote(column.name)}" for column in key)
        text = f"{f'({columns})' if len(key) > 1 else columns} IN ({text})"
    parts = []
    for place, piece in enumerate(text.split(_MARK)):
        if place % 2:
            # The cast is needed since the statement's own WHERE has the same parameter, with its
            # type.
            marked, cast = written.marked[int(piece)]
            value = compiler.process(marked, skip_bind_expression=True, **kw)
            parts.append(f"pg_catalog.quote_nullable({value}{cast})")
        else:
            parts.extend(_constants(piece, compiler))
    return " || ".join(parts)


def _constants(piece: str, compiler: SQLCompiler) -> Iterator[str]:
    parts = _SCHEMA.split(piece) if compiler.schema_translate_map else [piece]
    for place, part in enumerate(parts):
        if place % 2:
            # The schema's name is written later, as an identifier; inside quotes, a quote in the
            # name would end them.
            keys = "pg_catalog.json_object_keys(pg_catalog.row_to_json(named))"
            yield f"(SELECT pg_catalog.quote_ident({keys}) FROM (SELECT 1 AS {part}) named)"  # noqa: S608
        else:
            yield compiler.render_literal_value(part, sa.String())
