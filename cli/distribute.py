"""``pg-hashindex index distribute``: an index on a table that Citus distributes."""

import click

from ._shared import answer, of_index, opened, progress

__all__ = ["distribute"]


@click.command()
@click.option(
    "--encode/--no-encode", default=True, show_default=True, help="Encode the rows there now."
)
@of_index
def distribute(database_url: str, name: str, encode: bool, as_json: bool) -> None:
    """Bring index NAME to the shards of its table, which Citus distributes.

    Its codes are distributed beside their rows, its model is copied to every node, and each shard
    gets triggers. 'index create' does all this if the table is distributed already. May be run
    again at any time.
    """
    with opened(database_url, name) as found:
        found.distribute()
        written = None
        if encode:
            with progress(f"encoding the rows of {found.qualified_table}") as bars:
                written = found.encode(progress=bars)
    said = [f"index {name} is on the shards of its table"]
    said += [] if written is None else [f"encoded {written} rows"]
    answer(as_json, {"name": name, "distributed": True, "encoded": written}, *said)
