"""Codes in indexes and columns that are not those of their model are found."""

import numpy as np
import pytest

from pg_hashindex import store
from pg_hashindex.hashers import ITQ, Thermometer

ROWS = np.random.default_rng(7).standard_normal((300, 8)).astype(np.float32)


@pytest.fixture
def texts(connection, items):
    store.save(connection, Thermometer(random_state=0).fit(ROWS).to_model("texts", cuts=3))
    connection.execute("SELECT hashindex.create_functions('texts')")


def faults(connection, table="items"):
    found = connection.execute("SELECT * FROM hashindex._code_faults(%s::regclass)", [table])
    return [fault for fault, _ in found]


def test_codes_of_their_model_have_no_fault(connection, texts):
    connection.execute(
        "ALTER TABLE items ADD code bit(24) "
        "GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED;"
        "CREATE INDEX ON items USING hnsw (code bit_hamming_ops);"
        "CREATE INDEX ON items (category, (hashindex.code_texts(embedding)), (lower(category)));"
        "CREATE INDEX ON items USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(24)) bit_hamming_ops)"
    )
    assert faults(connection) == []


def test_another_length_and_another_distance(connection, texts):
    connection.execute(
        "ALTER TABLE items ADD code bit(20) "
        "GENERATED ALWAYS AS (hashindex.code_texts(embedding)::bit(20)) STORED;"
        "CREATE INDEX short ON items USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(16)) bit_hamming_ops);"
        "CREATE INDEX other ON items USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(24)) bit_jaccard_ops);"
        "CREATE INDEX of_column ON items USING hnsw (code bit_jaccard_ops)"
    )
    assert faults(connection) == [
        "column code has bit(20), and codes of model texts:1 have 24 bits",
        "index public.of_column ranks codes of model texts:1 by bit_jaccard_ops",
        "index public.other ranks codes of model texts:1 by bit_jaccard_ops",
        "index public.short has bit(16), and codes of model texts:1 have 24 bits",
    ]


def test_a_partitioned_table(connection, texts):
    connection.execute(
        "CREATE TABLE parts (id bigint, embedding vector(8)) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (150);"
        "CREATE INDEX of_parts ON parts USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(16)) bit_hamming_ops)"
    )
    assert faults(connection, "parts") == [
        "index public.of_parts has bit(16), and codes of model texts:1 have 24 bits"
    ]


def test_a_function_that_was_replaced_is_named(connection, items):
    """That of projections too, which the function of codes calls."""
    store.save(connection, ITQ(n_bits=6, random_state=0).fit(ROWS).to_model("texts"))
    connection.execute("SELECT hashindex.create_functions('texts')")
    replaced = (
        "CREATE OR REPLACE FUNCTION hashindex.project_texts(v vector) RETURNS vector "
        "LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN v"
    )
    connection.execute(replaced)
    assert faults(connection) == []
    connection.execute(
        "CREATE INDEX ON items USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(6)) bit_hamming_ops)"
    )
    assert faults(connection) == [
        "function hashindex.project_texts(vector) of model texts:1 was changed"
    ]
    connection.execute("SELECT hashindex.rebuild_functions()")
    assert faults(connection) == []


def test_check_says_that_a_function_of_its_set_was_replaced(connection, texts):
    connection.execute(
        "SELECT hashindex.create_index('docs', 'items', 'embedding', model => 'texts')"
    )
    found = "SELECT status, detail FROM hashindex.health('docs') WHERE check_name = 'codes'"
    assert connection.execute(found).fetchall() == []
    connection.execute("ALTER FUNCTION hashindex.code_texts(vector) COST 7")
    assert connection.execute(found).fetchall() == [
        ("broken", "function hashindex.code_texts(vector) of model texts:1 was changed")
    ]
