"""Locks for work that one session does at a time, and for changes to tables in use."""

import math
import secrets
import time
from collections.abc import Callable, Iterator
from typing import LiteralString, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from ..errors import DatabaseStateError, InUseError, InvalidInputError
from .connection import Connection, close_if_cut_off
from .sql_files import query
from .statements import execute, one_row

#: All later requests queue behind a lock that somebody waits for.
LOCK_MS = 100
_PAUSE = 0.4

#: Seconds for which a change is tried again while others hold locks.
PATIENCE = 60.0

Result = TypeVar("Result")


_LIMIT: LiteralString = "SELECT pg_catalog.current_setting('lock_timeout')"
_SET_LIMIT: LiteralString = "SELECT pg_catalog.set_config('lock_timeout', $1, true)"


# Claims of an index are made one after another, and wait for sessions that are changing its row.
_WAIT: LiteralString = "SELECT FROM hashindex.index x WHERE x.name = $1 FOR NO KEY UPDATE"
_OTHER = query("locks.other")
_CLAIM = query("locks.claim")
_RELEASE: LiteralString = """
    DELETE FROM hashindex.claim c
    WHERE c.work = $1 AND c.name = $2 AND c.pid = pg_backend_pid() RETURNING c.lock
"""


_POOLED = (
    "a pooler in transaction mode gives each transaction another session of the server, and this "
    "work holds locks of its session: connect to the server itself, or to a pooler in session mode"
)


def hold(connection: Connection) -> int:
    """Take an advisory lock with a random number for this session; return the number."""
    lock = secrets.randbelow(1 << 62)
    execute(connection, "SELECT pg_advisory_lock($1::bigint)", [lock])
    return lock


_DONE = {"encode": "encoded", "repair": "repaired", "swap": "built"}


def claim(connection: Connection, work: str, name: str) -> None:
    """Claim some work on the codes of an index; refuse it while another session is at work.

    The work is "encode", "repair" or "swap".
    """
    refuse_pooled(connection)
    # Without this block, a connection that is not in autocommit mode would begin a transaction.
    with connection.transaction():
        execute(connection, _WAIT, [name])
        for (other,) in execute(connection, _OTHER, [work, name]):
            raise _claimed(other, name)
        lock = hold(connection)
        if execute(connection, _CLAIM, [work, name, lock]).fetchone() is None:
            execute(connection, "SELECT pg_advisory_unlock($1)", [lock])
            raise _claimed(work, name)
    try:
        held = _has(connection, lock)
    except BaseException:
        # By Ctrl-C too: nothing else would release it before the session ends.
        release(connection, work, name)
        raise
    if not held:
        # Without the lock, the claim does not count. The lock ends with the pooler's session.
        raise DatabaseStateError(_POOLED)


def _claimed(work: str, name: str) -> InUseError:
    return InUseError(f"index {name!r} is being {_DONE[work]} by another session; wait for it")


def refuse_pooled(connection: Connection) -> None:
    """Refuse a pooler in transaction mode before a lock is left in one of its sessions."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        return
    before = _session(connection)
    # A pooler makes up the number that it tells when a connection begins.
    if before == connection.info.backend_pid:
        return
    url = make_conninfo(connection.info.dsn, password=connection.info.password or None)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
        # A session that this connection still has is not given to another one.
        lent = _session(other) == before
    if lent or _session(connection) != before:
        raise DatabaseStateError(_POOLED)


def _session(connection: Connection) -> int:
    with connection.transaction():
        (pid,) = one_row(connection, "SELECT pg_backend_pid()")
    return int(pid)


def _has(connection: Connection, lock: int) -> bool:
    """Return whether the session of the next transaction holds a lock."""
    with connection.transaction():
        (held,) = one_row(connection, "SELECT hashindex._holds(pg_backend_pid(), $1)", [lock])
    return bool(held)


def release(connection: Connection, work: str, name: str) -> None:
    """Release the work that this session claimed; the end of a session does that too."""
    close_if_cut_off(connection)
    if connection.closed:
        return
    with connection.transaction():
        released = execute(connection, _RELEASE, [work, name]).fetchone()
    # After the row is gone: without its lock it would look dead.
    if released is not None:
        with connection.transaction():
            execute(connection, "SELECT pg_advisory_unlock($1)", released)


_HOLDERS = query("locks.holders")


def retry_while_locked(
    connection: Connection,
    change: Callable[[], Result],
    *,
    table: str,
    patience: float | None = None,
) -> Result:
    """Make a change in a transaction of its own, and never keep others waiting for a lock.

    Inside a transaction of the caller it is a savepoint; a failed attempt releases its locks.

    ``change`` runs statements on that connection, and is called again for ``patience`` seconds
    (`PATIENCE` by default) if a lock was not available; then `InUseError` names ``table``.
    """
    for last in tries(patience):
        try:
            with connection.transaction():
                before = one_row(connection, _LIMIT)
                execute(connection, _SET_LIMIT, [f"{LOCK_MS}ms"])
                made = change()
                # A setting made in a savepoint outlives it.
                execute(connection, _SET_LIMIT, before)
                return made
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if last:
                waited = PATIENCE if patience is None else patience
                raise InUseError(_in_use(connection, table, waited, error)) from None
    raise AssertionError


def is_locked(error: object) -> bool:
    """Return whether an error of any driver is that of a lock that was not available."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code in ("55P03", "40P01")


def tries(patience: float | None = None) -> Iterator[bool]:
    """Give times to try, for some seconds (`PATIENCE` by default); true for the last one."""
    patience = PATIENCE if patience is None else patience
    if not 0 <= patience < math.inf:
        raise InvalidInputError(f"patience is {patience}; it must be 0 seconds or more")
    until = time.monotonic() + patience
    last = False
    while not last:
        last = time.monotonic() >= until
        yield last
        time.sleep(_PAUSE)


def _in_use(connection: Connection, table: str, patience: float, error: psycopg.Error) -> str:
    return (
        f"{table} has been in use for {patience:g} s: {error.diag.message_primary}; "
        f"run the command again when the transactions that use it have ended"
        f"{holders_of(connection, table)}"
    )


def holders_of(connection: Connection, table: str) -> str:
    """Name the processes and prepared transactions that hold locks on a table, in brackets."""
    with connection.transaction():
        (found,) = one_row(connection, _HOLDERS, [table])
    return "" if found is None else f" ({found})"
