"""Access by landmarks: every row is in one list, and searches that read few of them find it."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.filters import look_codes_up
from fixtures.indexes import create_index
from fixtures.landmarks import assert_listed
from pgvector import Vector

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.landmarks.assignment import Landmarks

items_table = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


@pytest.fixture
def index(listed):
    return listed


def test_every_row_is_in_one_list(index):
    assert (index.access, index.state, index.effort) == ("lists", "used", 80)
    assert_listed(index)
    lists = index.lists()
    assert lists.landmarks > 50
    assert lists.trained_rows == 3000
    assert index.summary().access_bytes > 0


def test_all_lists_and_all_candidates_are_exact(index, vectors):
    for query in vectors[:4] + np.float32(0.2):
        exact = index.connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 12)",
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 12, candidates=6000, effort=107) == exact


def test_few_probes_find_nearly_all(index, vectors):
    found = 0
    for query in vectors[:50] + np.float32(0.05):
        exact = index.connection.execute(
            "SELECT id::bigint FROM hashindex.exact_search('items_idx', %s, 5)", [Vector(query)]
        ).fetchall()
        hits = index.search(query, 5, candidates=300, effort=12)
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
        found += len({row[0] for row in exact} & {hit.id for hit in hits})
    assert found >= 0.9 * 250


def test_k_answers_while_there_are_k_rows(index, vectors):
    """Probing widens where lists hold too few, or hold rows that are gone."""
    assert len(index.search(vectors[0], 2500, effort=1)) == 2500
    index.connection.execute("DELETE FROM items WHERE id % 300 <> 0")
    assert len(index.search(vectors[0], 10, effort=1)) == 10
    assert len(index.search(vectors[0], 11, effort=1)) == 10


@pytest.mark.parametrize("codes_first", [False, True])
def test_conditions(index, vectors, codes_first):
    if codes_first:
        look_codes_up(index.connection)
    for condition, most in ((items_table.c.category == "b", 1000), (items_table.c.id <= 7, 7)):
        hits = index.search(vectors[0], 20, effort=2, where=condition)
        assert len(hits) == min(20, most)
    by_name = index.connection.execute(
        "SELECT count(*) FROM hashindex.search('items_idx', %s, 20, effort => 2, "
        """where_equals => '{"category": "b"}')""",
        [Vector(vectors[0])],
    ).fetchone()
    assert by_name == (20,)


@pytest.mark.reads
@pytest.mark.newest
@pytest.mark.parametrize("effort", [0, -1, 1001])
def test_probes_out_of_range(index, effort):
    with pytest.raises(InvalidInputError, match=f"effort is {effort}; it must be"):
        index.search(np.ones(8), effort=effort)
    with pytest.raises(InvalidInputError, match=f"effort is {effort}; it must be 1 "):
        index.configure(effort=effort)


def test_settings_of_the_session_come_back(index):
    connection = index.connection
    names = ("hnsw.ef_search", "hnsw.iterative_scan", "enable_seqscan")
    connection.execute("SET hnsw.ef_search = 77")
    before = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    with connection.transaction():
        index.search(np.ones(8), effort=50)
        after = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    assert after == before


@pytest.mark.usefixtures("list_roles")
def test_row_security(connection, index):
    """Rows that a tenant may not see take no place from those that it may."""
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY few ON items USING (id % 100 = 0);"
        "GRANT SELECT ON items TO list_reader;"
        "SELECT hashindex.grant_reader('items_idx', 'list_reader', true)"
    )
    connection.execute("SET ROLE list_reader")
    hits = index.search(np.ones(8), 12, candidates=20, effort=1)
    connection.execute("RESET ROLE")
    assert len(hits) == 12
    assert all(hit.id % 100 == 0 for hit in hits)


def test_rows_without_a_vector_are_no_answers(index):
    index.connection.execute("UPDATE items SET embedding = NULL WHERE id > 20")
    hits = index.search(np.ones(8), 12, effort=2)
    assert len(hits) == 12
    assert all(hit.id <= 20 for hit in hits)


@pytest.mark.parametrize("secured", [False, True])
def test_stale_entries_take_no_places_of_rows_that_match(connection, index, vectors, secured):
    """Rows whose vector went, and rows that are listed with several codes."""
    for turn in range(3):
        connection.execute(
            "UPDATE items SET embedding = embedding + %s::vector WHERE id <= 15",
            [Vector(np.full(8, 0.01 * turn))],
        )
    connection.execute("UPDATE items SET embedding = NULL WHERE id > 20")
    where = items_table.c.id > 0
    if secured:
        connection.execute(
            "CREATE ROLE seer; GRANT ALL ON ALL TABLES IN SCHEMA hashindex, public TO seer; "
            "GRANT USAGE ON SCHEMA hashindex TO seer; ALTER TABLE items ENABLE ROW LEVEL SECURITY; "
            "CREATE POLICY all_of_them ON items USING (true); SET ROLE seer"
        )
    else:
        look_codes_up(connection)
    try:
        for query in vectors[:5]:
            exact = connection.execute(
                "SELECT id::bigint FROM hashindex.exact_search('items_idx', %s, 20)",
                [Vector(query)],
            ).fetchall()
            hits = index.search(
                query, 20, candidates=20, effort=2, where=None if secured else where
            )
            assert [hit.id for hit in hits] == [row[0] for row in exact]
    finally:
        connection.execute("RESET ROLE")
        if secured:
            connection.execute("DROP OWNED BY seer; DROP ROLE seer")


def test_a_reader_with_a_snapshot_from_before_the_lists(connection, items, model, url, monkeypatch):
    """It sees a few entries, of what was written while rows were listed; it reads all codes."""
    index = create_index(connection, access="lists")
    search = "SELECT id FROM hashindex.search_items_idx('[1,1,1,1,1,1,1,1]', 3, 300, 8)"
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assign = Landmarks.assign

        def looked_at(self, X):
            connection.execute(
                "INSERT INTO items SELECT n, 'far', ARRAY[n, 0, 0, 0, 0, 0, 0, -n]::vector "
                "FROM generate_series(1000, 1100) n"
            )
            old.execute("SELECT count(*) FROM items")
            return assign(self, X)

        monkeypatch.setattr(Landmarks, "assign", looked_at)
        index.encode()
        exact = old.execute(
            "SELECT id::bigint FROM hashindex.exact_search('items_idx', '[1,1,1,1,1,1,1,1]', 3)"
        ).fetchall()
        assert old.execute(search).fetchall() == exact
