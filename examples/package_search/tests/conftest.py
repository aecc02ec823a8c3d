"""PostgreSQL, and the application on a database that the commands of its README made.

The tests of the repository run with ``asyncio_mode = "auto"``.
"""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import alembic.config
import httpx
import psycopg
import pytest
from app import loading
from app.main import create_app
from app.settings import VARIABLE
from click.testing import CliRunner
from pg_hashindex.cli import main as pg_hashindex

from pg_hashindex.server import EmbeddedServer

EXAMPLE = Path(__file__).parents[1]
COMMANDS = re.findall(r"^```sh\n(.*?)^```", (EXAMPLE / "README.md").read_text(), re.M | re.S)
# The data are thrown away, so durability would only cost time.
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike tmp_path: for root the server is another one."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def embedded(folder: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(folder / "tests")
    server.start(until_exit=True, settings=FAST)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def create(embedded: EmbeddedServer) -> Callable[[str, str], str]:
    """Make a database from a template; return its URL."""

    def create(name: str, template: str) -> str:
        with psycopg.connect(embedded.uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return embedded.uri(name)

    return create


def follow(commands: str, url: str) -> None:
    """Run the commands of the README in this process, where each starts at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, url)
        patch.chdir(EXAMPLE)
        for command in commands.splitlines():
            match shlex.split(command):
                case ["alembic", *arguments]:
                    alembic.config.main(arguments)
                case ["pg-hashindex", *arguments]:
                    result = CliRunner().invoke(pg_hashindex, arguments)
                    assert result.exit_code == 0, result.output
                case ["python", "-m", "app.loading"]:
                    assert loading.load() == 5000
                case [program, *_]:
                    assert program in {"export", "uvicorn"}


@pytest.fixture(scope="session")
def ready(create: Callable[[str, str], str]) -> str:
    """The database that the README's commands make."""
    url = create("ready", "template1")
    for commands in COMMANDS:
        follow(commands, url)
    return url


@asynccontextmanager
async def _asking(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run the app in this process, and ask it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, url)
        app = create_app()
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
        ):
            yield client


@pytest.fixture
def asking() -> Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]:
    """Run the app on a database of the test's own."""
    return _asking


@pytest.fixture
async def client(ready: str) -> AsyncIterator[httpx.AsyncClient]:
    async with _asking(ready) as client:
        yield client
