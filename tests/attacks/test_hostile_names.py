"""Any name that PostgreSQL takes does, for tables, schemas, columns, keys, indexes and models."""

import re

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.canary import PAYLOADS, assert_unharmed
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists, create_index, indexed
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgvector import Vector
from psycopg import sql

from pg_hashindex import operations, store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.training.sampling import sample_table

WORDS = [
    '"', '""', "'", "''", "$$", "$function$", "%", "%%", "%s", "%I", "%1$s", "%(a)s", "{}", "{0}",
    ".", ";", "--", "/*", "*/", "\\", "\\'", ":", ":x", "$1", "?", "(", ")", "[", "]", ",", "~",
    "#", " ", "\t", "\n", "\r\n", "\x01", "\x7f", "é", "☃", "\U0001f600", "\u0301", "\u202e", "İ",
    "select", "table", "NULL", "public", "user", "a", "B", "_", "0", "id", "code",
    "far", "distance", "hashindex", "items", "DROP TABLE public.canary",
]  # fmt: skip


def cut(name, most):
    return name.encode()[:most].decode(errors="ignore")


def names(most, words=WORDS):
    """Names of at most ``most`` bytes, of parts that mean something somewhere."""
    return st.lists(st.sampled_from(words), min_size=1, max_size=12).map(
        lambda parts: cut("".join(parts), most)
    )


model_words = [word for word in WORDS if ":" not in word and word > "\x1f" and "\n" not in word]
# Searches use names that begin so, and refuse them.
free = names(63).filter(lambda name: not name.startswith("hashindex_"))
columns = st.lists(free, min_size=4, max_size=4, unique_by=str)


@pytest.mark.newest
@settings(
    max_examples=5,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    schema=names(63).filter(lambda name: not name.startswith("pg_")),
    table=free,
    named=columns,
    index_name=names(40, [word for word in WORDS if re.fullmatch("[A-Za-z0-9_]+", word)]),
    model_name=names(63, model_words),
)
@example("s" * 63, "t" * 63, [c * 63 for c in "icvx"], "n" * 40, "m" * 63)
@example("é" * 31, "☃" * 21, [c * 31 for c in "éüöä"], "A--", "é" * 63)
@example(
    "it's; DROP TABLE items; --", 'a "quoted" %s %% %I %(a)s',
    ["dotted.$1 $function$", "back\\slash {brace} :colon", 'Ünïcode ☃ "日本"', "$1"], "Odd-1", "m",
)  # fmt: skip
@example("%s %% %I", "$function$ :x {a}", ["it's; --", "a.b", '"', "\\"], "Odd-1", "m")
@example("s", "t", ["u1", "point", "u2", "u3"], "n", "m")
@example("user", "table", ["order", "group", "select", "where"], "limit", "NULL")
def test_any_names(canary, vectors, schema, table, named, index_name, model_name):
    connection = canary
    key, category, vector, other = named
    ids = {
        "schema": sql.Identifier(schema),
        "table": sql.Identifier(schema, table),
        "key": sql.Identifier(key),
        "category": sql.Identifier(category),
        "vector": sql.Identifier(vector),
        "other": sql.Identifier(other),
    }

    def run(statement):
        connection.execute(sql.SQL(statement).format(**ids))

    before = catalog(connection)
    run("CREATE SCHEMA IF NOT EXISTS {schema}")
    run(
        "CREATE TABLE {table} ({other} int, {key} bigint PRIMARY KEY, {category} text, "
        "{vector} vector(8))"
    )
    run(
        "INSERT INTO {table} ({key}, {category}, {vector}) SELECT n, chr(97 + n % 3), "
        "ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(1, 40) n"
    )
    for version in (1, 2):
        fitted = LSH(n_bits=10, random_state=version).fit(vectors)
        store.save(connection, fitted.to_model(model_name))
    index = begin_lists(
        connection,
        index_name,
        table=ids["table"].as_string(connection),
        column=vector,
        model=f"{model_name}:1",
    )
    assert index.encode(batch_rows=25) == 40
    run("UPDATE {table} SET {vector} = '[1,2,3,4,5,6,7,8]' WHERE {key} = 7")
    run("UPDATE {table} SET {key} = 100 WHERE {key} = 8")
    run("DELETE FROM {table} WHERE {key} = 9")
    assert_fresh(index)

    query = np.arange(1, 9, dtype=np.float32)
    assert index.search(query, 1) == [(7, 0.0)]
    assert index.search_like(7, 3) == index.search(query, 4)[1:]
    exact = connection.execute(
        "SELECT id::bigint, distance FROM hashindex.exact_search(%s, %s, 3)",
        [index_name, Vector(query)],
    )
    assert exact.fetchall() == index.search(query, 3, candidates=40)
    assert sample_table(connection, index.qualified_table, vector).X.shape == (39, 8)
    assert operations.check(index, full=True).status != "broken"
    assert len(index.within(query, 10)) == 39
    field = sa.Table(table, sa.MetaData(), sa.Column(category, sa.Text), schema=schema).columns[
        category
    ]
    filtered = index.search(query, 40, where=field == "b")
    assert len(filtered) == 14
    by_name = connection.execute(
        "SELECT id::bigint, distance FROM hashindex.search(%s, %s, 40, "
        "where_equals => jsonb_build_object(%s::text, 'b'))",
        [index_name, Vector(query), category],
    ).fetchall()
    assert by_name == filtered
    assert evaluate(index, queries=3, k=2, candidates=[60]).points[0].recall == 1
    assert connection.execute("SELECT hashindex.recall(%s, 3, 5)", [index_name]).fetchone() == (1,)

    index.swap(model=f"{model_name}:2", force=True)
    swapped = HashIndex.open(connection, index_name)
    assert swapped.model_version == 2
    assert swapped.search(query, 1) == [(7, 0.0)]
    run("INSERT INTO {table} ({key}, {vector}) VALUES (41, '[1,2,3,4,5,6,7,9]')")
    assert_fresh(swapped)
    assert_unharmed(connection, "names")

    swapped.drop()
    store.drop(connection, model_name)
    run("DROP TABLE {table}")
    if schema not in ("public", "hashindex"):
        run("DROP SCHEMA {schema}")
    assert catalog(connection) == before


def test_payloads_as_names(canary, items, vectors, model):
    """All names at once, with landmarks, which make tables and indexes."""
    connection = canary
    for number, payload in enumerate(PAYLOADS[number::3][0] for number in range(3)):
        table, column = sql.Identifier(payload[:63]), sql.Identifier(f"v{payload}"[:63])
        connection.execute(
            sql.SQL("CREATE TABLE {} AS SELECT id AS touched, embedding AS {} FROM items").format(
                table, column
            )
        )
        connection.execute(sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (touched)").format(table))
        asked = {
            "table": table.as_string(connection),
            "column": f"v{payload}"[:63],
            "model": "lsh",
            "access": "lists",
        }
        with pytest.raises(InvalidInputError, match="is not 1 to 40 letters"):
            begin_lists(connection, payload[:40], **asked)
        index = begin_lists(connection, "i", **asked)
        index.encode()
        index = HashIndex.open(connection, "i")
        assert index.access == "lists"
        assert index.search(vectors[number], 1)[0].id == number + 1
        assert index.rebalance().rows == 300
        connection.execute(
            sql.SQL("UPDATE {} SET {} = '[1,2,3,4,5,6,7,8]' WHERE touched = 5").format(
                table, column
            )
        )
        assert_fresh(index)
        index.drop()
        assert_unharmed(connection, payload)


def test_a_key_type_whose_name_has_percent_signs(connection, items, model):
    connection.execute(
        """CREATE TYPE "%s%i" AS ENUM ('a', 'b');"""
        """CREATE TABLE graded AS SELECT category::"%s%i" AS grade, embedding FROM items"""
        """ WHERE id < 3; ALTER TABLE graded ADD PRIMARY KEY (grade)"""
    )
    indexed(connection, "graded", table="graded")
    query = connection.execute("SELECT embedding FROM graded WHERE grade = 'b'").fetchone()
    assert query is not None
    found = connection.execute(
        "SELECT id FROM hashindex.candidates('graded', %s)", query
    ).fetchall()
    assert [row[0] for row in found] == ["b", "a"]


RESERVED_TABLES = ("hashindex_codes", "hashindex_within", "hashindex_row", "hashindex_list")
RESERVED_COLUMNS = ("hashindex_code", "hashindex_kept", "hashindex_touched", "hashindex_mask_4")


def test_names_that_searches_have_for_their_own(connection, items, model):
    """They would be taken for what is in the table: a row security that is not applied, say."""
    before = catalog(connection)
    for name in (*RESERVED_TABLES, *RESERVED_COLUMNS):
        table = name if name in RESERVED_TABLES else items
        with connection.transaction(force_rollback=True):
            if table == name:
                connection.execute(f"ALTER TABLE items RENAME TO {name}".encode())
            else:
                connection.execute(f"ALTER TABLE items ADD {name} text".encode())
            with pytest.raises(InvalidInputError, match=f"{name}.* has a name that searches use"):
                create_index(connection, table=table)
    assert catalog(connection) == before


def test_names_that_no_role_has(connection, items, model):
    index = indexed(connection)
    for payload in PAYLOADS:
        with pytest.raises(InvalidInputError, match=r"(?s)role .* does not exist"):
            index.grant(payload)
    for call in ("grant_reader", "revoke_reader"):
        with pytest.raises(psycopg.Error, match="role is NULL"):
            index.connection.execute(f"SELECT hashindex.{call}('items_idx', NULL)".encode())
