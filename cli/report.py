"""``pg-hashindex report``: an index on one page."""

from pathlib import Path

import click

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.report import check_page, gather, page, save_page
from pg_hashindex.quality.evaluate import CANDIDATES
from pg_hashindex.quality.tuning import read_advice

from ._shared import connected, database_option, note, progress

__all__ = ["report"]


@click.command()
@click.argument("index")
@click.option(
    "--html",
    "html_file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="File to write the page to; an existing file is replaced.",
)
@click.option("--queries", type=int, default=200, show_default=True, help="Rows to search for.")
@click.option(
    "--set", "set_name", metavar="NAME", help="Use the queries saved under this name instead."
)
@click.option("--k", "-k", type=int, default=10, show_default=True, help="Answers compared.")
@click.option(
    "--candidates",
    type=int,
    multiple=True,
    default=CANDIDATES,
    show_default=True,
    help="A number of candidates to try; may be given again. The index's own is always tried.",
)
@click.option(
    "--tune",
    "tune_file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="The output of 'pg-hashindex tune --json', whose frontier is shown.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws."
)
@database_option
def report(
    database_url: str,
    index: str,
    html_file: Path,
    queries: int,
    set_name: str | None,
    k: int,
    candidates: tuple[int, ...],
    tune_file: Path | None,
    seed: int,
) -> None:
    """Write a report on INDEX into one page of HTML, readable without a network.

    It shows the index and its size, the findings of 'index check', recall and times against
    candidates, measured now, the distribution of its bits and lists, and recall over time. The
    database is only read: it works on a standby, and nothing is recorded. Needs the extra plot.
    """
    check_page(html_file)
    advice = None if tune_file is None else read_advice(tune_file)
    with connected(database_url) as connection:
        opened = HashIndex.open(connection, index)
        with progress(f"measuring index {index}") as bars:
            found = gather(
                opened,
                queries=queries,
                query_set=set_name,
                k=k,
                candidates=candidates,
                advice=advice,
                random_state=seed,
                progress=bars,
            )
        text = page(found)
    save_page(text, html_file)
    note(f"wrote {html_file}")
