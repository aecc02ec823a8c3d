"""Queries of an index: rows of its table, other vectors, or a log."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import sql

from ..db import sql_files
from ..db.caller_queries import columns_of, find_query
from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..errors import InvalidInputError, RowsLeftOutWarning
from ..index.catalog import HasRow
from ..index.search import as_count
from ..models.vectors import as_rows, as_vector, warn_of_zeros

__all__ = [
    "Query",
    "as_queries",
    "draw",
    "first_of",
    "of_log",
    "read_queries",
]

_DRAW = sql_files.query("measuring.draw")


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
    text of a key is hashed: that of a ``timestamptz`` depends on the session's time zone.) SQL's
    ``hashindex.recall`` draws the same ones. A graph finds its own rows better than other queries:
    for a set in HNSW each row is moved a little, so that it is found like a query that was held out
    (``hashindex._moved_by`` of SQL says why).

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
    values = [index.name, n, random_state % 2**63, tenant]
    with translated_errors(table=index.qualified_table):
        found = execute(index.connection, _DRAW, values).fetchall()
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


def first_of(
    index: HasRow, given: str | ArrayLike | None, n: int, random_state: int = 0
) -> int | ArrayLike:
    """Return n queries as `as_queries` takes them: rows to draw, those given, or those of a log."""
    if given is None:
        return n
    if isinstance(given, str):
        return of_log(index, given, n, random_state)
    return np.asarray(given)[:n]


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
        from ..training.array_files import ArrayFile
        from ..training.files import load_sample

        # Files of benchmarks hold the rows of the table as "train", their queries as "test".
        name = "test" if "test" in ArrayFile(Path(query)).shapes else None
        if name is not None:
            message = f"the queries are the rows of array {name!r} of {query}; others are left out"
            warnings.warn(message, RowsLeftOutWarning, stacklevel=2)
        drawn = load_sample(Path(query), vectors=name, rows=most, random_state=random_state).X
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
