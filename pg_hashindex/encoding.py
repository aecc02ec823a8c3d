"""Bulk encoding: rows that have a vector but no code, in batches, beside live writes.

Each batch is one short transaction, so that neither a lock nor a snapshot of ours is ever held for
long: a page of rows in the order of the key, their codes from NumPy, a binary COPY into a temporary
table, and one INSERT (or UPDATE, for codes in a column). What makes it safe beside writers:

- The triggers exist before the first batch, so whatever is written later has its code already, and
  an INSERT that meets one does nothing.
- A row may be deleted, or its vector set to NULL, after its page was read. The INSERT therefore
  locks the rows against writers while it writes their codes, and leaves out rows that are gone.
- It never waits for a writer (SKIP LOCKED), so it can be in no deadlock. Rows that it left out are
  found by the next pass; the work is done when no row is missing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from psycopg import RawCursor, sql
from psycopg.pq import TransactionStatus
from tqdm import tqdm

from . import codes, store
from .catalog import IndexEntry
from .database import translated_errors
from .errors import DatabaseStateError, InUseError, InvalidInputError
from .model import Model

__all__ = ["encode_missing"]

_BATCH_ROWS = 10_000
# Fewer rows of long vectors: about 16 MB a batch, of which several copies are made.
_BATCH_VALUES = 4_000_000

# Seconds that rows may stay locked by others, without any progress, before we give up.
_PATIENCE = 60.0

# Bounded on both sides of the anti-join, so that no page looks at what earlier ones did.
_PAGE = {
    "table": """
        SELECT b.{id}::text, b.{column} FROM {table} b
        WHERE b.{id} {comparison} {start}::text::{type} AND b.{column} IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM {codes} c WHERE c.id = b.{id} AND c.id >= {start}::text::{type}
          )
        ORDER BY b.{id} LIMIT {limit}
    """,
    "column": """
        SELECT b.{id}::text, b.{column} FROM {table} b
        WHERE b.{id} {comparison} {start}::text::{type} AND b.{column} IS NOT NULL
          AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT {limit}
    """,
}

_FIRST_MISSING = {
    "table": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
        ORDER BY b.{id} LIMIT 1
    """,
    "column": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT 1
    """,
}

_COUNT_MISSING = {
    "table": """
        SELECT count(*) FROM {table} b
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
    """,
    "column": "SELECT count(*) FROM {table} b WHERE b.{column} IS NOT NULL AND b.{code} IS NULL",
}

_WRITE = {
    "table": """
        WITH present AS (
            SELECT b.{id} AS id, s.code FROM {batch} s JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL
            FOR SHARE OF b SKIP LOCKED
        )
        INSERT INTO {codes} (id, code) SELECT p.id, p.code FROM present p
        ON CONFLICT (id) DO NOTHING
    """,
    "column": """
        WITH present AS (
            SELECT b.{id} AS id, s.code FROM {batch} s JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
            FOR NO KEY UPDATE OF b SKIP LOCKED
        )
        UPDATE {table} b SET {code} = p.code FROM present p
        WHERE b.{id} = p.id AND b.{code} IS NULL
    """,
}

# Rows that went with a detached partition, or while triggers were off. Who does not see every row
# must not take the others for gone.
_PRUNE = """
    DELETE FROM {codes} c
    WHERE NOT row_security_active({table_name})
      AND NOT EXISTS (SELECT FROM {table} b WHERE b.{id} = c.id)
"""


def encode_missing(
    index: IndexEntry, *, batch_rows: int | None = None, progress: bool = False
) -> int:
    """Encode every row without a code; see `HashIndex.encode`."""
    if batch_rows is None:
        batch_rows = max(1, min(_BATCH_ROWS, _BATCH_VALUES // index.dimension))
    if batch_rows < 1:
        raise InvalidInputError(f"batch_rows must be 1 or more, got {batch_rows}")
    if index.connection.info.transaction_status != TransactionStatus.IDLE:
        raise InvalidInputError(
            "encoding commits batch by batch: call it outside a transaction, best on a connection "
            "in autocommit mode"
        )
    with translated_errors(), _only_encoder(index):
        return _Encoder(index, batch_rows).run(progress)


@contextmanager
def _only_encoder(index: IndexEntry) -> Iterator[None]:
    # A second encoder would do the same work again, not harm.
    key = f"hashindex.encode:{index.name}"
    lock = "hashtextextended(%s, 0)"
    with index.connection.transaction():
        row = index.connection.execute(f"SELECT pg_try_advisory_lock({lock})", [key]).fetchone()
    if row is None or not row[0]:
        raise InUseError(f"index {index.name!r} is being encoded by another session; wait for it")
    try:
        yield
    finally:
        if not index.connection.closed:
            with index.connection.transaction():
                index.connection.execute(f"SELECT pg_advisory_unlock({lock})", [key])


class _Encoder:
    """One run over one index."""

    def __init__(self, index: IndexEntry, batch_rows: int) -> None:
        self.index = index
        self.connection = index.connection
        self.batch_rows = batch_rows
        self.model: Model = store.load(self.connection, f"{index.model}:{index.model_version}")
        self.names = {
            "table": index.table,
            "table_name": sql.Literal(index.qualified_table),
            "id": sql.Identifier(index.id_column),
            "column": sql.Identifier(index.column_name),
            "type": sql.SQL(index.id_type),
            "codes": sql.Identifier(index.code_schema, index.code_table),
            "code": sql.Identifier(index.code_column),
            "batch": sql.Identifier("pg_temp", "hashindex_batch"),
            "bit": sql.SQL(f"bit({self.model.n_bits})"),
        }

    def run(self, progress: bool) -> int:
        with self.connection.transaction():
            (missing,) = self._execute(_COUNT_MISSING[self.index.layout]).fetchone()
            self._execute("DROP TABLE IF EXISTS {batch}")
            self._execute(
                "CREATE TEMPORARY TABLE hashindex_batch (id text, code {bit}) ON COMMIT DELETE ROWS"
            )
        written = 0
        stuck_since = time.monotonic()
        with tqdm(
            total=missing, unit="row", unit_scale=True, desc="encoding", disable=not progress
        ) as bar:
            while (start := self._first_missing()) is not None:
                written_before = written
                for read, encoded in self._pass(start):
                    written += encoded
                    bar.update(min(read, encoded))
                if written > written_before:
                    stuck_since = time.monotonic()
                elif time.monotonic() - stuck_since > _PATIENCE:
                    raise DatabaseStateError(
                        f"row {start} of {self.index.qualified_table} has been locked by another "
                        f"transaction for {_PATIENCE:.0f} s; {written} codes were written, run "
                        "the encoding again when that transaction has ended"
                    )
                else:
                    time.sleep(0.1)
        with self.connection.transaction():
            self._execute("DROP TABLE {batch}")
            if self.index.layout == "table":
                self._execute(_PRUNE)
                self._execute("ANALYZE {codes}")
        return written

    def _pass(self, start: str) -> Iterator[tuple[int, int]]:
        """Walk over the table once from a key on; yield rows read and codes written per batch."""
        comparison = ">="
        while True:
            with self.connection.transaction():
                # Locking the newest version of a row, whatever the session's default level is.
                self._execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                # A page in the order of the key index: a hash of all codes would be made for each.
                self._execute("SET LOCAL enable_hashjoin TO off")
                rows = self._execute(
                    _PAGE[self.index.layout],
                    [start, self.batch_rows],
                    comparison=sql.SQL(comparison),
                    binary=True,
                ).fetchall()
                written = self._write(rows) if rows else 0
            if rows:
                yield len(rows), written
            if len(rows) < self.batch_rows:
                return
            start, comparison = rows[-1][0], ">"

    def _write(self, rows: list[tuple[str, Any]]) -> int:
        vectors = [vector.to_numpy() for _, vector in rows]
        for (row_id, _), vector in zip(rows, vectors, strict=True):
            if len(vector) != self.model.dimension:
                raise InvalidInputError(
                    f"row {row_id} of {self.index.qualified_table} has {len(vector)} dimensions, "
                    f"the model takes {self.model.dimension}; mend or remove the row"
                )
        packed = codes.to_postgres(self.model.encode(np.stack(vectors)), self.model.n_bits)
        copy_statement = sql.SQL("COPY {batch} (id, code) FROM STDIN (FORMAT binary)").format(
            **self.names
        )
        with self.connection.cursor() as cursor, cursor.copy(copy_statement) as copy:
            copy.set_types(["text", "bit"])
            for (row_id, _), code in zip(rows, packed, strict=True):
                copy.write_row((row_id, code))
        written: int = self._execute(_WRITE[self.index.layout]).rowcount
        return written

    def _first_missing(self) -> str | None:
        with self.connection.transaction():
            row = self._execute(_FIRST_MISSING[self.index.layout]).fetchone()
        return None if row is None else row[0]

    def _execute(
        self,
        statement: str,
        values: list[Any] | None = None,
        *,
        binary: bool = False,
        **names: sql.Composable,
    ) -> Any:
        query = sql.SQL(statement).format(
            **self.names, **names, start=sql.SQL("$1"), limit=sql.SQL("$2")
        )
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        return RawCursor(self.connection).execute(query, values, binary=binary)
