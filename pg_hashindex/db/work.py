"""Work on an index that one session does at a time, and how far it is.

The row of ``hashindex.claim`` is the work: the session holds the row's lock while it works, and
writes its progress in short transactions of their own. If that fails, because somebody locks the
table say, the work continues. A row whose session no longer holds its lock is dead work, which the
next run takes over.
"""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from .connection import Connection
from .locks import claim, release
from .owners import prepare_schema
from .progress import Progress
from .server_errors import translated_errors
from .sql_files import query
from .statements import execute, read_as

__all__ = ["Work", "WorkKind", "WorkRow", "claimed_work", "list_work"]

WorkKind = Literal["encode", "swap", "repair"]

# Seconds between two writes of a row; the start of a phase is written at once.
_BEAT = 1.0

# Writes wait for no lock, and not for the disk.
_SETTINGS: LiteralString = """
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s';
    SET LOCAL synchronous_commit TO off
"""

_WRITE = query("work.write")

_LIST = query("work.list")


class Work:
    """Work that this session has claimed; others see its phase and its rows.

    Progress inside a transaction is not written.
    """

    def __init__(self, connection: Connection, work: str, name: str) -> None:
        self.connection = connection
        self._claimed = [work, name]
        self._phase: str | None = None
        self._done = 0
        self._total: int | None = None
        self._new_phase = False
        self._next_beat = 0.0

    def phase(self, name: str, total: int | None = None) -> Progress:
        """Begin a phase, of ``total`` rows if that is known.

        Count rows by `advance`, or to have a bar too, by the progress returned.
        """
        self._phase, self._done, self._total, self._new_phase = name, 0, total, True
        self._write()
        return Progress(name, total, work=self)

    def expect(self, total: int) -> None:
        """Set the number of rows of the phase, once it is known."""
        self._total = total
        self._write()

    def advance(self, rows: int = 0) -> None:
        """Count rows that are done; others see it within a second."""
        self._done += rows
        if self._total is not None:
            # The total may be an estimate, and writers add rows.
            self._total = max(self._total, self._done)
        if time.monotonic() >= self._next_beat:
            self._write()

    def _write(self) -> None:
        self._next_beat = time.monotonic() + _BEAT
        if (
            self.connection.closed
            or self.connection.info.transaction_status != TransactionStatus.IDLE
        ):
            return
        values = [*self._claimed, self._phase, self._done, self._total, self._new_phase]
        try:
            with self.connection.transaction():
                execute(self.connection, _SETTINGS)
                execute(self.connection, _WRITE, values)
        except psycopg.Error as error:
            # A cancelled statement was meant to stop the run.
            if self.connection.closed or isinstance(error, psycopg.errors.QueryCanceled):
                with translated_errors():
                    raise
        else:
            self._new_phase = False


@contextmanager
def claimed_work(connection: Connection, work: str, name: str) -> Iterator[Work]:
    """Keep other sessions from work on the codes of an index; not inside a transaction.

    ``hashindex.health`` knows the work by its name, as `claim` takes it.
    """
    claim(connection, work, name)
    try:
        yield Work(connection, work, name)
    finally:
        release(connection, work, name)


@dataclass(frozen=True)
class WorkRow:
    """Work on an index: under way, or dead.

    Parameters
    ----------
    work
        A swap builds another set: the first one too, and a rebalance.
    name
        The index.
    is_running
        False if it was cut off; None on a standby, which does not see the locks of its primary.
    rows_done, rows_total
        In this phase.
    phase_seconds
        The time since this phase began.
    pid
        The server's process that it runs on, or ran on.
    """

    work: WorkKind
    name: str
    is_running: bool | None
    phase: str | None
    rows_done: int
    rows_total: int | None
    phase_seconds: float
    started_at: datetime
    role: str
    pid: int

    @property
    def share(self) -> float | None:
        """The share of the phase's rows that are done, if their number is known."""
        return self.rows_done / self.rows_total if self.rows_total else None

    @property
    def time_left(self) -> timedelta | None:
        """Estimated for this phase, while it runs."""
        if not self.is_running or not self.rows_done or self.rows_total is None:
            return None
        left = max(self.rows_total - self.rows_done, 0)
        return timedelta(seconds=round(self.phase_seconds * left / self.rows_done))

    @property
    def resume(self) -> str | None:
        """The command that continues dead work."""
        if self.is_running is not False:
            return None
        # It continues whatever was being built.
        verb = "repair" if self.work == "repair" else "encode"
        return f"pg-hashindex index {verb} {shlex.quote(self.name)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, the share, the seconds left, and the command."""
        left = None if self.time_left is None else self.time_left.total_seconds()
        return asdict(self) | {"time_left": left, "share": self.share, "resume": self.resume}


def list_work(connection: Connection, index: str | None = None) -> list[WorkRow]:
    """Return the work on indexes that runs, and dead work that can be continued."""
    with translated_errors():
        prepare_schema(connection)
        found = read_as(WorkRow, connection, _LIST)
    return [work for work in found if index in (None, work.name)]
