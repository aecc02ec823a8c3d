"""The nearest rows, as steps; ``sql/131_search_query.sql`` writes the queries."""

import operator
from typing import Any, NamedTuple, TypedDict

import numpy as np
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, HalfVector, Vector
from psycopg import sql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from . import codes, store
from .database import translated_errors
from .errors import InvalidInputError
from .index_row import IndexRow, Ranking
from .model import Model
from .steps import Once, Statement, Steps, Work
from .vectors import as_rows

__all__ = [
    "Asked",
    "Hit",
    "as_count",
    "as_query",
    "code_of",
    "compiled",
    "filtered_query",
    "nearest",
]

# The greatest integer of SQL; less one, for the row itself in a search for its neighbours.
_MOST = 2**31 - 2

# Conditions become $1, $2, ...: what the server numbers, so that nothing needs escaping twice.
_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class Hit(NamedTuple):
    """One answer: the row's key, and its distance to the query: exact, or in bits of `within`."""

    id: Any
    distance: float


class Asked(TypedDict, total=False):
    """What a search may be asked beside its query; see `HashIndex.search`."""

    candidates: int | None
    probes: int | None
    ranking: Ranking | None
    where: sa.ColumnElement[bool] | None


def nearest(
    index: IndexRow,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    candidates: int | None = None,
    probes: int | None = None,
    ranking: Ranking | None = None,
    where: sa.ColumnElement[bool] | None = None,
    code: Bit | None = None,
) -> Steps[list[Hit]]:
    """Find the nearest rows; see `HashIndex.search`.

    ``code`` is the query's, where it is known; of an index that is encoded in Python it is computed
    otherwise.
    """
    vector = as_query(query, index.dimension)
    k = as_count("k", k)
    candidates = None if candidates is None else as_count("candidates", candidates)
    probes = None if probes is None else as_count("probes", probes)
    if code is None and index.encoded_in == "python":
        code = yield from code_of(index, vector)
    defaults = (candidates, probes, ranking)
    arguments = "($1, $2, $3, $4, $5" + (")" if index.encoded_in == "sql" else ", $6)")
    with translated_errors(index):
        if where is not None:
            statement, values = yield from filtered_query(index, vector, k, defaults, where, code)
            rows = yield Statement(statement, values, binary=index.binary_ids)
            return [Hit(*row) for row in rows]
        rows = yield Statement(
            sql.SQL("SELECT id, distance FROM hashindex.{}{}").format(
                sql.Identifier(f"search_{index.name}"), sql.SQL(arguments)
            ),
            [vector, k, *defaults, code][: arguments.count("$")],
            prepare=True,
            binary=index.binary_ids,
        )
    return [Hit(*row) for row in rows]


def code_of(index: IndexRow, query: Vector) -> Steps[Bit]:
    """Compute the code of a query with the index's model, in Python.

    Raises
    ------
    InvalidInputError
        If the model has codes only of the rows that it was trained on, and the query is none.
    """
    reference = f"{index.model}:{index.model_version}"
    model = yield Once(index, "loaded_model", lambda: store.loading(reference))
    code: Bit = yield Work(lambda: _encoded(index, model, query))
    return code


def _encoded(index: IndexRow, model: Model, query: Vector) -> Bit:
    row = query.to_numpy()[None]
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


def as_query(query: ArrayLike | Vector | HalfVector, dimension: int) -> Vector:
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
    array = np.asarray(query.to_numpy() if isinstance(query, Vector | HalfVector) else query)
    if array.ndim != 1:
        raise InvalidInputError(f"a query is one vector ({dimension},), got shape {array.shape}")
    return Vector(as_rows(array[None, :], dimension)[0].astype(np.float32))


def filtered_query(
    index: IndexRow,
    query: Vector,
    k: int,
    defaults: tuple[int | None, int | None, Ranking | None],
    where: sa.ColumnElement[bool],
    code: Bit | None = None,
) -> Steps[tuple[sql.SQL, list[Any]]]:
    """Write the query for the nearest rows of those that a condition holds for.

    Parameters
    ----------
    index : IndexRow
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
    condition, values = compiled(where, index.table_name, index.qualified_table)
    # What the planner expects under the caller's path, which the condition may depend on.
    plan = yield Statement(
        sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {} WHERE ").format(index.table)
        + sql.SQL(condition),
        values,
    )
    expected = plan[0][0][0]["Plan"]
    template = yield Statement(
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
    )
    return sql.SQL(template[0][0]), [*values, query]


def compiled(
    where: sa.ColumnElement[bool], table_name: str, qualified_table: str
) -> tuple[str, list[Any]]:
    """Write a condition on the searched table as SQL.

    Parameters
    ----------
    where : sqlalchemy.ColumnElement
    table_name : str
        The table, by its bare name.
    qualified_table : str
        The same as SQL writes it, for messages.

    Returns
    -------
    str, list
        The text, and the values of its parameters $1, $2, ...

    Raises
    ------
    InvalidInputError
        If it is no condition, or one on another table.
    """
    if not isinstance(where, sa.ColumnElement):
        raise InvalidInputError(
            f"where must be an SQLAlchemy condition on {qualified_table}, "
            f"got {type(where).__name__}"
        )
    for element in visitors.iterate(where):
        table = getattr(element, "table", None)
        if isinstance(table, sa.Table) and table.name != table_name:
            raise InvalidInputError(
                f"where names column {element}; only columns of {qualified_table} can "
                "restrict this search"
            )
    statement = where.compile(dialect=_DIALECT)
    assert isinstance(statement, SQLCompiler)  # noqa: S101
    # IN lists and the like get their parameters, and what their values go through, only here.
    expanded = statement.construct_expanded_state()
    processors = {**statement._bind_processors, **expanded.processors}
    values = []
    for name in expanded.positiontup or ():
        process = processors.get(name)
        value = expanded.parameters[name]
        values.append(process(value) if callable(process) else value)
    return expanded.statement, values
