"""Commands that build an index measure it as they end, and store what reaches a recall."""

import re

import pytest
from fixtures.indexes import begin_lists

from pg_hashindex.index.handle import HashIndex

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
SAID = re.compile(r"searches keep (\d+) candidates(?: of (\d+) lists?)?: recall@10 ([\d.]+)")


def counts(connection):
    index = HashIndex.open(connection, "i")
    return index.candidates, index.effort


def test_what_reaches_the_recall_is_stored(on, connection, items, model):
    said = on(*CREATE).stderr
    candidates, effort, recall = SAID.search(said).groups()
    assert (int(candidates), int(effort)) == counts(connection)
    assert float(recall) >= 0.95
    # The build ended before.
    assert "recall@10" not in on("index", "encode", "i").stderr


def test_the_build_ends_in_another_command(on, connection, items, model):
    begin_lists(connection, "i", table="items", column="embedding", model="lsh", access="lists")
    said = SAID.search(on("index", "encode", "i").stderr)
    assert (int(said[1]), int(said[2])) == counts(connection)


@pytest.mark.parametrize("how", ["at once", "later"])
def test_counts_given_by_hand_stay(on, connection, items, model, how):
    given = ("--candidates", "21", "--effort", "2")
    if how == "at once":
        said = on(*CREATE, *given).stderr
    else:
        begin_lists(connection, "i", table="items", column="embedding", model="lsh", access="lists")
        on("index", "configure", "i", *given)
        said = on("index", "encode", "i").stderr
    assert SAID.search(said).groups()[:2] == ("21", "2")
    assert counts(connection) == (21, 2)


def test_no_rows_are_not_measured(on, connection, items, model):
    connection.execute("TRUNCATE items")
    assert "recall" not in on(*CREATE).stderr
    assert counts(connection) == (200, 80)


def test_the_largest_tenant_has_enough(on, connection, items, model):
    """A few candidates are enough for most rows of small tenants, all of which are compared."""
    connection.execute("ALTER TABLE items ADD tenant integer")
    connection.execute("UPDATE items SET tenant = CASE WHEN id <= 200 THEN 0 ELSE id END")
    said = SAID.search(on(*CREATE, "--tenant", "tenant").stderr)
    (largest,) = connection.execute("SELECT hashindex.recall('i', tenant => '0')").fetchone()
    assert abs(float(said[3]) - largest) < 0.06
    assert largest >= 0.93
