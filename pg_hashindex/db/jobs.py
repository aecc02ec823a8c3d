"""Long runs and their progress, which other sessions see in ``hashindex.job``.

The session of a run holds an advisory lock, and the run's row has the lock's number. If a row says
"running" but its process does not hold the lock, the process or the server was killed, and the view
``hashindex.jobs`` calls the job dead. Rows are written in short transactions of their own. If that
fails, because a right is missing say, the run continues without a record.
"""

import shlex
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, LiteralString, get_args

import psycopg
from psycopg.pq import TransactionStatus

from ..errors import HashIndexError
from .connection import Connection
from .locks import hold
from .owners import prepare_schema
from .progress import Progress
from .server_errors import translated_errors
from .statements import execute, one_row, read_as

__all__ = ["Job", "JobKind", "JobRow", "JobState", "end_dead", "list_jobs"]

JobKind = Literal["encode", "swap", "tune", "rebalance", "repair"]
JobState = Literal["running", "dead", "done", "failed"]

# Seconds between two writes of a row; the start of a phase is written at once.
_BEAT = 1.0
_KEPT = 1000
_MESSAGE_CHARACTERS = 1000

# Writes wait for no lock. Only the last one waits for the disk: without, a crash would make a
# finished job look dead.
_SETTINGS: LiteralString = """
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s'
"""
_IN_HASTE: LiteralString = "; SET LOCAL synchronous_commit TO off"

# $1 are kinds and $2 is a subject; NULL stands for all. The state is checked again, since a job may
# end at this moment.
_END_DEAD: LiteralString = """
    UPDATE hashindex.job j SET state = 'failed', message = $3, ended_at = clock_timestamp()
    WHERE j.state = 'running' AND ($1::text[] IS NULL OR j.kind = ANY ($1::text[]))
      AND ($2::text IS NULL OR j.subject = $2::text)
      AND j.id = ANY (ARRAY(SELECT d.id FROM hashindex.jobs d WHERE d.state = 'dead'))
"""

_PRUNE: LiteralString = """
    DELETE FROM hashindex.job
    WHERE id <= (SELECT pg_catalog.max(id) FROM hashindex.job) - $1 AND state <> 'running'
"""

_BEGIN: LiteralString = """
    INSERT INTO hashindex.job (kind, subject, phase, rows_done, rows_total, pid, lock)
    VALUES ($1, $2, $3, $4, $5, pg_backend_pid(), $6) RETURNING id
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

_LIST: LiteralString = """
    SELECT j.id, j.kind, j.subject, j.phase, j.state, j.rows_done, j.rows_total, j.rows_per_second,
           j.time_left, j.started_at, j.heartbeat_at, j.ended_at, j.role, j.pid, j.message,
           EXISTS (SELECT FROM hashindex.index i WHERE i.name = j.subject) AS is_index,
           (SELECT pg_catalog.format('%s:%s', m.name, m.version)
            FROM hashindex.index x JOIN hashindex.model m ON m.id = x.model_id
            WHERE x.swap_of = j.subject AND x.swap_state IN ('next', 'ready')) AS next_model
    FROM hashindex.jobs j
    ORDER BY j.id
"""


class Job:
    """A run, as a context manager; its record begins with the first phase.

    A job inside another one on the same connection is a part of it: the outer job shows its phases.

    A job continues the dead jobs of its kind and subject, which are marked as failed. A repair
    continues dead jobs of any kind.

    Kinds are those of `JobKind`; the subject is the name of the index, or of the table. Progress
    inside a transaction is not written.
    """

    def __init__(self, connection: Connection, kind: JobKind, subject: str) -> None:
        self.connection, self.kind, self.subject = connection, kind, subject
        self._around: Job | None = None
        self._token: Token[Job | None] | None = None
        # The last phase of this job itself, not of a job inside it.
        self._own_phase: str | None = None
        # Only the outermost job uses the following: its record and message.
        self._phase: str | None = None
        self._done = 0
        self._total: int | None = None
        self._new_phase = False
        self._next_beat = 0.0
        self._id: int | None = None
        self._lock: int | None = None
        self._may_record = True

    @property
    def _outermost(self) -> "Job":
        return self if self._around is None else self._around._outermost

    def __enter__(self) -> "Job":
        current = _CURRENT.get()
        if current is not None and current.connection is self.connection:
            self._around = current
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        if self._around is not None:
            if error is None:
                self._around._resume_phase()
        elif self._phase is not None:
            message = None
            if isinstance(error, KeyboardInterrupt):
                message = "stopped by the user"
            elif error is not None:
                message = str(error).strip() or type(error).__name__
            self._end(message)
        elif error is None:
            # There was nothing to do, so dead jobs of this work have nothing left to continue.
            self._briefly(self._end_dead)

    def phase(self, name: str, total: int | None = None, unit: str = "row") -> Progress:
        """Begin a phase, of so many rows if that is known.

        Count rows by `advance`, or to have a bar too, by the progress returned.
        """
        self._own_phase = name
        self._outermost._begin_phase(name, total)
        return Progress(name, total, unit, self)

    def expect(self, total: int) -> None:
        """Set the number of rows of the phase, once it is known."""
        job = self._outermost
        job._total = total
        job._write()

    def advance(self, rows: int = 0) -> None:
        """Count rows that are done; others see it within a second."""
        job = self._outermost
        job._done += rows
        if job._total is not None:
            # The total may be an estimate, and writers add rows.
            job._total = max(job._total, job._done)
        if time.monotonic() >= job._next_beat:
            job._write()

    def _resume_phase(self) -> None:
        """Return to the phase before the inner job began."""
        job = self._outermost
        if self._own_phase is not None:
            if job._phase != self._own_phase:
                job._begin_phase(self._own_phase, None)
        elif self._around is not None:
            self._around._resume_phase()

    def _begin_phase(self, name: str, total: int | None) -> None:
        self._phase, self._done, self._total, self._new_phase = name, 0, total, True
        self._write()

    def _write(self) -> None:
        """Write the job's progress; the first call begins the record."""
        self._next_beat = time.monotonic() + _BEAT
        if self._phase is None or not self._may_record or not self._is_idle():
            return
        values = [self._phase, self._done, self._total]

        def begin() -> None:
            self._end_dead()
            self._lock = hold(self.connection)
            begun = [self.kind, self.subject, *values, self._lock]
            (self._id,) = one_row(self.connection, _BEGIN, begun)

        if self._id is None:
            # The statement stands by itself, since it takes another right.
            self._briefly(lambda: execute(self.connection, _PRUNE, [_KEPT]))
            # A write that failed once, for want of a right say, would fail each second.
            written = self._may_record = self._briefly(begin)
        else:
            written = self._briefly(
                lambda: execute(self.connection, _WRITE, [self._id, *values, self._new_phase])
            )
        self._new_phase = self._new_phase and not written

    def _end(self, error: str | None) -> None:
        """Write that the job is done, or why it failed, and give the lock back."""
        if self._id is None:
            return
        state = "done" if error is None else "failed"
        message = error and error[:_MESSAGE_CHARACTERS]
        values = [self._id, self._phase, self._done, self._total, state, message]
        try:
            self._briefly(lambda: execute(self.connection, _END, values), durable=True)
            # The lock is released after the end is written: a running row without a lock counts as
            # dead.
            self._briefly(
                lambda: execute(self.connection, "SELECT pg_advisory_unlock($1)", [self._lock])
            )
        except HashIndexError:
            # The error that ended the job says more than this one.
            if error is None:
                raise

    def _end_dead(self) -> None:
        """Mark the dead jobs that this one continues as failed."""
        kinds = list(get_args(JobKind)) if self.kind == "repair" else [self.kind]
        message = "superseded: a later run continued it"
        execute(self.connection, _END_DEAD, [kinds, self.subject, message])

    def _is_idle(self) -> bool:
        return (
            not self.connection.closed
            and self.connection.info.transaction_status == TransactionStatus.IDLE
        )

    def _briefly(self, work: Callable[[], object], *, durable: bool = False) -> bool:
        """Run statements in a short transaction; return whether that succeeded."""
        if not self._is_idle():
            return False
        try:
            with self.connection.transaction():
                execute(self.connection, _SETTINGS if durable else _SETTINGS + _IN_HASTE)
                work()
        except psycopg.Error as error:
            # A cancelled statement was meant to stop the run.
            if self.connection.closed or isinstance(error, psycopg.errors.QueryCanceled):
                with translated_errors():
                    raise
            return False
        return True


_CURRENT: ContextVar[Job | None] = ContextVar("current job", default=None)


@dataclass(frozen=True)
class JobRow:
    """A job, as the view ``hashindex.jobs`` shows it.

    Parameters
    ----------
    subject
        Name of the index, or of the table.
    rows_done
        In this phase.
    time_left
        Estimated for this phase, while it runs.
    pid
        The server's process that it runs on.
    message
        Why it failed.
    is_index
        Whether there is an index of the subject's name.
    next_model
        The new model, while the index is being swapped.
    """

    id: int
    kind: JobKind
    subject: str
    phase: str
    state: JobState
    rows_done: int
    rows_total: int | None
    rows_per_second: float | None
    time_left: timedelta | None
    started_at: datetime
    heartbeat_at: datetime
    ended_at: datetime | None
    role: str
    pid: int | None
    message: str | None
    is_index: bool
    next_model: str | None

    @property
    def resume(self) -> str | None:
        """The command that continues the job if it is dead; None if there is none."""
        if self.state != "dead" or not self.is_index or self.kind == "tune":
            return None
        if self.kind == "swap":
            if self.next_model is None:
                return None
            words = ["swap", self.subject, "--model", self.next_model]
        else:
            words = [self.kind, self.subject]
        return f"pg-hashindex index {shlex.join(words)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, and the command."""
        fields = asdict(self) | {"resume": self.resume}
        left = self.time_left
        return fields | {"time_left": None if left is None else left.total_seconds()}


def list_jobs(connection: Connection, *, ended: bool = False) -> list[JobRow]:
    """Return the jobs that run, and those that are dead.

    Parameters
    ----------
    ended
        Whether to return those that are done or failed too, a thousand or so.

    Returns
    -------
    list of JobRow
        The oldest first.
    """
    with translated_errors():
        prepare_schema(connection)
        found = read_as(JobRow, connection, _LIST)
    return [job for job in found if ended or job.state in ("running", "dead")]


def end_dead(connection: Connection) -> int:
    """Mark every dead job as failed, so that it is no longer listed; return how many there were."""
    with translated_errors():
        prepare_schema(connection)
        with connection.transaction():
            return execute(connection, _END_DEAD, [None, None, "given up"]).rowcount
