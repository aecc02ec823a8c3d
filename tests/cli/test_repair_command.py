"""``pg-hashindex index repair``."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from pg_hashindex.db.connection import Connection
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


@pytest.fixture
def made(connection: Connection, items: str, model: Model) -> HashIndex:
    index = HashIndex.create(connection, "it's", table=items, column="embedding", model="lsh")
    index.encode()
    return index


def test_repair_says_what_it_did(on: Run, made: HashIndex) -> None:
    result = on("index", "repair", "it's")
    assert (result.stdout, result.stderr.splitlines()[-1]) == ("", "index it's is in order")
    made.connection.execute(
        'ALTER TABLE items RENAME TO things; DELETE FROM hashindex."it\'s_codes" WHERE id < 5'
    )
    failed = on("search", "it's", "--like", 7, code=3)
    assert failed.stderr.count("\n") == 1
    assert """run pg-hashindex index check 'it'"'"'s'""" in failed.stderr
    checked = on("index", "check", "it's", code=1).stdout
    assert "table public.items is not there any more" in checked
    assert "pg-hashindex index rebind 'it'\\''s' --table TABLE" in checked
    assert "index rebind" in on("index", "repair", "it's", code=3).stderr
    on("index", "rebind", "it's", code=2)
    assert on("index", "rebind", "it's", "--table", "things").stdout.splitlines() == [
        """bound the index to "public"."things", column 'embedding', key 'id'""",
        "encoded 4 rows",
    ]
    on("search", "it's", "--like", 7)
    done = json.loads(on("index", "repair", "it's", "--json").stdout)
    assert done == {"name": "it's", "done": [], "left": []}


def test_what_is_left_is_an_exit_code(on: Run, made: HashIndex) -> None:
    made.connection.execute('UPDATE hashindex."it\'s_codes" SET code = ~code WHERE id = 7')
    failed = on("index", "repair", "it's", "--json", code=1)
    assert len(json.loads(failed.stdout)["left"]) == 1
    assert "--full" in failed.stderr
    assert on("index", "repair", "it's", "--full").stdout.splitlines() == [
        "removed 1 codes that were not those of their rows",
        "encoded 1 rows",
    ]


def test_an_index_without_its_table(on: Run, made: HashIndex) -> None:
    made.connection.execute("DROP TABLE items")
    assert "pg-hashindex index drop 'it" in on("index", "repair", "it's", code=3).stderr
    on("index", "drop", "it's", "--yes")


def test_orphans(on: Run, made: HashIndex) -> None:
    assert on("index", "repair", "--orphans", "--json").stdout == "[]\n"
    made.connection.execute("DELETE FROM hashindex.index")
    lines = on("index", "repair", "--orphans").stdout.splitlines()
    assert lines[-1] == 'dropped table hashindex."it\'s_codes"'
    # 4 triggers, 5 functions, a table.
    assert len(lines) == 10
    assert "belongs to an index" in on("index", "repair", "--orphans").stderr


@pytest.mark.parametrize("arguments", [[], ["i", "--orphans"], ["--orphans", "--full"]])
def test_arguments_that_do_not_go_together(on: Run, arguments: list[str]) -> None:
    on("index", "repair", *arguments, code=2)
