"""Queries: rows that are drawn again as long as they are there, and a log."""

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from fixtures.known import OTHERS
from fixtures.recall import brute_force_recall, recall_of_vectors
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import InvalidInputError, RowsLeftOutWarning
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import queries
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.quality.measuring import Measuring

pytestmark = pytest.mark.newest


@pytest.fixture
def scanned(connection, items, model):
    """An index whose candidates are those of brute force."""
    index = begin_lists(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    return HashIndex.open(connection, "items_idx")


def rows_of(queries):
    return [query.row_id for query in queries]


def measured(index, drawn, k):
    """Measure an index with its own number of candidates."""
    row = index.row
    _, (point,) = Measuring(row, drawn, k).run("measuring", [row.candidates_for(k)])
    return point


def test_drawn_are_rows_of_the_table(scanned, vectors):
    drawn = queries.draw(scanned, 40, random_state=5)
    keys = [int(row or 0) for row in rows_of(drawn)]
    assert len(set(keys)) == 40
    for key, query in zip(keys, drawn, strict=True):
        assert np.array_equal(query.vector.to_numpy(), vectors[key - 1])
    # The first of them are those of a smaller draw.
    assert rows_of(queries.draw(scanned, 7, random_state=5)) == rows_of(drawn)[:7]
    assert rows_of(queries.draw(scanned, 40, random_state=6)) != rows_of(drawn)
    assert rows_of(queries.draw(scanned, 40, random_state=5 + 2**63)) == rows_of(drawn)
    assert len(queries.draw(scanned, 301)) == 300
    with pytest.raises(InvalidInputError, match="queries is 0; it must be 1 or more"):
        queries.draw(scanned, 0)


def test_the_same_rows_are_drawn_while_they_are_there(scanned):
    """Whatever else is written, and wherever they move."""
    before = rows_of(queries.draw(scanned, 40))
    gone = before[3]
    scanned.connection.execute("DELETE FROM items WHERE id = %s", [int(gone or 0)])
    scanned.connection.execute("UPDATE items SET category = 'z'")
    scanned.connection.execute("VACUUM FULL items")
    scanned.connection.execute(
        "INSERT INTO items SELECT id + 1000, category, embedding FROM items WHERE id < 20"
    )
    after = rows_of(queries.draw(scanned, 40))
    assert gone not in after
    # Few of 19 new ones are among the first 40 of 300.
    assert len(set(before) & set(after)) > 30
    assert [row for row in after if row in before] == [row for row in before if row in after]


def test_recall_of_drawn_rows_is_that_of_brute_force(scanned, vectors, model):
    asked = [int(row or 0) - 1 for row in rows_of(queries.draw(scanned, 40))]
    found = evaluate(scanned, queries=40, k=5, candidates=[15])
    assert found.queries == 40
    expected = brute_force_recall(model, vectors, 5, 15, asked)
    assert 0.2 < expected.least <= expected.greatest < 0.95
    assert found.points[0].recall in expected


def test_a_row_that_is_gone_is_a_query_still(scanned, vectors, model):
    drawn = queries.draw(scanned, 300)
    scanned.connection.execute("DELETE FROM items WHERE id <= 100")
    left = vectors[100:]
    found = measured(scanned.configure(candidates=20), drawn, k=5)
    gone = recall_of_vectors(model, left, vectors[:100], 5, 20)
    there = brute_force_recall(model, left, 5, 20)
    assert found.queries == 300
    assert found.recall in gone.and_of(there, 2 / 3)


def test_a_row_is_left_out_whatever_text_its_key_has(connection, model):
    """A time's text depends on the session. A row left in would be its own right answer."""
    connection.execute(
        "SET timezone TO 'UTC'; CREATE TABLE t (at timestamptz PRIMARY KEY, v vector(8))"
    )
    connection.cursor().executemany(
        "INSERT INTO t VALUES (to_timestamp(%s), %s)",
        [(n, Vector(v)) for n, v in enumerate(OTHERS)],
    )
    index = begin_lists(connection, "t", table="t", column="v", model="lsh")
    index.encode()
    drawn = queries.draw(index)
    connection.execute("SET timezone TO 'Asia/Tokyo'")
    found = measured(index.configure(candidates=7), drawn, k=3)
    expected = brute_force_recall(model, OTHERS, 3, 7)
    assert expected.greatest < 1
    assert found.recall in expected


def test_a_log_of_queries(scanned, tmp_path):
    connection = scanned.connection
    connection.execute("CREATE TABLE log (at int, asked vector(8))")
    connection.cursor().executemany(
        "INSERT INTO log VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(OTHERS)]
    )
    found = queries.of_log(scanned, "SELECT asked FROM log ORDER BY at DESC", 5)
    assert np.array_equal(found, OTHERS[:-6:-1])
    np.save(tmp_path / "log.npy", OTHERS)
    drawn = queries.of_log(scanned, str(tmp_path / "log.npy"), 5, random_state=1)
    assert {tuple(one) for one in drawn} < {tuple(one) for one in OTHERS}
    assert len(drawn) == 5
    np.save(tmp_path / "empty.npy", OTHERS[:0])
    for query, message in (
        ("log", "has one column, of type vector or halfvec; this has at int4, asked vector"),
        ("SELECT '[1]'::vector", "one of 1 dimensions, and the rows have 8"),
        ("SELECT asked FROM log WHERE at < 0", "returns no vector"),
        (str(tmp_path / "empty.npy"), "empty.npy' returns no vector"),
        ("WITH gone AS (DELETE FROM log RETURNING asked) SELECT * FROM gone", "read-only|WITH"),
    ):
        with pytest.raises(Exception, match=message):
            queries.of_log(scanned, query)
    assert connection.execute("SELECT count(*) FROM log").fetchone() == (20,)


@pytest.fixture
def longer(scanned, vectors):
    """A second index of the table, by a model of more bits, with fewer candidates."""
    model = LSH(n_bits=40, random_state=1).fit(vectors).to_model("longer")
    store.save(scanned.connection, model)
    index = begin_lists(
        scanned.connection, "longer", table="items", column="embedding", model="longer",
    )  # fmt: skip
    index.encode()
    return index.configure(candidates=30), model


def test_indexes_are_measured_each_by_its_defaults(scanned, longer, model, vectors):
    index, long_model = longer
    scanned = scanned.configure(candidates=12)
    drawn = queries.draw(scanned, 300)
    before, after = (measured(one, drawn, k=5) for one in (scanned, index))
    assert (before.index, before.model, before.candidates) == ("items_idx", "lsh:1", 12)
    assert (after.index, after.model, after.candidates) == ("longer", "longer:1", 30)
    assert (before.access, before.effort, before.k) == ("scan", None, 5)
    assert before.recall in brute_force_recall(model, vectors, 5, 12)
    assert after.recall in brute_force_recall(long_model, vectors, 5, 30)
    assert before.recall < after.recall
    for point in (before, after):
        assert point.queries == 300
        assert 0 < point.p50_ms <= point.p95_ms
    # A search for more than ten answers keeps more candidates in proportion.
    assert measured(scanned, drawn[:20], k=50).candidates == 60


def test_queries_of_a_benchmark_file_are_its_test_vectors(scanned, vectors, tmp_path):
    path = tmp_path / "both.npz"
    np.savez(path, train=vectors, test=vectors[:7] + 1)
    with pytest.warns(RowsLeftOutWarning, match="queries are the rows of array 'test' of"):
        found = queries.of_log(scanned, str(path), 20)
    assert np.array_equal(found, vectors[:7] + 1)
