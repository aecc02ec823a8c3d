"""The functions that an index of a distributed table gets, as text, like tests/db/test_golden.py.

Run with ``UPDATE_GOLDEN=1`` to write ``tests/golden/shards.sql`` again.
"""

import os
import re
from pathlib import Path

import pytest
from fixtures.citus import one

from pg_hashindex import store
from pg_hashindex.hashers import ITQ
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = "citus_tests_golden"


def test_functions_of_an_index_on_shards(session, rows):
    hasher = ITQ(n_bits=8, normalize="l2", random_state=3).fit(rows)
    store.save(session, hasher.to_model(MODEL, cuts=3, metric="cosine"))
    index_name = "citus_tests_shards"
    session.execute("CREATE TABLE golden AS SELECT id, embedding FROM rows_to_copy")
    try:
        session.execute("ALTER TABLE golden ADD PRIMARY KEY (id)")
        session.execute(
            "SELECT create_distributed_table('golden', 'id', shard_count => 2, "
            "colocate_with => 'none')"
        )
        made = HashIndex.create(
            session, index_name, table="golden", column="embedding", model=MODEL, access="landmarks"
        )
        made.encode()
        found = texts(session, HashIndex.open(session, index_name))
    finally:
        HashIndex.open(session, index_name).drop()
        session.execute("DROP TABLE golden")
    file = GOLDEN / "shards.sql"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text(), "if that is meant, run it with UPDATE_GOLDEN=1"


def texts(connection, index):
    # A search within a radius is as in landmarks.sql.
    functions = connection.execute(
        "SELECT pg_get_functiondef(o.id) FROM hashindex._objects_of(hashindex.find_index(%s)) o "
        "WHERE o.kind = 'function' AND o.object NOT LIKE 'hashindex.within%%'",
        [index.name],
    ).fetchall()
    whole = "\n".join(text.strip() + ";\n" for (text,) in functions)
    # Numbers that come out of sequences.
    generation = one(
        connection, "SELECT generation FROM hashindex.index WHERE name = %s", index.name
    )
    whole = re.sub(
        rf"(_codes_|_landmarks_|generation = ){generation}(?![0-9])", r"\1GENERATION", whole
    )
    whole = re.sub(rf"(_node_layers_of\(){index.model_id}\b", r"\1MODEL", whole)
    for what in ("golden", index.row.codes, index.row.landmarks):
        table = what if isinstance(what, str) else what.as_string(connection)
        shards = connection.execute(
            "SELECT number, shard FROM hashindex._shards_of(%s::regclass)", [table]
        ).fetchall()
        for number, shard in shards:
            whole = re.sub(rf"\b{shard}\b|(?<=_){shard}\b", f"SHARD{number}", whole)
    return whole
