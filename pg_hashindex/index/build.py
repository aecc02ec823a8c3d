"""Build sets of lists, and encode the rows that have no code in them.

Searches use the set that is in use until the new one is complete; they are exact where it is the
first.
"""

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString, NamedTuple

import psycopg

from ..db.connection import outside_transactions
from ..db.locks import holders_of
from ..db.progress import tell
from ..db.server_errors import translated_errors
from ..db.statements import execute, one_row
from ..db.throttle import Throttle
from ..db.work import Work, claimed_work
from ..errors import (
    BuildWarning,
    DatabaseStateError,
    HashIndexError,
    InUseError,
    InvalidInputError,
    LowerRecallError,
)
from .catalog import IndexRow, read_row, read_set, read_sets
from .encoding import bring_up_to_date, catch_up, encode_missing
from .landmarks.memory import DEFAULT_MEMORY, as_bytes
from .landmarks.workers import Jobs

#: The reason for `outside_transactions`.
_WHY_OUTSIDE = "an index is encoded and built in many transactions"

_COMPARE: LiteralString = "SELECT * FROM hashindex._compare_set($1, $2, $3, $4)"
_FINISH: LiteralString = """
    SELECT (f.s).candidates, (f.s).effort, f.recall
    FROM hashindex.index i, hashindex._finish_set(i, $2) f WHERE i.name = $1
"""
#: Has searches use a set that is ready. $1: the index; $2: the set.
EXCHANGE: LiteralString = "SELECT hashindex._exchange_set($1, $2)"

# Seconds to wait for searches under way before a former set is left.
_FEW_SECONDS = 5.0


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


@dataclass(frozen=True)
class SetSwapped:
    """The set that a swap has built, with what both were measured to find.

    ``recall`` and ``former_recall`` are None where no measure was possible.
    """

    set: str
    candidates: int
    effort: int | None
    recall: float | None
    former_recall: float | None
    in_use: bool


def encode(
    index: IndexRow,
    *,
    batch_rows: int | None = None,
    rows_per_second: float | None = None,
    memory: str | int = DEFAULT_MEMORY,
    jobs: int | None = None,
) -> int:
    """Finish lists that are being built, or encode rows without a code; see `HashIndex.encode`."""
    throttle, most_memory, most_jobs = Throttle(rows_per_second), as_bytes(memory), Jobs(jobs)
    if batch_rows is not None and batch_rows < 1:
        raise InvalidInputError(f"batch_rows must be 1 or more, got {batch_rows}")
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.reporting_drops(),
    ):
        written = 0
        beside = read_sets(index.connection, index.name, "building", "ready", "former")
        if not any(one.is_lists and one.state != "ready" for one in beside):
            index.require_lists("PostgreSQL keeps its codes, and there is nothing to encode")
        for coming in beside:
            replaces = index.state != "used" or is_rebalance(index, coming)
            # A set that is ready was not taken, unless a run was cut off before it could be.
            left = coming.state == "building" or (coming.state == "ready" and replaces)
            if not (coming.is_lists and left):
                continue
            with claimed_work(index.connection, "swap", index.name) as work:
                if coming.state == "building":
                    written = build_lists(coming, work, throttle, most_memory, most_jobs)
                if replaces:
                    exchange(coming)
                else:
                    finish_swap(coming, work)
        index = read_row(index.connection, index.name)
        if index.is_lists:
            written += encode_missing(index, throttle, batch_rows)
        for former in read_sets(index.connection, index.name, "former"):
            if former.is_lists:
                _catch_up_former(former, throttle)
    return written


def is_rebalance(used: IndexRow, coming: IndexRow) -> bool:
    """Return whether a set is one of lists like the one in use, of the rows as they are now."""

    def made_of(one: IndexRow) -> tuple[object, ...]:
        return one.access, one.model_id, one.column_name

    return used.is_lists and made_of(used) == made_of(coming)


def build_lists(coming: IndexRow, work: Work, throttle: Throttle, memory: int, jobs: Jobs) -> int:
    """Build a set of lists until it is ready, and return its rows; the work is claimed."""
    # Loads SciPy.
    from .landmarks.building import ListBuild

    with coming.reporting_drops():
        rows = ListBuild(coming, work, throttle, memory=memory, jobs=jobs).run()
    coming.warn_of_long_tenants()
    return rows


def finish_swap(
    coming: IndexRow, work: Work, tolerance: float = 0.01, *, force: bool = False
) -> SetSwapped:
    """Compare a set with the one in use, and exchange the two if it finds as much."""
    if coming.is_lists:
        catch_up(coming)
    with coming.connection.transaction():
        values = [coming.name, coming.set_id, tolerance, force]
        done = SetSwapped(*one_row(coming.connection, _COMPARE, values))
    if not done.in_use:
        raise LowerRecallError(
            f"recall falls from {done.former_recall:.4f} to {done.recall:.4f}, by more than the "
            f"tolerance of {tolerance:g}: index {coming.name!r} keeps its set; {done.set} stays "
            f"beside: take it by: pg-hashindex index swap {coming.name} --force; or drop it: "
            f"pg-hashindex index prune {coming.name}"
        )
    if coming.is_lists:
        bring_up_to_date(coming, Throttle(None), work)
    _use(coming)
    return done


def exchange(coming: IndexRow) -> None:
    """Have searches use lists that are ready, and drop former ones that were like them."""
    former = read_row(coming.connection, coming.name)
    catch_up(coming)
    if former.state != "used":
        _measure_lists(coming)
    _use(coming)
    if former.state == "used" and is_rebalance(former, coming):
        drop_former(coming)


def measure(coming: IndexRow) -> None:
    """Find candidates and effort that are enough, and tell them."""
    values = [coming.name, coming.set_id]
    with translated_errors(coming), coming.connection.transaction():
        candidates, effort, recall = one_row(coming.connection, _FINISH, values)
    if recall is not None:
        lists = f" of {effort} list{'s' * (effort != 1)}" if coming.access == "lists" else ""
        tell(f"searches keep {candidates} candidates{lists}: recall@10 {recall:.3g}")


def _measure_lists(coming: IndexRow) -> None:
    """Measure lists that are ready; they come into use if that fails too."""
    try:
        measure(coming)
    except HashIndexError as error:
        # It may have been dropped meanwhile, which is another error.
        read_row(coming.connection, coming.name)
        warnings.warn(
            f"index {coming.name!r} was not measured: {error}; measure it by: pg-hashindex tune "
            f"{coming.name} --recall 0.95 --apply",
            BuildWarning,
            stacklevel=3,
        )


def _use(coming: IndexRow) -> None:
    coming.change(EXCHANGE, [coming.name, coming.set_id])


def drop_former(index: IndexRow) -> None:
    """Drop the former set of an index; warn if others still read it."""
    try:
        index.change("SELECT hashindex.prune_index($1)", [index.name], patience=_FEW_SECONDS)
    except InUseError:
        warnings.warn(
            f"the former set of index {index.name!r} is still read"
            f"{holders_of(index.connection, index.qualified_table)}, and stays until "
            f"pg-hashindex index prune {index.name} drops it",
            BuildWarning,
            stacklevel=2,
        )


def _catch_up_former(former: IndexRow, throttle: Throttle) -> None:
    """Have a former set catch up, unless another session works on it or drops it."""
    connection, name = former.connection, former.name
    try:
        with translated_errors(former), claimed_work(connection, "encode", name) as work:
            bring_up_to_date(former, throttle, work)
        # The size of the file is what is limited. A rollback beside it drops the log.
        tolerated = psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable
        with suppress(*tolerated, psycopg.errors.QueryCanceled):
            execute(connection, "VACUUM {log}", names={"log": former.part("log")})
    except (InUseError, DatabaseStateError, InvalidInputError) as error:
        if former.set_id not in [row.set_id for row in read_sets(connection, name, "former")]:
            # It came into use, or was dropped.
            return
        warnings.warn(f"the former set was left as it is: {error}", BuildWarning, stacklevel=3)


def rebalance(
    index: IndexRow,
    *,
    memory: str | int = DEFAULT_MEMORY,
    jobs: int | None = None,
    tenant: str | None = None,
) -> Rebalanced:
    """Build landmarks again, as many as the table now calls for; see `HashIndex.rebalance`."""
    most_memory, most_jobs = as_bytes(memory), Jobs(jobs)
    with (
        translated_errors(index),
        outside_transactions(index.connection, _WHY_OUTSIDE),
        index.reporting_drops(),
        claimed_work(index.connection, "swap", index.name) as work,
    ):
        index.check_current()
        if tenant is not None:
            from .landmarks.building import ListBuild

            build = ListBuild(index, work, Throttle(None), memory=most_memory, jobs=most_jobs)
            rebalanced = Rebalanced(*build.run_tenant(tenant))
            index.warn_of_long_tenants()
            return rebalanced
        before = index.lists()
        [(made,)] = index.change("SELECT hashindex._begin_rebalance($1)", [index.name])
        coming = read_set(index.connection, made)
        rows = 0
        if coming.state == "building":
            rows = build_lists(coming, work, Throttle(None), most_memory, most_jobs)
        exchange(coming)
        after = read_row(index.connection, index.name).lists()
        if coming.state != "building" and after is not None:
            rows = after.codes
        return Rebalanced(
            rows, 0 if before is None else before.landmarks, 0 if after is None else after.landmarks
        )
