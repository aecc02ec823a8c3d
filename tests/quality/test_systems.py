"""Searches of a column, exact and by pgvector's indexes over it or an expression of it."""

import numpy as np
import pytest
from pgvector import Vector
from psycopg import sql

from pg_hashindex import store
from pg_hashindex.models import functions
from pg_hashindex.quality import systems
from pg_hashindex.quality.measuring import Prepared, ask
from pg_hashindex.training import train

pytestmark = pytest.mark.newest

ROWS = np.random.default_rng(1).standard_normal((1200, 16)).astype(np.float32)
MEAN = Vector(ROWS.mean(axis=0)).to_text()


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


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize(
    ("method", "expression", "kind", "least"),
    [
        ("hnsw", None, "vector", 0.9),
        ("ivfflat", None, "vector", 0.9),
        ("hnsw", "v::halfvec(16)", "halfvec", 0.9),
        ("hnsw", "binary_quantize(v)::bit(16)", "bit", 0.8),
        ("hnsw", f"binary_quantize(v - '{MEAN}'::vector)::bit(16)", "bit", 0.8),
        ("hnsw", "{code}(v)::bit(48)", "bit", 0.9),
    ],
    ids=["vectors", "lists", "halves", "signs", "centred", "code"],
)
def test_an_index_of_pgvector(connection, column, metric, method, expression, kind, least):
    """It is used, and with the last of its settings it finds nearly all."""
    if expression and "{code}" in expression:
        model = train(ROWS, "texts", "thermometer", metric=metric, n_bits=48, cuts=3)
        store.save(connection, model)
        expression = expression.format(code=functions.create(connection, "texts").code)
    compared = "hamming" if kind == "bit" else metric
    indexed = f"({expression or 'v'}) {kind}_{compared}_ops"
    connection.execute(f"CREATE INDEX ON docs USING {method} ({indexed})".encode())
    operator = "<~>" if kind == "bit" else systems.OPERATORS[metric]
    index = systems.Existing(column, metric, expression, kind, operator, method)
    setting = index.settings(10)[-1]
    for parameter, value in setting.session.items():
        connection.execute(f"SET {parameter} = {value}".encode())
    connection.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
    queries = [Vector(row) for row in ROWS[:20]]
    exact, search = systems.Exact(column, metric).search(10), index.search(10, setting)
    truth = ask(Prepared(connection, exact), queries)
    answers = ask(Prepared(connection, search), queries)
    assert answers.recall(truth, 10) > least
    plans = [
        str(connection.execute(f"EXPLAIN (GENERIC_PLAN) {text.as_string()}".encode()).fetchall())
        for text in (exact, search)
    ]
    assert ["Index Scan using" in plan for plan in plans] == [False, True]
