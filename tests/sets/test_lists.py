"""Lists as a set of an index: built beside, exchanged, rolled back, pruned, by SQL alone."""

import numpy as np
import pytest
from test_sets import create, search

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex


@pytest.fixture
def docs(connection):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((40, 32))[rng.integers(40, size=2000)]
    vectors = (vectors + 0.6 * rng.standard_normal((2000, 32))).astype(np.float32)
    connection.execute(
        "CREATE TABLE docs (id bigint PRIMARY KEY, account integer, embedding vector(32))"
    )
    store.save(connection, LSH(n_bits=256, random_state=0).fit(vectors).to_model("texts"))
    return vectors


def fill(connection, vectors):
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for row, vector in enumerate(vectors, 1):
            copy.write_row([row, row % 50, str(vector.tolist())])


def build(connection, set_id):
    """Run the steps of a build without landmarks by SQL: all keys are logged, and applied."""
    with connection.transaction():
        connection.execute("LOCK TABLE docs IN SHARE ROW EXCLUSIVE MODE")
        connection.execute("SELECT hashindex._begin_lists(%s)", [set_id])
        connection.execute("SELECT hashindex._order_lists(%s, NULL)", [set_id])
        connection.execute(f"INSERT INTO hashindex.set_{set_id}_log SELECT id FROM docs".encode())
        connection.execute("SELECT hashindex._finish_lists(%s)", [set_id])


def recall(connection):
    return connection.execute("SELECT hashindex.recall('docs', candidates => 300)").fetchone()[0]


def books(connection, name="docs"):
    return connection.execute(
        "SELECT b.* FROM hashindex.index_set s, hashindex._books_of(s.id) b "
        "WHERE s.index_name = %s AND s.state = 'used'",
        [name],
    ).fetchone()


def faults(connection, name):
    return connection.execute(
        "SELECT * FROM hashindex.health(%s, true) WHERE status <> 'ok'", [name]
    ).fetchall()


def test_an_empty_table_has_lists_at_once(connection, docs):
    create(connection, model="texts", access="lists")
    fill(connection, docs)
    assert books(connection) == (2000, 2000, 0, 0)
    assert recall(connection) > 0.9
    connection.execute("DELETE FROM docs WHERE id <= 100")
    connection.execute("UPDATE docs SET id = id + 5000 WHERE id < 200")
    assert books(connection) == (1900, 1900, 0, 0)


def test_first_lists_are_exact_until_they_are_built(connection, docs):
    fill(connection, docs)
    create(connection, model="texts", access="lists")
    assert recall(connection) == 1
    (set_id,) = connection.execute("SELECT id FROM hashindex.index_set").fetchone()
    build(connection, set_id)
    connection.execute("SELECT hashindex._exchange_set('docs', %s)", [set_id])
    assert books(connection) == (2000, 2000, 0, 0)
    assert recall(connection) > 0.9


def test_swap_from_pgvector_to_lists_and_back(connection, docs):
    fill(connection, docs)
    create(connection, model="none", access="hnsw")
    (set_id,) = connection.execute(
        "SELECT (s).id FROM "
        "hashindex._begin_swap('docs', 'texts', 'lists', NULL, NULL, NULL, false)"
    ).fetchone()
    build(connection, set_id)
    connection.execute("INSERT INTO docs VALUES (9001, 1, %s)", [str(docs[0].tolist())])
    connection.execute("SELECT hashindex._exchange_set('docs', %s)", [set_id])
    assert books(connection) == (2001, 2001, 0, 0)
    assert search(connection, docs[0], 2)[1][0] in (1, 9001)
    connection.execute("SELECT hashindex.rollback_index('docs')")
    connection.execute("DELETE FROM docs WHERE id = 9001")
    connection.execute("INSERT INTO docs VALUES (9002, 1, %s)", [str(docs[1].tolist())])
    assert len(search(connection, docs[0], 10)) == 10
    connection.execute("SELECT hashindex.rollback_index('docs')")
    assert books(connection) == (2001, 2001, 0, 0)
    connection.execute("SELECT hashindex.rename_index('docs', 'papers')")
    connection.execute("INSERT INTO docs VALUES (9003, 1, %s)", [str(docs[1].tolist())])
    assert books(connection, "papers") == (2002, 2002, 0, 0)
    connection.execute("SELECT hashindex.rollback_index('papers')")
    connection.execute("SELECT hashindex.prune_index('papers')")
    assert connection.execute(
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'docs'::regclass"
    ).fetchone() == (0,)
    assert faults(connection, "papers") == []
    connection.execute("SELECT hashindex.drop_index('papers')")
    assert connection.execute(
        "SELECT count(*) FROM hashindex.object WHERE index_name IS NOT NULL"
    ).fetchone() == (0,)
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []


def test_swap_from_lists_to_pgvector_is_measured_by_its_own_search(connection, docs):
    create(connection, model="texts", access="lists")
    fill(connection, docs)
    swapped = connection.execute(
        'SELECT "set", recall, former_recall, in_use '
        "FROM hashindex.swap_index('docs', access => 'hnsw')"
    ).fetchone()
    assert swapped[0] == "codes of texts:1 in hnsw"
    assert min(swapped[1:3]) > 0.9
    assert swapped[3]
    of_lists = connection.execute(
        "SELECT state, num_nonnulls(encoded, unverified, trained_rows, generation, "
        "codes_oid) > 0 FROM hashindex.index_set ORDER BY id"
    ).fetchall()
    assert of_lists == [("former", True), ("used", False)]


def test_swap_from_a_column_of_codes_to_lists(connection, docs):
    fill(connection, docs)
    connection.execute("SELECT hashindex.create_functions('texts')")
    connection.execute("ALTER TABLE docs ADD code bit(256)")
    connection.execute("UPDATE docs SET code = hashindex.code_texts(embedding)")
    create(connection, model="texts", access="hnsw", code_column="code")
    swapped = HashIndex.open(connection, "docs").swap(access="lists", force=True)
    assert swapped.set == "codes of texts:1 in lists"
    assert books(connection) == (2000, 2000, 0, 0)
    connection.execute("SELECT hashindex.rollback_index('docs')")
    assert recall(connection) > 0.9


def test_health_of_lists(connection, docs):
    create(connection, model="texts", access="lists")
    fill(connection, docs)
    assert faults(connection, "docs") == []
    connection.execute("SELECT hashindex.drop_index('docs')")
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []
