"""``pg-hashindex index repair``."""

import json

import pytest
from fixtures.indexes import indexed

pytestmark = pytest.mark.newest


@pytest.fixture
def made(connection, items, model):
    return indexed(connection, "Its-1")


def test_repair_says_what_it_did(on, made):
    result = on("index", "repair", "Its-1")
    assert (result.stdout, result.stderr.splitlines()[-1]) == ("", "index Its-1 is in order")
    made.connection.execute(
        "ALTER TABLE items RENAME TO things; DELETE FROM hashindex.set_1_codes WHERE id < 5"
    )
    failed = on("search", "Its-1", "--like", 7, code=3)
    assert failed.stderr.count("\n") == 1
    assert "run pg-hashindex index check Its-1," in failed.stderr
    checked = on("index", "check", "Its-1", code=1).stdout
    assert "table public.items is not there any more" in checked
    assert "pg-hashindex index repair Its-1 --table TABLE" in checked
    assert "index repair" in on("index", "repair", "Its-1", code=3).stderr
    assert on("index", "repair", "Its-1", "--table", "things").stdout.splitlines() == [
        """bound the index to "public"."things", column 'embedding', key 'id'""",
        "encoded 4 rows",
    ]
    on("search", "Its-1", "--like", 7)
    done = json.loads(on("index", "repair", "Its-1", "--json").stdout)
    assert done == {"name": "Its-1", "done": [], "left": []}


def test_leftovers_set_the_exit_code(on, made):
    made.connection.execute(
        "SET session_replication_role = replica; "
        "UPDATE items SET embedding = array_fill(3e38::real, '{8}')::vector WHERE id = 7; "
        "RESET session_replication_role"
    )
    failed = on("index", "repair", "Its-1", "--json", code=1)
    assert len(json.loads(failed.stdout)["left"]) == 1
    assert "is too large for this model" in failed.stderr
    made.connection.execute("DELETE FROM items WHERE id = 7")
    on("index", "repair", "Its-1")


def test_an_index_without_its_table(on, made):
    made.connection.execute("DROP TABLE items")
    assert "pg-hashindex index drop Its-1" in on("index", "repair", "Its-1", code=3).stderr
    on("index", "drop", "Its-1", "--yes")


def test_orphans(on, made):
    assert on("index", "repair", "--orphans", "--json").stdout == "[]\n"
    made.connection.execute("DELETE FROM hashindex.index")
    lines = on("index", "repair", "--orphans").stdout.splitlines()
    assert lines[-2:] == [
        f"dropped table hashindex.set_1_{part}" for part in ("codes", "landmarks")
    ]
    # 4 triggers, 4 functions, two tables.
    assert len(lines) == 9
    assert "belongs to an index" in on("index", "repair", "--orphans").stderr


@pytest.mark.parametrize("arguments", [[], ["i", "--orphans"], ["--orphans", "--full"]])
def test_conflicting_arguments(on, arguments):
    on("index", "repair", *arguments, code=2)
