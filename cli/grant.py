"""``pg-hashindex index grant`` and ``revoke``: who may search an index, and who maintains it."""

import click

from pg_hashindex.index import HashIndex

from ._shared import connected, database_option, json_option, note, print_json

__all__ = ["grant", "revoke"]


@click.command()
@click.argument("name")
@click.option("--reader", "readers", multiple=True, metavar="ROLE", help="Role to let search.")
@click.option("--owner", "owners", multiple=True, metavar="ROLE", help="Role to let maintain it.")
@database_option
@json_option
def grant(
    database_url: str, name: str, readers: tuple[str, ...], owners: tuple[str, ...], as_json: bool
) -> None:
    """Let roles search index NAME, or maintain it.

    A reader needs SELECT on the table, and gets what searches read beside it. An owner must own the
    table, or be a member of its owner; what the index consists of is given to that.
    """
    if not readers and not owners:
        raise click.UsageError("give --reader or --owner")
    with connected(database_url) as connection, connection.transaction():
        found = HashIndex.open(connection, name)
        for role in owners:
            found.grant(role, as_="owner")
        for role in readers:
            found.grant(role, as_="reader")
    if as_json:
        print_json({"name": name, "readers": readers, "owners": owners})
        return
    for role in owners:
        note(f"role {role} may maintain index {name}")
    for role in readers:
        note(f"role {role} may search index {name}")


@click.command()
@click.argument("name")
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True)
@database_option
@json_option
def revoke(database_url: str, name: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Take from roles what they hold on index NAME; rights on the table stay as they are."""
    with connected(database_url) as connection, connection.transaction():
        found = HashIndex.open(connection, name)
        for role in roles:
            found.revoke(role)
    if as_json:
        print_json({"name": name, "revoked": roles})
        return
    for role in roles:
        note(f"role {role} holds nothing on index {name} any more")
