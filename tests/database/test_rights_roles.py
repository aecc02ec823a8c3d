"""Roles that are let search an index, or maintain it: what each can do then, and what not."""

import re
from typing import Any

import psycopg
import pytest
from fixtures.roles import As, denied, rights
from fixtures.tenants import SEARCHES, assert_sees
from psycopg import sql

from pg_hashindex.database import Connection
from pg_hashindex.errors import (
    DatabaseStateError,
    HashIndexError,
    InvalidInputError,
    MissingRightsError,
)
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

pytestmark = pytest.mark.newest

SHARED = ("model", "model_part", "index", "query_set", "saved_query", "recall_history", "job")
TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


@pytest.mark.parametrize(
    "notes",
    [("scan", "column"), ("lookup", "table"), ("hnsw", "table"), ("landmarks", "table")],
    ids="-".join,
    indirect=True,
)
def test_a_reader_of_two_columns(notes: HashIndex, connection: Connection, as_role: As) -> None:
    """Searching reads the key and the vectors, and nothing else of the table."""
    connection.execute("ALTER TABLE notes DISABLE ROW LEVEL SECURITY")
    reader = as_role("reader")
    connection.execute("GRANT SELECT (id, embedding) ON notes TO reader")
    before = rights(connection, "reader")
    notes.grant("reader")
    plain = [name for name in SEARCHES if "where" not in name and "filter" not in name]
    assert_sees(reader, ("many", "few"), names=plain)
    opened = HashIndex.open(reader, "notes_idx")
    assert len(opened.search_like(1, 5)) == 5
    assert reader.execute("SELECT hashindex.recall('notes_idx', 2, 5, 400)").fetchone() == (1.0,)
    for name in ("where_equals", "filter", "python, where"):
        with pytest.raises((psycopg.errors.InsufficientPrivilege, MissingRightsError)):
            assert_sees(reader, ("many", "few"), names=[name])
    connection.execute("GRANT SELECT (kind) ON notes TO reader")
    assert_sees(reader, ("many", "few"))
    with denied():
        reader.execute("SELECT tenant FROM notes")
    # Under a policy by a column that he does not read himself.
    connection.execute("ALTER TABLE notes ENABLE ROW LEVEL SECURITY")
    reader.execute("SET app.tenant = 'few'")
    assert_sees(reader, ("few",))
    granted = {
        # Tables of a build have its number.
        (re.sub(r"_\d+$", "", what), right)
        for what, right in rights(connection, "reader") - before - {("notes.kind", "SELECT")}
    }
    parts = {f"hashindex.notes_idx_{part}" for part in ("codes", "landmarks")}
    ours = {"hashindex.jobs", *(f"hashindex.{name}" for name in SHARED)} | parts
    code = {("notes.notes_idx_code", "SELECT")} if notes.layout == "column" else set()
    assert granted - {("hashindex", "USAGE")} - code <= {(what, "SELECT") for what in ours}
    assert (granted & code) == code
    HashIndex.open(connection, "notes_idx").revoke("reader")
    assert rights(connection, "reader") == before | {("notes.kind", "SELECT")}
    with denied():
        reader.execute("SELECT * FROM hashindex.search_notes_idx('[1,2,3,4,5,6,7,8]')")


@pytest.fixture
def one(connection: Connection, items: str, model: Model) -> HashIndex:
    """An index with its codes in a table, where a test needs it of one layout only."""
    index = HashIndex.create(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    return index


@pytest.mark.parametrize("as_", ["reader", "owner"])
def test_what_is_refused(one: HashIndex, connection: Connection, as_role: As, as_: Any) -> None:
    as_role("nobody")
    before = rights(connection, "nobody")
    refused: dict[str, tuple[type[HashIndexError], str]] = {
        "no such role": (InvalidInputError, 'role "no such role" does not exist; Write its name'),
        "nobody": (
            DatabaseStateError,
            "may not read columns .*Run before: GRANT SELECT"
            if as_ == "reader"
            else 'role "nobody" does not own .*Run before: ALTER TABLE',
        ),
    }
    for role, (error, message) in refused.items():
        with pytest.raises(error, match=message):
            one.grant(role, as_=as_)
    assert rights(connection, "nobody") == before
    with pytest.raises(InvalidInputError, match="granted reader or owner, not 'writer'"):
        one.grant("nobody", as_="writer")  # type: ignore[arg-type]


def test_who_may_grant(one: HashIndex, connection: Connection, as_role: As) -> None:
    """Not one who searches himself."""
    reader = as_role("reader")
    as_role("friend")
    connection.execute("GRANT SELECT ON items TO reader, friend")
    one.grant("reader")
    with pytest.raises(MissingRightsError, match="Have its owner run: GRANT USAGE ON SCHEMA"):
        HashIndex.open(reader, "items_idx").grant("friend")


def test_rights_of_a_writer_are_not_taken(
    one: HashIndex, connection: Connection, as_role: As
) -> None:
    writer = as_role("writer")
    connection.execute("GRANT SELECT, INSERT ON items TO writer")
    connection.execute("SELECT hashindex.grant_like_table('items_idx')")
    one.revoke("writer")
    writer.execute("INSERT INTO items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    assert one.waiting() == 0
    with denied():
        writer.execute(TYPED)


def test_what_two_indexes_share_stays_with_the_other(
    one: HashIndex, connection: Connection, as_role: As
) -> None:
    reader = as_role("reader")
    second = HashIndex.create(connection, "second", table="items", column="embedding", model="lsh")
    second.encode()
    connection.execute("GRANT SELECT ON items TO reader")
    one.grant("reader")
    second.grant("reader")
    second.revoke("reader")
    assert reader.execute(TYPED).fetchone() == (10,)
    # The table is his to read, and so are exact answers.
    second_search = "SELECT id, distance FROM hashindex.search_second('[1,2,3,4,5,6,7,8]')"
    exact = "SELECT id::bigint, distance FROM hashindex.exact_search('second', '[1,2,3,4,5,6,7,8]')"
    assert reader.execute(second_search).fetchall() == reader.execute(exact).fetchall()
    with denied():
        reader.execute("TABLE hashindex.second_codes")


def test_everybody_may_read(one: HashIndex, connection: Connection, as_role: As) -> None:
    anybody = as_role("anybody")
    connection.execute("GRANT SELECT ON items TO PUBLIC")
    one.grant("public")
    assert anybody.execute(TYPED).fetchone() == (10,)
    one.revoke("public")
    with denied():
        anybody.execute(TYPED)


ODD = ('a "quoted" role', "PUBLIC", "role; DROP TABLE items; --", "%s'$$")


def test_roles_of_any_name(index: HashIndex) -> None:
    connection = index.connection
    for number, name in enumerate(ODD, start=7):

        def run(statement: Any, role: str = name) -> None:
            connection.execute(sql.SQL(statement).format(sql.Identifier(role)))

        run("CREATE ROLE {}")
        try:
            run("GRANT SELECT ON items TO {}")
            index.grant(name)
            run("SET ROLE {}")
            assert connection.execute(TYPED).fetchone() == (10,)
            run("RESET ROLE")
            index.revoke(name)
            run("REVOKE SELECT ON items FROM {}")
            run("ALTER TABLE items OWNER TO {}")
            index.grant(name, as_="owner")
            run("SET ROLE {}")
            connection.execute(
                "SELECT hashindex.configure_index('items_idx', candidates => %s)", [number]
            )
        finally:
            run("RESET ROLE")
            run("REASSIGN OWNED BY {} TO CURRENT_USER")
            run("DROP OWNED BY {}")
            run("DROP ROLE {}")
        assert HashIndex.open(connection, "items_idx").candidates == number
