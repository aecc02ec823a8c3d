"""Systems: each is made by its statements, and searched by its own."""

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector
from psycopg import sql

from pg_hashindex import store
from pg_hashindex.models import functions
from pg_hashindex.quality import systems
from pg_hashindex.quality.measuring import Prepared, ask
from pg_hashindex.training import train

pytestmark = pytest.mark.newest

ROWS = np.random.default_rng(1).standard_normal((1200, 16)).astype(np.float32)
NAMES = ("exact", "vectors", "lists", "halves", "signs", "centred", "code")


@pytest.fixture
def column(connection):
    connection.execute("CREATE TABLE docs (id bigint PRIMARY KEY, v vector(16))")
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for number, row in enumerate(ROWS):
            copy.write_row((number, Vector(row)))
    connection.execute("ANALYZE docs")
    key = sql.Identifier("id")
    return systems.VectorColumn(
        "public", sql.Identifier("docs"), sql.Identifier("v"), "vector", key, key
    )


def made(connection, name, of, metric):
    """Make the functions of a model where a system needs some, and return the system."""
    if name == "exact":
        return systems.Exact(of, metric)
    if name in ("vectors", "lists", "halves"):
        method = "ivfflat" if name == "lists" else "hnsw"
        return systems.over_vectors(of, metric, 16, half=name == "halves", method=method)
    if name in ("signs", "centred"):
        return systems.Signs(of, metric, 16, ROWS.mean(axis=0) if name == "centred" else None)
    model = train(ROWS, "texts", "thermometer", metric=metric, n_bits=48, cuts=3)
    store.save(connection, model)
    return systems.Code(of, metric, functions.create(connection, "texts").code, 48)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("name", NAMES)
def test_a_system(connection, column, name, metric):
    """Its index is used, and with the last of its settings it finds nearly all."""
    system = made(connection, name, column, metric)
    for statement in system.create():
        connection.execute(statement)
    setting = system.settings(10)[-1]
    for parameter, value in setting.session.items():
        connection.execute(f"SET {parameter} = {value}".encode())
    connection.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
    queries = [Vector(row) for row in ROWS[:20]]
    truth = ask(Prepared(connection, systems.Exact(column, metric).search(10)), queries)
    search = system.search(10, setting)
    answers = ask(Prepared(connection, search), queries)
    assert answers.recall(truth, 10) > (0.8 if name in ("signs", "centred") else 0.9)
    explained = sql.SQL("EXPLAIN (GENERIC_PLAN) ") + search
    plan = str(connection.execute(explained.as_string().encode()).fetchall())
    assert ("Index Scan using" in plan) == (name != "exact")


def test_an_index_of_pg_hashindex(connection, column):
    store.save(connection, train(ROWS, "texts", "itq", metric="l2"))
    index = begin_lists(connection, "texts", table="docs", column="v", model="texts")
    index.encode()
    system = systems.CodeIndex(column, "l2", "texts")
    asked = [Vector(row) for row in ROWS[:20]]
    exact = systems.Exact(column, "l2")
    for conditions in ((), ("id % 2 = 0", None)):
        truth = ask(Prepared(connection, exact.search(10, conditions=conditions)), asked)
        search = Prepared(connection, system.search(10, system.settings(10)[-1], conditions))
        assert ask(search, asked).recall(truth, 10) > 0.95
