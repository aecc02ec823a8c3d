"""``pg-hashindex index swap``, ``rollback`` and ``prune``: another model for a live index."""

from dataclasses import asdict
from typing import Any

import click

from pg_hashindex.quality.query_sets import load

from ._shared import (
    Share,
    answer,
    k_option,
    note,
    of_index,
    opened,
    print_json,
    print_table,
    progress,
    queries_option,
    seed_option,
)
from .index import access_option, throttle_option

__all__ = ["prune", "rollback", "swap"]


@click.command()
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
@k_option
@queries_option
@click.option("--set", "query_set", metavar="NAME", help="Compare on this saved set of queries.")
@throttle_option
@seed_option
@of_index
def swap(
    database_url: str,
    name: str,
    model: str,
    k: int,
    queries: int,
    query_set: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Give index NAME another model, while it is searched and written to.

    With --column, also the vectors of another embedding model, which the application has written
    into a column of their own.

    Makes the new codes beside the old ones; run it again to continue an interrupted swap. Compares
    both on the same queries, and switches at once unless recall would fall. The old codes are kept
    up to date for 'index rollback' until 'index prune'.
    """
    with opened(database_url, name) as found:
        asked = queries if query_set is None else load(found, query_set)
        with progress(f"giving index {name} model {model}") as bars:
            done = found.swap(model, k=k, queries=asked, progress=bars, **options)
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
@of_index
def rollback(database_url: str, name: str, as_json: bool) -> None:
    """Return to the codes that index NAME had before the last swap."""
    with opened(database_url, name) as found:
        model = found.rollback()
    answer(as_json, {"name": name, "model": model}, f"index {name} has model {model} again")


@click.command()
@of_index
def prune(database_url: str, name: str, as_json: bool) -> None:
    """Drop the codes that index NAME had before the last swap."""
    with opened(database_url, name) as found:
        model = found.prune()
    said = f"dropped the codes of model {model} from index {name}"
    answer(as_json, {"name": name, "pruned": model}, said)
