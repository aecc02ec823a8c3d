"""Rooms import from those below them also at run time: inside functions, and by name."""

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest

import pg_hashindex

ROOT = Path(__file__).parents[1]
PACKAGE = Path(pg_hashindex.__file__).parent

pytestmark = pytest.mark.newest


def imported(module, path):
    """Yield what a module imports at any time, except for type checkers."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    unused = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in unused:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(name, package)
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("pg_hashindex."):
            yield str(node.value)


def test_no_module_imports_a_room_above_it_at_run_time():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rooms = contracts["contracts"][0]["layers"]
    above = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = module.removesuffix(".__init__")
        own = module.split(".")[1:2]
        if not own or own[0] not in rooms or own[0] == "__main__":
            continue
        for name in imported(module, path):
            other = name.split(".")[1:2]
            if name.startswith("pg_hashindex.") and other[0] in rooms[: rooms.index(own[0])]:
                above.append(f"{module} imports {name}")
    assert not above
