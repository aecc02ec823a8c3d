"""Evaluating on the command line: results that are saved, printed, judged."""

import json
from collections.abc import Callable

import click
import numpy as np
import psycopg
import pytest
from click.testing import Result
from fixtures.indexes import begin_lists
from pg_hashindex.cli.evaluate import evaluate as command

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


@pytest.fixture
def index(connection, items, model):
    """An index whose searches keep all of the 300 rows."""
    made = begin_lists(connection, "i", table=items, column="embedding", model="lsh")
    made.encode()
    return made.configure(candidates=301)


def saved(connection):
    return connection.execute(
        "SELECT seed, candidates, queries FROM hashindex.recall_history ORDER BY id"
    ).fetchall()


def test_its_options_are_few():
    assert isinstance(command, click.Command)
    assert len(command.params) <= 11


def test_results_are_saved_and_printed(on, index, connection, tmp_path):
    empty = on("evaluate", "i", "--history")
    assert (empty.stdout, "nothing is saved yet" in empty.stderr) == ("", True)
    evaluate = ("evaluate", "i", "--queries", "30", "--candidates", "20")
    first = json.loads(on(*evaluate, "--save", "--json").stdout)
    assert [point["candidates"] for point in first["points"]] == [20, 301]
    connection.execute("UPDATE items SET category = 'z'")
    again = json.loads(on(*evaluate, "--json").stdout)
    # The same rows.
    assert (again["queries"], again["points"][0]["recall"]) == (30, first["points"][0]["recall"])
    assert [point["candidates"] for point in again["points"]] == [20]
    log = "SELECT embedding FROM items ORDER BY id LIMIT 6"
    given = ("--queries-from", log, "--queries", "4", "--candidates", "301")
    found = json.loads(on("evaluate", "i", *given, "--save", "--json").stdout)
    assert (found["queries"], found["points"][0]["recall"]) == (4, 1)
    assert saved(connection) == [(0, 20, 30), (0, 301, 30), (None, 301, 4)]
    np.save(tmp_path / "log.npy", np.ones((6, 8), np.float32))
    filed = on("evaluate", "i", "--queries-from", tmp_path / "log.npy", "--json")
    assert json.loads(filed.stdout)["queries"] == 6
    heading, *lines = on("evaluate", "i", "--history").stdout.splitlines()
    assert heading.split() == [
        "measured", "seed", "queries", "model", "access", "candidates", "effort", "k",
        "recall@10", "p50", "ms", "p95", "ms",
    ]  # fmt: skip
    assert [line.split()[2:6] for line in lines[:2]] == [["0", "30", "lsh:1", "scan"]] * 2
    assert lines[2].split()[2:5] == ["4", "lsh:1", "scan"]
    points = json.loads(on("evaluate", "i", "--history", "--json").stdout)
    assert [(p["seed"], p["candidates"]) for p in points] == [(0, 20), (0, 301), (None, 301)]
    assert "Usage" in on("evaluate", "i", "--history", "--save", code=2).stderr


def test_exit_code_1_where_recall_is_less(on, index):
    """By the index's own candidates, whatever others are tried."""
    evaluate = ("evaluate", "i", "--queries", "30", "--candidates", "1")
    passed = json.loads(on(*evaluate, "--fail-under", "1", "--json").stdout)
    assert passed["passed"] is True
    assert [point["candidates"] for point in passed["points"]] == [1, 301]
    index.configure(candidates=10)
    assert on(*evaluate, "--fail-under", "0").exit_code == 0
    failed = on(*evaluate, "--fail-under", "0.99", code=1)
    assert "with the index's own 10 candidates, less than 0.99" in failed.stderr
    # The figures are printed all the same.
    assert "exact search" in failed.stdout
    failed = on(*evaluate, "--fail-under", "0.99", "--json", code=1)
    assert json.loads(failed.stdout)["passed"] is False
    # Searches for more answers keep more candidates.
    assert "own 40 candidates" in on(*evaluate, "-k", "40", "--fail-under", "1", code=1).stderr
    for wrong in ("nan", "1.5"):
        on(*evaluate, "--fail-under", wrong, code=2)


def test_a_read_only_server(run, index, url):
    there = psycopg.conninfo.make_conninfo(url, options="-c default_transaction_read_only=on")
    evaluate = ("evaluate", "i", "--queries", "8", "--candidates", "301", "--database-url", there)
    run(*evaluate, "--fail-under", "1")
    refused = run(*evaluate, "--save", code=3)
    assert "cannot be saved: the session is read-only" in refused.stderr
    assert saved(index.connection) == []
