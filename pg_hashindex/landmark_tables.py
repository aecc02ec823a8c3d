"""The tables of an index's landmarks, for what builds and rebalances them."""

from typing import Any, LiteralString

from psycopg import RawCursor, sql

from .catalog import IndexEntry
from .pages import Page, read_page

__all__ = ["LandmarkTables"]


class LandmarkTables:
    """Statements about an index with landmarks, with names of tables and columns in braces.

    Parameters
    ----------
    index : IndexEntry
    """

    def __init__(self, index: IndexEntry) -> None:
        self.index = index
        #: Whether rows are near a landmark by their direction.
        self.spherical = index.metric != "l2"
        self.names = {
            "table": index.table,
            "id": sql.Identifier(index.id_column),
            "column": sql.Identifier(index.column_name),
            "type": sql.SQL(index.id_type),
            "codes": sql.Identifier(index.code_schema, index.code_table),
            "landmarks": sql.Identifier("hashindex", f"{index.storage}_landmarks"),
            "lists": sql.Identifier("hashindex", f"{index.storage}_lists"),
            "listed": sql.Identifier("hashindex", f"{index.storage}_listed"),
        }

    def execute(self, statement: LiteralString, values: list[Any] | None = None) -> Any:
        """Run a statement; its parameters are ``$1``, ``$2``, ..."""
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        return RawCursor(self.index.connection).execute(self.query(statement), values)

    def query(self, statement: LiteralString) -> sql.Composed:
        """Put names into a statement."""
        return sql.SQL(statement).format(**self.names)

    def page(self, statement: LiteralString, values: list[Any], rows: int) -> Page:
        """Read so many rows of the table at most; see `read_page`."""
        return read_page(
            self.index.connection,
            self.query(statement),
            values,
            rows=rows,
            dimension=self.index.dimension,
            table=self.index.qualified_table,
        )
