"""``pg-hashindex index distribute``: an index on a table that Citus distributes."""

import click

from pg_hashindex.index.handle import HashIndex

from ._shared import connected, database_option, json_option, note, print_json, progress

__all__ = ["distribute"]


@click.command()
@click.argument("name")
@click.option(
    "--encode/--no-encode", default=True, show_default=True, help="Encode the rows there now."
)
@database_option
@json_option
def distribute(database_url: str, name: str, encode: bool, as_json: bool) -> None:
    """Bring index NAME to the shards of its table, which Citus distributes.

    Its codes are distributed beside their rows, its model is copied to every node, and each shard
    gets triggers. 'index create' does all this if the table is distributed already. May be run
    again at any time.
    """
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name)
        found.distribute()
        written = None
        if encode:
            with progress(f"encoding the rows of {found.qualified_table}") as bars:
                written = found.encode(progress=bars)
    if as_json:
        print_json({"name": name, "distributed": True, "encoded": written})
        return
    note(f"index {name} is on the shards of its table")
    if written is not None:
        note(f"encoded {written} rows")
