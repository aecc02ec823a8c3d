"""The commands ``pg-hashindex server ...``."""

import psycopg
import pytest
from click.testing import CliRunner
from pg_hashindex.cli.server import server as group

from pg_hashindex.errors import EmbeddedServerError
from pg_hashindex.server import EmbeddedServer


@pytest.fixture
def invoke(make_server, place, monkeypatch):
    """Run a command on the data directory `place`/data."""
    make_server()  # stopped at the end
    monkeypatch.setenv("PG_HASHINDEX_SERVER_DIR", str(place / "data"))

    def run(*arguments):
        return CliRunner().invoke(group, arguments)

    return run


def test_start_stop(invoke, place):
    result = invoke("start", "--pg-version", "16")
    assert result.exit_code == 0
    url = result.stdout.strip()
    assert result.stdout == f"{url}\n"
    assert f"starting PostgreSQL 16 in {place}/data" in result.stderr
    assert f"bin/psql '{url}'" in result.stderr
    assert f"pg-hashindex server stop --data-dir {place}/data" in result.stderr
    with psycopg.connect(url) as connection:
        assert connection.info.server_version // 10000 == 16

    result = invoke("start")
    assert result.stdout == f"{url}\n"
    assert "is running already" in result.stderr
    assert EmbeddedServer(place / "data").uri() == url

    result = invoke("stop")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "stopped" in result.stderr
    result = invoke("stop")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "not running" in result.stderr
    assert not EmbeddedServer(place / "data").is_running


def test_errors(invoke, place):
    (place / "data").mkdir()
    (place / "data" / "precious").touch()
    result = invoke("start")
    assert isinstance(result.exception, EmbeddedServerError)
    assert result.stdout == ""
    assert invoke("start", "--pg-version", "17").exit_code == 2
