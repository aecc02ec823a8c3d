"""The nearest rows, as steps: one call of the index's own function, or of ``hashindex.search``."""

import operator
from typing import Any, NamedTuple, TypedDict

import numpy as np
import psycopg
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, HalfVector, Vector
from psycopg import sql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from ..db.connection import translated_errors
from ..db.steps import Once, Statement, Steps, Work
from ..errors import InvalidInputError
from ..models import codes, store
from ..models.model import Model
from ..models.vectors import as_rows
from .row import IndexRow

__all__ = [
    "Asked",
    "Hit",
    "as_count",
    "as_query",
    "code_of",
    "filter_text",
    "nearest",
]

# The greatest integer of SQL; less one, for the row itself in a search for its neighbours.
_MOST = 2**31 - 2

_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]


class Hit(NamedTuple):
    """One answer: the row's key, and its distance to the query: exact, or in bits of `within`."""

    id: Any
    distance: float


class Asked(TypedDict, total=False):
    """What a search may be asked beside its query; see `HashIndex.search`."""

    candidates: int | None
    probes: int | None
    where: sa.ColumnElement[bool] | None
    filter: str | None


def nearest(
    index: IndexRow,
    query: ArrayLike | Vector,
    k: int = 10,
    *,
    candidates: int | None = None,
    probes: int | None = None,
    where: sa.ColumnElement[bool] | None = None,
    filter: str | None = None,  # noqa: A002
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
    if where is not None:
        written = filter_text(index.connection, where, index.table_name, index.qualified_table)
        filter = written if filter is None else f"({filter}\n) AND {written}"  # noqa: A001
    if index.encoded_in == "sql":
        code = None
    elif code is None:
        code = yield from code_of(index, vector)
    with translated_errors(index):
        if filter is None:
            rows = yield Statement(
                sql.SQL("SELECT id, distance FROM hashindex.{}($1, $2, $3, $4, $5)").format(
                    sql.Identifier(f"search_{index.name}")
                ),
                [vector, k, candidates, probes, code],
                prepare=True,
                binary=index.binary_ids,
            )
        else:
            rows = yield Statement(
                sql.SQL(
                    "SELECT id::{}, distance FROM hashindex.search("
                    "$1, $2, $3, $4, $5, filter => $6, query_code => $7)"
                ).format(sql.SQL(index.key_type)),
                [index.name, vector, k, candidates, probes, filter, code],
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


def filter_text(
    connection: Any, where: sa.ColumnElement[bool], table_name: str, qualified_table: str
) -> str:
    """Write a filter on the searched table as SQL, with its values as psycopg quotes them.

    Parameters
    ----------
    connection : psycopg.Connection or psycopg.AsyncConnection
    where : sqlalchemy.ColumnElement
    table_name : str
        The table, by its bare name.
    qualified_table : str
        The same as SQL writes it, for messages.

    Returns
    -------
    str

    Raises
    ------
    InvalidInputError
        If it is no SQLAlchemy expression, or one on another table.
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
    statement = where.compile(dialect=_DIALECT)
    assert isinstance(statement, SQLCompiler)  # noqa: S101
    # IN lists and the like get their parameters, and what their values go through, only here.
    expanded = statement.construct_expanded_state()
    processors = {**statement._bind_processors, **expanded.processors}
    values = {
        name: process(value) if callable(process := processors.get(name)) else value
        for name, value in expanded.parameters.items()
    }
    blocking = isinstance(connection, psycopg.Connection)
    cursor = (psycopg.ClientCursor if blocking else psycopg.AsyncClientCursor)(connection)
    return str(cursor.mogrify(expanded.statement, values))
