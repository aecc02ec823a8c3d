"""Sets of queries, saved in the database under a name.

The same queries again and again show how recall changes over time, and from one model to the next.
"""

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from ..db.connection import translated_errors
from ..errors import DuplicateNameError, InvalidInputError
from ..index.catalog import HasRow, IndexRow
from .queries import Query, QuerySet, draw, of_log, of_vectors

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
    "save",
]

_MOST_NAME_BYTES = 63


@dataclass(frozen=True)
class QuerySetSummary:
    """A saved set.

    Parameters
    ----------
    name : str
    queries : int
    rows : int
        How many of the queries were taken from the table.
    created_at : datetime
    """

    name: str
    queries: int
    rows: int
    created_at: datetime


def check_set_name(name: str) -> None:
    """Refuse what no set can be called.

    Raises
    ------
    InvalidInputError
    """
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
    index : HashIndex
        They are dropped with it.
    query_set : QuerySet
    name : str
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

    Parameters
    ----------
    index : HashIndex
    name : str

    Returns
    -------
    QuerySet

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
    """Drop a saved set; what was measured with it stays in the history.

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
