"""``pg-hashindex index distribute``, where there is no Citus."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from fixtures.checks import assert_fresh
from fixtures.citus import say_distributed

from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


def test_a_plain_database_says_so(
    on: Run, connection: Connection, items: str, model: Model
) -> None:
    made = HashIndex.create(connection, "it's", table=items, column="embedding", model="lsh")
    made.encode()
    for arguments in ([], ["--no-encode", "--json"]):
        failed = on("index", "distribute", "it's", *arguments, code=1)
        assert failed.stdout == ""
        assert failed.stderr.startswith(
            'Error: index "it\'s" cannot be distributed: Citus is not installed in database '
        )
        assert failed.stderr.count("\n") == 1
    assert_fresh(made)
    assert "index 'none' does not exist" in on("index", "distribute", "none", code=1).stderr


def test_encoding_of_a_distributed_table(
    on: Run, connection: Connection, items: str, model: Model
) -> None:
    HashIndex.create(connection, "i", table=items, column="embedding", model="lsh")
    say_distributed(connection, "items")
    failed = on("index", "encode", "i", "--throttle", 5, code=1)
    assert "rows_per_second is 5.0, and the rows of distributed table" in failed.stderr
    done = json.loads(on("index", "encode", "i", "--json").stdout)
    assert (done["encoded"], done["waiting"]) == (300, 0)
    shown = json.loads(on("index", "show", "i", "--json").stdout)
    assert (shown["rows"], shown["codes"], shown["access"]) == (300, 300, "scan")
