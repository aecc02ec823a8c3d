"""Bars on a terminal: what takes long shows the share that is done, and the time left."""

import os
import pty
import re
import sys

import numpy as np
import pytest
from fixtures.commands import fill

from pg_hashindex.db.connection import connect
from pg_hashindex.db.progress import Progress, show_progress, write_above_bars

pytestmark = pytest.mark.newest

# The share, the bar, what is done of how much, the rate, the time that has passed and that left.
BAR = r"{}[^:\n]*: +(\d+)% +[━╸╺ ]*[\d,]+/[\d,]+ \S+ \w+/s \d:\d\d:\d\d < [-\d:]+"
STYLES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def on_terminal(arguments, url):
    """Run the command line on a pseudo-terminal that does not tell its size; return the output."""
    pid, terminal = pty.fork()
    if pid == 0:
        program = [sys.executable, "-m", "pg_hashindex", *arguments, "--database-url", url]
        os.execve(program[0], program, {**os.environ, "COLUMNS": "100", "TERM": "xterm"})
    shown = b""
    while True:
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    text = STYLES.sub("", shown.decode())
    assert os.waitstatus_to_exitcode(status) == 0, text
    return text


@pytest.fixture
def docs(empty_url):
    with connect(empty_url) as connection:
        rows = np.random.default_rng(1).standard_normal((1500, 16)).astype(np.float32)
        fill(connection, "docs", rows)
        connection.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    return empty_url


@pytest.mark.parametrize(
    ("command", "bars"),
    [
        (["doctor", "docs", "v"], ["searching"]),
        (
            ["quickstart", "docs", "v", "--access", "lists", "--yes"],
            ["reading", "measuring docs_v"],
        ),
    ],
)
def test_bars(docs, command, bars):
    shown = on_terminal(command, docs)
    for bar in bars:
        shares = [int(share) for share in re.findall(BAR.format(bar), shown)]
        assert shares, bar
        assert shares[-1] >= 99
    # A line above the bar is a line by itself.
    assert re.search(r"(\r|\n)(measuring index docs_v|searching by docs_hnsw) *\r\n", shown)
    assert "Traceback" not in shown


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120])
def test_a_narrow_terminal_cuts_no_word(columns, monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with show_progress(), Progress("training landmarks", 1000, "query") as bar:
        bar.update(400)
    lines = STYLES.sub("", capfd.readouterr().err).replace("\r", "\n").split("\n")
    (last, *_) = [line.rstrip() for line in lines if "40%" in line]
    assert len(last) <= columns
    assert last.startswith("training landmarks:" if columns > 20 else "training ...:")
    assert ("query/s" in last) == (columns > 60)


def test_bars_that_are_open_at_once_are_drawn_together(monkeypatch, capfd):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with show_progress(), Progress("outer", 4) as outer, Progress("of unknown length") as inner:
        inner.update(1234)
        outer.update(3)
        assert write_above_bars("a note [of brackets]")
    assert not write_above_bars("none are left")
    shown = STYLES.sub("", capfd.readouterr().err)
    assert re.search(r"a note \[of brackets\]\r?\n", shown)
    assert re.search(r"outer: +75%", shown)
    assert re.search(r"of unknown length: +1,234", shown)


def test_a_pipe_gets_none(capfd):
    with show_progress(), Progress("reading", 10) as bar:
        bar.update(10)
    assert capfd.readouterr().err == ""


def test_quiet_shows_no_bar(docs):
    shown = on_terminal(["-q", "doctor", "docs", "v"], docs)
    assert "━" not in shown
