"""``pg-hashindex index check``: the health of an index, with advice."""

import click

from ._shared import NO, echo, of_index, opened, print_json, print_table

__all__ = ["check"]


@click.command()
@click.option("--full", is_flag=True, help="Check all rows: a minute or more for each million.")
@of_index
def check(database_url: str, name: str, full: bool, as_json: bool) -> None:
    """Check index NAME, and print findings with advice; nothing is changed.

    Exit code 0 if all is well, 1 if something is broken or a warning: "status" in the JSON says
    which. Of large tables a sample is checked.
    """
    with opened(database_url, name) as index:
        found = index.check(full=full)
    if as_json:
        print_json(found.as_dict())
    else:
        rows = [[f.check, f.status, f.value, f.detail] for f in found.findings]
        print_table(["check", "status", "value", "detail"], rows)
        for finding in found.findings:
            if finding.advice is not None:
                echo(f"\n{finding.check}: {finding.advice}")
    if found.status != "ok":
        raise click.exceptions.Exit(NO)
