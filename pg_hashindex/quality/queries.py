"""Queries of an index: rows of its table, vectors from elsewhere, or what was once asked."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import RawCursor, sql

from ..db.connection import Connection, translated_errors
from ..errors import InvalidInputError
from ..index.catalog import HasRow
from ..models.vectors import as_rows, as_vector
from ..training.caller_queries import columns_of, find_query

__all__ = ["Query", "QuerySet", "draw", "of_log", "of_vectors", "read_log"]


class Query(NamedTuple):
    """One query.

    Attributes
    ----------
    vector : pgvector.Vector
    row_id : str or None
        The key, as text, of the row that it was taken from, which is left out of its own answers.
        The row may have changed since, or gone.
    """

    vector: Vector
    row_id: str | None = None


@dataclass(frozen=True)
class QuerySet:
    """Queries of an index.

    Attributes
    ----------
    queries : tuple of Query
    name : str, optional
        What they are saved under.
    """

    queries: tuple[Query, ...]
    name: str | None = None


def draw(index: HasRow, n: int = 200, random_state: int = 0) -> QuerySet:
    """Draw rows of the table as queries.

    Parameters
    ----------
    index : HashIndex
        Where it is encoded in Python, rows that have a code are drawn.
    n : int
        How many; all where there are fewer.
    random_state : int
        Seed of the draw.

    Returns
    -------
    QuerySet
        Ordered by the key; without any where no row can be a query.

    Raises
    ------
    InvalidInputError
        If n is below 1.
    """
    index = index.row
    if n < 1:
        raise InvalidInputError(f"queries must be 1 or more, got {n}")
    names = {
        "id": sql.Identifier(index.id_column),
        "column": sql.Identifier(index.column_name),
        "table": index.table,
        "type": sql.SQL(index.key_type),
        # Where SQL cannot encode a row that has no code, the model may not know it either.
        "usable": sql.SQL("true")
        if index.encoded_in == "sql"
        else sql.SQL("{} IS NOT NULL").format(index.code_of_row),
    }
    with translated_errors():
        # Keys alone, so that the draw is repeatable and uniform without moving the vectors.
        ids = index.connection.execute(
            sql.SQL(
                "SELECT b.{id}::text FROM {table} b WHERE b.{column} IS NOT NULL AND {usable} "
                "ORDER BY b.{id}"
            ).format(**names)
        ).fetchall()
        drawn = np.random.default_rng(random_state).permutation(len(ids))[:n]
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        rows = (
            RawCursor(index.connection)
            .execute(
                sql.SQL(
                    "SELECT b.{column}, b.{id}::text FROM {table} b "
                    "WHERE b.{id} = ANY ($1::text[]::{type}[]) AND b.{column} IS NOT NULL "
                    "ORDER BY b.{id}"
                ).format(**names),
                [[ids[position][0] for position in drawn]],
            )
            .fetchall()
        )
    return QuerySet(tuple(Query(as_vector(vector), row_id) for vector, row_id in rows))


def of_vectors(index: HasRow, vectors: ArrayLike) -> QuerySet:
    """Make queries of vectors from elsewhere.

    Parameters
    ----------
    index : HashIndex
    vectors : array-like (n, dimension)

    Returns
    -------
    QuerySet

    Raises
    ------
    InvalidInputError
        If they are not finite rows of that dimension.
    """
    index = index.row
    rows = as_rows(vectors, index.dimension)
    return QuerySet(tuple(Query(Vector(row.astype(np.float32))) for row in rows))


def read_log(connection: Connection, query: str, most: int, dimension: int) -> NDArray[np.float32]:
    """Read queries that somebody has kept.

    Parameters
    ----------
    connection : psycopg.Connection
        In a read-only transaction: what is run is the caller's.
    query : str
        A table, a view or a query of one column of vectors (or halfvec).
    most : int
        The first so many are read.
    dimension : int

    Returns
    -------
    float32 (n, dimension)

    Raises
    ------
    InvalidInputError
        If it is no such query, returns nothing, or vectors of another dimension.
    """
    what = "queries"
    relation = find_query(connection, what, query)
    columns = columns_of(connection, relation)
    vectors = [connection.adapters.types[name].oid for name in ("vector", "halfvec")]
    if len(columns) != 1 or columns[0].type_code not in vectors:
        raise InvalidInputError(
            f"{what}: a log of queries has one column, of type vector or halfvec; this has "
            + (", ".join(f"{column.name} {column.type_display}" for column in columns) or "none")
        )
    rows = (
        # Raw, and with a parameter: the extended protocol takes one statement alone.
        RawCursor(connection)
        .execute(
            sql.SQL("SELECT * FROM {} known(query) WHERE query IS NOT NULL LIMIT $1").format(
                relation
            ),
            [most],
        )
        .fetchall()
    )
    found = [as_vector(row[0]) for row in rows]
    if not found:
        raise InvalidInputError(f"{what}: {query!r} returns no vector")
    for vector in found:
        if vector.dimensions() != dimension:
            raise InvalidInputError(
                f"{what}: there is one of {vector.dimensions()} dimensions, and the rows have "
                f"{dimension}"
            )
    return np.stack([vector.to_numpy() for vector in found]).astype(np.float32)


def of_log(index: HasRow, query: str, n: int = 200) -> QuerySet:
    """Read queries that somebody has kept: a log of what is really asked.

    Parameters
    ----------
    index : HashIndex
    query : str
        A table, a view or a query of one column of vectors. It is run in a read-only transaction.
    n : int
        The first so many are read.

    Returns
    -------
    QuerySet

    Raises
    ------
    InvalidInputError
        If it is no such query, returns nothing, or vectors of another dimension; or n is below 1.
    """
    index = index.row
    if n < 1:
        raise InvalidInputError(f"queries must be 1 or more, got {n}")
    with translated_errors(), index.connection.transaction(force_rollback=True):
        index.connection.execute("SET TRANSACTION READ ONLY")
        return of_vectors(index, read_log(index.connection, query, n, index.dimension))
