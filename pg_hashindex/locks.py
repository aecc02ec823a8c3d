"""Locks: of work that one session does at a time, and of changes to tables that are in use."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import LiteralString, TypeVar

import psycopg

from .database import Connection
from .errors import InUseError

__all__ = ["only_one", "patiently"]

# A lock that is waited for stands in the way of all who come after.
_LOCK_MS = 100
_PAUSE = 0.4
_PATIENCE = 60.0

Result = TypeVar("Result")


# A lock of the session, so that it is given back when that dies.
_TAKE: LiteralString = "SELECT pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))"
_GIVE_BACK: LiteralString = "SELECT pg_advisory_unlock(pg_catalog.hashtextextended(%s, 0))"


@contextmanager
def only_one(connection: Connection, work: str, name: str, busy: str) -> Iterator[None]:
    """Keep other sessions from the same work on an index.

    Parameters
    ----------
    connection : psycopg.Connection
        Not inside a transaction.
    work : {"access", "encode", "repair", "swap"}
        ``hashindex.health`` and ``hashindex.exchange`` know the lock by it.
    name : str
        Of the index.
    busy : str
        What to say where another session is at it.

    Raises
    ------
    InUseError
        If another session is.
    """
    key = [f"hashindex.{work}:{name}"]
    # Outside of a transaction of ours, a connection that is not in autocommit mode begins one.
    with connection.transaction():
        row = connection.execute(_TAKE, key).fetchone()
    if row is None or not row[0]:
        raise InUseError(busy)
    try:
        yield
    finally:
        if not connection.closed:
            with connection.transaction():
                connection.execute(_GIVE_BACK, key)


def patiently(
    connection: Connection, change: Callable[[], Result], *, table: str, patience: float = _PATIENCE
) -> Result:
    """Make a change in a transaction of its own, and never keep others waiting for a lock.

    Parameters
    ----------
    connection : psycopg.Connection
        In autocommit mode.
    change : callable
        Runs statements on that connection; called again where a lock was not to be had.
    table : str
        Whose users are waited for, for the message.
    patience : float
        Seconds to go on trying for.

    Returns
    -------
    Any
        What the change returns.

    Raises
    ------
    InUseError
        If transactions went on holding locks for so long.
    """
    until = time.monotonic() + patience
    while True:
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_MS}ms'")
                return change()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if time.monotonic() > until:
                raise InUseError(
                    f"{table} has been in use for {patience:.0f} s: {error.diag.message_primary}; "
                    "run the command again when those who use it have ended"
                ) from None
            time.sleep(_PAUSE)
