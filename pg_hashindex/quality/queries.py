"""Queries of an index: rows of its table, other vectors, or a log."""

from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import sql

from ..db import rows
from ..db.caller_queries import columns_of, find_query
from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..errors import InvalidInputError
from ..index.catalog import HasRow
from ..index.search import as_count
from ..models.vectors import as_rows, as_vector, warn_of_zeros

__all__ = ["Query", "as_queries", "draw", "of_log", "read_queries"]

# It costs one pass over the rows, as one exact search does.
_DRAW: LiteralString = """
    SELECT b.{column}, {key_text} FROM {table} b WHERE b.{column} IS NOT NULL AND {usable} {drawn}
"""


class Query(NamedTuple):
    """One query: a vector, and what names the row that it was taken from, if any.

    That is the row's key as text; for the doctor, which needs no key, its place. The row is left
    out of its own answers; it may have changed since, or gone.
    """

    vector: Vector
    row_id: Any = None


def draw(
    index: HasRow, n: int = 200, random_state: int = 0, *, tenant: str | None = None
) -> list[Query]:
    """Draw rows of the table as queries: those whose keys, with the seed, have the least hashes.

    So the same rows are drawn again while they are there: recall over time compares these. (The
    text of a key is hashed: that of a ``timestamptz`` depends on the session's time zone.)

    Parameters
    ----------
    index
    n
        How many rows; all if there are fewer. By cosine, those of zeros are left out of them.
    random_state
        Seed of the draw.
    tenant
        The tenant whose rows are drawn, as text; None draws from all.

    Returns
    -------
    list of Query
        In the order of their hashes, so fewer rows are the first of more; empty if no row can be a
        query.

    Raises
    ------
    InvalidInputError
        If n is below 1.
    """
    index = index.row
    as_count("queries", n)
    usable: sql.Composable = sql.SQL("true")
    if tenant is not None and index.tenant_column is not None:
        usable = sql.SQL("b.{} = {}::{}").format(
            sql.Identifier(index.tenant_column),
            sql.Literal(tenant),
            sql.SQL(index.tenant_type or ""),
        )
    drawn_by = rows.by_hash(index.names["key_text"], random_state, n)
    statement = sql.SQL(_DRAW).format(**index.names, usable=usable, drawn=drawn_by)
    with translated_errors(table=index.qualified_table):
        found = execute(index.connection, statement).fetchall()
    drawn = [Query(as_vector(vector), row_id) for vector, row_id in found]
    if index.metric != "cosine":
        return drawn
    usual = [query for query in drawn if query.vector.to_numpy().any()]
    warn_of_zeros(index.qualified_table, len(drawn) - len(usual))
    return usual


def as_queries(index: HasRow, given: int | ArrayLike, random_state: int = 0) -> list[Query]:
    """Draw a number of rows, or take vectors (n, dimension) that are not of the table."""
    if isinstance(given, int | np.integer):
        return draw(index, int(given), random_state)
    given = as_rows(given, index.row.dimension)
    return [Query(Vector(row.astype(np.float32))) for row in given]


def read_queries(
    connection: Connection, query: str, most: int, dimension: int, random_state: int = 0
) -> NDArray[np.float32]:
    """Read at most ``most`` queries, float32 (n, dimension).

    They are drawn from a file of arrays, as `pg_hashindex.training.load_sample` reads it. Or they
    are the first ones of a table, a view or a query of one column of vectors (or halfvec). The
    transaction is read-only, since the query is the caller's.
    """
    what = "queries"
    # Loads SciPy.
    from ..training.array_files import SUFFIXES

    if query.lower().endswith(SUFFIXES):
        from ..training.files import load_sample

        drawn = load_sample(Path(query), rows=most, random_state=random_state).X
        if not len(drawn):
            raise InvalidInputError(f"{what}: {query!r} returns no vector")
        return as_rows(drawn, dimension).astype(np.float32)
    relation = find_query(connection, what, query)
    columns = columns_of(connection, relation)
    vectors = [connection.adapters.types[name].oid for name in ("vector", "halfvec")]
    if len(columns) != 1 or columns[0].type_code not in vectors:
        raise InvalidInputError(
            f"{what}: a log of queries has one column, of type vector or halfvec; this has "
            + (", ".join(f"{column.name} {column.type_display}" for column in columns) or "none")
        )
    lines = (
        # A raw cursor with a parameter uses the extended protocol, which takes a single statement.
        execute(
            connection,
            sql.SQL("SELECT * FROM {} known(query) WHERE query IS NOT NULL LIMIT $1").format(
                relation
            ),
            [most],
        ).fetchall()
    )
    found = [as_vector(row[0]) for row in lines]
    if not found:
        raise InvalidInputError(f"{what}: {query!r} returns no vector")
    for vector in found:
        if vector.dimensions() != dimension:
            raise InvalidInputError(
                f"{what}: there is one of {vector.dimensions()} dimensions, and the rows have "
                f"{dimension}"
            )
    return np.stack([vector.to_numpy() for vector in found]).astype(np.float32)


def of_log(index: HasRow, query: str, n: int = 200, random_state: int = 0) -> NDArray[np.float32]:
    """Read queries of an index from a log, float32 (n, dimension).

    Parameters
    ----------
    query
        A table, a view or a query of one column of vectors, which is run in a read-only
        transaction; or a file of arrays.
    n
        The most queries: the first ones, or drawn from a file.
    random_state
        Seed of the draw.

    Raises
    ------
    InvalidInputError
        If it is no such query, returns nothing, or vectors of another dimension; or n is below 1.
    """
    index = index.row
    as_count("queries", n)
    with translated_errors(), index.connection.transaction(force_rollback=True):
        index.connection.execute("SET TRANSACTION READ ONLY")
        return read_queries(index.connection, query, n, index.dimension, random_state)
