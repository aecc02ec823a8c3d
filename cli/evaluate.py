"""``pg-hashindex evaluate``: recall and latency of a live index."""

import click

from pg_hashindex.code_scores import score_codes
from pg_hashindex.comparison import Scores
from pg_hashindex.evaluate import CANDIDATES
from pg_hashindex.evaluate import evaluate as measure
from pg_hashindex.index import HashIndex

from ._shared import (
    connected,
    database_option,
    json_option,
    print_evaluation,
    print_json,
    print_table,
)


@click.command()
@click.argument("index")
@click.option("--queries", type=int, default=200, show_default=True, help="Rows to search for.")
@click.option("--k", "-k", type=int, default=10, show_default=True, help="Answers compared.")
@click.option(
    "--candidates",
    type=int,
    multiple=True,
    default=CANDIDATES,
    show_default=True,
    help="A number of candidates to try; may be given again.",
)
@click.option(
    "--codes",
    is_flag=True,
    help="Measure the ranking by codes alone too, as the papers do: the nearest 2 % are relevant. "
    "It ranks all rows, by the exact weights of bits; a search rounds weights, and orders by them "
    "only the first by plain Hamming distance.",
)
@click.option(
    "--labels",
    metavar="COLUMN",
    help="Measure this ranking by labels: rows that share one are relevant. With --codes, both.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw."
)
@database_option
@json_option
def evaluate(
    database_url: str,
    index: str,
    queries: int,
    k: int,
    candidates: tuple[int, ...],
    codes: bool,
    labels: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare INDEX with exact search on rows of its own table."""
    scores: dict[str, Scores] = {}
    with connected(database_url) as connection:
        opened = HashIndex.open(connection, index)
        truths = [None] * codes + [labels] * (labels is not None)
        for truth in truths:
            scores |= score_codes(
                opened, labels=truth, queries=queries, random_state=seed, progress=True
            )
        result = measure(
            opened,
            queries=queries,
            k=k,
            candidates=candidates,
            random_state=seed,
            progress=True,
        )
    if as_json:
        by_codes = {truth: found.as_dict() for truth, found in scores.items()}
        print_json(result.as_dict() | ({"codes": by_codes} if scores else {}))
        return
    print_evaluation(result)
    for name_of_truth, found in scores.items():
        click.echo(f"\nRanking by codes alone; truth: {name_of_truth}\n")
        print_table(["measure", "value"], [[name, value] for name, value in found.values.items()])
