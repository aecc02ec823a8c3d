"""The catalog of indexes: the rows of ``hashindex.index``, and what the database holds for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, LiteralString, TypeVar

from psycopg import sql
from psycopg.rows import class_row, dict_row

from .database import Connection, prepare, translated_errors
from .model import Metric

__all__ = ["IndexEntry", "IndexSummary", "Layout", "read_entries"]

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
class IndexEntry:
    """One row of ``hashindex.index``, and the connection it was read with."""

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

    @property
    def table(self) -> sql.Identifier:
        """The searched table, quoted."""
        return sql.Identifier(self.schema_name, self.table_name)

    @property
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""
        return self.table.as_string(self.connection)

    @property
    def search_function(self) -> str:
        """The index's own search function as SQL writes it."""
        return sql.Identifier("hashindex", f"search_{self.name}").as_string(self.connection)

    @property
    def binary_ids(self) -> bool:
        """Whether psycopg reads the key's type in binary; of other types it takes the text."""
        types = self.connection.adapters.types
        return types.get(self.id_type.partition("(")[0]) is not None

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


Entry = TypeVar("Entry", bound=IndexEntry)


def read_entries(
    kind: type[Entry], connection: Connection, which: LiteralString, values: Sequence[str]
) -> list[Entry]:
    """Read rows of the catalog as objects of a class.

    Parameters
    ----------
    kind : type
        `IndexEntry` or a subclass.
    connection : psycopg.Connection
    which : str
        The end of the query: its WHERE or ORDER BY.
    values : sequence of str
        Its parameters.
    """
    with translated_errors():
        prepare(connection)
        cursor = connection.cursor(row_factory=dict_row)
        rows = cursor.execute(_CATALOG + which, values).fetchall()
    return [kind(connection=connection, **row) for row in rows]
