"""Writes of all kinds at each step of a swap; triggers log their keys for the codes beside."""

import pytest
from fixtures.checks import assert_fresh, other_sets
from fixtures.indexes import begin_lists

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import LSH
from pg_hashindex.index import build, sets
from pg_hashindex.index.landmarks.building import ListBuild

pytestmark = [pytest.mark.newest, pytest.mark.slow]

STEPS = {
    "after the beginning": (sets, "_build"),
    "before rows are read": (ListBuild, "_read_rows"),
    "before codes are put in order": (ListBuild, "_put_in_order"),
    "before keys are applied": (ListBuild, "_finished"),
    "before the lock that ends the build": (ListBuild, "_finish"),
    "before the comparison": (sets, "finish_swap"),
    "before the exchange": (build, "_use"),
}

WRITES = {
    "truncate": ["TRUNCATE items", "INSERT INTO items SELECT * FROM kept WHERE id % 3 > 0"],
    "vacuum full": [
        "UPDATE items SET note = 'moved' WHERE id % 2 = 0",
        "DELETE FROM items WHERE id < 20",
        "VACUUM FULL items",
    ],
    "keys": [
        "UPDATE items SET id = id + 1000 WHERE id % 9 = 0",
        "UPDATE items SET id = id - 2000, embedding = embedding + embedding WHERE id > 190",
        "UPDATE items SET embedding = NULL WHERE id % 11 = 0",
    ],
}


@pytest.fixture
def index(connection, model, vectors):
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    connection.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, note text, embedding vector(8))"
    )
    connection.cursor().executemany(
        "INSERT INTO items VALUES (%s, 'a', %s::real[]::vector)",
        [(number + 1, vector.tolist()) for number, vector in enumerate(vectors)],
    )
    connection.execute("CREATE TABLE kept AS TABLE items")
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="lists"
    )
    index.encode()
    return index


@pytest.mark.parametrize("written", WRITES)
@pytest.mark.parametrize("step", STEPS)
def test_writes_at_a_step_of_a_swap(index, url, monkeypatch, step, written):
    owner, name = STEPS[step]
    original = getattr(owner, name)
    done = []

    def write_first(*arguments, **options):
        if not done:
            done.append(step)
            write(url, written)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, write_first)
    index.swap(model="other", force=True)
    assert done == [step]
    assert_right(index)


@pytest.mark.parametrize("written", WRITES)
def test_writes_before_a_rollback_and_a_prune(index, url, written):
    index.swap(model="other", force=True)
    write(url, written)
    index.rollback()
    assert_right(index)
    index.prune()
    assert_right(index)


def write(url, written):
    with connect(url) as writer:
        for statement in WRITES[written]:
            writer.execute(statement.encode())


def assert_right(index):
    """Codes in use and beside are those of their rows, and a search finds the nearest rows."""
    assert_fresh(index)
    for former in other_sets(index):
        assert former.state == "former"
        assert_fresh(former)
    query = "[1,2,3,4,5,6,7,8]"
    wanted = index.connection.execute(
        "SELECT id FROM items WHERE embedding IS NOT NULL ORDER BY embedding <-> %s, id LIMIT 5",
        [query],
    ).fetchall()
    found = index.connection.execute(
        "SELECT id FROM hashindex.search_items_idx(%s, 5, 1000, 1000)", [query]
    ).fetchall()
    assert found == wanted
