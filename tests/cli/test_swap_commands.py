"""``pg-hashindex index swap``, ``rollback`` and ``prune``."""

import json

import pytest
from fixtures.indexes import indexed

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


def test_the_whole_way(on, connection, swapped):
    HashIndex.open(connection, swapped).configure(candidates=12)
    sizes = ["--jobs", "2", "--memory", "600MB"]
    out = on("index", "swap", swapped, "--model", "better", "--json", *sizes).stdout
    result = json.loads(out)
    assert result["set"] == "codes of better:1 in lists without landmarks"
    assert result["in_use"]
    assert result["recall"] > result["former_recall"]
    err = on("index", "show", swapped).stderr
    assert "a set is former: codes of lsh:1 in lists without landmarks" in err
    assert "index rollback items_idx" in err
    assert "index prune items_idx" in err
    out = on("index", "show", "--json").stdout
    assert [row["name"] for row in json.loads(out)] == [swapped]
    err = on("index", "rollback", swapped).stderr
    assert "has its former set again: codes of lsh:1 in lists without landmarks" in err
    out = on("index", "rollback", swapped, "--json").stdout
    assert json.loads(out) == {
        "name": swapped, "set": "codes of better:1 in lists without landmarks"
    }  # fmt: skip
    err = on("index", "prune", swapped).stderr
    assert "dropped 1 sets of index items_idx" in err
    out = on("index", "prune", swapped, "--json").stdout
    assert json.loads(out) == {"name": swapped, "pruned": 0}
    err = on("index", "rollback", swapped, code=3).stderr
    assert "has no former set" in err


@pytest.mark.parametrize("command", [["swap", "--model", "better"], ["encode"], ["rebalance"]])
def test_jobs_out_of_range(on, swapped, command):
    for jobs in ("0", "-1", "10000", "many"):
        err = on("index", *command, swapped, "--jobs", jobs, code=2).stderr
        assert jobs in err
    assert "1 to 64, got 10000" in on("index", *command, swapped, "--jobs=10000", code=2).stderr


def test_less_recall_is_refused_and_forced(on, connection, swapped):
    """More candidates than are ever tried share a code of two bits."""
    connection.execute(
        "INSERT INTO items (id, embedding) SELECT n, array_agg(random() - 0.5)::vector "
        "FROM generate_series(1001, 6000) n, generate_series(1, 8) d GROUP BY n"
    )
    on("index", "configure", swapped, "--candidates", "2000")
    err = on("index", "swap", swapped, "--model", "worse", code=1).stderr
    assert "recall falls" in err
    assert "index 'items_idx' keeps its set" in err
    err = on("index", "show", swapped).stderr
    assert "a set is ready: codes of worse:1 in lists without landmarks" in err
    err = on("index", "swap", swapped, "--model", "worse", "--force").stderr
    assert "index items_idx searches codes of worse:1 in lists without landmarks" in err
