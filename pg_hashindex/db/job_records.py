"""The rows of ``hashindex.job``: written in short transactions of their own, or not at all."""

from collections.abc import Callable, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import RawCursor
from psycopg.pq import TransactionStatus

from ..errors import HashIndexError
from .connection import Connection, translated_errors

__all__ = ["JobRecord"]

_KEPT = 1000
_MESSAGE_CHARACTERS = 1000

# We wait for nobody, nor for the disk but at the end: a crash would make a dead job of one that is
# done.
_SETTINGS: LiteralString = """
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s'
"""
_IN_HASTE: LiteralString = "; SET LOCAL synchronous_commit TO off"

_MAY_RECORD: LiteralString = """
    SELECT NOT current_setting('transaction_read_only')::boolean
           AND has_schema_privilege('hashindex', 'USAGE')
           AND has_table_privilege('hashindex.job', 'SELECT')
           AND has_table_privilege('hashindex.job', 'INSERT')
           AND has_table_privilege('hashindex.job', 'UPDATE'),
           has_table_privilege('hashindex.job', 'DELETE')
"""

_PRUNE: LiteralString = """
    DELETE FROM hashindex.job
    WHERE id <= (SELECT pg_catalog.max(id) FROM hashindex.job) - $1 AND state <> 'running'
"""

_BEGIN: LiteralString = """
    INSERT INTO hashindex.job (kind, subject, phase, rows_done, rows_total, pid, lock)
    VALUES ($1, $2, $3, $4, $5, pg_backend_pid(), hashindex._hold()) RETURNING id, lock
"""

_WRITE: LiteralString = """
    UPDATE hashindex.job
    SET phase = $2, rows_done = $3, rows_total = $4, heartbeat_at = clock_timestamp(),
        phase_started_at = CASE WHEN $5 THEN clock_timestamp() ELSE phase_started_at END
    WHERE id = $1
"""

_END: LiteralString = """
    UPDATE hashindex.job
    SET phase = $2, rows_done = $3, rows_total = $4, state = $5, message = $6,
        heartbeat_at = clock_timestamp(), ended_at = clock_timestamp()
    WHERE id = $1
"""


class JobRecord:
    """The row of one job, and the lock that says that it runs.

    Where it cannot be written, the job goes on without.

    Parameters
    ----------
    connection : psycopg.Connection
        Nothing is written while it is inside a transaction.
    kind, subject : str
    supersedes : sequence of str
        Kinds of dead jobs of this subject that the job goes on with.
    """

    def __init__(
        self, connection: Connection, kind: str, subject: str, supersedes: Sequence[str]
    ) -> None:
        self.connection, self.kind, self.subject = connection, kind, subject
        self.supersedes = list(supersedes)
        self._id: int | None = None
        self._lock: int | None = None
        self._may_record = True

    def write(self, phase: str, done: int, total: int | None, *, new_phase: bool) -> bool:
        """Write how far the job is; the first time begins the row. Return whether it is written."""
        if not self._may_record or not _is_idle(self.connection):
            return False

        def begin(cursor: RawCursor[Any]) -> None:
            if not self._end_dead(cursor):
                return
            row = cursor.execute(_BEGIN, [self.kind, self.subject, phase, done, total]).fetchone()
            assert row is not None  # noqa: S101
            self._id, self._lock = row

        def update(cursor: RawCursor[Any]) -> None:
            cursor.execute(_WRITE, [self._id, phase, done, total, new_phase])

        if self._id is not None:
            return _briefly(self.connection, update)
        # What went wrong once would go wrong each second.
        self._may_record = _briefly(self.connection, begin) and self._may_record
        return self._may_record

    def end(self, phase: str | None, done: int, total: int | None, error: str | None) -> None:
        """Write that the job is done, or why it failed, and give the lock back."""
        if self._id is None:
            return
        state = "done" if error is None else "failed"
        message = error and error[:_MESSAGE_CHARACTERS]
        values = [self._id, phase, done, total, state, message]
        try:
            _briefly(self.connection, lambda cursor: cursor.execute(_END, values), durable=True)
            # After its end is to be seen: a row without a lock is dead until then.
            _briefly(
                self.connection,
                lambda cursor: cursor.execute("SELECT pg_advisory_unlock($1)", [self._lock]),
            )
        except HashIndexError:
            # Whatever ended the job says more than this.
            if error is None:
                raise

    def end_dead(self) -> None:
        """Mark the dead jobs that this one goes on with as failed."""
        _briefly(self.connection, self._end_dead)

    def _end_dead(self, cursor: RawCursor[Any]) -> bool:
        """Do that; return whether there may be a record at all."""
        self._may_record, may_prune = cursor.execute(_MAY_RECORD).fetchone() or (False, False)
        if not self._may_record:
            return False
        cursor.execute(
            "SELECT hashindex._end_dead_jobs($1, $2, $3)",
            [self.supersedes, self.subject, "superseded: a later run went on with it"],
        )
        if may_prune:
            cursor.execute(_PRUNE, [_KEPT])
        return True


def _is_idle(connection: Connection) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


def _briefly(
    connection: Connection, work: Callable[[RawCursor[Any]], object], *, durable: bool = False
) -> bool:
    """Do something in a short transaction; return whether that went well."""
    if not _is_idle(connection):
        return False
    try:
        with connection.transaction():
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            cursor = RawCursor(connection)
            cursor.execute(_SETTINGS if durable else _SETTINGS + _IN_HASTE)
            work(cursor)
    except psycopg.Error as error:
        # A cancelled statement is meant for the run.
        if connection.closed or isinstance(error, psycopg.errors.QueryCanceled):
            with translated_errors():
                raise
        return False
    return True
