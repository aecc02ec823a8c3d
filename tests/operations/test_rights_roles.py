"""Roles that are let search an index by its codes: what each can do then, and what not."""

import psycopg
import pytest
from fixtures.indexes import indexed
from fixtures.landmarks import tables_of
from fixtures.roles import denied, make_administrator, rights
from fixtures.tenants import SEARCHES, assert_sees
from psycopg import sql

from pg_hashindex.errors import DatabaseStateError, InvalidInputError, MissingRightsError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


def test_a_reader_of_two_columns(notes, connection, as_role):
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
    granted = rights(connection, "reader") - before - {("notes.kind", "SELECT")}
    # The model is read by a view, which looks at the rights on the codes.
    assert granted == {(f"hashindex.{table}", "SELECT") for table in tables_of(notes)}
    HashIndex.open(connection, "notes_idx").revoke("reader")
    assert rights(connection, "reader") == before | {("notes.kind", "SELECT")}
    assert_sees(reader, ("few",), names=["typed", "by name", "where_equals", "filter"])
    with denied():
        reader.execute("SELECT * FROM hashindex.within('notes_idx', '[1,2,3,4,5,6,7,8]', 12)")


@pytest.fixture
def one(connection, items, model):
    """An index of items."""
    return indexed(connection)


def test_what_is_refused(one, connection, as_role):
    as_role("stranger")
    before = rights(connection, "stranger")
    with pytest.raises(InvalidInputError, match='role "no such role" does not exist'):
        one.grant("no such role")
    with pytest.raises(DatabaseStateError, match="may not read columns .*First run: GRANT SELECT"):
        one.grant("stranger")
    connection.execute("GRANT SELECT ON items TO stranger")
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    before = rights(connection, "stranger")
    with pytest.raises(DatabaseStateError, match="row security of .*--reveal-codes"):
        one.grant("stranger")
    assert rights(connection, "stranger") == before
    one.grant("stranger", reveal_codes=True)
    assert ("hashindex.set_1_codes", "SELECT") in rights(connection, "stranger")


def test_rights_to_grant(one, connection, as_role):
    """Not one who searches himself."""
    reader = as_role("reader")
    as_role("friend")
    connection.execute("GRANT SELECT ON items TO reader, friend")
    one.grant("reader")
    index = HashIndex.open(reader, "items_idx")
    for change in (index.grant, index.revoke):
        with pytest.raises(MissingRightsError, match="Connect as role postgres, which owns"):
            change("friend")


def test_rights_of_a_writer_are_not_taken(one, connection, as_role):
    writer = as_role("writer")
    connection.execute("GRANT SELECT, INSERT ON items TO writer")
    one.grant("writer")
    one.revoke("writer")
    writer.execute("INSERT INTO items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    assert one.waiting() == 0
    assert writer.execute(TYPED).fetchone() == (10,)
    with denied():
        writer.execute("TABLE hashindex.set_1_codes")


def test_shared_objects_stay_with_the_other_index(one, connection, as_role):
    reader = as_role("reader")
    second = indexed(connection, "second")
    connection.execute("GRANT SELECT ON items TO reader")
    before = rights(connection, "reader")
    one.grant("reader")
    second.grant("reader")
    second.revoke("reader")
    reader.execute("TABLE hashindex.set_1_codes")
    assert len(reader.execute("SELECT layers FROM hashindex.readable_model").fetchall()) == 1
    # The table is his to read, and so are exact answers.
    second_search = "SELECT id, distance FROM hashindex.search_second('[1,2,3,4,5,6,7,8]')"
    exact = "SELECT id::bigint, distance FROM hashindex.exact_search('second', '[1,2,3,4,5,6,7,8]')"
    assert reader.execute(second_search).fetchall() == reader.execute(exact).fetchall()
    with denied():
        reader.execute("TABLE hashindex.set_2_codes")
    connection.execute("REVOKE SELECT ON items FROM reader")
    one.revoke("reader")
    assert rights(connection, "reader") == before - {("items", "SELECT")}


def test_everybody_may_read(one, connection, as_role):
    anybody = as_role("anybody")
    connection.execute("GRANT SELECT ON items TO PUBLIC")
    one.grant("public")
    anybody.execute("TABLE hashindex.set_1_codes")
    one.revoke("public")
    with denied():
        anybody.execute("TABLE hashindex.set_1_codes")
    # Everyone's rights for exact answers stay.
    assert anybody.execute(TYPED).fetchone() == (10,)


ODD = ('a "quoted" role', "PUBLIC", "role; DROP TABLE items; --", "%s'$$")


def test_roles_of_any_name(index):
    connection = index.connection
    for number, name in enumerate(ODD, start=7):

        def run(statement, role=name):
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
            make_administrator(connection, name)
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
