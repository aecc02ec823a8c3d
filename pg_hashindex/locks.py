"""Changes that need a lock on tables in use: made when the lock comes at once, or tried again."""

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from .database import Connection
from .errors import InUseError

__all__ = ["patiently"]

# A lock that is waited for stands in the way of all who come after.
_LOCK_MS = 100
_PAUSE = 0.4
_PATIENCE = 60.0

Result = TypeVar("Result")


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
