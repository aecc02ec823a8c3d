"""An index by a set of pgvector: created, searched, swapped, rolled back, dropped."""

import numpy as np
import psycopg
import pytest

from pg_hashindex import store
from pg_hashindex.hashers import ITQ

ROWS = 3000


@pytest.fixture
def docs(connection):
    """Table docs of 3,000 clustered vectors, and the vectors."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((40, 32))[rng.integers(40, size=ROWS)]
    vectors = (vectors + 0.6 * rng.standard_normal((ROWS, 32))).astype(np.float32)
    connection.execute(
        "CREATE TABLE docs (id bigint PRIMARY KEY, account integer, embedding vector(32))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for row, vector in enumerate(vectors, 1):
            copy.write_row([row, row % 50, str(vector.tolist())])
    connection.execute("ANALYZE docs")
    return vectors


def create(connection, name="docs", *, table="docs", **options):
    named = "".join(f", {option} => %({option})s" for option in options)
    return connection.execute(
        f"SELECT * FROM hashindex.create_index(%(name)s, %(table)s, 'embedding'{named})".encode(),
        {"name": name, "table": table, **options},
    ).fetchone()


def search(connection, query, *arguments, name="docs", **options):
    given = "".join(f", {value}" for value in arguments)
    given += "".join(f", {option} => %({option})s" for option in options)
    return connection.execute(
        f"SELECT id, distance FROM hashindex.search_{name}(%(query)s{given})".encode(),
        {"query": str(query.tolist()), **options},
    ).fetchall()


def exact(vectors, query, k, rows=None):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - unit @ (query / np.linalg.norm(query))
    if rows is not None:
        distances[~rows] = np.inf
    return list(np.argsort(distances, kind="stable")[:k] + 1)


def recall(connection, vectors, k=10, queries=30, rows=None, **options):
    found = 0
    for query in vectors[:queries]:
        answers = [row[0] for row in search(connection, query, k, **options)]
        assert len(answers) == k
        found += len(set(answers) & set(exact(vectors, query, k, rows)))
    return found / (queries * k)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "none"},
        {"access": "ivfflat"},
        {"store": True},
        {"model": "none", "access": "ivfflat"},
    ],
    ids=str,
)
def test_search_finds_the_nearest_rows(connection, docs, options):
    made = create(connection, **options)
    assert made is not None
    assert made[4] >= 0.94
    assert recall(connection, docs) >= 0.9
    for k in (1, 200, 1500, ROWS, 2 * ROWS):
        assert len(search(connection, docs[3], k)) == min(k, ROWS)


def test_filters_are_never_short(connection, docs):
    create(connection)
    for filter_, rows in [
        ("account = 3", 60),
        ("account < 10", 600),
        ("account < 40", 2400),
        ("false", 0),
    ]:
        assert len(search(connection, docs[0], 100, filter=filter_)) == min(rows, 100)
    some = np.arange(1, ROWS + 1) % 50 < 10
    assert recall(connection, docs, rows=some, filter="account < 10") >= 0.9


def test_many_dead_rows_do_not_shorten_answers(connection, docs):
    create(connection)
    connection.execute("UPDATE docs SET account = account + 1 WHERE id % 2 = 0")
    connection.execute("DELETE FROM docs WHERE id % 2 = 1")
    for k in (10, 100, 1000):
        assert len(search(connection, docs[0], k)) == k


def test_settings_are_put_back(connection, docs):
    create(connection)
    connection.execute("SET hnsw.ef_search = 77")
    search(connection, docs[0], 5)
    search(connection, docs[0], 2500)
    search(connection, docs[0], 5, filter="account < 40")
    for name, value in [
        ("hnsw.ef_search", "77"),
        ("hnsw.iterative_scan", "off"),
        ("hnsw.max_scan_tuples", "20000"),
        ("enable_seqscan", "on"),
    ]:
        assert connection.execute("SELECT current_setting(%s)", [name]).fetchone() == (value,)


def test_tenants(connection, docs):
    create(connection, tenant="account")
    found = search(connection, docs[0], 60, tenant=3)
    assert len(found) == 60
    assert {row[0] % 50 for row in found} == {3}
    assert len(search(connection, docs[0], 60, all_tenants=True)) == 60
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="search names none"):
        search(connection, docs[0])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="search names none"):
        search(connection, docs[0], filter="account = 3")


def test_swap_rollback_and_prune(connection, docs):
    create(connection)
    swapped = connection.execute("SELECT * FROM hashindex.swap_index('docs', 'none')").fetchone()
    assert swapped is not None
    assert swapped[-1] is True
    assert connection.execute("SELECT state FROM hashindex.index_set ORDER BY id").fetchall() == [
        ("former",),
        ("used",),
    ]
    assert recall(connection, docs) >= 0.93
    with pytest.raises(psycopg.errors.ObjectInUse, match="former set"):
        connection.execute("SELECT * FROM hashindex.swap_index('docs', access => 'ivfflat')")
    connection.execute("SELECT hashindex.rollback_index('docs')")
    assert recall(connection, docs) >= 0.9
    assert connection.execute("SELECT hashindex.prune_index('docs')").fetchone() == (1,)
    assert connection.execute(
        "SELECT count(*) FROM pg_indexes WHERE tablename = 'docs'"
    ).fetchone() == (2,)


def test_drop_leaves_the_table_as_it_was(connection, docs):
    create(connection, store=True)
    connection.execute("SELECT hashindex.drop_index('docs')")
    assert connection.execute(
        "SELECT count(*) FROM pg_indexes WHERE tablename = 'docs'"
    ).fetchone() == (1,)
    columns = connection.execute(
        "SELECT array_agg(attname::text) FROM pg_attribute "
        "WHERE attrelid = 'docs'::regclass AND attnum > 0 AND NOT attisdropped"
    ).fetchone()
    assert columns == (["id", "account", "embedding"],)
    assert connection.execute("SELECT count(*) FROM hashindex.model").fetchone() == (1,)


def test_an_index_that_is_there_is_taken_and_stays(connection, docs):
    connection.execute(
        "CREATE INDEX mine ON docs USING hnsw (embedding vector_l2_ops) WITH (m = 8)"
    )
    connection.execute(
        "CREATE INDEX halves ON docs USING hnsw ((embedding::halfvec(32)) halfvec_l2_ops)"
    )
    made = create(connection, model="none")
    assert made is not None
    assert made[:2] == ("vectors as halfvec in hnsw", "halves")
    create(connection, "second", model="none")
    connection.execute("SELECT hashindex.drop_index('docs'), hashindex.drop_index('second')")
    assert connection.execute("SELECT to_regclass('halves') IS NOT NULL").fetchone() == (True,)


def test_rename(connection, docs):
    create(connection)
    connection.execute("SELECT hashindex.rename_index('docs', 'blue')")
    assert len(search(connection, docs[0], name="blue")) == 10
    assert connection.execute("SELECT to_regproc('hashindex.search_docs')").fetchone() == (None,)


def test_candidates_are_in_the_order_of_codes(connection, docs):
    create(connection)
    rows = connection.execute(
        "SELECT c.id::bigint, c.distance, "
        "hashindex.code_docs(d.embedding) <~> hashindex.code_docs(%s::vector) "
        "FROM hashindex.candidates('docs', %s, 30) c JOIN docs d ON d.id = c.id::bigint",
        [str(docs[0].tolist())] * 2,
    ).fetchall()
    assert len(rows) == 30
    assert all(row[1] == row[2] for row in rows)


def test_explain_search_shows_the_index(connection, docs):
    create(connection)
    plan = "\n".join(
        row[0]
        for row in connection.execute(
            "SELECT hashindex.explain_search('docs', %s)", [str(docs[0].tolist())]
        )
    )
    assert "Index Scan using docs_hnsw" in plan


def test_every_reader_searches(connection, docs):
    create(connection)
    connection.execute(
        "CREATE ROLE reader_of_sets;GRANT SELECT (id, embedding, account) ON docs TO reader_of_sets"
    )
    connection.execute("SET ROLE reader_of_sets")
    try:
        assert len(search(connection, docs[0])) == 10
        assert len(search(connection, docs[0], filter="account < 20")) == 10
        assert (
            connection.execute(
                "SELECT count(*) FROM hashindex.candidates('docs', %s)", [str(docs[0].tolist())]
            ).fetchone()[0]
            > 10
        )
        assert connection.execute(
            "SELECT hashindex.recall('docs', sample => 10) > .8"
        ).fetchone() == (True,)
    finally:
        connection.execute("RESET ROLE; DROP OWNED BY reader_of_sets; DROP ROLE reader_of_sets")


def test_small_tables_get_vectors(connection, docs):
    connection.execute("DELETE FROM docs WHERE id > 500; ANALYZE docs")
    made = create(connection)
    assert made is not None
    assert made[0] == "vectors as halfvec in hnsw"


def test_lists_are_incomplete_in_sql(connection, docs):
    made = create(connection, access="lists")
    assert made is not None
    assert made[0] == "codes of docs:1 in lists"
    assert connection.execute("SELECT encoded FROM hashindex.index_set").fetchone() == (False,)


def test_writers_without_pgvectors_schema_are_named(connection, docs, as_role):
    model = ITQ(n_bits=16, random_state=0, normalize="l2").fit(docs).to_model("rotated")
    store.save(connection, model)
    as_role("writer")
    connection.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC; GRANT INSERT ON docs TO writer")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="its functions: writer"):
        create(connection, model="rotated")
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
    connection.execute("GRANT USAGE ON SCHEMA public TO writer")
    made = create(connection, model="rotated")
    assert made is not None
    assert made[0] == "codes of rotated:1 in hnsw"


def test_an_index_of_a_transaction_that_updated_rows(connection, docs):
    """Which may not use it yet."""
    with connection.transaction():
        connection.execute("UPDATE docs SET account = account + 1")
        made = create(connection)
        assert made is not None
        assert len(search(connection, docs[0], 20)) == 20
    assert recall(connection, docs) >= 0.9


def test_vectors_that_no_index_takes_are_searched_exactly(connection):
    connection.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, embedding vector(4100));"
        "INSERT INTO wide SELECT n, array_fill(n, ARRAY[4099]) || 1 FROM generate_series(1, 20) n"
    )
    made = create(connection, "wide", table="wide", model="none", metric="l2")
    assert made is not None
    assert made[:2] == ("vectors as halfvec without an index", None)
    found = connection.execute(
        "SELECT id FROM hashindex.search_wide((SELECT embedding FROM wide WHERE id = 7), 3)"
    ).fetchall()
    assert found[0] == (7,)
    assert len(found) == 3
