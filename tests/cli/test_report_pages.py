"""The page of every kind of index: well-formed, of nothing from elsewhere, whatever names are."""

from collections.abc import Callable
from importlib import import_module

import pytest
from click.testing import Result
from fixtures.report_pages import QUICK, SECTIONS, Page, create, words

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.operations.report import gather

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


def test_text_of_the_database_is_no_html(write, connection, items, lsh_model):
    store.save(connection, Model("<b>&$x_$ 索引", "lsh", 8, lsh_model.layers))
    connection.execute('ALTER TABLE items RENAME TO "</td><img src=x>"')
    connection.execute(
        'ALTER TABLE "</td><img src=x>" RENAME embedding TO "%s<style>" ;'
        'ALTER TABLE "</td><img src=x>" RENAME id TO "http://a.example/?a&b"'
    )
    index = HashIndex.create(
        connection, "i", table='"</td><img src=x>"', column="%s<style>", model="<b>&$x_$ 索引"
    )
    index.encode()
    connection.execute(
        "INSERT INTO hashindex.recall_history (index_name, query_set, model, access, ranking,"
        " candidates, k, queries, recall, p50_ms, p95_ms) "
        "SELECT 'i', '</svg><script>$_$', m, 'scan', 'hamming', 9, 10, 3, 0.5, 1, 2 "
        "FROM unnest(ARRAY['a', '<i>$x_$</i>']) m"
    )
    page = write("i", *QUICK)
    tags = {one.tag for one in page.root.iter()}
    assert not tags & {"script", "img", "b", "i", "link", "iframe", "object"}
    assert len(page.all("style")) == 1
    facts = page.facts()
    assert facts["table"] == '"public"."</td><img src=x>"'
    assert facts["column"] == "%s<style>"
    assert facts["model"] == "<b>&$x_$ 索引:1"
    assert {line["set"] for line in page.table("history")} == {"</svg><script>$_$"}
    # In the figure too, where a formula would be drawn else.
    drawn = [words(one) for one in page.by_id("history").iter("text")]
    assert "set </svg><script>$_$, 9 candidates, k 10" in drawn
    assert "<i>$x_$</i>" in drawn


def test_nothing_comes_from_elsewhere(run, connection, items, model, url, tmp_path):
    """Also in a read-only session."""
    create(connection).encode()
    reading = url + "&options=-c%20default_transaction_read_only%3Don"
    run("report", "i", "--html", tmp_path / "page.html", *QUICK, "--database-url", reading)
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert page.headings() == SECTIONS
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


def test_the_session_is_left_as_it_was(on, connection, items, model, url, tmp_path, monkeypatch):
    """A pooler lends it to somebody else next, who may want to write."""
    create(connection).encode()
    asked = "SELECT name, setting FROM pg_settings WHERE source = 'session' ORDER BY name"
    found = []

    def watched(index, **more):
        gathered = gather(index, **more)
        found.append(index.connection.execute(asked).fetchall())
        return gathered

    monkeypatch.setattr(import_module("pg_hashindex.cli.report"), "gather", watched)
    on("report", "i", "--html", tmp_path / "page.html", *QUICK)
    with connect(url) as plain:
        assert found == [plain.execute(asked).fetchall()]


def no_rows(connection):
    connection.execute("DELETE FROM items")
    create(connection).encode()
    return 'Not known: "public"."items" has fewer than two rows with a vector'


def one_row(connection):
    connection.execute("DELETE FROM items WHERE id > 1")
    create(connection).encode()
    return 'Not known: "public"."items" has fewer than two rows with a vector'


def no_codes(connection):
    create(connection)
    return "There are no codes yet"


def by_scan(connection):
    create(connection).encode()
    return "No recall is recorded yet"


def in_a_column(connection):
    create(connection, layout="column").encode()
    return "accessscan"


def no_landmarks(connection):
    create(connection, access="landmarks")
    return "The landmarks are not built yet. To build them:pg-hashindex index encode i"


def by_landmarks_without_rows(connection):
    connection.execute("DELETE FROM items")
    create(connection, access="landmarks").encode()
    return "has fewer than two rows"


def in_python(connection):
    create(connection, model="known").encode()
    return "encoded inPython"


def table_renamed(connection):
    create(connection).encode()
    connection.execute("ALTER TABLE items RENAME TO goods")
    return "broken"


@pytest.mark.parametrize(
    "kind",
    [
        no_rows, one_row, no_codes, by_scan, in_a_column, no_landmarks,
        by_landmarks_without_rows, in_python, table_renamed,
    ],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_of_every_kind_of_index(write, connection, items, model, known_model, kind):
    store.save(connection, known_model)
    expected = kind(connection)
    page = write("i", *QUICK)
    assert expected in words(page.all("body")[0])
    assert [name for name in page.headings() if name != "Lists of landmarks"] == SECTIONS
    assert ("Lists of landmarks" in page.headings()) == ("landmarks" in kind.__name__)
    assert len(page.all("figure")) == len(page.all("svg"))
    figures = set(page.figures())
    if kind in (by_scan, in_a_column, in_python):
        assert figures == {"recall", "times", "query-times", "ones", "correlation"}
        assert page.table("ones")[0]["bit"] == "0"
    if kind in (no_rows, table_renamed):
        assert not figures & {"recall", "times"}
    if kind is one_row:
        # A bit that never changes tells nothing, and is like no other.
        assert {line["entropy"] for line in page.table("ones")} == {"0"}
        assert page.table("correlation") == []
