"""``pg-hashindex schema``: install, remove and inspect schema hashindex."""

import click

from pg_hashindex import schema as installed
from pg_hashindex.db.connection import create_engine
from pg_hashindex.db.server_errors import translated_errors

from ._shared import (
    NO,
    confirm,
    json_option,
    note,
    print_json,
    print_table,
    url_option,
    yes_option,
)


def _print_script(context: click.Context) -> None:
    click.echo(installed.script(), nl=False)
    context.exit()


@click.group()
def schema() -> None:
    """Install, upgrade or remove the schema in a database."""


@schema.command()
@click.option(
    "--owner",
    metavar="ROLE",
    help="Role that administers the schema: it owns a schema that is made, and must own one that "
    "is there.  [default: your role]",
)
@click.option(
    "--sql",
    is_flag=True,
    # Before other options: it needs no database.
    is_eager=True,
    expose_value=False,
    callback=lambda context, parameter, given: _print_script(context) if given else None,
    help="Print one script that installs everything with psql alone, and end.",
)
@url_option
def upgrade(database_url: str, owner: str | None) -> None:
    """Install the schema, or bring it up to this release.

    A schema hashindex of another role is refused unless --owner names that role: it can run code as
    whoever uses the schema. A superuser upgrades only a schema of his own: connect as its owner.
    """
    with translated_errors(), create_engine(database_url).begin() as connection:
        changed = installed.upgrade(connection, owner=owner)
        administrator, superuser = installed.administrator(connection) or ("", False)
    if superuser:
        note(
            f"warning: schema hashindex belongs to superuser {administrator}, and triggers run as "
            "it. For another owner, while there is nothing to keep: pg-hashindex schema downgrade; "
            "CREATE ROLE hashindex_admin LOGIN; pg-hashindex schema upgrade --owner hashindex_admin"
        )
    note(f"schema is at revision {installed.head()}" if changed else "already up to date")
    note(f"role {administrator} administers it; all roles that search or write trust it")


@schema.command()
@yes_option
@url_option
def downgrade(database_url: str, yes: bool) -> None:
    """Remove the schema with its models; refused while there are indexes."""
    if not yes:
        confirm("Remove schema hashindex and all models in it?")
    with translated_errors(), create_engine(database_url).begin() as connection:
        there = installed.status(connection).installed
        installed.downgrade(connection, drop_models=True)
    note("schema hashindex is removed" if there else "schema hashindex is not installed")


@schema.command()
@url_option
@json_option
def status(database_url: str, as_json: bool) -> None:
    """Compare the database with this release; exit code 1 if an upgrade is due."""
    with translated_errors(), create_engine(database_url).connect() as connection:
        found = installed.status(connection)
    if as_json:
        print_json(found.as_dict())
    else:
        rows = [
            ["revision", found.revision or "none", found.head],
            ["functions", found.functions or "none", found.packaged_functions],
        ]
        if found.extension is not None:
            rows.append(["extension", found.extension, ""])
        print_table(["", "database", "this release"], rows)
    if not found.up_to_date:
        note("run: pg-hashindex schema upgrade")
        raise click.exceptions.Exit(NO)
