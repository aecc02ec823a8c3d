"""The functions that indexes get, as text: a change of sql/ shows in review what it changes.

What other indexes get is tested by what it does.

Run with ``UPDATE_GOLDEN=1`` to write the files of ``tests/golden`` again.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from fixtures.indexes import begin_lists

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import affine, normalize
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

GOLDEN = Path(__file__).parents[1] / "golden"
ROWS = 300

TABLES = """
    CREATE TABLE items (
        id bigint PRIMARY KEY, section text, price integer, embedding vector(8)
    );
    CREATE TABLE posts (
        section text, id bigint, price integer, embedding halfvec(8), PRIMARY KEY (section, id)
    );
"""

# The key of a row, by table.
KEYS = {"items": 5, "posts": ("a", 5)}

INDEXES = {
    "landmarks": {"table": "items"},
    "tenants": {"table": "posts", "tenant": "section"},
}


def rows():
    return np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)


def texts(connection, index):
    found = connection.execute(
        "SELECT pg_get_functiondef(o.id) FROM hashindex._objects_of(hashindex.find_index(%s)) o "
        "WHERE o.kind = 'function'",
        [index.name],
    ).fetchall()
    assert len(found) == 3
    whole = "\n".join(text.strip() + ";\n" for (text,) in found)
    # Numbers that come out of sequences.
    whole = re.sub(rf"(_of\(|readable_model m WHERE m\.id = ){index.model_id}\b", r"\1MODEL", whole)
    return re.sub(rf"(\bset_|\brefresh_|\bx\.id = ){index.set_id}(?=\b|_)", r"\1SET", whole)


@pytest.mark.parametrize("name", INDEXES)
def test_functions_of_an_index(connection, name):
    connection.execute(TABLES)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO items VALUES (%s, 'a', 1, %s::real[]::vector)",
            [(n, row.tolist()) for n, row in enumerate(rows())],
        )
    connection.execute("INSERT INTO posts SELECT section, id, price, embedding FROM items")
    layers = [normalize(), affine(np.random.default_rng(1).standard_normal((16, 8)))]
    store.save(connection, Model("cuts", "byhand", 8, layers, cuts=(-0.5, 0, 0.5)))
    options = {"column": "embedding", "model": "cuts", "metric": "cosine", **INDEXES[name]}
    index = begin_lists(connection, name, access="lists", candidates=200, effort=80, **options)
    index.encode()
    index = HashIndex.open(connection, name)
    assert (index.access, index.state) == ("lists", "used")
    every = {"all_tenants": True} if "tenant" in options else {}
    assert index.search_like(KEYS[options["table"]], 3, **every)
    found = texts(connection, index)
    file = GOLDEN / f"{name}.sql"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text(), "if that is meant, run it with UPDATE_GOLDEN=1"
