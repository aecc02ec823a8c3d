"""Long runs, and how far they are: rows of ``hashindex.job`` that other sessions see meanwhile.

A run's session holds an advisory lock whose number its row has. A row that says that it runs, and
whose process does not hold it, is of a process or a server that was killed: the view
``hashindex.jobs`` calls it dead. What keeps a run from being recorded, a missing right say, never
keeps it from running.
"""

import shlex
import time
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, LiteralString, get_args

from psycopg import RawCursor
from psycopg.rows import class_row

from .connection import Connection, prepare, translated_errors
from .job_records import JobRecord

__all__ = ["Job", "JobKind", "JobRow", "JobState", "end_dead", "list_jobs"]

JobKind = Literal["encode", "swap", "tune", "rebalance", "repair"]
JobState = Literal["running", "dead", "done", "failed"]

# Seconds between two writes of a row, but for those that begin a phase.
_BEAT = 1.0

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
    """A run, as a context manager; its record begins with its first phase.

    Inside of another job of the same connection it is a part of that one, and its phases are shown
    as phases of the other.

    Dead jobs of the same kind and subject are those that this one goes on with: they are marked as
    failed. A repair goes on with those of any kind.

    Parameters
    ----------
    connection : psycopg.Connection
        What is said inside of a transaction is not written.
    kind : {"encode", "swap", "tune", "rebalance", "repair"}
    subject : str
        Name of the index, or of the table.
    """

    def __init__(self, connection: Connection, kind: JobKind, subject: str) -> None:
        self.connection = connection
        self._record = JobRecord(
            connection, kind, subject, get_args(JobKind) if kind == "repair" else [kind]
        )
        self._phase: str | None = None
        # The last phase that it named itself, not a job inside of it.
        self._own_phase: str | None = None
        self._done = 0
        self._total: int | None = None
        self._new_phase = False
        self._next_beat = 0.0
        self._around: Job | None = None
        self._token: Token[Job | None] | None = None

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
            if error is None and self._phase is not None:
                self._around._go_on()
        elif self._phase is not None:
            message = None
            if isinstance(error, KeyboardInterrupt):
                message = "stopped by the user"
            elif error is not None:
                message = str(error).strip() or type(error).__name__
            self._record.end(self._phase, self._done, self._total, message)
        elif error is None:
            # Where there was nothing to do, nothing is left of what a dead one was at.
            self._record.end_dead()

    def phase(self, name: str, total: int | None = None) -> None:
        """Say what is done from now on.

        Parameters
        ----------
        name : str
        total : int, optional
            How many rows it is about, where that is known.
        """
        self._own_phase = name
        self._set(name, total)

    def expect(self, total: int) -> None:
        """Say how many rows the phase is about, once that is known."""
        if self._around is not None:
            self._around.expect(total)
            return
        self._total = total
        self._write()

    def advance(self, rows: int = 0) -> None:
        """Count rows that are done; others see it within a second."""
        if self._around is not None:
            self._around.advance(rows)
            return
        self._done += rows
        if self._total is not None:
            # It may have been an estimate, and writers go on.
            self._total = max(self._total, self._done)
        if time.monotonic() >= self._next_beat:
            self._write()

    def _set(self, name: str, total: int | None) -> None:
        self._phase, self._done, self._total = name, 0, total
        if self._around is not None:
            self._around._set(name, total)
            return
        self._new_phase = True
        self._write()

    def _go_on(self) -> None:
        """Return to what was done before a job inside of this one."""
        if self._own_phase is not None:
            self._set(self._own_phase, None)
        elif self._around is not None:
            self._around._go_on()

    def _write(self) -> None:
        self._next_beat = time.monotonic() + _BEAT
        if self._phase is not None:
            written = self._record.write(
                self._phase, self._done, self._total, new_phase=self._new_phase
            )
            self._new_phase = self._new_phase and not written


_CURRENT: ContextVar[Job | None] = ContextVar("current job", default=None)


@dataclass(frozen=True)
class JobRow:
    """A job, as the view ``hashindex.jobs`` shows it.

    Parameters
    ----------
    id : int
    kind : {"encode", "swap", "tune", "rebalance", "repair"}
    subject : str
        Name of the index, or of the table.
    phase : str
    state : {"running", "dead", "done", "failed"}
    rows_done : int
        In this phase.
    rows_total : int or None
    rows_per_second : float or None
    time_left : timedelta or None
        Of this phase, while it runs.
    started_at, heartbeat_at : datetime
    ended_at : datetime or None
    role : str
    pid : int or None
        The server's process that it runs on.
    message : str or None
        Why it failed.
    is_index : bool
        Whether there is an index of the subject's name.
    next_model : str or None
        What the index is being swapped to.
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
        """The command that goes on with it where it is dead; None where there is none."""
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
    connection : psycopg.Connection
    ended : bool
        Whether to return those that are done or failed too, a thousand or so.

    Returns
    -------
    list of JobRow
        The oldest first.
    """
    with translated_errors():
        prepare(connection)
        cursor = RawCursor(connection, row_factory=class_row(JobRow))
        found = cursor.execute(_LIST).fetchall()
    return [job for job in found if ended or job.state in ("running", "dead")]


def end_dead(connection: Connection) -> int:
    """Give up every dead job: mark it as failed, so that it is listed no more.

    Parameters
    ----------
    connection : psycopg.Connection

    Returns
    -------
    int
        How many there were.
    """
    with translated_errors():
        prepare(connection)
        with connection.transaction():
            row = connection.execute(
                "SELECT hashindex._end_dead_jobs(NULL, NULL, 'given up')"
            ).fetchone()
    assert row is not None  # noqa: S101
    count: int = row[0]
    return count
