"""Encoding an index and building the access path that it is searched by.

Tables that Citus distributes need other functions. Only this module chooses them: `encode`,
`build_access`, `rebalance` and `verifier_of` call `citus` for such tables.

Searches use the previous access path until the new one is complete.
"""

from typing import LiteralString

import psycopg

from ..db.connection import outside_transactions
from ..db.jobs import Job
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..db.throttle import Throttle
from ..errors import DatabaseStateError
from . import building, citus, encoding
from .building import WHY_OUTSIDE, Rebalanced, _Build, drop_unused, end_left_rebalance, only_builder
from .catalog import IndexRow, read_row
from .verifying import Verifier

_BUILDING: LiteralString = """
    SELECT FROM hashindex.index i WHERE i.name = $1 AND i.building IS NOT NULL
"""

_MARK_ENCODED: LiteralString = """
    SELECT hashindex._mark_encoded(i) FROM hashindex.index i WHERE i.name = $1
"""


def encode(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    rows_per_second: float | None = None,
) -> int:
    """Encode rows without a code, then build the access path; see `HashIndex.encode`."""

    def encode_missing(row: IndexRow) -> int:
        fill = citus.encode_shards if row.distributed else encoding.encode_missing
        return fill(row, batch_rows=batch_rows, rows_per_second=rows_per_second)

    with Job(index.connection, "encode", index.name):
        with translated_errors(index), index.connection.transaction():
            landmarks = _waits_for_landmarks(index)
        # Building landmarks reads every row, and encodes it if SQL can.
        coded_by_build = landmarks and index.encoded_in == "sql"
        written = 0 if coded_by_build else encode_missing(index)
        built = build_access(index, rows_per_second=rows_per_second)
        if landmarks:
            # A partition may have been attached while the others were read. The build has replaced
            # the table of codes. Without this block, a connection that is not in autocommit mode
            # would begin a transaction.
            with translated_errors(index), index.connection.transaction():
                now = read_row(index.connection, index.name)
            written += encode_missing(now)
        with translated_errors(index), index.connection.transaction():
            execute(index.connection, _MARK_ENCODED, [index.name])
    return written + built if coded_by_build else written


def rebalance(index: IndexRow) -> Rebalanced:
    """Build landmarks again, as many as the table calls for; see `HashIndex.rebalance`."""
    return building.rebalance(index, kind=_build_of(index))


def verifier_of(index: IndexRow) -> type[Verifier]:
    """Return the object that compares the codes of an index with its rows."""
    return citus.ShardVerifier if index.distributed else Verifier


def _build_of(index: IndexRow) -> type[_Build]:
    return citus.ShardBuild if index.distributed else _Build


def build_access(index: IndexRow, *, rows_per_second: float | None = None) -> int:
    """Build the access path that the index is configured for, and have searches use it.

    Does nothing if there is none to build, or if it is landmarks and the table has no row to train
    them on. Needs a connection that is not inside a transaction.

    The index's row in the database counts: it may have been configured since it was opened. Returns
    the rows whose codes were put in the order of landmarks. PostgreSQL builds its own indexes at
    full speed, whatever ``rows_per_second`` says.
    """
    throttle = Throttle(rows_per_second)
    with (
        translated_errors(index),
        outside_transactions(index.connection, WHY_OUTSIDE),
        index.reporting_drops(),
    ):
        if not _waits_for_landmarks(index):
            end_left_rebalance(index)
            # A build that was interrupted at its very end has left the previous tables.
            drop_unused(index)
            return 0
        with only_builder(index), Job(index.connection, "encode", index.name) as job:
            index.check_current()
            if not _waits_for_landmarks(index):
                return 0
            try:
                return _build_of(index)(index, job, throttle).run() or 0
            except (psycopg.ProgrammingError, psycopg.InternalError) as error:
                index.check_current()
                # The missing part may be one that another session has dropped.
                if not _waits_for_landmarks(index):
                    raise DatabaseStateError(
                        f"index {index.name!r} was configured otherwise while its landmarks were "
                        "built, or dropped; see: pg-hashindex index show"
                    ) from error
                raise


def _waits_for_landmarks(index: IndexRow) -> bool:
    return execute(index.connection, _BUILDING, [index.name]).fetchone() is not None
