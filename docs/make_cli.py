"""Write docs/cli.md from the commands' own help: python docs/make_cli.py."""

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from pg_hashindex.cli import main

TARGET = Path(__file__).with_name("cli.md")

HEAD = """# Command line

Every command that works on a database finds it by the first of these: `--database-url URL`; the
variable `PG_HASHINDEX_DATABASE_URL`; `DATABASE_URL`; libpq's own `PGHOST`, `PGPORT`, `PGDATABASE`,
`PGUSER`, `PGSERVICE`, ... Other users of the machine see a command's options in `ps`: have a URL
with a password in the variable, or the password in `~/.pgpass`. A table of another role may be
refused: see [whose tables](production.md#whose-tables).

Results go to stdout, progress and notes to stderr. In a terminal, tables have lines and long work
has progress bars; elsewhere tables are plain, and long work prints a line when it begins and one
when it ends. `pg-hashindex -q COMMAND` prints no notes, `pg-hashindex -v COMMAND` prints the
traceback of an error, and all that `index check`, `index show` and `model train` know.

| exit code | means |
| ---: | --- |
| 0 | done; the answer is yes |
| 1 | the answer is no: `index check` has findings, `--fail-under` is missed, a swap would lower \
recall, `tune` or `quickstart` misses its recall, an upgrade is due, a repair left something, \
or you did not say yes |
| 2 | wrong usage |
| 3 | could not: no connection, no right, no such index or file, a value that is refused, ... |
| 130 | stopped by Ctrl-C |

Written by `python docs/make_cli.py` from the commands' own help. Options of several commands:

"""

#: Options that the head explains.
IN_HEAD = ("--database-url", "--help")
#: Commands of researchers, whose options only ``--help`` lists.
HELP_ALONE = "pg-hashindex bench "
#: An option of this number of commands is described once.
SEVERAL = 2


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


def options(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the help of each option of a command."""
    context = click.Context(command, info_name=path)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[0].startswith("-") and not record[0].startswith(IN_HEAD):
            yield record


def line(option: tuple[str, str]) -> str:
    """Return an option as an item of a list."""
    names, described = (" ".join(part.split()) for part in option)
    return f"- `{names}`: {_no_link(described)}\n"


def _no_link(text: str) -> str:
    """Keep words in brackets from being taken for a link."""
    return text.replace("[", r"\[")


def text() -> str:
    """Return the page."""
    listed = {
        path: (command, list(options(command, path)))
        for path, command in commands(main, "pg-hashindex")
    }
    used = Counter(option for _, own in listed.values() for option in own)
    several = {option for option, times in used.items() if times >= SEVERAL}
    parts = [HEAD, *map(line, sorted(several))]
    for path, (command, taken) in listed.items():
        pieces = command.collect_usage_pieces(click.Context(command, info_name=path))
        described = " ".join(inspect.cleandoc(command.help or "").replace("\b", "").split())
        if shared := sorted(f"`{names.split()[0].rstrip(',')}`" for names, _ in several & {*taken}):
            described += f" Also {', '.join(shared)}."
        parts.append(f"\n## {_no_link(' '.join([path, *pieces[1:]]))}\n{described}\n")
        if path.startswith(HELP_ALONE):
            parts.append(f"\n`{path} --help` lists its options.\n")
        elif own := [option for option in taken if option not in several]:
            parts += ["\n", *map(line, own)]
    return "".join(parts)


if __name__ == "__main__":
    TARGET.write_text(text())
