"""Sets that pgvector keeps: their statements run as the caller, who runs no code of others."""

import psycopg
import pytest
from fixtures.attackers import telling
from fixtures.roles import make_administrator
from fixtures.traps import SPRUNG, lay_trap, trapped_table

from pg_hashindex.errors import HashIndexError, MissingRightsError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

QUERY = "'[1,2,3,4,5,6,7,8]'"
CREATE = "SELECT * FROM hashindex.create_index('strange', 'mallory.docs', 'embedding', {})"


@pytest.mark.parametrize("model", ["'none'", "NULL"])
@pytest.mark.parametrize("strong", [False, True], ids=["keeper", "superuser"])
def test_no_set_of_a_table_of_another_role(connection, as_role, model, strong):
    """Not where an index of that role would serve, either: nothing asks for the owner then."""
    mallory = lay_trap(connection, as_role)
    trapped_table(mallory, "mallory.docs")
    mallory.execute(
        "CREATE INDEX ready ON mallory.docs USING hnsw ((embedding::halfvec(8)) halfvec_cosine_ops)"
    )
    session = connection
    if not strong:
        session = as_role("keeper")
        make_administrator(connection, "keeper")
    with pytest.raises(psycopg.Error, match=r"belongs to role mallory") as refused:
        session.execute(CREATE.format(model).encode())
    assert SPRUNG not in str(refused.value)
    with pytest.raises(MissingRightsError, match="mallory"):
        HashIndex.create(session, "strange", table="mallory.docs", column="embedding", model="none")
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


def test_no_swap_after_the_table_was_given_away(connection, as_role):
    mallory = lay_trap(connection, as_role)
    connection.execute("GRANT CREATE ON SCHEMA public TO mallory")
    trapped_table(mallory, "public.docs")
    connection.execute("ALTER TABLE docs OWNER TO postgres; DROP INDEX docs_id_idx")
    index = HashIndex.create(connection, "strange", table="docs", column="embedding", model="none")
    connection.execute("ALTER TABLE docs OWNER TO mallory")
    mallory.execute("CREATE INDEX ON public.docs (id) WHERE mallory.springs(1)")
    with pytest.raises(HashIndexError, match="belongs to role mallory"):
        index.swap(access="ivfflat")


def test_a_members_table_gets_its_set(connection, as_role):
    owner, keeper = as_role("shop"), as_role("keeper")
    make_administrator(connection, "keeper")
    connection.execute("GRANT shop TO keeper; CREATE SCHEMA shop AUTHORIZATION shop")
    trap = "CREATE TABLE shop.docs AS SELECT n AS id, ARRAY[n, 1]::vector(2) AS embedding "
    owner.execute(
        f"{trap} FROM generate_series(1, 30) n; ALTER TABLE shop.docs ADD PRIMARY KEY (id)"
    )
    keeper.execute("SELECT hashindex.create_index('docs', 'shop.docs', 'embedding', 'none')")
    assert len(keeper.execute("SELECT * FROM hashindex.search_docs('[1, 2]')").fetchall()) == 10


#: Functions of mallory's that would be nearer than what a search calls under its caller's path.
NEARER = {
    "format": "CREATE FUNCTION public.format(text, text, text, text, text, text, text, integer) "
    "RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'HIJACKED'; END $$",
    "varchar": "CREATE FUNCTION public.same(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'HIJACKED'; END $$; "
    "CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = public.same)",
}
SEARCHES = (
    f"SELECT * FROM hashindex.candidates('docs', {QUERY}, 5, filter => 'id > 1', tenant => 'a')",
    f"SELECT * FROM hashindex.search_docs({QUERY}, tenant => 'a', filter => 'id > 1')",
    f"SELECT * FROM hashindex.search('docs', {QUERY}, 5, where_equals => '{{\"shop\": \"a\"}}', "
    "filter => 'id > 1', all_tenants => true)",
    f"SELECT * FROM hashindex.search('docs', {QUERY}, 5, tenant => 'a', "
    "where_equals => '{\"kind\": \"x\"}', filter => 'id > 1')",
)


@pytest.mark.parametrize("access", ["hnsw", "lists"])
@pytest.mark.parametrize("nearer", NEARER)
def test_filters_run_no_function_of_a_stranger(connection, as_role, access, nearer):
    mallory = as_role("mallory")
    connection.execute("GRANT CREATE ON SCHEMA public TO mallory")
    connection.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, shop varchar(9), kind varchar(9), "
        "embedding vector(8)); "
        "INSERT INTO docs SELECT n, 'a', 'x', ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(1, 2000) n; ANALYZE docs"
    )
    HashIndex.create(
        connection, "docs", table="docs", column="embedding", access=access, tenant="shop"
    )
    mallory.execute(NEARER[nearer].encode())
    connection.execute("SET search_path TO pg_catalog, public")
    for statement in SEARCHES:
        assert len(connection.execute(statement.encode()).fetchall()) >= 5


def test_the_gate_of_lists_plans_no_table_that_a_policy_names(keeper, connection, mallory):
    mallory.execute(
        "CREATE TABLE mallory.members (id bigint); GRANT SELECT ON mallory.members TO PUBLIC;"
        "CREATE INDEX ON mallory.members (id) WHERE mallory.tells(id)"
    )
    keeper.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON items USING (id IN (SELECT id FROM mallory.members))"
    )
    with telling(keeper) as ran:
        HashIndex.create(
            keeper, "items", table="items", column="embedding", model="lsh", access="lists"
        )
    assert ran == []


def test_a_table_that_takes_the_name_passes_the_gate_too(mallory, connection, kept, url):
    """A session waits for the lock of the first table, and reads the second."""
    from threading import Thread

    from fixtures.faults import eventually

    from pg_hashindex.db.connection import connect

    failures = []
    as_keeper = url.replace("postgres@", "keeper@")
    connection.execute(
        "CREATE TABLE later (LIKE items INCLUDING ALL); ALTER TABLE later OWNER TO mallory"
    )
    with connect(as_keeper) as waiting:

        def ask():
            try:
                waiting.execute("SELECT hashindex._require_read(hashindex.find_index('items_idx'))")
            except psycopg.Error as error:
                failures.append(str(error))

        thread = Thread(target=ask)
        locked = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
        with connection.transaction():
            connection.execute(
                "ALTER TABLE items RENAME TO earlier; ALTER TABLE later RENAME TO items"
            )
            thread.start()
            pid = [waiting.info.backend_pid]
            eventually(lambda: connection.execute(locked, pid).rowcount > 0)
        thread.join(30)
    (failure,) = failures
    assert "items belongs to role mallory" in failure


def test_triggers_of_that_name_hinder_no_rename(keeper, connection, mallory, kept):
    mallory.execute(
        "CREATE TABLE mallory.t (); "
        "CREATE TRIGGER hashindex_items_idx_insert BEFORE INSERT ON mallory.t "
        "FOR EACH ROW EXECUTE FUNCTION hashindex._refuse_update()"
    )
    assert kept.rename("papers").name == "papers"
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'mallory.t'::regclass"
    assert connection.execute(triggers.encode()).fetchone() == (1,)


def test_default_privileges_open_no_trigger_function(keeper, connection, mallory):
    keeper.execute("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO mallory")
    HashIndex.create(
        keeper, "items", table="items", column="embedding", model="lsh", access="lists"
    )
    rows = connection.execute(
        "SELECT has_function_privilege('mallory', p.oid, 'EXECUTE') FROM pg_proc p WHERE prosecdef"
    ).fetchall()
    assert rows == [(False,)]


@pytest.mark.parametrize("name", ["50%", "a%sb", "x%1$s"])
def test_a_reader_with_percent_signs(keeper, connection, kept, name):
    """join_extension takes rights away, and gives them back."""
    connection.execute(
        psycopg.sql.SQL("CREATE ROLE {0}; GRANT SELECT ON items TO {0}").format(
            psycopg.sql.Identifier(name)
        )
    )
    try:
        kept.grant(name)
        grants = (
            "SELECT pg_catalog.format('%s%s ON %s', g.privilege, '', c.oid::regclass), g.role "
            "FROM pg_class c CROSS JOIN hashindex._grants_on(c.oid) g WHERE g.role = %s"
        ).replace("'%s%s ON %s'", "'%%s%%s ON %%s'")
        assert connection.execute(grants.encode(), [name]).fetchall()
        connection.execute("SELECT hashindex.join_extension()")
        assert connection.execute(grants.encode(), [name]).fetchall()
    finally:
        connection.execute(
            psycopg.sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(psycopg.sql.Identifier(name))
        )


def test_a_function_that_depends_on_the_extension_hinders_no_leaving(connection, as_role):
    mallory = as_role("mallory")
    connection.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    installed = "SELECT FROM pg_extension WHERE extname = 'pg_hashindex'"
    if not connection.execute(installed).fetchall():
        pytest.skip("there is no extension in this run")
    mallory.execute(
        "CREATE FUNCTION mallory.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; "
        "ALTER FUNCTION mallory.f() DEPENDS ON EXTENSION pg_hashindex"
    )
    connection.execute("SELECT hashindex.leave_extension()")


def test_policies_are_the_same_in_each_time_zone(keeper, connection):
    keeper.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON items USING (now() < '2090-01-01'::timestamptz)"
    )
    found = set()
    for setting in ("timezone = 'UTC'", "timezone = 'Europe/Berlin'", "datestyle = 'SQL'"):
        keeper.execute(f"SET {setting}".encode())
        found |= set(keeper.execute("SELECT hashindex._policies_of('items'::regclass)").fetchall())
    assert len(found) == 1


def test_a_filter_with_a_wrong_name_without_codes(keeper, connection, kept):
    """The search function does not call itself without end."""
    connection.execute("DROP TABLE hashindex.set_1_codes CASCADE")
    with pytest.raises(psycopg.errors.UndefinedColumn, match="nosuch"):
        keeper.execute(
            "SELECT * FROM hashindex.search_items_idx("
            "(SELECT embedding FROM items WHERE id = 1), filter => 'nosuch > 1')"
        )
