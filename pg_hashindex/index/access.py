"""Codes beside those in use, as the catalog has them: what waits to be built or to catch up."""

from contextlib import AbstractContextManager

from ..db.statements import execute
from ..db.work import Work, claimed_work
from ..errors import DatabaseStateError
from .catalog import IndexRow

#: The most logged keys to apply under the lock that a change to other codes takes.
FEW_KEYS = 1000
#: How often to catch up with writers that may be as fast.
MOST_APPLIED = 1000


def catch_up_once(index: IndexRow) -> int:
    """Bring codes beside those in use up to date for some of the keys that triggers have logged.

    Returns how many entries of the log were taken, or -1 if a build has to begin again, since the
    table was emptied.
    """
    row = execute(index.connection, "SELECT hashindex._catch_up($1)", [index.name]).fetchone()
    return int(row[0]) if row else 0


def catch_up(index: IndexRow) -> None:
    """Bring codes beside those in use up to date, but for the keys that are written meanwhile."""
    for _ in range(MOST_APPLIED):
        with index.reporting_drops(), index.connection.transaction():
            execute(index.connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if catch_up_once(index) < FEW_KEYS:
                return


def waits_for_landmarks(index: IndexRow) -> bool:
    """Return whether an index is configured for landmarks that are not built yet."""
    waiting = "SELECT FROM hashindex.index i WHERE i.name = $1 AND i.building IS NOT NULL"
    return execute(index.connection, waiting, [index.name]).fetchone() is not None


def only_builder(index: IndexRow) -> AbstractContextManager[Work]:
    """Keep other sessions from building or rebalancing the access path of an index."""
    return claimed_work(index.connection, "access", index.name)


def configured_otherwise(index: IndexRow) -> DatabaseStateError:
    """Return the error of a build whose landmarks are no longer wanted."""
    return DatabaseStateError(
        f"index {index.name!r} was configured otherwise while its landmarks were built, or "
        "dropped; see: pg-hashindex index show"
    )


def drop_unused(index: IndexRow) -> None:
    """Drop tables that an index no longer uses; wait for running searches."""
    # Only the administrator may drop them; any role that encodes comes here.
    unused = (
        "SELECT hashindex.drop_unused(i.name) FROM hashindex.index i WHERE i.name = $1 "
        "AND EXISTS (SELECT FROM hashindex._objects_of(i) o WHERE NOT o.in_use)"
    )
    index.change(unused, [index.name])
