"""The doctor's page: of a table, and of the indexes of pg_hashindex on it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fixtures.html_pages import Page, words
from fixtures.indexes import begin_lists
from fixtures.recall import brute_force_recall

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.operations.page import look, save_page
from pg_hashindex.quality import queries
from pg_hashindex.quality.doctor import diagnose

pytestmark = pytest.mark.newest

SECTIONS = ["What to do", "Recall and time", "Memory", "Filters", "The table"]
OF_INDEX = [*SECTIONS[:4], "Index i", SECTIONS[4]]


def create(connection, **options):
    made = {"table": "items", "column": "embedding", "model": "lsh", "candidates": 200} | options
    return begin_lists(connection, "i", **made)


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


def test_a_table(page_of, vectors_table):
    page = page_of(vectors_table, "v", "--filter", "part = 1", "--filter", "part = 2 AND id < 99")
    assert page.headings() == SECTIONS
    assert not {one.tag for one in page.root.iter()} & {"script", "b", "img", "link"}
    assert words(page.all("h1")[0]) == 'Vectors of "</h1><script>"'
    status, said = page.verdict()
    # The recall of HNSW is random.
    assert status == ("ok" if said.startswith('Keep "<b>&": ') else "warning")
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


def test_a_table_without_an_index(page_of, vectors_table, connection):
    connection.execute('DROP INDEX "<b>&"; DROP SCHEMA hashindex CASCADE')
    page = page_of(vectors_table, "v")
    assert "No index of vectors was measured." in words(page.by_id("search"))
    assert "None was given." in words(page.by_id("filters"))
    assert "pg_hashindex are not shown" not in words(page.by_id("advice"))


def test_advice_comes_first(page_of, vectors_table, connection):
    connection.execute(
        'DROP INDEX "<b>&"; CREATE INDEX coarse ON "</h1><script>" '
        "USING ivfflat (v vector_l2_ops) WITH (lists = 100)"
    )
    page = page_of(vectors_table, "v", "--fail-under", "1")
    status, said = page.verdict()
    assert status == "warning"
    assert "ivfflat.probes" in words(page.by_id("advice"))
    assert said in words(page.by_id("advice"))


def test_places_that_cannot_be_written(on, vectors_table, tmp_path):
    for path, message in (
        (tmp_path / "no" / "x.html", "there is no folder"),
        (tmp_path, "it is not a plain file"),
        ("/dev/null", "it is not a plain file"),
    ):
        result = on("doctor", vectors_table, "v", "--html", path, code=3)
        assert message in result.stderr


def test_a_failed_write_keeps_the_file(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before")
    link = tmp_path / "link.html"
    link.symlink_to(path)
    # A link is replaced: in a folder of others it could lead to any file of the user's.
    save_page("first", link)
    assert (path.read_text(), link.read_text(), link.is_symlink()) == ("before", "first", False)

    def full(self, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            save_page("second", path)
    assert path.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_numbers_of_an_index_are_those_of_the_database(
    on, page_of, connection, items, model, vectors
):
    index = create(connection)
    index.encode()
    connection.execute("CREATE INDEX graph ON items USING hnsw (embedding vector_l2_ops)")
    for _ in range(2):
        on("evaluate", "i", "--candidates", 25, "--queries", 20, "--save")
    numbers = "SELECT pg_snapshot_xmax(pg_current_snapshot())"
    before = connection.execute(numbers).fetchone()
    page = page_of("items", "embedding", "--k", 5)
    # Whoever writes takes a number.
    assert connection.execute(numbers).fetchone() == before
    assert page.headings() == OF_INDEX

    shown = page.table("indexes")
    assert {row["index"] for row in shown} == {"graph", "i"}
    ours = [row for row in shown if row["index"] == "i"]
    assert [row["setting"] for row in ours] == [
        "50 candidates", "100 candidates", "200 candidates (now)", "400 candidates",
        "800 candidates",
    ]  # fmt: skip
    rows = [int(query.row_id or 0) - 1 for query in queries.draw(index, 10)]
    for row in ours:
        count = int(row["setting"].split()[0])
        assert float(row["recall@5"]) in brute_force_recall(model, vectors, 5, count, rows)
        assert 0 < float(row["p50 ms"]) <= float(row["p95 ms"])
    assert page.key_figures()["i"][0] == f"{float(ours[2]['recall@5']):.3f}"

    codes = connection.execute(
        "SELECT 'set_' || id || '_codes' FROM hashindex.index_set"
    ).fetchone()
    ones = connection.execute(
        f"SELECT avg(get_bit(code, b)) FROM hashindex.{codes[0]}, generate_series(0, 11) b "  # type: ignore[index]
        "GROUP BY b ORDER BY b".encode()
    ).fetchall()
    assert [row["share of ones"] for row in page.table("ones-1")] == [
        f"{float(share):.4g}" for (share,) in ones
    ]
    saved = connection.execute(
        "SELECT seed::text, candidates::text, recall FROM hashindex.recall_history ORDER BY id DESC"
    ).fetchall()
    assert len(saved) == 4
    assert [(row["seed"], row["candidates"], row["recall"]) for row in page.table("history-1")] == [
        (*row[:2], f"{row[2]:.4g}") for row in saved
    ]
    checked = operations.check(index).findings
    assert [(row["check"], row["status"]) for row in page.table("index-1")] == [
        (finding.check, finding.status) for finding in checked
    ]


def test_the_page_opens_with_what_to_do(page_of, connection, items, model):
    index = create(connection)
    status, said = page_of("items", "embedding").verdict()
    assert status in {"warning", "broken"}
    assert "pg-hashindex index encode i" in said
    index.encode()
    index.configure(candidates=300)
    status, said = page_of("items", "embedding").verdict()
    assert status == "ok"
    assert said.startswith("Keep i: its recall is 100.0%, and 0.95 is wanted; ")
    index.configure(candidates=10)
    status, said = page_of("items", "embedding").verdict()
    assert status == "warning"
    assert "and 0.95 is wanted: tune it" in said
    tune = "pg-hashindex tune i --recall 0.95 --apply"
    assert tune in words(page_of("items", "embedding").by_id("advice"))
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id < 20")
    page = page_of("items", "embedding")
    status, said = page.verdict()
    assert status == "warning"
    assert "19 of 300 rows" in said
    assert said in words(page.by_id("advice"))


def test_each_index_runs_the_queries_of_a_log(page_of, connection, items, model, tmp_path):
    create(connection).encode()
    np.save(tmp_path / "log.npy", np.eye(8, dtype=np.float32))
    for log in ("SELECT embedding FROM items WHERE id < 4", str(tmp_path / "log.npy")):
        page = page_of("items", "embedding", "--queries-from", log)
        assert [row["index"] for row in page.table("indexes")] == ["i"] * 5


def no_codes(connection):
    create(connection)


def no_landmarks(connection):
    create(connection, access="lists")


def by_cosine(connection):
    create(connection, metric="cosine").encode()


@pytest.mark.parametrize(
    "kind",
    [no_codes, no_landmarks, by_cosine],
    ids=lambda kind: kind.__name__,
)
def test_of_every_kind_of_index(page_of, connection, items, model, kind):
    kind(connection)
    page = page_of("items", "embedding")
    assert page.headings() == OF_INDEX
    assert page.figures() == [
        "indexes",
        "sizes",
        *["ones-1"] * (not kind.__name__.startswith("no")),
    ]
    assert "No recall is saved yet" in words(page.by_id("index-1"))
    assert "Not known" not in words(page.all("body")[0])


def test_what_a_role_may_not_read_is_left_out(page_of, connection, items, model, as_role, url):
    create(connection).encode()
    as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    there = f"{url}&options=-c%20role%3Dreader"
    page = page_of("items", "embedding", at=there)
    assert "Not known: " in words(page.by_id("index-1"))
    connection.execute("REVOKE USAGE ON SCHEMA hashindex FROM PUBLIC")
    page = page_of("items", "embedding", at=there)
    assert page.headings() == SECTIONS
    assert "Indexes of pg_hashindex are not shown: " in words(page.by_id("advice"))


def test_nothing_comes_from_elsewhere(page_of, connection, items, model, url, tmp_path):
    """Also in a read-only session."""
    create(connection).encode()
    reading = url + "&options=-c%20default_transaction_read_only%3Don"
    page = page_of("items", "embedding", at=reading)
    text = (tmp_path / "page.html").read_text()
    assert page.headings() == OF_INDEX
    for sign in ("http:", "https:", "//", "@import", "<script", "<link", "<!--"):
        assert sign not in text, sign
    for one in page.root.iter():
        for name, value in one.attrib.items():
            if name in ("src", "href"):
                assert value.startswith(("#", "data:image/png;base64,"))
            assert "url(" not in value or "url(#" in value
    # Every anchor that is referred to exists, once.
    ids = [one.attrib["id"] for one in page.root.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    for one in page.root.iter():
        if one.get("href", "").startswith("#"):
            assert one.attrib["href"][1:] in ids
        for key in one.get("aria-labelledby", "").split():
            assert words(page.by_id(key))
    for figure in page.all("figure"):
        assert [len(list(figure.iter(tag))) for tag in ("svg", "details", "table")] == [1, 1, 1]
        # HTML has a caption first or last.
        assert [one.tag for one in figure] == ["h3", "svg", "figcaption"]


@pytest.mark.parametrize("options", [{"model": "none"}, {"model": "lsh"}])
def test_an_index_that_pgvector_keeps(page_of, connection, items, model, options):
    """Its codes, if any, lie in an index of pgvector's, and their bits are not counted."""
    HashIndex.create(connection, "i", table="items", column="embedding", **options)
    page = page_of("items", "embedding")
    assert page.headings() == OF_INDEX
    assert "Not known" not in words(page.by_id("index-1"))


def test_the_session_is_left_as_it_was(connection, items, model, url):
    """A pooler lends it to somebody else next, who may want to write."""
    create(connection).encode()
    asked = (
        "SELECT name, setting FROM pg_settings "
        "WHERE source = 'session' AND name NOT LIKE 'transaction%' ORDER BY name"
    )
    with connect(url) as session, connect(url) as plain:
        found = look(session, diagnose(session, "items", "embedding", sample=5))
        assert [one.index.name for one in found] == ["i"]  # type: ignore[union-attr]
        assert session.execute(asked).fetchall() == plain.execute(asked).fetchall()


def test_text_of_the_database_is_no_html(page_of, connection, items, lsh_model):
    store.save(connection, Model("<b>&$x_$ 索引", "lsh", 8, lsh_model.layers))
    connection.execute(
        'ALTER TABLE items RENAME TO "</td><img src=x>";'
        'ALTER TABLE "</td><img src=x>" RENAME embedding TO "%s<style>";'
        'ALTER TABLE "</td><img src=x>" RENAME id TO "http://a.example/?a&b"'
    )
    create(
        connection, table='"</td><img src=x>"', column="%s<style>", model="<b>&$x_$ 索引"
    ).encode()
    connection.execute(
        "INSERT INTO hashindex.recall_history (index_name, seed, model, access,"
        " candidates, k, queries, recall, p50_ms, p95_ms) "
        "SELECT 'i', 0, m, 'scan', 9, 10, 3, 0.5, 1, 2 "
        "FROM unnest(ARRAY['a', '<i>$x_$</i>\u202e']) m"
    )
    page = page_of('"</td><img src=x>"', "%s<style>")
    tags = {one.tag for one in page.root.iter()}
    assert not tags & {"script", "img", "b", "i", "link", "iframe", "object"}
    assert len(page.all("style")) == 1
    assert words(page.all("h1")[0]) == 'Vectors of "</td><img src=x>"'
    assert "codes of <b>&$x_$ 索引:1 in lists without landmarks, 12 bits" in words(
        page.by_id("index-1")
    )
    assert [row["model"] for row in page.table("history-1")] == ["<i>$x_$</i>\ufffd", "a"]
    # In the figure too, where a formula would be drawn else.
    drawn = [words(one) for one in page.by_id("history-1").iter("text")]
    assert "3 rows of seed 0, 9 candidates, k 10" in drawn
    assert "<i>$x_$</i> " in drawn


_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr",
)  # fmt: skip


def loaded(path, profile):
    """Open a page; return what it is then, and what the browser's console says."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("there is no chromium on the PATH")
    done = subprocess.run(
        [program, *_OPTIONS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        # Files of its own, nowhere else.
        env={**os.environ, "HOME": str(profile)},
    )
    return done.stdout, "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


@pytest.mark.slow
def test_in_a_browser(on, page_of, connection, items, model, tmp_path):
    table = '"</h1><script>document.title = 1</script>"'
    connection.execute(f"ALTER TABLE items RENAME TO {table}".encode())
    create(connection, table=table, access="lists").encode()
    on("evaluate", "i", "--queries", 20, "--candidates", 20, "--save")
    written = page_of(table, "embedding")
    dom, console = loaded(tmp_path / "page.html", tmp_path / "profile")
    assert console == ""
    page = Page(dom)
    assert words(page.all("title")[0]) == words(page.all("h1")[0]) == f"Vectors of {table}"
    assert not page.all("script")
    assert page.headings() == written.headings() == OF_INDEX
    # Each link leads to its section.
    targets = [link.attrib["href"] for link in page.all("a")]
    assert [words(next(page.by_id(target[1:]).iter("h2"))) for target in targets] == (
        page.headings()
    )
    assert page.figures() == ["indexes", "sizes", "ones-1", "history-1"]
    for key in page.figures():
        figure = page.by_id(key)
        assert len(list(figure.iter("svg"))) == 1
        assert page.table(key) == written.table(key)
        assert len(page.table(key)) >= 1
        # Letters are letters, which can be searched and read aloud.
        assert len([one for one in figure.iter("text") if words(one).strip()]) >= 4
    # The browser's SVG, not unknown elements: of those it would keep the case as it was written.
    assert "clipPath" in dom
