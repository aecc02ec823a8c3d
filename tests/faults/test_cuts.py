"""Connections cut in the middle of a message: one line for the user, and a right error class."""

import contextlib
import socket
import threading

import pytest
from click.testing import CliRunner
from faults.scenarios import create, encode, swap
from faults.tables import VECTORS, check_all
from fixtures.faults import eventually, name_of, record
from fixtures.servers import make_folder
from pg_hashindex.cli import main

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import ConnectionFailedError
from pg_hashindex.index.handle import HashIndex


class Cutter:
    """Between a client and the server: cuts the connection after some bytes from one of them."""

    def __init__(self, folder, server, after, *, of):
        self._server, self._left, self._of = server, after, of
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self.was_cut = False
        self._ends = []
        self._threads = []
        self._begin(self._serve)

    def _begin(self, act, *arguments):
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self):
        # Pumps that still wait for data return once the ends are shut down.
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for end in (self._listener, *self._ends):
            end.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._ends += [client, server]
                server.connect(self._server)
                for source, target, name in (
                    (client, server, "client"),
                    (server, client, "server"),
                ):
                    self._begin(self._pump, source, target, name)

    def _pump(self, source, target, name):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if name == self._of:
                    if len(data) >= self._left:
                        target.sendall(data[: self._left])
                        self.was_cut = True
                        break
                    self._left -= len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cut(fault_server):
    """Return an URL of a database through a cutter."""
    folders = []
    cutters = []

    def make(url, after, of):
        folders.append(make_folder("pg_hashindex-cut-"))
        host = url.partition("host=")[2].partition("&")[0]
        cutters.append(Cutter(folders[-1], f"{host}/.s.PGSQL.5432", after, of=of))
        return url.replace(host, str(folders[-1])), cutters[-1]

    yield make
    for cutter in cutters:
        cutter.close()
    for folder in folders:
        (folder / ".s.PGSQL.5432").unlink()
        folder.rmdir()


COMMANDS = {
    "index encode": (["items_idx"], encode),
    "index swap": (["items_idx", "--model", "other", "--force"], swap("other")),
    "index show": ([], None),
    "schema upgrade": ([], None),
}


@pytest.mark.parametrize("of", ["client", "server"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_says_that_the_connection_failed(
    fault_server, installed, cut, command, of
):
    arguments, again = COMMANDS[command]
    fault_server.up()
    url = fault_server.database(installed)
    create("lsh")(url)
    if command != "index encode":
        encode(url)
    faults = 0
    for after in (300, 1_000, 3_000, 10_000, 40_000):
        through, cutter = cut(url, after, of)
        result = CliRunner().invoke(main, [*command.split(), *arguments, "--database-url", through])
        if not cutter.was_cut:
            assert result.exit_code == 0, result.output
            break
        faults += 1
        # The server's last answer may have arrived whole.
        if result.exit_code == 0:
            continue
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code == 3
        last = result.output.strip().splitlines()[-1]
        assert last.startswith("Error: "), result.output
        assert "connect" in last, last
        assert "Traceback" not in result.output
        # Its backend notices, and lets go of its locks.
        eventually(
            lambda: (
                fault_server.admin(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                    f"AND datname = '{name_of(url)}'"
                )
                == [(0,)]
            )
        )
        check_all(url, complete=False)
    assert faults
    if again is not None:
        again(url)
        rows = check_all(url, complete=True)
        record("connection cut under the command line", operations=faults, faults=faults, rows=rows)
    fault_server.drop(url)


def test_a_session_that_the_server_ends(fault_server, installed):
    fault_server.up()
    url = fault_server.database(installed)
    create("lsh")(url)
    with connect(url) as connection:
        index = HashIndex.open(connection, "items_idx")
        fault_server.admin(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        for act in (
            index.encode,
            lambda: index.search(VECTORS[0]),
            lambda: index.swap(model="other"),
            index.rebalance,
            index.drop,
            lambda: HashIndex.open(connection, "items_idx"),
        ):
            with pytest.raises(ConnectionFailedError):
                act()
    fault_server.drop(url)
