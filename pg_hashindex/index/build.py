"""Make an index ready: encode its rows, and build its access path, or the landmarks again.

Tables that Citus distributes need other functions. Only this module chooses them: `encode`,
`rebalance` and `verifier_of` call `citus` for such tables.

Searches use the previous access path until the new one is complete.
"""

from typing import NamedTuple

import psycopg

from ..db.connection import outside_transactions, translated_errors
from ..db.jobs import Job
from ..db.throttle import Throttle
from ..errors import DatabaseStateError, InvalidInputError
from . import citus, encoding
from .access import (
    configured_otherwise,
    drop_unused,
    end_left_rebalance,
    only_builder,
    path_to_build,
)
from .catalog import IndexRow, read_row
from .code_indexes import build_code_indexes
from .landmarks.building import LandmarkBuild
from .verifying import Verifier

#: The reason for `outside_transactions`.
_WHY_OUTSIDE = "an index is encoded and built in many transactions"


class Rebalanced(NamedTuple):
    """The result of a rebalance.

    Attributes
    ----------
    rows : int
        Rows that were put in order.
    landmarks_before : int
    landmarks : int
        The new number, which depends on the rows.
    """

    rows: int
    landmarks_before: int
    landmarks: int


def encode(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    progress: bool = False,
    rows_per_second: float | None = None,
) -> int:
    """Encode rows without a code, then build the access path; see `HashIndex.encode`."""
    throttle = Throttle(rows_per_second)
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.noticing_drops(),
        Job(index.connection, "encode", index.name) as job,
    ):

        def encode_missing(row: IndexRow) -> int:
            fill = citus.encode_shards if row.distributed else encoding.encode_missing
            return fill(row, job, throttle, batch_rows=batch_rows, progress=progress)

        path = path_to_build(index)
        if path != "landmarks":
            written = encode_missing(index)
            _build_path(index, job, throttle, progress)
        else:
            # Building landmarks reads every row, and encodes it if SQL can.
            written = 0 if index.encoded_in == "sql" else encode_missing(index)
            built = _build_path(index, job, throttle, progress)
            # A partition may have been attached while the others were read. The build has replaced
            # the table of codes.
            written += encode_missing(read_row(index.connection, index.name))
            if index.encoded_in == "sql":
                written += built
        index.connection.execute(
            "SELECT hashindex._mark_encoded(i) FROM hashindex.index i WHERE i.name = %s",
            [index.name],
        )
    return written


def _build_path(index: IndexRow, job: Job, throttle: Throttle, progress: bool) -> int:
    """Build the access path that the index is configured for, and have searches use it.

    Does nothing if there is none to build, or if it is landmarks and the table has no row to train
    them on. The index's row in the database counts: it may have been configured since it was
    opened. Returns the rows whose codes were put in the order of landmarks, 0 for other paths.
    PostgreSQL builds its own indexes at full speed, whatever the throttle says.
    """
    if path_to_build(index) is None:
        end_left_rebalance(index)
        # A build that was interrupted at its very end has left the previous tables.
        drop_unused(index)
        return 0
    with only_builder(index):
        index.check_current()
        path = path_to_build(index)
        if path is None:
            return 0
        try:
            if path == "landmarks":
                return _landmark_build(index)(index, job, throttle, progress).run() or 0
            build_code_indexes(index, path, job, progress=progress)
        except (psycopg.ProgrammingError, psycopg.InternalError) as error:
            index.check_current()
            # The missing part may be one that another session has dropped.
            if path_to_build(index) != path:
                raise configured_otherwise(index, path) from error
            raise
    return 0


def rebalance(index: IndexRow, *, progress: bool = False) -> Rebalanced:
    """Build landmarks again, as many as the table now calls for; see `HashIndex.rebalance`."""
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.noticing_drops(),
        only_builder(index),
    ):
        index.check_current()
        # Read again: the index may have been configured since it was opened.
        row = index.connection.execute(
            "SELECT access, building FROM hashindex.index WHERE name = %s", [index.name]
        ).fetchone()
        if row is None or row[0] != "landmarks":
            raise InvalidInputError(
                f"index {index.name!r} has the access path {row and row[0]}; a rebalance is of "
                "landmarks"
            )
        if row[1] is not None:
            raise DatabaseStateError(
                f"index {index.name!r} is to have the access path {row[1]}, which is not built "
                f"yet; build it with: pg-hashindex index encode {index.name}; or keep "
                f"landmarks with: pg-hashindex index configure {index.name} --access landmarks"
            )
        with Job(index.connection, "rebalance", index.name) as job:
            build = _landmark_build(index)(
                index, job, Throttle(None), progress, access="landmarks", building=None
            )
            before = build.count_landmarks()
            rows = build.run()
            return Rebalanced(rows or 0, before, build.count_landmarks())


def verifier_of(index: IndexRow) -> type[Verifier]:
    """Return the object that compares the codes of an index with its rows."""
    return citus.ShardVerifier if index.distributed else Verifier


def _landmark_build(index: IndexRow) -> type[LandmarkBuild]:
    return citus.ShardBuild if index.distributed else LandmarkBuild
