"""What the documents say works: their examples run, and what is generated is current."""

import importlib.util
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from pg_hashindex.cli import main

from pg_hashindex.database import connect
from pg_hashindex.demo import DATABASE, create_database
from pg_hashindex.server import EmbeddedServer

REPOSITORY = Path(__file__).resolve().parent.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPOSITORY / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_of_the_committed_runs() -> None:
    tables = script("benchmarks/readme_tables.py")
    pages = [page.read_text() for page in tables.PAGES]
    for name in tables.TABLES:
        assert any(f"<!-- {name} -->" in text for text in pages), name
    for text in pages:
        assert text == tables.with_tables(text), "run: python benchmarks/readme_tables.py"


def test_the_page_of_commands_is_current() -> None:
    make_cli = script("docs/make_cli.py")
    assert make_cli.TARGET.read_text() == make_cli.text(), "run: python docs/make_cli.py"


@pytest.mark.slow
@pytest.mark.newest
def test_the_five_minutes_of_the_readme(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create_database(server)
    url = server.uri(DATABASE)
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)
    shell = [block for block in blocks("README.md", "sh") if "model train" in block]
    assert len(shell) == 4
    if find_spec("torch") is None:
        shell = [block for block in shell if "--method bgdh" not in block]
    for line in "".join(shell).replace("\\\n", "").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "pg-hashindex"
        if "bgdh" in arguments:
            # That it runs is all that is looked at here.
            arguments += ["--param", "pretrain=5", "--param", "rounds=2"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"
    with connect(url) as connection:
        pages = ("README.md", "docs/sql.md", "docs/maintenance.md")
        for block in [block for page in pages for block in blocks(page, "sql")]:
            for statement in block.split(";\n"):
                if statement.strip():
                    rows = connection.execute(statement.encode()).fetchall()
                    assert rows, f"no rows: {statement}"
    exec(compile(blocks("README.md", "python")[0], "README.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 5
