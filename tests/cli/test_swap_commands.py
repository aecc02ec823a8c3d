"""``pg-hashindex index swap``, ``rollback`` and ``prune``."""

import json

import pytest
from click.testing import CliRunner
from fixtures.indexes import indexed
from pg_hashindex.cli import main

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest


@pytest.fixture
def swapped(connection, items, model, vectors):
    indexed(connection)
    for name, seed in (("better", 1), ("worse", 2)):
        n_bits = 30 if name == "better" else 2
        found = LSH(n_bits=n_bits, random_state=seed).fit(vectors).to_model(name)
        store.save(connection, found)
    return "items_idx"


def run(url, *arguments, code=0):
    done = CliRunner().invoke(main, ["index", *arguments, "--database-url", url])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.stdout, done.stderr


def test_the_whole_way(url, connection, swapped):
    HashIndex.open(connection, swapped).configure(candidates=12)
    sizes = ["--jobs", "2", "--memory", "600MB"]
    out, _ = run(url, "swap", swapped, "--model", "better", "--json", *sizes)
    result = json.loads(out)
    assert result["set"] == "codes of better:1 in lists without landmarks"
    assert result["in_use"]
    assert result["recall"] > result["former_recall"]
    _, err = run(url, "show", swapped)
    assert "a set is former: codes of lsh:1 in lists without landmarks" in err
    assert "index rollback items_idx" in err
    assert "index prune items_idx" in err
    out, _ = run(url, "show", "--json")
    assert [row["name"] for row in json.loads(out)] == [swapped]
    _, err = run(url, "rollback", swapped)
    assert "has its former set again: codes of lsh:1 in lists without landmarks" in err
    out, _ = run(url, "rollback", swapped, "--json")
    assert json.loads(out) == {
        "name": swapped, "set": "codes of better:1 in lists without landmarks"
    }  # fmt: skip
    _, err = run(url, "prune", swapped)
    assert "dropped 1 sets of index items_idx" in err
    out, _ = run(url, "prune", swapped, "--json")
    assert json.loads(out) == {"name": swapped, "pruned": 0}
    _, err = run(url, "rollback", swapped, code=3)
    assert "has no former set" in err


@pytest.mark.parametrize("command", [["swap", "--model", "better"], ["encode"], ["rebalance"]])
def test_jobs_out_of_range(url, swapped, command):
    for jobs in ("0", "-1", "10000", "many"):
        _, err = run(url, *command, swapped, "--jobs", jobs, code=2)
        assert jobs in err
    assert "1 to 64, got 10000" in run(url, *command, swapped, "--jobs=10000", code=2)[1]


def test_less_recall_is_refused_and_forced(url, connection, swapped):
    """More candidates than are ever tried share a code of two bits."""
    connection.execute(
        "INSERT INTO items (id, embedding) SELECT n, array_agg(random() - 0.5)::vector "
        "FROM generate_series(1001, 6000) n, generate_series(1, 8) d GROUP BY n"
    )
    run(url, "configure", swapped, "--candidates", "2000")
    _, err = run(url, "swap", swapped, "--model", "worse", code=1)
    assert "recall falls" in err
    assert "index 'items_idx' keeps its set" in err
    _, err = run(url, "show", swapped)
    assert "a set is ready: codes of worse:1 in lists without landmarks" in err
    _, err = run(url, "swap", swapped, "--model", "worse", "--force")
    assert "index items_idx searches codes of worse:1 in lists without landmarks" in err
