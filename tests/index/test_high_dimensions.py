"""Vectors of more dimensions than pgvector's HNSW takes, and vectors that are kept out of line."""

import numpy as np
import psycopg
import pytest
from fixtures.indexes import begin_lists, with_access
from pgvector import HalfVector, Vector

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.training import train

pytestmark = pytest.mark.newest

ROWS = 1_100


def clustered(dimension, kind):
    """Return unit rows in 40 clusters, which differ within a cluster in 30 directions."""
    rng = np.random.default_rng(dimension)
    spread = rng.standard_normal((30, dimension))
    centres = rng.standard_normal((40, 30))
    made = (centres[rng.integers(40, size=ROWS)] + rng.standard_normal((ROWS, 30))) @ spread
    unit = made / np.linalg.norm(made, axis=1, keepdims=True)
    return unit.astype(np.float16 if kind == "halfvec" else np.float32).astype(np.float32)


def load(connection, X, kind):
    connection.execute(
        f"CREATE TABLE wide (id bigint PRIMARY KEY, v {kind}({X.shape[1]}))".encode()
    )
    value = HalfVector if kind == "halfvec" else Vector
    with connection.cursor() as cursor, cursor.copy("COPY wide FROM STDIN") as copy:
        for number, row in enumerate(X):
            copy.write_row((number, value(row)))
    connection.execute("ANALYZE wide")


@pytest.mark.parametrize(
    ("dimension", "kind", "method"), [(2_100, "vector", "itq"), (4_100, "halfvec", "lsh")]
)
def test_more_dimensions_than_pgvector_indexes(connection, dimension, kind, method):
    """Trained, indexed, searched by every path that makes sense, kept fresh, and right."""
    X = clustered(dimension, kind)
    load(connection, X, kind)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="cannot have more than"):
        connection.execute(f"CREATE INDEX ON wide USING hnsw (v {kind}_cosine_ops)".encode())
    model = train(X, "m", method, n_bits=192, metric="cosine")
    store.save(connection, model)
    index = begin_lists(connection, "wide_idx", table="wide", column="v", model="m")
    index.encode()
    with_access(index, "lists")
    HashIndex.open(connection, "wide_idx").encode()
    connection.execute("UPDATE wide SET v = (SELECT w.v FROM wide w WHERE w.id = 8) WHERE id = 7")
    X[7] = X[8]
    index = HashIndex.open(connection, "wide_idx").configure(effort=20)
    assert index.access == "lists"
    hits = index.search(X[7], 3, candidates=50)
    assert {hit.id for hit in hits[:2]} == {7, 8}
    tried = evaluate(index, queries=40, candidates=[80])
    assert tried.points[0].recall >= 0.95
    near = np.argsort(-X @ X[20], kind="stable")[:10].tolist()
    found = index.search(X[20], 10, candidates=ROWS, effort=1_000)
    assert [hit.id for hit in found] == near
    found = index.search(X[20], 3, candidates=50, filter="id = 21")
    assert [hit.id for hit in found] == [21]


def test_each_vector_is_read_out_of_line_once(connection):
    """By exact searches, with a filter too, and of landmarks none is."""
    X = clustered(2_500, "vector")
    load(connection, X, "vector")
    store.save(connection, train(X, "m", "lsh", n_bits=64, metric="cosine"))
    index = begin_lists(connection, "wide_idx", table="wide", column="v", model="m", access="lists")
    index.encode()
    connection.execute("VACUUM wide")
    exact = "SELECT id, v <=> %s AS distance FROM wide ORDER BY distance LIMIT 10"
    once = toast_blocks(connection, exact, Vector(X[3]))
    assert once >= ROWS
    for statement in (
        "SELECT * FROM hashindex.exact_search('wide_idx', %s)",
        "SELECT * FROM hashindex.search('wide_idx', %s, filter => 'id >= 0', candidates => 1100)",
    ):
        assert toast_blocks(connection, statement, Vector(X[3])) <= 1.1 * once
    # The query is a row's vector, out of line: it is read once, not for every candidate.
    search = "SELECT * FROM hashindex.search_wide_idx({}, candidates => 200, effort => 1000)"
    given = toast_blocks(connection, search.format("%s"), Vector(X[3]))
    read = toast_blocks(connection, search.format("(SELECT v FROM wide WHERE id = %s)"), 3)
    assert read <= given + 60
    row = connection.execute(
        "SELECT sum(pg_relation_size(reltoastrelid)) FROM pg_class "
        "WHERE relname ~ '^set_[0-9]+_landmarks$'"
    ).fetchone()
    assert row == (0,)


def test_vectors_come_into_their_rows_by_updates(connection):
    """As the page on high dimensions says; the index does not encode rows whose vector is equal."""
    X = clustered(1_536, "vector")[:300]
    load(connection, X, "vector")
    store.save(connection, train(X, "m", "lsh", n_bits=16, metric="cosine", force=True))
    begin_lists(connection, "wide_idx", table="wide", column="v", model="m").encode()
    connection.execute("ALTER TABLE wide ALTER COLUMN v SET STORAGE MAIN")
    codes = "SELECT id, xmin::text FROM hashindex.set_1_codes ORDER BY id"
    before = connection.execute(codes).fetchall()

    def heap():
        row = connection.execute("SELECT pg_relation_size('wide')").fetchone()
        return int(row[0])

    connection.execute("UPDATE wide SET v = v WHERE id < 300")
    assert heap() < 100_000
    connection.execute("UPDATE wide SET v = (v::real[])::vector(1536) WHERE id < 300")
    assert heap() > 300 * 4 * 1_536
    assert connection.execute(codes).fetchall() == before


def toast_blocks(connection, statement, value):
    """Count the blocks of TOAST that a statement reads from the table."""

    def read():
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(
            "SELECT toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit "
            "FROM pg_statio_all_tables WHERE relname = 'wide'"
        ).fetchone()
        return int(row[0])

    # The first run plans.
    connection.execute(statement.encode(), [value]).fetchall()
    before = read()
    connection.execute(statement.encode(), [value]).fetchall()
    return read() - before
