"""Recall over time: what is recorded, when, and by whom."""

import psycopg
import pytest
from fixtures.indexes import begin_lists
from fixtures.recall import brute_force_recall, lsh_model  # noqa: F401 (a fixture)

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import queries, recall_history
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.quality.measuring import Measuring

pytestmark = pytest.mark.newest


@pytest.fixture
def index(connection, items, model):
    """An index whose searches keep 25 candidates."""
    made = begin_lists(connection, "items_idx", table=items, column="embedding", model="lsh")
    made.encode()
    return made.configure(candidates=25)


@pytest.fixture
def read_only(url):
    options = "-c default_transaction_read_only=on"
    with connect(psycopg.conninfo.make_conninfo(url, options=options)) as session:
        yield session


def saved(index):
    return index.connection.execute(
        "SELECT seed, model, access, candidates, effort, k, queries, recall "
        "FROM hashindex.recall_history WHERE index_name = %s ORDER BY id",
        [index.name],
    ).fetchall()


def test_an_evaluation_is_saved(index, model, vectors):
    result = evaluate(index, queries=50, k=5, candidates=[300, 10], random_state=3, save=True)
    # With the index's own candidates too: these are what is searched with.
    assert [point.candidates for point in result.points] == [10, 25, 300]
    rows = [int(query.row_id or 0) - 1 for query in queries.draw(index, 50, 3)]
    expected = [brute_force_recall(model, vectors, 5, c, rows) for c in (10, 25, 300)]
    assert expected[0].greatest < expected[1].least
    assert expected[1].greatest < expected[2].least == 1
    found = saved(index)
    common = (3, "lsh:1", "scan")
    assert [row[:-1] for row in found] == [(*common, c, None, 5, 50) for c in (10, 25, 300)]
    assert all(row[-1] in one for row, one in zip(found, expected, strict=True))
    points = recall_history.history(index)
    assert [(p.candidates, p.recall, p.p50_ms, p.p95_ms) for p in points] == [
        (p.candidates, p.recall, p.p50_ms, p.p95_ms) for p in result.points
    ]
    assert all(0 < p.p50_ms <= p.p95_ms for p in points)


def test_others_are_not(index, vectors):
    evaluate(index, queries=5, candidates=[10])
    assert saved(index) == []
    # Queries that were given have no seed.
    evaluate(index, queries=vectors[:5], candidates=[10], save=True)
    assert [(row[0], row[3], row[6]) for row in saved(index)] == [(None, 10, 5), (None, 25, 5)]


def test_the_history_of_an_index(index, model):
    evaluate(index, queries=50, candidates=[25], save=True)
    index.configure(candidates=40)
    index = HashIndex.open(index.connection, "items_idx")
    evaluate(index, queries=50, candidates=[40], k=3, save=True)
    evaluate(index, queries=9, candidates=[40], random_state=1, save=True)
    twin = begin_lists(index.connection, "twin", table="items", column="embedding", model="lsh")
    assert recall_history.history(twin) == []
    points = recall_history.history(index)
    assert [(p.seed, p.candidates, p.k, p.queries) for p in points] == [
        (0, 25, 10, 50),
        (0, 40, 3, 50),
        (1, 40, 10, 9),
    ]
    times = [p.measured_at for p in points]
    assert times == sorted(times)
    assert recall_history.history(index, limit=2) == points[1:]
    with pytest.raises(InvalidInputError, match="limit is 0; it must be 1 or more"):
        recall_history.history(index, limit=0)
    index.drop()
    found = twin.connection.execute("SELECT count(*) FROM hashindex.recall_history").fetchone()
    assert found == (0,)


def test_measurements_before_codes_were_lost(index):
    """The purpose: the same queries show that recall has fallen."""
    evaluate(index, queries=50, candidates=[300], save=True)
    index.connection.execute("DELETE FROM hashindex.set_1_codes WHERE id > 150")
    evaluate(index, queries=50, candidates=[300], save=True)
    before, after = [p.recall for p in recall_history.history(index) if p.candidates == 300]
    assert before == 1
    assert 0.3 < after < 0.7


@pytest.fixture
def swapped(index, other, vectors):
    """A model of 40 bits whose set takes over by `EXCHANGE`."""
    model = LSH(n_bits=40, random_state=1).fit(vectors).to_model("longer")
    store.save(other, model)
    beside = HashIndex.open(other, "items_idx")
    beside.swap(model="longer", force=True)
    beside.configure(candidates=25)
    beside.rollback()
    return model


EXCHANGE = "SELECT hashindex.rollback_index('items_idx')"


def test_an_index_is_measured_by_the_model_that_it_has(index, other, swapped, vectors):
    """Whenever it was opened."""
    other.execute(EXCHANGE)
    result = evaluate(index, queries=300, k=5, candidates=[25], save=True)
    expected = brute_force_recall(swapped, vectors, 5, 25)
    assert result.points[0].recall in expected
    assert [row[1] for row in saved(index)] == ["longer:1"]


def test_a_concurrently_changed_model_is_not_saved(index, other, swapped, monkeypatch):
    find = Measuring.find_truth

    def exchanged(self, done):
        other.execute(EXCHANGE)
        return find(self, done)

    monkeypatch.setattr(Measuring, "find_truth", exchanged)
    with pytest.raises(DatabaseStateError, match="another model while it was measured"):
        evaluate(index, queries=50, candidates=[25], save=True)
    assert saved(index) == []


def test_a_read_only_session_evaluates(index, read_only):
    there = HashIndex.open(read_only, "items_idx")
    expected = evaluate(index, queries=50, candidates=[25])
    result = evaluate(there, queries=50, candidates=[25])
    assert result.points[0].recall == expected.points[0].recall
    assert recall_history.obstacle(there) == "the session is read-only"
    with pytest.raises(DatabaseStateError, match="cannot be saved: the session is read-only"):
        evaluate(there, save=True)
    assert saved(index) == []


def test_a_role_that_may_not_write_evaluates(index, as_role):
    reader = as_role("reader")
    index.connection.execute(
        "GRANT SELECT ON items TO reader; GRANT USAGE ON SCHEMA hashindex TO reader; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA hashindex TO reader"
    )
    there = HashIndex.open(reader, "items_idx")
    assert evaluate(there, queries=50, candidates=[300]).points[-1].recall == 1
    reason = "role reader may not INSERT into hashindex.recall_history"
    assert recall_history.obstacle(there) == reason
    index.connection.execute("GRANT INSERT ON hashindex.recall_history TO reader")
    evaluate(there, queries=50, candidates=[300], save=True)
    assert len(saved(index)) == 2
