"""``pg-hashindex index grant`` and ``revoke``: which roles search an index by its codes."""

import click

from pg_hashindex.index.handle import HashIndex

from ._shared import connected, database_option, json_option, note, print_json

__all__ = ["grant", "revoke"]


@click.command()
@click.argument("name")
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True)
@click.option(
    "--reveal-codes",
    is_flag=True,
    help="Let them read codes of rows that row security hides from them.",
)
@database_option
@json_option
def grant(
    database_url: str, name: str, roles: tuple[str, ...], reveal_codes: bool, as_json: bool
) -> None:
    """Let roles search index NAME by its codes.

    They need SELECT on key and vector of the table. Other roles get exact searches of the table.
    """
    with connected(database_url) as connection, connection.transaction():
        found = HashIndex.open(connection, name)
        for role in roles:
            found.grant(role, reveal_codes=reveal_codes)
    if as_json:
        print_json({"name": name, "granted": roles})
        return
    for role in roles:
        note(f"role {role} may search index {name} by its codes")


@click.command()
@click.argument("name")
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True)
@database_option
@json_option
def revoke(database_url: str, name: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Take the codes of index NAME from roles; rights on the table stay as they are."""
    with connected(database_url) as connection, connection.transaction():
        found = HashIndex.open(connection, name)
        for role in roles:
            found.revoke(role)
    if as_json:
        print_json({"name": name, "revoked": roles})
        return
    for role in roles:
        note(f"role {role} may not read the codes of index {name} any more")
