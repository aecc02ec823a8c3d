"""``pg-hashindex extension``: the files of CREATE EXTENSION pg_hashindex."""

import click

from pg_hashindex.db import extension as files

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
@click.argument("folder", type=click.Path(file_okay=False))
def write(folder: str) -> None:
    """Write the files into FOLDER, with a Makefile, META.json and a Dockerfile."""
    for path in files.write(folder):
        click.echo(path)


@extension.command()
def tle() -> None:
    """Print the script that registers the extension with pg_tle."""
    click.echo(files.tle_script(), nl=False)
