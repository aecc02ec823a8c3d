"""``pg-hashindex index repair``: bring an index back into order, drop what belongs to none."""

from dataclasses import asdict

import click

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.orphans import drop_orphans

from ._shared import connected, database_option, echo, json_option, note, print_json

__all__ = ["repair"]


@click.command()
@click.argument("name", required=False)
@click.option("--table", help="Table that is searched.  [default: the one with the triggers]")
@click.option("--column", help="Its column of vectors.  [default: found by the codes]")
@click.option("--id", "id_column", help="Its key column.  [default: found by the codes]")
@click.option("--full", is_flag=True, help="Compare every code with a fresh encoding.")
@click.option("--undo", is_flag=True, help="Give a swap up that was begun.")
@click.option("--orphans", is_flag=True, help="Drop what belongs to no index, instead of NAME.")
@database_option
@json_option
def repair(
    database_url: str,
    name: str | None,
    table: str | None,
    column: str | None,
    id_column: str | None,
    full: bool,
    undo: bool,
    orphans: bool,
    as_json: bool,
) -> None:
    """Bring index NAME back into order, and print what was done; exit code 1 if something is left.

    Follows renamed tables and columns, makes what is missing, removes codes that are wrong, encodes
    rows without one, and finishes what was cut off. Drops an index whose table or vector column is
    gone. May be run again at any time.
    """
    if orphans:
        if name is not None or table or column or id_column or full or undo:
            raise click.UsageError("--orphans goes with no index and no other option")
        _drop_orphans(database_url, as_json)
        return
    if name is None:
        raise click.UsageError("name an index to repair, or give --orphans")
    with connected(database_url) as connection:
        result = HashIndex.open(connection, name).repair(
            table=table, column=column, id_column=id_column, full=full, undo=undo, progress=True
        )
    if as_json:
        print_json(asdict(result))
    else:
        for line in result.done:
            echo(line)
        if not result.done and not result.left:
            note(f"index {name} is in order")
    for line in result.left:
        note(line)
    if result.left:
        raise click.exceptions.Exit(1)


def _drop_orphans(database_url: str, as_json: bool) -> None:
    with connected(database_url) as connection:
        dropped = drop_orphans(connection)
    if as_json:
        print_json([asdict(orphan) for orphan in dropped])
        return
    for orphan in dropped:
        echo(f"dropped {orphan.kind} {orphan.object}")
    if not dropped:
        note("everything in schema hashindex belongs to an index")
