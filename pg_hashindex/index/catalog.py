"""The catalog of indexes: the rows of ``hashindex.index``, and what the database holds for each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString, TypeVar

import psycopg
from psycopg import RawCursor, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row

from ..db.connection import Connection, prepare, translated_errors
from ..db.shards import is_distributed
from ..db.steps import run
from ..errors import InvalidInputError
from ..models import store
from ..models.model import Model
from .row import Access, IndexRow, Layout, Ranking, SwapState, read

__all__ = [
    "Access",
    "IndexEntry",
    "IndexSummary",
    "Layout",
    "ListSummary",
    "Ranking",
    "SwapState",
    "long_list",
    "read_entries",
]

# An index that was dropped and made anew has the same names, and codes of another kind. Codes that
# an index was swapped from are still the same ones, under another name.
_CURRENT: LiteralString = """
    EXISTS (
        SELECT FROM hashindex.index i
        WHERE i.storage = {storage} AND i.model_id = {model_id} AND i.schema_name = {schema_name}
          AND i.table_name = {table_name} AND i.column_name = {column_name}
          AND i.id_column = {id_column}
    )
"""

_WAITING: dict[Layout, LiteralString] = {
    "table": """
        SELECT count(*) FROM {table} b
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
    """,
    "column": "SELECT count(*) FROM {table} b WHERE b.{column} IS NOT NULL AND b.{code} IS NULL",
}

_INDEX_BYTES: LiteralString = """
    (
        SELECT coalesce(sum(pg_relation_size(to_regclass(x.index_name))), 0)::bigint
        FROM hashindex.index i, pg_catalog.unnest(ARRAY[i.access, i.building]) path,
             hashindex._code_indexes(i, path) x
        WHERE i.name = {name} AND path IN ('lookup', 'hnsw')
    )
"""

# The b-tree of the codes by landmark.
_LISTS_BYTES: LiteralString = """
    coalesce((
        SELECT sum(pg_relation_size(x.indexrelid)) FROM pg_catalog.pg_index x
        JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
        WHERE x.indrelid = {codes_name}::regclass::oid AND a.attname = 'landmark'
    ), 0)::bigint
"""

# Landmarks, the b-tree of the codes by landmark, and what a build under way has made so far.
_LANDMARK_BYTES: LiteralString = """
    (
        SELECT coalesce(sum(
            CASE WHEN t.relation::oid = {codes_name}::regclass::oid THEN {lists}
            ELSE pg_total_relation_size(t.relation) END
        ), 0)::bigint
        FROM hashindex.index i, hashindex._tables_of(i) t WHERE i.name = {name}
    )
"""

_SUMMARY: dict[Layout, LiteralString] = {
    "table": """
        SELECT pg_catalog.count({column}) AS rows, (SELECT count(*) FROM {codes}) AS codes,
               pg_total_relation_size({codes_name}::regclass) - {indexes} - {lists} AS code_bytes,
               {indexes} + {landmarks} AS access_bytes,
               coalesce(sum(pg_catalog.pg_column_size({column})), 0)::bigint AS vector_bytes,
               ({waiting}) AS waiting
        FROM {table}
    """,
    "column": """
        SELECT pg_catalog.count({column}) AS rows, pg_catalog.count({code}) AS codes,
               coalesce(sum(pg_catalog.pg_column_size({code})), 0)::bigint AS code_bytes,
               {indexes} AS access_bytes,
               coalesce(sum(pg_catalog.pg_column_size({column})), 0)::bigint AS vector_bytes,
               ({waiting}) AS waiting
        FROM {table}
    """,
}

_CODE_TABLE: LiteralString = """
    SELECT i.code_schema, i.code_table FROM hashindex.index i WHERE i.storage = $1
"""

_LANDMARKS: LiteralString = """
    SELECT i.landmark_table, i.trained_rows FROM hashindex.index i WHERE i.name = $1
"""

_LISTS: LiteralString = """
    SELECT (SELECT count(*) FROM {landmarks}) AS landmarks,
           coalesce(sum(l.codes), 0)::bigint AS codes,
           coalesce(pg_catalog.max(l.codes) FILTER (WHERE l.landmark IS NOT NULL), 0) AS longest,
           coalesce(sum(l.codes) FILTER (WHERE l.landmark IS NULL), 0)::bigint AS unlisted,
           $1::bigint AS trained_rows
    FROM (SELECT c.landmark, count(*) AS codes FROM {codes} c GROUP BY c.landmark) l
"""

_DISTRIBUTED_SUMMARY: LiteralString = "SELECT * FROM hashindex._distributed_summary({name})"


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
    access_bytes : int
        Size on disk of what the access path adds, of one that is being built too.
    vector_bytes : int
        Size of the vectors themselves.
    waiting : int
        Rows whose vector is not NULL and that have no code.
    """

    rows: int
    codes: int
    code_bytes: int
    access_bytes: int
    vector_bytes: int
    waiting: int


def long_list(mean: float) -> float:
    """Return the codes above which a list is long, where lists have so many on average."""
    return max(4 * mean, 200)


@dataclass(frozen=True)
class ListSummary:
    """The lists of an index's landmarks.

    Parameters
    ----------
    landmarks : int
    codes : int
    longest : int
        Codes of the longest list.
    unlisted : int
        Codes that are in no list yet.
    trained_rows : int
        Rows that had a vector when the landmarks were trained.
    """

    landmarks: int
    codes: int
    longest: int
    unlisted: int
    trained_rows: int

    @property
    def mean(self) -> float:
        """Codes of a list, on average."""
        return self.codes / max(1, self.landmarks)

    @property
    def in_order(self) -> bool:
        """Whether a rebalance would find little to do."""
        return self.longest <= long_list(self.mean)


@dataclass(frozen=True)
class IndexEntry(IndexRow):
    """One row of ``hashindex.index``, and the connection it was read with."""

    connection: Connection

    @cached_property
    def loaded_model(self) -> Model:
        """The index's model, read from the database once: neither ever changes."""
        return store.load(self.connection, f"{self.model}:{self.model_version}")

    @property
    def distributed(self) -> bool:
        """Whether Citus distributes the searched table among shards."""
        # Outside of a transaction, a connection that is not in autocommit mode would begin one.
        with translated_errors(self), self.connection.transaction():
            return is_distributed(self.connection, self.qualified_table)

    @property
    def is_current(self) -> sql.Composed:
        """SQL for whether the index still has this model, and the vectors of this column."""
        return sql.SQL(_CURRENT).format(
            storage=sql.Literal(self.storage),
            model_id=sql.Literal(self.model_id),
            schema_name=sql.Literal(self.schema_name),
            table_name=sql.Literal(self.table_name),
            column_name=sql.Literal(self.column_name),
            id_column=sql.Literal(self.id_column),
        )

    def check_current(self) -> None:
        """Check that the index was not dropped, or made anew otherwise, since it was opened.

        Raises
        ------
        DatabaseStateError
        """
        with translated_errors():
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            row = (
                RawCursor(self.connection).execute(sql.SQL("SELECT ") + self.is_current).fetchone()
            )
        if row is None or not row[0]:
            raise self.made_anew()

    @contextmanager
    def noticing_drops(self) -> Iterator[None]:
        """Where something is missing inside the block, say so if it went with the index itself.

        Raises
        ------
        DatabaseStateError
            If the index was dropped, or made anew.
        """
        try:
            yield
        except (psycopg.ProgrammingError, psycopg.InternalError, InvalidInputError):
            if self.connection.info.transaction_status == TransactionStatus.IDLE:
                self.check_current()
            raise

    def waiting(self) -> int:
        """Count the rows that have a vector and no code, and so are not found by searches."""
        with translated_errors(self):
            row = self.connection.execute(
                sql.SQL(_WAITING[self.layout]).format(**self._names())
            ).fetchone()
        assert row is not None  # noqa: S101
        count: int = row[0]
        return count

    def summary(self) -> IndexSummary:
        """Count rows and codes, and measure their size; reads the whole table."""
        names = self._names()
        name = sql.Literal(self.name)
        codes_name = sql.Literal(names["codes"].as_string(self.connection))
        lists = sql.SQL(_LISTS_BYTES).format(codes_name=codes_name)
        # Citus counts one table at a time, and knows the sizes of its own.
        statement = _DISTRIBUTED_SUMMARY if self.distributed else _SUMMARY[self.layout]
        with translated_errors(self):
            cursor = self.connection.cursor(row_factory=class_row(IndexSummary))
            cursor.execute(
                sql.SQL(statement).format(
                    **names,
                    name=name,
                    codes_name=codes_name,
                    indexes=sql.SQL(_INDEX_BYTES).format(name=name),
                    lists=lists,
                    landmarks=sql.SQL(_LANDMARK_BYTES).format(
                        codes_name=codes_name, name=name, lists=lists
                    ),
                    waiting=sql.SQL(_WAITING[self.layout]).format(**names),
                )
            )
            row = cursor.fetchone()
        assert row is not None  # noqa: S101
        return row

    def lists(self) -> ListSummary | None:
        """Count what is in the lists of landmarks; reads all codes. None without landmarks."""
        with translated_errors(self), self.connection.transaction():
            row = RawCursor(self.connection).execute(_LANDMARKS, [self.name]).fetchone()
            if row is None or row[0] is None:
                return None
            landmarks, trained_rows = row
            cursor = RawCursor(self.connection, row_factory=class_row(ListSummary))
            return cursor.execute(
                sql.SQL(_LISTS).format(
                    landmarks=sql.Identifier("hashindex", landmarks), codes=self.codes
                ),
                [trained_rows],
            ).fetchone()

    @property
    def codes(self) -> sql.Identifier:
        """The table that codes are in now: a build gives an index another one."""
        with translated_errors(self), self.connection.transaction():
            row = RawCursor(self.connection).execute(_CODE_TABLE, [self.storage]).fetchone()
        return sql.Identifier(*(row or (self.code_schema, self.code_table)))

    def _names(self) -> dict[str, sql.Identifier]:
        return {
            "table": self.table,
            "id": sql.Identifier(self.id_column),
            "column": sql.Identifier(self.column_name),
            "codes": self.codes,
            "code": sql.Identifier(self.code_column),
        }


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
        Its parameters $1, $2, ...
    """
    with translated_errors():
        prepare(connection)
    return run(connection, read(kind, connection, which, values))
