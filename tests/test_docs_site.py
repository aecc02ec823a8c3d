"""The site of the documents has every page, every public name, and links that lead somewhere."""

import re
from pathlib import Path

import pytest
import yaml
from test_docs import script

import pg_hashindex
from pg_hashindex import hashers

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"
# Pages of the site that are made of documents of the folder above, and of the notebook.
MADE = {"changelog.md", "contributing.md", "tutorial.md"}
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(REPOSITORY.glob("*.md")), DOCS / "tutorial.ipynb"]


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for inner in entries for page in pages_of(inner)]  # type: ignore[arg-type]


def anchor(heading):
    """Return what GitHub and the site make of a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w -]", "", words.strip().lower()).replace(" ", "-")


def test_the_navigation_has_every_page_once():
    settings = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())
    listed = pages_of(settings["nav"])
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(there | MADE)


@pytest.mark.parametrize("module", [pg_hashindex, hashers], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name(module):
    page = script("docs/site/hooks.py").with_reference((DOCS / "python.md").read_text())
    described = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    # A module whose children stand by themselves, and the error that its own module describes.
    elsewhere = {"pg_hashindex.hashers", "pg_hashindex.HashIndexError"}
    public = {f"{module.__name__}.{name}" for name in module.__all__}
    assert public - elsewhere <= set(described)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, heading in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", text):
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if heading and path.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert heading in map(anchor, headings), f"{target}#{heading}"
