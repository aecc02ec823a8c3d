"""Every code block of the documents runs: those of a page in order, in a database of its own."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from itertools import permutations

import pytest
from fixtures.pages import PAGES, REPOSITORY, RUN, SHOWN, Block, blocks_of, runs

#: `make test` runs these, and `make test-documents` all the others.
FIRST = ("README", "start")


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    "page",
    [
        page if page.stem in FIRST else pytest.param(page, marks=pytest.mark.documents)
        for page in filter(runs, PAGES)
    ],
    ids=lambda page: page.stem,
)
def test_the_blocks_of_a_page_run(reader, page, capsys):
    for block in blocks_of(page):
        if "--method bgdh" in block.code and find_spec("torch") is None:
            if page.stem == "labels":
                pytest.skip("what follows needs the model, which needs torch")
            continue
        reader.follow(block)
    if page.name == "README.md":
        assert len(capsys.readouterr().out.splitlines()) == 5  # the hits of its Python


LEARNED = {
    "README": REPOSITORY / "README.md",
    "start": REPOSITORY / "docs" / "start.md",
    "tutorial": REPOSITORY / "docs" / "tutorial.ipynb",
}


def code_of(notebook):
    """Return the code of a notebook as one text."""
    cells = json.loads(notebook.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.documents
@pytest.mark.parametrize("page", [LEARNED["README"]], ids=["pasted"])
@pytest.mark.parametrize("order", [*permutations(LEARNED)], ids="-".join)
def test_the_first_pages_can_be_pasted_in_any_order(reader, order):
    for name in order:
        page = LEARNED[name]
        if name == "tutorial":
            reader.follow(Block(name, "python", None, code_of(page)))
            continue
        for block in blocks_of(page):
            reader.follow(block)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.documents
@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("page", [REPOSITORY / "docs" / "python.md"], ids=["python"])
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
