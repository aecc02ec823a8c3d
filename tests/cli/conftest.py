"""Tables that commands look at, with and without our schema, and the doctor's page."""

from xml.etree import ElementTree

import numpy as np
import pytest
from fixtures.commands import fill
from fixtures.html_pages import Page

from pg_hashindex.db.connection import connect
from pg_hashindex.quality import advice


@pytest.fixture
def bare(empty_url):
    """A session in a database without our schema."""
    with connect(empty_url) as connection:
        yield connection


@pytest.fixture
def on_bare(run, empty_url):
    """Run a command on the database without our schema."""

    def invoke(*arguments, code=0):
        return run(*arguments, "--database-url", empty_url, code=code)

    return invoke


@pytest.fixture
def points():
    """600 vectors of 8 dimensions."""
    return np.random.default_rng(5).standard_normal((600, 8)).astype(np.float32)


@pytest.fixture
def docs(bare, points):
    """Rows 0 to 599, of which a tenth are in each part."""
    fill(bare, "docs", points)
    return "docs"


@pytest.fixture
def slow_machine(monkeypatch):
    """No exact search is fast enough, and no table too small to learn from."""
    monkeypatch.setattr(advice, "_FAST_MS", -1)
    monkeypatch.setattr(advice, "LEAST_ROWS", 2)


@pytest.fixture
def page_of(run, url, tmp_path):
    """Write the page of a table, and read it."""

    def written(table, column, *options, at=url):
        path = tmp_path / "page.html"
        asked = (table, column, "--queries", 10, "--html", path)
        # With --fail-under the exit code is 1, and the page is there.
        result = run("doctor", *asked, *options, "--database-url", at, code=None)
        assert f"wrote {path}\n" in result.stderr
        text = path.read_text()
        ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        return Page(text)

    return written
