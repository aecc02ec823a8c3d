"""Bulk encoding: rows that have a vector but no code, in batches, beside live writes.

A batch is two short transactions, so that no lock or snapshot is held for long. The first reads
rows in the order of the key. Their codes are computed outside of any transaction. The second writes
the codes by one INSERT, with keys and codes as arrays.

This is why it is safe beside writers:

- The triggers exist before the first batch. Rows that are written later have their codes already,
  and our INSERT skips such rows.
- A row may be deleted, or its vector set to NULL, after its batch was read. The INSERT therefore
  locks the rows against writers while it writes their codes, and leaves out rows that are gone.
- The INSERT never waits for a writer (SKIP LOCKED), so it cannot deadlock. The next pass finds the
  rows that it left out; the work is done when no row is missing.
- The index may be dropped and recreated with another model, under the same names. Codes are
  written only if it is still the same index.
- Batches commit without waiting for the disk. A crash may lose some, which leaves rows without
  codes, as if they had not been reached. The last transaction waits until all are on disk.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from ..db.batches import RowBatch, read_batch, rows_of_batch
from ..db.locks import holders_of
from ..db.progress import Progress, is_shown
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.throttle import Throttle
from ..db.work import Work, claimed_work
from ..errors import (
    BuildWarning,
    DatabaseStateError,
    TooLargeError,
)
from ..models.codes import CodeArray, send_code_arrays
from ..models.vectors import warn_of_left_out
from .catalog import FIRST_MISSING, IndexRow

# More rows could exceed a gigabyte, the limit of a statement's parameters.
_MOST_BATCH_ROWS = 100_000

# Pages read to estimate how many rows have to be encoded, in tables with more than twice as many.
_COUNTED_PAGES = 1000

# Seconds without progress, because others lock rows, before we give up.
_PATIENCE = 60.0

_PLAIN: LiteralString = """
    SELECT hashindex._check_plain(
        to_regclass(pg_catalog.format('%I.%I', i.schema_name, i.table_name)), i.column_name
    ) FROM hashindex.index i WHERE i.name = $1
"""

_ROWS = query("encoding.rows")

_PAGES_OF_TABLE = query("encoding.pages_of_table")

_WRITE = query("encoding.write")

PRUNE = query("encoding.prune")

_ENCODED = query("encoding.encoded")

#: Puts codes into lists.
ASSIGN: LiteralString = "SELECT hashindex._assign_missing($1)"

# The most logged keys to apply under the lock that an exchange of sets takes, and how often to
# catch up with writers that may be as fast.
_FEW_KEYS, _MOST_TIMES = 1000, 1000


def encode_missing(index: IndexRow, throttle: Throttle, batch_rows: int | None = None) -> int:
    """Encode every row without a code, and have searches use the codes; see `HashIndex.encode`."""
    execute(index.connection, _PLAIN, [index.name])
    # A second session would do the same work again.
    with claimed_work(index.connection, "encode", index.name) as work:
        written = _Encoder(index, batch_rows, throttle, work).run()
    execute(index.connection, _ENCODED, [index.set_id])
    return written


def catch_up(index: IndexRow, work: Work | None = None) -> bool:
    """Bring lists that are not in use up to date with the logged keys.

    A few that are written meanwhile are left. Returns False if the table was emptied, and a build
    has to begin again.
    """
    for _ in range(_MOST_TIMES):
        with index.reporting_drops(), index.connection.transaction():
            execute(index.connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            (keys,) = one_row(index.connection, "SELECT hashindex._catch_up($1)", [index.set_id])
        if work is not None:
            work.advance(max(0, keys))
        if keys < _FEW_KEYS:
            return bool(keys >= 0)
    return True


def balance(index: IndexRow, throttle: Throttle, work: Work) -> int:
    """Read again the rows that have neither a code nor a key in the log; return how many.

    Called before lists come into use. The rows that a model does not take have no code afterwards.
    """
    books = "SELECT b.missing FROM hashindex._books_of($1) b"
    (missing,) = one_row(index.connection, books, [index.set_id])
    written = _Encoder(index, None, throttle, work).run() if missing else 0
    if written:
        warnings.warn(
            f"{written} rows of {index.qualified_table} had no code when the others were written, "
            "and were read again",
            BuildWarning,
            stacklevel=3,
        )
    return written


def bring_up_to_date(index: IndexRow, throttle: Throttle, work: Work) -> None:
    """Apply the logged keys to lists that are not in use, and read rows again that they lack."""
    work.phase("applying writes made meanwhile")
    catch_up(index, work)
    balance(index, throttle, work)


class _Progress(NamedTuple):
    """The result of a batch: numbers of rows, and the key of the first one left out, if any."""

    written: int
    too_large: int
    left_over: str | None


class _Encoder:
    """One run over one index."""

    def __init__(
        self,
        index: IndexRow,
        batch_rows: int | None,
        throttle: Throttle,
        work: Work,
    ) -> None:
        self.index, self.throttle, self.work = index, throttle, work
        self.connection = index.connection
        send_code_arrays(self.connection)
        index.check_current()
        self.batch_rows = rows_of_batch(index.dimension)
        if batch_rows is not None:
            self.batch_rows = min(batch_rows, _MOST_BATCH_ROWS)
        self.batch_rows = throttle.batch_size(self.batch_rows)
        # Keys of rows that are too large for the model, in the order in which they were met.
        self._left_out: dict[str, None] = {}
        start = index.key.from_text(sql.SQL("$1::text"))
        later = sql.SQL("(SELECT {ids} FROM {codes} WHERE ({ids}) >= ({start}))").format(
            ids=index.key.ids, codes=index.codes, start=start
        )
        self.names = index.names_with_codes | {
            "start": start,
            "has_no_code_from_start": index.has_no_code(later),
            "current": index.is_current,
            "most": sql.SQL("1"),
            "tenant_target": sql.SQL("" if index.tenant_column is None else ", tenant"),
            "tenant_value": sql.SQL("" if index.tenant_column is None else ", b.{}").format(
                sql.Identifier(index.tenant_column or "")
            ),
        }
        if index.state != "used":
            # A row whose key is logged gets its code from the log.
            unlogged = index.has_no_code(index.part("log"))
            for one in ("has_no_code", "has_no_code_from_start"):
                self.names[one] = sql.SQL("{} AND {}").format(self.names[one], unlogged)

    def run(self) -> int:
        first = self._first_missing()
        written = 0 if first is None else self._encode_from(first)
        with self.connection.transaction():
            self._execute(ASSIGN, [self.index.set_id])
            self._execute(PRUNE)
            self._execute("ANALYZE {codes}")
            if written:
                # Any role may write this message, and its commit waits until all earlier ones are
                # on disk.
                self._execute("SELECT pg_logical_emit_message(true, 'hashindex', 'encoded')")
        if self._left_out:
            warn_of_left_out(
                self.index.qualified_table,
                list(self._left_out),
                len(self._left_out),
                f"for model {self.index.model_name}, so that searches by codes miss them",
            )
        self.index.warn_of_long_tenants()
        return written

    def _encode_from(self, first: str) -> int:
        """Encode rows until none is left, from a key on; return how many."""
        start: str | None = first
        written = 0
        stuck_since = time.monotonic()
        self.work.phase("encoding")
        missing = self._count_missing(exactly=is_shown())
        self.work.expect(missing)
        with Progress("encoding", missing, work=self.work) as bar:
            while start is not None:
                before, left_over = written, None
                for batch in self._pass(start):
                    written += batch.written
                    left_over = left_over or batch.left_over
                    bar.update(batch.written + batch.too_large)
                if written > before or not self._left_out:
                    # There may be new rows without a code. Those that
                    # are too large are among them, so a pass that wrote nothing is the last.
                    left_over = self._first_missing()
                start = left_over
                if written > before:
                    stuck_since = time.monotonic()
                elif start is not None and time.monotonic() - stuck_since > _PATIENCE:
                    raise self._stuck(start, written)
                elif start is not None:
                    self.work.advance()
                    time.sleep(0.1)
        return written

    def _count_missing(self, *, exactly: bool) -> int:
        """Count the rows to be encoded; estimate them from some pages of a large table."""
        with self.connection.transaction():
            if not exactly:
                (pages,) = self._execute(_PAGES_OF_TABLE).fetchone()
                if pages > 2 * _COUNTED_PAGES:
                    share: float = _COUNTED_PAGES / pages
                    return round(self.index.waiting(share=share) / share)
            return self.index.waiting()

    def _stuck(self, row: str, written: int) -> DatabaseStateError:
        return DatabaseStateError(
            f"row {row} of {self.index.qualified_table} has been locked by another transaction for "
            f"{_PATIENCE:.0f} s; {written} codes were written, run the encoding again when it has "
            f"ended{holders_of(self.connection, self.index.qualified_table)}"
        )

    def _pass(self, start: str) -> Iterator[_Progress]:
        """Walk over the table once from a key on."""
        comparison = ">="
        while True:
            with self._transaction():
                batch = read_batch(
                    self.connection,
                    sql.SQL(_ROWS).format(**self.names, comparison=sql.SQL(comparison)),
                    [start, self.batch_rows],
                    rows=self.batch_rows,
                    dimension=self.index.dimension,
                    table=self.index.qualified_table,
                )
            if len(batch):
                taken = batch
                try:
                    written = self._write(taken)
                except TooLargeError:
                    taken = self._leave_out_large(batch)
                    written = self._write(taken) if len(taken) else 0
                left_over = taken.ids[0] if written < len(taken) else None
                yield _Progress(written, len(batch) - len(taken), left_over)
            if len(batch) < self.batch_rows:
                return
            self.throttle.wait(len(batch), self.work.advance)
            start, comparison = batch.ids[-1], ">"

    def _leave_out_large(self, batch: RowBatch) -> RowBatch:
        _, taken = self.index.loaded_model.project_taken(batch.vectors)
        self._left_out |= dict.fromkeys(batch.select(~taken).ids)
        return batch.select(taken)

    def _write(self, batch: RowBatch) -> int:
        """Compute and write the codes of a batch; return how many were written."""
        codes = CodeArray(self.index.loaded_model.encode(batch.vectors), self.index.n_bits)
        with self._transaction():
            written: int = self._execute(_WRITE, [batch.ids, codes]).rowcount
            if not written:
                self.index.check_current()
            else:
                # Landmarks may have been built meanwhile.
                self._execute(ASSIGN, [self.index.set_id])
        return written

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            # READ COMMITTED, to lock the newest version of a row. No hash join, which would hash
            # all codes for each batch. No wait for the disk: later runs find codes that a crash
            # lost.
            self._execute(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
                "SET LOCAL enable_hashjoin TO off; SET LOCAL synchronous_commit TO off"
            )
            yield

    def _first_missing(self) -> str | None:
        with self.connection.transaction():
            row = self._execute(FIRST_MISSING).fetchone()
        return None if row is None else row[0]

    def _execute(self, statement: LiteralString, values: list[Any] | None = None) -> Any:
        return execute(self.connection, statement, values, names=self.names)
