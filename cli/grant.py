"""``pg-hashindex index grant`` and ``revoke``: which roles search an index by its codes."""

import click

from ._shared import answer, of_index, opened

__all__ = ["grant", "revoke"]

_roles = click.argument("roles", metavar="ROLE...", nargs=-1, required=True)


@click.command()
@click.option(
    "--reveal-codes",
    is_flag=True,
    help="Let them read codes of rows that row security hides from them.",
)
@of_index
@_roles
def grant(
    database_url: str, name: str, roles: tuple[str, ...], reveal_codes: bool, as_json: bool
) -> None:
    """Let roles search index NAME by its codes.

    They need SELECT on key and vector of the table. Other roles get exact searches of the table.
    """
    with opened(database_url, name) as found, found.connection.transaction():
        for role in roles:
            found.grant(role, reveal_codes=reveal_codes)
    said = [f"role {role} may search index {name} by its codes" for role in roles]
    answer(as_json, {"name": name, "granted": roles}, *said)


@click.command()
@of_index
@_roles
def revoke(database_url: str, name: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Take the codes of index NAME from roles; rights on the table stay as they are."""
    with opened(database_url, name) as found, found.connection.transaction():
        for role in roles:
            found.revoke(role)
    said = [f"role {role} may not read the codes of index {name} any more" for role in roles]
    answer(as_json, {"name": name, "revoked": roles}, *said)
