"""Text is never SQL: in any parameter of any function, of Python, and of the command line."""

import click
import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fixtures.canary import PAYLOADS, assert_unharmed
from fixtures.commands import children
from fixtures.functions import TEXTS, functions
from fixtures.indexes import begin_lists, indexed
from pg_hashindex.cli import main

from pg_hashindex import store
from pg_hashindex.errors import HashIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.queries import of_log
from pg_hashindex.training.sampling import sample_table

pytestmark = pytest.mark.newest

# SQL is what these are for. They run as their caller.
TAKE_SQL = {
    ("_sample_ids", "condition"),
    ("search", "filter"),
    ("search_items_idx", "filter"),
    ("search_scanned", "filter"),
    ("_exact_search", "filter"),
    ("_filter_of", "filter"),
    ("_list_candidates", "filter"),
}


def hostile(payload, kind):
    """The payload as a literal of a type."""
    literal = psycopg.sql.quote(payload)
    if kind == "text[]":
        return f"ARRAY[{literal}]"
    if kind == "jsonb":
        return f"jsonb_build_object({literal}, {literal}, 'category', {literal}, 'code', {literal})"
    return f"{literal}::{kind}"


def calls(function, half):
    """The function with payloads in each of its texts, by turns: every other one of them."""
    for position, parameter in enumerate(function.parameters):
        if parameter.type not in TEXTS or (function.name, parameter.name) in TAKE_SQL:
            continue
        for payload in PAYLOADS[(position + half) % 2 :: 2]:
            yield function.call(position, hostile(payload, parameter.type))


@pytest.fixture
def targets(canary, items, model):
    """Indexes to name, one of them with landmarks."""
    indexed(canary, access="lists")
    indexed(canary, "scanned")
    return canary


def run(connection, statement):
    try:
        with connection.transaction():
            connection.execute("SET LOCAL statement_timeout = '10s'")
            # Without parameters a % is a %, and more statements than one would be run.
            connection.execute(statement.encode())
    except psycopg.Error as error:
        return error
    return None


def test_every_function_of_sql(targets):
    attacked = {}
    # The other half on another version of PostgreSQL.
    half = targets.info.server_version // 20_000
    for function in list(functions(targets)):
        for call in calls(function, half):
            with targets.transaction(force_rollback=True):
                error = run(targets, call)
                if error is None:
                    # A call that fails leaves nothing behind.
                    assert_unharmed(targets, call)
                    attacked[function.name] = attacked.get(function.name, 0) + 1
                else:
                    # It is neither an internal error nor a time-out.
                    assert error.sqlstate not in {None, "XX000", "57014"}, (call, error)
    # Others name something, and refuse what is not there.
    assert len(attacked) >= 20


@pytest.mark.parametrize("harm", ["SELECT public.harm()", "DROP TABLE public.canary"])
def test_the_canary_is_harmed_by_sql_that_is_run(targets, harm):
    """Or the other tests could not fail."""
    with targets.transaction(force_rollback=True):
        assert run(targets, f"SELECT hashindex.find_index('items_idx'); {harm}") is None
        with pytest.raises(pytest.fail.Exception, match="the canary was"):
            assert_unharmed(targets, harm)


def test_search_text_is_not_sql(targets):
    """Texts that stand in the table are found by where_equals, as they are."""
    for number, payload in enumerate(PAYLOADS):
        targets.execute(
            "INSERT INTO items VALUES (%s, %s, '[1,2,3,4,5,6,7,8]')", [1000 + number, payload]
        )
    category = sa.Table("items", sa.MetaData(), sa.Column("category", sa.Text)).columns["category"]
    for name in ("items_idx", "scanned"):
        index = HashIndex.open(targets, name)
        for number, payload in enumerate(PAYLOADS):
            rows = targets.execute(
                "SELECT id FROM hashindex.search(%s, '[1,1,1,1,1,1,1,1]', 3, "
                "where_equals => jsonb_build_object('category', %s::text))",
                [name, payload],
            ).fetchall()
            assert rows == [(str(1000 + number),)]
            hits = index.search([1.0] * 8, 3, where=category == payload)
            assert [hit.id for hit in hits] == [1000 + number]
    assert_unharmed(targets, "conditions")


def attempts(connection, payload):
    """Every text that the library takes from its caller."""
    index = HashIndex.open(connection, "items_idx")
    sound = {"table": "items", "column": "embedding", "model": "lsh"}
    column = sa.Table("items", sa.MetaData(), sa.Column(payload, sa.Text)).columns[payload]
    found = {
        f"create {what}": lambda what=what: begin_lists(  # type: ignore[misc]
            connection, "new", **(sound | {what: payload})
        )
        for what in (
            "table",
            "column",
            "model",
            "key_columns",
            "metric",
            "access",
        )
    }
    return (
        found
        | {
            "create name": lambda: begin_lists(connection, payload[:40], **sound),  # type: ignore[arg-type]
            "open": lambda: HashIndex.open(connection, payload),
            "search filter": lambda: index.search(
                [1.0] * 8, filter=f"category = {psycopg.sql.quote(payload)}"
            ),
            "search_like": lambda: index.search_like(payload),
            "within_like": lambda: index.within_like(payload, 3),
            "where": lambda: index.search([1.0] * 8, where=column == "a"),
            "swap model": lambda: index.swap(model=payload),
            "swap access": lambda: index.swap(model="lsh", access=payload),  # type: ignore[arg-type]
            "grant": lambda: index.grant(payload),
            "revoke": lambda: index.revoke(payload),
            "load": lambda: store.load(connection, payload),
            "describe": lambda: store.describe(connection, payload),
            "drop model": lambda: store.drop(connection, payload),
            "save": lambda: store.drop(
                connection,
                store.save(
                    connection,
                    LSH(n_bits=4).fit(np.eye(8)).to_model(payload.replace("\n", " ")[:60]),
                ).name,
            ),
            "sample table": lambda: sample_table(connection, payload, "embedding"),
            "sample column": lambda: sample_table(connection, "items", payload),
            "log": lambda: of_log(index, payload),
        }
    )


def test_every_text_from_python(targets):
    done = set()
    for payload in PAYLOADS:
        for what, attempt in attempts(targets, payload).items():
            try:
                attempt()
            except (HashIndexError, UnicodeError):
                pass
            else:
                done.add(what)
        assert_unharmed(targets, payload)
    # Names that are odd and no more.
    assert "save" in done
    for found in targets.execute("SELECT name FROM hashindex.index").fetchall():
        HashIndex.open(targets, found[0]).drop()
    assert_unharmed(targets, "drops")


def texts_of(command):
    for parameter in command.params:
        if isinstance(parameter.type, click.types.StringParamType):
            yield parameter


def commands(group, before=()):
    for name, command in children(group).items():
        path = (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, path)
        else:
            yield " ".join(path), command


SOUND = {
    "name": "items_idx",
    "index": "items_idx",
    "reference": "lsh",
    "model": "lsh",
    "table": "items",
    "column": "embedding",
    "roles": "postgres",
    "query": "[1,2,3,4,5,6,7,8]",
}


def arguments(command, attacked, payload):
    """Return a command's arguments, with a payload in one place."""
    given = []
    positional = []
    for parameter in command.params:
        if parameter.name in {"database_url", "as_json", "help"}:
            continue
        value = payload if parameter is attacked else None
        if value is None and not parameter.required:
            continue
        if value is None:
            value = SOUND.get(parameter.name or "", "1")
            if isinstance(parameter.type, click.Choice):
                value = parameter.type.choices[0]
        if isinstance(parameter, click.Argument):
            positional.append(value)
        else:
            given += [parameter.opts[0], value]
    return [*given, "--", *positional]


def test_every_text_of_the_command_line(targets, url, tmp_path, monkeypatch):
    # Some write files.
    monkeypatch.chdir(tmp_path)
    attacked = set()
    offset = targets.info.server_version // 10_000
    for path, command in commands(main):
        if path.split()[0] in {"demo", "bench", "server"} or path == "schema upgrade --sql":
            continue  # of no database, or of one of their own
        for parameter in texts_of(command):
            if parameter.name == "database_url":
                continue
            # From here on a text goes the way that it goes from Python: one each time, by turns.
            payload = PAYLOADS[(len(attacked) + offset) % len(PAYLOADS)]
            given = arguments(command, parameter, payload)
            result = CliRunner().invoke(main, [*path.split(), "--database-url", url, *given])
            assert result.exception is None or isinstance(result.exception, SystemExit), given
            attacked.add(f"{path} {parameter.name}")
            assert_unharmed(targets, (path, given))
    assert {"search name", "search like", "index create table", "model train column"} <= attacked
    assert len(attacked) > 40
