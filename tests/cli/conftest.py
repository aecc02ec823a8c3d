"""The command line, called in this process."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
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
