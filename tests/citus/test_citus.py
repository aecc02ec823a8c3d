"""Indexes on a real Citus cluster: run where PG_HASHINDEX_CITUS_URL names one.

No cluster was at hand when these were written. What they ask is what docs/citus.md promises.
"""

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector

from pg_hashindex.codes import unpack
from pg_hashindex.database import Connection
from pg_hashindex.errors import HashIndexError
from pg_hashindex.evaluate import evaluate
from pg_hashindex.index import HashIndex
from pg_hashindex.sampling import sample_table

pytestmark = [
    pytest.mark.citus,
    pytest.mark.skipif(
        "PG_HASHINDEX_CITUS_URL" not in os.environ,
        reason="needs a Citus cluster at PG_HASHINDEX_CITUS_URL",
    ),
]

QUERY = Vector(np.linspace(-1, 1, 8).astype(np.float32))


def one(connection: Connection, statement: str, *values: Any) -> Any:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]


def bits_of(index: HashIndex, vectors: ArrayLike) -> NDArray[np.bool_]:
    return unpack(index.loaded_model.encode(vectors), index.n_bits)


def differing(index: HashIndex) -> set[int]:
    """Keys of rows without their code, and of codes without a row: both tables, read apart."""
    connection = index.connection
    vectors = connection.execute("SELECT id, embedding FROM hashindex_items").fetchall()
    wanted = {
        key: "".join("01"[int(bit)] for bit in bits_of(index, vector.to_numpy()[None])[0])
        for key, vector in vectors
        if vector is not None
    }
    codes = {
        "table": "SELECT id, code::text FROM hashindex.citus_tests_idx_codes",
        "column": "SELECT id, citus_tests_idx_code::text FROM hashindex_items "
        "WHERE citus_tests_idx_code IS NOT NULL",
    }[index.layout]
    stored = dict(connection.execute(codes.encode()).fetchall())
    return {key for key in wanted.keys() | stored if wanted.get(key) != stored.get(key)}


def test_codes_stand_beside_their_rows(spread: HashIndex) -> None:
    connection = spread.connection
    assert spread.distributed
    assert differing(spread) == set()
    if spread.layout == "table":
        groups = connection.execute(
            "SELECT DISTINCT colocationid FROM pg_dist_partition WHERE logicalrelid IN "
            "('hashindex_items'::regclass, 'hashindex.citus_tests_idx_codes'::regclass)"
        ).fetchall()
        assert len(groups) == 1
    kind = "SELECT hashindex._distribution_of('hashindex.model')"
    assert one(connection, f"SELECT (d).method FROM ({kind} AS d) x") == "reference"
    summary = spread.summary()
    assert (summary.rows, summary.codes, summary.waiting) == (2000, 2000, 0)
    assert summary.code_bytes > 0


def hamming(index: HashIndex, rows: NDArray[np.float32]) -> NDArray[np.intp]:
    query = bits_of(index, QUERY.to_numpy()[None])
    return np.asarray((bits_of(index, rows) != query).sum(axis=1))


def nearest_by_code(index: HashIndex, rows: NDArray[np.float32], n: int) -> list[int]:
    far = hamming(index, rows)
    kept = sorted(range(len(rows)), key=lambda i: (far[i], i))[:n]
    distance = ((rows.astype(np.float64) - QUERY.to_numpy()) ** 2).sum(axis=1)
    return [i + 1 for i in sorted(kept, key=lambda i: (distance[i], i))]


def test_searches_equal_brute_force(spread: HashIndex, rows: NDArray[np.float32]) -> None:
    for candidates in (20, 300, 2000):
        found = spread.search(QUERY, 10, candidates=candidates, ranking="hamming")
        assert [hit.id for hit in found] == nearest_by_code(spread, rows, candidates)[:10]
    # All of them are candidates: it is the exact answer, whatever orders them.
    exact = nearest_by_code(spread, rows, 2000)[:10]
    assert [hit.id for hit in spread.search(QUERY, 10, candidates=2000)] == exact
    by_name = spread.connection.execute(
        "SELECT id FROM hashindex.search('citus_tests_idx', %s, 10, 2000)", [QUERY]
    ).fetchall()
    assert [int(row[0]) for row in by_name] == exact
    within = np.flatnonzero(hamming(spread, rows) <= 4)
    assert {hit.id for hit in spread.within(QUERY, 4)} == {i + 1 for i in within}
    assert one(spread.connection, "SELECT hashindex.recall('citus_tests_idx', 5, 5, 2000)") == 1


def test_training_and_evaluating(spread: HashIndex) -> None:
    assert len(sample_table(spread.connection, "hashindex_items", "embedding", rows=500).X) == 500
    result = evaluate(spread, k=5, queries=10, candidates=[2000])
    assert [point.recall for point in result.points] == [1.0]


def test_conditions_restrict_the_candidates(spread: HashIndex, rows: NDArray[np.float32]) -> None:
    exact = [i for i in nearest_by_code(spread, rows, 2000) if "abc"[i % 3] == "b"][:10]
    found = spread.connection.execute(
        "SELECT id FROM hashindex.search('citus_tests_idx', %s, 10, 2000, "
        """where_equals => '{"category": "b"}')""",
        [QUERY],
    ).fetchall()
    assert [int(row[0]) for row in found] == exact
    found = spread.connection.execute(
        "SELECT id FROM hashindex.search_where('citus_tests_idx', %s, 10, "
        "'category = ''b'' AND id > 0', 2000)",
        [QUERY],
    ).fetchall()
    assert [int(row[0]) for row in found] == exact


def test_writes_keep_codes_fresh(spread: HashIndex) -> None:
    connection = spread.connection
    connection.execute(
        "INSERT INTO hashindex_items SELECT 5000 + g, 'd', ARRAY(SELECT sin(g * d) "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(1, 50) g"
    )
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY hashindex_items (id, category, embedding) FROM STDIN") as copy,
    ):
        copy.write_row((6000, "d", QUERY))
        copy.write_row((6001, "d", None))
    connection.execute("UPDATE hashindex_items SET embedding = %s WHERE id = 7", [QUERY])
    connection.execute("UPDATE hashindex_items SET embedding = NULL WHERE id = 8")
    connection.execute("UPDATE hashindex_items SET category = 'e' WHERE id < 100")
    connection.execute("DELETE FROM hashindex_items WHERE id BETWEEN 200 AND 300")
    connection.execute(
        "INSERT INTO hashindex_items VALUES (9, 'a', %s) "
        "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
        [QUERY],
    )
    assert differing(spread) == set()
    assert {hit.id for hit in spread.search(QUERY, 3)} == {7, 9, 6000}


def test_what_no_trigger_saw_is_encoded_later(spread: HashIndex) -> None:
    connection = spread.connection
    connection.execute("TRUNCATE hashindex_items")
    assert spread.search(QUERY, 3) == []
    assert spread.encode() == 0
    assert differing(spread) == set()
    connection.execute("INSERT INTO hashindex_items VALUES (1, 'a', %s)", [QUERY])
    assert [hit.id for hit in spread.search(QUERY, 3)] == [1]


def test_distributing_again_changes_nothing(spread: HashIndex) -> None:
    spread.distribute()
    assert spread.encode() == 0
    assert differing(spread) == set()


def test_a_table_that_is_distributed_later(session: Connection) -> None:
    session.execute("SELECT undistribute_table('hashindex_items')")
    plain = HashIndex.create(
        session, "citus_tests_idx", table="hashindex_items", column="embedding", model="citus_tests"
    )
    plain.encode()
    for event in ("insert", "update", "delete", "truncate"):
        session.execute(
            f"DROP TRIGGER hashindex_citus_tests_idx_{event} ON hashindex_items".encode()
        )
    session.execute("SELECT create_distributed_table('hashindex_items', 'id')")
    plain.distribute()
    spread = HashIndex.open(session, "citus_tests_idx")
    assert spread.encode() == 2000
    assert differing(spread) == set()


def test_what_is_refused(spread: HashIndex) -> None:
    for refused in (
        lambda: spread.configure(access="hnsw"),
        lambda: spread.swap("citus_tests"),
        lambda: spread.repair(),
        lambda: spread.encode(rows_per_second=5),
    ):
        with pytest.raises(HashIndexError, match="distributed table"):
            refused()
