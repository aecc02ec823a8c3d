"""Bulk encoding: rows that have a vector but no code, in batches, beside live writes.

Each batch is two short transactions, so that neither a lock nor a snapshot of ours is ever held for
long: one reads a batch of rows in the order of the key; their codes are computed outside of any; one
writes them by one INSERT (or UPDATE, for codes in a column), to which keys and codes go as arrays.
What makes it safe beside writers:

- The triggers exist before the first batch. Where they encode, whatever is written later has its
  code already, and an INSERT that meets one does nothing.
- Where the model is evaluated in Python, they only take codes away, and nobody but us writes new
  ones: a code of what the batch held, written after the row's vector changed, would stay. So the
  batch holds each row's ``xmin`` too, the transaction that wrote this version of the row. The INSERT
  writes codes only where it is still the same, under a lock on the row. An update that committed
  before the lock has another xmin. One that comes later waits for us, and its trigger then finds
  our code and takes it away; where its snapshot is too old to see the code, the trigger fails.
- A row may be deleted, or its vector set to NULL, after its batch was read. The INSERT therefore
  locks the rows against writers while it writes their codes, and leaves out rows that are gone.
- It never waits for a writer (SKIP LOCKED), so it can be in no deadlock. Rows that it left out are
  found by the next pass; the work is done when no row is missing.
- The index may be dropped and made anew with another model, under the same names. Codes are written
  only while it is the one that we know.
- Batches commit without waiting for the disk. After a crash some may be gone, which leaves rows
  without codes, as if they had not been reached; the last transaction of all waits for the others.

A model that knows the rows of its training alone has no codes for others. They go on waiting, and
the work is done without them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

from psycopg import RawCursor, sql
from tqdm import tqdm

from ..db.batches import RowBatch, read_batch
from ..db.connection import check_idle, translated_errors
from ..db.jobs import Job
from ..db.locks import only_one
from ..db.throttle import Throttle
from ..errors import DatabaseStateError, InvalidInputError
from ..models.codes import CodeArray, CodeArrayDumper
from .catalog import IndexRow, Layout

__all__ = ["PRUNE", "encode_missing", "encoding_job"]

_BATCH_ROWS = 10_000
# Fewer rows of long vectors: about 16 MB a batch, of which several copies are made.
_BATCH_VALUES = 4_000_000
# A statement's parameters may have a gigabyte, with the longest keys and codes.
_MOST_BATCH_ROWS = 100_000

# A network may take 30 ms a row or 30 us: batches start small, and grow to about so many seconds.
_FIRST_NETWORK_ROWS = 32
_NETWORK_SECONDS = 2.0

# Passes that may find changed rows again, where writers make new work as fast as we do it.
_MOST_PASSES = 10

# Pages that are read to say how many rows there are to be encoded, of tables with twice as many.
_COUNTED_PAGES = 1000

# Seconds that rows may stay locked by others, without any progress, before we give up.
_PATIENCE = 60.0

# $1 is a key, $2 the most rows. Bounded on both sides of the anti-join, so that no batch looks at
# what earlier ones did.
_ROWS: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} $1::text::{type} AND b.{column} IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM {codes} c WHERE c.id = b.{id} AND c.id >= $1::text::{type}
          )
        ORDER BY b.{id} LIMIT $2
    """,
    "column": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} $1::text::{type} AND b.{column} IS NOT NULL
          AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT $2
    """,
}

# The keys alone are compared first, in the two indexes: where no row is missing, none is read.
_FIRST_MISSING: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text FROM (
            SELECT k.{id} AS id FROM {table} k
            WHERE NOT EXISTS (SELECT FROM {codes} c WHERE c.id = k.{id})
            ORDER BY k.{id} OFFSET 0
        ) missing JOIN {table} b ON b.{id} = missing.id
        WHERE b.{column} IS NOT NULL
        ORDER BY b.{id} LIMIT 1
    """,
    "column": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT 1
    """,
}

# To count all that is missing takes as long as encoding a few rows in a hundred.
_PAGES_OF_TABLE: LiteralString = """
    SELECT greatest(
        pg_relation_size({table_name}::regclass),
        (SELECT sum(pg_relation_size(p.relid)) FROM pg_partition_tree({table_name}::regclass) p)
    )::bigint / current_setting('block_size')::integer
"""

# $1 is how many pages in a hundred are read.
_SAMPLED_MISSING: dict[Layout, LiteralString] = {
    "table": """
        SELECT count(*) FROM {table} b TABLESAMPLE SYSTEM ($1)
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
    """,
    "column": """
        SELECT count(*) FROM {table} b TABLESAMPLE SYSTEM ($1)
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
    """,
}

# $1, $2 and $3 are the keys, versions and codes of a batch; a cast of the third to bit[] would cut
# each code down to one bit. What is asked of the index holds until the end: our lock on where the
# codes go keeps it from being dropped, and is taken before the statement's snapshot. Of several
# arrays unnest is PostgreSQL's own under any search_path; pg_catalog.unnest takes one.
_WRITE: dict[Layout, LiteralString] = {
    "table": """
        WITH present AS (
            SELECT b.{id} AS id, s.code{filter_values}
            FROM unnest($1::text[], $2::text[], $3) s(id, version, code)
            JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND {unchanged} AND {current}
            FOR SHARE OF b SKIP LOCKED
        )
        INSERT INTO {codes} (id, code{filter_targets})
        SELECT * FROM present p
        ON CONFLICT (id) DO NOTHING
    """,
    "column": """
        WITH present AS (
            SELECT b.{id} AS id, s.code
            FROM unnest($1::text[], $2::text[], $3) s(id, version, code)
            JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND b.{code} IS NULL AND {unchanged} AND {current}
            FOR NO KEY UPDATE OF b SKIP LOCKED
        )
        UPDATE {table} b SET {code} = p.code FROM present p
        WHERE b.{id} = p.id AND b.{code} IS NULL
    """,
}

# Rows that went with a detached partition, or while triggers were off. Who does not see every row
# must not take the others for gone. An array: DELETE with the condition itself would read both
# tables where the two indexes say it all.
PRUNE: LiteralString = """
    DELETE FROM {codes} c WHERE c.id = ANY (ARRAY(
        SELECT k.id FROM {codes} k
        WHERE NOT row_security_active({table_name}) AND {current}
          AND NOT EXISTS (SELECT FROM {table} b WHERE b.{id} = k.id)
    ))
"""


def encode_missing(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    progress: bool = False,
    rows_per_second: float | None = None,
) -> int:
    """Encode every row without a code, of a table on this node; see `HashIndex.encode`."""
    with encoding_job(index, batch_rows) as job:
        return _Encoder(index, batch_rows, Throttle(rows_per_second), job).run(progress)


@contextmanager
def encoding_job(index: IndexRow, batch_rows: int | None) -> Iterator[Job]:
    """Keep other encoders away, and enter the work into the list of jobs."""
    if batch_rows is not None and batch_rows < 1:
        raise InvalidInputError(f"batch_rows must be 1 or more, got {batch_rows}")
    check_idle(index.connection, "encoding commits batch by batch")
    # A second encoder would do the same work again, not harm.
    busy = f"index {index.name!r} is being encoded by another session; wait for it"
    with (
        translated_errors(index),
        index.noticing_drops(),
        only_one(index.connection, "encode", index.name, busy),
        Job(index.connection, "encode", index.name) as job,
    ):
        yield job


class _Progress(NamedTuple):
    """What became of a batch: rows by number, and the first one that is still to be done, if any."""

    written: int
    unknown: int
    left_over: str | None


class _Encoder:
    """One run over one index."""

    def __init__(
        self, index: IndexRow, batch_rows: int | None, throttle: Throttle, job: Job
    ) -> None:
        self.index, self.throttle, self.job = index, throttle, job
        self.connection = index.connection
        # Outside of a transaction of ours, a connection that is not in autocommit mode begins one.
        with self.connection.transaction():
            index.check_current()
            self.model = index.loaded_model
        self.most_rows = max(1, min(_BATCH_ROWS, _BATCH_VALUES // index.dimension))
        if batch_rows is not None:
            self.most_rows = min(batch_rows, _MOST_BATCH_ROWS)
        self.most_rows = throttle.batch_size(self.most_rows)
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
            "type": sql.SQL(index.key_type),
            "codes": sql.Identifier(index.code_schema, index.code_table),
            "code": sql.Identifier(index.code_column),
            "version": sql.SQL("NULL" if in_sql else "b.xmin::text"),
            "current": index.is_current,
            "unchanged": sql.SQL("true" if in_sql else "b.xmin::text = s.version"),
            "filter_targets": sql.SQL("").join(
                sql.SQL(", {}").format(sql.Identifier(f"filter_{n}"))
                for n in range(1, 1 + len(index.filter_columns))
            ),
            "filter_values": sql.SQL("").join(
                sql.SQL(", b.{} AS {}").format(sql.Identifier(name), sql.Identifier(f"filter_{n}"))
                for n, name in enumerate(index.filter_columns, 1)
            ),
        }

    def run(self, progress: bool) -> int:
        written, passes = 0, 0
        stuck_since = time.monotonic()
        start = self._first_missing()
        missing = 0
        if start is not None:
            self.job.phase("encoding")
            missing = self._count_missing(exactly=progress)
            self.job.expect(missing)
        with tqdm(
            total=missing, unit="row", unit_scale=True, desc="encoding", disable=not progress
        ) as bar:
            while start is not None and passes < _MOST_PASSES:
                before, left_over = written, None
                for batch in self._pass(start):
                    written += batch.written
                    left_over = left_over or batch.left_over
                    done = batch.written + (0 if passes else batch.unknown)
                    bar.update(done)
                    self.job.advance(done)
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
                    self.job.advance()
                    time.sleep(0.1)
        with self.connection.transaction():
            if self.index.layout == "table":
                self._execute("SELECT hashindex._assign_missing($1)", [self.index.name])
                self._execute(PRUNE)
                self._execute("ANALYZE {codes}")
            if written:
                # Something of our own to commit, whoever we are: that waits for all before it.
                self._execute("SELECT pg_logical_emit_message(true, 'hashindex', 'encoded')")
        return written

    def _count_missing(self, *, exactly: bool) -> int:
        """Count the rows to be encoded, of a large table from some of its pages."""
        with self.connection.transaction():
            if not exactly:
                (pages,) = self._execute(_PAGES_OF_TABLE).fetchone()
                if pages > 2 * _COUNTED_PAGES:
                    percent: float = 100 * _COUNTED_PAGES / pages
                    seen: int = self._execute(
                        _SAMPLED_MISSING[self.index.layout], [percent]
                    ).fetchone()[0]
                    return round(100 * seen / percent)
            return self.index.waiting()

    def _stuck(self, row: str, written: int) -> DatabaseStateError:
        what = "locked by another transaction"
        if self.index.encoded_in == "python":
            what = "locked or changed by other transactions"
        return DatabaseStateError(
            f"row {row} of {self.index.qualified_table} has been {what} for {_PATIENCE:.0f} s; "
            f"{written} codes were written, run the encoding again when they have ended"
        )

    def _pass(self, start: str) -> Iterator[_Progress]:
        """Walk over the table once from a key on."""
        comparison = ">="
        while True:
            asked, began = self.batch_rows, time.monotonic()
            with self._transaction():
                batch = read_batch(
                    self.connection,
                    self._query(_ROWS[self.index.layout], comparison=sql.SQL(comparison)),
                    [start, asked],
                    rows=asked,
                    dimension=self.model.dimension,
                    table=self.index.qualified_table,
                )
            if len(batch):
                known = self._known(batch)
                written = self._write(known) if len(known) else 0
                left_over = known.ids[0] if written < len(known) else None
                yield _Progress(written, len(batch) - len(known), left_over)
            if len(batch) < asked:
                return
            if self.adapts:
                wanted = asked * _NETWORK_SECONDS / max(time.monotonic() - began, 1e-3)
                self.batch_rows = max(1, min(int(wanted), 4 * asked, self.most_rows))
            self.throttle.wait(len(batch), self.job.advance)
            start, comparison = batch.ids[-1], ">"

    def _known(self, batch: RowBatch) -> RowBatch:
        """Leave out the rows that the model has no code for."""
        if self.model.network is None or self.model.network.kind != "rows":
            return batch
        return batch.select(self.model.network.knows(batch.vectors))

    def _write(self, batch: RowBatch) -> int:
        """Compute and write the codes of a batch; return how many rows have got one."""
        codes = CodeArray(self.model.encode(batch.vectors), self.model.n_bits)
        versions = batch.versions if self.index.encoded_in == "python" else None
        with self._transaction():
            written: int = self._execute(
                _WRITE[self.index.layout], [batch.ids, versions, codes]
            ).rowcount
            if not written:
                self.index.check_current()
            elif self.index.layout == "table":
                # Under the landmarks that there may be by now.
                self._execute("SELECT hashindex._assign_missing($1)", [self.index.name])
        return written

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            # Locking the newest version of a row, whatever the session's default level is. A batch
            # in the order of the key index: a hash of all codes would be made for each.
            # A commit waits for no disk: codes that a crash takes are found to be missing.
            self._execute(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
                "SET LOCAL enable_hashjoin TO off; SET LOCAL synchronous_commit TO off"
            )
            yield

    def _first_missing(self) -> str | None:
        with self.connection.transaction():
            row = self._execute(_FIRST_MISSING[self.index.layout]).fetchone()
        return None if row is None else row[0]

    def _execute(self, statement: LiteralString, values: list[Any] | None = None) -> Any:
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        cursor = RawCursor(self.connection)
        cursor.adapters.register_dumper(CodeArray, CodeArrayDumper)
        return cursor.execute(self._query(statement), values)

    def _query(self, statement: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(statement).format(**self.names, **names)
