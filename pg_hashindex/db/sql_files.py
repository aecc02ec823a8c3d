"""The files of ``sql/``: statements that the schema is made of, and queries that run without it."""

import importlib.resources
import re
from functools import cache
from pathlib import Path


def folder(name: str) -> Path:
    """Return ``sql/`` or ``alembic/``, which a checkout has beside the package and not in it."""
    package = Path(str(importlib.resources.files("pg_hashindex")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


@cache
def _queries(file: str) -> dict[str, str]:
    """Return the queries of a file by their names, without the comments that are above each."""
    text = (folder("sql") / "queries" / f"{file}.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n(?:--.*\n)+", text, flags=re.MULTILINE)
    return {name: query.strip() for name, query in zip(parts[1::2], parts[2::2], strict=True)}


def query(name: str) -> str:
    """Return a query of ``sql/queries``, by ``"file.name"``."""
    file, _, own = name.partition(".")
    return _fill(_queries(file)[own])


def _fill(text: str) -> str:
    """Put the queries of ``owners.sql`` in the places of their names in brackets.

    ``{strong ROLE}`` is the one condition that has a role in its place.
    """
    for name in ("strangers", "other_owners", "read_with", "read", "callers"):
        text = text.replace(f"{{{name}}}", _queries("owners")[name])
    strong = _queries("owners")["strong"]
    return re.sub(r"\{strong ([^{}]+)\}", lambda role: strong.replace("{role}", role[1]), text)


def text(file: Path) -> str:
    """Return a file of ``sql/``, with the queries of ``owners.sql`` that it names in brackets."""
    return _fill(file.read_text("utf-8"))
