"""The page of an index as a browser has it after loading."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
from click.testing import Result
from fixtures.report_pages import Page, words

from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

Run = Callable[..., Result]

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)


def loaded(path, profile):
    """Open a page; return what it is then, and what the browser's console says."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("there is no chromium on the PATH")
    done = subprocess.run(
        [program, *_OPTIONS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        # Files of its own, nowhere else.
        env={**os.environ, "HOME": str(profile)},
    )
    return done.stdout, "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


@pytest.mark.slow
def test_in_a_browser(on, connection, items, model, tmp_path):
    name = "items_idx"
    table = '"</h1><script>document.title = 1</script>"'
    connection.execute(f"ALTER TABLE items RENAME TO {table}".encode())
    index = HashIndex.create(
        connection, name, table=table, column="embedding", model="lsh", access="landmarks"
    )
    index.encode()
    on("evaluate", name, "--queries", 20, "--candidates", 20, "--save", "night")
    path = tmp_path / "page.html"
    on("report", name, "--html", path, "--set", "night", "--candidates", 20)
    dom, console = loaded(path, tmp_path / "profile")
    assert console == ""
    page, written = Page(dom), Page(path.read_text())

    assert words(page.all("title")[0]) == f"Index {name}"
    assert not page.all("script")
    assert words(page.all("h1")[0]) == f"Index {name}"
    assert page.headings() == written.headings()
    assert len(page.headings()) == 7
    # Each link leads to its section.
    targets = [link.attrib["href"] for link in page.all("a")]
    assert [words(next(page.by_id(target[1:]).iter("h2"))) for target in targets] == (
        page.headings()
    )
    figures = [
        "recall", "times", "query-times", "ones", "correlation", "list-lengths", "history",
    ]  # fmt: skip
    assert page.figures() == figures
    for key in figures:
        figure = page.by_id(key)
        assert len(list(figure.iter("svg"))) == 1
        assert page.table(key) == written.table(key)
        assert len(page.table(key)) >= 1
        # Letters are letters, which can be searched and read aloud.
        assert len([one for one in figure.iter("text") if words(one).strip()]) >= 4
    # The browser's SVG, not unknown elements: of those it would keep the case as it was written.
    assert "clipPath" in dom
    assert page.facts() == written.facts()
    assert page.facts()["codes"] == "300"
    recall = connection.execute(
        "SELECT candidates::text, recall FROM hashindex.recall_history ORDER BY candidates"
    ).fetchall()
    assert [tuple(line.values()) for line in page.table("recall")] == [
        (candidates, f"{value:.4g}") for candidates, value in recall
    ]
