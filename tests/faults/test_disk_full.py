"""No space left: the work stops with a clear message, and goes on when there is some."""

import contextlib
import os
import shutil
import subprocess

import psycopg
import pytest
from faults.scenarios import change_access, create, encode, swap
from faults.tables import check_all, install
from fixtures.faults import SETTINGS, FaultServer, ballast, eventually, name_of, record
from fixtures.servers import make_folder

from pg_hashindex.errors import ConnectionFailedError, DatabaseStateError
from pg_hashindex.server import DEFAULT_VERSION


@pytest.fixture(scope="module")
def disk_server():
    """A server of its own: without its disk it cannot write what it has in memory."""
    folder = make_folder("pg_hashindex-full-")
    disk_server = FaultServer(folder / "data", version=DEFAULT_VERSION)
    disk_server.up()
    yield disk_server
    disk_server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def installed_there(disk_server):
    """A template with the schema, models and rows."""
    url = disk_server.database()
    install(url)
    return name_of(url)


@pytest.fixture(scope="module")
def small_disk(disk_server):
    """A file system of 96 MB that the server's user owns."""
    folder = make_folder("pg_hashindex-disk-")
    owner = disk_server.data_dir.stat().st_uid
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=96m,uid={owner},mode=700", "none", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("no file system can be mounted here")
    yield folder
    disk_server.stop()
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


WORK = {
    "encode": ([create("lsh")], encode),
    "lists": ([create("lsh"), encode], change_access("lists")),
    "swap": ([create("lsh"), encode], swap("other")),
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_a_full_tablespace(disk_server, installed_there, small_disk, work):
    disk_server.up()
    place = small_disk / work
    place.mkdir()
    shutil.chown(place, disk_server.data_dir.stat().st_uid)
    disk_server.admin(f"CREATE TABLESPACE {place.name.replace('-', '_')} LOCATION '{place}'")
    space = place.name.replace("-", "_")
    url = disk_server.database(installed_there)
    steps, act = WORK[work]
    with psycopg.connect(url, autocommit=True) as session:
        # Enough rows that the codes and landmarks do not fit on the disk.
        session.execute(
            "INSERT INTO items SELECT 10000 * m + i.id, 'x', i.embedding "
            "FROM items i, generate_series(1, 5) m WHERE i.id <= 1000"
        )
    disk_server.admin(f"ALTER DATABASE {name_of(url)} SET default_tablespace TO {space}")
    for step in steps:
        step(url)
    with ballast(small_disk, leave=65_536):
        with pytest.raises(DatabaseStateError, match="No space left on device"):
            act(url)
        checked = check_all(url, complete=False)
    act(url)
    checked += check_all(url, complete=True)
    record("disk full", operations=2, faults=1, rows=checked)
    disk_server.drop(url)
    disk_server.admin(f"DROP TABLESPACE {space}")


def answers(url):
    """Whether a server takes connections."""
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(url).close()
        return True
    return False


@pytest.mark.slow
def test_a_full_disk_of_the_log(disk_server, installed_there, small_disk):
    """The server panics then, and comes up when there is space."""
    disk_server.up()
    url = disk_server.database(installed_there)
    create("lsh")(url)
    disk_server.stop()
    log = disk_server.data_dir / "pg_wal"
    shutil.move(log, small_disk / "pg_wal")
    owner = disk_server.data_dir.stat().st_uid
    for file in (small_disk / "pg_wal", *(small_disk / "pg_wal").rglob("*")):
        os.chown(file, owner, -1)
    log.symlink_to(small_disk / "pg_wal")
    disk_server.start(
        until_exit=True, settings=SETTINGS | {"min_wal_size": "32MB", "max_wal_size": "32MB"}
    )
    with ballast(small_disk, leave=65_536):
        # The rest of the present segment is soon full.
        with pytest.raises((psycopg.OperationalError, ConnectionFailedError)):
            while True:
                encode(url)
                with psycopg.connect(url, autocommit=True) as session:
                    session.execute("DELETE FROM hashindex.set_1_codes; SELECT pg_switch_wal()")
        eventually(lambda: "PANIC" in disk_server.log.read_text())
        # It tries to come up again, and can only where the last segment has room left for that.
        eventually(lambda: not disk_server.is_running or answers(url))
    disk_server.up()
    checked = check_all(url, complete=False)
    encode(url)
    checked += check_all(url, complete=True)
    record("disk of the log full", operations=2, faults=1, rows=checked)
