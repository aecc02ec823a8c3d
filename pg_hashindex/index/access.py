"""Encoding an index and building the access path that it is searched by.

Tables that Citus distributes need other functions. Only this module chooses them: `encode`,
`build_access`, `rebalance` and `verifier_of` call `citus` for such tables.

Searches use the previous access path until the new one is complete. PostgreSQL's indexes over the
codes are made CONCURRENTLY, so writers do not wait, and each is committed by itself, so an
interrupted run continues with the next one. The index that it was building is left INVALID, and is
dropped and built again.
"""

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from ..db.connection import execute, outside_transactions, translated_errors
from ..db.jobs import Job, progress_bar
from ..db.throttle import Throttle
from ..errors import DatabaseStateError
from . import building, citus, encoding
from .building import WHY_OUTSIDE, Rebalanced, _Build, drop_unused, end_left_rebalance, only_builder
from .catalog import Access, IndexRow, read_row
from .verifying import Verifier

_BUILDING: LiteralString = """
    SELECT i.building FROM hashindex.index i WHERE i.name = $1 AND i.building IS NOT NULL
"""

_MARK_ENCODED: LiteralString = """
    SELECT hashindex._mark_encoded(i) FROM hashindex.index i WHERE i.name = $1
"""

# Decided once, so that an interrupted run continues with b-trees of the same chunks.
_SET_CHUNKS: LiteralString = """
    UPDATE hashindex.index i
    SET chunks = hashindex._lookup_chunks({bits}, (SELECT pg_catalog.count({code}) FROM {codes}))
    WHERE i.name = $1 AND i.building = 'lookup' AND i.chunks IS NULL
"""

_INDEXES: LiteralString = """
    SELECT x.index_name, x.create_statement, x.attach_statement,
           -- An index of a table with partitions becomes valid with the last of theirs.
           (SELECT p.indisvalid OR c.relkind = 'I'
            FROM pg_catalog.pg_index p JOIN pg_catalog.pg_class c ON c.oid = p.indexrelid
            WHERE c.oid = to_regclass(x.index_name)::oid
               AND p.indrelid = to_regclass(x.relation)::oid)
    FROM hashindex.index i, hashindex._code_indexes(i, i.building) x
    WHERE i.name = $1
"""


def encode(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    progress: bool = False,
    rows_per_second: float | None = None,
) -> int:
    """Encode rows without a code, then build the access path; see `HashIndex.encode`."""

    def encode_missing(row: IndexRow) -> int:
        fill = citus.encode_shards if row.distributed else encoding.encode_missing
        return fill(row, batch_rows=batch_rows, progress=progress, rows_per_second=rows_per_second)

    with Job(index.connection, "encode", index.name):
        landmarks = is_building(index, "landmarks")
        # Building landmarks reads every row, and encodes it if SQL can.
        coded_by_build = landmarks and index.encoded_in == "sql"
        written = 0 if coded_by_build else encode_missing(index)
        built = build_access(index, progress=progress, rows_per_second=rows_per_second)
        if landmarks:
            # A partition may have been attached while the others were read. The build has replaced
            # the table of codes. Without this block, a connection that is not in autocommit mode
            # would begin a transaction.
            with translated_errors(index), index.connection.transaction():
                now = read_row(index.connection, index.name)
            written += encode_missing(now)
        with translated_errors(index), index.connection.transaction():
            _execute(index, _MARK_ENCODED, name=True)
    return written + built if coded_by_build else written


def rebalance(index: IndexRow, *, progress: bool = False) -> Rebalanced:
    """Build landmarks again, as many as the table calls for; see `HashIndex.rebalance`."""
    return building.rebalance(index, progress=progress, kind=_build_of(index))


def verifier_of(index: IndexRow) -> type[Verifier]:
    """Return the object that compares the codes of an index with its rows."""
    return citus.ShardVerifier if index.distributed else Verifier


def _build_of(index: IndexRow) -> type[_Build]:
    return citus.ShardBuild if index.distributed else _Build


def build_access(
    index: IndexRow, *, progress: bool = False, rows_per_second: float | None = None
) -> int:
    """Build the access path that the index is configured for, and have searches use it.

    Does nothing if there is none to build, or if it is landmarks and the table has no row to train
    them on. Needs a connection that is not inside a transaction.

    The index's row in the database counts: it may have been configured since it was opened. Returns
    the rows whose codes were put in the order of landmarks, 0 for other paths. PostgreSQL builds
    its own indexes at full speed, whatever ``rows_per_second`` says.
    """
    throttle = Throttle(rows_per_second)
    # CREATE INDEX CONCURRENTLY commits by itself, and so must not be inside a transaction.
    with (
        translated_errors(index),
        outside_transactions(index.connection, WHY_OUTSIDE),
        index.noticing_drops(),
    ):
        if _building(index) is None:
            end_left_rebalance(index)
            # A build that was interrupted at its very end has left the previous tables.
            drop_unused(index)
            return 0
        with only_builder(index), Job(index.connection, "encode", index.name) as job:
            index.check_current()
            path = _building(index)
            if path is None:
                return 0
            try:
                if path == "landmarks":
                    return _build_of(index)(index, job, throttle, progress).run() or 0
                built = _build_indexes(index, path, job, progress)
            except (psycopg.ProgrammingError, psycopg.InternalError) as error:
                index.check_current()
                # The missing part may be one that another session has dropped.
                if _building(index) != path:
                    raise _configured_otherwise(index, path) from error
                raise
            if built:
                job.phase(f"taking {path} into use")
                _finish(index, path)
            return 0


def _build_indexes(index: IndexRow, path: Access, job: Job, progress: bool) -> bool:
    """Build missing indexes; return whether all are there."""
    if path == "lookup":
        _execute(index, _SET_CHUNKS, name=True, codes=index.codes)
    rows = _execute(index, _INDEXES, name=True).fetchall()
    with progress_bar("indexing codes", len(rows), progress, "index") as bar:
        for number, (name, create, attach, valid) in enumerate(rows, 1):
            if _building(index) != path:
                return False
            job.phase(f"building index {number} of {len(rows)} for {path}")
            if valid is False:
                _execute(index, "DROP INDEX CONCURRENTLY {invalid}", invalid=sql.SQL(name))
            if not valid:
                _execute(index, "{ddl}", ddl=sql.SQL(create))
            if attach is not None:
                # Does nothing if it is attached already.
                _execute(index, "{ddl}", ddl=sql.SQL(attach))
            bar.update()
    if path == "lookup":
        # The planner needs statistics of the chunks, which are expressions in indexes.
        _execute(index, "ANALYZE {codes}", codes=index.codes)
    return True


def _finish(index: IndexRow, path: Access) -> None:
    with index.connection.transaction():
        now = _execute(index, _BUILDING + "FOR UPDATE", name=True).fetchone()
        if now != (path,):
            raise _configured_otherwise(index, path)
        _execute(index, "SELECT hashindex._finish_access($1)", name=True)
    drop_unused(index)


def _configured_otherwise(index: IndexRow, path: Access) -> DatabaseStateError:
    return DatabaseStateError(
        f"index {index.name!r} was configured otherwise while its access path {path} was built, or "
        "dropped; see: pg-hashindex index show"
    )


def is_building(index: IndexRow, path: Access) -> bool:
    """Return whether an access path waits to be built."""
    with translated_errors(index), index.connection.transaction():
        return _building(index) == path


def _building(index: IndexRow) -> Access | None:
    row = _execute(index, _BUILDING, name=True).fetchone()
    return None if row is None else row[0]


def _execute(
    index: IndexRow, statement: LiteralString, *, name: bool = False, **more: sql.Composable
) -> Any:
    """Run a statement about an index, with its name as $1 or without a parameter."""
    query = sql.SQL(statement).format(
        code=sql.Identifier(index.code_column),
        bits=sql.Literal(index.n_bits),
        **more,
    )
    return execute(index.connection, query, [index.name] if name else None)
