"""Several processes read rows for landmarks: the result is the same, and any of them may end."""

import os
import signal
import subprocess
import sys
import warnings

import psycopg
import pytest
from fixtures.checks import other_sets
from fixtures.faults import eventually
from fixtures.indexes import begin_lists
from fixtures.landmarks import assert_listed, entries, tables_of

from pg_hashindex.errors import FewerJobsWarning, InvalidInputError
from pg_hashindex.index.landmarks import building, reading, training, workers

_BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'pg-hashindex build of items_idx'"
)


@pytest.fixture
def started(monkeypatch):
    """Pages are ranges, and every process has some of a pass before another reads one."""
    monkeypatch.setattr(reading, "_MOST_PAGES", 1)
    begin, send = workers.Workers.begin, workers._Worker.send
    found, having = [], set()

    def wait(pass_):
        eventually(lambda: all(one.ended or (one, pass_) in having for one in pass_.workers), 60)

    def begun(self, pass_):
        begin(self, pass_)
        found.extend(worker for worker in self._workers if worker not in found)
        wait(pass_)
        return pass_

    def sent(self, message, *arrays):
        if isinstance(message, workers.Range):
            having.add((self, self.reads))
            wait(self.reads)
        send(self, message, *arrays)

    monkeypatch.setattr(workers.Workers, "begin", begun)
    monkeypatch.setattr(workers._Worker, "send", sent)
    return found


@pytest.fixture
def after_first_write(monkeypatch):
    """Have something done when the build itself has written its first range."""

    def interrupt(act):
        write, written = building.ListBuild._write, []

        def watched(self, *given):
            write(self, *given)
            if not written:
                act()
            written.append(given)

        monkeypatch.setattr(building.ListBuild, "_write", watched)

    return interrupt


def result(index):
    """Return codes and landmarks, whatever generation they are of."""
    return [
        index.connection.execute(f"SELECT * FROM hashindex.{table} ORDER BY 1".encode()).fetchall()
        for table in tables_of(index)
    ]


def test_the_result_does_not_depend_on_jobs(listed, started):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewerJobsWarning)
        listed.rebalance(jobs=1)
        expected = result(listed)
        for jobs in (2, 3):
            listed.rebalance(jobs=jobs, memory="2GB")
            assert result(listed) == expected
    assert len(started) == 3
    assert all(worker.process.returncode == 0 for worker in started)


def kill(connection, process):
    process.kill()


def cut(connection, process):
    ended = connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({_BACKENDS}) b".encode())
    assert ended.fetchall()


@pytest.mark.parametrize("fault", [kill, cut])
def test_ranges_of_a_process_that_ends_are_read_again(
    listed, started, after_first_write, url, fault
):
    def end():
        os.kill(started[0].process.pid, signal.SIGSTOP)
        with psycopg.connect(url, autocommit=True) as other:
            fault(other, started[0].process)
        os.kill(started[0].process.pid, signal.SIGCONT)

    after_first_write(end)
    with pytest.warns(FewerJobsWarning, match="1 of 2 jobs have read rows to the end: "):
        listed.rebalance(jobs=2)
    assert_listed(listed)


def test_an_interrupted_build_ends_all_processes_and_is_continued(listed, started, monkeypatch):
    def interrupt(self, *given):
        raise KeyboardInterrupt

    before = result(listed)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(building.ListBuild, "_write", interrupt)
        listed.rebalance(jobs=2)
    assert started[0].process.poll() is not None
    assert result(listed) == before
    (left_over,) = other_sets(listed)
    assert left_over.state == "building"
    (left,) = listed.connection.execute(
        f"SELECT count(*) FROM hashindex.set_{left_over.set_id}_ranges WHERE NOT written".encode()
    ).fetchone()
    assert left
    started.clear()
    listed.rebalance(jobs=2)
    assert len(started) == 1
    assert_listed(listed)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_a_build_that_was_killed_or_stopped(listed, url, number):
    script = (
        "import sys, time; from pg_hashindex import HashIndex, connect\n"
        "from pg_hashindex.index.landmarks import building, reading, workers\n"
        "send = workers._Worker.send\n"
        # The others are given the task, and wait for ranges.
        "def wait(self, message, *arrays):\n"
        "    isinstance(message, dict) and send(self, message, *arrays)\n"
        "workers._Worker.send = wait; reading._MOST_PAGES = 1\n"
        "building.ListBuild._add_rows = lambda *given: (print(flush=True), time.sleep(60))\n"
        "HashIndex.open(connect(sys.argv[1]), 'items_idx').rebalance(jobs=3)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, url], stdout=subprocess.PIPE, start_new_session=True
    ) as build:
        build.stdout.readline()
        find = listed.connection.execute
        eventually(lambda: len(find(_BACKENDS.encode()).fetchall()) == 2, 60)
        os.killpg(build.pid, number) if number == signal.SIGINT else build.kill()
    eventually(lambda: not find(_BACKENDS.encode()).fetchall(), 10)
    listed.rebalance(jobs=1)
    assert_listed(listed)


@pytest.mark.newest
@pytest.mark.parametrize("jobs", [0, -1, 10_000, True, "2", 1.5])
def test_refused(listed, jobs):
    for call in (listed.encode, listed.rebalance):
        with pytest.raises(InvalidInputError, match=f"jobs must be 1 to 64, got {jobs!r}"):
            call(jobs=jobs)


@pytest.mark.newest
def test_fewer_processes(listed, started, monkeypatch, url, admin):
    """Memory, a server without connections, and a program that is not Python allow fewer."""
    with pytest.warns(FewerJobsWarning, match="600MB of memory hold 2 of 3 jobs"):
        listed.rebalance(jobs=3, memory="600MB")
    name = listed.connection.info.dbname
    admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
    with pytest.warns(FewerJobsWarning, match="1 of 2 jobs .* not currently accepting") as found:
        listed.rebalance(jobs=2)
    assert len(found) == 1
    admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    monkeypatch.setattr(sys, "executable", "")
    with pytest.warns(FewerJobsWarning, match="1 of 2 jobs .* does not start Python"):
        listed.rebalance(jobs=2)
    assert_listed(listed)


@pytest.mark.newest
def test_a_row_of_another_dimension_is_named(connection, model, started):
    connection.execute(
        "CREATE TABLE mixed (id text PRIMARY KEY, v vector);"
        "ALTER TABLE mixed ALTER v SET STORAGE PLAIN;"
        "INSERT INTO mixed SELECT n, array_fill(n, ARRAY[8])::vector FROM generate_series(1, 999) n"
    )
    index = begin_lists(
        connection, "items_idx", table="mixed", column="v", model=model.name, access="lists"
    )
    connection.execute(
        "ALTER TABLE mixed DISABLE TRIGGER ALL; INSERT INTO mixed VALUES ('odd', '[1,2]');"
        "ALTER TABLE mixed ENABLE TRIGGER ALL"
    )
    with pytest.raises(InvalidInputError, match="row odd of .* has 2 dimensions, the model"):
        index.encode(jobs=2)
    connection.execute("DELETE FROM mixed WHERE id = 'odd'")
    assert index.encode(jobs=2) == 999
    assert len(entries(index)) == 999


@pytest.mark.newest
def test_a_table_that_is_rewritten_is_read_again(listed, started, after_first_write, url):
    def rewrite():
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("DELETE FROM items WHERE id < 40")
            other.execute("VACUUM FULL items")

    after_first_write(rewrite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerJobsWarning)
        listed.rebalance(jobs=2)
    assert_listed(listed)


@pytest.mark.newest
def test_landmarks_of_tenants_do_not_depend_on_jobs(connection, model, started):
    connection.execute(
        "CREATE TABLE shared (id int PRIMARY KEY, tenant int, v vector(8));"
        "INSERT INTO shared SELECT n, n % 11 % 3, "
        "ARRAY(SELECT sin(n * d) + n % 5 FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(1, 13000) n"
    )
    index = begin_lists(
        connection, "items_idx", table="shared", column="v", model=model.name,
        access="lists", tenant="tenant",
    )  # fmt: skip
    index.encode(jobs=1)
    index.rebalance(jobs=1)
    expected = result(index)
    assert expected[1]
    index.rebalance(jobs=3, memory="2GB")
    assert result(index) == expected
    assert len(started) == 2


def test_a_round_of_training_that_lost_rows_is_read_again(listed, started, monkeypatch):
    listed.rebalance(jobs=1)
    expected, add, added = result(listed), training.Round.add, []

    def lose(self, rows):
        add(self, rows)
        if not added:
            started[0].process.kill()
        added.append(len(rows))

    monkeypatch.setattr(training.Round, "add", lose)
    with pytest.warns(FewerJobsWarning, match="1 of 2 jobs .* signal 9"):
        listed.rebalance(jobs=2)
    assert result(listed) == expected
    # Three rounds of nine rows for each of 150 landmarks, and what was read before the loss.
    assert sum(added) > 3 * 9 * 150
