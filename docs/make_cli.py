"""Write docs/cli.md from the commands' own help: python docs/make_cli.py."""

from collections.abc import Iterator
from pathlib import Path

import click
from pg_hashindex.cli import main

TARGET = Path(__file__).with_name("cli.md")

HEAD = """# Command line

Every command that works on a database finds it by the first of these: `--database-url URL`; the
variable `PG_HASHINDEX_DATABASE_URL`; `DATABASE_URL`; libpq's own `PGHOST`, `PGPORT`, `PGDATABASE`,
`PGUSER`, `PGSERVICE`, ... Other users of the machine see a command's options in `ps`: have a URL
with a password in the variable, or the password in `~/.pgpass`.

Results go to stdout, progress and notes to stderr. In a terminal, tables have lines and long work
has progress bars; elsewhere tables are plain, and long work prints a line when it begins and one
when it ends. `pg-hashindex -q COMMAND` prints no notes, `pg-hashindex -v COMMAND` prints the
traceback of an error, and all that `index check`, `index show` and `model train` know.

| exit code | means |
| ---: | --- |
| 0 | done; the answer is yes |
| 1 | the answer is no: `index check` has findings, `--fail-under` is missed, a swap would lower \
recall, `tune` or `quickstart` misses its recall, an upgrade is due, a repair left something, \
the server is not running, or you did not say yes |
| 2 | wrong usage |
| 3 | could not: no connection, no right, no such index or file, a value that is refused, ... |
| 130 | stopped by Ctrl-C |

Written by `python docs/make_cli.py` from the commands' own help.
"""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below one, with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        # Some are imported when they are asked for.
        if child := command.get_command(context, name):
            yield from commands(child, f"{path} {name}")


def text() -> str:
    """Return the page."""
    parts = [HEAD]
    for path, command in commands(main, "pg-hashindex"):
        context = click.Context(command, info_name=path, terminal_width=90, max_content_width=90)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(text())
