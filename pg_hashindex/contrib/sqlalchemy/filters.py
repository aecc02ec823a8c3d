"""The filter of a statement, from its WHERE and joins."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import visitors
from sqlalchemy.sql.expression import (
    ClauseElement,
    ColumnClause,
    FromClause,
    FromGrouping,
    Join,
    Lateral,
    SelectBase,
    TableValuedAlias,
    TextClause,
)
from sqlalchemy.util import immutabledict


def unaliased(source: Any) -> Any:
    """Return the element of an alias; anything else unchanged."""
    return source.element if isinstance(source, sa.Alias) else source


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
    """Drop tables of LEFT JOINs that no filter names.

    Loading strategies add such joins; they restrict nothing.
    """
    if not isinstance(source, Join) or source.full:
        return source
    if source.isouter and not named & set(leaves(source.right)):
        return _pruned(source.left, named)
    inner = named if source.onclause is None else named | tables_of([source.onclause])
    left = _pruned(source.left, inner)
    return Join(left, source.right, source.onclause, isouter=source.isouter)


def leaves(source: FromClause) -> Iterator[FromClause]:
    """Split a tree of joins."""
    if isinstance(source, Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif isinstance(source, FromGrouping):
        yield from leaves(source.element)
    else:
        yield source


def tables_of(clauses: Iterable[Any]) -> set[Any]:
    """Find the tables and aliases whose columns are named."""
    elements = (element for clause in clauses for element in visitors.iterate(clause))
    return {getattr(element, "table", None) for element in elements} - {None}


def _is_opaque(clause: Any) -> bool:
    """Return whether a filter has text of the user, which may name any table."""
    return any(
        isinstance(element, TextClause)
        # LIKE is built with constants in quotes.
        or (isinstance(element, ColumnClause) and element.is_literal and element.name[:1] != "'")
        for element in visitors.iterate(clause)
    )


@dataclass(frozen=True)
class Filter:
    """The filter of a statement.

    The clause is on columns of their table, or a statement that selects keys of rows: ``key`` are
    the columns that these are of.
    """

    clause: ClauseElement
    key: Sequence[Any] = ()


def filter_of(
    key: Sequence[Any], sources: Sequence[FromClause], clauses: Sequence[Any]
) -> Filter | None:
    """Return the filter of a statement, None if every row matches.

    The key are columns of the searched table, or of its alias in the statement; sources are the
    FROM of the statement, clauses the parts of its WHERE.
    """
    if not any(_is_opaque(part) for part in (*clauses, *sources)):
        joined = (leaf for source in sources for leaf in leaves(source))
        lateral = (leaf for leaf in joined if isinstance(leaf, Lateral | TableValuedAlias))
        named = tables_of([*clauses, *lateral])
        sources = [_pruned(source, named) for source in sources]
    # A table that is joined without a condition may be empty, and then no row matches.
    alone = len(sources) == 1 and not isinstance(sources[0], Join)
    if alone and not clauses:
        return None
    elements = (element for clause in clauses for element in visitors.iterate(clause))
    nested = any(isinstance(element, SelectBase) for element in elements)
    if alone and isinstance(sources[0], sa.Table) and not nested:
        return Filter(sa.and_(*clauses))
    # In a separate statement, aliases keep their names, and subqueries find what they refer to.
    table = unaliased(key[0].table)
    statement = sa.select(*key).select_from(*sources).where(*clauses)
    # The ORM has compiled the parts already, and would add criteria to an outer join a second time.
    statement._propagate_attrs = immutabledict()
    return Filter(statement, [table.c[column.key] for column in key])
