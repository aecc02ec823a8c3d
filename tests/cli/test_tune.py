"""The command that finds the settings of an index."""

import json

import pytest
from fixtures.indexes import with_access

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

FEW = ("--queries", "30")


def test_the_settings_are_shown_and_not_stored(on, index, tmp_path):
    plot = tmp_path / "frontier.svg"
    result = on("tune", "items_idx", "--recall", "0.9", "--plot", plot, *FEW)
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["candidates", "recall@10", "p50", "ms", "p95", "ms"]
    assert [line.split()[0] for line in lines[:6]] == ["20", "50", "100", "200", "400", "800"]
    assert lines[6].startswith("exact search")
    assert lines[-1].startswith("recommended: ")
    assert "the same command with --apply" in result.stderr
    # Letters are drawn as shapes; what they spell stands beside them.
    for words in (b"<!-- exact search -->", b"<!-- recommended -->", b"<!-- recall"):
        assert words in plot.read_bytes()
    assert HashIndex.open(index.connection, "items_idx").candidates == 200


def test_they_are_stored(on, index):
    result = on("tune", "items_idx", "--recall", "0.5", *FEW, "--apply")
    kept = HashIndex.open(index.connection, "items_idx").candidates
    assert kept < 200
    assert f"searches of items_idx keep {kept} candidates from now on" in result.stderr


def test_landmarks_and_a_log_of_queries_as_json(on, index):
    with_access(index, "lists")
    log = ("--queries-from", "SELECT embedding FROM items WHERE id < 9")
    result = on("tune", "items_idx", "--recall", "1", "-k", "1", *log, "--json")
    printed = json.loads(result.stdout)
    assert (printed["index"], printed["recall"], printed["k"]) == ("items_idx", 1.0, 1)
    assert printed["recommended"] in [
        {name: value for name, value in point.items() if name != "frontier"}
        for point in printed["points"]
    ]
    assert printed["recommended"]["queries"] == 8
    assert printed["cause"] is None


def test_nothing_reaches_it(on, index):
    wanted = ("tune", "items_idx", "--recall", "0.9", "--max-ms", "1e-6", *FEW, "--apply")
    result = on(*wanted, code=1)
    assert result.stdout.splitlines()[-1] == "nothing reaches recall 0.9 within 1e-06 ms"
    assert " ms; allow more time, or a lower recall" in result.stderr
    assert json.loads(on(*wanted, "--json", code=1).stdout)["recommended"] is None
    assert HashIndex.open(index.connection, "items_idx").candidates == 200


def test_a_scan_of_many_rows_needs_landmarks(on, index):
    index.connection.execute(
        "INSERT INTO items SELECT 1000 + 40 * id + n, 'a', embedding "
        "FROM items, generate_series(1, 40) n WHERE id <= 250"
    )
    result = on("tune", "items_idx", "--recall", "0.9", "--max-ms", "1e-6", *FEW, code=1)
    assert "pg-hashindex index swap items_idx --access lists" in result.stderr


def test_results_are_not_lost_if_applying_fails(on, index, monkeypatch):
    def fail(*_, **__):
        raise DatabaseStateError("the disk is full")

    monkeypatch.setattr(HashIndex, "configure", fail)
    result = on("tune", "items_idx", "--recall", "0.5", *FEW, "--apply", code=3)
    assert "recommended: " in result.stdout
    assert "the disk is full" in result.stderr


def test_a_session_that_only_reads(on, index, url):
    with connect(url) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    assert "recommended: " in on("tune", "items_idx", "--recall", "0.9", *FEW).stdout


def test_refused(on, index, tmp_path):
    for arguments, message in (
        (("none", "--recall", "0.9"), 'index "none" does not exist'),
        (("items_idx", "--recall", "1.5"), "recall must be above 0 and at most 1, got 1.5"),
        (("items_idx", "--recall", "0.9", "--plot", tmp_path / "x.xyz"), "does not end in"),
        (("items_idx", "--recall", "0.9", "--queries", "0"), "queries is 0"),
    ):
        assert message in on("tune", *arguments, code=3).stderr
    assert "Missing option '--recall'" in on("tune", "items_idx", code=2).stderr
