"""Codes beside those in use, as the catalog has them: what waits to be built or to catch up."""

import warnings

from ..db.locks import holders_of
from ..db.statements import execute, one_row
from ..db.work import Work
from ..errors import BuildWarning, DatabaseStateError, InUseError
from .catalog import IndexRow

#: The most logged keys to apply under the lock that a change to other codes takes.
_FEW_KEYS = 1000
#: How often to catch up with writers that may be as fast.
_MOST_TIMES = 1000

# Seconds to wait for searches under way before tables that are not used any more are left.
_FEW_SECONDS = 5.0


def catch_up(index: IndexRow, work: Work | None = None) -> bool:
    """Bring codes that are built, or lie beside those in use, up to date with the logged keys.

    A few that are written meanwhile are left. Returns False if the table was emptied, and a build
    has to begin again.
    """
    for _ in range(_MOST_TIMES):
        with index.reporting_drops(), index.connection.transaction():
            execute(index.connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            (keys,) = one_row(index.connection, "SELECT hashindex._catch_up($1)", [index.name])
        if work is not None:
            work.advance(max(0, keys))
        if keys < _FEW_KEYS:
            return bool(keys >= 0)
    return True


def waits_for_landmarks(index: IndexRow) -> bool:
    """Return whether an index is configured for landmarks that are not built yet."""
    waiting = "SELECT FROM hashindex.index i WHERE i.name = $1 AND i.building IS NOT NULL"
    return execute(index.connection, waiting, [index.name]).fetchone() is not None


def configured_otherwise(index: IndexRow) -> DatabaseStateError:
    """Return the error of a build whose landmarks are no longer wanted."""
    return DatabaseStateError(
        f"index {index.name!r} was configured otherwise while its landmarks were built, or "
        "dropped; see: pg-hashindex index show"
    )


def give_up_rebalance(index: IndexRow) -> bool:
    """Give up a rebalance that was cut off; return whether there was one."""
    # To name the access path that is in use gives up what is built instead of it.
    given_up = (
        "SELECT hashindex.configure_index(i.name, i.access) FROM hashindex.index i "
        "WHERE i.name = $1 AND i.building = i.access"
    )
    return bool(index.change(given_up, [index.name]))


def drop_unused(index: IndexRow, patience: float | None = _FEW_SECONDS) -> None:
    """Drop tables that an index no longer uses; warn of those that others still read."""
    # Only the administrator may drop them; any role that encodes comes here.
    unused = (
        "SELECT hashindex.drop_unused(i.name) FROM hashindex.index i WHERE i.name = $1 "
        "AND EXISTS (SELECT FROM hashindex._objects_of(i) o WHERE NOT o.in_use)"
    )
    try:
        index.change(unused, [index.name], patience=patience)
    except InUseError:
        warnings.warn(
            f"tables that index {index.name!r} no longer uses are still read"
            f"{holders_of(index.connection, index.qualified_table)}, and stay until "
            f"pg-hashindex index encode {index.swap_of or index.name} drops them",
            BuildWarning,
            stacklevel=2,
        )
