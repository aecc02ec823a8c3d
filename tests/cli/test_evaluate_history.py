"""Evaluating with saved queries, on the command line: recorded, printed, judged."""

import json
from collections.abc import Callable

import psycopg
import pytest
from click.testing import Result

from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


@pytest.fixture
def index(connection, items, model):
    """An index whose searches keep all of the 300 rows."""
    made = HashIndex.create(connection, "i", table=items, column="embedding", model="lsh")
    made.encode()
    return made.configure(candidates=301)


def recorded(connection):
    return connection.execute(
        "SELECT query_set, candidates, queries FROM hashindex.recall_history ORDER BY id"
    ).fetchall()


def test_saved_and_asked_again(on, index, connection):
    evaluate = ("evaluate", "i", "--candidates", "20")
    result = on(*evaluate, "--save", "night", "--queries", "30")
    assert "saved 30 queries as night" in result.stderr
    first = json.loads(on(*evaluate, "--set", "night", "--json").stdout)
    connection.execute("DELETE FROM items WHERE id = 300")
    again = json.loads(on(*evaluate, "--set", "night", "--json", "--no-record").stdout)
    assert (first["query_set"], first["queries"], first["recorded"]) == ("night", 30, True)
    assert (again["query_set"], again["queries"], again["recorded"]) == ("night", 30, False)
    assert [point["candidates"] for point in first["points"]] == [20, 301]
    assert [point["candidates"] for point in again["points"]] == [20]
    assert recorded(connection) == [("night", 20, 30), ("night", 301, 30)] * 2
    on("evaluate", "i", "--queries", "3", "--candidates", "9")
    assert len(recorded(connection)) == 4
    on("evaluate", "i", "--queries", "3", "--candidates", "9", "--record")
    assert recorded(connection)[4:] == [(None, 9, 3), (None, 301, 3)]


def test_the_history_is_printed(on, index):
    empty = on("evaluate", "i", "--history")
    assert (empty.stdout, "nothing is recorded yet; --save NAME" in empty.stderr) == ("", True)
    on("evaluate", "i", "--queries", "8", "--candidates", "5", "--save", "a")
    on("evaluate", "i", "--queries", "9", "--candidates", "301", "--save", "b")
    heading, *lines = on("evaluate", "i", "--history").stdout.splitlines()
    assert heading.split() == [
        "measured", "set", "queries", "model", "access", "ranking", "candidates", "probes", "k",
        "recall@10", "p50", "ms", "p95", "ms",
    ]  # fmt: skip
    assert [line.split()[2:7] for line in lines] == [
        ["a", "8", "lsh:1", "scan", "asymmetric"],
        ["a", "8", "lsh:1", "scan", "asymmetric"],
        ["b", "9", "lsh:1", "scan", "asymmetric"],
    ]
    points = json.loads(on("evaluate", "i", "--history", "--set", "b", "--json").stdout)
    assert [(p["query_set"], p["candidates"], p["recall"]) for p in points] == [("b", 301, 1)]
    sets = json.loads(on("evaluate", "i", "--sets", "--json").stdout)
    assert [(one["name"], one["queries"], one["rows"]) for one in sets] == [
        ("a", 8, 8),
        ("b", 9, 9),
    ]
    assert on("evaluate", "i", "--sets").stdout.splitlines()[1].split()[:3] == ["a", "8", "8"]
    assert "dropped query set a" in on("evaluate", "i", "--drop-set", "a").stderr
    assert len(json.loads(on("evaluate", "i", "--sets", "--json").stdout)) == 1
    assert len(json.loads(on("evaluate", "i", "--history", "--json").stdout)) == 3


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


def test_a_read_only_server(on, run, index, url):
    on("evaluate", "i", "--queries", "8", "--candidates", "301", "--save", "a", "--no-record")
    there = psycopg.conninfo.make_conninfo(url, options="-c default_transaction_read_only=on")
    evaluate = ("evaluate", "i", "--set", "a", "--candidates", "301", "--database-url", there)
    result = run(*evaluate, "--fail-under", "1")
    assert "not recorded: the session is read-only" in result.stderr
    assert "not recorded" not in run(*evaluate, "--no-record").stderr
    refused = run(*evaluate, "--record", code=3)
    assert "cannot be recorded: the session is read-only" in refused.stderr
    assert recorded(index.connection) == []


def test_a_log_of_queries_is_saved(on, index):
    log = "SELECT embedding FROM items ORDER BY id LIMIT 6"
    result = on(
        "evaluate", "i", "--queries-from", log, "--queries", "4", "--candidates", "301",
        "--save", "log", "--json",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert (found["queries"], found["query_set"], found["points"][0]["recall"]) == (4, "log", 1)
    (one,) = json.loads(on("evaluate", "i", "--sets", "--json").stdout)
    assert (one["queries"], one["rows"]) == (4, 0)


def test_what_is_refused(on, index):
    on("evaluate", "i", "--queries", "3", "--candidates", "301", "--save", "a")
    for options in (
        ("--set", "a", "--save", "b"),
        ("--set", "a", "--queries-from", "items"),
        ("--history", "--sets"),
        ("--drop-set", "a", "--save", "b"),
    ):
        assert "Usage" in on("evaluate", "i", *options, code=2).stderr
    for options, message in (
        (("--set", "b"), "index 'i' has no query set 'b'; it has 'a'"),
        (("--drop-set", "b"), "index 'i' has no query set 'b'; it has 'a'"),
        (("--save", "a"), "has a query set 'a' already"),
        (("--save", ""), "of a query set has 0 bytes"),
    ):
        assert message in on("evaluate", "i", *options, code=3).stderr
