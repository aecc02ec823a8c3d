"""The command line, called in this process."""

from xml.etree import ElementTree

import pytest
from fixtures.report_pages import Page


@pytest.fixture
def write(on, tmp_path):
    """Write the page of an index, and read it."""

    def written(index, *options):
        path = tmp_path / "page.html"
        result = on("report", index, "--html", path, *options)
        assert result.stdout == ""
        assert result.stderr.endswith(f"wrote {path}\n")
        text = path.read_text()
        ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        return Page(text)

    return written
