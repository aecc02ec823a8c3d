"""The functions that indexes get, as text: a change of sql/ shows in review what it changes.

Run with ``UPDATE_GOLDEN=1`` to write the files of ``tests/golden`` again.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import affine, normalize
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

pytestmark = pytest.mark.newest

GOLDEN = Path(__file__).parents[1] / "golden"
# With pgvector's schema before each of its names.
MOST = 7_300
ROWS = 300

TABLES = """
    CREATE TABLE items (
        id bigint PRIMARY KEY, section text, price integer, embedding vector(8)
    );
    CREATE TABLE notes (slug text PRIMARY KEY, embedding halfvec(8));
    CREATE TABLE posts (
        id bigint, day date, section text, embedding vector(8), PRIMARY KEY (id, day)
    ) PARTITION BY RANGE (day);
    CREATE TABLE posts_2026 PARTITION OF posts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
"""


def rows():
    return np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)


def save_models(connection):
    rng = np.random.default_rng(1)
    layers = [normalize(), affine(rng.standard_normal((16, 8)))]
    weights = np.arange(16, dtype=np.float32)
    store.save(connection, Model("signs", "byhand", 8, layers))
    store.save(connection, Model("levels", "byhand", 8, layers, levels=4))
    store.save(connection, Model("weights", "byhand", 8, layers, bit_weights=weights))
    codes = rng.integers(0, 256, (ROWS, 2), dtype=np.uint8)
    network = known_rows(rows(), codes, 16)
    store.save(connection, Model("network", "byhand", 8, (), network=network))


# The key of a row, by table.
KEYS = {"notes": "5", "posts": (5, "2026-05-04")}

INDEXES = {
    "scan_hamming": {"model": "signs", "ranking": "hamming"},
    "landmarks_levels_filters": {
        "model": "levels",
        "access": "landmarks",
        "metric": "cosine",
        "filter_columns": ["section", "price"],
    },
    "scan_asymmetric": {"model": "signs", "metric": "cosine"},
    "halfvec_text": {"model": "signs", "table": "notes", "metric": "ip"},
    "column_weighted": {"model": "weights", "layout": "column"},
    "network": {"model": "network"},
    "tenants": {
        "model": "levels",
        "access": "landmarks",
        "metric": "cosine",
        "tenant": "section",
        "filter_columns": ["price"],
    },
    "several_keys": {
        "model": "signs",
        "table": "posts",
        "access": "landmarks",
        "filter_columns": ["section"],
    },
}


def texts(connection, index):
    found = connection.execute(
        "SELECT pg_get_functiondef(f) FROM hashindex._functions_of(hashindex.find_index(%s)) f",
        [index.name],
    ).fetchall()
    assert len(found) == (4 if index.layout == "column" else 5)
    for (text,) in found:
        assert len(text) < MOST, text[:200]
    whole = "\n".join(text.strip() + ";\n" for (text,) in found)
    # Numbers that come out of sequences.
    numbered = r"(_of\(|readable_model m WHERE m\.id = )"
    whole = re.sub(rf"{numbered}{index.model_id}\b", r"\1MODEL", whole)
    generation = connection.execute(
        "SELECT generation FROM hashindex.index WHERE name = %s", [index.name]
    ).fetchone()
    assert generation is not None
    return re.sub(rf"(_codes_|_landmarks_|generation = ){generation[0]}\b", r"\1GENERATION", whole)


@pytest.mark.parametrize("name", INDEXES)
def test_functions_of_an_index(connection, name):
    connection.execute(TABLES)
    with connection.cursor() as cursor:
        cursor.execute("SET TimeZone TO 'UTC'")
        cursor.executemany(
            "INSERT INTO items VALUES (%s, 'a', 1, %s::real[]::vector)",
            [(n, row.tolist()) for n, row in enumerate(rows())],
        )
        cursor.execute("INSERT INTO notes SELECT id::text, embedding::halfvec FROM items")
        cursor.execute("INSERT INTO posts SELECT id, '2026-05-04', section, embedding FROM items")
    save_models(connection)
    options = {"table": "items", "column": "embedding"} | INDEXES[name]
    index = HashIndex.create(connection, name, **options)
    index.encode()
    index = HashIndex.open(connection, name)
    assert (index.access, index.building) == (options.get("access", "scan"), None)
    assert index.search_like(KEYS.get(options["table"], 5), 3)
    found = texts(connection, index)
    file = GOLDEN / f"{name}.sql"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text(), "if that is meant, run it with UPDATE_GOLDEN=1"
