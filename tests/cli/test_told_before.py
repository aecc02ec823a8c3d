"""Commands say what takes minutes before they begin it, and what they will not do."""

import json
from dataclasses import replace

import pytest

from pg_hashindex import store
from pg_hashindex.training import sampling

pytestmark = pytest.mark.newest

TABLE = ["--table", "items", "--column", "embedding"]


@pytest.mark.reads
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "itq", "--bits", "10"], "itq gives at most one bit for each dimension"),
        (["--method", "pcah", "--bits", "10"], "at most one bit for each dimension"),
        (["--method", "sdh", "--bits", "8"], "sdh learns from labels; give some (--labels)"),
        (["--method", "itq", "--bits", "8", "--param", "x=1"], "'x'"),
    ],
)
def test_training_is_refused_before_rows_are_read(on, items, monkeypatch, arguments, message):
    monkeypatch.delattr(sampling.TableSource, "find")
    assert message in on("model", "train", "m", *TABLE, *arguments, code=3).stderr


def test_a_metric_that_the_model_was_not_trained_for(on, connection, items, model):
    said = on(
        "index", "create", "i", "--access", "scan", "--model", "lsh", *TABLE, "--metric", "cosine"
    ).stderr
    assert (
        'warning: index "i" ranks by cosine, and model "lsh" was trained for l2; Train a model for '
        "cosine, or leave the metric out.\n" in said
    )
    assert (
        "warning"
        not in on("index", "create", "j", "--access", "scan", "--model", "lsh", *TABLE).stderr
    )


def test_evaluate_measures_the_settings_of_the_index(on, index):
    index.configure(candidates=37)
    found = json.loads(on("evaluate", "items_idx", "--queries", "5", "--json").stdout)
    assert 37 in [point["candidates"] for point in found["points"]]


def test_errors_offer_the_codes_of_before_first(on, index, lsh_model):
    store.save(index.connection, replace(lsh_model, name="other"))
    store.save(index.connection, replace(lsh_model, name="third"))
    index.swap(model="other")
    said = on("index", "swap", "items_idx", "--model", "lsh", "--force", code=3).stderr
    assert "pg-hashindex index rollback items_idx" in said
    assert "prune" not in said
    said = on("index", "swap", "items_idx", "--model", "third", "--force", code=3).stderr
    assert said.index("rollback") < said.index("prune")


def test_no_bars_without_a_terminal(on, items, model):
    said = on("index", "create", "i", "--model", "lsh", *TABLE, "--access", "lists").stderr
    assert said.count("\r") == 0
    assert len(said.splitlines()) < 4
    assert "\r" not in on("index", "check", "i").stderr + on("evaluate", "i").stderr
