"""Lists around landmarks that rows have left, again and again, find as much as new ones."""

import importlib.resources

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import ITQ
from pg_hashindex.index.handle import HashIndex

pytestmark = [pytest.mark.newest, pytest.mark.slow]

#: A part of the sample packages, in 64 of their principal directions, for speed.
ROWS, DIMENSION, BITS = 5_000, 64, 64
K, QUERIES = 10, 150
#: Candidates and lists with which a new index finds most, and not all.
CANDIDATES, PROBES = 50, 12
#: How far recall may fall behind that of an index that is made now.
BEHIND = 0.03


@pytest.fixture(scope="module")
def samples():
    """The packages, turned to their principal directions and cut off, as unit vectors."""
    file = importlib.resources.files("pg_hashindex") / "server" / "data" / "packages.npz"
    with file.open("rb") as opened, np.load(opened) as data:
        found = data["X"][:ROWS].astype(np.float32)
    found -= found.mean(axis=0)
    _, axes = np.linalg.eigh(found.T @ found)
    found = found @ axes[:, ::-1][:, :DIMENSION]
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model(samples):
    return ITQ(n_bits=BITS, random_state=0).fit(samples).to_model("itq")


@pytest.fixture
def indexed(connection, samples, model):
    connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, embedding vector({DIMENSION}))")
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for number, vector in enumerate(samples):
            copy.write_row((number + 1, Vector(vector)))
    connection.execute("ANALYZE items")
    store.save(connection, model)
    return make(connection, "items_idx")


def make(connection, name):
    begin_lists(
        connection, name, table="items", column="embedding", model="itq", access="lists"
    ).encode()
    index = HashIndex.open(connection, name)
    assert index.access == "lists"
    return index


def embed_again(connection, samples, seed):
    """Give every row the vector of another one, and a little noise: the whole looks as before."""
    rng = np.random.default_rng(seed)
    vectors = samples[rng.permutation(ROWS)]
    vectors = vectors + rng.standard_normal(vectors.shape).astype(np.float32) * 0.01
    with connection.transaction():
        connection.execute(
            f"CREATE TEMP TABLE fresh (id bigint, embedding vector({DIMENSION})) ON COMMIT DROP"
        )
        with connection.cursor() as cursor, cursor.copy("COPY fresh FROM STDIN") as copy:
            for number, vector in enumerate(vectors):
                copy.write_row((number + 1, Vector(vector)))
        connection.execute(
            "UPDATE items SET embedding = f.embedding FROM fresh f WHERE f.id = items.id"
        )


def nearest_keys(connection, queries):
    """The nearest rows of each query, by brute force."""
    rows = connection.execute("SELECT id, embedding FROM items").fetchall()
    keys = np.array([row[0] for row in rows])
    vectors = np.stack([row[1].to_numpy() for row in rows])
    order = [np.argsort(np.linalg.norm(vectors - query, axis=1))[:K] for query in queries]
    return [set(keys[nearest].tolist()) for nearest in order]


def recall(index, queries, truth, **asked):
    found = [
        len({hit.id for hit in index.search(query, K, **asked)} & near)
        for query, near in zip(queries, truth, strict=True)
    ]
    return sum(found) / (K * len(queries))


@pytest.fixture(scope="module")
def queries(samples):
    rng = np.random.default_rng(1)
    near = samples[rng.choice(ROWS, QUERIES, replace=False)]
    return near + rng.standard_normal(near.shape).astype(np.float32) * 0.05


def check_decay(index, queries):
    rebuilt = make(index.connection, "rebuilt")
    truth = nearest_keys(index.connection, queries)
    # So that there is something to be lost.
    few = recall(rebuilt, queries, truth, candidates=CANDIDATES, effort=PROBES)
    assert 0.8 <= few <= 0.98
    behind = {}
    for name, asked in {
        "the index's own settings": {},
        "few lists": {"candidates": CANDIDATES, "effort": PROBES},
        "all lists": {"effort": 1000},
        "all lists, few candidates": {"candidates": CANDIDATES, "effort": 1000},
    }.items():
        worn, new = (recall(each, queries, truth, **asked) for each in (index, rebuilt))
        if worn < new - BEHIND:
            behind[name] = f"{worn:.3f}, rebuilt {new:.3f}"
    assert not behind, behind


def test_three_embeddings_of_all_rows(indexed, samples, queries):
    for seed in (11, 12, 13):
        embed_again(indexed.connection, samples, seed)
    check_decay(indexed, queries)


def test_nearly_all_rows_deleted(indexed, queries):
    indexed.connection.execute("DELETE FROM items WHERE id > 300")
    check_decay(indexed, queries)


def test_rows_deleted_a_few_at_a_time(indexed, queries):
    """As a table is emptied from day to day, by statements that touch few lists or many."""
    for number in range(47):
        indexed.connection.execute("DELETE FROM items WHERE id > 300 AND id %% 47 = %s", [number])
    check_decay(indexed, queries)
