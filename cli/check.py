"""``pg-hashindex index check``: the health of an index, with advice."""

import click

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.health import Health

from ._shared import NO, connected, database_option, echo, json_option, print_json, print_table

__all__ = ["check"]


@click.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="Check all rows: a minute or more for each million.")
@database_option
@json_option
def check(database_url: str, name: str, full: bool, as_json: bool) -> None:
    """Check index NAME, and print findings with advice; nothing is changed.

    Exit code 0 if all is well, 1 if something is broken or a warning: "status" in the JSON says
    which. Of large tables a sample is checked.
    """
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name).check(full=full)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    if found.status != "ok":
        raise click.exceptions.Exit(NO)


def _print(found: Health) -> None:
    print_table(
        ["check", "status", "value", "detail"],
        [
            # As text, so that the whole column is aligned to one side.
            [f.check, f.status, "" if f.value is None else f"{f.value:.4g}", f.detail]
            for f in found.findings
        ],
    )
    for finding in found.findings:
        if finding.advice is not None:
            echo(f"\n{finding.check}: {finding.advice}")
