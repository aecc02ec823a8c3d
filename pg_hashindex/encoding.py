"""Bulk encoding: rows that have a vector but no code, in batches, beside live writes.

Each batch is two short transactions, so that neither a lock nor a snapshot of ours is ever held for
long: one reads a page of rows in the order of the key; their codes are computed outside of any; one
writes them by a binary COPY into a temporary table and one INSERT (or UPDATE, for codes in a
column). What makes it safe beside writers:

- The triggers exist before the first batch. Where they encode, whatever is written later has its
  code already, and an INSERT that meets one does nothing.
- Where the model is evaluated in Python, they only take codes away, and nobody but us writes new
  ones: a code of what the page held, written after the row's vector changed, would stay. So the
  page holds each row's ``xmin`` too, the transaction that wrote this version of the row. The INSERT
  writes codes only where it is still the same, under a lock on the row. An update that committed
  before the lock has another xmin. One that comes later waits for us, and its trigger then finds
  our code and takes it away; where its snapshot is too old to see the code, the trigger fails.
- A row may be deleted, or its vector set to NULL, after its page was read. The INSERT therefore
  locks the rows against writers while it writes their codes, and leaves out rows that are gone.
- It never waits for a writer (SKIP LOCKED), so it can be in no deadlock. Rows that it left out are
  found by the next pass; the work is done when no row is missing.
- The index may be dropped and made anew with another model, under the same names. Codes are written
  only while it is the one that we know.

A model that knows the rows of its training alone has no codes for others. They go on waiting, and
the work is done without them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import RawCursor, sql
from psycopg.pq import TransactionStatus
from tqdm import tqdm

from . import codes
from .catalog import IndexEntry
from .database import translated_errors
from .encoding_queries import FIRST_MISSING, PAGE, PRUNE, WRITE
from .errors import DatabaseStateError, InUseError, InvalidInputError

__all__ = ["encode_missing"]

_BATCH_ROWS = 10_000
# Fewer rows of long vectors: about 16 MB a batch, of which several copies are made.
_BATCH_VALUES = 4_000_000

# A network may take 30 ms a row or 30 us: batches start small, and grow to about so many seconds.
_FIRST_NETWORK_ROWS = 32
_NETWORK_SECONDS = 2.0

# Passes that may find changed rows again, where writers make new work as fast as we do it.
_MOST_PASSES = 10

# Seconds that rows may stay locked by others, without any progress, before we give up.
_PATIENCE = 60.0


def encode_missing(
    index: IndexEntry, *, batch_rows: int | None = None, progress: bool = False
) -> int:
    """Encode every row without a code; see `HashIndex.encode`."""
    if batch_rows is not None and batch_rows < 1:
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


class _Batch(NamedTuple):
    """What became of a page: rows by number, and the first one that is still to be done, if any."""

    written: int
    unknown: int
    left_over: str | None


class _Encoder:
    """One run over one index."""

    def __init__(self, index: IndexEntry, batch_rows: int | None) -> None:
        self.index = index
        self.connection = index.connection
        # Outside of a transaction of ours, a connection that is not in autocommit mode begins one.
        with self.connection.transaction():
            index.check_current()
            self.model = index.loaded_model
        self.most_rows = batch_rows or max(1, min(_BATCH_ROWS, _BATCH_VALUES // index.dimension))
        self.adapts = batch_rows is None and index.network == "torch"
        self.batch_rows = (
            min(_FIRST_NETWORK_ROWS, self.most_rows) if self.adapts else self.most_rows
        )
        in_sql = index.encoded_in == "sql"
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
            "version": sql.SQL("NULL" if in_sql else "b.xmin::text"),
            "current": index.is_current,
            "unchanged": sql.SQL("true" if in_sql else "b.xmin::text = s.version"),
        }

    def run(self, progress: bool) -> int:
        with self.connection.transaction():
            missing = self.index.waiting()
            self._execute("DROP TABLE IF EXISTS {batch}")
            self._execute(
                "CREATE TEMPORARY TABLE hashindex_batch (id text, code {bit}, version text) "
                "ON COMMIT DELETE ROWS"
            )
        written, passes = 0, 0
        stuck_since = time.monotonic()
        start = self._first_missing()
        with tqdm(
            total=missing, unit="row", unit_scale=True, desc="encoding", disable=not progress
        ) as bar:
            while start is not None and passes < _MOST_PASSES:
                before, left_over = written, None
                for batch in self._pass(start):
                    written += batch.written
                    left_over = left_over or batch.left_over
                    bar.update(batch.written + (0 if passes else batch.unknown))
                if self.index.encoded_in == "sql":
                    # Rows may have come without a code, in a partition that was attached say.
                    left_over = self._first_missing()
                elif written > before:
                    passes += 1
                start = left_over
                if written > before:
                    stuck_since = time.monotonic()
                elif start is not None and time.monotonic() - stuck_since > _PATIENCE:
                    raise self._stuck(start, written)
                elif start is not None:
                    time.sleep(0.1)
        with self.connection.transaction():
            self._execute("DROP TABLE {batch}")
            if self.index.layout == "table":
                self._execute(PRUNE)
                self._execute("ANALYZE {codes}")
        return written

    def _stuck(self, row: str, written: int) -> DatabaseStateError:
        what = "locked by another transaction"
        if self.index.encoded_in == "python":
            what = "locked or changed by other transactions"
        return DatabaseStateError(
            f"row {row} of {self.index.qualified_table} has been {what} for {_PATIENCE:.0f} s; "
            f"{written} codes were written, run the encoding again when they have ended"
        )

    def _pass(self, start: str) -> Iterator[_Batch]:
        """Walk over the table once from a key on."""
        comparison = ">="
        while True:
            asked, began = self.batch_rows, time.monotonic()
            with self._transaction():
                rows = self._execute(
                    PAGE[self.index.layout],
                    [start, asked],
                    comparison=sql.SQL(comparison),
                    binary=True,
                ).fetchall()
            if rows:
                known = self._known(rows)
                written = self._write(known) if known else 0
                left_over = known[0][0] if written < len(known) else None
                yield _Batch(written, len(rows) - len(known), left_over)
            if len(rows) < asked:
                return
            if self.adapts:
                wanted = asked * _NETWORK_SECONDS / max(time.monotonic() - began, 1e-3)
                self.batch_rows = max(1, min(int(wanted), 4 * asked, self.most_rows))
            start, comparison = rows[-1][0], ">"

    def _known(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Leave out the rows that the model has no code for."""
        if self.model.network is None or self.model.network.kind != "rows":
            return rows
        known = self.model.network.knows(self._vectors(rows))
        return [row for row, is_known in zip(rows, known, strict=True) if is_known]

    def _vectors(self, rows: list[tuple[Any, ...]]) -> NDArray[np.float32]:
        vectors = [row[1].to_numpy() for row in rows]
        for row, vector in zip(rows, vectors, strict=True):
            if len(vector) != self.model.dimension:
                raise InvalidInputError(
                    f"row {row[0]} of {self.index.qualified_table} has {len(vector)} dimensions, "
                    f"the model takes {self.model.dimension}; mend or remove the row"
                )
        return np.stack(vectors)

    def _write(self, rows: list[tuple[Any, ...]]) -> int:
        """Compute and write the codes of a page; return how many rows have got one."""
        packed = codes.to_postgres(self.model.encode(self._vectors(rows)), self.model.n_bits)
        copy_statement = sql.SQL(
            "COPY {batch} (id, code, version) FROM STDIN (FORMAT binary)"
        ).format(**self.names)
        with self._transaction():
            with self.connection.cursor() as cursor, cursor.copy(copy_statement) as copy:
                copy.set_types(["text", "bit", "text"])
                for (row_id, _, version), code in zip(rows, packed, strict=True):
                    copy.write_row((row_id, code, version))
            written: int = self._execute(WRITE[self.index.layout]).rowcount
            if not written:
                self.index.check_current()
        return written

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            # Locking the newest version of a row, whatever the session's default level is.
            self._execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # A page in the order of the key index: a hash of all codes would be made for each.
            self._execute("SET LOCAL enable_hashjoin TO off")
            yield

    def _first_missing(self) -> str | None:
        with self.connection.transaction():
            row = self._execute(FIRST_MISSING[self.index.layout]).fetchone()
        return None if row is None else row[0]

    def _execute(
        self,
        statement: LiteralString,
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
