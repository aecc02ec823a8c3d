"""Searching an index from Python; ``sql/131_search_query.sql`` writes the queries."""

import operator
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, Vector
from psycopg import RawCursor, sql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from . import codes
from .catalog import IndexEntry, Ranking
from .database import translated_errors
from .errors import InvalidInputError
from .vectors import as_rows

__all__ = ["Hit", "as_count", "as_query", "filtered_query", "search"]

# The greatest integer of SQL; less one, for the row itself in a search for its neighbours.
_MOST = 2**31 - 2

# Conditions become $1, $2, ...: what the server numbers, so that nothing needs escaping twice.
_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class Hit(NamedTuple):
    """One answer: the row's key, and its distance to the query: exact, or in bits of `within`."""

    id: Any
    distance: float


def search(
    index: IndexEntry,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    candidates: int | None = None,
    probes: int | None = None,
    ranking: Ranking | None = None,
    where: sa.ColumnElement[bool] | None = None,
    code: Bit | None = None,
) -> list[Hit]:
    """Find the nearest rows; see `HashIndex.search`.

    ``code`` is the query's, where it is known; of an index that is encoded in Python it is computed
    otherwise.
    """
    vector = as_query(query, index.dimension)
    k = as_count("k", k)
    candidates = None if candidates is None else as_count("candidates", candidates)
    probes = None if probes is None else as_count("probes", probes)
    if code is None and index.encoded_in == "python":
        code = code_of(index, vector)
    defaults = (candidates, probes, ranking)
    arguments = "($1, $2, $3, $4, $5" + (")" if index.encoded_in == "sql" else ", $6)")
    with translated_errors(index):
        if where is not None:
            statement, values = filtered_query(index, vector, k, defaults, where, code)
            found = RawCursor(index.connection).execute(statement, values, binary=index.binary_ids)
            return [Hit(*row) for row in found.fetchall()]
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        rows = (
            RawCursor(index.connection)
            .execute(
                sql.SQL("SELECT id, distance FROM hashindex.{}{}").format(
                    sql.Identifier(f"search_{index.name}"), sql.SQL(arguments)
                ),
                [vector, k, *defaults, code][: arguments.count("$")],
                prepare=True,
                binary=index.binary_ids,
            )
            .fetchall()
        )
    return [Hit(*row) for row in rows]


def code_of(index: IndexEntry, query: Vector) -> Bit:
    """Compute the code of a query with the index's model, in Python.

    Raises
    ------
    InvalidInputError
        If the model has codes only of the rows that it was trained on, and the query is none.
    """
    model, row = index.loaded_model, query.to_numpy()[None]
    if model.network is not None and not model.network.knows(row).all():
        raise InvalidInputError(
            f"index {index.name!r} has no code for this query: model {index.model!r} has codes of "
            "the rows that it was trained on alone, and the query is none of them; search for the "
            "neighbours of a row that has a code, or index with a model that hashes new vectors"
        )
    return codes.to_postgres(model.encode(row), model.n_bits)[0]


def as_count(what: str, value: Any) -> int:
    """Check a number of rows.

    Parameters
    ----------
    what : str
        Its name, for the message.
    value : int

    Returns
    -------
    int

    Raises
    ------
    InvalidInputError
    """
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{what} must be an integer, got {value!r}") from None
    if count < 1:
        raise InvalidInputError(f"{what} is {count}; it must be 1 or more")
    if count > _MOST:
        raise InvalidInputError(f"{what} is {count}; it must be {_MOST} or less")
    return count


def as_query(query: ArrayLike | Vector, dimension: int) -> Vector:
    """Check that a query is one finite vector, and wrap it for pgvector.

    Parameters
    ----------
    query : array-like (dimension,)
    dimension : int

    Returns
    -------
    pgvector.Vector

    Raises
    ------
    InvalidInputError
    """
    array = np.asarray(query.to_numpy() if isinstance(query, Vector) else query)
    if array.ndim != 1:
        raise InvalidInputError(f"a query is one vector ({dimension},), got shape {array.shape}")
    return Vector(as_rows(array[None, :], dimension)[0].astype(np.float32))


def filtered_query(
    index: IndexEntry,
    query: Vector,
    k: int,
    defaults: tuple[int | None, int | None, Ranking | None],
    where: sa.ColumnElement[bool],
    code: Bit | None = None,
) -> tuple[sql.SQL, list[Any]]:
    """Write the query for the nearest rows of those that a condition holds for.

    Parameters
    ----------
    index : IndexEntry
    query : pgvector.Vector
    k : int
    defaults : (candidates, probes, ranking)
        None for the index's own.
    where : sqlalchemy.ColumnElement
    code : pgvector.Bit, optional
        The query's; SQL computes it otherwise.

    Returns
    -------
    psycopg.sql.SQL, list
        The statement, and the values of its parameters $1, $2, ...
    """
    condition, values = _compile(index, where)
    cursor = RawCursor(index.connection)
    # What the planner expects under the caller's path, which the condition may depend on.
    plan = cursor.execute(
        sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {} WHERE ").format(index.table)
        + sql.SQL(condition),
        values,
    ).fetchone()
    assert plan is not None  # noqa: S101
    expected = plan[0][0]["Plan"]
    template = cursor.execute(
        "SELECT hashindex.filtered_search($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [
            index.name,
            query,
            k,
            condition,
            float(expected["Plan Rows"]),
            float(expected["Total Cost"]),
            f"${len(values) + 1}",
            *defaults,
            code,
        ],
    ).fetchone()
    assert template is not None  # noqa: S101
    return sql.SQL(template[0]), [*values, query]


def _compile(index: IndexEntry, where: sa.ColumnElement[bool]) -> tuple[str, list[Any]]:
    if not isinstance(where, sa.ColumnElement):
        raise InvalidInputError(
            f"where must be an SQLAlchemy condition on {index.qualified_table}, "
            f"got {type(where).__name__}"
        )
    for element in visitors.iterate(where):
        table = getattr(element, "table", None)
        if isinstance(table, sa.Table) and table.name != index.table_name:
            raise InvalidInputError(
                f"where names column {element}; only columns of {index.qualified_table} can "
                "restrict this search"
            )
    compiled = where.compile(dialect=_DIALECT)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101
    # IN lists and the like get their parameters only here.
    expanded = compiled.construct_expanded_state()
    values = []
    for name in expanded.positiontup or ():
        process = expanded.processors.get(name)
        value = expanded.parameters[name]
        values.append(process(value) if callable(process) else value)
    return expanded.statement, values
