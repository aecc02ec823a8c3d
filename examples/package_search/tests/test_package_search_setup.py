"""Migrations there and back, and the one command that does everything."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import alembic.command
import alembic.config
import httpx
import psycopg
import pytest
from app.settings import VARIABLE

from pg_hashindex.errors import UnknownModelError
from pg_hashindex.server import EmbeddedServer

EXAMPLE = Path(__file__).parents[1]


def dumped(server: EmbeddedServer, url: str) -> str:
    """Dump the schema of a database."""
    program = [str(server.bin_dir / "pg_dump"), "--schema-only", url]
    dump = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    return re.sub(r"^\\(un)?restrict .*$", "", dump, flags=re.M)


async def test_migrations_end_where_they_began(
    create: Callable[[str, str], str],
    embedded: EmbeddedServer,
    ready: str,
    asking: Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index is not made without its model; and all that was made goes again."""
    config = alembic.config.Config(EXAMPLE / "alembic.ini")
    empty = create("empty", "template1")
    monkeypatch.setenv(VARIABLE, empty)
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE EXTENSION vector")
    alembic.command.ensure_version(config)
    before = dumped(embedded, empty)
    with pytest.raises(UnknownModelError, match='model "packages_384" does not exist'):
        alembic.command.upgrade(config, "head")
    assert dumped(embedded, empty) == before

    copied = create("copied", "ready")
    monkeypatch.setenv(VARIABLE, copied)
    alembic.command.check(config)
    alembic.command.downgrade(config, "0001")
    async with asking(copied) as client:
        response = await client.get("/packages/1/similar")
        assert response.status_code == 503
        assert "packages_idx" in response.json()["detail"]
    alembic.command.downgrade(config, "base")
    assert dumped(embedded, copied) == before


@pytest.mark.slow
def test_one_command_does_everything(folder: Path) -> None:
    program = [sys.executable, "-W", "error", "-m", "app", "--serve", "0", "--data-dir"]
    with subprocess.Popen(
        [*program, str(folder / "one")],
        cwd=EXAMPLE,
        text=True,
        stdout=subprocess.PIPE,
        # Processes in the background of a shell ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            output = ""
            while "serving at" not in output:
                line = process.stdout.readline()
                assert line, output
                output += line
            (address,) = re.findall("serving at (http://[0-9.:]+)/docs", output)
            (hit,) = httpx.get(f"{address}/packages/4959/similar", params={"k": 1}).json()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    answers = re.findall(r"^GET (\S+): 200 OK\n((?:  .*\n)+)", output, re.M)
    assert [len(answer.splitlines()) for _, answer in answers] == [3, 3, 3, 1]
    # The nearest to nginx, with either model.
    nearest = f"  {hit['distance']:.3f}  {hit['name']}: {hit['description']}\n"
    assert answers[0] == ("/packages/4959/similar?k=3", answers[2][1])
    assert answers[0][1].startswith(nearest)
    assert answers[1][1].count("  python3-") == 3
    assert not EmbeddedServer(folder / "one").is_running
