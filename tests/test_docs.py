"""The generated parts of the documents are current."""

import importlib.util
import json
import re
import tomllib
from operator import sub, truediv
from pathlib import Path

import pytest

from pg_hashindex.quality import advice, sizes

REPOSITORY = Path(__file__).resolve().parent.parent


def script(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPOSITORY / path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # As a script it finds what lies beside it.
        patch.syspath_prepend(str((REPOSITORY / path).parent))
        spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_of_the_committed_runs():
    tables = script("benchmarks/tables.py")
    pages = [page.read_text() for page in tables.PAGES]
    for name in tables.TABLES:
        assert any(f"<!-- {name} -->" in text for text in pages), name
    for text in pages:
        assert text == tables.with_tables(text), "run: python benchmarks/tables.py"


#: The page of commands is generated.
QUOTING = [
    p for p in (*REPOSITORY.glob("docs/**/*.md"), REPOSITORY / "README.md") if p.stem != "cli"
]
NUMBER = r"\d[\d,]*(?:\.\d+)?|\.\d+"
UNITS = (
    r"(?:ms|us|s|(?:milli|micro|CPU )?seconds|minutes|hours|[kMG]B|times|(?:\w+ )?(?:a|per) second)"
)
#: Times, sizes, ratios and rates; scores, without the recalls that searches are to reach.
SCORE = r"(?<![\w.=-])0?\.(?!9[58]\b)\d\d+(?![\w.])"
FIGURE = re.compile(rf"(?<![\w.])(?:{NUMBER})(?: to (?:{NUMBER}))? {UNITS}\b|{SCORE}")


def prose(page):
    """Return a page without generated tables, code and the names of files, on one line."""
    text = re.sub(r"```.*?```|<!-- ([\w-]+) -->\n.*?<!-- end -->", "", page.read_text(), flags=re.S)
    return re.sub(r"\s+", " ", text)


def measured(source):
    """Return a value of a committed file, or the ratio or the difference of two."""
    for sign, compute in ((" / ", truediv), (" - ", sub)):
        if sign in source:
            return compute(*map(measured, source.split(sign)))
    if source == "1e6":
        return 1e6
    file, *keys = source.split("/")
    path = REPOSITORY / "benchmarks/results" / f"{file.replace('.', '/')}.json"
    value = json.loads(path.read_text())
    for key in keys:
        if isinstance(value, list):
            wanted = [pair.split("=") for pair in key.split(",")]
            (value,) = (one for one in value if all(str(one[k]) == word for k, word in wanted))
        else:
            value = value[key]
    return value


def test_prose_quotes_no_figure_that_no_run_has():
    quoted = tomllib.loads((REPOSITORY / "benchmarks/quoted.toml").read_text())
    for phrase, sources in quoted["measured"].items():
        numbers = [match[0].replace(",", "") for match in re.finditer(NUMBER, phrase)]
        for number, source in zip(numbers, sources, strict=True):
            if source != "setting":
                digits = len(number.partition(".")[2])
                found = f"{measured(source):.{digits}f}"
                assert float(found) == float(number), (phrase, source, found)
    texts = {page: prose(page) for page in QUOTING}
    unknown = set()
    for phrase in (*quoted["settings"], *quoted["measured"]):
        assert any(phrase in text for text in texts.values()), f"no page has: {phrase}"
        texts = {page: text.replace(phrase, "") for page, text in texts.items()}
    for page, text in texts.items():
        unknown |= {f"{page.stem}: {found[0]}" for found in FIGURE.finditer(text)}
    assert not unknown, "write the sources into benchmarks/quoted.toml"


def test_the_page_of_the_decision_has_the_limits_of_the_code():
    page = re.sub(r"\s+", " ", (REPOSITORY / "docs" / "doctor.md").read_text())
    least, most = advice._TENANT_IN_MEMORY
    for limit in (
        f"it takes {advice._FAST_MS:g} ms or less",
        f"fewer than {advice._TENANT_ON_DISK:,} rows; fewer than {least:,} if the table fits",
        f"up to {most:,} rows",
        f"more than {advice._MANY_WRITES:g} rows are written a second",
        f"at most {advice._SOME_WRITES:g} rows are written a second",
        f"no more than {sizes.HNSW_DIMENSIONS['halfvec']:,} dimensions",
    ):
        assert limit in page


def test_files_that_contributors_are_sent_to_exist():
    for page in ("CONTRIBUTING.md", "docs/architecture.md"):
        named = re.findall(
            r"(?<![\w/.])(?:pg_hashindex|sql|cli|tests|docs|benchmarks|alembic|examples)/[\w./-]*\w",
            (REPOSITORY / page).read_text(),
        )
        for path in named:
            # An example of a new file, or a place for a name.
            if "median" not in path and not re.search("[A-Z]{4}", path):
                assert (REPOSITORY / path).exists(), f"{page}: {path}"


def test_no_text_installs_a_package_that_is_not_published():
    for folder in ("docs", "examples", "pg_hashindex", "cli"):
        for file in (REPOSITORY / folder).rglob("*"):
            if file.suffix in (".md", ".py", ".ipynb", ".html"):
                assert not re.search("pip install '?pg_hashindex", file.read_text()), file
    assert "pip install pg_hashindex" not in (REPOSITORY / "README.md").read_text()


def test_the_pictures_of_memory_are_those_of_the_committed_runs():
    pictures = script("docs/make_pictures.py")
    for whole in pictures.memory_report.measured():
        drawn = (pictures.TARGET / f"memory-{whole['data']}.svg").read_text()
        assert drawn == pictures.memory(whole), "run: python docs/make_pictures.py"


def test_the_figures_of_the_papers_are_drawn_and_shown():
    common = script("benchmarks/common.py")
    pictured = script("docs/make_pictures.py").PICTURED
    shown = (REPOSITORY / "docs" / "papers.md").read_text()
    measured = common.measured_figures()
    assert measured
    for figure in (*measured, *pictured):
        assert f"](pictures/paper-{figure}.png)" in shown
        assert (REPOSITORY / "docs" / "pictures" / f"paper-{figure}.png").exists()
    for figure, found in measured.items():
        now = common.FIGURES[figure]
        assert found["data"] == now.data
        # The same options, in any order.
        assert sorted(found["command"].split()) == sorted(now.command.split()), (
            f"run: pg-hashindex bench paper {now.paper} --figure {figure}"
        )


def test_each_figure_of_a_paper_is_named_on_the_page():
    figures = script("benchmarks/common.py").FIGURES
    page = (REPOSITORY / "docs" / "papers.md").read_text()
    for name, figure in figures.items():
        assert f"`{name}`" in page
        assert f"bench paper {figure.paper}" in page


def test_the_page_of_commands_is_current():
    make_cli = script("docs/make_cli.py")
    assert make_cli.TARGET.read_text() == make_cli.text(), "run: python docs/make_cli.py"


def test_the_schema_of_the_doctor_is_current():
    make_schema = script("docs/make_schema.py")
    assert make_schema.TARGET.read_text() == make_schema.text(), "run: python docs/make_schema.py"
