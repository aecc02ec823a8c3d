"""Statements of Python: long ones stand in files of sql/queries, where they read as SQL."""

import ast
import re
from pathlib import Path

from pg_hashindex.db import sql_files

ROOT = Path(__file__).parents[2]
SOURCES = [file for place in ("pg_hashindex", "cli") for file in (ROOT / place).rglob("*.py")]
KEYWORDS = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|FROM|WHERE|JOIN|SET|ORDER|LIMIT|AND)\b"
)
MOST_LINES = 3

#: Longer texts that stay: the module, the first words, and why.
STAY = {
    ("cli/demo.py", "Try next, in psql:"): "it is printed",
    ("pg_hashindex/contrib/documents/indexed.py", "WHERE i."): "it ends catalog.indexes",
    ("pg_hashindex/db/extension.py", "# PostgreSQL by the image"): "it is a Dockerfile",
    ("pg_hashindex/db/extension.py", "-- Registers"): "it is made of files, for pg_tle",
    ("pg_hashindex/db/schema.py", "CREATE OR REPLACE FUNCTION"): "it is made of the templates",
    ("pg_hashindex/quality/doctor_catalog.py", "WHERE i."): "it ends catalog.indexes",
}


def texts(file):
    """The strings of a module but for its docstrings, and the lines that each takes."""
    source = file.read_text()
    nodes = [*ast.walk(ast.parse(source))]
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in parts:
            values = getattr(node, "values", [node])
            text = "".join(str(getattr(part, "value", "")) for part in values).strip()
            whole = '"""' in source.splitlines()[node.lineno - 1]
            yield text, (text.count("\n") if whole else node.end_lineno - node.lineno) + 1


def test_a_long_statement_is_in_a_file():
    left = [
        (str(file.relative_to(ROOT)), text)
        for file in SOURCES
        for text, lines in texts(file)
        if lines > MOST_LINES and len(KEYWORDS.findall(text)) > 1
    ]
    for place, start in STAY:
        (one,) = [found for found in left if found[0] == place and found[1].startswith(start)]
        left.remove(one)
    assert left == []


def test_each_query_has_a_name_and_a_comment_and_is_used():
    used = "".join(file.read_text() for file in SOURCES)
    for file in (sql_files.folder("sql") / "queries").glob("*.sql"):
        names = re.findall(r"^-- name: (.*)", file.read_text(), re.MULTILINE)
        assert names == [*sql_files._queries(file.stem)], file
        # Parts of others.
        for name in {*names} - {"strangers", "strong", "read", "callers"}:
            assert f'query("{file.stem}.{name}")' in used, (file, name)
