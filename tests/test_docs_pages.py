"""Every code block of the documents runs: those of a page in order, in a database of its own."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import psycopg
import pytest
from fixtures.databases import run_as_admin
from fixtures.pages import REPOSITORY, RUN, SHOWN, Reader, blocks_of, is_run, lines_of

from pg_hashindex.server.demo import DATABASE, create_database

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# A page with this line goes on where the commands of docs/start.md end.
GOES_ON = "<!-- continues Start -->"


# A page with this line is run by tests/citus.
ON_CITUS = "<!-- runs on a Citus cluster -->"


@pytest.fixture(scope="module")
def demo_template(server):
    """The database of the demo, with 2,000 of its packages and those that a page names."""
    create_database(server)
    named = re.findall(r"'([^'\n]+)'", "".join(page.read_text() for page in PAGES))
    with psycopg.connect(server.uri(DATABASE), autocommit=True) as connection:
        connection.execute(
            "DELETE FROM packages WHERE id > 2000 AND NOT name = ANY (%s)", [list(set(named))]
        )
        connection.execute("VACUUM FULL ANALYZE packages")
    # A worker that takes tests of this file again makes it again.
    run_as_admin(server, "DROP DATABASE IF EXISTS template_demo")
    run_as_admin(server, f"ALTER DATABASE {DATABASE} RENAME TO template_demo")
    return "template_demo"


@pytest.fixture(scope="module")
def after_template(server, demo_template):
    """The same, once the commands of docs/start.md were given."""
    run_as_admin(server, "DROP DATABASE IF EXISTS template_after")
    run_as_admin(server, f"CREATE DATABASE template_after TEMPLATE {demo_template}")
    commands = next(
        block
        for block in blocks_of(REPOSITORY / "docs" / "start.md")
        if block.language == "sh" and "index create packages_idx" in block.code
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PG_HASHINDEX_DATABASE_URL", server.uri("template_after"))
        Reader(server.uri("template_after")).follow(commands)
    return "template_after"


@pytest.fixture
def reader(request, monkeypatch, tmp_path, make_database, page):
    """Somebody in an empty folder, with the database that the page takes for granted."""
    template = "after_template" if GOES_ON in page.read_text() else "demo_template"
    url = make_database(request.getfixturevalue(template))
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)
    monkeypatch.setattr("pg_hashindex.cli.quickstart._QUERIES", 20)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    reader = Reader(url)
    yield reader
    reader.close()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def runs(page):
    return ON_CITUS not in page.read_text() and any(
        block.title is None
        and (block.language in RUN[1:] or any(map(is_run, lines_of(block.code))))
        for block in blocks_of(page)
        if block.language in RUN
    )


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("page", [*filter(runs, PAGES)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(reader, page, capsys):
    for block in blocks_of(page):
        if "--method bgdh" in block.code and find_spec("torch") is None:
            continue
        reader.follow(block)
    if page.name == "README.md":
        assert len(capsys.readouterr().out.splitlines()) == 5  # the hits of its Python


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("page", [REPOSITORY / "docs" / "drivers.md"], ids=["drivers"])
def test_the_recipe_for_node_runs(page, tmp_path):
    def run(*command):
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    (recipe,) = (block.code for block in blocks_of(page) if block.language == "js")
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    try:
        installed = run("npm", "install", "pg")
    except subprocess.TimeoutExpired:
        pytest.skip("npm takes too long to install pg")
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install pg: {installed.stderr}")
    (tmp_path / "search.mjs").write_text(recipe)
    done = run("node", "search.mjs")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_escapes(page):
    """A fence that is indented, or in another language, would not be run."""
    blocks = blocks_of(page)
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(blocks), "a fence is indented, or not closed"
    for block in blocks:
        assert block.language in (*RUN, *SHOWN), block.where
        assert block.title is None or block.language, f"{block.where}: a file has a language"
