"""Commands that look at a distributed table, measure it or learn from it."""

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, assert_fresh, bits_of, exact, one
from pg_hashindex.cli import main

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.doctor import diagnose

pytestmark = pytest.mark.citus

OF_TABLE = ("--table", TABLE, "--column", "embedding")


def told(url, *arguments):
    """Run a command; return its exit code and what it prints, as one line."""
    done = CliRunner().invoke(main, [*arguments, "--database-url", url])
    return done.exit_code, " ".join(done.output.split())


def test_sizes_are_those_of_the_shards(session):
    found = diagnose(session, TABLE, "embedding", measure=False).table
    shards = "SELECT sum(result::bigint) FROM run_command_on_shards(%s, $$SELECT {}('%%s')$$)"
    sizes = [
        int(one(session, shards.format(f"pg_{part}_size"), TABLE))
        for part in ("relation", "table", "indexes")
    ]
    assert [found.heap_bytes, found.heap_bytes + found.toast_bytes, found.index_bytes] == sizes
    assert found.rows == 2000


def test_the_doctor_looks_at_one_shard(session, cluster, filled, monkeypatch):
    session.execute(f"CREATE INDEX ON {TABLE} USING hnsw (embedding vector_l2_ops)".encode())
    code, text = told(filled, "doctor", TABLE, "embedding")
    assert code == 3
    assert "in shards, which have indexes of their own" in text
    worker = cluster.worker(filled)
    shard = one(
        session,
        "SELECT shard_name FROM citus_shards WHERE table_name = %s::regclass AND nodeport = %s "
        "ORDER BY shard_name LIMIT 1",
        TABLE,
        int(worker.rpartition(":")[2].partition("/")[0]),
    )
    asked = ("doctor", shard, "embedding", "--queries", "10")
    code, text = told(worker, *asked)
    assert code == 3
    assert "is a shard, which Citus hides" in text
    monkeypatch.setenv("PGOPTIONS", "-c citus.override_table_visibility=off")
    code, text = told(worker, *asked, "--filter", "category = 'b'")
    assert code == 0, text
    assert "ef_search 40 (now)" in text


def test_quickstart(session, filled, monkeypatch):
    monkeypatch.setattr("pg_hashindex.cli.quickstart._QUERIES", 10)
    name = "citus_tests_quick"
    asked = ("quickstart", *OF_TABLE, "--name", name, "--metric", "l2", "--recall", "0.5")
    code, text = told(filled, *asked)
    assert (code, "(0.0 MB) and its HNSW" in text) == (1, False), text
    try:
        code, text = told(filled, *asked, "--as", "index", "--yes")
        assert code == 0, text
        assert_fresh(HashIndex.open(session, name))
    finally:
        told(filled, "index", "drop", name, "--yes")
        told(filled, "model", "drop", name)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["SELECT create_reference_table('odd')"], "has no distribution column"),
        (
            [
                "ALTER TABLE odd DROP CONSTRAINT odd_pkey",
                "SELECT create_distributed_table('odd', 'tenant')",
            ],
            "is distributed by 'tenant'",
        ),
    ],
    ids=["reference", "tenant"],
)
def test_tables_that_are_refused(session, filled, statements, message):
    session.execute("CREATE TABLE odd (id bigint PRIMARY KEY, tenant bigint, embedding vector(8))")
    try:
        session.execute("INSERT INTO odd SELECT id, id % 5, embedding FROM rows_to_copy")
        for statement in statements:
            session.execute(statement.encode())
        models = "SELECT count(*) FROM hashindex.model"
        before = one(session, models)
        of_odd = ("--table", "odd", "--column", "embedding")
        code, text = told(filled, "quickstart", *of_odd, "--id", "id", "--as", "index", "--yes")
        assert code == 3, text
        assert message in text
        code, text = told(filled, "doctor", "odd", "embedding")
        assert (code, "in shards" in text) == (3, True)
        assert one(session, models) == before
    finally:
        session.execute("DROP TABLE odd")


def test_tuning(make, filled):
    make(access="landmarks")
    code, text = told(filled, "tune", INDEX, "--recall", "0.8", "--queries", "20", "--apply")
    assert code == 0, text
    assert f"searches of {INDEX} keep" in text


def test_evaluating_in_every_way(make, filled):
    make(access="landmarks")
    few = ("--queries", "10")
    for arguments in (
        ("evaluate", INDEX, *few, "--save", "--candidates", "2000"),
        ("evaluate", INDEX, "--history"),
        ("evaluate", INDEX, "--queries-from", f"SELECT embedding FROM {TABLE} WHERE id < 9"),
    ):
        code, text = told(filled, *arguments)
        assert code == 0, text


def test_training_in_every_way(session, filled):
    pairs = f"SELECT id, id + 1, 1 FROM {TABLE} WHERE id < 300"
    try:
        for arguments in (
            ("--method", "itq", "--bits", "8"),
            ("--method", "pcah", "--bits", "8", "--all-rows"),
            ("--method", "itq-cca", "--bits", "8", "--labels", "category"),
            ("--method", "ssh", "--bits", "8", "--pairs", pairs),
        ):
            code, text = told(filled, "model", "train", f"{MODEL}_more", *arguments, *OF_TABLE)
            assert code == 0, text
        trained = "SELECT hashindex.train(%s, %s, 'embedding', 'itq', 8)"
        assert one(session, trained, f"{MODEL}_more", TABLE) == f"{MODEL}_more:5"
    finally:
        told(filled, "model", "drop", f"{MODEL}_more", "--all")


def test_a_model_encodes_the_rows_of_a_query(make):
    """By its layers: shards have no catalog to look its name up in."""
    index = make()
    connection = index.connection
    found = connection.execute(
        "SELECT id, hashindex.encode_with((SELECT layers FROM hashindex.model WHERE name = %s), "
        f"embedding)::text FROM {TABLE} WHERE id <= 50 ORDER BY id",
        [MODEL],
    ).fetchall()
    rows = connection.execute(
        f"SELECT embedding FROM {TABLE} WHERE id <= 50 ORDER BY id".encode()
    ).fetchall()
    bits = bits_of(index, np.stack([row[0].to_numpy() for row in rows]))
    assert [text for _, text in found] == ["".join("01"[int(bit)] for bit in row) for row in bits]


def test_words_and_vectors(make):
    """The one row with the word is the fifth by vector: .5 / (60 + 1) + .5 / (60 + 5)."""
    index = make().configure(candidates=2000)
    connection = index.connection
    fifth = exact(connection, 5)[4]
    connection.execute(f"UPDATE {TABLE} SET category = 'needle' WHERE id = {fifth}".encode())
    found = connection.execute(
        "SELECT id, score, word_rank FROM hashindex.hybrid(%s, %s, 'needle', 'category', 3)",
        [INDEX, QUERY],
    ).fetchall()
    key, score, place = found[0]
    assert (int(key), place) == (fifth, 1)
    assert score == pytest.approx(0.5 / 61 + 0.5 / 65)
    filtered = connection.execute(
        "SELECT id FROM hashindex.hybrid(%s, %s, 'needle', 'category', 3, "
        "filter => 'category = ''b''')",
        [INDEX, QUERY],
    ).fetchall()
    assert [int(row[0]) for row in filtered] == exact(connection, 3, "category = 'b'")


def test_functions_of_one_transaction(make):
    index = make(access="landmarks")
    connection = index.connection
    assert one(connection, "SELECT hashindex.encode_rows(%s)", INDEX) == 0
    with pytest.raises(psycopg.Error, match="which Python builds landmarks for"):
        connection.execute("SELECT hashindex.build_landmarks(%s)", [INDEX])
    assert one(connection, "SELECT hashindex.swap_model(%s, %s)", INDEX, f"{MODEL}_itq")
    now = HashIndex.open(connection, INDEX)
    assert (now.access, now.building) == ("scan", "landmarks")
    assert_fresh(now)
    now.encode()
    assert HashIndex.open(connection, INDEX).access == "landmarks"
    code = one(connection, "SELECT hashindex.code_of(%s, '7')::text", INDEX)
    (row,) = connection.execute(f"SELECT embedding FROM {TABLE} WHERE id = 7".encode()).fetchone()
    (bits,) = bits_of(HashIndex.open(connection, INDEX), row.to_numpy()[None])
    assert code == "".join("01"[int(bit)] for bit in bits)
    assert [
        hit.id for hit in HashIndex.open(connection, INDEX).search(QUERY, 5, candidates=2000)
    ] == [
        row[0]
        for row in connection.execute(
            "SELECT id::bigint FROM hashindex.exact_search(%s, %s, 5)", [INDEX, QUERY]
        )
    ]
