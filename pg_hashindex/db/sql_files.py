"""The files of ``sql/``: statements that the schema is made of, and queries that run without it."""

import importlib.resources
from functools import cache
from pathlib import Path


def folder(name: str) -> Path:
    """Return ``sql/`` or ``alembic/``, which a checkout has beside the package and not in it."""
    package = Path(str(importlib.resources.files("pg_hashindex")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


@cache
def query(name: str) -> str:
    """Return a query of ``sql/queries``: functions contain it too, at its name in brackets."""
    return (folder("sql") / "queries" / f"{name}.sql").read_text("utf-8").strip()


def text(file: Path) -> str:
    """Return a file of ``sql/``, with the queries that it names in brackets."""
    found = file.read_text("utf-8")
    for name in ("strangers", "untrusted_owners"):
        found = found.replace(f"{{{name}}}", query(name))
    return found
