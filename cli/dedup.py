"""``pg-hashindex dedup``: near-duplicates of an index's rows."""

from dataclasses import asdict

import click

from pg_hashindex.index.handle import HashIndex

from ._shared import connected, database_option, json_option, note, print_json, progress

__all__ = ["dedup"]


@click.command()
@click.argument("index")
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
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the radius."
)
@database_option
@json_option
def dedup(
    database_url: str,
    index: str,
    into: str,
    min_similarity: float | None,
    max_distance: float | None,
    radius: int | None,
    lists: int,
    seed: int,
    as_json: bool,
) -> None:
    """Write all pairs of near-duplicate rows of INDEX into a table.

    Compares the codes of near lists, then the vectors of near codes. Run it again to continue a run
    that was cut off. The table has columns id, other_id and distance.
    """
    if (min_similarity is None) == (max_distance is None):
        raise click.UsageError("give --min-similarity or --max-distance")
    with connected(database_url) as connection:
        found = HashIndex.open(connection, index)
        if min_similarity is not None:
            if found.row.metric != "cosine":
                raise click.UsageError(
                    f"index {index} has metric {found.row.metric}; give --max-distance"
                )
            if not -1 <= min_similarity <= 1:
                raise click.UsageError(f"--min-similarity is {min_similarity}; it must be -1 to 1")
            max_distance = 1 - min_similarity
        assert max_distance is not None  # noqa: S101
        with progress(f"comparing the lists of index {index}") as bars:
            done = found.near_duplicates(
                into,
                max_distance=max_distance,
                radius=radius,
                lists=lists,
                random_state=seed,
                progress=bars,
            )
    if as_json:
        print_json({"index": index} | asdict(done))
    else:
        note(
            f"table {into} has {done.pairs} pairs, whose codes differ in at most {done.radius} bits"
        )
