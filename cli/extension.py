"""``pg-hashindex extension``: the files of CREATE EXTENSION pg_hashindex."""

from pathlib import Path

import click

from pg_hashindex.db import extension as files
from pg_hashindex.models.whole_files import write_whole

from ._shared import note


@click.group()
def extension() -> None:
    """Write the files of CREATE EXTENSION pg_hashindex, for servers that take some."""


@extension.command()
@click.option(
    "--pg-config",
    default="pg_config",
    show_default=True,
    metavar="PATH",
    help="The server's own program pg_config.",
)
def install(pg_config: str) -> None:
    """Copy the files to the PostgreSQL of this machine."""
    written = files.install(pg_config)
    note(f"{len(written)} files are in {written[0].parent}; in a database run:")
    note("CREATE EXTENSION pg_hashindex CASCADE;")


@extension.command()
@click.argument("path", type=click.Path())
@click.option(
    "--tle", is_flag=True, help="Write a script that registers the extension with pg_tle."
)
def write(path: str, tle: bool) -> None:
    """Write the files into folder PATH, with a Makefile, META.json and a Dockerfile.

    With --tle, PATH is the file of the script.
    """
    if tle:
        write_whole(Path(path), files.tle_script().encode())
    for written in [path] if tle else files.write(path):
        click.echo(written)
