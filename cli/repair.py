"""``pg-hashindex index repair`` and ``rebind``."""

from dataclasses import asdict

import click

from pg_hashindex.operations.repair import Repaired, drop_orphans

from ._shared import NO, connected, echo, note, of_database, of_index, opened, print_json, progress

__all__ = ["rebind", "repair"]


@click.command()
@click.argument("name", required=False)
@click.option("--full", is_flag=True, help="Compare every code with a fresh encoding.")
@click.option("--undo", is_flag=True, help="Give up an unfinished swap.")
@click.option(
    "--orphans",
    is_flag=True,
    help="Instead of repairing NAME, drop objects that belong to no index.",
)
@of_database
def repair(
    database_url: str, name: str | None, full: bool, undo: bool, orphans: bool, as_json: bool
) -> None:
    """Repair index NAME, and print what was done; exit code 1 if something is left.

    Makes missing parts, removes wrong codes, encodes rows without a code, and finishes interrupted
    work. May be run again at any time. If the table or a column was renamed, use: index rebind.
    """
    if orphans:
        if name is not None or full or undo:
            raise click.UsageError("--orphans goes with no index and no other option")
        _drop_orphans(database_url, as_json)
        return
    if name is None:
        raise click.UsageError("name an index to repair, or give --orphans")
    with opened(database_url, name) as found, progress(f"repairing index {name}") as bars:
        result = found.repair(full=full, undo=undo, progress=bars)
    _print(result, as_json)


@click.command()
@click.option("--table", help="Table that is searched.  [default: as before]")
@click.option("--column", help="Its column of vectors.  [default: as before]")
@click.option("--id", "id_column", help="Its key column.  [default: as before]")
@of_index
def rebind(database_url: str, name: str, as_json: bool, **names: str | None) -> None:
    """Name the table or columns of index NAME after a renaming, and repair it.

    Compares every code with a fresh encoding of its row.
    """
    if not any(names.values()):
        raise click.UsageError("give --table, --column or --id")
    with opened(database_url, name) as found, progress(f"repairing index {name}") as bars:
        result = found.rebind(**names, progress=bars)
    _print(result, as_json)


def _print(result: Repaired, as_json: bool) -> None:
    if as_json:
        print_json(asdict(result))
    else:
        for line in result.done:
            echo(line)
        if not result.done and not result.left:
            note(f"index {result.name} is in order")
    for line in result.left:
        note(line)
    if result.left:
        raise click.exceptions.Exit(NO)


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
