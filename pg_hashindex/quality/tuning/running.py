"""Tuning: everything tried on a sample of a table's rows, within a budget of time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...db.connection import Connection, prepare, translated_errors
from ...db.jobs import Job
from ...index.catalog import Access, HasRow, IndexRow
from ...models.model import Metric
from .advice import Advice
from .bench import Bench, Step
from .choosing import paths, worth_building
from .code_trials import Coded, CodeTrials
from .drawing import Effort, draw
from .models import code_all, of_index, of_table
from .pgvector_trials import statements, try_pgvector
from .recommending import recommend
from .scratch import scratch
from .trials import Goal

__all__ = ["tune_index", "tune_table"]


def tune_index(
    index: HasRow, goal: Goal, effort: Effort | None = None, *, on_step: Step | None = None
) -> Advice:
    """Find the settings of an index that reach a recall the fastest.

    Tried are its own model with every access path, the same method with other bits and levels,
    pgvector's HNSW over the vectors, and the exact scan, all on scratch tables that hold a sample
    of the rows. What the full table will show is estimated as `pg_hashindex.quality.tuning.scale` says.
    Neither the index nor its table is changed; see `apply`.

    Parameters
    ----------
    index : HashIndex
    goal : Goal
    effort : Effort, optional
    on_step : callable, optional
        Told in words what is being done.

    Returns
    -------
    Advice

    Raises
    ------
    InvalidInputError
        If a number is out of range, the rows are too few, the queries cannot be used, or the
        connection is inside a transaction.
    MissingRightsError
        If the role may not make scratch tables.
    """
    row = index.row
    return _tune(
        row.connection,
        _Task(row.qualified_table, row.column_name, row.id_column, row.metric, row),
        goal,
        effort or Effort(),
        on_step,
    )


def tune_table(
    connection: Connection,
    table: str,
    column: str,
    goal: Goal,
    effort: Effort | None = None,
    *,
    id_column: str | None = None,
    metric: Metric = "l2",
    on_step: Step | None = None,
) -> Advice:
    """Find the method, bits, access path and settings that reach a recall the fastest.

    As `tune_index`, with models of several methods and lengths that are trained on the sample.

    Parameters
    ----------
    connection : psycopg.Connection
    table, column : str
        As SQL writes the table; the column by its bare name.
    goal : Goal
    effort : Effort, optional
    id_column : str, optional
        A unique NOT NULL column; the primary key by default.
    metric : {"l2", "cosine", "ip"}
    on_step : callable, optional

    Returns
    -------
    Advice

    Raises
    ------
    InvalidInputError
        As `tune_index`, and if there is no such table, column or key.
    MissingRightsError
        As `tune_index`.
    """
    task = _Task(table, column, id_column, metric, None)
    return _tune(connection, task, goal, effort or Effort(), on_step)


@dataclass(frozen=True)
class _Task:
    table: str
    column: str
    id_column: str | None
    metric: Metric
    index: IndexRow | None


def _tune(
    connection: Connection, task: _Task, goal: Goal, effort: Effort, on_step: Step | None
) -> Advice:
    goal.check()
    effort.check()
    deadline = time.monotonic() + 60 * effort.minutes
    with translated_errors():
        prepare(connection)
    subject = task.table if task.index is None else task.index.name
    # First, since it says best what is wrong with the connection or its role.
    with scratch(connection) as made, Job(connection, "tune", subject) as job:

        def say(message: str) -> None:
            job.phase(message)
            if on_step is not None:
                on_step(message)

        say(f"drawing rows of {task.table}")
        drawn = draw(
            connection, task.table, task.column, task.id_column, effort, goal.k, task.metric
        )
        bench = Bench(made, drawn, goal, task.metric, deadline, say)
        bench.load()
        if task.index is None:
            candidates = of_table(bench, effort.random_state)
        else:
            candidates = of_index(bench, task.index)
        coded, n_reference = code_all(bench, candidates, effort)
        _try_all(bench, coded)
        chosen, reason = recommend(bench.trials, goal)
        by_pgvector = None
        if chosen is not None and chosen.ef_search is not None:
            by_pgvector = statements(bench, chosen.ef_search)
    return Advice(
        goal=goal,
        table=task.table,
        column=task.column,
        id_column=drawn.source.key or "",
        metric=task.metric,
        index=None if task.index is None else task.index.name,
        rows=bench.scale.full,
        sample_rows=len(drawn.keys),
        reference_rows=n_reference,
        queries=len(drawn.Q),
        trials=bench.trials,
        recommended=chosen,
        reason=reason,
        left_out=bench.left_out,
        models={one.name: one.model for one in coded if one.reference is None},
        statements=by_pgvector,
    )


def _try_all(bench: Bench, coded: Sequence[Coded]) -> None:
    """Try the best model by every path, then pgvector's HNSW, then the other models."""
    ordered = worth_building(bench, coded)
    for one in ordered[:1]:
        _try_model(bench, one)
    try_pgvector(bench)
    for one in ordered[1:]:
        _try_model(bench, one)


def _try_model(bench: Bench, coded: Coded) -> None:
    trials = CodeTrials(bench, coded)

    def work() -> None:
        trials.build()
        for access in paths(bench, coded):
            bench.attempt(f"{coded.name}, {access}", _path(trials, access))

    try:
        bench.attempt(coded.name, work)
    finally:
        trials.drop()


def _path(trials: CodeTrials, access: Access) -> Callable[[], None]:
    return lambda: trials.try_path(access)
