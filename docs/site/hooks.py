"""Parts of the site beside its pages: documents from above, the notebook, methods, no network.

README.md, CHANGELOG.md and CONTRIBUTING.md stay where people look for them. The last two are pages
of the site all the same; links to any of them, and from them, are turned round here, so that they
work on both sides.
"""

import json
import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pg_hashindex import hashers

log = logging.getLogger("mkdocs.hooks.pg_hashindex")

# Documents above docs/, and the pages that stand for them.
ABOVE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_REFERENCE = re.compile(r"^\| for \| names .*\n\| --- \| --- \|\n((?:\|.*\n)+)", re.MULTILINE)
_INHERITED = "\n    options:\n      inherited_members: true"
_OPTIONS = {"HashIndex": _INHERITED, "AsyncHashIndex": _INHERITED}
# Tags that make a browser fetch something by itself. Links that a reader follows may stay.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//[^\" >]+"
    r"|<link\b(?=[^>]*\brel=\"?(?:stylesheet|preload|preconnect|icon))"
    r"[^>]*\bhref=\"?(?:https?:)?//[^\" >]+"
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents from above as pages."""
    folder = Path(config.docs_dir).parent
    notebook = json.loads((folder / "docs" / "tutorial.ipynb").read_text())
    text = "\n\n".join(map(_cell, notebook["cells"]))
    files.append(File.generated(config, "tutorial.md", content=text))
    for name, page in ABOVE.items():
        if page != "index.md":
            text = _turn((folder / name).read_text(), "..")
            files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ to the pages of the site, and write the reference."""
    return with_reference(_turn(markdown, ""))


def with_reference(markdown: str) -> str:
    """Turn the table of the reference into docstrings, and add the classes of all methods."""
    return _REFERENCE.sub(
        lambda table: "\n\n".join(map(_docstrings, table[1].splitlines())), markdown
    )


def _docstrings(row: str) -> str:
    """Turn a row of the reference into a heading, and what mkdocstrings reads, for each name."""
    _, title, names, _ = row.split("|")
    options = {name: _OPTIONS.get(name, "") for name in re.findall("`(.+?)`", names)}
    if "hashers.HASHERS" in options:
        classes = (f"hashers.{cls.__name__}" for cls in hashers.HASHERS.values())
        options |= dict.fromkeys(classes, "\n    options:\n      members: false")
    texts = (f"::: pg_hashindex.{name}{own}" for name, own in options.items())
    return "\n\n".join((f"### {title.strip()}", *texts))


def on_post_build(*, config: MkDocsConfig) -> None:
    """Warn, which --strict makes an error, where a page would load something from elsewhere."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        for found in _FETCHED.findall(path.read_text()):
            log.warning("%s loads from the network: %s", path.name, found)


def _cell(cell: dict[str, Any]) -> str:
    """Write a cell of a notebook as Markdown."""
    source = "".join(cell["source"])
    return source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"


def _turn(text: str, folder: str) -> str:
    """Rewrite the links of a document that lies in `folder`, as seen from docs/."""

    def turned(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        seen = posixpath.normpath(posixpath.join(folder, target))
        if seen.startswith("../docs/"):
            seen = seen.removeprefix("../docs/")
        elif seen == "tutorial.ipynb":
            seen = "tutorial.md"
        elif seen.removeprefix("../") in ABOVE and seen.startswith("../"):
            seen = ABOVE[seen.removeprefix("../")]
        return f"]({seen}{anchor})"

    return _LINK.sub(turned, text)
