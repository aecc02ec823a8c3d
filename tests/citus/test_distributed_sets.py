"""Sets of pgvector on a distributed table."""

import re

import numpy as np
import pytest
from fixtures.citus import ROWS, TABLE, one, printed
from pgvector import Vector

from pg_hashindex.db.connection import connect

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

    bits = one(session, "SELECT n_bits FROM hashindex.model WHERE name = 'spread'")

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
                f" hashindex.code_spread(embedding)::bit({bits}) <~> %s::bit({bits})"
                " LIMIT 99".encode(),
                ["1" * bits],
            ).fetchall()
            assert any("Index Scan using" in row and "rows=23.00" in row for (row,) in shown)
            assert one(session, "SHOW citus.propagate_set_commands") == "local"
        assert one(session, "SHOW hnsw.ef_search") == "40"
        with session.transaction():
            session.execute("SET TRANSACTION READ ONLY")
            assert one(session, "SELECT count(*) FROM hashindex.search_spread(%s)", query) == 10
    finally:
        session.execute("SELECT hashindex.drop_index('spread')")


KEPT_BY_CITUS = {
    "distributed": ("", "SELECT create_distributed_table('verbs', 'id')"),
    "reference": ("", "SELECT create_reference_table('verbs')"),
    "in parts": (
        "PARTITION BY RANGE (part)",
        "CREATE TABLE verbs_0 PARTITION OF verbs FOR VALUES FROM (0) TO (2);"
        "CREATE TABLE verbs_2 PARTITION OF verbs FOR VALUES FROM (2) TO (3);"
        "SELECT create_distributed_table('verbs', 'id')",
    ),
}


@pytest.fixture(params=KEPT_BY_CITUS)
def verbs(url, rows, request):
    """A connection, and table verbs."""
    divided, keep = KEPT_BY_CITUS[request.param]
    with connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS verbs, renamed CASCADE")
        connection.execute(
            "CREATE TABLE verbs (id bigint, part integer, embedding vector(8), "
            f"PRIMARY KEY (id, part)) {divided}".encode()
        )
        for statement in keep.split(";"):
            connection.execute(statement.encode())
        with connection.cursor() as cursor, cursor.copy("COPY verbs FROM STDIN") as copy:
            for number, row in enumerate(rows, start=1):
                copy.write_row((number, number % 3, Vector(row)))
        yield connection
    with connect(url) as connection:
        connection.execute(
            "SELECT hashindex.drop_index(i.name) FROM hashindex.index i WHERE i.name ~ 'verbs'"
        )
        connection.execute("DROP TABLE IF EXISTS verbs, renamed CASCADE")
        connection.execute("DELETE FROM hashindex.model WHERE name = 'verbs'")


def test_verbs(verbs, url, rows):
    """Every verb, and no search that is short or far off after it."""

    def run(*arguments, name="verbs", code=0):
        done, text = printed(url, *arguments)
        assert done == code, text
        for k in (5, 300, 2 * ROWS):
            found = verbs.execute(
                f"SELECT id FROM hashindex.search_{name}(%s, %s)".encode(), [Vector(rows[9]), k]
            ).fetchall()
            assert len(found) == min(k, ROWS)
        return text

    of_index = ("verbs", "--table", "verbs", "--column", "embedding", "--metric", "l2")
    text = run("index", "create", *of_index)
    assert "0.0 MB" not in text
    candidates, effort = verbs.execute(
        "SELECT candidates, effort FROM hashindex.index_set"
    ).fetchone()
    assert 1 <= effort <= candidates
    assert "in order" in run("index", "check", "verbs", "--full")
    run("tune", "verbs", "--recall", ".9", "--queries", "10", "--apply")
    assert "unmeasured" not in run("index", "swap", "verbs", "--model", "none")
    run("index", "rollback", "verbs")
    run("index", "prune", "verbs")
    # In one transaction.
    swapped = verbs.execute(
        "SELECT recall, in_use FROM hashindex.swap_index('verbs', access => 'ivfflat')"
    ).fetchone()
    assert swapped[0] > 0.8
    assert swapped[1]
    run("index", "prune", "verbs")
    run("index", "swap", "verbs", "--store", "--force")
    run("index", "prune", "verbs")
    run("index", "rename", "verbs", "verbs_now", name="verbs_now")
    relation = one(verbs, "SELECT relation FROM hashindex.index_set")
    verbs.execute("ALTER TABLE verbs RENAME TO renamed")
    assert printed(url, "index", "check", "verbs_now")[0] == 1
    run("index", "repair", "verbs_now", name="verbs_now")
    verbs.execute("ALTER TABLE renamed RENAME COLUMN embedding TO v")
    run("index", "repair", "verbs_now", name="verbs_now")
    verbs.execute(f'DROP INDEX "{relation}"'.encode())
    assert "is gone" in run("index", "check", "verbs_now", name="verbs_now", code=1)
    assert "again" in run("index", "repair", "verbs_now", name="verbs_now")
    assert "in order" in run("index", "check", "verbs_now", name="verbs_now")
    assert printed(url, "index", "drop", "verbs_now", "--yes")[0] == 0
    left = verbs.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
        " WHERE a.amname IN ('hnsw', 'ivfflat')"
    ).fetchall()
    assert left == []


def test_a_table_that_is_distributed_later(local, url, rows):
    name = "verbs_later"
    asked = ("--table", TABLE, "--column", "embedding", "--metric", "l2", "--model", "none")
    assert printed(url, "index", "create", name, *asked)[0] == 0
    local.execute("SELECT create_distributed_table(%s, 'id')", [TABLE])
    assert printed(url, "index", "repair", name)[0] == 0
    for k in (5, 300):
        found = local.execute(
            f"SELECT id FROM hashindex.search_{name}(%s, %s)".encode(), [Vector(rows[9]), k]
        ).fetchall()
        assert len(found) == k
        assert found[0] == (10,)
    assert printed(url, "index", "drop", name, "--yes")[0] == 0
