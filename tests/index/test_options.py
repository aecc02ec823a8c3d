"""A new option is a field of `IndexOptions`, and in SQL a column of the catalog and a line."""

import pytest
from fixtures.indexes import create_index

from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.options import (
    OPTIONS,
)

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("function", "missing"), [("create_index", set()), ("configure_index", {"configure"})]
)
def test_users_of_sql_name_each_option(connection, function, missing):
    """The front ends list the options as arguments."""
    (names,) = connection.execute(
        "SELECT proargnames FROM pg_proc WHERE oid = to_regproc('hashindex.' || %s)", [function]
    ).fetchone()
    wanted = {name for name, o in OPTIONS.items() if missing <= {*o.changed_by}}
    assert {*names} >= wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("metric => 'l1'", 'metric "l1" is unknown; Use l2, cosine or ip'),
        ("access => 'tree'", 'access "tree" is unknown; Use hnsw, ivfflat or lists'),
        ("access => 'lists', candidates => 0", "candidates is 0; it must be 1 or more"),
        ("access => 'lists', effort => 1001", "effort is 1001; it must be 1 to 1000"),
        ("access => 'scan', effort => 3", "effort is for lists with landmarks"),
        ("access => 'lists', store => true", "lists keep codes in a table of their own"),
        ("access => 'lists', model => 'none'", "no model is named that makes them"),
    ],
)
def test_sql_refuses_options_by_name(connection, items, model, options, message):
    named = "" if "model" in options else "model => 'lsh', "
    statement = f"SELECT hashindex.create_index('i', 'items', 'embedding', {named}{options})"
    with pytest.raises(InvalidInputError, match=message), translated_errors():
        connection.execute(statement.encode())
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ("create", {"speed": 3}, "made with key_columns, .*; got speed"),
        ("configure", {"metric": "l2"}, "changed by candidates, effort; got metric"),
        (
            "swap",
            {"tenant": "a"},
            "changed by access, store, code_column, reveal_anchors; got tenant",
        ),
        ("swap", {"access": "best"}, "use one of: hnsw, ivfflat, lists, scan"),
        ("configure", {"effort": 1.5}, "effort must be an integer, got 1.5"),
        ("create", {"filter_columns": ["a"]}, "made with key_columns, .*; got filter_columns"),
        ("create", {"tenant": ["a"]}, "the name of a column, got"),
    ],
)
def test_python_refuses_options_by_name(connection, items, model, change, options, message):
    with pytest.raises(InvalidInputError, match=message):
        if change == "create":
            create_index(connection, **options)
        index = create_index(connection)
        index.configure(**options) if change == "configure" else index.swap(model="lsh", **options)
