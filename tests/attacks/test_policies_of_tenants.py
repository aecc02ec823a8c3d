"""Codes that follow the policies of their table: a role reads those of its own tenants alone."""

import json

import numpy as np
import psycopg
import pytest
from fixtures.indexes import indexed
from fixtures.roles import denied
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import SGH
from pg_hashindex.hashers.itq import ITQ
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

#: Rows by tenant; those of 100 rows and more get landmarks here.
SIZES = {1: 300, 2: 120, 3: 7}
TENANTS = np.repeat(list(SIZES), list(SIZES.values()))
VECTORS = np.random.default_rng(0).standard_normal((len(TENANTS), 8)).astype(np.float32)
QUERY = Vector(VECTORS[5])
BY_SETTING = "tenant = current_setting('app.tenant', true)::integer"
PLAIN = "SELECT id, distance FROM hashindex.search_items_idx(%(q)s, %(k)s)"
EVERY = (
    "SELECT id::bigint, distance FROM hashindex.search("
    "'items_idx', %(q)s, %(k)s, filter => 'true', all_tenants => true)"
)
SEARCHES = (
    "SELECT id, distance FROM hashindex.search_items_idx(%(q)s, %(k)s, tenant => %(t)s)",
    PLAIN,
    "SELECT id::bigint, distance FROM hashindex.search("
    "'items_idx', %(q)s, %(k)s, where_equals => %(w)s)",
    "SELECT id::bigint, distance FROM hashindex.search("
    "'items_idx', %(q)s, %(k)s, filter => 'id %% 2 = 0', all_tenants => true)",
)


@pytest.fixture
def items(connection):
    """Tenants of three sizes in one table, an index, and a policy by the setting app.tenant."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex._tenant_landmarks(rows bigint) RETURNS integer "
        "LANGUAGE sql IMMUTABLE RETURN CASE WHEN rows < 100 THEN 0 ELSE rows / 20 END;"
        "DROP TABLE IF EXISTS items CASCADE;"
        "CREATE TABLE items (id bigint PRIMARY KEY, tenant integer, code text, embedding vector(8))"
    )
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY items (id, tenant, embedding) FROM STDIN") as copy,
    ):
        for row, tenant in enumerate(TENANTS.tolist()):
            copy.write_row((row, tenant, Vector(VECTORS[row])))
    model = ITQ(n_bits=8, random_state=0).fit(VECTORS).to_model("m", metric="l2", cuts=3)
    store.save(connection, model)
    indexed(connection, model="m", metric="l2", access="lists", tenant="tenant")
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY own ON items USING ({BY_SETTING})".encode())
    return HashIndex.open(connection, "items_idx")


@pytest.fixture
def app(connection, as_role, items):
    session = as_role("app")
    connection.execute("GRANT SELECT ON items TO app")
    items.grant("app")
    become(session, 1)
    return session


def become(session, tenant):
    session.execute("SELECT set_config('app.tenant', %s, false)", [str(tenant)])


def tables(session):
    return session.execute(
        "SELECT format('hashindex.set_%s_codes', id), format('hashindex.set_%s_landmarks', id) "
        "FROM hashindex.index_set WHERE index_name = 'items_idx' AND state = 'used'"
    ).fetchone()


def read(session):
    """Return the tenants whose codes and landmarks a session reads, without a search."""
    codes, landmarks = tables(session)
    seen = set()
    for table in (codes, landmarks):
        statement = f"SELECT DISTINCT tenant FROM {table}"
        seen |= {tenant for (tenant,) in session.execute(statement.encode())}
    return seen


def faults(index):
    found = [
        f for f in operations.check(index).findings if f.check == "rights" and f.status != "ok"
    ]
    return "; ".join(f"{f.detail}: {f.advice}" for f in found)


def assert_finds(session, tenants, k=7):
    """Every search finds the nearest rows of these tenants."""
    own = np.flatnonzero(np.isin(TENANTS, list(tenants)))
    for statement in SEARCHES:
        for tenant in SIZES:
            rows = own
            if "tenant =>" in statement or "where_equals" in statement:
                rows = own[TENANTS[own] == tenant]
            elif "filter" in statement:
                rows = own[own % 2 == 0]
            distances = np.linalg.norm(VECTORS[rows] - VECTORS[5], axis=1)
            values = {"q": QUERY, "k": k, "t": tenant, "w": json.dumps({"tenant": tenant})}
            # Policies stand for a tenant, and a filter for all of them.
            asked = statement.replace(PLAIN, EVERY if {*tenants} == {*SIZES} else PLAIN)
            found = session.execute(asked.encode(), values).fetchall()
            assert {key for key, _ in found} <= set(rows.tolist()), statement
            assert len(found) == min(k, len(rows)), statement
            assert min((d for _, d in found), default=0) == pytest.approx(
                distances.min(initial=np.inf) if len(rows) else 0, abs=1e-5
            )


def test_a_role_reads_its_tenants(items, app, connection):
    for tenant in (1, 2, 3, 1):
        become(app, tenant)
        assert read(app) == {tenant}
        assert_finds(app, {tenant})
    become(app, 9)
    assert read(app) == set()
    assert_finds(app, ())
    assert_finds(connection, SIZES)
    assert faults(items) == ""
    become(app, 1)
    assert {h.id for h in HashIndex.open(app, "items_idx").within(VECTORS[5], 16)} == set(
        np.flatnonzero(TENANTS == 1).tolist()
    )


def test_searches_are_by_codes(items, app, connection):
    """A row that has lost its code is not found, as long as k others are."""
    codes, _ = tables(connection)
    connection.execute(f"DELETE FROM {codes} WHERE id = 5".encode())
    found = app.execute(SEARCHES[0].encode(), {"q": QUERY, "k": 3, "t": 1}).fetchall()
    assert len(found) == 3
    assert 5 not in {key for key, _ in found}
    # After a change of the policies, by exact distance.
    connection.execute("CREATE POLICY all_rows ON items AS RESTRICTIVE USING (true)")
    found = app.execute(SEARCHES[0].encode(), {"q": QUERY, "k": 3, "t": 1}).fetchall()
    assert found[0][0] == 5


CHANGES = {
    "another condition": f"ALTER POLICY own ON items USING ({BY_SETTING} AND id % 2 = 0)",
    "roles": "CREATE ROLE another_role; ALTER POLICY own ON items TO another_role",
    "one more": "CREATE POLICY more ON items AS RESTRICTIVE FOR SELECT USING (tenant <> 1)",
    "one more that permits": "CREATE POLICY more ON items USING (tenant = 2)",
    "another name": "ALTER POLICY own ON items RENAME TO mine",
    "none": "DROP POLICY own ON items",
    "dropped and made again": (
        "DROP POLICY own ON items; CREATE POLICY own ON items USING (tenant = 2)"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_codes_are_hidden_as_soon_as_policies_change(items, app, connection, change):
    connection.execute(CHANGES[change].encode())
    try:
        assert read(app) == set()
        visible = {key for (key,) in app.execute("SELECT id FROM items")}
        for tenant in SIZES:
            values = {"q": QUERY, "k": 1000, "t": tenant}
            found = {key for key, _ in app.execute(SEARCHES[0].encode(), values)}
            assert found == {key for key in visible if TENANTS[key] == tenant}
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="do not follow"):
            app.execute("SELECT * FROM hashindex.within('items_idx', %s, 16)", [QUERY])
        assert "role app" in faults(items)
        assert "index grant items_idx app" in faults(items)
        assert_finds(connection, SIZES)
    finally:
        connection.execute("DROP POLICY IF EXISTS own ON items")
        if change == "roles":
            connection.execute("DROP ROLE another_role")


def test_a_grant_follows_the_new_policies(items, app, connection):
    connection.execute("ALTER POLICY own ON items USING (tenant = 2)")
    assert read(app) == set()
    items.grant("app")
    assert read(app) == {2}
    assert_finds(app, {2})
    assert faults(items) == ""
    # Codes keep their policies, since row security may be switched on again.
    connection.execute("ALTER TABLE items DISABLE ROW LEVEL SECURITY")
    items.grant("app")
    assert read(app) == {2}
    assert_finds(app, SIZES)
    assert faults(items) == ""
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    assert read(app) == {2}
    assert_finds(app, {2})
    assert faults(items) == ""


REFUSED = {
    "another column": "tenant = 1 AND id > 0",
    "the whole row": "row_to_json(items.*) ->> 'code' IS NULL",
    "a column with the name of one of the codes": "tenant = 1 OR code IS NULL",
    "a column of the system": "tenant = 1 AND items.xmin IS NOT NULL",
    "another column of the table by a subquery": "tenant IN (SELECT i.id FROM items i)",
}


def test_policies_by_more_than_the_tenant(items, connection, as_role):
    app = as_role("app")
    connection.execute("GRANT SELECT ON items TO app")
    for policy in REFUSED.values():
        connection.execute(f"ALTER POLICY own ON items USING ({policy})".encode())
        with pytest.raises(DatabaseStateError, match='policy "own" of .*more than the tenant'):
            items.grant("app")
        with denied():
            app.execute(f"TABLE {tables(connection)[0]}".encode())


ACCEPTED = {
    "a table of members": "tenant IN (SELECT m.tenant FROM members m WHERE m.name = CURRENT_USER)",
    "members, related to the row": (
        "EXISTS (SELECT FROM members m WHERE m.tenant = items.tenant AND m.name = CURRENT_USER)"
    ),
    "a table with columns of the same names": (
        "EXISTS (SELECT FROM members items WHERE items.tenant = items.tenant AND FALSE) "
        "OR tenant IN (SELECT tenant FROM members)"
    ),
    "a function": "app_tenant() = tenant",
}


@pytest.mark.parametrize("policy", ACCEPTED)
def test_policies_by_the_tenant_in_other_ways(items, connection, as_role, policy):
    app = as_role("app")
    connection.execute(
        "CREATE TABLE members (tenant integer, name text, id bigint);"
        "INSERT INTO members VALUES (2, 'app', 1);"
        "CREATE FUNCTION app_tenant() RETURNS integer LANGUAGE sql STABLE RETURN 2;"
        "GRANT SELECT ON items, members TO app"
    )
    connection.execute(f"ALTER POLICY own ON items USING ({ACCEPTED[policy]})".encode())
    items.grant("app")
    assert read(app) == {2}
    assert_finds(app, {2})
    connection.execute("UPDATE members SET tenant = 3")
    if policy != "a function":
        assert read(app) == {3}
        assert_finds(app, {3})


def test_policies_of_some_roles(items, connection, as_role):
    """Permissive ones of either role, and one that restricts both."""
    app, other = as_role("app"), as_role("other")
    connection.execute(
        "DROP POLICY own ON items; GRANT SELECT ON items TO app, other;"
        "CREATE POLICY a ON items FOR SELECT TO app USING (tenant = 1);"
        "CREATE POLICY b ON items TO app, other USING (tenant IN (2, 3));"
        "CREATE POLICY c ON items AS RESTRICTIVE USING (tenant <> 3);"
        "CREATE POLICY w ON items FOR UPDATE USING (true);"
        "CREATE POLICY i ON items FOR INSERT WITH CHECK (true)"
    )
    items.grant("app")
    items.grant("other")
    for session, tenants in ((app, {1, 2}), (other, {2})):
        assert read(session) == tenants
        assert_finds(session, tenants)


def test_owners_and_auditors(items, connection, as_role):
    """They read all rows, and all codes: the table's owner has the administrator's rights."""
    owner, auditor = as_role("owner"), as_role("auditor")
    connection.execute(
        "GRANT postgres TO owner; ALTER TABLE items OWNER TO owner; "
        "ALTER ROLE auditor BYPASSRLS; GRANT SELECT ON items TO auditor"
    )
    for session, role in ((owner, "owner"), (auditor, "auditor")):
        items.grant(role)
        become(session, 2)
        assert_finds(session, SIZES)
        assert read(session) == set(SIZES)
    # Members of the administrator read all codes, and search under the policies all the same.
    member = as_role("member")
    connection.execute("GRANT SELECT ON items TO member")
    become(member, 3)
    assert_finds(member, {3})


def test_functions_of_the_caller_see_no_other_code(items, app, connection):
    connection.execute("CREATE SCHEMA lab; GRANT ALL ON SCHEMA lab TO app")
    app.execute(
        "CREATE FUNCTION lab.tell(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS "
        "$$BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END$$;"
        "CREATE FUNCTION lab.eq(integer, integer) RETURNS boolean LANGUAGE plpgsql COST 1e-7 AS "
        "$$BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END$$;"
        "CREATE OPERATOR lab.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = lab.eq);"
        "CREATE FUNCTION lab.current_setting(text, boolean) RETURNS text LANGUAGE sql RETURN '2';"
        "SET search_path = lab, public, pg_catalog"
    )
    told = []
    app.add_notice_handler(lambda notice: told.append(notice.message_primary))
    codes, landmarks = tables(connection)
    for table in (codes, landmarks):
        app.execute(f"SELECT count(*) FROM {table} WHERE lab.tell(tenant)".encode())
        app.execute(f"SELECT count(*) FROM {table} WHERE tenant OPERATOR(lab.=) 1".encode())
        app.execute(
            f"SELECT count(*) FROM {table} a JOIN items b ON lab.tell(a.tenant) LIMIT 1".encode()
        )
    assert set(told) == {"seen 1"}
    statistics = app.execute(
        "SELECT count(*) FROM pg_stats "
        "WHERE schemaname = 'hashindex' AND tablename LIKE 'items_idx%'"
    ).fetchone()
    assert statistics == (0,)


def test_writes_builds_and_swaps(items, app, connection):
    """Rows that change hands, and all that makes codes or landmarks again."""
    connection.execute("UPDATE items SET tenant = 3 WHERE id = 5")
    assert 5 not in {h.id for h in HashIndex.open(app, "items_idx").within(VECTORS[5], 16)}
    become(app, 3)
    assert 5 in {h.id for h in HashIndex.open(app, "items_idx").within(VECTORS[5], 16)}
    connection.execute("UPDATE items SET tenant = 1 WHERE id = 5")
    become(app, 1)
    store.save(
        connection,
        ITQ(n_bits=8, random_state=1).fit(VECTORS).to_model("next", metric="l2", cuts=3),
    )
    items.rebalance()
    assert (read(app), faults(items)) == ({1}, "")
    HashIndex.open(connection, "items_idx").rebalance(tenant=1)
    assert (read(app), faults(items)) == ({1}, "")
    index = HashIndex.open(connection, "items_idx")
    index.swap(model="next", force=True)
    index = HashIndex.open(connection, "items_idx")
    assert (read(app), faults(index)) == ({1}, "")
    index.prune()
    index = HashIndex.open(connection, "items_idx")
    operations.repair(index, full=True)
    assert (read(app), faults(index)) == ({1}, "")
    assert_finds(app, {1})
    # A swap passes no grant on where the policies have changed to more than the tenant.
    connection.execute(f"ALTER POLICY own ON items USING ({BY_SETTING} AND id > 0)".encode())
    HashIndex.open(connection, "items_idx").swap(model="m", force=True)
    with denied():
        app.execute(f"TABLE {tables(connection)[0]}".encode())
    assert_finds(app, {1})


def test_revealed_codes_and_followed_ones_exclude_each_other(items, app, connection, as_role):
    as_role("trusted")
    connection.execute("GRANT SELECT ON items TO trusted")
    with pytest.raises(DatabaseStateError, match="index grant items_idx app --revoke"):
        items.grant("trusted", reveal_codes=True)
    items.revoke("app")
    with denied():
        app.execute(f"TABLE {tables(connection)[0]}".encode())
    items.grant("trusted", reveal_codes=True)
    with pytest.raises(DatabaseStateError, match="index grant items_idx trusted --revoke"):
        items.grant("app")


def test_a_model_with_anchors_still_needs_the_word(items, connection, as_role):
    as_role("app")
    connection.execute("GRANT SELECT ON items TO app")
    model = SGH(n_bits=8, n_anchors=32).fit(VECTORS).to_model("anchored", metric="l2")
    store.save(connection, model)
    items.swap(model="anchored", force=True)
    with pytest.raises(DatabaseStateError, match="as anchors"):
        HashIndex.open(connection, "items_idx").grant("app")
