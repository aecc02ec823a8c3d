"""Processes that end too early, ours, the guard or the server, and the state that they leave."""

import os
import signal
import time

import psutil
import psycopg
import pytest

from pg_hashindex.server import EmbeddedServer

FAST = {"fsync": "off"}


def own(data_dir):
    EmbeddedServer(data_dir).start(until_exit=True, settings=FAST)
    time.sleep(600)


def own_with_child(data_dir):
    EmbeddedServer(data_dir).start(until_exit=True, settings=FAST)
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(600)


def own_and_keep(data_dir):
    server = EmbeddedServer(data_dir)
    server.start(until_exit=True, settings=FAST)
    server.keep_running()


def is_gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def processes_on(folder, program):
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if program in command and str(folder) in command:
            found.append(process)
    return found


def guards_of(server):
    return processes_on(server.data_dir, "server/guard")


def is_owned(server):
    """Whether the server is up and its guard has come to rest."""
    return server.is_running and (server.data_dir / "pg_hashindex.until_exit").exists()


def test_the_server_ends_with_a_killed_owner(embedded, fork, eventually):
    owner = fork(own, embedded.data_dir)
    assert eventually(lambda: is_owned(embedded))
    (guard,) = guards_of(embedded)
    owner.kill()
    assert eventually(lambda: not embedded.is_running)
    assert eventually(lambda: is_gone(guard))
    # Not killed: shut down.
    assert "database system is shut down" in embedded.log.read_text()


def test_the_server_ends_though_a_child_of_the_owner_lives(embedded, fork, eventually):
    owner = fork(own_with_child, embedded.data_dir)
    assert owner.pid is not None
    process = psutil.Process(owner.pid)
    assert eventually(lambda: len(process.children()) == 2)
    (guard,) = guards_of(embedded)
    (child,) = [each for each in process.children() if each.pid != guard.pid]
    owner.kill()
    assert eventually(lambda: not embedded.is_running)
    assert not is_gone(child)
    child.kill()


def test_the_server_has_stopped_when_the_owner_has_ended(embedded, run_python):
    program = """
import sys
from pg_hashindex.server import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start(until_exit=True, settings={"fsync": "off"})
print(server.is_running)
raise SystemExit(3)
"""
    owner = run_python(program, embedded.data_dir)
    assert owner.communicate() == ("True\n", "")
    assert owner.returncode == 3
    assert not embedded.is_running


@pytest.mark.slow
def test_no_moment_of_a_start_leaves_a_server_behind(make_server, fork, eventually, place):
    server = make_server()
    reached = set()
    for step in range(8):
        # The first of these hit initdb, the later ones the start of the server or its end.
        owner = fork(own, server.data_dir)
        time.sleep(step * 0.15)
        reached.add((server.data_dir.exists(), server.is_running))
        owner.kill()
        owner.join()
        # Killed between fork and exec, the guard does not yet show in its command line.
        time.sleep(0.3)
        assert eventually(lambda: all(map(is_gone, guards_of(server))) and not server.is_running)
    assert (False, False) in reached
    server.start(settings=FAST)
    assert server.is_running
    # An initdb without its parent comes to its end all the same, beside the data directory.
    assert eventually(lambda: not processes_on(place, "initdb"))


def test_keep_running(embedded, fork):
    owner = fork(own_and_keep, embedded.data_dir)
    owner.join()
    assert owner.exitcode == 0
    assert embedded.is_running
    assert not guards_of(embedded)
    embedded.keep_running()
    assert embedded.is_running


def test_the_context_leaves_a_server_that_was_made_permanent(embedded):
    with embedded:
        EmbeddedServer(embedded.data_dir).start()
    assert embedded.is_running
    assert not guards_of(embedded)


def test_the_context_stops_what_it_started(embedded):
    again = EmbeddedServer(embedded.data_dir)
    with pytest.raises(ZeroDivisionError), embedded:
        assert again.is_running
        raise ZeroDivisionError
    assert not embedded.is_running
    with embedded:
        embedded.keep_running()
    assert again.is_running
    with embedded:
        pass
    assert again.is_running
    again.stop()
    with embedded, again:
        pass
    assert not embedded.is_running


def test_until_exit_does_not_finished(embedded, fork):
    embedded.start(settings=FAST)
    owner = fork(own, embedded.data_dir)
    time.sleep(0.5)
    owner.kill()
    owner.join()
    assert not guards_of(embedded)
    assert embedded.is_running


@pytest.mark.parametrize("act", [EmbeddedServer.start, EmbeddedServer.keep_running])
def test_another_process_keeps_it_running(embedded, fork, eventually, act):
    owner = fork(own, embedded.data_dir)
    assert eventually(lambda: is_owned(embedded))
    (guard,) = guards_of(embedded)
    act(embedded)
    owner.kill()
    assert eventually(lambda: is_gone(guard))
    assert embedded.is_running


def test_a_server_whose_owner_and_guard_were_killed_is_started_again(embedded, fork, eventually):
    owner = fork(own, embedded.data_dir)
    assert eventually(lambda: is_owned(embedded))
    (guard,) = guards_of(embedded)
    guard.kill()
    owner.kill()
    owner.join()
    pid = embedded.pid
    assert pid is not None
    embedded.start(until_exit=True, settings=FAST)
    assert embedded.pid not in (None, pid)


def test_another_user_stops_it_and_the_owner_restarts_it(embedded, fork):
    embedded.start(until_exit=True, settings=FAST)
    stopper = fork(embedded.stop)
    stopper.join()
    assert stopper.exitcode == 0
    assert not embedded.is_running
    embedded.start(until_exit=True, settings=FAST)
    assert len(guards_of(embedded)) == 1
    assert embedded.stop()
    assert not guards_of(embedded)


def test_a_killed_server_starts_again(embedded, eventually):
    embedded.start(settings=FAST)
    with psycopg.connect(embedded.uri()) as connection:
        connection.execute("CREATE TABLE killed AS SELECT 17 AS value")
    for number in (None, os.getpid()):
        pid = embedded.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not embedded.is_running)
        assert embedded.pid is None
        if number is not None:
            # As in a restarted container: the dead server's number is another process's now.
            for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
                file = embedded.data_dir / name
                lines = file.read_text().splitlines(keepends=True)
                file.write_text("".join([f"{number}\n", *lines[1:]]))
        embedded.start(settings=FAST)
        with psycopg.connect(embedded.uri()) as connection:
            assert connection.execute("SELECT value FROM killed").fetchone() == (17,)
