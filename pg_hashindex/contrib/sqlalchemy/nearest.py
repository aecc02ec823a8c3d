"""Searches as statements of SQLAlchemy, to which filters and joins can be added."""

from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, overload

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import HalfVector, Vector
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy import orm
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FromClause, Join, TableValuedAlias
from sqlalchemy.sql.functions import Function
from sqlalchemy.sql.visitors import InternalTraversal

from ...errors import InvalidInputError
from ...index.filter_text import conjuncts, filter_sql, tenant_in
from ...index.search import as_count, as_optional_count, as_query
from . import filters
from .declared import HashIndex, declared_on
from .statements import read_key

_Entity = TypeVar("_Entity")


class _Options(TypedDict, total=False):
    index: str | None
    candidates: int | None
    effort: int | None
    key: Any
    all_tenants: bool


_Query = ArrayLike | Vector | HalfVector


# The quotes are needed: SQLAlchemy 2.0 takes a single type for all columns.
@overload
def nearest(
    entity: type[_Entity], column: Any, query: _Query, k: int = ..., **options: Unpack[_Options]
) -> "sa.Select[_Entity, float]": ...
@overload
def nearest(
    entity: Any, column: Any, query: _Query, k: int = ..., **options: Unpack[_Options]
) -> "sa.Select[Any, float]": ...
def nearest(
    entity: Any,
    column: Any,
    query: _Query,
    k: int = 10,
    *,
    index: str | None = None,
    candidates: int | None = None,
    effort: int | None = None,
    key: Any = None,
    all_tenants: bool = False,
) -> "sa.Select[Any, float]":
    """Select the rows nearest to a query, by an index: the nearest first.

    Added filters and joins are applied before the k nearest rows are chosen, so a statement has k
    rows if k rows match. A condition on the distance (``statement.selected_columns.distance``) is
    applied to the k answers.

    Parameters
    ----------
    entity
        The entity to select.
    column
        Its indexed column, of type ``VECTOR`` or ``HALFVEC``.
    query : array-like (dimension,), pgvector.Vector or pgvector.HalfVector
    k
        Answers wanted.
    index
        The index; the one that is declared on the column by default.
    candidates, effort
        As `pg_hashindex.HashIndex.search`.
    key
        The key column of the index, or several; by default those that it is declared with, or the
        primary key of the column's table.
    all_tenants
        Search the rows of all tenants, of an index that is declared with tenants. Else the
        statement names one: ``where(Entity.tenant == value)``.

    Returns
    -------
    sqlalchemy.Select
        A statement that selects the entity and its ``distance``, as pgvector's operator returns it;
        as ``hashindex_distance`` if the entity has a column ``distance``.

    Raises
    ------
    InvalidInputError
        If the query, k, candidates or effort cannot be used, the column holds no vectors or is not
        the entity's, none or several indexes are declared on it, or its table has no primary
        key.
    """
    searched = _vectors(entity, column)
    declared = _declared(searched, index)
    name = index if declared is None else declared.name
    keys = _key(searched.table, declared) if key is None else _columns(key)
    for key_column in keys:
        if key_column.table != searched.table:
            raise InvalidInputError(
                f"key {key_column} is of another table than column {searched}; name a column of "
                f"{searched.table}"
            )
    arguments: list[Any] = [
        sa.literal(as_query(query, searched.type.dim), VECTOR()),
        sa.literal(as_count("k", k), sa.Integer()),
        sa.literal(as_optional_count("candidates", candidates), sa.Integer()),
        sa.literal(as_optional_count("effort", effort), sa.Integer()),
    ]
    rows = _NearestRows(
        sa.sql.quoted_name(f"search_{name}", None), *arguments, packagenames=("hashindex",)
    )
    rows.all_tenants = all_tenants
    rows.tenant = None if declared is None else declared.spec().options.get("tenant")
    # Other names, so that filter_by(id=...) means the entity's.
    names = (
        ["hashindex_id"] if len(keys) == 1 else [f"hashindex_id_{n}" for n, _ in enumerate(keys)]
    )
    columns = [sa.column(name, column.type) for name, column in zip(names, keys, strict=True)]
    near = rows.table_valued(*columns, sa.column("distance", sa.Double())).render_derived()
    found = sa.and_(
        *(
            column == sa.cast(near.c[name], column.type)
            for name, column in zip(names, keys, strict=True)
        )
    )
    source = (
        sa.join(entity, near, found)
        if isinstance(entity, FromClause)
        else orm.join(entity, near, found)
    )
    # selected_columns would return the entity's own column of that name.
    taken = "distance" in sa.select(entity).selected_columns
    label = "hashindex_distance" if taken else "distance"
    statement: sa.Select[Any, float] = (
        sa.select(entity, near.c.distance.label(label))
        .select_from(source)
        .order_by(near.c.distance, *keys)
    )
    return statement


def _vectors(entity: Any, given: Any) -> Any:
    """Return a column of vectors, of the entity."""
    column = _column(given, "column")
    if not isinstance(column.type, (VECTOR, HALFVEC)):
        raise InvalidInputError(
            f"column {column} is of type {column.type!r}; a search needs one of type VECTOR "
            "or HALFVEC"
        )
    _check_table(entity, column)
    return column


def _column(given: Any, what: str) -> Any:
    expression = getattr(given, "expression", given)
    if not isinstance(expression, sa.ColumnElement) or getattr(expression, "table", None) is None:
        raise InvalidInputError(
            f"{what} must be an attribute of a mapped class or a column of a table, got {given!r}"
        )
    return expression


def _columns(given: Any) -> list[Any]:
    several = given if isinstance(given, list | tuple) else [given]
    return [_column(one, "key") for one in several]


def _check_table(entity: Any, column: Any) -> None:
    table = column.table
    if not isinstance(filters.unaliased(table), sa.Table):
        raise InvalidInputError(
            f"column {column} is of a subquery, which no index can search; take it from a table or "
            "an alias of one: of a class that inherits, aliased(..., flat=True)"
        )
    source = getattr(sa.inspect(entity, raiseerr=False), "selectable", None)
    if not isinstance(source, FromClause) or table not in set(filters.leaves(source)):
        raise InvalidInputError(
            f"column {column} is not of {entity!r}; give nearest() a mapped class, an alias of one "
            "or a table, and a column of the same"
        )


def _declared(column: Any, name: str | None) -> HashIndex | None:
    """Find the declared index; an index given by name need not be declared."""
    table = filters.unaliased(column.table)
    declared = declared_on(table) if isinstance(table, sa.Table) else {}
    found = {each.name: each for each in declared.values() if each.column.name == column.name}
    if name is not None:
        if name in declared and name not in found:
            raise InvalidInputError(
                f"index {name!r} is declared on {declared[name].column}, and cannot search {column}"
            )
        return found.get(name)
    if len(found) != 1:
        raise InvalidInputError(
            f"{len(found)} indexes are declared on {column}{': ' * bool(found)}"
            f"{', '.join(found)}; name the one to search with index="
        )
    return next(iter(found.values()))


def _key(table: FromClause, declared: HashIndex | None) -> list[Any]:
    named = None if declared is None else declared.spec().options.get("key_columns")
    if named is None:
        keys = list(table.primary_key)
        if not keys:
            raise InvalidInputError(
                f"table {table} has no primary key; name the key column of the index with key="
            )
        return keys
    columns = {column.name: column for column in table.c}
    for name in named:
        if name not in columns:
            raise InvalidInputError(
                f"table {table} has no column {name!r}, the key that the index is declared with"
            )
    return [columns[name] for name in named]


class _NearestRows(Function[Any]):
    """A call of an index's search function, with the filter of its statement."""

    inherit_cache = True
    _traverse_internals: ClassVar[Any] = [  # type: ignore[misc]
        *Function._traverse_internals,
        ("tenant", InternalTraversal.dp_string),
        ("all_tenants", InternalTraversal.dp_boolean),
    ]

    #: The column of tenants that the index is declared with.
    tenant: str | None = None
    #: Whether the rows of all tenants are searched.
    all_tenants: bool = False


@compiles(_NearestRows)
def _render(element: _NearestRows, compiler: SQLCompiler, **kw: Any) -> str:
    keys, wanted, clauses = _filter_of(element, compiler)
    literal_binds = bool(kw.get("literal_binds"))
    arguments = [
        compiler.process(argument, literal_binds=literal_binds) for argument in element.clauses
    ]
    name = compiler.render_literal_value(str(element.name).removeprefix("search_"), sa.String())
    columns = [compiler.render_literal_value(key.name, sa.String()) for key in keys]
    if keys:
        key = f"ARRAY[{', '.join(columns)}]::pg_catalog.text[]"
        name = f"hashindex._searched_name({name}, {_table_of(keys[0], compiler)}, {key})"
    named = []
    if wanted is not None:
        tenant = tenant_in(
            clauses, lambda one: one.name == element.tenant and one.table == keys[0].table
        )
        if tenant is None or len(clauses) > 1 or wanted.key:
            text = filter_sql(wanted.clause, wanted.key, compiler, literal_binds=literal_binds)
            named.append(f"filter => {text}")
        if tenant is not None:
            value = compiler.process(tenant, literal_binds=literal_binds)
            column = compiler.render_literal_value(element.tenant, sa.String())
            named.append(f"where_equals => pg_catalog.jsonb_build_object({column}, {value})")
    if element.all_tenants:
        named.append("all_tenants => true")
    call = f"hashindex.search({', '.join([name, *arguments, *named])})"
    if len(keys) < 2:
        return call
    # The index may have its columns in another order, or under other names.
    return read_key(columns, name, call)


def _table_of(key: Any, compiler: SQLCompiler) -> str:
    """Return SQL for the table that the statement reads, under its path and its schemas."""
    table = compiler.preparer.format_table(filters.unaliased(key.table))
    if "__[SCHEMA_" not in table:
        if compiler.preparer._double_percents:
            # Names have their % doubled, and literals too.
            table = table.replace("%%", "%")
        return f"{compiler.render_literal_value(table, sa.String())}::pg_catalog.regclass"
    # The schema is put in later, with the quotes of a name.
    return f"pg_catalog.pg_typeof(NULL::{table})::pg_catalog.text::pg_catalog.regclass"


def _filter_of(
    element: _NearestRows, compiler: SQLCompiler
) -> tuple[list[Any], filters.Filter | None, list[Any]]:
    """Read the key of a search, its filter, and the parts of this from the statement around it."""
    enclosing: Any = compiler.stack[-1] if compiler.stack else {}
    statement = enclosing.get("selectable")
    if not isinstance(statement, sa.Select):
        return [], None, []
    sources = enclosing["compile_state"]._get_display_froms()
    own = [source for source in sources if source in enclosing["asfrom_froms"]]
    join = next(_joins(own, element), None)
    if join is None or join.onclause is None:
        return [], None, []
    keys = [same.left for same in conjuncts(join.onclause)]
    near: Any = join.right
    clauses = [
        clause
        for clause in conjuncts(statement.whereclause)
        if not any(getattr(part, "table", None) is near for part in visitors.iterate(clause))
    ]
    named = filters.tables_of(clauses)
    for source in sources:
        if source not in own and named & set(filters.leaves(source)):
            raise CompileError(
                f"a search cannot be restricted by {source.description}, of a statement around it; "
                "join it inside of the statement that nearest() gives"
            )
    left = [source for whole in own if (source := filters.without(whole, near)) is not None]
    return keys, filters.filter_of(keys, left, clauses), clauses


def _joins(sources: Any, element: _NearestRows) -> Any:
    for source in sources:
        if isinstance(source, Join):
            if isinstance(source.right, TableValuedAlias) and source.right.element is element:
                yield source
            yield from _joins((source.left, source.right), element)
