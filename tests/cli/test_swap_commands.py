"""``pg-hashindex index swap``, ``rollback`` and ``prune``."""

import json

import pytest
from click.testing import CliRunner
from fixtures.indexes import indexed
from pg_hashindex.cli import main

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate

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
    before = evaluate(HashIndex.open(connection, swapped), queries=50, candidates=[12])
    sizes = ["--jobs", "2", "--memory", "600MB"]
    out, _ = run(url, "swap", swapped, "--model", "better", "--queries", "50", "--json", *sizes)
    result = json.loads(out)
    assert (result["model_before"], result["model"]) == ("lsh:1", "better:1")
    assert result["before"]["recall"] == pytest.approx(before.points[0].recall)
    assert result["after"]["recall"] > result["before"]["recall"]
    _, err = run(url, "show", swapped)
    assert "index rollback items_idx" in err
    assert "index prune items_idx" in err
    out, _ = run(url, "list", "--json")
    assert [(row["name"], row["swap"]) for row in json.loads(out)] == [
        ("items_idx", None), ("items_idx~2", "previous of items_idx")
    ]  # fmt: skip
    _, err = run(url, "rollback", swapped)
    assert "has model lsh:1 again" in err
    out, _ = run(url, "rollback", swapped, "--json")
    assert json.loads(out) == {"name": swapped, "model": "better:1"}
    _, err = run(url, "prune", swapped)
    assert "dropped the codes of model lsh:1" in err
    _, err = run(url, "prune", swapped, code=3)
    assert err.startswith("Error: index 'items_idx' has no former codes to prune")


@pytest.mark.parametrize("command", [["swap", "--model", "better"], ["encode"], ["rebalance"]])
def test_jobs_out_of_range(url, swapped, command):
    for jobs in ("0", "-1", "10000", "many"):
        _, err = run(url, *command, swapped, "--jobs", jobs, code=2)
        assert jobs in err
    assert "1 to 64, got 10000" in run(url, *command, swapped, "--jobs=10000", code=2)[1]


def test_less_recall_is_refused_and_forced(url, swapped):
    _, err = run(url, "configure", swapped, "--candidates", "20")
    _, err = run(url, "swap", swapped, "--model", "worse", code=1)
    assert "by more than the tolerance of 0.01: index 'items_idx' keeps model lsh:1" in err
    _, err = run(url, "show", swapped)
    assert "a swap to model worse:1 is unfinished, as items_idx~2" in err
    out, err = run(url, "swap", swapped, "--model", "worse", "--force")
    assert [line.split()[0] for line in out.splitlines()] == ["model", "lsh:1", "worse:1"]
    assert "index items_idx has model worse:1" in err
