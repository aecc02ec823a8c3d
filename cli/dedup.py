"""``pg-hashindex dedup``: near-duplicates of an index's rows."""

from dataclasses import asdict
from typing import Any

import click

import pg_hashindex

from ._shared import answer, of_name, opened, progress, seed_option


@click.command()
@click.option("--into", required=True, metavar="TABLE", help="Table of the pairs, which is made.")
@click.option(
    "--min-similarity", type=float, metavar="S", help="Least cosine similarity of a pair, -1 to 1."
)
@click.option("--max-distance", type=float, metavar="D", help="Greatest distance of a pair.")
@click.option(
    "--radius",
    type=click.IntRange(min=0),
    help="Most bits in which codes differ.  [default: holds 99 of 100 pairs]",
)
@click.option(
    "--lists",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="Lists that a list is compared with.",
)
@seed_option
@of_name
def dedup(
    database_url: str,
    name: str,
    into: str,
    min_similarity: float | None,
    max_distance: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write all pairs of near-duplicate rows of index NAME into a table.

    Compares the codes of near lists, then the vectors of near codes. Run it again to continue a run
    that was cut off. The table has columns id, other_id and distance; keys of several columns are
    id_1, id_2, other_id_1 and other_id_2.
    """
    if (min_similarity is None) == (max_distance is None):
        raise click.UsageError("give --min-similarity or --max-distance")
    with opened(database_url, name) as index:
        if min_similarity is not None:
            if index.row.metric != "cosine":
                raise click.UsageError(
                    f"index {name} has metric {index.row.metric}; give --max-distance"
                )
            if not -1 <= min_similarity <= 1:
                raise click.UsageError(f"--min-similarity is {min_similarity}; it must be -1 to 1")
            max_distance = 1 - min_similarity
        assert max_distance is not None  # noqa: S101
        with progress(f"comparing the lists of index {name}"):
            done = pg_hashindex.operations.near_duplicates(
                index, into, max_distance=max_distance, **options
            )
    answer(
        as_json,
        {"name": name} | asdict(done),
        f"table {into} has {done.pairs} pairs, whose codes differ in at most {done.radius} bits",
    )
