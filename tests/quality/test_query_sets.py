"""Sets of queries: drawn, saved, read again when rows have gone, asked of several indexes."""

import numpy as np
import pytest
from fixtures.known import N_KNOWN, OTHERS
from fixtures.recall import brute_force_recall, recall_of_vectors
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import DuplicateNameError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import query_sets
from pg_hashindex.quality.evaluate import evaluate, measure_defaults
from pg_hashindex.quality.measuring import Measuring

pytestmark = pytest.mark.newest


@pytest.fixture
def scanned(connection, items, model):
    """An index whose candidates are those of brute force."""
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model="lsh", ranking="hamming"
    )
    index.encode()
    return HashIndex.open(connection, "items_idx")


def rows_of(queries):
    return [query.row_id for query in queries.queries]


def test_drawn_are_rows_of_the_table(scanned, vectors):
    queries = query_sets.draw(scanned, 40, random_state=5)
    keys = [int(row or 0) for row in rows_of(queries)]
    assert len(set(keys)) == 40
    assert keys == sorted(keys)
    for key, query in zip(keys, queries.queries, strict=True):
        assert np.array_equal(query.vector.to_numpy(), vectors[key - 1])
    assert rows_of(query_sets.draw(scanned, 40, random_state=5)) == rows_of(queries)
    assert rows_of(query_sets.draw(scanned, 40, random_state=6)) != rows_of(queries)
    assert len(query_sets.draw(scanned, 301).queries) == 300
    with pytest.raises(InvalidInputError, match="queries is 0; it must be 1 or more"):
        query_sets.draw(scanned, 0)


def test_saved_queries_are_read_as_they_were(scanned, model):
    drawn = query_sets.draw(scanned, 7)
    given = query_sets.of_vectors(scanned, OTHERS)
    for name, queries in (("drawn", drawn), ("given", given)):
        saved = query_sets.save(scanned, queries, name)
        assert (saved.name, saved.queries) == (name, queries.queries)
        read = query_sets.load(scanned, name)
        assert read.name == name
        assert rows_of(read) == rows_of(queries)
        for one, other in zip(read.queries, queries.queries, strict=True):
            assert np.array_equal(one.vector.to_numpy(), other.vector.to_numpy())
    found = query_sets.list_sets(scanned)
    assert [(one.name, one.queries, one.rows) for one in found] == [
        ("drawn", 7, 7),
        ("given", 20, 0),
    ]


def test_each_index_has_sets_of_its_own(scanned, model):
    connection = scanned.connection
    other = HashIndex.create(connection, "x", table="items", column="embedding", model="lsh")
    query_sets.save(scanned, query_sets.draw(scanned, 3), "s")
    with pytest.raises(InvalidInputError, match="index 'x' has no query set 's'; save one"):
        query_sets.load(other, "s")
    query_sets.save(other, query_sets.draw(other, 5), "s")
    with pytest.raises(DuplicateNameError, match="has a query set 's' already"):
        query_sets.save(other, query_sets.draw(other, 6), "s")
    assert len(query_sets.load(other, "s").queries) == 5
    query_sets.drop(other, "s")
    assert query_sets.list_sets(other) == []
    assert len(query_sets.load(scanned, "s").queries) == 3
    with pytest.raises(InvalidInputError, match="has no query set 't'; it has 's'"):
        query_sets.drop(scanned, "t")
    scanned.drop()
    assert connection.execute("SELECT count(*) FROM hashindex.saved_query").fetchone() == (0,)


@pytest.mark.parametrize("name", ["", "é" * 32, "a\0b"])
def test_names_that_are_refused(scanned, name):
    with pytest.raises(InvalidInputError, match="of a query set has"):
        query_sets.save(scanned, query_sets.draw(scanned, 3), name)


@pytest.mark.parametrize("name", ["é" * 31 + "x", 'it\'s "mine" %s', "'; DROP TABLE items"])
def test_invalid_names(scanned, name):
    query_sets.save(scanned, query_sets.draw(scanned, 3), name)
    assert len(query_sets.load(scanned, name).queries) == 3


def test_nothing_is_saved_of_an_empty_table(scanned):
    scanned.connection.execute("TRUNCATE items")
    with pytest.raises(InvalidInputError, match="no queries to save as 's'"):
        query_sets.save(scanned, query_sets.draw(scanned, 3), "s")
    assert query_sets.list_sets(scanned) == []


def test_recall_of_saved_rows_is_that_of_brute_force(scanned, vectors, model):
    query_sets.save(scanned, query_sets.draw(scanned, 40), "s")
    asked = [int(row or 0) - 1 for row in rows_of(query_sets.load(scanned, "s"))]
    found = evaluate(scanned, query_set="s", k=5, candidates=[15], record=False)
    assert (found.queries, found.query_set, found.skipped) == (40, "s", 0)
    expected = brute_force_recall(model, vectors, 5, 15, asked)
    assert 0.2 < expected.least <= expected.greatest < 0.95
    assert found.points[0].recall in expected


def test_a_row_that_is_gone_is_a_query_still(scanned, vectors, model):
    query_sets.save(scanned, query_sets.draw(scanned, 300), "s")
    scanned.connection.execute("DELETE FROM items WHERE id <= 100")
    left = vectors[100:]
    found = evaluate(scanned, query_set="s", k=5, candidates=[20], record=False)
    gone = recall_of_vectors(model, left, vectors[:100], 5, 20)
    there = brute_force_recall(model, left, 5, 20)
    assert found.queries == 300
    assert found.points[0].recall in gone.and_of(there, 2 / 3)


def test_a_row_is_left_out_whatever_text_its_key_has(connection, model):
    """A time's text depends on the session. A row left in would be its own right answer."""
    connection.execute(
        "SET timezone TO 'UTC'; CREATE TABLE t (at timestamptz PRIMARY KEY, v vector(8))"
    )
    connection.cursor().executemany(
        "INSERT INTO t VALUES (to_timestamp(%s), %s)",
        [(n, Vector(v)) for n, v in enumerate(OTHERS)],
    )
    index = HashIndex.create(connection, "t", table="t", column="v", model="lsh", ranking="hamming")
    index.encode()
    query_sets.save(index, query_sets.draw(index), "s")
    connection.execute("SET timezone TO 'Asia/Tokyo'")
    found = evaluate(index, query_set="s", k=3, candidates=[7], record=False)
    expected = brute_force_recall(model, OTHERS, 3, 7)
    assert expected.greatest < 1
    assert found.points[0].recall in expected


def test_another_dimension_is_refused(scanned):
    query_sets.save(scanned, query_sets.draw(scanned, 3), "s")
    scanned.connection.execute("UPDATE hashindex.saved_query SET vector = '[1,2]' WHERE number = 2")
    with pytest.raises(InvalidInputError, match="a query of 2 dimensions, and its vectors have 8"):
        query_sets.load(scanned, "s")


def test_a_log_of_queries(scanned):
    connection = scanned.connection
    connection.execute("CREATE TABLE log (at int, asked vector(8))")
    connection.cursor().executemany(
        "INSERT INTO log VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(OTHERS)]
    )
    queries = query_sets.of_log(scanned, "SELECT asked FROM log ORDER BY at DESC", 5)
    assert rows_of(queries) == [None] * 5
    for query, vector in zip(queries.queries, OTHERS[:-6:-1], strict=True):
        assert np.array_equal(query.vector.to_numpy(), vector)
    for query, message in (
        ("log", "has one column, of type vector or halfvec; this has at int4, asked vector"),
        ("SELECT '[1]'::vector", "one of 1 dimensions, and the rows have 8"),
        ("SELECT asked FROM log WHERE at < 0", "returns no vector"),
        ("WITH gone AS (DELETE FROM log RETURNING asked) SELECT * FROM gone", "read-only|WITH"),
    ):
        with pytest.raises(Exception, match=message):
            query_sets.of_log(scanned, query)
    assert connection.execute("SELECT count(*) FROM log").fetchone() == (20,)


@pytest.fixture
def longer(scanned, vectors):
    """A second index of the table, by a model of more bits, with fewer candidates."""
    model = LSH(n_bits=40, random_state=1).fit(vectors).to_model("longer")
    store.save(scanned.connection, model)
    index = HashIndex.create(
        scanned.connection, "longer", table="items", column="embedding", model="longer",
        ranking="hamming",
    )  # fmt: skip
    index.encode()
    return index.configure(candidates=30), model


def test_indexes_are_compared_each_by_its_defaults(scanned, longer, model, vectors, monkeypatch):
    index, long_model = longer
    scanned = scanned.configure(candidates=12)
    asked = []
    exact = Measuring._exact

    def counted(self, query):
        asked.append(query)
        return exact(self, query)  # type: ignore[arg-type]

    monkeypatch.setattr(Measuring, "_exact", counted)
    before, after = measure_defaults([scanned, index], query_sets.draw(scanned, 300), k=5)
    # The truth is the same for both.
    assert len(asked) == 300
    assert (before.index, before.model, before.candidates) == ("items_idx", "lsh:1", 12)
    assert (after.index, after.model, after.candidates) == ("longer", "longer:1", 30)
    assert (before.access, before.ranking, before.probes, before.k) == ("scan", "hamming", None, 5)
    assert before.recall in brute_force_recall(model, vectors, 5, 12)
    assert after.recall in brute_force_recall(long_model, vectors, 5, 30)
    assert before.recall < after.recall
    for point in (before, after):
        assert (point.queries, point.skipped) == (300, 0)
        assert 0 < point.p50_ms <= point.p95_ms
    # A search for more answers than that keeps as many candidates as answers.
    (many,) = measure_defaults([scanned], query_sets.draw(scanned, 20), k=50)
    assert many.candidates == 50


def test_only_indexes_of_one_table_are_compared(scanned):
    other = HashIndex.create(
        scanned.connection, "c", table="items", column="embedding", model="lsh", metric="cosine"
    )
    with pytest.raises(InvalidInputError, match="cannot be compared: .* by l2, the other .*cosine"):
        measure_defaults([scanned, other], query_sets.draw(scanned, 3))


def test_queries_without_a_code_are_asked_of_no_index(encoded, model, vectors):
    """The one knows rows 1 to 290 and ten vectors more; the other hashes anything."""
    plain = HashIndex.create(
        encoded.connection, "plain", table="items", column="embedding", model="lsh",
        ranking="hamming",
    )  # fmt: skip
    plain.encode()
    queries = query_sets.save(plain, query_sets.draw(plain, 300), "all")
    plain = plain.configure(candidates=20)
    known, hashed = measure_defaults([encoded.configure(candidates=20), plain], queries, k=5)
    assert (known.queries, known.skipped) == (hashed.queries, hashed.skipped) == (290, 10)
    assert hashed.recall in brute_force_recall(model, vectors, 5, 20, range(290))
    # Its codes are those of the other, but for the ten rows that it has none for.
    assert known.recall != hashed.recall
    assert known.recall == pytest.approx(hashed.recall, abs=0.05)
    strangers = query_sets.of_vectors(encoded, OTHERS[N_KNOWN:])
    with pytest.raises(InvalidInputError, match="none of the 10 queries has a code"):
        measure_defaults([encoded, plain], strangers)
    found = evaluate(encoded, queries=query_sets.of_vectors(encoded, OTHERS), k=5, candidates=[20])
    assert (found.queries, found.skipped) == (10, 10)
