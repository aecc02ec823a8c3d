"""``pg-hashindex evaluate``: recall and latency of a live index, now and over time."""

from collections.abc import Sequence
from dataclasses import asdict, astuple

import click

from pg_hashindex.errors import MissingRightsError
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.quality import recall_history
from pg_hashindex.quality.advice import of_measured
from pg_hashindex.quality.evaluate import CANDIDATES, Evaluation
from pg_hashindex.quality.evaluate import evaluate as measure
from pg_hashindex.quality.queries import of_log
from pg_hashindex.quality.recall_history import HistoryPoint
from pg_hashindex.quality.tenant_recall import Tenant, measure_by_size

from ._shared import (
    NO,
    echo,
    fail_under_option,
    k_option,
    note,
    note_not_encoded,
    of_name,
    opened,
    print_evaluation,
    print_json,
    print_table,
    progress,
    queries_from_option,
    queries_option,
)


@click.command()
@queries_option()
@queries_from_option
@k_option
@click.option(
    "--candidates",
    type=int,
    multiple=True,
    default=CANDIDATES,
    show_default=True,
    help="A number of candidates to try; may be given again. The index's own is tried too if none "
    "is given, or with --save or --fail-under.",
)
@click.option("--save", is_flag=True, help="Add the result to table hashindex.recall_history.")
@click.option("--history", is_flag=True, help="Print the saved results, and measure nothing.")
@fail_under_option
@of_name
def evaluate(
    database_url: str,
    name: str,
    queries: int,
    queries_from: str | None,
    k: int,
    candidates: tuple[int, ...],
    save: bool,
    history: bool,
    fail_under: float | None,
    as_json: bool,
) -> None:
    """Compare index NAME with exact search on rows of its own table.

    The same rows are searched for each time, while they are there, so that results which --save
    keeps show how recall changes. For cron and CI there is --fail-under.
    """
    if history and (save or fail_under is not None or queries_from is not None):
        raise click.UsageError(
            "--history measures nothing: leave --save, --fail-under and --queries-from out"
        )
    with opened(database_url, name) as handle:
        row = handle.row
        if history:
            _print_history(recall_history.history(row), as_json)
            return
        own = fail_under is not None or candidates == CANDIDATES
        own_candidates = row.candidates_for(k)
        with progress(f"evaluating index {name}"):
            result = measure(
                row,
                queries=queries if queries_from is None else of_log(row, queries_from, queries),
                k=k,
                candidates=(*candidates, *((own_candidates,) if own else ())),
                save=save,
            )
        _note(row, result)
        by_size = _by_size(row)
    recall = next((p.recall for p in result.points if p.candidates == own_candidates), None)
    passed = None if fail_under is None else recall is not None and recall >= fail_under
    if as_json:
        fields = {"bits": row.n_bits, "cuts": len(row.cuts)} | result.as_dict()
        fields |= {"tenants": [asdict(one) for one in by_size]} if by_size else {}
        print_json(fields | ({} if passed is None else {"passed": passed}))
    else:
        bits = f": {row.n_bits} bits, {len(row.cuts)} a projection" if row.model_id else ""
        effort = f", {row.effort} lists" if row.access == "lists" else ""
        note(f"model {row.model}{bits}{effort}" if bits else row.set)
        print_evaluation(result)
        for point in result.points:
            said = of_measured(point, result.exact_p50_ms)
            if own and point.candidates == own_candidates and said.level != "ok":
                note(" ".join((said.text, *said.commands)))
        if by_size:
            echo()
            print_table(
                [row.tenant_column or "", "rows", "landmarks", "recall@10"],
                [astuple(one) for one in by_size],
            )
    if passed is False:
        note(
            f"recall@{k} is {recall:.4f} with the index's own {own_candidates} candidates, less "
            f"than {fail_under:g}"
        )
        raise click.exceptions.Exit(NO)


def _by_size(index: IndexRow) -> list[Tenant]:
    """Measure the recall within some tenants, by the settings of the index."""
    if index.tenant_column is None or index.state != "used":
        return []
    try:
        with progress(f"evaluating tenants of index {index.name}"):
            return measure_by_size(index)
    except MissingRightsError as error:
        note(f"tenants were not measured: {error}")
        return []


def _note(index: IndexRow, result: Evaluation) -> None:
    note_not_encoded(index)
    if index.tenant_column is not None:
        note(
            f"each query was searched for within the {index.tenant_column} of its row; over all "
            "where it has none"
        )


def _print_history(points: Sequence[HistoryPoint], as_json: bool) -> None:
    if as_json:
        print_json([asdict(point) for point in points])
        return
    if not points:
        note("nothing is saved yet; evaluate with --save")
        return
    k = {point.k for point in points}
    recall = f"recall@{min(k)}" if len(k) == 1 else "recall@k"
    *first, _, p50, p95 = recall_history.HEADINGS
    print_table([*first, recall, p50, p95], [astuple(point) for point in points])
