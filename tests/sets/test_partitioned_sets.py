"""Sets of pgvector on a table whose partitions have partitions."""

import numpy as np
import psycopg
import pytest
from pgvector import Vector

from pg_hashindex.index.handle import HashIndex

ROWS = 1200
#: With a digit, as long as a name may be.
LONG = "Docs".ljust(62, "s")
TABLE = {"table": "docs", "column": "v"}


@pytest.fixture
def rows(connection):
    parts = (
        "CREATE TABLE docs (id integer, region text, v vector(16), PRIMARY KEY (region, id))"
        " PARTITION BY LIST (region);"
        "CREATE TABLE docs_eu PARTITION OF docs FOR VALUES IN ('eu') PARTITION BY RANGE (id);"
        f'CREATE TABLE "{LONG}1" PARTITION OF docs_eu FOR VALUES FROM (0) TO (500);'
        f'CREATE TABLE "{LONG}2" PARTITION OF docs_eu FOR VALUES FROM (500) TO (5000);'
        "CREATE TABLE docs_us PARTITION OF docs FOR VALUES IN ('us')"
    )
    connection.execute(parts.encode())
    made = np.random.default_rng(4).standard_normal((ROWS, 16)).astype(np.float32)
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for n, vector in enumerate(made):
            copy.write_row((n, "us" if n % 3 == 0 else "eu", Vector(vector)))
    connection.execute("ANALYZE docs")
    return made


def indexes(connection):
    """pgvector's indexes of all parts, by table: valid, attached."""
    found = connection.execute(
        "SELECT (SELECT relname FROM pg_class WHERE oid = x.indrelid), x.indisvalid,"
        " EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = x.indexrelid)"
        " FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam"
        " WHERE a.amname IN ('hnsw', 'ivfflat')"
    ).fetchall()
    return sorted(found)


WHOLE = [
    (f"{LONG}1", True, True), (f"{LONG}2", True, True), ("docs", True, False),
    ("docs_eu", True, True), ("docs_us", True, True),
]  # fmt: skip


def test_built_part_by_part(connection, rows):
    index = HashIndex.create(connection, "docs", **TABLE)
    assert indexes(connection) == WHOLE
    set_of = "SELECT s.candidates, s.effort FROM hashindex.index_set s WHERE s.state = 'used'"
    candidates, effort = connection.execute(set_of).fetchone()
    assert 1 <= effort < candidates
    connection.execute("CREATE TABLE docs_asia PARTITION OF docs FOR VALUES IN ('asia')")
    connection.execute("INSERT INTO docs SELECT id, 'asia', v FROM docs WHERE id % 3 = 0")
    assert ("docs_asia", True, True) in indexes(connection)
    for k in (1, 10, 700, 5000):
        found = connection.execute(
            "SELECT * FROM hashindex.search_docs(%s, %s)", [Vector(rows[5]), k]
        )
        assert len(found.fetchall()) == min(k, ROWS + ROWS // 3)
    assert connection.execute("SELECT hashindex.recall('docs')").fetchone()[0] > 0.8
    done = index.swap(model="none", access="ivfflat", force=True)
    assert done.in_use
    index.rollback()
    assert index.prune() == 1
    index.drop()
    assert indexes(connection) == []


def test_an_empty_partition_has_no_rows_to_count(connection, rows):
    connection.execute("CREATE TABLE docs_asia PARTITION OF docs FOR VALUES IN ('asia')")
    estimated = "SELECT hashindex._estimated_rows('docs')"
    assert connection.execute(estimated).fetchone() == (ROWS,)
    connection.execute("INSERT INTO docs SELECT id, 'asia', v FROM docs WHERE id < 9")
    assert connection.execute(estimated).fetchone() == (None,)


@pytest.mark.parametrize("last", range(1, 9))
def test_a_build_that_was_cut_is_begun_again(connection, rows, monkeypatch, last):
    from pg_hashindex.index import sets

    run = sets._run

    def cut(connection, statements, table):
        run(connection, statements[:last], table)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sets, "_run", cut)
        with pytest.raises(KeyboardInterrupt):
            HashIndex.create(connection, "docs", **TABLE, model="none")
    assert indexes(connection) == []
    HashIndex.create(connection, "docs", **TABLE, model="none")
    assert indexes(connection) == WHOLE


def test_cursors_and_pooled_sessions(connection, rows):
    connection.execute("SELECT hashindex.create_index('docs', 'docs', 'v')")
    with connection.transaction():
        before = connection.execute("SHOW hnsw.ef_search").fetchone()
        cursor = psycopg.ServerCursor(connection, "page")
        cursor.execute("SELECT id, distance FROM hashindex.search_docs(%s, 300)", [Vector(rows[9])])
        first = cursor.fetchmany(50)
        assert connection.execute("SHOW hnsw.ef_search").fetchone() == before
        connection.execute("UPDATE docs SET v = v WHERE id < 600")
        rest = cursor.fetchall()
        cursor.close()
    assert len({*first, *rest}) == 300
    connection.execute("DISCARD ALL")
    search = (
        "SELECT count(*) FROM public.docs d, LATERAL hashindex.search_docs(d.v, 7) s WHERE d.id < 9"
    )
    assert connection.execute(search).fetchone() == (63,)
    assert connection.execute("SHOW hnsw.ef_search").fetchone() == ("40",)
