"""The page of an index: its numbers are those of the database, and the database is only read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from fixtures.report_pages import SECTIONS, create, words

from pg_hashindex import operations
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.operations.report import gather, save_page

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


def test_its_numbers_are_those_of_the_database(
    on, write, connection, items, model, vectors, tmp_path
):
    index = create(connection, access="landmarks")
    index.encode()
    evaluate = ("evaluate", "i", "--candidates", 25, "--queries", 20)
    on(*evaluate, "--save", "night")
    on(*evaluate[:4], "--set", "night")
    before = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
    page = write("i", "--set", "night", "--k", 5, "--candidates", 8, "--candidates", 30)
    # Whoever writes takes a number.
    after = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
    assert before == after

    assert page.headings() == [*SECTIONS[:-1], "Lists of landmarks", SECTIONS[-1]]
    check_facts(page, connection)
    check_recall(page, connection, vectors, [8, 30, 200])
    check_bits(page, connection)
    check_lists(page, connection)
    check_history(page, connection)
    found = connection.execute("SELECT * FROM hashindex.health('i')").fetchall()
    lines = [list(line.values()) for line in page.table("check")]
    checked = operations.check(index).findings
    assert [line[:2] for line in lines] == [[finding.check, finding.status] for finding in checked]
    assert [line[:2] for line in lines][: len(found)] == [[row[0], row[1]] for row in found]
    assert [line[3] for line in lines if line[0] in ("table", "access", "landmarks")] == [
        row[3] for row in found if row[0] in ("table", "access", "landmarks")
    ]
    assert page.key_figures()["check"][0] in ("ok", "warning")


def check_facts(page, connection):
    codes, landmarks = tables_of(connection)
    sizes = connection.execute(
        "SELECT pg_total_relation_size(x.indrelid) - pg_relation_size(x.indexrelid), "
        f"pg_total_relation_size('{landmarks}') + pg_relation_size(x.indexrelid), "
        "(SELECT sum(pg_column_size(embedding)) FROM items) "
        f"FROM pg_index x WHERE x.indrelid = '{codes}'::regclass AND NOT x.indisprimary".encode()
    ).fetchone()
    assert sizes is not None
    facts = page.facts()
    assert (
        facts
        | {
            "table": '"public"."items"',
            "column": "embedding",
            "key": "id bigint",
            "model": "lsh:1",
            "bits": "12",
            "access": "landmarks",
            "candidates": "200",
            "rows with a vector": "300",
            "codes": "300",
            "rows that wait for a code": "0",
            "codes take": size(sizes[0]),
            "the access path takes": size(sizes[1]),
            "vectors take": size(sizes[2]),
            "search function": '"hashindex"."search_i"($1, 10)',
        }
        == facts
    )
    assert page.key_figures()["rows"] == ["300", "all have a code"]
    assert page.key_figures()["size"][0] == size(sizes[0] + sizes[1])


def tables_of(connection):
    """Return the tables that codes and landmarks are in: a build makes new ones."""
    row = connection.execute(
        "SELECT 'hashindex.' || code_table, 'hashindex.' || landmark_table "
        "FROM hashindex.index WHERE name = 'i'"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def size(n_bytes):
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 100_000 else f"{n_bytes / 1e3:.1f} kB"


def check_recall(page, connection, vectors, counts):
    """Recall of the five nearest other rows: brute force in NumPy against searches in SQL."""
    asked = connection.execute(
        "SELECT row_id::integer, vector FROM hashindex.saved_query ORDER BY number"
    ).fetchall()
    found = dict.fromkeys(counts, 0)
    for key, query in asked:
        far = np.linalg.norm(vectors - query.to_numpy(), axis=1)
        far[key - 1] = np.inf
        nearest = set((np.argsort(far)[:5] + 1).tolist())
        for count in counts:
            rows = connection.execute(
                "SELECT id FROM hashindex.search_i(%s, 6, candidates => %s)", [query, count + 1]
            ).fetchall()
            found[count] += len(nearest & set([row[0] for row in rows if row[0] != key][:5]))
    lines = page.table("recall")
    expected = {str(count): f"{found[count] / (5 * len(asked)):.4g}" for count in counts}
    assert {line["candidates"]: line["recall@5"] for line in lines} == expected
    assert page.key_figures()["recall@5"] == [f"{float(expected['200']):.3f}", "200 candidates"]
    assert "20 queries, saved as night" in words(page.by_id("search"))
    times = page.table("times")
    assert [line["candidates"] for line in times] == [*map(str, counts), "exact search"]
    assert all(0 < float(line["p50 ms"]) <= float(line["p95 ms"]) for line in times)
    spread = page.table("query-times")
    assert sum(int(line["queries"]) for line in spread) == len(asked)
    own = float(times[counts.index(200)]["p50 ms"])
    assert float(spread[0]["from ms"]) <= own <= float(spread[-1]["to ms"])


def check_bits(page, connection):
    codes, _ = tables_of(connection)
    ones = connection.execute(
        f"SELECT b, avg(get_bit(code, b)) FROM {codes}, generate_series(0, 11) b "
        "GROUP BY b ORDER BY b".encode()
    ).fetchall()
    lines = page.table("ones")
    assert [line["bit"] for line in lines] == [str(bit) for bit, _ in ones]
    assert [line["share of ones"] for line in lines] == [f"{float(share):.4g}" for _, share in ones]
    for line, (_, share) in zip(lines, ones, strict=True):
        p = float(share)
        entropy = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
        assert float(line["entropy"]) == pytest.approx(entropy, rel=1e-3)
    pairs = connection.execute(
        "SELECT a::text, b::text, corr(get_bit(code, a), get_bit(code, b)) AS r "
        f"FROM {codes}, generate_series(0, 11) a, generate_series(0, 11) b WHERE a < b "
        "GROUP BY a, b ORDER BY abs(corr(get_bit(code, a), get_bit(code, b))) DESC "
        "LIMIT 20".encode()
    ).fetchall()
    shown = [tuple(line.values()) for line in page.table("correlation")]
    assert [abs(float(r)) for _, _, r in shown] == pytest.approx(
        [abs(r) for *_, r in pairs], rel=1e-3
    )
    assert {line[:2] for line in shown[:15]} <= {row[:2] for row in pairs}
    assert f"{pairs[0][2]:.3f}" in words(page.by_id("correlation"))


def check_lists(page, connection):
    codes, landmarks = tables_of(connection)
    lengths = [
        row[0]
        for row in connection.execute(
            f"SELECT count(c.id) FROM {landmarks} l "
            f"LEFT JOIN {codes} c USING (landmark) GROUP BY l.landmark".encode()
        ).fetchall()
    ]
    assert sum(lengths) == 300
    lines = [[*map(int, line.values())] for line in page.table("list-lengths")]
    assert lines[0][0] <= min(lengths)
    assert lines[-1][1] >= max(lengths)
    for low, high, count in lines:
        assert count == sum(low <= length <= high for length in lengths)
    assert sum(count for *_, count in lines) == len(lengths)
    assert f"{len(lengths)} landmarks" in words(page.by_id("lists"))


def check_history(page, connection):
    rows = connection.execute(
        "SELECT query_set, candidates::text, queries::text, recall "
        "FROM hashindex.recall_history ORDER BY id DESC"
    ).fetchall()
    assert len(rows) == 4
    shown = [
        (line["set"], line["candidates"], line["queries"], line["recall"])
        for line in page.table("history")
    ]
    assert shown == [(*row[:3], f"{row[3]:.4g}") for row in rows]


def test_the_same_draw_gives_the_same_numbers(connection, items, model):
    create(connection).encode()
    index = HashIndex.open(connection, "i")
    first, again, other = (
        gather(index, queries=9, candidates=[5], random_state=seed) for seed in (1, 1, 2)
    )
    recalls = [
        [point.recall for point in one.measurement.points]  # type: ignore[union-attr]
        for one in (first, again, other)
    ]
    assert recalls[0] == recalls[1]
    assert recalls[0] != recalls[2]


def test_what_is_refused(on, connection, items, model, tmp_path):
    index = create(connection)
    index.encode()
    (tmp_path / "folder").mkdir()
    path = tmp_path / "page.html"
    for name, options, message in (
        ("none", ("--html", path), "index 'none' does not exist"),
        ("i", ("--html", tmp_path / "no" / "a.html"), "there is no folder"),
        ("i", ("--html", tmp_path / "folder"), "it is not a plain file"),
        ("i", ("--html", "/dev/null"), "it is not a plain file"),
        ("i", ("--html", path, "--set", "x"), "index 'i' has no query set 'x'"),
        ("i", ("--html", path, "--k", 0), "k is 0; it must be 1 or more"),
        ("i", ("--html", path, "--queries", 0), "queries is 0; it must be 1 or more"),
        ("i", ("--html", path, "--candidates", 0), "candidates is 0; it must be 1 or more"),
    ):
        assert message in on("report", name, *options, code=3).stderr
    assert "Missing option '--html'" in on("report", "i", code=2).stderr
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


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
