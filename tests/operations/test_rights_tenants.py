"""Row security holds in every search, by every access path: k answers of a tenant's own rows."""

import psycopg
import pytest
from fixtures.code_indexes import pretend_large
from fixtures.filters import look_codes_up
from fixtures.tenants import QUERY, ROWS, SEARCHES, assert_sees
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

BOTH = ("many", "few")
GRANTED = "GRANT SELECT ON notes TO app; SELECT hashindex.grant_reader('notes_idx', 'app', true)"
TYPED = "SELECT id, distance FROM hashindex.search_notes_idx"


def become(session, tenant):
    session.execute("SELECT set_config('app.tenant', %s, false)", [tenant])


def test_each_sees_his_own(notes, connection, as_role):
    """One session, by turns as either tenant and as a stranger, while plans are kept."""
    app = as_role("app")
    connection.execute(GRANTED)
    for tenant in ("few", "many", "stranger", "few"):
        become(app, tenant)
        assert_sees(app, (tenant,) if tenant in ROWS else ())
    index = HashIndex.open(app, "notes_idx")
    own, other = min(ROWS["few"]), min(ROWS["many"])
    like = index.search_like(own, 20)
    assert {hit.id for hit in like} == set(ROWS["few"]) - {own}
    assert {hit.id for hit in index.within_like(own, 12)} == set(ROWS["few"]) - {own}
    for search in (index.search_like, index.within_like):
        with pytest.raises(InvalidInputError, match=f"no row with id = {other} and a vector"):
            search(other, 5)
    # Each of the eight rows finds the others: nothing is counted that he does not see.
    assert app.execute("SELECT hashindex.recall('notes_idx', 7, 100)").fetchone() == (1.0,)
    # Here the planner expects filters to match much of the table, and many codes.
    look_codes_up(connection)
    pretend_large(notes)
    for tenant in ("few", "stranger"):
        become(app, tenant)
        assert_sees(app, (tenant,) if tenant in ROWS else ())


def test_bypassing_row_security_sees_all(notes, connection, as_role):
    owner, auditor = as_role("owner"), as_role("auditor")
    connection.execute(
        "GRANT postgres TO owner; ALTER TABLE notes OWNER TO owner; "
        "ALTER ROLE auditor BYPASSRLS;"
        "GRANT SELECT ON notes TO auditor; SELECT hashindex.grant_reader('notes_idx', r, true) "
        "FROM unnest('{owner,auditor}'::text[]) r"
    )
    for session in (connection, owner, auditor):
        assert_sees(session, BOTH)
    connection.execute("ALTER TABLE notes FORCE ROW LEVEL SECURITY")
    become(owner, "few")
    assert_sees(owner, ("few",))
    assert_sees(auditor, BOTH)
    connection.execute("ALTER TABLE notes NO FORCE ROW LEVEL SECURITY")
    assert_sees(owner, BOTH)
    connection.execute("ALTER ROLE auditor NOBYPASSRLS")
    become(auditor, "few")
    assert_sees(auditor, ("few",))


def test_one_session_that_changes_its_role(notes, connection, as_role):
    """A pool that connects as one role, and sets another for each request."""
    as_role("tenant")
    connection.execute("GRANT SELECT ON notes TO tenant")
    connection.execute("SELECT hashindex.grant_reader('notes_idx', 'tenant', true)")
    become(connection, "few")
    connection.execute(f"PREPARE nearest (vector, integer) AS {TYPED}($1, $2)")
    execute = "EXECUTE nearest (%s, 12)"
    cursor = psycopg.ClientCursor(connection)
    for role, seen in (("NONE", 12), ("tenant", 8), ("NONE", 12), ("tenant", 8)):
        connection.execute(f"SET ROLE {role}".encode())
        assert_sees(connection, BOTH if role == "NONE" else ("few",))
        # By the server's protocol, and by the statement.
        for _ in range(3):
            assert (
                len(
                    connection.execute(f"{TYPED}(%s, 12)", [Vector(QUERY)], prepare=True).fetchall()
                )
                == seen
            )
            assert len(cursor.execute(execute, [str(QUERY.tolist())]).fetchall()) == seen


def test_rows_that_change_hands(notes, connection, as_role):
    app = as_role("app")
    connection.execute(GRANTED)
    become(app, "few")
    names = [name for name, search in SEARCHES.items() if not search.filtered]
    taken = 5
    connection.execute("UPDATE notes SET tenant = 'few' WHERE id = %s", [taken])
    for name in names:
        assert taken in [key for key, _ in SEARCHES[name].run(app, 12)], name
    connection.execute("UPDATE notes SET tenant = 'many' WHERE id = %s", [taken])
    assert_sees(app, ("few",))
    connection.execute("DROP POLICY own ON notes")
    assert_sees(app, ())
    connection.execute("ALTER TABLE notes DISABLE ROW LEVEL SECURITY")
    assert_sees(app, BOTH)


def test_row_security_that_is_off_is_an_error(notes, connection, as_role):
    """As of the table itself: not a way round the policy."""
    app = as_role("app")
    connection.execute(GRANTED)
    app.execute("SET row_security = off")
    for name in ("typed", "by name", "where_equals", "within", "exact_search"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security policy"):
            SEARCHES[name].run(app, 5)


def test_after_the_model_was_swapped(notes, connection, as_role, vectors):
    """Codes that come later are granted, and hidden, as the first were."""
    app = as_role("app")
    connection.execute(GRANTED)
    store.save(connection, LSH(n_bits=12, random_state=9).fit(vectors).to_model("lsh2"))
    HashIndex.open(connection, "notes_idx").swap(model="lsh2", force=True)
    for tenant in ROWS:
        become(app, tenant)
        assert_sees(app, (tenant,))
