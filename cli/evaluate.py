"""``pg-hashindex evaluate``: recall and latency of a live index, now and over time."""

from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path

import click

from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.quality import query_sets, recall_history
from pg_hashindex.quality.code_scores import score_codes
from pg_hashindex.quality.evaluate import CANDIDATES, Evaluation, default_candidates
from pg_hashindex.quality.evaluate import evaluate as measure
from pg_hashindex.quality.plots import check_plot, draw_evaluation, draw_history, save_figure
from pg_hashindex.quality.query_sets import QuerySet
from pg_hashindex.quality.recall_history import HistoryPoint
from pg_hashindex.quality.scores import Scores

from ._shared import (
    NO,
    Share,
    candidates_option,
    echo,
    k_option,
    note,
    note_not_encoded,
    of_database,
    opened,
    plot_option,
    print_evaluation,
    print_json,
    print_table,
    progress,
    queries_from_option,
    queries_option,
    seed_option,
)


@click.command()
@click.argument("index")
@queries_option
@queries_from_option
@click.option("--set", "set_name", metavar="NAME", help="Use the queries saved under this name.")
@click.option("--save", metavar="NAME", help="Save the queries under this name, then use them.")
@k_option
@candidates_option(
    CANDIDATES,
    "The index's own is tried too if none is given, recall is recorded, or --fail-under is given.",
)
@click.option(
    "--fail-under",
    type=Share(),
    metavar="RECALL",
    help="Exit code 1 if recall with the index's own number of candidates is lower.",
)
@click.option(
    "--record/--no-record",
    default=None,
    help="Add the result to table hashindex.recall_history.  [default: only for saved queries]",
)
@click.option("--history", is_flag=True, help="Print the recorded history, and measure nothing.")
@click.option("--sets", is_flag=True, help="Print the saved sets of queries, and measure nothing.")
@click.option("--drop-set", metavar="NAME", help="Drop a saved set of queries; its history stays.")
@click.option(
    "--codes",
    is_flag=True,
    help="Measure the ranking by codes alone too, as the papers do: the nearest 2 % are relevant. "
    "All rows are ranked by the exact weights of bits, or by the asymmetric distance for 4 levels; "
    "a search rounds weights, and applies them only to the first rows by Hamming distance.",
)
@click.option(
    "--labels",
    metavar="COLUMN",
    help="Measure this ranking by labels: rows that share one are relevant. With --codes, both.",
)
@seed_option
@plot_option("recall and times against candidates into a file, or with --history recall over time")
@of_database
def evaluate(
    database_url: str,
    index: str,
    queries: int,
    queries_from: str | None,
    set_name: str | None,
    save: str | None,
    k: int,
    candidates: tuple[int, ...],
    fail_under: float | None,
    record: bool | None,
    history: bool,
    sets: bool,
    drop_set: str | None,
    codes: bool,
    labels: str | None,
    random_state: int,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Compare INDEX with exact search on rows of its own table.

    To follow recall over time, use the same queries: --save NAME draws and saves them, --set NAME
    uses them again, and each run is recorded. For cron and CI there is --fail-under.
    """
    if set_name is not None and (save is not None or queries_from is not None):
        raise click.UsageError("--set asks saved queries: leave --save and --queries-from out")
    if history + sets + (drop_set is not None) + (save is not None) > 1:
        raise click.UsageError("--history, --sets, --drop-set and --save do not go together")
    if plot_file is not None:
        if sets or drop_set is not None:
            raise click.UsageError(
                "--plot draws an evaluation or --history; leave --sets and --drop-set out"
            )
        check_plot(plot_file)
    scores: dict[str, Scores] = {}
    with opened(database_url, index) as handle:
        row = handle.row
        if history:
            points = recall_history.history(row, set_name)
            _print_history(points, as_json)
            if plot_file is not None:
                save_figure(draw_history(points, index), plot_file)
                note(f"wrote {plot_file}")
            return
        if sets:
            _print_sets(row, as_json)
            return
        if drop_set is not None:
            query_sets.drop(row, drop_set)
            note(f"dropped query set {drop_set}; what was measured with it stays in the history")
            return
        asked = _asked(row, queries, queries_from, set_name, save, random_state)
        if save is not None:
            note(f"saved {len(asked.queries)} queries as {save}")
        truths = [None] * codes + [labels] * (labels is not None)
        own = fail_under is not None or candidates == CANDIDATES
        judged = (default_candidates(row, k),) if own else ()
        with progress(f"evaluating index {index}"):
            for truth in truths:
                scores |= score_codes(row, labels=truth, queries=queries, random_state=random_state)
            result = measure(
                row,
                queries=asked,
                k=k,
                candidates=(*candidates, *judged),
                record=record,
            )
        _note(row, result, record)
    own_candidates = default_candidates(row, k)
    recall = next((p.recall for p in result.points if p.candidates == own_candidates), None)
    passed = None if fail_under is None else recall is not None and recall >= fail_under
    if as_json:
        by_codes = {truth: found.as_dict() for truth, found in scores.items()}
        fields = {"bits": row.n_bits, "levels": row.levels} | result.as_dict()
        fields |= {"codes": by_codes} if scores else {}
        print_json(fields | ({} if passed is None else {"passed": passed}))
    else:
        probes = f", {row.probes} probes" if row.access == "landmarks" else ""
        note(f"model {row.model}: {row.n_bits} bits, {row.levels} levels of a projection{probes}")
        print_evaluation(result)
        for name_of_truth, found in scores.items():
            echo(f"\nRanking by codes alone; truth: {name_of_truth}\n")
            print_table(["measure", "value"], list(found.values.items()))
    if plot_file is not None:
        save_figure(draw_evaluation(result, own=own_candidates), plot_file)
        note(f"wrote {plot_file}")
    if passed is False:
        note(
            f"recall@{k} is {recall:.4f} with the index's own {own_candidates} candidates, less "
            f"than {fail_under:g}"
        )
        raise click.exceptions.Exit(NO)


def _asked(
    index: IndexRow,
    queries: int,
    queries_from: str | None,
    set_name: str | None,
    save: str | None,
    seed: int,
) -> QuerySet:
    if set_name is not None:
        return query_sets.load(index, set_name)
    if save is not None:
        query_sets.check_set_name(save)
    if queries_from is not None:
        asked = query_sets.of_log(index, queries_from, queries)
    else:
        asked = query_sets.draw(index, queries, seed)
    return asked if save is None else query_sets.save(index, asked, save)


def _note(index: IndexRow, result: Evaluation, record: bool | None) -> None:
    note_not_encoded(index)
    if index.tenant_column is not None:
        note(
            f"each query was searched for within the {index.tenant_column} of its row; over all "
            "where it has none"
        )
    if result.skipped:
        note(
            f"{result.skipped} queries were left out: model {index.model} has no code for them, "
            "since it was not trained on them"
        )
    if result.query_set is not None and record is None and not result.recorded:
        note(f"not recorded: {recall_history.obstacle(index)}")


def _print_history(points: Sequence[HistoryPoint], as_json: bool) -> None:
    if as_json:
        print_json([point.as_dict() for point in points])
        return
    if not points:
        note("nothing is recorded yet; --save NAME saves queries, and records what they find")
        return
    k = {point.k for point in points}
    recall = f"recall@{min(k)}" if len(k) == 1 else "recall@k"
    *first, _, p50, p95 = recall_history.HEADINGS
    print_table([*first, recall, p50, p95], [astuple(point) for point in points])


def _print_sets(index: IndexRow, as_json: bool) -> None:
    found = query_sets.list_sets(index)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [[one.name, one.queries, one.rows, one.created_at] for one in found]
    print_table(["name", "queries", "rows of the table", "created"], rows)
