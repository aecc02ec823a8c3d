"""Sets of pgvector on a distributed table."""

import re

import numpy as np
import pytest
from fixtures.citus import ROWS, TABLE, one
from pgvector import Vector

pytestmark = pytest.mark.citus

SETS = {
    "vectors": "model => 'none'",
    "codes": "model => NULL",
    "stored": "store => true",
    "lists of pgvector": "access => 'ivfflat'",
}


@pytest.fixture
def table(session):
    yield TABLE
    session.execute(f"DROP TABLE {TABLE}".encode())
    session.execute("DELETE FROM hashindex.model WHERE name = 'spread'")


@pytest.mark.parametrize("kept", SETS)
def test_a_set_on_every_shard(session, table, rows, kept):
    made = session.execute(
        f"SELECT * FROM hashindex.create_index('spread', '{table}', 'embedding', {SETS[kept]})"
        .encode()
    ).fetchone()  # fmt: skip
    print(made)
    try:
        for asked in (3, 20):
            nearest = np.argsort(((rows - rows[asked]) ** 2).sum(axis=1))[:5] + 1
            for k in (5, 300, 2 * ROWS):
                found = session.execute(
                    "SELECT id FROM hashindex.search_spread(%s, %s)", [Vector(rows[asked]), k]
                ).fetchall()
                assert len(found) == min(k, ROWS)
            assert len({n for (n,) in found[:5]} & {*nearest.tolist()}) >= 4
            found = session.execute(
                "SELECT id FROM hashindex.search_spread(%s, 7, filter => 'id > 100')",
                [Vector(rows[asked])],
            ).fetchall()
            assert len(found) == 7
        assert session.execute("SELECT hashindex.recall('spread', sample => 10)").fetchone() > (
            0.8,
        )
    finally:
        session.execute("SELECT hashindex.drop_index('spread')")


def test_effort_reaches_the_nodes(session, table):
    session.execute(
        f"SELECT hashindex.create_index('spread', '{table}', 'embedding', metric => 'l2')".encode()
    )
    query = one(session, f"SELECT embedding::text FROM {table} WHERE id = 7")

    def of_a_shard(candidates, effort, more=""):
        rows = session.execute(
            "SELECT * FROM hashindex.explain_search("
            f"'spread', %s::vector, candidates => %s, effort => %s{more})".encode(),
            [query, candidates, effort],
        ).fetchall()
        task, _, _ = "\n".join(row for (row,) in rows).partition("Index Scan using")
        return int(re.findall(r"rows=(\d+)", task)[-1])

    try:
        for effort in (5, 100):
            assert effort <= of_a_shard(300, effort) <= effort + 5
        # The scan continues until enough rows match.
        assert of_a_shard(60, 5, ", filter => 'id < 1500'") == 60
        with session.transaction():
            session.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
            session.execute("SET LOCAL hnsw.ef_search = 23")
            session.execute("SET LOCAL enable_seqscan = off")
            for k in (10, 1500):
                found = session.execute(
                    "SELECT id FROM hashindex.search_spread(%s, %s)", [query, k]
                ).fetchall()
                assert len(found) == k
            shown = session.execute(
                f"EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT id FROM {table} ORDER BY"
                " hashindex.code_spread(embedding)::bit(24) <~> %s::bit(24) LIMIT 99".encode(),
                ["1" * 24],
            ).fetchall()
            assert any("Index Scan using" in row and "rows=23.00" in row for (row,) in shown)
            assert one(session, "SHOW citus.propagate_set_commands") == "local"
        assert one(session, "SHOW hnsw.ef_search") == "40"
        with session.transaction():
            session.execute("SET TRANSACTION READ ONLY")
            assert one(session, "SELECT count(*) FROM hashindex.search_spread(%s)", query) == 10
    finally:
        session.execute("SELECT hashindex.drop_index('spread')")
