"""The functions that an index of a distributed table gets, as text, like tests/db/test_golden.py.

Run with ``UPDATE_GOLDEN=1`` to write the files of ``tests/golden`` again.
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


@pytest.mark.parametrize(("name", "tenant"), [("shards", None), ("shards_tenants", "tenant")])
def test_functions_of_an_index_on_shards(session, rows, name, tenant):
    hasher = ITQ(n_bits=8, normalize="l2", random_state=3).fit(rows)
    store.save(session, hasher.to_model(MODEL, levels=4, metric="cosine"))
    index_name = f"citus_tests_{name}"
    session.execute(
        "CREATE TABLE golden AS SELECT id % 2 AS tenant, id, embedding FROM rows_to_copy"
    )
    try:
        session.execute(f"ALTER TABLE golden ADD PRIMARY KEY ({'tenant, ' if tenant else ''}id)")
        session.execute(
            "SELECT create_distributed_table('golden', %s, shard_count => 2, "
            "colocate_with => 'none')",
            [tenant or "id"],
        )
        made = HashIndex.create(
            session, index_name, table="golden", column="embedding", model=MODEL, tenant=tenant,
            access="landmarks",
        )  # fmt: skip
        made.encode()
        found = texts(session, HashIndex.open(session, index_name))
    finally:
        HashIndex.open(session, index_name).drop()
        session.execute("DROP TABLE golden")
    file = GOLDEN / f"{name}.sql"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text(), "if that is meant, run it with UPDATE_GOLDEN=1"


def texts(connection, index):
    functions = connection.execute(
        "SELECT pg_get_functiondef(f) FROM hashindex._functions_of(hashindex.find_index(%s)) f",
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
