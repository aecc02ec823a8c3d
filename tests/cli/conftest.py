"""The command line, called in this process."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from fixtures.report_pages import Page
from pg_hashindex.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("PG_HASHINDEX_DATABASE_URL", raising=False)

    def invoke(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*map(str, arguments)])
        assert result.exit_code == code, result.output
        # click hands its own errors over by SystemExit: anything else was a traceback.
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return invoke


@pytest.fixture
def on(run: Run, url: str) -> Run:
    """Run a command on the test's database."""

    def invoke(*arguments: object, code: int = 0) -> Result:
        return run(*arguments, "--database-url", url, code=code)

    return invoke


@pytest.fixture
def write(on: Run, tmp_path: Path) -> Callable[..., Page]:
    """Write the page of an index, and read it."""

    def written(index: str, *options: object) -> Page:
        path = tmp_path / "page.html"
        result = on("report", index, "--html", path, *options)
        assert result.stdout == ""
        assert result.stderr.endswith(f"wrote {path}\n")
        text = path.read_text()
        ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        return Page(text)

    return written
