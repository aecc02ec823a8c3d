"""``pg-hashindex tune``: the candidates and effort with which an index reaches a recall."""

from pathlib import Path

import click
from numpy.typing import ArrayLike

from pg_hashindex.quality import tuning
from pg_hashindex.quality.plots import check_plot, draw_frontier, save_figure
from pg_hashindex.quality.queries import of_log

from ._shared import (
    NO,
    echo,
    k_option,
    note,
    of_name,
    opened,
    plot_option,
    print_json,
    print_tuned,
    progress,
    queries_from_option,
    queries_option,
    seed_option,
)


@click.command()
@click.option("--recall", type=float, required=True, help="Recall to reach, above 0 and at most 1.")
@k_option
@click.option("--max-ms", type=float, help="The most milliseconds that the median query may take.")
@queries_option()
@queries_from_option
@seed_option
@click.option("--apply", "applied", is_flag=True, help="Store the settings in the index.")
@plot_option("recall against time into a file")
@of_name
def tune(
    database_url: str,
    name: str,
    recall: float,
    k: int,
    max_ms: float | None,
    queries: int,
    queries_from: str | None,
    random_state: int,
    applied: bool,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Find the candidates and effort with which index NAME reaches a recall the fastest.

    Measures the index itself against exact search, and changes nothing without --apply. Exit code 1
    if no settings reach the recall within the time; the last line then says what to do.
    """
    if plot_file is not None:
        check_plot(plot_file)
    with opened(database_url, name) as found:
        asked: ArrayLike = queries
        if queries_from is not None:
            asked = of_log(found, queries_from, queries, random_state)
        with progress(f"tuning index {name}"):
            tuned = tuning.tune(
                found, recall, k=k, max_ms=max_ms, queries=asked, random_state=random_state
            )
        reached = tuned.cause is None
        # Print first, so that results are not lost if applying fails or the disk is full.
        if as_json:
            print_json(tuned.as_dict())
        else:
            print_tuned(tuned)
            best = tuning.describe(tuned.best)
            echo(f"\nrecommended: {best}" if reached else f"\nnothing reaches {tuned.goal}")
        if plot_file is not None:
            save_figure(draw_frontier(tuned), plot_file)
            note(f"wrote {plot_file}")
        if applied and reached:
            tuning.apply(found, tuned)
            note(f"searches of {name} keep {tuning.describe(tuned.best)} from now on")
    if not reached:
        note(f"{tuned.cause}; {tuned.remedy}")
        raise click.exceptions.Exit(NO)
    if not applied:
        note("to store that in the index: the same command with --apply")
