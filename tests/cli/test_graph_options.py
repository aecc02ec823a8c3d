"""Training on a graph from the command line, and the options of deep methods."""

import json
import time

import click
import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.commands import children
from fixtures.tagged import Tagged
from pg_hashindex.cli import main
from pgvector import Vector

from pg_hashindex.hashers import HASHERS

pytestmark = pytest.mark.newest

TABLE = ("--table", "things", "--column", "v", "--labels", "topic", "--force")
TRAIN = ("model", "train", "m", "--bits", "12", "--method", "tagged")


@pytest.fixture(autouse=True)
def _tagged(monkeypatch):
    monkeypatch.setitem(HASHERS, Tagged.method, Tagged)
    group = children(main)["model"]
    assert isinstance(group, click.Group)
    (option,) = [given for given in group.commands["train"].params if given.name == "method"]
    monkeypatch.setattr(option, "type", click.Choice(list(HASHERS)))


@pytest.fixture
def things(connection):
    """400 rows with a topic; those whose id 4 divides have no owner, others one or two."""
    X, y = clustered()
    connection.execute(
        "CREATE TABLE things (id int PRIMARY KEY, code text NOT NULL UNIQUE, v vector(12), "
        "topic int)"
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s, %s)",
            [
                (i, f"c{i}", Vector(x), label)
                for i, (x, label) in enumerate(zip(X, y.tolist(), strict=True))
            ],
        )
    connection.execute(
        "CREATE TABLE owners AS "
        "SELECT id AS thing, 'owner ' || id % 3 AS owner FROM things WHERE id % 4 > 0 "
        "UNION ALL SELECT id, 'owner 9' FROM things WHERE id % 4 = 2"
    )


@pytest.mark.usefixtures("things")
def test_a_graph_of_the_table(on, connection):
    options = ("--param", "device=cpu", "--json")
    trained = on(*TRAIN, *TABLE, "--graph-query", "owners", *options)
    stored = json.loads(trained.stdout)
    graph = stored["training"]["graph"]
    # A tenth of each topic is held back.
    assert (graph["rows"], graph["objects"]) == (364, 4)
    assert 60 <= graph["isolated_rows"] <= 100
    assert 350 <= graph["edges"] <= 400
    assert (
        f"note: {graph['isolated_rows']} of 364 rows share no object of the graph with another "
        "row, so the graph has no effect on them"
    ) in trained.stderr
    assert stored["training"]["runs"] == ["cpu", False]
    assert not {"device", "progress"} & set(stored["parameters"])
    whole = on(*TRAIN, *TABLE, "--graph-query", "SELECT id, 1 FROM things WHERE v IS NOT NULL")
    assert "share no object" not in whole.stderr
    coded = "SELECT 'c' || thing, owner, 0.5 FROM owners"
    by_code = on(*TRAIN, *TABLE, "--graph-query", coded, "--id", "code", "--json")
    assert json.loads(by_code.stdout)["training"]["graph"] == graph


@pytest.mark.usefixtures("things")
def test_no_session_waits_while_a_model_trains(on, connection, monkeypatch):
    learn = Tagged._learn
    sessions = []

    def watched(hasher, *arguments):
        # A server takes a moment to see that a client is gone.
        for _ in range(100):
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            if row == (0,):
                break
            time.sleep(0.05)
        sessions.append(row)
        return learn(hasher, *arguments)

    monkeypatch.setattr(Tagged, "_learn", watched)
    on(*TRAIN, *TABLE)
    assert sessions == [(0,)]


def test_a_graph_of_a_file(on, tmp_path):
    X, y = clustered()
    edges = np.array([[row, row % 7] for row in range(400)])
    np.savez(tmp_path / "f.npz", X=X, y=y, owned=edges)
    from_file = ("--from", tmp_path / "f.npz", "--labels", "y", "--force", "--json")
    trained = on(*TRAIN, *from_file, "--graph-query", "owned")
    assert json.loads(trained.stdout)["training"]["graph"] == {
        "rows": 364, "objects": 7, "edges": 364, "isolated_rows": 0,
    }  # fmt: skip


# Before anything is read: there is no such table.
UNREAD = ("--table", "x", "--method", "itq-cca")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--graph-query", "SELECT 999, 1"), 3, "a row with id = 999, but things has none"),
        (("--graph-query", "SELECT 1"), 3, "the graph must come in 2 columns"),
        ((*UNREAD, "--graph-query", "x"), 3, "itq-cca does not learn from a graph; those that do"),
    ],
)
@pytest.mark.usefixtures("things")
def test_refused(on, arguments, code, message):
    refused = on(*TRAIN, *TABLE, *arguments, code=code)
    assert message in refused.stderr
    assert "tagged" in refused.stderr or "those" not in message
    assert json.loads(on("model", "show", "--json").stdout) == []
