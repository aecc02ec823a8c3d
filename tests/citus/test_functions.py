"""Models with several cuts, and functions of models, on a distributed table."""

import numpy as np
import pytest
from fixtures.citus import MODEL, QUERY, ROWS, TABLE, assert_fresh
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import Thermometer

pytestmark = pytest.mark.citus
NAME = f"{MODEL}_cuts"


@pytest.fixture
def cut(session, rows):
    yield store.save(session, Thermometer(random_state=0).fit(rows).to_model(NAME))
    store.drop(session, NAME)


def test_an_index_of_a_model_with_cuts(session, make, cut, rows):
    index = make(model=NAME)
    assert_fresh(index)
    hits = index.search(rows[20], 5, candidates=100)
    exact = np.argsort(((rows - rows[20]) ** 2).sum(axis=1))[:5] + 1
    assert [hit.id for hit in hits] == exact.tolist()
    index.drop()


def test_a_function_on_every_shard(session, cut, rows):
    session.execute("SELECT hashindex.create_functions(%s)", [NAME])
    code = f"hashindex.code_{NAME}"
    by = f"{code}(embedding)::bit({cut.n_bits})"
    session.execute(f"CREATE INDEX by_code ON {TABLE} USING hnsw (({by}) bit_hamming_ops)".encode())
    session.execute("SET enable_seqscan = off")
    query = (
        f"SELECT id FROM (SELECT id, embedding FROM {TABLE} ORDER BY {by} <~> "
        f"(SELECT {code}(%s::vector)) LIMIT 100) c ORDER BY embedding <-> %s::vector LIMIT 5"
    )
    found = session.execute(query.encode(), [Vector(rows[20])] * 2).fetchall()
    exact = np.argsort(((rows - rows[20]) ** 2).sum(axis=1))[:5] + 1
    assert [id_ for (id_,) in found] == exact.tolist()
    session.execute(f"INSERT INTO {TABLE} VALUES ({ROWS + 1}, 'a', %s)".encode(), [QUERY])
    found = session.execute(query.encode(), [QUERY] * 2).fetchone()
    assert found == (ROWS + 1,)
    session.execute("DROP INDEX by_code")
