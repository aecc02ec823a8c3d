"""``pg-hashindex tune``: which settings reach a recall the fastest, tried on a sample."""

from pathlib import Path
from typing import Any, get_args

import click

from pg_hashindex.db.connection import Connection
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Metric
from pg_hashindex.quality.plots import check_plot, draw_frontier, save_figure
from pg_hashindex.quality.tuning import (
    Advice,
    Budget,
    Goal,
    apply,
    frontier,
    tune_index,
    tune_table,
)
from pg_hashindex.quality.tuning.applying import check_free

from ._shared import (
    NO,
    connected,
    echo,
    key_option,
    memory_option,
    note,
    of_database,
    plot_option,
    print_json,
    print_table,
    progress,
    queries_from_option,
    seed_option,
    smallest_option,
)

_DEFAULT = Budget()


@click.command()
@click.argument("index", required=False)
@click.option("--table", help="Table to find codes for, as SQL writes it, instead of an index.")
@click.option("--column", help="Its column of type vector or halfvec.")
@key_option("Its key columns.  [default: primary key]")
@click.option(
    "--metric",
    type=click.Choice(get_args(Metric)),
    help="Its exact distance.  [default: that of a vector index of the column, else cosine]",
)
@click.option("--recall", type=float, required=True, help="Recall to reach, above 0 and at most 1.")
@click.option("-k", "--k", type=int, default=10, show_default=True, help="Answers of a query.")
@click.option("--max-ms", type=float, help="The most milliseconds that the median query may take.")
@click.option("--max-bytes", type=int, help="The most bytes that may be added to the table.")
@smallest_option
@click.option(
    "--sample",
    type=int,
    default=_DEFAULT.sample,
    show_default=True,
    help="Rows to try on; all of a smaller table.",
)
@click.option(
    "--queries",
    type=int,
    default=_DEFAULT.queries,
    show_default=True,
    help="Rows held out as queries, or taken from --queries-from.",
)
@queries_from_option
@click.option(
    "--minutes",
    type=float,
    default=_DEFAULT.minutes,
    show_default=True,
    help="Minutes after which nothing more is begun; the most promising settings are tried first.",
)
@memory_option
@seed_option
@click.option(
    "--apply",
    "applied",
    is_flag=True,
    help="Store the recommendation as the index's defaults and build what it needs; with --table, "
    "save the model and create the index.",
)
@click.option("--name", help="Name of that model and index.")
@plot_option("the frontier into a file")
@of_database
def tune(
    database_url: str,
    index: str | None,
    table: str | None,
    column: str | None,
    key_columns: list[str] | None,
    metric: Metric | None,
    recall: float,
    k: int,
    max_ms: float | None,
    max_bytes: int | None,
    smallest: bool,
    applied: bool,
    name: str | None,
    plot_file: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Find the settings of INDEX, or codes for --table, that reach a recall the fastest.

    With --smallest, those that add the fewest bytes.

    Everything is tried on scratch tables that hold a sample of the rows and are dropped at the end:
    first the exact scan, pgvector's HNSW and binary_quantize (centred too where the vectors do not
    lie around 0), then codes. If the table is larger than the sample, recall, times and bytes are
    estimates. Exit code 1 if nothing reaches the recall within the limits.
    """
    only_table = {"--id": key_columns, "--metric": metric, "--name": name}
    if (index is None) == (table is None):
        raise click.UsageError("give either the name of an index or --table")
    if (table is None) != (column is None):
        raise click.UsageError("--table and --column belong together")
    for option, value in only_table.items():
        if index is not None and value is not None:
            raise click.UsageError(f"{option} is for --table: an index has its own")
    if index is None and applied and name is None:
        raise click.UsageError("--apply with --table needs the --name of the index to be created")
    goal = Goal(recall, k, max_ms, max_bytes, smallest)
    goal.check()
    tried = Budget(**budget)
    if plot_file is not None:
        check_plot(plot_file)
    with connected(database_url) as connection:
        if table is not None and column is not None:
            if applied and name is not None:
                check_free(connection, name, table)
            with progress(f"tuning for {table}"):
                advice = tune_table(
                    connection, table, column, goal, tried, key_columns=key_columns, metric=metric
                )
        else:
            found = HashIndex.open(connection, index or "")
            with progress(f"tuning index {index}"):
                advice = tune_index(found, goal, tried)
        made = None
        # Print first, so that results are not lost if applying fails or the disk is full.
        if not as_json:
            _print(advice, applied)
        try:
            made = _applied(connection, advice, name, tried.memory) if applied else None
        finally:
            if as_json:
                print_json(advice.as_dict() | {"applied": None if made is None else made.name})
            if plot_file is not None:
                save_figure(draw_frontier(advice), plot_file)
                note(f"wrote {plot_file}")
    if advice.recommended is None or (applied and made is None):
        raise click.exceptions.Exit(NO)


def _applied(
    connection: Connection, advice: Advice, name: str | None, memory: str | int
) -> HashIndex | None:
    chosen = advice.applicable
    if chosen is None:
        note(
            "nothing is applied: no setting of the index reaches the recall within the limits"
            if advice.index
            else "nothing is applied: the recommendation needs no codes"
            if advice.recommended
            else "nothing is applied"
        )
        return None
    if chosen != advice.recommended:
        note(f"the index cannot do that by its own model; applied its best setting: {chosen.label}")
    try:
        with progress(f"making {chosen.label}"):
            made = apply(connection, advice, name=name, memory=memory)
    except BaseException as error:
        # Ctrl-C comes here too.
        for left in getattr(error, "__notes__", ()):
            note(left)
        raise
    note(f"index {made.name} now searches by {chosen.label}")
    return made


def _print(advice: Advice, applied: bool) -> None:
    for reason in advice.left_out:
        note(f"left out: {reason}")
    words = "estimated for" if advice.sample_rows + advice.queries < advice.rows else "measured on"
    note(
        f"{words} {advice.rows} rows, from {advice.sample_rows} of them and {advice.queries} "
        "queries"
    )
    print_table(
        ["", "system", "setting", f"recall@{advice.goal.k}", "p50 ms", "p95 ms", "MB", "build s"],
        [
            [
                "*" if trial == advice.recommended else "",
                trial.system,
                trial.setting,
                trial.recall,
                trial.p50_ms,
                trial.p95_ms,
                trial.bytes / 1e6,
                trial.build_s,
            ]
            for trial in frontier(advice.trials)
        ],
    )
    echo()
    echo(("recommended: " if advice.recommended else "") + advice.reason)
    chosen = advice.recommended
    if chosen is None or (applied and advice.applicable):
        return
    how = advice.statements
    if chosen.own:
        how = "the same command with --apply"
    elif chosen.kind == "codes" and advice.index is None:
        how = "the same command with --apply --name NAME"
    note(f"to apply it: {how}")
