"""Searches run with the reader's rights; who may use the table may use its index."""

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index, indexed
from fixtures.roles import denied, make_administrator

from pg_hashindex import store
from pg_hashindex.errors import MissingRightsError
from pg_hashindex.index.handle import HashIndex

QUERY = "[1,2,3,4,5,6,7,8]"
SEARCHES = (
    f"SELECT count(*) FROM hashindex.search_items_idx('{QUERY}')",
    f"SELECT count(*) FROM hashindex.search('items_idx', '{QUERY}')",
    f"""SELECT count(*) FROM hashindex.search('items_idx', '{QUERY}', 10,
        where_equals => '{{"category": "a"}}')""",
)


def test_a_reader_searches_and_writes_nothing(connection, as_role, items, model):
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    indexed(connection)
    for search in SEARCHES:
        assert reader.execute(search).fetchone() == (10,)
    assert len(HashIndex.open(reader, "items_idx").search([1.0] * 8)) == 10
    for write in (
        "DELETE FROM hashindex.set_1_codes",
        "UPDATE hashindex.set_1_codes SET code = ~code",
        "DELETE FROM hashindex.index",
        "DELETE FROM hashindex.model",
        "DELETE FROM items",
    ):
        with denied():
            reader.execute(write)


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_writers_do_not_need_pg_hashindex(connection, as_role, items, model, access):
    """Not the schema, not the codes; and they cannot call what writes them."""
    writer = as_role("writer")
    connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO writer")
    index = indexed(connection, access=access)
    index = HashIndex.open(connection, "items_idx")
    # A reader's rights.
    index.revoke("writer")
    for statement in (
        f"INSERT INTO items VALUES (1001, 'w', '{QUERY}'), (1002, NULL, NULL)",
        f"INSERT INTO items VALUES (1, 'x', '{QUERY}') ON CONFLICT (id) "
        "DO UPDATE SET embedding = excluded.embedding",
        "UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 9",
        "UPDATE items SET id = id + 5000 WHERE id BETWEEN 20 AND 30",
        "UPDATE items SET category = 'new' WHERE id > 100",
        "DELETE FROM items WHERE id BETWEEN 40 AND 50",
    ):
        writer.execute(statement.encode())
        assert_fresh(index)
    writer.execute("TRUNCATE items")
    assert index.summary().codes == 0
    for statement in (
        "SELECT hashindex.refresh_1('{1}')",
        "TABLE hashindex.model",
        "SELECT hashindex.sync_items_idx()",
        "CREATE TABLE pg_temp.own (id bigint, category text, embedding public.vector(8));"
        "CREATE TRIGGER t BEFORE INSERT ON pg_temp.own FOR EACH ROW "
        "EXECUTE FUNCTION hashindex.sync_items_idx()",
    ):
        with denied():
            writer.execute(statement.encode())


def test_a_table_whose_policies_hold_for_the_index(connection, as_role, items, model):
    """Triggers could not see every row: no index is made, or writes fail, and no code is wrong."""
    owner = as_role("keeper")
    make_administrator(connection, "keeper")
    connection.execute(
        "ALTER TABLE items OWNER TO keeper; "
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON items USING (category = 'a')"
    )
    with pytest.raises(MissingRightsError, match="row security of .*items"):
        create_index(owner)
    connection.execute("ALTER TABLE items NO FORCE ROW LEVEL SECURITY")
    indexed(owner)
    connection.execute("ALTER TABLE items FORCE ROW LEVEL SECURITY")
    with denied():
        connection.execute("UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id = 2")
    broken = owner.execute(
        "SELECT status FROM hashindex.health('items_idx') WHERE check_name = 'triggers'"
    ).fetchall()
    assert ("broken",) in broken
    connection.execute("ALTER TABLE items NO FORCE ROW LEVEL SECURITY")
    assert_fresh(HashIndex.open(owner, "items_idx"))


def test_a_writer_of_one_column(connection, as_role, items, model):
    writer = as_role("titles")
    connection.execute("GRANT SELECT (id), UPDATE (category) ON items TO titles")
    indexed(connection)
    writer.execute("UPDATE items SET category = 'new' WHERE id = 1")


def test_rights_granted_later(connection, as_role, items, model):
    index = indexed(connection)
    late = as_role("late")
    connection.execute("GRANT SELECT, INSERT ON items TO late")
    # Writing needs no right on schema hashindex.
    late.execute(f"INSERT INTO items VALUES (1001, 'w', '{QUERY}')")
    assert_fresh(index)
    # Searches are exact, until he may read the codes.
    for search in SEARCHES:
        assert late.execute(search).fetchone() == (10,)
    with denied():
        late.execute("TABLE hashindex.set_1_codes")
    index.grant("late")
    for search in SEARCHES:
        assert late.execute(search).fetchone() == (10,)
    late.execute("TABLE hashindex.set_1_codes")
    assert_fresh(index)


def test_without_rights_on_the_table_there_is_no_answer(connection, as_role, items, model):
    indexed(connection)
    stranger = as_role("stranger")
    for search in SEARCHES:
        with denied():
            stranger.execute(search)
    with pytest.raises(MissingRightsError, match="permission denied"):
        HashIndex.open(stranger, "items_idx").search([1.0] * 8)


def test_a_reader_may_not_change_an_index(connection, as_role, items, model):
    indexed(connection)
    index = HashIndex.open(as_role("other_reader"), "items_idx")
    for change in (lambda: index.configure(candidates=30), index.drop):
        with pytest.raises(MissingRightsError, match='"other_reader" does not administer'):
            change()
    assert HashIndex.open(connection, "items_idx").candidates == 200


def test_row_level_security_holds(connection, as_role, items, model):
    """Two tenants see their own rows only, whatever the candidates are."""
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    tenants = {role: as_role(role) for role in ("a", "b")}
    for role in tenants:
        connection.execute(f"GRANT SELECT ON items TO {role}")
    connection.execute("CREATE POLICY own ON items USING (category = current_user)")
    indexed(connection)
    for role, session in tenants.items():
        for search in (SEARCHES[0], SEARCHES[1]):
            ids = search.replace("count(*)", "array_agg(s.id::bigint)") + " s"
            found = session.execute(ids).fetchone()
            rows = connection.execute(
                "SELECT DISTINCT category FROM items WHERE id = ANY (%s)", [found[0]]
            ).fetchall()
            assert rows == [(role,)]


def test_each_right_alone_is_enough_for_its_statement(connection, as_role, items, model):
    rights = {
        "inserts": ("INSERT", f"INSERT INTO items VALUES (1001, 'w', '{QUERY}')"),
        "updates": ("SELECT, UPDATE", f"UPDATE items SET embedding = '{QUERY}' WHERE id = 1"),
        "deletes": ("SELECT, DELETE", "DELETE FROM items WHERE id = 2"),
        "truncates": ("TRUNCATE", "TRUNCATE items"),
    }
    sessions = {role: as_role(role) for role in rights}
    for role, (right, _) in rights.items():
        connection.execute(f"GRANT {right} ON items TO {role}")
    index = indexed(connection)
    for role, (_, statement) in rights.items():
        sessions[role].execute(statement)
        assert_fresh(index)
    assert index.summary().codes == 0


def test_rights_of_everybody(connection, as_role, items, model):
    connection.execute("GRANT SELECT, INSERT ON items TO PUBLIC")
    index = indexed(connection)
    anybody = as_role("anybody")
    anybody.execute(f"INSERT INTO items VALUES (1001, 'w', '{QUERY}')")
    assert anybody.execute(SEARCHES[0]).fetchone() == (10,)
    assert_fresh(index)


def test_a_role_with_an_odd_name(connection, items, model):
    """Rights on the table decide those on the codes, without a grant."""
    role = 'it\'s; DROP "x" --'
    quoted = psycopg.sql.Identifier(role).as_string(connection)
    connection.execute(f"CREATE ROLE {quoted}; GRANT ALL ON items TO {quoted}".encode())
    indexed(connection)
    granted = connection.execute(
        "SELECT array_agg(has_table_privilege(%s, 'hashindex.set_1_codes', r)) "
        "FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) r",
        [role],
    ).fetchone()
    assert granted == ([True, False, False, False],)
    connection.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}".encode())


def test_training_checks_rights_first(connection, as_role):
    reader = as_role("reader")
    with pytest.raises(MissingRightsError, match='role "reader" does not administer'):
        store.check_may_save(reader)
    make_administrator(connection, "reader")
    store.check_may_save(reader)
