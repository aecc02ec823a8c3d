"""The command line, called in this process."""

from xml.etree import ElementTree

import pytest
from fixtures.html_pages import Page


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
