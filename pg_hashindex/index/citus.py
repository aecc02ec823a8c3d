"""Indexes on tables that Citus distributes; ``sql/155_citus.sql`` makes the changes.

Each node encodes its own rows: one statement goes to all shards, and encodes the rows in some pages
of each. A batch is a transaction, so an interrupted run can continue, and a writer waits for one
batch at the most. The statement reads a snapshot and locks no row, so a row may be deleted while
its code is written. Therefore a run ends by waiting for all writers, and then deletes such codes.
"""

import time
from collections.abc import Iterator
from typing import Any, LiteralString

from psycopg import sql

from ..db.citus import is_distributed
from ..db.connection import EXTENSION
from ..db.locks import retry_while_locked
from ..db.rows import part
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute
from ..db.throttle import Throttle
from ..db.work import Work
from ..errors import DatabaseStateError, InUseError, InvalidInputError
from ..models.vectors import are_trainable, warn_of_left_out
from .access import drop_unused
from .catalog import IndexRow
from .encoding import only_encoder
from .landmarks.building import LandmarkBuild
from .landmarks.table_blocks import Block, WrongDimensionError, read_blocks
from .landmarks.training import Centres, Round
from .verifying import Verifier

# Pages of each shard in the first batch, and the seconds that each later batch should take.
_FIRST_PAGES = 32
_BATCH_SECONDS = 1.0

# The most passes over the table. When shards move, their rows come into other pages, and another
# pass is needed.
_MOST_PASSES = 10

_SAMPLE: LiteralString = """
    SELECT {key}, {tenant_number}b.{column} FROM {table} b
    {part}{tenants} WHERE b.{column} IS NOT NULL
"""

# {entry} is the index as it is now, or with the landmarks that are being built.
_ENCODE: LiteralString = """
    SELECT hashindex._encode_shards({entry}, $2, $3) FROM hashindex.index i WHERE i.name = $1
"""

# Nodes look landmarks and codes up by their indexes: before there are statistics, the planner would
# have each batch read all of them. Landmarks are looked up with the effort of triggers.
_SETTINGS: tuple[LiteralString, ...] = (
    "SET LOCAL citus.propagate_set_commands TO 'local'",
    "SET LOCAL enable_seqscan TO off",
    "SET LOCAL enable_hashjoin TO off",
    "SET LOCAL enable_mergejoin TO off",
    "SET LOCAL hnsw.ef_search TO 16",
)

_PRUNE: LiteralString = """
    SELECT hashindex._prune_shards({entry}) FROM hashindex.index i WHERE i.name = $1
"""

# Keys of rows without a code whose numbers are too large for the model.
_LEFT_OUT: LiteralString = """
    SELECT hashindex._left_out_of_shards({entry}) FROM hashindex.index i WHERE i.name = $1
"""

# When the lock is granted, all transactions that wrote to the table before have ended.
_LOCK: LiteralString = "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"

_MOST_PAGES: LiteralString = """
    SELECT coalesce(max(r.result::bigint), 0) / current_setting('block_size')::integer + 1
    FROM pg_catalog.run_command_on_shards($1, 'SELECT pg_relation_size(''%s'')') r WHERE r.success
"""

# Codes of one list share pages then. Writers of a shard wait meanwhile, 50 ms for 37,000 codes. A
# shard that others lock for long stays as it is.
_IN_ORDER: LiteralString = """
    SELECT count(*) FROM pg_catalog.run_command_on_shards($1, $2)
"""
_CLUSTER = query("shards.cluster")


def distribute(index: IndexRow) -> None:
    """Bring an index to the shards of its table; see `HashIndex.distribute`."""
    with translated_errors(index):
        _Shards(index).change(("SELECT hashindex.distribute($1)", [index.name]))


def encode_shards(
    index: IndexRow,
    throttle: Throttle,
    *,
    batch_rows: int | None = None,
) -> int:
    """Encode rows without a code of a distributed table; each node encodes its own.

    As `HashIndex.encode`, but batches are pages here, so ``batch_rows`` is refused.
    """
    with only_encoder(index, batch_rows) as work:
        if batch_rows is not None:
            raise InvalidInputError(
                f"batch_rows is {batch_rows}, and the rows of distributed table "
                f"{index.qualified_table} are encoded by pages; leave batch_rows out"
            )
        with index.connection.transaction():
            index.check_current()
            codes = index.codes.as_string(index.connection)
            if not is_distributed(index.connection, codes):
                raise DatabaseStateError(
                    f"the table of index {index.name!r} was distributed after its codes were made; "
                    f"run: pg-hashindex index distribute {index.name}"
                )
        shards = _Shards(index)
        written = shards.encode(work, throttle)
    if shards.left_out:
        warn_of_left_out(
            index.qualified_table,
            shards.left_out,
            len(shards.left_out),
            f"for model {index.model_name}, so that searches by codes miss them",
        )
    index.warn_of_long_tenants()
    return written


class _Shards:
    """The shards of an index's table and of one of its tables of codes."""

    def __init__(self, index: IndexRow, *, coming: sql.Identifier | None = None) -> None:
        self.index, self.connection = index, index.connection
        # Keys of rows whose numbers are too large for the model.
        self.left_out: list[str] = []
        self._names = index.names_with_codes(coming) | {
            "entry": sql.SQL("hashindex._next_of(i)" if coming else "i"),
        }

    def encode(self, work: Work, throttle: Throttle) -> int:
        """Encode rows without a code, some pages of all shards at a time; return how many."""
        written, missing, passes = 0, self.missing(), 0
        with work.phase("encoding", missing) as bar:
            while missing > len(self.left_out):
                passes += 1
                if passes > _MOST_PASSES:
                    raise InUseError(
                        f"{missing} rows of {self.index.qualified_table} have no code after "
                        f"{_MOST_PASSES} passes over all shards; run the command again when no "
                        "shards are being moved"
                    )
                for done in self._pass(throttle):
                    written += done
                    bar.update(done)
                    throttle.wait(done, work.advance)
                missing = self._missing_now()
        work.phase("waiting for writers")
        self.change((_LOCK, None))
        with self.connection.transaction():
            self.execute(_PRUNE, [self.index.name])
        # The transaction is its own: Citus does not mix this with local statements.
        with self.connection.transaction():
            self.execute("ANALYZE {codes}")
        return written

    def _missing_now(self) -> int:
        """Count the rows that have no code, and note which of them the model cannot take."""
        missing = self.missing()
        if missing:
            with self.connection.transaction():
                for setting in _SETTINGS:
                    self.execute(setting)
                rows = self.execute(_LEFT_OUT, [self.index.name]).fetchall()
            self.left_out = [row[0] for row in rows]
        return missing

    def missing(self) -> int:
        """Count the rows that have a vector and no code."""
        with self.connection.transaction():
            return self.index.waiting(codes=self._names["codes"])

    def put_in_order(self) -> None:
        """Write the codes of each shard in the order of their landmarks."""
        codes = self._names["codes"].as_string(self.connection)
        with self.connection.transaction():
            self.execute(_IN_ORDER, [codes, _CLUSTER])

    def change(self, *statements: tuple[LiteralString, list[Any] | None]) -> None:
        """Run statements that lock on all nodes, without keeping others waiting."""

        def run() -> None:
            # Other nodes wait for locks as long as this one, and no longer.
            self.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
            self.execute("SET LOCAL lock_timeout TO 200")
            for statement, values in statements:
                self.execute(statement, values)

        retry_while_locked(self.connection, run, table=self.index.qualified_table)

    def execute(self, statement: LiteralString, values: list[Any] | None = None) -> Any:
        """Run a statement; its parameters are ``$1``, ``$2``, ..."""
        query = sql.SQL(statement).format(**self._names)
        return execute(self.connection, query, values)

    def _pass(self, throttle: Throttle) -> Iterator[int]:
        """Go over the pages of all shards once; yield how many rows each batch encoded."""
        with self.connection.transaction():
            (pages,) = self.execute(_MOST_PAGES, [self.index.qualified_table]).fetchone()
        page, size = 0, _FIRST_PAGES
        while page < pages:
            began = time.monotonic()
            with self.connection.transaction():
                for setting in _SETTINGS:
                    self.execute(setting)
                row = self.execute(_ENCODE, [self.index.name, page, page + size]).fetchone()
            if row is None:
                self.index.check_current()
            done: int = row[0]
            page += size
            seconds = max(time.monotonic() - began, 1e-3)
            size = max(1, min(4 * size, int(size * _BATCH_SECONDS / seconds)))
            if done:
                size = max(1, min(size, size * throttle.batch_size(10 * done) // done))
            yield done


class ShardBuild(LandmarkBuild):
    """Landmarks of a distributed table on every node, with new codes beside those in use.

    Triggers write both until the landmarks are in use.
    """

    def run(self) -> int | None:
        """Build landmarks; return the rows, None where there is none to train on."""
        (rows,) = self._execute("SELECT count({column}) FROM {table}").fetchone()
        if not self._continues("codes_in_order"):
            self.work.phase("training landmarks")
            centres = self._train(rows)
            if centres is None:
                return None
            self._make_landmarks(centres)
            self.work.phase("waiting for a lock to start writing both codes")
            _Shards(self.index).change(
                (_LOCK, None), ("SELECT hashindex._begin_shard_codes($1)", [self.index.name])
            )
        coming = self._names["codes_in_order"]
        assert isinstance(coming, sql.Identifier)  # noqa: S101
        shards = _Shards(self.index, coming=coming)
        shards.encode(self.work, self.throttle)
        self.work.phase("putting codes in the order of their landmarks")
        shards.put_in_order()
        self.work.phase("switching to the new landmarks")
        shards.change(("SELECT hashindex._finish_build($1, $2)", [self.index.name, rows]))
        # Transactions that began before still write to the old codes, which are dropped now.
        shards.change((_LOCK, None))
        drop_unused(self.index)
        return int(rows) - len(shards.left_out)

    def _drawn(self, share: float, seed: int) -> Iterator[Block]:
        """Read a random share of the rows of all shards, by one query."""
        query = sql.SQL(_SAMPLE).format(**self._names, part=part(share, seed, rows=0))
        with self.connection.transaction():
            try:
                yield from read_blocks(
                    self.connection,
                    query,
                    self._block_rows,
                    dimension=self.index.dimension,
                    key_columns=len(self.index.key_columns),
                    has_tenants=self._has_tenants,
                )
            except WrongDimensionError:
                raise self._wrong_dimension() from None

    def _count_jobs(self, rows: int, n_landmarks: int) -> int:
        return 1

    def _read_round(self, round_: Round, share: float, seed: int) -> None:
        for block in self._drawn(share, seed):
            round_.add(block.select(are_trainable(block.vectors)).vectors)

    def _make_landmarks(self, centres: Centres) -> None:
        with self.connection.transaction():
            self._lock_entry()
            (generation,) = self._execute(
                "SELECT (hashindex._begin_generation($1)).next_generation", [self.index.name]
            ).fetchone()
            self._set_generation(generation)
            self._write_landmarks(self._halves(centres))
        # Use connections to this node too, since Citus does not mix them with local execution.
        with self.connection.transaction():
            self._execute("SET LOCAL citus.enable_local_execution TO off")
            self._execute("SELECT hashindex._index_landmarks($1)", [self.index.name])


class ShardVerifier(Verifier):
    """The codes of a distributed table, compared on their nodes."""

    def drop_gone(self) -> int:
        """Delete codes whose row is gone or has no vector; return how many."""
        self.work.phase("removing codes without rows")
        return int(_Shards(self.index).execute(_PRUNE, [self.index.name]).fetchone()[0])

    def verify(self, table: str) -> int:
        """Delete codes that differ from a fresh encoding of their rows; return how many."""
        self.work.phase("verifying codes")
        statement: LiteralString = """
            DELETE FROM {codes} c USING {table} b WHERE ({key}) = ({code_key})
              AND b.{column} IS NOT NULL
              AND (c.code IS DISTINCT FROM {encode}(b.{column}::{ext}.vector, true))
        """
        row = self._execute(EXTENSION).fetchone()
        encode = sql.Identifier("hashindex", f"encode_{self.index.storage}")
        return int(self._execute(statement, encode=encode, ext=sql.Identifier(row[0])).rowcount)

    def list_missing(self) -> int:
        """Delete codes that are in no list of a landmark; return how many."""
        self.work.phase("looking for rows in no list")
        landmarks = self.index.landmarks
        if landmarks is None:
            return 0
        statement: LiteralString = (
            "DELETE FROM {codes} c "
            "WHERE NOT EXISTS (SELECT FROM {landmarks} l WHERE l.landmark = c.landmark)"
        )
        if self.index.tenant_column is not None:
            # A small tenant has none, and `encode` has given the others theirs.
            statement += " AND c.landmark IS NOT NULL"
        return int(self._execute(statement, landmarks=landmarks).rowcount)
