"""The command that lists jobs."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from fixtures.jobs import add_job

from pg_hashindex.db.jobs import Job
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


@pytest.fixture
def index(connection, items, model):
    return HashIndex.create(connection, "My-idx", table=items, column="embedding", model="lsh")


def test_nothing_runs(on, connection):
    result = on("jobs")
    assert "no job runs, and none is dead" in result.stderr
    assert json.loads(on("jobs", "--json").stdout) == []


def test_one_that_runs(on, index):
    with Job(index.connection, "encode", "My-idx") as job:
        job.phase("encoding", 400)
        index.connection.execute(
            "UPDATE hashindex.job SET rows_done = 100, phase_started_at = now() - interval '50 s', "
            "heartbeat_at = now()"
        )
        result = on("jobs")
        heading, line = result.stdout.splitlines()
        assert heading.split() == [
            "id", "kind", "of", "state", "phase", "rows", "rows/s", "left", "started", "heartbeat",
        ]  # fmt: skip
        assert "encode  My-idx  running  encoding  100 of 400  2       0:02:30" in line
        assert result.stderr == ""
        (found,) = json.loads(on("jobs", "--json").stdout)
    assert (found["kind"], found["subject"], found["state"]) == ("encode", "My-idx", "running")
    assert (found["rows_done"], found["rows_total"]) == (100, 400)
    assert (found["rows_per_second"], found["time_left"]) == (2, 150)
    assert found["pid"] == index.connection.info.backend_pid
    assert found["resume"] is None


def test_dead_ones_and_how_to_go_on(on, index):
    for kind, subject in (
        ("encode", "My-idx"), ("tune", "items"), ("swap", "My-idx"), ("encode", "gone"),
    ):  # fmt: skip
        add_job(index.connection, kind, subject)
    result = on("jobs")
    assert result.stdout.count("dead") == 4
    assert result.stderr.splitlines() == [
        "job 1 is dead; continue: pg-hashindex index encode My-idx",
        "job 2 is dead; run pg-hashindex tune again: it drops what was left, and starts over",
        "job 3 is dead; it made no codes, or was nearly done: see pg-hashindex index show",
        "job 4 is dead; there is no index gone any more: pg-hashindex jobs --forget",
    ]
    resume = [job["resume"] for job in json.loads(on("jobs", "--json").stdout)]
    assert resume == ["pg-hashindex index encode My-idx", None, None, None]
    # As it says.
    on("index", "encode", "My-idx")
    assert result.stdout.count("dead") == 4
    assert on("jobs").stdout.count("dead") == 3
    forgotten = on("jobs", "--forget")
    assert "gave up 3 dead jobs" in forgotten.stderr
    assert "dead" not in forgotten.stdout
    everything = on("jobs", "--all")
    assert everything.stdout.count("failed") == 4
    assert everything.stdout.count("done") == 1
    assert "job 1 failed: superseded: a later run continued it" in everything.stderr
    assert "job 4 failed: given up" in everything.stderr


def test_encoding_at_a_pace(on, index):
    result = on("index", "encode", "My-idx", "--throttle", "1e6")
    assert "encoded 300 rows" in result.stderr
    assert "rows_per_second must be above 0" in on(
        "index", "encode", "My-idx", "--throttle", "0", code=3
    ).stderr  # fmt: skip
