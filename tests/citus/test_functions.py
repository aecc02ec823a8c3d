"""Functions of models on a distributed table, and pgvector's index over them."""

import numpy as np
import pytest
from fixtures.citus import MODEL, QUERY, ROWS, TABLE, one
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import Thermometer
from pg_hashindex.models.codes import unpack

pytestmark = pytest.mark.citus
NAME = f"{MODEL}_cuts"
CODE = f"hashindex.code_{NAME}"


@pytest.fixture
def cut(session, rows):
    saved = store.save(session, Thermometer(random_state=0).fit(rows).to_model(NAME))
    session.execute("SELECT hashindex.create_functions(%s)", [NAME])
    yield saved
    session.execute(f"DROP TABLE {TABLE}".encode())
    store.drop(session, NAME)


def test_a_function_on_every_shard(session, cut, rows):
    by = f"{CODE}(embedding)::bit({cut.n_bits})"
    session.execute(f"CREATE INDEX by_code ON {TABLE} USING hnsw (({by}) bit_hamming_ops)".encode())
    query = (
        f"SELECT id FROM (SELECT id, embedding FROM {TABLE} ORDER BY {by} <~> "
        f"(SELECT {CODE}(%s::vector)) LIMIT 100) c ORDER BY embedding <-> %s::vector LIMIT 5"
    )
    with session.transaction():
        # A shard of so few rows would be read whole.
        session.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
        session.execute("SET LOCAL enable_seqscan = off")
        plan = session.execute(f"EXPLAIN {query}".encode(), [Vector(rows[20])] * 2).fetchall()
    assert any("Index Scan using by_code" in line for (line,) in plan)
    found = session.execute(query.encode(), [Vector(rows[20])] * 2).fetchall()
    nearest = np.argsort(((rows - rows[20]) ** 2).sum(axis=1))[:5] + 1
    assert [id_ for (id_,) in found] == nearest.tolist()
    session.execute(f"INSERT INTO {TABLE} VALUES ({ROWS + 1}, 'a', %s)".encode(), [QUERY])
    found = session.execute(query.encode(), [QUERY] * 2).fetchone()
    assert found == (ROWS + 1,)
    session.execute(
        f"UPDATE {TABLE} SET embedding = '[9,9,9,9,9,9,9,9]' WHERE id = {ROWS + 1}".encode()
    )
    assert session.execute(query.encode(), [QUERY] * 2).fetchone() != (ROWS + 1,)


def test_nodes_give_the_codes_that_python_gives(session, cut, rows):
    codes = f"SELECT {CODE}(embedding)::text FROM {TABLE} ORDER BY id"
    bits = unpack(store.load(session, NAME).encode(rows), cut.n_bits)
    wanted = ["".join("01"[int(bit)] for bit in row) for row in bits]
    assert [code for (code,) in session.execute(codes.encode())] == wanted
    by_layers = (
        "SELECT hashindex.encode_with((SELECT layers FROM hashindex.model WHERE name = %s), "
        f"embedding)::text FROM {TABLE} WHERE id <= 50 ORDER BY id"
    )
    found = session.execute(by_layers.encode(), [MODEL]).fetchall()
    bits = unpack(store.load(session, MODEL).encode(rows[:50]), 16)
    assert [code for (code,) in found] == ["".join("01"[int(bit)] for bit in row) for row in bits]


def test_every_node_drops_the_functions(session, cut, cluster, url):
    """With them gone from the coordinator, workers keep none."""
    made = "SELECT count(*) FROM pg_proc WHERE proname = %s"
    name = f"code_{NAME}"
    with connect(cluster.worker(url)) as worker:
        # One for vectors, one for halfvecs.
        assert one(worker, made, name) == 2
        session.execute("SELECT hashindex.drop_functions(%s)", [NAME])
        assert one(worker, made, name) == 0
