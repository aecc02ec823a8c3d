"""Make an index ready: encode its rows, and build its access path, or the landmarks again.

Searches use the previous access path until the new one is complete.
"""

import warnings
from typing import NamedTuple

import psycopg

from ..db.connection import outside_transactions
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..db.throttle import Throttle
from ..db.work import claimed_work
from ..errors import BuildWarning, InUseError, InvalidInputError
from .access import (
    catch_up,
    configured_otherwise,
    drop_unused,
    give_up_rebalance,
    waits_for_landmarks,
)
from .catalog import IndexRow, read_row, swap_row
from .encoding import encode_missing
from .landmarks.memory import DEFAULT_MEMORY, as_bytes
from .landmarks.workers import Jobs

#: The reason for `outside_transactions`.
_WHY_OUTSIDE = "an index is encoded and built in many transactions"


class Rebalanced(NamedTuple):
    """The result of a rebalance.

    Attributes
    ----------
    rows
        Rows that were put in order.
    landmarks
        The new number, which depends on the rows.
    """

    rows: int
    landmarks_before: int
    landmarks: int


def encode(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    rows_per_second: float | None = None,
    memory: str | int = DEFAULT_MEMORY,
    jobs: int | None = None,
) -> int:
    """Encode rows without a code, then build the access path; see `HashIndex.encode`."""
    throttle, most_memory, most_jobs = Throttle(rows_per_second), as_bytes(memory), Jobs(jobs)
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.reporting_drops(),
    ):
        landmarks = waits_for_landmarks(index)
        # Building landmarks reads every row, and encodes it. A rebalance that was cut off has rows
        # that have their codes.
        coded_by_build = landmarks and index.landmarks is None
        written = 0 if coded_by_build else encode_missing(index, throttle, batch_rows)
        built = _build_landmarks(index, throttle, most_memory, most_jobs)
        if landmarks:
            # The build has replaced the table of codes.
            current = read_row(index.connection, index.name)
            written += encode_missing(current, throttle, batch_rows)
        encoded = "SELECT hashindex._mark_encoded(i) FROM hashindex.index i WHERE i.name = $1"
        execute(index.connection, encoded, [index.name])
        with claimed_work(index.connection, "encode", index.name):
            catch_up(index)
            if previous := swap_row(index, ["previous"]):
                _catch_up_former(previous)
    return written + built if coded_by_build else written


def _catch_up_former(previous: IndexRow) -> None:
    """Have former codes catch up, unless another session works on them."""
    try:
        with claimed_work(previous.connection, "encode", previous.name):
            catch_up(previous)
    except InUseError as error:
        warnings.warn(
            f"the former codes were left as they are: {error}", BuildWarning, stacklevel=3
        )


def _build_landmarks(index: IndexRow, throttle: Throttle, memory: int, jobs: Jobs) -> int:
    """Build the landmarks that the index is configured for, and have searches use them.

    Does nothing if none wait to be built. If the table has no row to train them on, they wait for
    one; those that are in use stay. The index's row in the database counts: it may have been
    configured since it was opened. Returns the rows whose codes were put in order. PostgreSQL
    builds its own indexes at full speed, whatever the throttle says.
    """
    if not waits_for_landmarks(index):
        # A build that was interrupted at its very end has left the previous tables.
        drop_unused(index)
        return 0
    # Loads SciPy.
    from .landmarks.building import LandmarkBuild

    with claimed_work(index.connection, "access", index.name) as work:
        index.check_current()
        if not waits_for_landmarks(index):
            return 0
        try:
            rows = LandmarkBuild(index, work, throttle, memory=memory, jobs=jobs).run()
        except (psycopg.ProgrammingError, psycopg.InternalError) as error:
            index.check_current()
            # The missing part may be one that another session has dropped.
            if not waits_for_landmarks(index):
                raise configured_otherwise(index) from error
            raise
    if rows is None and give_up_rebalance(index):
        drop_unused(index)
    return rows or 0


def rebalance(
    index: IndexRow,
    *,
    memory: str | int = DEFAULT_MEMORY,
    jobs: int | None = None,
    tenant: str | None = None,
) -> Rebalanced:
    """Build landmarks again, as many as the table now calls for; see `HashIndex.rebalance`."""
    from .landmarks.building import LandmarkBuild

    most_memory, most_jobs = as_bytes(memory), Jobs(jobs)
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.reporting_drops(),
    ):
        with claimed_work(index.connection, "access", index.name) as work:
            index.check_current()
            # Read again: the index may have been configured since it was opened.
            access = "SELECT i.access FROM hashindex.index i WHERE i.name = $1"
            row = execute(index.connection, access, [index.name]).fetchone()
            if row != ("lists",):
                raise InvalidInputError(
                    f"index {index.name!r} has the access path {row and row[0]}; a rebalance is of "
                    "lists"
                )
            build = LandmarkBuild(index, work, Throttle(None), memory=most_memory, jobs=most_jobs)
            if tenant is not None:
                rebalanced = Rebalanced(*build.run_tenant(tenant))
            else:
                before = build.count_landmarks()
                rows = build.run()
                rebalanced = Rebalanced(rows or 0, before, build.count_landmarks())
        index.warn_of_long_tenants()
        return rebalanced
