"""``pg-hashindex report``: an index on one page."""

from pathlib import Path
from typing import Any

import click

from pg_hashindex.operations.report import check_page, gather, page, save_page
from pg_hashindex.quality.evaluate import CANDIDATES

from ._shared import (
    candidates_option,
    database_option,
    k_option,
    note,
    opened,
    progress,
    queries_option,
    seed_option,
)


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
@queries_option
@click.option(
    "--set", "query_set", metavar="NAME", help="Use the queries saved under this name instead."
)
@k_option
@candidates_option(CANDIDATES, "The index's own is always tried.")
@seed_option
@database_option
def report(database_url: str, index: str, html_file: Path, **options: Any) -> None:
    """Write a report on INDEX into one page of HTML, readable without a network.

    It shows the index and its size, the findings of 'index check', recall and times against
    candidates, measured now, the distribution of its bits and lists, and recall over time. The
    database is only read: it works on a standby, and nothing is recorded. Needs the extra plot.
    """
    check_page(html_file)
    with opened(database_url, index) as found:
        with progress(f"measuring index {index}"):
            gathered = gather(found, **options)
        text = page(gathered)
    save_page(text, html_file)
    note(f"wrote {html_file}")
