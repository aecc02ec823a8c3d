"""``pg-hashindex index check``: findings, advice, and exit codes for cron and CI."""

import json
import re

import pytest
from fixtures.health import profiled
from fixtures.indexes import indexed

from pg_hashindex import store

pytestmark = pytest.mark.newest


def test_an_index_that_is_well(on, index):
    brief = on("index", "check", "items_idx").stdout
    assert re.fullmatch("index items_idx is in order: [0-9]+ checks passed, .*\n", brief)
    lines = on("index", "check", "items_idx", "-v").stdout.splitlines()
    assert lines[0].split() == ["check", "status", "value", "detail"]
    drift = [line for line in lines if "_drift" in line]
    assert [line.split()[1] for line in drift] == ["unknown"] * 2
    assert {line.split()[1] for line in lines[1:] if line not in drift} == {"ok"}
    assert {"triggers", "wrong_codes", "bits"} < {line.split()[0] for line in lines}
    assert on("index", "check", "items_idx", "--full", "--verbose").stdout.splitlines() == lines


@pytest.mark.parametrize(
    ("fault", "code", "status", "check"),
    [
        ("UPDATE items SET embedding = NULL", 0, "ok", None),
        ("DELETE FROM hashindex.set_1_codes WHERE id = 3", 1, "warning", "rows_without_code"),
        ("DELETE FROM hashindex.set_1_codes", 1, "broken", "rows_without_code"),
        ("ALTER TABLE items RENAME TO goods", 1, "broken", "table"),
    ],
)
def test_exit_codes(on, connection, items, model, fault, code, status, check):
    indexed(connection)
    connection.execute(fault.encode())
    found = json.loads(on("index", "check", "items_idx", "--json", code=code).stdout)
    assert (found["name"], found["status"], found["full"]) == ("items_idx", status, False)
    worst = [f for f in found["findings"] if f["status"] == status != "ok"]
    assert [f["check"] for f in worst] == ([check] if check else [])
    printed = on("index", "check", "items_idx", code=code).stdout
    for finding in worst:
        assert set(finding) == {"check", "status", "value", "detail", "advice"}
        assert f"\n{check}: {finding['advice']}\n" in printed


def test_unchecked_objects_are_not_findings(run, on, url, connection, index):
    assert 'index "nothing" does not exist' in on("index", "check", "nothing", code=3).output
    assert "No such option" in on("index", "check", "items_idx", "--ful", code=2).output
    assert "no database" in run("index", "check", "items_idx", code=2).output
    wrong = url.replace("test_", "no_such_test_")
    output = run("index", "check", "items_idx", "--database-url", wrong, code=3).output
    assert "cannot connect to" in output
    connection.execute("DROP SCHEMA hashindex CASCADE")
    output = on("index", "check", "items_idx", code=3).output
    assert output.startswith("Error: the schema hashindex is missing or old")


def test_training_facts_of_a_model(on, connection, lsh_model, vectors):
    store.save(connection, lsh_model)
    store.save(connection, profiled(lsh_model, vectors))
    shown = {name: on("model", "show", name).stdout for name in ("lsh", "profiled")}
    lines = {name: re.search("profile +(.*)", text) for name, text in shown.items()}
    assert [found and found[1] for found in lines.values()] == [
        "none",
        "of the projections of 300 rows",
    ]
    assert json.loads(on("model", "show", "profiled", "--json").stdout)["profile_rows"] == 300


def test_help_tells_the_exit_codes(run):
    text = " ".join(run("index", "check", "--help").output.split())
    assert (
        'Exit code 0 if all is well, 1 if something is broken or a warning: "status" in the JSON '
        "says which."
    ) in text
