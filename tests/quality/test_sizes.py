"""The sizes that the decision foresees are those of built sets."""

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import ITQ, Thermometer
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.sizes import hnsw_bytes, ivfflat_bytes, lists_bytes

ROWS, DIMENSION = 4000, 96


@pytest.fixture
def docs(connection):
    vectors = np.random.default_rng(5).standard_normal((ROWS, DIMENSION)).astype(np.float32)
    connection.execute(f"CREATE TABLE docs (id int PRIMARY KEY, v vector({DIMENSION}))")
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for number, vector in enumerate(vectors):
            copy.write_row((number, Vector(vector)))
    connection.execute("ANALYZE docs")
    for name, hasher in {
        "function": Thermometer(n_bits=3 * DIMENSION),
        "lists": ITQ(n_bits=96),
    }.items():
        store.save(connection, hasher.fit(vectors).to_model(name))
    return "docs"


SIZES = {
    "lists": "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c "
    "WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind = 'r' "
    "AND c.relname LIKE 'set\\_%'",
    "hnsw": "SELECT pg_relation_size(s.relation::regclass) FROM hashindex.index_set s",
}


def built(connection, access, model):
    HashIndex.create(connection, "i", table="docs", column="v", model=model, access=access)
    (size,) = connection.execute(SIZES.get(access, SIZES["hnsw"]).encode()).fetchone()
    return int(size)


@pytest.mark.parametrize(
    ("access", "model", "expected"),
    [
        ("hnsw", "none", hnsw_bytes(ROWS, "halfvec", DIMENSION)),
        ("hnsw", "function", hnsw_bytes(ROWS, "bit", 3 * DIMENSION)),
        ("ivfflat", "none", ivfflat_bytes(ROWS, "halfvec", DIMENSION)),
        ("ivfflat", "function", ivfflat_bytes(ROWS, "bit", 3 * DIMENSION)),
        ("lists", "lists", lists_bytes(ROWS, 96)),
        ("lists", "function", lists_bytes(ROWS, 3 * DIMENSION)),
    ],
)
def test_a_built_set_is_as_large_as_foreseen(connection, docs, access, model, expected):
    size = built(connection, access, model)
    assert expected == pytest.approx(size, rel=0.1)
