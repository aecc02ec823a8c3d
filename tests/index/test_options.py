"""A new option is a field of `IndexOptions`, and in SQL a column of the catalog and a line."""

import importlib
import json
from dataclasses import replace
from typing import Annotated

import pg_hashindex.cli.index
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fixtures.indexes import create_index
from pgvector.sqlalchemy import VECTOR

from pg_hashindex.contrib.alembic import ConfigureHashIndexOp, CreateHashIndexOp
from pg_hashindex.contrib.alembic.comparing import existing_indexes
from pg_hashindex.contrib.sqlalchemy import HashIndex as Declared
from pg_hashindex.contrib.sqlalchemy.specification import Swap
from pg_hashindex.db.connection import create_engine
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.options import (
    OPTIONS,
    IndexOptions,
    Option,
    declared_options,
)

pytestmark = pytest.mark.newest

#: One option more in SQL.
NOTE = """
    ALTER TABLE hashindex.index ADD note text;
    ALTER FUNCTION hashindex._options_of(hashindex.index) RENAME TO _options_before;
    CREATE FUNCTION hashindex._options_of(i hashindex.index) RETURNS jsonb
    LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN hashindex._options_before(i) || jsonb_build_object('note', i.note);
    END
    $$;
"""


class More(IndexOptions, total=False):
    note: Annotated[str | None, Option("What it is for.", changed_by=("configure", "swap"))]


@pytest.fixture
def with_note(connection, items, model, monkeypatch):
    """A database and a library with one option more."""
    monkeypatch.setitem(OPTIONS, "note", declared_options(More)["note"])
    connection.execute(NOTE)
    yield connection
    monkeypatch.undo()
    importlib.reload(pg_hashindex.cli.index)


def test_a_new_option_is_taken_everywhere(with_note, url):
    index = create_index(with_note, note="a", access="scan")
    assert index.options["note"] == "a"
    assert index.configure(note="b", candidates=7).options["note"] == "b"
    assert (index.options["candidates"], index.options["access"]) == (7, "scan")

    commands = importlib.reload(pg_hashindex.cli.index).index
    run = CliRunner().invoke(
        commands, ["configure", "items_idx", "--note", "c", "--database-url", url]
    )
    assert (run.exit_code, index.options["note"]) == (0, "c"), run.output
    shown = CliRunner().invoke(commands, ["show", "items_idx", "--json", "--database-url", url])
    assert json.loads(shown.output)["note"] == "c"
    for command in ("create", "configure", "swap"):
        assert "What it is for." in CliRunner().invoke(commands, [command, "--help"]).output

    index.encode()
    index.swap(model="lsh", force=True)
    assert index.options["note"] == "c"

    table = sa.Table("items", sa.MetaData(), sa.Column("embedding", VECTOR(8)))
    declared = Declared("second", table.c.embedding, model="lsh", note="d")  # type: ignore[call-arg]
    written = CreateHashIndexOp(declared.spec()).to_diff_tuple()
    assert written[-1] == {"model": "lsh", "note": "d"}
    create_index(with_note, "second", note="d")
    with create_engine(url).connect() as other:
        found = existing_indexes(other, "public")["second"]
    assert found.spec.options["note"] == "d"
    changed = replace(declared.spec(), options={"note": "e"})
    assert changed.changes_from(found.spec) == [Swap({"note": "e"}, {"note": "d"})]
    with_note.execute(ConfigureHashIndexOp("second", {"candidates": 9})._statement().encode())
    assert HashIndex.open(with_note, "second").options["note"] == "d"

    django = pytest.importorskip("pg_hashindex.contrib.django")
    _, _, named = django.HashIndex(fields=["v"], model="m", name="i", note="f").deconstruct()
    assert named["note"] == "f"


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
        ({"speed": 3}, 'option "speed" is unknown; Use access, candidates, effort, key_columns, '),
        ({"metric": "l1"}, 'metric "l1" is unknown; Use l2, cosine or ip'),
        ({"access": "tree"}, 'access path "tree" is unknown; Use scan or lists'),
        ({"candidates": 0}, "candidates is 0; it must be 1 or more"),
        ({"effort": 1001}, "effort is 1001; it must be 1 to 1000"),
        ({"access": "scan", "effort": 3}, "effort is for access path lists"),
    ],
)
def test_sql_refuses_options_by_name(connection, items, model, options, message):
    from pg_hashindex.db.server_errors import translated_errors

    statement = "SELECT hashindex._create_index('i', 'items', 'embedding', 'lsh', %s)"
    with pytest.raises(InvalidInputError, match=message), translated_errors():
        connection.execute(statement, [json.dumps(options)])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ("create", {"speed": 3}, "made with key_columns, .*; got speed"),
        ("configure", {"metric": "l2"}, "changed by access, candidates, .*; got metric"),
        (
            "swap",
            {"tenant": "a"},
            "changed by access, store, code_column, reveal_anchors; got tenant",
        ),
        ("configure", {"access": "best"}, "use one of: hnsw, ivfflat, lists, scan"),
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
