"""``pg-hashindex index swap``, ``rollback`` and ``prune``: another model for a live index."""

from dataclasses import asdict

import click

from pg_hashindex.index.catalog import Access
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.query_sets import load

from ._shared import (
    Share,
    connected,
    database_option,
    json_option,
    note,
    print_json,
    print_table,
    progress,
)
from .index import access_option, throttle_option

__all__ = ["prune", "rollback", "swap"]


@click.command()
@click.argument("name")
@click.option("--model", required=True, metavar="NAME[:VERSION]", help="Model that takes over.")
@click.option("--column", metavar="C", help="Column whose vectors take over; by default it stays.")
@access_option(None)
@click.option(
    "--tolerance",
    type=Share(),
    default=0.01,
    show_default=True,
    help="How much recall may fall.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Take the new codes even if recall falls by more, or the new column lacks vectors.",
)
@click.option("--k", "-k", type=int, default=10, show_default=True, help="Answers compared.")
@click.option("--queries", type=int, default=200, show_default=True, help="Rows to search for.")
@click.option("--set", "query_set", metavar="NAME", help="Compare on this saved set of queries.")
@throttle_option
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw."
)
@database_option
@json_option
def swap(
    database_url: str,
    name: str,
    model: str,
    column: str | None,
    access: Access | None,
    tolerance: float,
    force: bool,
    k: int,
    queries: int,
    query_set: str | None,
    throttle: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Give index NAME another model, while it is searched and written to.

    With --column, also the vectors of another embedding model, which the application has written
    into a column of their own.

    Makes the new codes beside the old ones; run it again to continue an interrupted swap. Compares
    both on the same queries, and switches at once unless recall would fall. The old codes are kept
    up to date for 'index rollback' until 'index prune'.
    """
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name)
        asked = queries if query_set is None else load(found, query_set)
        with progress(f"giving index {name} model {model}") as bars:
            done = found.swap(
                model,
                column=column,
                access=access,
                tolerance=tolerance,
                force=force,
                k=k,
                queries=asked,
                rows_per_second=throttle,
                random_state=seed,
                progress=bars,
            )
    if as_json:
        print_json({"name": name} | asdict(done))
        return
    if done.before is not None and done.after is not None:
        print_table(
            ["model", "access", "candidates", f"recall@{k}", "p50 ms", "p95 ms"],
            [
                [p.model, p.access, p.candidates, p.recall, p.p50_ms, p.p95_ms]
                for p in (done.before, done.after)
            ],
        )
    note(
        f"index {name} has model {done.model}; the codes of {done.model_before} are kept "
        f"up to date until: pg-hashindex index prune {name}"
    )


@click.command()
@click.argument("name")
@database_option
@json_option
def rollback(database_url: str, name: str, as_json: bool) -> None:
    """Return to the codes that index NAME had before the last swap."""
    with connected(database_url) as connection:
        model = HashIndex.open(connection, name).rollback()
    if as_json:
        print_json({"name": name, "model": model})
    else:
        note(f"index {name} has model {model} again")


@click.command()
@click.argument("name")
@database_option
@json_option
def prune(database_url: str, name: str, as_json: bool) -> None:
    """Drop the codes that index NAME had before the last swap."""
    with connected(database_url) as connection:
        model = HashIndex.open(connection, name).prune()
    if as_json:
        print_json({"name": name, "pruned": model})
    else:
        note(f"dropped the codes of model {model} from index {name}")
