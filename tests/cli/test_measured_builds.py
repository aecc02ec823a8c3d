"""Commands that build an index measure it as they end, and store what reaches a recall."""

import re

import pytest
from fixtures.indexes import begin_lists

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import tuning

pytestmark = pytest.mark.newest

CREATE = (
    "index",
    "create",
    "i",
    "--access",
    "lists",
    "--table",
    "items",
    "--column",
    "embedding",
    "--model",
    "lsh",
)
SAID = re.compile(
    r"searches keep (\d+) candidates(?: of (\d+) lists)?: recall@10 [\d.]+, at least ([\d.]+), in"
)


def counts(connection):
    index = HashIndex.open(connection, "i")
    return index.candidates, index.effort


@pytest.fixture
def large(monkeypatch, connection, items, model):
    """Have the rows of the tests count as many."""
    monkeypatch.setattr(tuning, "_LEAST_ROWS", 100)


def test_what_reaches_the_recall_is_stored(on, connection, large):
    said = on(*CREATE, "--access", "lists").stderr
    candidates, effort, least = SAID.search(said).groups()
    assert (int(candidates), int(effort)) == counts(connection)
    assert float(least) >= 0.95
    # The build ended before.
    assert "recall@10" not in on("index", "encode", "i").stderr


def test_the_build_ends_in_another_command(on, connection, large):
    begin_lists(connection, "i", table="items", column="embedding", model="lsh")
    said = SAID.search(on("index", "encode", "i").stderr)
    assert int(said[1]) == counts(connection)[0]


@pytest.mark.parametrize("how", ["at once", "later"])
def test_counts_given_by_hand_stay(on, connection, large, how):
    given = ("--candidates", "21", "--effort", "2")
    if how == "at once":
        said = on(*CREATE, "--access", "lists", *given).stderr
    else:
        begin_lists(connection, "i", table="items", column="embedding", model="lsh", access="lists")
        on("index", "configure", "i", *given)
        said = on("index", "encode", "i").stderr
    assert SAID.search(said).groups()[:2] == ("21", "2")
    assert counts(connection) == (21, 2)


@pytest.mark.parametrize("prepare", ["TRUNCATE items", "SELECT 1"])
def test_few_rows_are_not_measured(on, connection, items, model, prepare):
    connection.execute(prepare)
    assert "recall" not in on(*CREATE).stderr
