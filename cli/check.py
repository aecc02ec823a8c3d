"""``pg-hashindex index check``: the health of an index, with advice."""

from typing import Any

import click

from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.health import Health, Status

from ._shared import connected, database_option, echo, json_option, print_json, print_table

__all__ = ["check"]

_EXIT_CODES: dict[Status, int] = {"ok": 0, "warning": 1, "broken": 2}
# The exit code if the check failed; for other commands it is 1, or 2 for wrong arguments.
_UNKNOWN = 3


class _FailedError(click.ClickException):
    exit_code = _UNKNOWN


class _MisunderstoodError(click.UsageError):
    exit_code = _UNKNOWN


class _CheckCommand(click.Command):
    """A command whose errors have another exit code than its findings."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _MisunderstoodError(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader closed the pipe: click ends quietly
        except (HashIndexError, OSError, UnicodeError) as error:
            raise _FailedError(" ".join(str(error).split())) from error


@click.command(cls=_CheckCommand)
@click.argument("name")
@click.option("--full", is_flag=True, help="Check all rows: a minute or more for each million.")
@database_option
@json_option
def check(database_url: str, name: str, full: bool, as_json: bool) -> None:
    """Check index NAME, and print findings with advice; nothing is changed.

    Exit code 0 if all is well, 1 with warnings, 2 if something is broken, and 3 if the index could
    not be checked. Of large tables a sample is checked.
    """
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name).check(full=full)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    raise click.exceptions.Exit(_EXIT_CODES[found.status])


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
