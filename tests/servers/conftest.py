"""Servers that embedded ones do not stand for: with the roles of a managed cloud, with pg_tle."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from fixtures.citus import free_ports
from fixtures.servers import SHARED, make_folder

# The script finds PostgreSQL by this Python, and root runs servers by `runuser`.
_PATH = os.pathsep.join(
    (str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin")
)
_ENVIRONMENT = os.environ | {"PATH": _PATH}
_SCRIPT = SHARED / "servers" / "server"


@dataclass(frozen=True)
class RealServer:
    """A server that runs, and one of its roles.

    Roles ``cloud_admin`` and ``app_owner`` are no superusers.
    """

    port: int
    #: PostgreSQL's own: psql, pg_dump, ...
    programs: Path
    role: str = "postgres"

    def uri(self, database="postgres"):
        return f"postgresql://{self.role}@127.0.0.1:{self.port}/{database}"

    def as_role(self, role):
        return replace(self, role=role)


@pytest.fixture(scope="session")
def start_server():
    """Return a function that starts a server of a kind, and skips where that is not to be had."""
    started = []

    def start(kind):
        if not _SCRIPT.exists():
            pytest.skip(f"{_SCRIPT} is not there; set PG_HASHINDEX_SHARED")
        folder, port = make_folder("pg_hashindex-real-"), free_ports(1)
        environment = _ENVIRONMENT | {"SERVER_PORT": str(port)}
        started.append((kind, folder, environment))
        done = subprocess.run(
            [_SCRIPT, "start", kind, folder],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode == 3:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        return RealServer(port, folder / "site" / kind / "bin")

    yield start
    for kind, folder, environment in started:
        subprocess.run([_SCRIPT, "stop", kind, folder], env=environment, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def managed(start_server):
    """PostgreSQL 15 as its databases' owner, who may create databases and is not a superuser."""
    superuser = start_server("pg15")
    with psycopg.connect(superuser.uri("template1"), autocommit=True) as connection:
        # As a cloud's own role does it, once; new databases have it then.
        connection.execute(
            "CREATE EXTENSION vector; ALTER ROLE app_owner CREATEDB; "
            "CREATE ROLE authenticated NOLOGIN; GRANT authenticated TO app_owner"
        )
    return superuser.as_role("app_owner")


@pytest.fixture(scope="session")
def with_tle(start_server):
    return start_server("pg_tle")


# Other tests of the session have these for an embedded server.


@pytest.fixture(scope="session")
def server(managed):
    return managed


@pytest.fixture(scope="session")
def admin(server):
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def left_behind(server):
    return []
