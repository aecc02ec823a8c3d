"""Rules for every command: exit codes, -q and -v, progress, columns that are shown."""

import io
import json
import pty
import re
import subprocess
import sys
import termios
from os import close, read
from pathlib import Path

import click
import pytest
from pg_hashindex.cli import _shared, main

from pg_hashindex.db.progress import Progress

pytestmark = pytest.mark.newest

ANSWERS = {
    "done": (("index", "check", "items_idx"), 0),
    "schema is current": (("schema", "status"), 0),
    "recall is missed": (("evaluate", "items_idx", "--queries", "5", "--fail-under", "1"), 1),
    "no terminal": (("index", "drop", "items_idx"), 1),
    "no such option": (("index", "show", "--nonsense"), 2),
    "an argument too few": (("search", "items_idx"), 2),
    "no such index": (("index", "show", "nothing"), 3),
    "no such file": (("model", "import", "/nothing/there"), 3),
    "no such table": (("doctor", "nothing", "v"), 3),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_exit_codes(on, index, case):
    arguments, code = ANSWERS[case]
    index.configure(candidates=10)
    on(*arguments, code=code)


@pytest.mark.reads
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("serch", "items_idx"), 2, "No such command 'serch'; did you mean 'search'?"),
        (("doctor", "itms"), 3, "did you mean 'items'?"),
        (("search", "items_id", "--like", "1"), 3, "did you mean 'items_idx'?"),
        (("model", "show", "lhs:1"), 3, "pg-hashindex model show; did you mean 'lsh'?"),
        (
            ("search", "items_idx", "--like", "nginx"),
            3,
            "--like 'nginx' is not a key: id is of type bigint",
        ),
        (
            ("search", "items_idx", "--like", "1", "--filter", "category = games"),
            3,
            "(a text stands in single quotes: 'games')",
        ),
        (
            ("doctor", "items", "--filter", "category = games"),
            3,
            "(a text stands in single quotes: 'games')",
        ),
    ],
)
@pytest.mark.usefixtures("index")
def test_mistakes_that_are_met_with_help(on, arguments, code, said):
    assert said in on(*arguments, code=code).stderr


def test_everyday_commands_come_first(run):
    said = run("--help").stdout
    commands = re.findall(r"^  ([a-z]+)  ", said.partition("Commands:")[2], re.MULTILINE)
    assert commands[:6] == ["doctor", "quickstart", "search", "evaluate", "tune", "index"]
    assert "PG_HASHINDEX_DATABASE_URL" in said
    said = run("search", "--help").stdout
    assert re.search(r"^  --database-url URL .*see pg-hashindex --help\.$", said, re.MULTILINE)


def test_no_server(run):
    run("model", "show", "--database-url", "postgresql://127.0.0.1:1/db", code=3)


@pytest.fixture
def interrupted(monkeypatch):
    @click.command()
    @click.option("--ask", is_flag=True)
    def wait(ask):
        """Wait until somebody gives up."""
        if ask:
            monkeypatch.setattr("click.termui.visible_prompt_func", _interrupt)
            _shared.confirm("Continue?")
        _interrupt()

    monkeypatch.setitem(main.commands, "wait", wait)


def _interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("options", [(), ("--ask",)])
def test_ctrl_c(run, options):
    assert run("wait", *options, code=130).stderr.endswith("interrupted\n")


def test_the_page_says_what_exit_codes_mean():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code in (0, _shared.NO, 2, _shared.COULD_NOT, _shared.STOPPED):
        assert f"\n| {code} | " in page


def test_quiet(on, index):
    """Results and errors stay."""
    loud = on("index", "encode", "items_idx")
    assert "encoding the rows of" in loud.stderr
    assert on("-q", "index", "encode", "items_idx").output == ""
    assert json.loads(on("-q", "search", "items_idx", "--like", "1", "--json").stdout)
    refused = on("-q", "search", "nothing", "--like", "1", code=3)
    assert refused.stderr.startswith("Error: ")


def test_verbose(on, run):
    """An error comes with its traceback, and with no password."""
    refused = on("-v", "index", "show", "nothing", code=3).stderr
    assert refused.startswith("Traceback (most recent call last):")
    assert refused.splitlines()[-1].startswith('Error: index "nothing" does not exist')
    for url in ("postgresql://me:secret@127.0.0.1:1/db", "postgresql://me:%secret@[::1/db"):
        said = run("-v", "model", "show", "--database-url", url, code=3).stderr
        assert said.startswith("Traceback")
        assert "secret" not in said


def test_progress_without_a_terminal(on, index):
    """One line when something long begins, one when it has ended."""
    lines = on("index", "encode", "items_idx").stderr.splitlines()
    assert lines[0].startswith("encoding the rows of")
    assert lines[1].startswith(f"{lines[0]}: done in ")
    assert lines[2:] == ["encoded 0 rows"]
    assert "━" not in on("evaluate", "items_idx", "--queries", "5").stderr


def test_progress_in_a_terminal(url, index):
    """Bars, unless -q is given."""

    def shown(*flags):
        terminal, its = pty.openpty()
        termios.tcsetwinsize(its, (24, 100))
        command = "import sys; from pg_hashindex.cli import main; main()"
        arguments = ["evaluate", "items_idx", "--queries", "5", "--database-url", url]
        with subprocess.Popen(
            [sys.executable, "-c", command, *flags, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=its,
        ) as process:
            close(its)
            printed = b""
            try:
                while part := read(terminal, 4096):
                    printed += part
            except OSError:
                pass  # its other side is closed
        close(terminal)
        assert process.returncode == 0
        return printed.decode()

    assert "evaluating:" in shown()
    assert shown("-q") == ""


def test_search_shows_text_columns(on, connection, index):
    connection.execute(
        "ALTER TABLE items ADD n int, ADD gone text, ADD a varchar(9), ADD b text, ADD c text; "
        "ALTER TABLE items DROP gone; UPDATE items SET a = 'one ' || id, b = 'b', n = 3"
    )
    search = ("search", "items_idx", "--like", "1", "-k", "2")
    lines = on(*search).stdout.splitlines()
    assert lines[0].split() == ["id", "distance", "category", "a", "b"]
    assert lines[1].split()[3] == "one"
    assert on(*search, "--columns", "").stdout.splitlines()[0].split() == ["id", "distance"]
    assert on(*search, "--columns", "n").stdout.splitlines()[1].split()[2] == "3"
    assert "columns" not in json.loads(on(*search, "--json").stdout)[0]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "koi8-r", "utf-8"])
def test_json_is_json_in_each_encoding(monkeypatch, encoding):
    """Characters that the encoding lacks are escaped as JSON has it."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", stream)
    text = "café 中 \U0001f600 ê"
    _shared.print_json({"text": text})
    stream.flush()
    assert json.loads(written.getvalue().decode(encoding)) == {"text": text}


def test_closed_streams_are_no_terminals(monkeypatch):
    """Python has None in place of a stream that the shell closed by >&-."""
    monkeypatch.setattr(sys, "stderr", None)
    with _shared.progress("working"):
        with Progress("rows", 3) as bar:
            bar.update()
