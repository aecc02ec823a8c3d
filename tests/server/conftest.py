"""Places for servers, and programs that run as other processes and users."""

import multiprocessing
import shutil
import subprocess
import sys
import time
import warnings

import pytest
from fixtures.servers import make_folder

from pg_hashindex.server import EmbeddedServer

# The data are thrown away: durability would only cost time.
FAST = {"fsync": "off"}


@pytest.fixture
def place():
    """An empty folder that every user may enter; pytest's tmp_path is closed to the server's."""
    folder = make_folder("pg_hashindex-server-")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def make_server(place):
    """Make servers that are stopped at the end, by default in `place`/data."""
    made = []

    def make(data_dir=None, **options):
        made.append(EmbeddedServer(data_dir or place / "data", **options))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def shared_data_dir():
    """A data directory for all tests that do not ask for one of their own: initdb takes longest."""
    folder = make_folder("pg_hashindex-server-")
    server = EmbeddedServer(folder / "data")
    server.start(until_exit=True, settings=FAST)
    server.stop()
    yield server.data_dir
    shutil.rmtree(folder)


@pytest.fixture
def embedded(shared_data_dir):
    """A server that has its data directory already; not started, and stopped at the end."""
    server = EmbeddedServer(shared_data_dir)
    server.log.unlink()
    yield server
    server.stop()


@pytest.fixture
def run_python():
    """Start a Python program in another process; it is killed at the end if it still runs."""
    processes = []

    def run(program, *arguments, **options):
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **options,
            )
        )
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def fork():
    """Call a function in a forked process, for quickness; it is killed at the end."""
    processes = []

    def run(function, *arguments):
        process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
        with warnings.catch_warnings():
            # A worker of pytest-xdist has a second thread, which the child does without.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.join()


@pytest.fixture
def eventually():
    """Wait up to 20 seconds until something is true."""

    def wait(condition):
        deadline = time.monotonic() + 20
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    return wait
