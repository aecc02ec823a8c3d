"""Swap the model of an index that is in use; ``sql/146_swap.sql`` makes the changes.

The new codes have a name of their own beside those in use, and are encoded and built like those of
any other index, so an interrupted run can be continued. Triggers write the codes in use and log the
keys for the others, which catch up with them: the new ones until the exchange, and the old ones
before a rollback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Unpack

from psycopg import sql

from ..db.connection import outside_transactions
from ..db.server_errors import translated_errors
from ..db.statements import one_row
from ..db.table_source import TableSource
from ..db.throttle import Throttle
from ..db.work import Work, claimed_work
from ..errors import DatabaseStateError, InvalidInputError, LowerRecallError
from ..hashers import HASHERS
from ..index.access import catch_up
from ..index.build import encode
from ..index.catalog import HasRow, IndexRow, SwapState, drop_index, read_row, swap_row
from ..index.encoding import balance
from ..index.landmarks.memory import DEFAULT_MEMORY, as_bytes
from ..index.landmarks.workers import Jobs
from ..index.options import IndexOptions, checked_options, options_changed_by
from ..index.search import as_count
from ..quality.code_scores import score_codes
from ..quality.evaluate import measure_defaults
from ..quality.measuring import Measured
from ..quality.queries import draw

_QUERIES = 200


@dataclass(frozen=True)
class Swapped:
    """The result of a swap, with the measurements that decided it.

    Parameters
    ----------
    model_before, model
        As ``name:version``.
    before, after
        Recall and latency of both on the same queries, with their own defaults; None if there were
        fewer than two rows.
    map_before, map_after
        Mean average precision of the order by either's codes, by the labels; None without labels.
    """

    model_before: str
    model: str
    before: Measured | None
    after: Measured | None
    map_before: float | None = None
    map_after: float | None = None


def swap(
    index: HasRow,
    model: str,
    *,
    column: str | None = None,
    tolerance: float = 0.01,
    labels: str | None = None,
    force: bool = False,
    k: int = 10,
    queries: int = _QUERIES,
    rows_per_second: float | None = None,
    memory: str | int = DEFAULT_MEMORY,
    jobs: int | None = None,
    random_state: int = 0,
    **options: Unpack[IndexOptions],
) -> Swapped:
    """Give the index another model, or another column too, while it is in use.

    The new codes are made beside the old ones, which takes as long as `encode`; call it again
    to continue an interrupted run. Then the recall of both is measured on the same queries, and
    searches change to the new codes at once. The old codes stay until `prune`, with a log of the
    keys that are written, so that `rollback` can return to them.

    Parameters
    ----------
    model
        ``name`` or ``name:version``, of the dimension of the column.
    column
        The vectors of another embedding model, in a column of their own: searches take and
        compare these from then on. By default, the column stays.
    tolerance
        How much recall may fall, 0 to 1; with labels, how much their MAP may.
    labels
        A column of labels, as `training.train` takes it. Models that learn from labels give rows of
        one label near codes, and may find fewer of the nearest rows for it. So with labels the
        mean average precision of the orders by either's codes decides (`score_codes`), not recall.
    force
        Whether to take the new codes even if recall, or MAP, falls by more, or the new column lacks
        vectors.
    k
        Answers that are compared.
    queries
        How many rows to draw from the table as queries.
    rows_per_second, memory, jobs
        As `encode`.
    random_state
        Seed of the draw.
    **options
        The fields of `IndexOptions` that a swap changes; unchanged by default.

    Returns
    -------
    Swapped
        The models and their recall.

    Raises
    ------
    LowerRecallError
        If recall, or the MAP of labels, would fall by more than the tolerance. The index stays as
        it is, and the new codes are kept: ``force`` takes them, `repair` with ``undo`` drops them.
    UnknownModelError, InvalidInputError
        If the model cannot serve the index, or memory or jobs are out of range.
    DatabaseStateError
        If rows have a vector in the column of today, and none in the new one.
    InUseError
        If another session is swapping it, a swap to another model is under way, the codes of
        the swap before are still there, or transactions kept the table in use for a minute.
    """
    index = index.row
    if not 0 <= tolerance <= 1:
        raise InvalidInputError(f"tolerance is {tolerance}; it must be 0 to 1")
    k, queries = as_count("k", k), as_count("queries", queries)
    if labels is not None:
        with translated_errors(index):
            table = TableSource.find(index.connection, index.qualified_table, index.column_name)
            table.with_labels(labels)
    given = checked_options(index.name, options, to=options_changed_by("swap"))
    memory, jobs = as_bytes(memory), Jobs(jobs).wanted
    with _only_swapper(index) as work:
        work.phase("preparing")
        begin = "SELECT hashindex.begin_swap($1, $2, $3, $4)"
        [(name,)] = index.change(begin, [index.name, model, column, given.get("access")])
        coming = read_row(index.connection, name)
        encode(coming, rows_per_second=rows_per_second, memory=memory, jobs=jobs)
        now = read_row(index.connection, index.name)
        coming = read_row(index.connection, coming.name)
        with now.reporting_drops(), coming.reporting_drops():
            if not force:
                _check_filled(now, coming)
            work.phase("comparing")
            before, after = _compare(now, coming, queries, k, random_state)
            ranked = [_label_map(row, labels, random_state) for row in (now, coming) if labels]
        what, values = f"recall@{k}", [one.recall for one in (before, after) if one]
        if labels is not None:
            what, values = f"the MAP of labels {labels}", ranked
        if len(values) == 2 and values[1] < values[0] - tolerance and not force:
            learned = [one.model_name for one in (now, coming) if _learned_labels(one)]
            by_labels = (
                ""
                if ranked or not learned
                else (f"{learned[-1]} learned from labels: compare by these (--labels COLUMN); or ")
            )
            raise LowerRecallError(
                f"{what} falls from {values[0]:.4f} to {values[1]:.4f}, by more than "
                f"the tolerance of {tolerance:g}: index {index.name!r} keeps model "
                f"{now.model_name}; the codes of {coming.model_name} stay beside: {by_labels}take "
                "them by running the swap again with --force, or drop them: pg-hashindex index "
                f"repair {index.name} --undo"
            )
        work.phase("switching")
        catch_up(coming)
        balance(coming, Throttle(rows_per_second))
        _exchange(now, "next")
        return Swapped(now.model_name, coming.model_name, before, after, *ranked)


def rollback(index: HasRow) -> str:
    """Return to the codes that the index had before the last swap.

    They first catch up with the keys that were written since. The codes that the index has now
    become the previous ones; another rollback returns to them.

    Returns
    -------
    str
        The model that the index has now, as ``name:version``.

    Raises
    ------
    DatabaseStateError
        If there are none.
    InUseError
        As `swap`.
    """
    index = index.row
    with _only_swapper(index):
        previous = swap_row(index, ["previous"])
        if previous is not None:
            encode(previous)
            balance(previous, Throttle(None))
        _exchange(index, "previous")
        return read_row(index.connection, index.name).model_name


def prune(index: HasRow) -> str:
    """Drop the codes that the index had before the last swap.

    Returns
    -------
    str
        The model of the dropped codes, as ``name:version``.

    Raises
    ------
    DatabaseStateError
        If there are none.
    InUseError
        As `swap`.
    """
    index = index.row
    with _only_swapper(index):
        model = _drop(index, "previous")
        if model is None:
            raise DatabaseStateError(
                f"index {index.name!r} has no former codes to prune: a swap leaves some"
            )
        return model


def undo(index: IndexRow) -> str | None:
    """Give up an unfinished swap; return the model whose codes were dropped, if any."""
    with _only_swapper(index):
        return _drop(index, "next")


def resume(index: IndexRow) -> Swapped | None:
    """Continue an interrupted swap; None if there is none. Recall must not fall, as in `swap`."""
    coming = swap_row(index, ["next"])
    if coming is None:
        return None
    access = coming.building or coming.access
    return swap(index, coming.model_name, column=coming.column_name, access=access)


def _compare(
    now: IndexRow,
    coming: IndexRow,
    queries: int,
    k: int,
    random_state: int,
) -> tuple[Measured | None, Measured | None]:
    asked = draw(now, queries, random_state)
    if len(asked) < min(queries, 2):
        return None, None
    if now.column_name == coming.column_name:
        before, after = measure_defaults([now, coming], asked, k=k)
        return before, after
    # Vectors of two columns cannot be compared: each finds its own exact neighbours, or not.
    (before,) = measure_defaults([now], asked, k=k)
    asked = draw(coming, queries, random_state)
    (after,) = measure_defaults([coming], asked, k=k)
    return before, after


def _label_map(index: IndexRow, labels: str, random_state: int) -> float:
    scores = score_codes(index, labels=labels, random_state=random_state)
    return float(scores["label"].values["MAP"])


def _learned_labels(index: IndexRow) -> bool:
    method = index.loaded_model.method
    return method in HASHERS and "labels" in HASHERS[method].learns_from


def _check_filled(now: IndexRow, coming: IndexRow) -> None:
    """Refuse another column while rows have no vector in it yet."""
    query = sql.SQL(
        "SELECT pg_catalog.count(*) FROM {} b WHERE b.{} IS NOT NULL AND b.{} IS NULL"
    ).format(now.table, sql.Identifier(now.column_name), sql.Identifier(coming.column_name))
    (unfilled,) = one_row(now.connection, query)
    if unfilled:
        raise DatabaseStateError(
            f"{unfilled} rows of {now.qualified_table} have a vector in column {now.column_name} "
            f"and none in {coming.column_name}, and no search would find them: fill the column, "
            "and run the swap again; --force takes the new column as it is"
        )


def _exchange(index: IndexRow, state: SwapState) -> None:
    index.change("SELECT hashindex.exchange($1, $2)", [index.name, state])


def _drop(index: IndexRow, state: SwapState) -> str | None:
    dropped = swap_row(index, [state])
    if dropped is None:
        return None
    # Not while another session encodes them.
    with claimed_work(index.connection, "encode", dropped.name):
        drop_index(dropped)
    return dropped.model_name


@contextmanager
def _only_swapper(index: IndexRow) -> Iterator[Work]:
    with (
        translated_errors(table=index.qualified_table),
        outside_transactions(index.connection, "a swap is made in many transactions"),
        claimed_work(index.connection, "swap", index.name) as work,
    ):
        yield work
