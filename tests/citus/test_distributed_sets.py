"""Sets of pgvector on a distributed table."""

import numpy as np
import pytest
from fixtures.citus import ROWS, TABLE
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
