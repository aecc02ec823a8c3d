"""The conditions of a statement as text that ``hashindex.search_where`` takes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    FromClause,
    Join,
    SelectBase,
)

__all__ = ["Condition", "condition_of", "conjuncts", "text_of", "without"]

# Stands where a value will be; no text of SQL has it.
_MARK = "\0"


def conjuncts(clause: Any) -> Iterator[Any]:
    """Take a condition apart at its ANDs."""
    if isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for part in clause.clauses:
            yield from conjuncts(part)
    elif clause is not None:
        yield clause


def without(source: FromClause, dropped: FromClause) -> FromClause | None:
    """Return a tree of joins without one of its leaves."""
    if source is dropped:
        return None
    if not isinstance(source, Join):
        return source
    left, right = without(source.left, dropped), without(source.right, dropped)
    if left is None or right is None:
        return left if right is None else right
    if left is source.left and right is source.right:
        return source
    return Join(left, right, source.onclause, isouter=source.isouter, full=source.full)


def _pruned(source: FromClause, named: set[Any]) -> FromClause:
    """Drop tables that are joined from the left side outward, and that no condition names.

    Loading strategies join such tables; they restrict nothing.
    """
    if not isinstance(source, Join) or source.full:
        return source
    if source.isouter and not named & set(_leaves(source.right)):
        return _pruned(source.left, named)
    inner = named if source.onclause is None else named | _tables([source.onclause])
    left = _pruned(source.left, inner)
    return Join(left, source.right, source.onclause, isouter=source.isouter)


def _leaves(source: FromClause) -> Iterator[FromClause]:
    if isinstance(source, Join):
        yield from _leaves(source.left)
        yield from _leaves(source.right)
    else:
        yield source


def _tables(clauses: Iterable[Any]) -> set[Any]:
    elements = (element for clause in clauses for element in visitors.iterate(clause))
    return {getattr(element, "table", None) for element in elements} - {None}


@dataclass(frozen=True)
class Condition:
    """What a statement demands of the rows that it searches.

    Parameters
    ----------
    clause : sqlalchemy.ClauseElement
        A condition on columns of their table; or a statement that selects the keys of rows.
    key : Column, optional
        Of the table, where the clause is a statement.
    """

    clause: ClauseElement
    key: Any = None


def condition_of(
    key: Any, sources: Sequence[FromClause], clauses: Sequence[Any]
) -> Condition | None:
    """Find out what a statement demands of the rows that it searches.

    Parameters
    ----------
    key : sqlalchemy.ColumnElement
        The key column of the searched table, or of its alias in the statement.
    sources : sequence of FromClause
        What the statement selects from.
    clauses : sequence
        Its conditions.

    Returns
    -------
    Condition or None
        None where every row will do.
    """
    named = _tables(clauses)
    sources = [_pruned(source, named) for source in sources]
    # A table that is joined without a condition may have no row, and restricts by that.
    alone = len(sources) == 1 and not isinstance(sources[0], Join)
    if alone and not clauses:
        return None
    elements = (element for clause in clauses for element in visitors.iterate(clause))
    nested = any(isinstance(element, SelectBase) for element in elements)
    if alone and isinstance(sources[0], sa.Table) and not nested:
        return Condition(sa.and_(*clauses))
    # Aliases keep their names, and subqueries find what they refer to, in a statement of their own.
    table = key.table.element if isinstance(key.table, sa.Alias) else key.table
    return Condition(sa.select(key).select_from(*sources).where(*clauses), table.c[key.key])


class _TextCompiler(PGCompiler_psycopg):
    """Writes markers for values, each with the cast that the dialect gives it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.marked: list[tuple[BindParameter[Any], str]] = []
        super().__init__(*args, **kwargs)

    def visit_bindparam(  # type: ignore[override]
        self, bindparam: BindParameter[Any], skip_bind_expression: bool = False, **kw: Any
    ) -> str:
        impl: Any = bindparam.type.dialect_impl(self.dialect)
        if impl._has_bind_expression and not skip_bind_expression:
            return str(super().visit_bindparam(bindparam, **kw))  # type: ignore[no-untyped-call]
        cast = self._cast(bindparam.type)
        self.marked.append((bindparam, cast))
        return f"{_MARK}{len(self.marked) - 1}{_MARK}{cast}"

    def _cast(self, type_: sa.types.TypeEngine[Any]) -> str:
        # As text, 1.5 beside an integer column would be taken for an integer.
        impl: Any = type_._unwrapped_dialect_impl(self.dialect)
        if isinstance(impl, sa.types.NullType):
            return ""
        if impl.render_bind_cast:
            return str(self.render_bind_cast(type_, impl, ""))  # type: ignore[no-untyped-call]
        if isinstance(impl, sa.Numeric) and not isinstance(impl, sa.Float):
            # Without its precision, which would round the value.
            return "::NUMERIC"
        return f"::{self.dialect.type_compiler_instance.process(impl)}"

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


def _as_array(values: BindParameter[Any]) -> BindParameter[Any]:
    """Return the values of an IN as one parameter, under another name."""
    if isinstance(values.type, sa.types.TupleType) or not values.unique:
        raise CompileError(
            "a search cannot be restricted by IN with a named parameter or with tuples; write "
            "column == any_(...) with an array, or or_() of the tuples"
        )
    array = values._clone(maintain_key=False)
    array.expanding = False
    array.type = ARRAY(values.type)
    return array


class _TextDialect(PGDialect_psycopg):
    statement_compiler = _TextCompiler
    supports_statement_cache = False


# Not paramstyle format: that doubles every % of the text.
_DIALECT = _TextDialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


def text_of(condition: Condition, compiler: SQLCompiler, **kw: Any) -> str:
    """Write SQL for the text of a condition, in which the server quotes the values.

    Parameters
    ----------
    condition : Condition
    compiler : SQLCompiler
        Of the statement, which gets the values as its parameters.
    **kw : Any
        For the values.

    Raises
    ------
    sqlalchemy.exc.CompileError
        If the condition cannot be written so.
    """
    translated = compiler.schema_translate_map
    written = _TextCompiler(_DIALECT, condition.clause, schema_translate_map=translated)
    text = written.string
    if condition.key is not None:
        preparer = written.preparer
        table = preparer.format_table(condition.key.table)
        text = f"{table}.{preparer.quote(condition.key.name)} IN ({text})"
    parts = []
    for place, piece in enumerate(text.split(_MARK)):
        if place % 2:
            # The cast: the statement's own condition has the same parameter, whose type it shares.
            value, cast = written.marked[int(piece)]
            parts.append(f"quote_nullable({compiler.process(value, **kw)}{cast})")
        else:
            parts.append(compiler.render_literal_value(piece, sa.String()))
    return " || ".join(parts)
