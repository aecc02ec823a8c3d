"""``pg-hashindex extension``: the files of CREATE EXTENSION pg_hashindex."""

from contextlib import suppress
from pathlib import Path

import click

from pg_hashindex.db import extension as files
from pg_hashindex.models.whole_files import write_whole

from ._shared import note

#: Files that come with those of the extension, and that other projects have too.
_OF_THE_FOLDER = ("Makefile", "Dockerfile", "META.json")


@click.command()
@click.argument("path", type=click.Path(), required=False)
@click.option(
    "--install", is_flag=True, help="Copy the files to the PostgreSQL of this machine instead."
)
@click.option(
    "--pg-config",
    default="pg_config",
    show_default=True,
    metavar="PATH",
    help="With --install: the server's own program pg_config.",
)
@click.option(
    "--tle", is_flag=True, help="Write a script that registers the extension with pg_tle."
)
def extension(path: str | None, install: bool, pg_config: str, tle: bool) -> None:
    """Write the files of CREATE EXTENSION pg_hashindex, for servers that take some.

    They come into folder PATH, with a Makefile, META.json and a Dockerfile. With --tle, PATH is the
    file of the script.
    """
    if (path is None) != install or (install and tle):
        raise click.UsageError("name the folder or the file to write, or give --install alone")
    if path is None:
        written = files.install(pg_config)
        for file in written:
            # The server reads them as its own user, whatever umask root has.
            with suppress(PermissionError):
                file.chmod(0o644)
        note(f"{len(written)} files are in {written[0].parent}; in a database run:")
        note("CREATE EXTENSION pg_hashindex CASCADE;")
        return
    folder = Path(path)
    if not tle and not (folder / f"{files.NAME}.control").exists():
        held = [name for name in _OF_THE_FOLDER if (folder / name).exists()]
        if held:
            raise click.UsageError(
                f"{folder} holds files of something else ({', '.join(held)}): name another folder"
            )
    if tle:
        write_whole(Path(path), files.tle_script().encode())
    for made in [path] if tle else files.write(path):
        click.echo(made)
