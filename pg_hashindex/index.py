"""Indexes: binding a table's vectors to a model, and everything done with such a binding."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Vector
from psycopg import RawCursor, sql
from psycopg.rows import class_row, dict_row

from . import encoding, search
from .database import Connection, prepare, translated_errors
from .errors import InvalidInputError, UnknownIndexError
from .model import Metric
from .search import Hit

__all__ = ["HashIndex", "IndexSummary", "Layout", "list_indexes"]

Layout = Literal["table", "column"]

_CATALOG = """
    SELECT i.name, m.name AS model, m.version AS model_version, m.method, m.n_bits, m.dimension,
           i.model_id, i.schema_name, i.table_name, i.column_name, i.id_column, i.id_type,
           i.metric, i.layout, i.code_schema, i.code_table, i.code_column, i.created_at
    FROM hashindex.index i JOIN hashindex.model m ON m.id = i.model_id
"""

_SUMMARY: dict[Layout, LiteralString] = {
    "table": """
        SELECT count({column}) AS rows, (SELECT count(*) FROM {codes}) AS codes,
               pg_total_relation_size({codes_name}::regclass) AS code_bytes,
               coalesce(sum(pg_column_size({column})), 0)::bigint AS vector_bytes
        FROM {table}
    """,
    "column": """
        SELECT count({column}) AS rows, count({code}) AS codes,
               coalesce(sum(pg_column_size({code})), 0)::bigint AS code_bytes,
               coalesce(sum(pg_column_size({column})), 0)::bigint AS vector_bytes
        FROM {table}
    """,
}


@dataclass(frozen=True)
class IndexSummary:
    """How far an index is encoded, and what it takes.

    Parameters
    ----------
    rows : int
        Rows of the table whose vector is not NULL.
    codes : int
        Rows that have a code.
    code_bytes : int
        Size on disk of the codes with their key index (layout ``table``), or of the bits alone
        (layout ``column``).
    vector_bytes : int
        Size of the vectors themselves.
    """

    rows: int
    codes: int
    code_bytes: int
    vector_bytes: int


@dataclass(frozen=True)
class HashIndex:
    """One row of the catalog ``hashindex.index``, and the connection it was read with.

    Made by `create` or `open`, not by hand.
    """

    connection: Connection
    name: str
    model: str
    model_version: int
    method: str
    n_bits: int
    dimension: int
    model_id: int
    schema_name: str
    table_name: str
    column_name: str
    id_column: str
    id_type: str
    metric: Metric
    layout: Layout
    code_schema: str
    code_table: str
    code_column: str
    created_at: datetime

    @classmethod
    def create(
        cls,
        connection: Connection,
        name: str,
        *,
        table: str,
        column: str,
        model: str,
        id_column: str | None = None,
        metric: Metric | None = None,
        layout: Layout = "table",
    ) -> "HashIndex":
        """Create an index: codes, triggers and a search function, in one transaction.

        Rows written from now on are encoded by the triggers; `encode` brings in those that are
        there already.

        Parameters
        ----------
        connection : psycopg.Connection
        name : str
            1 to 40 bytes.
        table : str
            As SQL writes it: ``items``, ``shop.items``, ``"My Items"``.
        column : str
            A column of type ``vector``, by its bare name.
        model : str
            ``name`` or ``name:version``.
        id_column : str, optional
            A unique NOT NULL column; the primary key by default.
        metric : {"l2", "cosine", "ip"}, optional
            The exact distance of answers; the model's by default.
        layout : {"table", "column"}
            Codes in a compact table of their own, or in a new column of the user's table.

        Returns
        -------
        HashIndex

        Raises
        ------
        DuplicateNameError, InvalidInputError, UnknownModelError, MissingRightsError
            Nothing is changed then.
        """
        with translated_errors():
            prepare(connection)
            with connection.transaction():
                connection.execute(
                    "SELECT hashindex.create_index(%s, %s::regclass, %s, %s, %s, %s, %s)",
                    [name, table, column, model, id_column, metric, layout],
                )
        return cls.open(connection, name)

    @classmethod
    def open(cls, connection: Connection, name: str) -> "HashIndex":
        """Find an index by its name.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        found = _read(connection, "WHERE i.name = %s", [name])
        if not found:
            raise UnknownIndexError(
                f"index {name!r} does not exist; see those that do with: pg-hashindex index list"
            )
        return found[0]

    @property
    def table(self) -> sql.Identifier:
        """The searched table, quoted."""
        return sql.Identifier(self.schema_name, self.table_name)

    @property
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""
        return self.table.as_string(self.connection)

    def encode(self, *, batch_rows: int = encoding.BATCH_ROWS, progress: bool = False) -> int:
        """Encode every row that has a vector but no code.

        Each batch is committed, so a run that was cut off goes on where it stopped; writers go on
        meanwhile. Needs a connection that is not inside a transaction.

        Parameters
        ----------
        batch_rows : int
        progress : bool
            Whether to draw a bar on stderr.

        Returns
        -------
        int
            Codes written.

        Raises
        ------
        InvalidInputError
            If the connection is inside a transaction, or a row has another dimension.
        InUseError
            If another session is encoding this index.
        """
        return encoding.encode_missing(self, batch_rows=batch_rows, progress=progress)

    def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        candidates: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
    ) -> list[Hit]:
        """Find the nearest rows: candidates by code, then the exact distance.

        Parameters
        ----------
        query : array-like (dimension,)
        k : int
            Answers wanted.
        candidates : int, optional
            Rows kept by code before the exact order; 200, or k where that is more, by default.
        where : sqlalchemy condition, optional
            On columns of the searched table; restricts the candidates, not the answers.

        Returns
        -------
        list of Hit
            ``(id, distance)``, nearest first; distances as pgvector's operator gives them (``ip``:
            the negative inner product).

        Raises
        ------
        InvalidInputError
            If the query, k, candidates or the condition cannot be used.
        """
        return search.search(self, query, k, candidates=candidates, where=where)

    def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        candidates: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
    ) -> list[Hit]:
        """Find the rows nearest to another row of the table, which is left out itself.

        Parameters
        ----------
        row_id : Any
            The row's key, or its text.
        k, candidates, where
            As `search`.

        Returns
        -------
        list of Hit

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search`.
        """
        k = search.as_count("k", k)
        more = None if candidates is None else search.as_count("candidates", candidates) + 1
        with translated_errors():
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            row = (
                RawCursor(self.connection)
                .execute(
                    sql.SQL(
                        "SELECT {id}, {column} FROM {table} WHERE {id} = $1::text::{type}"
                    ).format(
                        id=sql.Identifier(self.id_column),
                        column=sql.Identifier(self.column_name),
                        table=self.table,
                        type=sql.SQL(self.id_type),
                    ),
                    [str(row_id)],
                    binary=True,
                )
                .fetchone()
            )
        if row is None or row[1] is None:
            raise InvalidInputError(
                f"{self.qualified_table} has no row with {self.id_column} = {row_id} and a vector"
            )
        # One more of each for the row itself, which would always be found.
        hits = self.search(row[1], k + 1, candidates=more, where=where)
        return [hit for hit in hits if hit.id != row[0]][:k]

    def summary(self) -> IndexSummary:
        """Count rows and codes, and measure their size; reads the whole table."""
        codes = sql.Identifier(self.code_schema, self.code_table)
        with translated_errors():
            cursor = self.connection.cursor(row_factory=class_row(IndexSummary))
            cursor.execute(
                sql.SQL(_SUMMARY[self.layout]).format(
                    column=sql.Identifier(self.column_name),
                    table=self.table,
                    code=sql.Identifier(self.code_column),
                    codes=codes,
                    codes_name=sql.Literal(codes.as_string(self.connection)),
                )
            )
            row = cursor.fetchone()
        assert row is not None  # noqa: S101
        return row

    def drop(self) -> None:
        """Drop the index with its codes and triggers; the table and the model stay."""
        with translated_errors(), self.connection.transaction():
            self.connection.execute("SELECT hashindex.drop_index(%s)", [self.name])


def list_indexes(connection: Connection) -> list[HashIndex]:
    """Return every index, by name."""
    return _read(connection, "ORDER BY i.name", [])


def _read(connection: Connection, which: str, values: Sequence[str]) -> list[HashIndex]:
    with translated_errors():
        prepare(connection)
        cursor = connection.cursor(row_factory=dict_row)
        rows = cursor.execute((_CATALOG + which).encode(), values).fetchall()
    return [HashIndex(connection=connection, **row) for row in rows]
