"""Rows of a table, read block after block by ranges of pages, for landmarks.

Each block is read in a transaction of its own, so no statement relies on an order that the planner
chooses, and none keeps VACUUM from its work for long. The rows of a block have no order.
"""

import sys
from collections.abc import Iterator
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from ...db.connection import EXTENSION
from ...db.rows import by_place
from ...db.sql_files import query
from ...db.statements import execute
from ...db.throttle import Throttle
from ...errors import InvalidInputError
from ..catalog import IndexRow
from .table_blocks import Block, WrongDimensionError, read_blocks

# The most rows and numbers of a block: 8 MB of vectors.
_BLOCK_VALUES = 2_000_000
_BLOCK_ROWS = 10_000

# Pages of the first block and of the largest range, 64 MB, whose codes are held until they are
# written together; no page of 32 kB holds more rows.
_FIRST_PAGES, _MOST_PAGES, _MOST_ROWS_OF_PAGE = 64, 8_192, 1_200

_HEAP = query("landmarks.heap")

_PAGES_OF_TABLE: LiteralString = """
    SELECT pg_relation_size({table_name}::regclass)
        / pg_catalog.current_setting('block_size')::bigint
"""

_ROWS: LiteralString = """
    SELECT {key}, {tenant_number}b.{column} FROM ONLY {table} b{tenants}
    WHERE {pages} AND b.{column} IS NOT NULL {part}
"""

_EVERY_ROW = sql.SQL("")
_PAGES: LiteralString = "b.ctid >= {first}::tid AND b.ctid < {end}::tid"

# The tenants with landmarks by their numbers. They are hashed, and the rows come in their order.
_NUMBERED_TENANTS: LiteralString = """
    LEFT JOIN pg_catalog.unnest({names}::text[]) WITH ORDINALITY t(tenant, number)
    ON t.tenant::{tenant_type} = b.{tenant}
"""

_WRONG_ROW: LiteralString = """
    SELECT {key_text}, {schema}.vector_dims(b.{column}) FROM {table} b
    WHERE {schema}.vector_dims(b.{column}) <> $1 LIMIT 1
"""


class Heap(NamedTuple):
    """The table and the file of its rows."""

    oid: int
    file: int


class MovedError(Exception):
    """The rows of the table have moved to other places during a build."""


class TableReader:
    """Reads the rows of an index's table: those of some pages, a random share, or a tenant's."""

    def __init__(self, index: IndexRow, throttle: Throttle) -> None:
        self.index, self.throttle = index, throttle
        self.connection = index.connection
        self._block_rows = throttle.batch_size(
            max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // index.dimension))
        )
        # Pages to read next, as many as their rows fit in a block.
        self._pages = _FIRST_PAGES
        self._key_columns = len(index.key_columns)
        self._names = index.names | {"tenant_number": sql.SQL(""), "tenants": sql.SQL("")}
        self._has_tenants = index.tenant_column is not None
        if index.tenant_column is not None:
            self._names["tenant"] = sql.Identifier(index.tenant_column)
            self._names["tenant_type"] = sql.SQL(index.tenant_type or "")

    def _number(self, tenants: list[str]) -> None:
        """Have blocks tell the tenants of their rows by these numbers, 0 and up; -1 for others."""
        self._names["tenant_number"] = sql.SQL("coalesce(t.number - 1, -1)::integer, ")
        self._names["tenants"] = sql.SQL(_NUMBERED_TENANTS).format(
            **self._names, names=sql.Literal(tenants)
        )

    def _drawn(self, share: float, seed: int) -> Iterator[Block]:
        """Read a random share of the rows, each block in a transaction of its own."""
        heap = self._heap()
        page, pages = 0, self._count_pages()
        while page < pages:
            first, end = page, min(page + self._pages, pages)
            block, page = self._read_pages(heap, first, end, part=by_place(share, seed))
            self._pages = min(self._fitting(page - first, len(block)), 4 * self._pages)
            yield block
        # The next reader may want every row of a page.
        self._pages = max(1, round(share * self._pages))

    def _read_pages(
        self,
        heap: Heap,
        first: int,
        end: int,
        *,
        part: sql.Composable = _EVERY_ROW,
    ) -> tuple[Block, int]:
        """Read pages, or the first ones if all hold too many rows for a block.

        Returns the rows, in any order, and the page after them.
        """
        most = max(2 * self._block_rows, _MOST_ROWS_OF_PAGE)
        with self.connection.transaction():
            while True:
                range_of_pages = sql.SQL(_PAGES).format(
                    first=sql.Literal(f"({first},0)"), end=sql.Literal(f"({end},0)")
                )
                query = sql.SQL(_ROWS + " LIMIT {most}").format(
                    **self._names,
                    pages=range_of_pages,
                    part=part,
                    most=sql.Literal(most + 1),
                )
                # One block, however many rows there are.
                (block,) = self._blocks(query, sys.maxsize, self._key_columns)
                if len(block) <= most:
                    break
                end = first + max(1, (end - first) // 2)
            # Read under the same lock as the rows.
            self._refuse_moved(heap)
        return block, end

    def _heap(self) -> Heap:
        return Heap(*self._execute(_HEAP).fetchone())

    def _refuse_moved(self, heap: Heap) -> None:
        """Refuse rows that are in another file than they were."""
        if self._heap() != heap:
            raise MovedError

    def _count_pages(self) -> int:
        (pages,) = self._execute(_PAGES_OF_TABLE).fetchone()
        return int(pages)

    def _fitting(self, pages: int, rows: int) -> int:
        """Return how many pages hold the rows of a block, if these hold this number of rows."""
        return max(1, min(pages * self._block_rows // max(1, rows), _MOST_PAGES))

    def _blocks(
        self, query: sql.Composable, most_rows: int, key_columns: int = 1
    ) -> Iterator[Block]:
        try:
            yield from read_blocks(
                self.connection,
                query,
                most_rows,
                dimension=self.index.dimension,
                has_tenants=self._has_tenants,
                key_columns=key_columns,
            )
        except WrongDimensionError:
            raise self._wrong_dimension() from None

    def _wrong_dimension(self) -> InvalidInputError:
        schema, _ = self._execute(EXTENSION).fetchone()
        row = self._execute(
            _WRONG_ROW, [self.index.dimension], schema=sql.Identifier(schema)
        ).fetchone()
        key, dimension = row or ("?", "other")
        return InvalidInputError(
            f"row {key} of {self.index.qualified_table} has {dimension} dimensions, "
            f"the model takes {self.index.dimension}; fix or delete the row"
        )

    def _execute(
        self, statement: LiteralString, values: list[Any] | None = None, **more: sql.Composable
    ) -> Any:
        """Run a statement; its parameters are ``$1``, ``$2``, ..."""
        query = sql.SQL(statement).format(**self._names, **more)
        return execute(self.connection, query, values)
