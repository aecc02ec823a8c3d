"""Columns of type halfvec are indexed and searched as vectors of the same numbers are."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.halves import add, assert_coded, by_hand, codes_of, make_index, nearest
from pgvector import HalfVector, Vector

from pg_hashindex import store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.quality import queries
from pg_hashindex.quality.evaluate import evaluate

CASES = [("scan", "l2"), ("scan", "cosine"), ("lists", "cosine")]


@pytest.mark.parametrize(("access", "metric"), CASES)
def test_all_ways_to_search(connection, halves, whole_rows, access, metric):
    index = make_index(connection, metric=metric, access=access)
    assert index.access == access
    assert_coded(index)
    # Written, changed, emptied and taken away: by the triggers.
    add(connection, np.roll(whole_rows, 3, axis=0)[:50] + 1, first=1001)
    connection.execute("UPDATE halves SET embedding = twin + twin, twin = twin + twin WHERE id < 9")
    connection.execute("UPDATE halves SET embedding = NULL, twin = NULL WHERE id IN (20, 21)")
    connection.execute("DELETE FROM halves WHERE id BETWEEN 30 AND 35")
    assert_coded(index)

    parts = sa.Table("halves", sa.MetaData(), sa.Column("part", sa.Text))
    # A row, and one that half precision rounds.
    for query in (Vector(whole_rows[50]), Vector(whole_rows[51] + np.float32(0.1))):
        # Candidates and lists enough for all rows.
        found = index.search(query, 10, candidates=300, effort=1000 if index.effort else None)
        assert found == nearest(connection, metric, query, 10)
        found = index.search(query, 5, candidates=300, where=parts.c.part == "b")
        assert found == nearest(connection, metric, query, 5, "part = 'b'")
        assert connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('idx', %s, 7)", [query]
        ).fetchall() == nearest(connection, metric, query, 7)
    near = nearest(connection, metric, Vector(whole_rows[50]), 5, "id <> 51")
    assert index.search_like(51, 4, candidates=300) == near[:4]
    codes = codes_of(index)
    far = {
        key: sum(a != b for a, b in zip(code, codes[51], strict=True))
        for key, code in codes.items()
    }
    assert {hit.id: hit.distance for hit in index.within(whole_rows[50], 4)} == {
        key: bits for key, bits in far.items() if bits <= 4
    }
    assert connection.execute(
        "SELECT hashindex.recall('idx', 5, 20, candidates => 300)"
    ).fetchone() == (1.0,)
    if access == "lists":
        assert index.rebalance().rows == len(codes)
        assert index.search(query, 3, candidates=300) == nearest(connection, metric, query, 3)


@pytest.mark.newest
def test_a_column_without_a_dimension(connection, halves):
    connection.execute("ALTER TABLE halves ALTER embedding TYPE halfvec")
    index = make_index(connection)
    assert_coded(index)
    with pytest.raises(psycopg.DataError, match="has 3 dimensions, the model takes 8"):
        connection.execute("INSERT INTO halves VALUES (0, 'a', '[1,2,3]')")
    index.drop()
    connection.execute("INSERT INTO halves VALUES (0, 'a', '[1,2,3]')")
    with pytest.raises(InvalidInputError, match="3 dimensions"):
        make_index(connection)


@pytest.mark.newest
def test_queries_of_any_kind(connection, halves, whole_rows):
    index = make_index(connection)
    wanted = index.search(whole_rows[7], 4)
    assert index.search(HalfVector(whole_rows[7]), 4) == wanted
    assert index.search(Vector(whole_rows[7]), 4) == wanted
    assert wanted == nearest(connection, "l2", Vector(whole_rows[7]), 4)
    # In SQL a halfvec is cast; a text is a vector.
    for query in ("embedding::vector", "twin", f"'{whole_rows[7].tolist()}'"):
        assert connection.execute(
            f"SELECT s.* FROM halves, hashindex.search_idx({query}, 4) s WHERE halves.id = 8 "
            "ORDER BY s.distance, s.id".encode()
        ).fetchall() == [(hit.id, hit.distance) for hit in wanted]
    # A vector that no halfvec can hold has no distance to one.
    with pytest.raises(InvalidInputError, match="out of range for type halfvec"):
        index.search(whole_rows[7] * 1e6)


@pytest.mark.newest
def test_another_model_takes_over(connection, halves, whole_rows):
    index = make_index(connection)
    store.save(connection, by_hand("other", 2, 24))
    swapped = index.swap(model="other")
    assert swapped.former_recall > 0
    now = index.open(connection, "idx")
    assert (now.model, now.n_bits) == ("other", 24)
    query = Vector(whole_rows[9])
    assert now.search(query, 5, candidates=300) == nearest(connection, "l2", query, 5)
    index.rollback()
    assert_coded(index.open(connection, "idx"))


@pytest.mark.newest
def test_recall_of_rows(connection, halves):
    index = make_index(connection)
    assert {type(query.vector) for query in queries.draw(index, 30)} == {Vector}
    found = evaluate(index, queries=30, k=5, candidates=[5, 300])
    assert found.points[-1].recall == 1.0
    assert found.points[0].recall < 1.0
    # A log may be of either type.
    logs = [
        queries.of_log(index, f"SELECT {column} FROM halves ORDER BY id", 9)
        for column in ("embedding", "twin")
    ]
    assert np.array_equal(*logs)
