"""Commands that look at a distributed table, or learn from it."""

import pytest
from fixtures.citus import MODEL, TABLE, one, printed

from pg_hashindex.quality.doctor import diagnose

pytestmark = pytest.mark.citus

OF_TABLE = ("--table", TABLE, "--column", "embedding")


def test_sizes_are_those_of_the_shards(session):
    found = diagnose(session, TABLE, "embedding", measure=False).table
    shards = "SELECT sum(result::bigint) FROM run_command_on_shards(%s, $$SELECT {}('%%s')$$)"
    sizes = [
        int(one(session, shards.format(f"pg_{part}_size"), TABLE))
        for part in ("relation", "table", "indexes")
    ]
    assert [found.heap_bytes, found.heap_bytes + found.toast_bytes, found.index_bytes] == sizes
    assert (found.rows, found.kind) == (2000, "sharded table")


def test_the_doctor_looks_at_one_shard(session, cluster, url, monkeypatch):
    session.execute(f"CREATE INDEX ON {TABLE} USING hnsw (embedding vector_l2_ops)".encode())
    code, text = printed(url, "doctor", TABLE, "embedding")
    assert code == 3
    assert "in shards, which have indexes of their own" in text
    worker = cluster.worker(url)
    shard = one(
        session,
        "SELECT shard_name FROM citus_shards WHERE table_name = %s::regclass AND nodeport = %s "
        "ORDER BY shard_name LIMIT 1",
        TABLE,
        int(worker.rpartition(":")[2].partition("/")[0]),
    )
    asked = ("doctor", shard, "embedding", "--queries", "10")
    code, text = printed(worker, *asked)
    assert code == 3
    assert "is a shard, which Citus hides" in text
    monkeypatch.setenv("PGOPTIONS", "-c citus.override_table_visibility=off")
    code, text = printed(worker, *asked, "--filter", "category = 'b'")
    assert code == 0, text
    assert "ef_search 40 (now)" in text


def test_a_reference_table_has_no_doctor(local, url):
    local.execute("SELECT create_reference_table(%s)", [TABLE])
    code, text = printed(url, "doctor", TABLE, "embedding")
    assert (code, "in shards" in text) == (3, True)


def test_quickstart_makes_a_set(session, url):
    name = "citus_tests_quick"
    asked = ("quickstart", TABLE, "embedding", "--name", name, "--metric", "l2", "--yes")
    for _ in range(2):
        code, text = printed(url, *asked)
        assert code == 0, text
        assert f"it was not measured: pg-hashindex evaluate {name}" in text
    vector = one(session, f"SELECT embedding::text FROM {TABLE} WHERE id = 7")
    search = f"SELECT id, distance FROM hashindex.search_{name}(%s, 10)"
    found = session.execute(search.encode(), [vector]).fetchall()
    assert found[0] == (7, 0)
    assert len(found) == 10
    assert printed(url, "index", "drop", name, "--yes")[0] == 0
    session.execute(f"DROP TABLE {TABLE}".encode())
    assert printed(url, "model", "drop", name)[0] == 0


def test_training_in_every_way(session, url):
    pairs = f"SELECT id, id + 1, 1 FROM {TABLE} WHERE id < 300"
    try:
        for arguments in (
            ("--method", "itq", "--bits", "8"),
            ("--method", "pcah", "--bits", "8", "--all-rows"),
            ("--method", "itq-cca", "--bits", "8", "--labels", "category"),
            ("--method", "ssh", "--bits", "8", "--pairs", pairs),
        ):
            code, text = printed(url, "model", "train", f"{MODEL}_more", *arguments, *OF_TABLE)
            assert code == 0, text
        trained = "SELECT hashindex.train(%s, %s, 'embedding', 'thermometer')"
        assert one(session, trained, f"{MODEL}_more", TABLE) == f"{MODEL}_more:5"
    finally:
        printed(url, "model", "drop", f"{MODEL}_more", "--all")
