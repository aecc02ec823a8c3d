"""Queries of an index: its own rows, other vectors, logs; and saved sets of queries.

The same queries show how recall changes over time, and from one model to the next.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import sql
from psycopg.rows import class_row

from ..db.caller_queries import columns_of, find_query
from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..errors import DuplicateNameError, InvalidInputError
from ..index.catalog import HasRow, IndexRow
from ..index.search import as_count
from ..models.vectors import as_rows, as_vector

__all__ = [
    "Query",
    "QuerySet",
    "QuerySetSummary",
    "check_set_name",
    "draw",
    "drop",
    "list_sets",
    "load",
    "of_log",
    "of_vectors",
    "read_log",
    "save",
]

_MOST_NAME_BYTES = 63


class Query(NamedTuple):
    """One query: a vector, and the key, as text, of the row that it was taken from, if any.

    The row is left out of its own answers; it may have changed since, or gone.
    """

    vector: Vector
    row_id: str | None = None


@dataclass(frozen=True)
class QuerySet:
    """Queries of an index, and their name if they are a saved set."""

    queries: tuple[Query, ...]
    name: str | None = None


def draw(index: HasRow, n: int = 200, random_state: int = 0) -> QuerySet:
    """Draw rows of the table as queries.

    Parameters
    ----------
    index
        If Python encodes it, only rows with a code are drawn.
    n
        How many rows; all if there are fewer.
    random_state
        Seed of the draw.

    Returns
    -------
    QuerySet
        Ordered by the key; empty if no row can be a query.

    Raises
    ------
    InvalidInputError
        If n is below 1.
    """
    index = index.row
    as_count("queries", n)
    names = index.names | {
        # If SQL cannot encode, the model may not know a row without a code.
        "usable": sql.SQL("true")
        if index.encoded_in == "sql"
        else sql.SQL("{} IS NOT NULL").format(index.code_of_row),
    }
    with translated_errors(table=index.qualified_table):
        # By the keys, unlike `TableSource.draw`: so the draw is uniform in large tables too, and
        # the same after VACUUM FULL and on shards.
        ids = index.connection.execute(
            sql.SQL(
                "SELECT {key_text} FROM {table} b WHERE b.{column} IS NOT NULL AND {usable} "
                "ORDER BY {key}"
            ).format(**names)
        ).fetchall()
        drawn = np.random.default_rng(random_state).permutation(len(ids))[:n]
        rows = execute(
            index.connection,
            sql.SQL(
                "SELECT b.{column}, {key_text} FROM {table} b "
                "WHERE {drawn} AND b.{column} IS NOT NULL ORDER BY {key}"
            ).format(**names, drawn=index.key.among(names["key"], sql.SQL("$1::text[]"))),
            [[ids[position][0] for position in drawn]],
        ).fetchall()
    return QuerySet(tuple(Query(as_vector(vector), row_id) for vector, row_id in rows))


def of_vectors(index: HasRow, vectors: ArrayLike) -> QuerySet:
    """Make queries of vectors (n, dimension) that are not from the table."""
    index = index.row
    rows = as_rows(vectors, index.dimension)
    return QuerySet(tuple(Query(Vector(row.astype(np.float32))) for row in rows))


def read_log(connection: Connection, query: str, most: int, dimension: int) -> NDArray[np.float32]:
    """Read the ``most`` first vectors of a log of queries, float32 (n, dimension).

    The log is a table, a view or a query of one column of vectors (or halfvec). The transaction is
    read-only, since the query is the caller's.
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
        # A raw cursor with a parameter uses the extended protocol, which takes a single statement.
        execute(
            connection,
            sql.SQL("SELECT * FROM {} known(query) WHERE query IS NOT NULL LIMIT $1").format(
                relation
            ),
            [most],
        ).fetchall()
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
    """Read queries from a log.

    Parameters
    ----------
    query
        A table, a view or a query of one column of vectors. It is run in a read-only transaction.
    n
        The first so many are read.

    Raises
    ------
    InvalidInputError
        If it is no such query, returns nothing, or vectors of another dimension; or n is below 1.
    """
    index = index.row
    as_count("queries", n)
    with translated_errors(), index.connection.transaction(force_rollback=True):
        index.connection.execute("SET TRANSACTION READ ONLY")
        return of_vectors(index, read_log(index.connection, query, n, index.dimension))


@dataclass(frozen=True)
class QuerySetSummary:
    """A saved set.

    Parameters
    ----------
    rows
        How many of the queries were taken from the table.
    """

    name: str
    queries: int
    rows: int
    created_at: datetime


def check_set_name(name: str) -> None:
    """Refuse an impossible name of a set."""
    n_bytes = len(name.encode())
    if not 1 <= n_bytes <= _MOST_NAME_BYTES:
        raise InvalidInputError(
            f"name {name!r} of a query set has {n_bytes} bytes; use 1 to {_MOST_NAME_BYTES}"
        )
    if "\0" in name:
        raise InvalidInputError(f"name {name!r} of a query set has a byte of 0; leave it out")


def save(index: HasRow, query_set: QuerySet, name: str) -> QuerySet:
    """Save queries under a name.

    Parameters
    ----------
    index
        They are dropped with it.
    name
        1 to 63 bytes.

    Returns
    -------
    QuerySet
        The same queries, with the name.

    Raises
    ------
    DuplicateNameError
        If the index has a set of that name.
    InvalidInputError
        If the name is too long, or there are no queries.
    MissingRightsError
        If the role may not write to ``hashindex.query_set`` and ``hashindex.saved_query``.
    """
    index = index.row
    check_set_name(name)
    if not query_set.queries:
        raise InvalidInputError(
            f"there are no queries to save as {name!r}: {index.qualified_table} has no row that "
            "could be one"
        )
    rows = [(index.name, name, number, *query) for number, query in enumerate(query_set.queries, 1)]
    with translated_errors(), index.connection.transaction():
        cursor = index.connection.cursor()
        made = cursor.execute(
            "INSERT INTO hashindex.query_set (index_name, name) VALUES (%s, %s) "
            "ON CONFLICT DO NOTHING",
            [index.name, name],
        ).rowcount
        if not made:
            raise DuplicateNameError(
                f"index {index.name!r} has a query set {name!r} already; choose another name, or "
                f"drop it: pg-hashindex evaluate {index.name} --drop-set {name}"
            )
        cursor.executemany(
            "INSERT INTO hashindex.saved_query (index_name, query_set, number, vector, row_id) "
            "VALUES (%s, %s, %s, %s, %s)",
            rows,
        )
    return QuerySet(query_set.queries, name)


def load(index: HasRow, name: str) -> QuerySet:
    """Read the queries that are saved under a name.

    Raises
    ------
    InvalidInputError
        If the index has no such set, or one of another dimension.
    """
    index = index.row
    with translated_errors():
        rows = index.connection.execute(
            "SELECT vector, row_id FROM hashindex.saved_query "
            "WHERE index_name = %s AND query_set = %s ORDER BY number",
            [index.name, name],
        ).fetchall()
    if not rows:
        raise _unknown(index, name)
    for vector, _ in rows:
        if vector.dimensions() != index.dimension:
            raise InvalidInputError(
                f"query set {name!r} of index {index.name!r} has a query of "
                f"{vector.dimensions()} dimensions, and its vectors have {index.dimension}; drop "
                "the set, and save another"
            )
    return QuerySet(tuple(Query(*row) for row in rows), name)


def list_sets(index: HasRow) -> list[QuerySetSummary]:
    """Return the saved sets of an index, by name."""
    index = index.row
    with translated_errors():
        cursor = index.connection.cursor(row_factory=class_row(QuerySetSummary))
        return cursor.execute(
            """
            SELECT s.name, s.created_at, pg_catalog.count(q.*) AS queries,
                   pg_catalog.count(q.row_id) AS rows
            FROM hashindex.query_set s
            LEFT JOIN hashindex.saved_query q
                ON (q.index_name, q.query_set) = (s.index_name, s.name)
            WHERE s.index_name = %s GROUP BY s.index_name, s.name ORDER BY s.name
            """,
            [index.name],
        ).fetchall()


def drop(index: HasRow, name: str) -> None:
    """Drop a saved set; its measurements stay in the history.

    Raises
    ------
    InvalidInputError
        If the index has no such set.
    """
    index = index.row
    with translated_errors(), index.connection.transaction():
        dropped = index.connection.execute(
            "DELETE FROM hashindex.query_set WHERE index_name = %s AND name = %s",
            [index.name, name],
        ).rowcount
    if not dropped:
        raise _unknown(index, name)


def _unknown(index: IndexRow, name: str) -> InvalidInputError:
    known = ", ".join(repr(one.name) for one in list_sets(index))
    return InvalidInputError(
        f"index {index.name!r} has no query set {name!r}; "
        + (f"it has {known}" if known else "save one: pg-hashindex evaluate --save NAME")
    )
