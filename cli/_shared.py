"""Parts that commands share: options, errors without tracebacks, tables and JSON."""

import codecs
import json
import math
import os
import re
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from pg_hashindex.errors import (
    BuildWarning,
    FewerJobsWarning,
    HashIndexError,
    InvalidInputError,
    LowerRecallError,
    OtherModelWarning,
    RowsLeftOutWarning,
    SlowWritesWarning,
    UnknownIndexError,
    UnknownModelError,
)

if TYPE_CHECKING:
    from typing import LiteralString

    from psycopg.errors import Diagnostic

    from pg_hashindex.db.connection import Connection
    from pg_hashindex.index.catalog import IndexRow
    from pg_hashindex.index.handle import HashIndex
    from pg_hashindex.quality.doctor_findings import Diagnosis
    from pg_hashindex.quality.evaluate import Evaluation
    from pg_hashindex.quality.tuning import Tuned

#: Exit code: the answer is no. Wrong usage is 2, by click.
NO = 1
#: Exit code: the command could not do its work, and the message says why.
COULD_NOT = 3
#: Exit code: stopped by Ctrl-C, as shells have it.
STOPPED = 130

#: Names of the languages that evaluate models, as they are printed.
LANGUAGES = {"sql": "SQL", "python": "Python"}

url_option = click.option(
    "--database-url",
    envvar=["PG_HASHINDEX_DATABASE_URL", "DATABASE_URL"],
    metavar="URL",
    help="Database: see pg-hashindex --help.",
    callback=lambda context, parameter, value: _required(value),
)


def _remember(context: click.Context, flag: click.Parameter, given: bool) -> None:
    if given:
        context.find_root().params[str(flag.name)] = True


def is_given(flag: str) -> bool:
    """Return whether a flag of the program, or one that is remembered of its command, was given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get(flag))


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Print all that is known.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Return one decorator that adds several options, in their order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def words(context: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    """Split a list at its commas, as the callback of an option."""
    return None if value is None else [word.strip() for word in value.split(",") if word.strip()]


of_database = together(url_option, json_option)
of_name = together(click.argument("name"), of_database)
model_argument = click.argument("reference", metavar="NAME[:VERSION]")
file_argument = click.argument("file", type=click.Path(path_type=Path))


def table_options(
    table: str = "Table to search",
    column: str = "Its column of type vector or halfvec.",
    *,
    required: bool = False,
) -> Callable[[_Command], _Command]:
    """Return the options of a table and its column of vectors."""
    return together(
        click.option("--table", required=required, help=f"{table}, as SQL writes it."),
        click.option("--column", required=required, help=column),
    )


def key_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option of the columns of a key."""
    return click.option("--id", "key_columns", callback=words, metavar="COLUMN,...", help=text)


def metric_option(kinds: Sequence[str], text: str) -> Callable[[_Command], _Command]:
    """Return the option of a distance."""
    return click.option("--metric", type=click.Choice(kinds), help=text)


def tenant_option(text: str, metavar: str = "VALUE") -> Callable[[_Command], _Command]:
    """Return the option of a tenant, or of the column of tenants."""
    return click.option("--tenant", metavar=metavar, help=text)


def name_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option of a name to store something under."""
    return click.option("--name", help=text)


def force_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option to do what is refused otherwise."""
    return click.option("--force", is_flag=True, help=text)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
k_option = click.option(
    "-k", "--k", type=int, default=10, show_default=True, help="Answers compared."
)


def queries_option(usual: int = 200) -> Callable[[_Command], _Command]:
    """Return the option of the number of queries."""
    return click.option(
        "--queries", type=int, default=usual, show_default=True, help="Rows to search for."
    )


queries_from_option = click.option(
    "--queries-from",
    metavar="TABLE|QUERY|FILE",
    help="A log of queries: one column of vectors, of which the first ones are used, or a file of "
    "arrays, of which some are drawn.",
)


def _of_build(context: click.Context, option: click.Parameter, value: Any) -> int | None:
    # These load SciPy, which building landmarks needs.
    from pg_hashindex.index.landmarks.memory import as_bytes
    from pg_hashindex.index.landmarks.workers import Jobs

    try:
        return as_bytes(value) if option.name == "memory" else Jobs(value).wanted
    except HashIndexError as error:
        raise click.BadParameter(str(error)) from error


jobs_option = click.option(
    "--jobs",
    type=int,
    callback=_of_build,
    help="Processes that build, 1 to 64.  [default: the cores, at most 4; 1 for a small table]",
)
build_options = together(
    click.option(
        "--memory",
        default="1GB",
        show_default=True,
        metavar="SIZE",
        callback=_of_build,
        help="Memory to take for building an index, such as 512MB, for all jobs together.",
    ),
    jobs_option,
)


class Number(click.FloatRange):
    """A number of a range; click's own lets NaN through."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class Share(Number):
    """A number from 0 to 1."""

    def __init__(self) -> None:
        super().__init__(0, 1)


#: Facts of a decision that the server does not tell.
facts_options = together(
    tenant_option("Column of tenants: most searches want the rows of one.", "COLUMN"),
    click.option(
        "--writes",
        type=Number(0),
        metavar="NUMBER",
        help="Rows written a second; give them for a table that grows.  [default: deletes and "
        "updates since the server's statistics began]",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=lambda context, option, value: (
            None if value is None else _of_build(context, option, value)
        ),
        help="Memory that the server has for the table and its index, such as 4GB; a build takes "
        "no more, of lists 512MB at least.  [default: effective_cache_size]",
    ),
)

full_option = click.option(
    "--full",
    is_flag=True,
    help="Compare every code with a fresh encoding: a minute or more for each million rows.",
)
rows_per_second_option = click.option(
    "--rows-per-second", type=float, help="Encode at most this number of rows a second."
)

seed_option = click.option(
    "--seed",
    "random_state",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all random draws.",
)


#: Suffix of an assumed metric, which neither the caller nor an index named.
ASSUMED = " (assumed; --metric sets it)"


def preset_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option of the parameters that methods begin with."""
    # These load SciPy.
    from pg_hashindex.hashers import Preset

    return click.option(
        "--preset", type=click.Choice(get_args(Preset)), default="default", show_default=True,
        help=text,
    )  # fmt: skip


def plot_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option for the file of a picture."""
    return click.option(
        "--plot",
        "plot_file",
        type=click.Path(path_type=Path),
        metavar="FILE.png",
        help=f"Draw {what}; .pdf and .svg work too.",
    )


# Any of these says which database libpq is to connect to.
_OF_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE")


def _required(url: str | None) -> str:
    if url:
        return url
    if any(os.environ.get(name) for name in _OF_LIBPQ):
        return ""  # libpq reads the rest itself
    raise click.UsageError(
        "no database: give --database-url, or set PG_HASHINDEX_DATABASE_URL, DATABASE_URL or "
        "PGHOST and the like; 'pg-hashindex server start' starts one and prints its URL"
    )


fail_under_option = click.option(
    "--fail-under",
    type=Share(),
    metavar="RECALL",
    help="Exit code 1 if recall with the current settings is below this.",
)


def confirm(question: str) -> None:
    """Ask before something is changed; anything but yes ends the command."""
    try:
        click.confirm(escaped(question), abort=True, err=True)
    except click.Abort as error:
        # click makes one of the other.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    except RuntimeError as error:  # there is no stdin to ask
        raise click.UsageError("no terminal to confirm on; use --yes") from error


class _FailedError(click.ClickException):
    """An error in one line, after its traceback if -v asks for that."""

    exit_code = COULD_NOT

    def __init__(self, error: Exception) -> None:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            message = f"{os.fsdecode(error.filename)}: {error.strerror}"
        super().__init__(escaped(re.sub(r"\s*\n\s*", " ", message.strip())))
        if is_verbose():
            note("".join(traceback.format_exception(error)), always=True)


class _LowerError(_FailedError):
    """New codes were not taken, since recall would fall."""

    exit_code = NO


def is_verbose() -> bool:
    """Return whether -v or --verbose was given, to the program or to the command."""
    return is_given("verbose")


class LateGroup(click.Group):
    """Commands that report an error in one line, each imported only to run it: ``--help`` is fast.

    ``late`` has the line of help of each command, which is in the module of its name.
    """

    def __init__(self, *args: Any, late: dict[str, str], **others: Any) -> None:
        super().__init__(*args, **others)
        self.late = late

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader closed the pipe: click ends quietly
        except LowerRecallError as error:
            raise _LowerError(error) from error
        # UnicodeError, since an argument may hold bytes that are not text.
        except (HashIndexError, OSError, UnicodeError) as error:
            raise _FailedError(error) from error
        except KeyboardInterrupt as error:  # at a question it is an Abort, as the answer no is
            note("interrupted", always=True)
            raise click.exceptions.Exit(STOPPED) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, everyday ones first."""
        return [*self.late]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which has nearly that name."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}{_did_you_mean(args[0], self.late)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, or None."""
        if cmd_name in self.late and cmd_name not in self.commands:
            module = import_module(f".{cmd_name}", __package__)
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([*self.late.items()])


@contextmanager
def connected(url: str) -> "Iterator[Connection]":
    """Open a connection for one command."""
    from pg_hashindex.db.connection import connect
    from pg_hashindex.db.server_errors import translated_errors

    with connect(url) as connection:
        connection.add_notice_handler(_warn)
        with _noting_warnings():
            try:
                with translated_errors():
                    yield connection
            except (InvalidInputError, UnknownIndexError, UnknownModelError) as error:
                hint = _hint(connection, error)
                raise (
                    type(error)(f"{str(error).rstrip('.')}{hint}") if hint else error
                ) from error.__cause__


# The names of each kind, and the message about an unknown name.
_THERE: "tuple[tuple[type[HashIndexError], str, LiteralString], ...]" = (
    (
        UnknownIndexError,
        """index ["'](.+?)["'] does not exist""",
        "SELECT name FROM hashindex.index",
    ),
    (
        UnknownModelError,
        """model ["'](.+?)["'] does not exist""",
        "SELECT name FROM hashindex.model",
    ),
    (
        InvalidInputError,
        """'(.+?)' is not a table: relation""",
        "SELECT c.oid::regclass::text FROM pg_catalog.pg_class c "
        "WHERE c.relkind IN ('r', 'p', 'm') AND c.relnamespace <> 'pg_catalog'::regnamespace",
    ),
)


def _hint(connection: "Connection", error: HashIndexError) -> str:
    """Return what a user may have meant whose name is not there, or stands without quotes."""
    from pg_hashindex.db.statements import execute

    if connection.closed or connection.info.transaction_status:
        return ""
    for kind, pattern, names in _THERE:
        if type(error) is kind and (found := re.match(pattern, str(error))):
            known = [name for (name,) in execute(connection, names)]
            name, version, _ = found[1].partition(":")
            return _did_you_mean(name if version else found[1], known)
    given = (click.get_current_context().params.get(name) for name in ("filter", "filters"))
    unquoted = re.search('column "([^"]+)" does not exist', str(error))
    if any(given) and unquoted:
        return f" (a text stands in single quotes: '{unquoted[1]}')"
    return ""


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@contextmanager
def opened(url: str, name: str) -> "Iterator[HashIndex]":
    """Open an index on a connection for one command."""
    from pg_hashindex.index.handle import HashIndex

    with connected(url) as connection:
        yield HashIndex.open(connection, name)


def refuse_columns(connection: "Connection", table: str, names: Sequence[str], option: str) -> None:
    """Refuse names of an option that are not columns of a table."""
    from pg_hashindex.db.statements import execute

    lacking = execute(
        connection,
        "SELECT n FROM pg_catalog.unnest($1::text[]) n WHERE NOT EXISTS (SELECT FROM "
        "pg_catalog.pg_attribute a WHERE a.attrelid = $2::regclass::oid AND a.attname = n "
        "AND NOT a.attisdropped)",
        [list(names), table],
    ).fetchone()
    if lacking is not None:
        raise InvalidInputError(f"{table} has no column {lacking[0]!r}: check {option}")


@contextmanager
def _noting_warnings() -> Iterator[None]:
    """Show the warnings of pg_hashindex as notes, each text once."""
    shown, said = warnings.showwarning, set[str]()
    noted = (
        BuildWarning,
        RowsLeftOutWarning,
        FewerJobsWarning,
        OtherModelWarning,
        SlowWritesWarning,
    )

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, noted):
            shown(message, category, *rest, **more)
        elif str(message) not in said:
            said.add(str(message))
            note(f"warning: {message}")

    with warnings.catch_warnings():
        for kind in noted:
            warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield


def _warn(diagnosis: "Diagnostic") -> None:
    from pg_hashindex.db.server_errors import warning_of

    if warning := warning_of(diagnosis):
        note(f"warning: {warning}")


# Categories of characters that move the cursor, end the line or change the direction of text.
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})


def escaped(text: str) -> str:
    """Escape characters that change a terminal, since names come from databases and files."""
    return "".join(
        character
        if unicodedata.category(character) not in _HIDDEN
        else character.encode("unicode_escape").decode()
        for character in text
    )


def _escaped_lines(message: str) -> str:
    return "\n".join(escaped(line) for line in message.split("\n"))


def echo(message: str = "", *, err: bool = False) -> None:
    """Print lines, with hidden characters escaped."""
    click.echo(_escaped_lines(message), err=err)


def note(message: str, *, always: bool = False) -> None:
    """Print a note on stderr, above bars, where -q leaves it out; stdout is for results."""
    from pg_hashindex.db.progress import write_above_bars

    if (always or not is_given("quiet")) and not write_above_bars(_escaped_lines(message)):
        echo(message, err=True)


#: The access path of an index whose codes are not complete yet.
NOT_ENCODED = "not yet encoded: exact"


def note_not_encoded(index: "IndexRow") -> None:
    """Say that searches are exact, where the codes of an index are not complete yet."""
    if not index.encoded and index.is_lists:
        note(
            f"searches of index {index.name} are {NOT_ENCODED}; run: pg-hashindex index encode "
            f"{index.name}"
        )


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show progress: two lines, or one and the library's bars; and the steps it tells."""
    from pg_hashindex.db.progress import is_terminal, show_progress

    bars = is_terminal(sys.stderr) and not is_given("quiet")
    note(what)
    started = time.monotonic()
    with show_progress(None if is_given("quiet") else note, bars=bars):
        yield
    if not bars:
        note(f"{what}: done in {time.monotonic() - started:.0f} s")


def parameter(text: str) -> tuple[str, Any]:
    """Split a value of --param, and read the part after =."""
    key, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--param {text!r} is not KEY=VALUE")
    return key, as_value(value)


def as_value(text: str) -> Any:
    """Return the value of a parameter: if it is not JSON, it is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def print_json(value: Any) -> None:
    """Print a value as JSON, times in ISO 8601."""
    # Python's escapes of characters that an encoding lacks are not those of JSON.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = json.dumps(
        _finite(value),
        indent=2,
        default=_plain,
        ensure_ascii=codecs.lookup(encoding).name != "utf-8",
        allow_nan=False,
    )
    lines = (
        "".join(json.dumps(c)[1:-1] if unicodedata.category(c) in _HIDDEN else c for c in line)
        for line in text.split("\n")
    )
    click.echo("\n".join(lines))


def answer(as_json: bool, value: Any, *notes: str) -> None:
    """Print what was done: as JSON, or as notes."""
    if as_json:
        print_json(value)
    else:
        for text in notes:
            note(text)


def _finite(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], *, most: int | None = None
) -> None:
    """Print rows under headings, numbers to the right; by rich in a terminal, plainly elsewhere.

    None is printed as an empty cell. Cells are broken to fit ``most`` columns.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    to_the_right = [
        bool(rows) and all(isinstance(row[position], int | float | None) for row in rows)
        for position in range(len(headings))
    ]
    if most is not None:
        headings, cells = _broken(headings, cells, most)
    widths = [
        max(len(line[position]) for line in [list(headings), *cells])
        for position in range(len(headings))
    ]
    from pg_hashindex.db.progress import is_terminal

    if is_terminal(sys.stdout):
        _print_for_people(headings, cells, to_the_right)
        return
    for line in [list(headings), *cells]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        )
        echo("  ".join(padded).rstrip())


def _broken(
    headings: Sequence[str], cells: list[list[str]], most: int
) -> tuple[Sequence[str], list[list[str]]]:
    """Break the cells of one column after the other into lines, the widest first.

    Until the table is narrow enough, or nothing is left to break.
    """
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - most
    if excess <= 0:
        return headings, cells
    widest = widths.index(max(widths))
    width = max(12, widths[widest] - excess)
    lines: list[list[str]] = []
    for line in cells:
        parts = wrap(line[widest], width) or [""]
        lines.append([*line[:widest], parts[0], *line[widest + 1 :]])
        for part in parts[1:]:
            lines.append(["" if place != widest else part for place in range(len(line))])
    heading = [*headings]
    heading[widest] = heading[widest][:width]
    if max(len(line[widest]) for line in [heading, *lines]) == widths[widest]:
        return heading, lines
    return _broken(heading, lines, most)


def _print_for_people(
    headings: Sequence[str], cells: Sequence[Sequence[str]], to_the_right: Sequence[bool]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, so that nothing in a name is taken for markup.
    table = Table(box=box.SIMPLE_HEAD if any(headings) else None, show_header=any(headings))
    for heading, right in zip(headings, to_the_right, strict=True):
        table.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*map(Text, line))
    Console().print(table)


def print_evaluation(result: "Evaluation | Tuned", *settings: str) -> None:
    """Print recall and times of an index by candidates, and other settings; of exact search too."""
    measured = ["candidates", *settings, "recall", "p50_ms", "p95_ms"]
    rows = [[getattr(point, name) for name in measured] for point in result.points]
    exact = [1.0, result.exact_p50_ms, result.exact_p95_ms]
    rows.append(["exact search", *[None for _ in settings], *exact])
    print_table(["candidates", *settings, f"recall@{result.k}", "p50 ms", "p95 ms"], rows)


def print_tuned(result: "Tuned") -> None:
    """Print recall and times of an index for each setting that was tried."""
    from pg_hashindex.quality.tuning import BY_LISTS

    print_evaluation(result, *(["effort"] if result.best.access in BY_LISTS else []))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return escaped(str(value))


def more_facts(found: "Diagnosis") -> list[list[str]]:
    """Say what else the decision takes into account."""
    table = found.table
    writes = table.writes if found.writes is None else found.writes
    facts = [["writes", f"{writes:.3g} rows a second"]]
    if table.parts > 1:
        facts.append(["partitions", f"{table.parts}; a search reads an index of each"])
    if table.policies:
        facts.append(["row security", "on: each role searches the rows of its policies"])
    for tenant in filter(None, [found.tenant, found.key_tenant]):
        of = (
            "" if tenant.tenants is None else f", {tenant.tenants} of at most {tenant.largest} rows"
        )
        sure = (
            ""
            if tenant.source != "the key"
            else f"; --tenant {tenant.column} if searches stay within one"
        )
        facts.append(["tenants", f"{tenant.column} ({tenant.source}){of}{sure}"])
    return facts
