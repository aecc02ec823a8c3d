"""``pg-hashindex server``: the embedded PostgreSQL."""

import shlex
from pathlib import Path

import click

from pg_hashindex.server import DEFAULT_VERSION, SUPPORTED_VERSIONS, EmbeddedServer

from ._shared import note, together

server_options = together(
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="PG_HASHINDEX_SERVER_DIR",
        show_envvar=True,
        help="Folder of the server's data.  [default: one of its own for each version]",
    ),
    click.option(
        "--pg-version",
        type=click.Choice([str(version) for version in SUPPORTED_VERSIONS]),
        help=f"Major version of PostgreSQL.  [default: the data's, {DEFAULT_VERSION} for new data]",
    ),
)


def find_server(data_dir: Path | None, pg_version: str | None) -> EmbeddedServer:
    """Return the server that the options select."""
    return EmbeddedServer(data_dir, version=int(pg_version) if pg_version else None)


@click.group()
def server() -> None:
    """Start and stop an embedded PostgreSQL with pgvector."""


@server.command()
@server_options
def start(data_dir: Path | None, pg_version: str | None) -> None:
    """Start the server, leave it running, and print the URL of a database with pgvector."""
    embedded = find_server(data_dir, pg_version)
    if embedded.is_running:
        note(f"PostgreSQL {embedded.version} is running already in {embedded.data_dir}")
    else:
        note(f"starting PostgreSQL {embedded.version} in {embedded.data_dir}")
    embedded.start()
    click.echo(embedded.uri())
    note(f"open it:  {embedded.psql_command()}")
    note(f"stop it:  pg-hashindex server stop{_options(data_dir, pg_version)}")


@server.command()
@server_options
def stop(data_dir: Path | None, pg_version: str | None) -> None:
    """Stop the server; its data stays."""
    embedded = find_server(data_dir, pg_version)
    stopped = embedded.stop()
    note(f"stopped: {embedded.data_dir}" if stopped else f"not running: {embedded.data_dir}")


def _options(data_dir: Path | None, pg_version: str | None) -> str:
    """Repeat the options given, for a command line to paste."""
    arguments: list[str] = []
    if data_dir is not None:
        arguments += ["--data-dir", str(data_dir)]
    elif pg_version is not None:
        arguments += ["--pg-version", pg_version]
    return f" {shlex.join(arguments)}" if arguments else ""
