"""The doctor's findings, and the sentence that each page opens with."""

import pytest
from fixtures.report_pages import QUICK, Page, create, words

from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

SECTIONS = ["What to do", "Recall and time", "Memory", "Filters", "The table"]


@pytest.fixture
def vectors_table(connection):
    """A table whose names are no HTML, with an HNSW index."""
    connection.execute(
        'CREATE TABLE "</h1><script>" (id bigint PRIMARY KEY, part integer, v vector(8));'
        'INSERT INTO "</h1><script>" SELECT n, n % 4, array_agg(random())::vector '
        "FROM generate_series(1, 3000) n, generate_series(1, 8) d GROUP BY n;"
        'CREATE INDEX "<b>&" ON "</h1><script>" USING hnsw (v vector_l2_ops)'
    )
    return '"</h1><script>"'


@pytest.fixture
def page_of(on, tmp_path):
    def made(table, *options):
        path = tmp_path / "page.html"
        asked = ("--table", table, "--column", "v", "--queries", 10, "--html", path)
        # With --fail-under the exit code is 1, and the page is there.
        on("doctor", *asked, *options, code=None)
        return Page(path.read_text())

    return made


def verdict(page):
    (found,) = (p for p in page.all("p") if "verdict" in p.get("class", ""))
    return found.get("class").split()[1], words(found)


def test_a_table(page_of, vectors_table):
    page = page_of(vectors_table, "--filter", "part = 1", "--filter", "part = 2 AND id < 99")
    assert page.headings() == SECTIONS
    assert not {one.tag for one in page.root.iter()} & {"script", "b", "img", "link"}
    assert words(page.all("h1")[0]) == 'Vectors of "</h1><script>"'
    status, said = verdict(page)
    # What HNSW finds hangs on chance.
    assert status == ("ok" if said.startswith("Leave it") else "warning")
    assert said in words(page.by_id("advice"))
    shown = page.table("indexes")
    assert {row["index"] for row in shown} == {'"<b>&"'}
    assert all(0 <= float(row["recall@10"]) <= 1 for row in shown)
    assert [row["what"] for row in page.table("sizes")] == [
        "rows", "out of line (TOAST)", '"<b>&"', "shared_buffers", "effective_cache_size",
    ]  # fmt: skip
    filters = page.table("filters")
    assert {row["filter"] for row in filters} == {"part = 1", "part = 2 AND id < 99"}
    assert [row["recall"] for row in filters if row["search"] == "exact"] == ["1", "1"]
    for link in page.all("a"):
        assert page.by_id(link.attrib["href"][1:])


def test_a_table_without_an_index(page_of, vectors_table, connection):
    connection.execute('DROP INDEX "<b>&"')
    page = page_of(vectors_table)
    assert "No index of vectors was measured." in words(page.by_id("search"))
    assert "None was given." in words(page.by_id("filters"))


def test_advice_comes_first(page_of, vectors_table, connection):
    connection.execute(
        'DROP INDEX "<b>&"; CREATE INDEX coarse ON "</h1><script>" '
        "USING ivfflat (v vector_l2_ops) WITH (lists = 100)"
    )
    page = page_of(vectors_table, "--fail-under", "1")
    status, said = verdict(page)
    assert status == "warning"
    assert "ivfflat.probes" in words(page.by_id("advice"))
    assert said in words(page.by_id("advice"))


def test_a_place_that_cannot_be_written(on, vectors_table, tmp_path):
    result = on(
        "doctor", "--table", vectors_table, "--column", "v", "--html", tmp_path / "no" / "x.html",
        code=3,
    )  # fmt: skip
    assert "there is no folder" in result.stderr


@pytest.fixture
def write(on, tmp_path):
    def written(*options):
        on("report", "i", "--html", tmp_path / "page.html", *options)
        return Page((tmp_path / "page.html").read_text())

    return written


def test_the_report_opens_with_what_to_do(write, connection, items, model):
    create(connection)
    status, said = verdict(write(*QUICK))
    assert status in {"warning", "broken"}
    assert "pg-hashindex index encode i" in said
    index = HashIndex.open(connection, "i")
    index.encode()
    index.configure(candidates=300)
    status, said = verdict(write(*QUICK))
    assert status == "ok"
    assert said.startswith("All is well: searches find 100.0% of the 10 nearest rows in ")
    index.configure(candidates=10)
    status, said = verdict(write(*QUICK))
    assert status == "warning"
    assert "look for other settings: pg-hashindex tune i --recall 0.95" in said
    connection.execute("DELETE FROM hashindex.i_codes WHERE id < 20")
    status, said = verdict(write(*QUICK))
    assert status == "warning"
    assert "19 of 300 rows" in said
    assert "pg-hashindex index encode i" in said
