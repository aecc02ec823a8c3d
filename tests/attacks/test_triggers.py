"""Trigger functions run as the administrator: nothing of anybody else's runs in them.

Each attack is by somebody who writes to the table, or whose objects writing uses.
"""

import psycopg
import pytest
from fixtures.attackers import telling
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists, create_index, indexed
from fixtures.roles import denied
from pgvector import Vector

from pg_hashindex.errors import InvalidInputError, MissingRightsError

ROW = "(1001, 'w', '[1,2,3,4,5,6,7,8]')"
WRITES = (
    f"INSERT INTO items VALUES {ROW}",
    "UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 9",
    "UPDATE items SET id = id + 5000 WHERE id BETWEEN 20 AND 30",
    "INSERT INTO items VALUES (1, 'x', '[1,2,3,4,5,6,7,8]') ON CONFLICT (id) "
    "DO UPDATE SET embedding = excluded.embedding",
    "DELETE FROM items WHERE id BETWEEN 40 AND 50",
    "TRUNCATE items",
)


def write(session):
    """Run every kind of write; return as whom the attacker's functions ran."""
    with telling(session) as ran:
        for statement in WRITES:
            session.execute(statement.encode())
    return ran


@pytest.fixture
def writer(connection, mallory):
    """Mallory, who may write to the table."""
    connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO mallory")
    return mallory


def test_internal_functions_cannot_be_called(kept, writer):
    writer.execute(
        "CREATE TABLE mallory.own (id bigint, category text, embedding public.vector(8), "
        "items_idx_code bit(12))"
    )
    for timing in ("BEFORE INSERT ON mallory.own FOR EACH ROW", "AFTER TRUNCATE ON mallory.own"):
        with denied():
            writer.execute(
                f"CREATE TRIGGER t {timing} EXECUTE FUNCTION hashindex.sync_items_idx()".encode()
            )
    with denied():
        writer.execute("SELECT hashindex.sync_items_idx()")
    with denied():
        writer.execute("ALTER FUNCTION hashindex.sync_items_idx() SECURITY INVOKER")
    with denied():
        writer.execute("GRANT EXECUTE ON FUNCTION hashindex.sync_items_idx() TO mallory")


def test_settings_of_a_session(kept, writer):
    """Paths, temporary tables and functions of our names, settings of all kinds."""
    for table in (
        "items", "items_idx_codes", "model", "index", "pg_class", "pg_proc", "new_rows",
        "old_rows", "pg_partition_tree",
    ):  # fmt: skip
        writer.execute(f'CREATE TEMP TABLE "{table}" (id bigint, embedding text)'.encode())
    for name, arguments in (
        ("unnest", "bigint[]"), ("cardinality", "bigint[]"), ("to_regclass", "text"),
        ("current_setting", "text"), ("set_config", "text, text, boolean"), ("sum", "integer"),
        ("_refuse_vector", "public.vector, integer"), ("encode_with", "public.vector, integer"),
        ("l2_normalize", "public.vector"), ("binary_quantize", "public.vector"),
    ):  # fmt: skip
        for schema in ("pg_temp", "mallory"):
            writer.execute(
                f"CREATE FUNCTION {schema}.{name}({arguments}) RETURNS boolean LANGUAGE sql "
                "AS 'SELECT mallory.tells(1)'".encode()
            )
    writer.execute("SET search_path TO mallory, pg_temp, public, pg_catalog")
    for setting in (
        "row_security = off", "hnsw.ef_search = 1", "datestyle = 'sql, dmy'",
        "default_transaction_isolation = serializable", "plan_cache_mode = force_custom_plan",
        "enable_seqscan = off", "extra_float_digits = -15", "bytea_output = escape",
    ):  # fmt: skip
        writer.execute(f"SET {setting}".encode())
    with telling(writer) as ran:
        for statement in WRITES[:-1]:
            writer.execute(statement.replace(" items ", " public.items ").encode())
    assert "keeper" not in ran
    assert_fresh(kept)


def test_tenants_touch_only_visible_rows(kept, connection, writer):
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON items USING (category = 'a')"
    )
    writer.execute("UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]'")
    assert_fresh(kept)
    writer.execute("DELETE FROM items WHERE id > 100")
    assert_fresh(kept)
    for statement in (
        "INSERT INTO items VALUES (2, 'a', '[1,1,1,1,1,1,1,1]')",
        "INSERT INTO items VALUES (2, 'a', '[1,1,1,1,1,1,1,1]') ON CONFLICT (id) "
        "DO UPDATE SET embedding = excluded.embedding",
    ):
        with pytest.raises(psycopg.Error):
            writer.execute(statement.encode())
    writer.execute("INSERT INTO items VALUES (2, 'a', NULL) ON CONFLICT DO NOTHING")
    # The codes are out of his reach by their own names, too.
    for statement in (
        "DELETE FROM hashindex.set_1_codes",
        "SELECT hashindex.refresh_1(ARRAY[2]::bigint[])",
    ):
        with denied():
            writer.execute(statement.encode())
    assert_fresh(kept)


@pytest.mark.parametrize(
    "trap",
    [
        "CREATE INDEX ON items (id) WHERE mallory.tells(id)",
        "CREATE INDEX ON items (mallory.tells(id))",
        "ALTER TABLE items ADD CHECK (mallory.tells(embedding))",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON items USING "
        "(mallory.tells(id))",
        "ALTER TABLE items ADD extra boolean GENERATED ALWAYS AS (mallory.tells(id)) STORED",
        "CREATE STATISTICS s ON (mallory.tells(id)), id FROM items",
    ],
)
def test_an_owners_traps_only_reach_the_owner(keeper, connection, writer, trap):
    """Whoever owns a table runs code in all who read it: so none of his is indexed."""
    connection.execute(
        "ALTER TABLE items OWNER TO mallory; GRANT CREATE ON SCHEMA public TO mallory;"
        "GRANT SELECT, UPDATE, TRIGGER ON items TO keeper"
    )
    with telling(keeper) as ran:
        writer.execute(trap.encode())
        for session in (keeper, connection):
            with pytest.raises(MissingRightsError, match="belongs to role"):
                create_index(session)
    assert ran == []
    assert not keeper.execute("SELECT FROM hashindex.index").fetchall()


def test_a_table_that_was_never_his(kept, writer):
    """The traps need rights of an owner."""
    for trap in (
        "CREATE INDEX ON items (id) WHERE mallory.tells(id)",
        "ALTER TABLE items ADD CHECK (mallory.tells(id))",
        "CREATE POLICY p ON items USING (mallory.tells(id))",
        "CREATE RULE r AS ON INSERT TO items DO ALSO SELECT mallory.tells(1)",
        "CREATE TABLE mallory.part (CHECK (mallory.tells(id))) INHERITS (items)",
        "CREATE TRIGGER t BEFORE INSERT ON items FOR EACH ROW "
        "EXECUTE FUNCTION tsvector_update_trigger()",
        "ALTER TABLE items RENAME TO gone",
        "ALTER TABLE items DISABLE TRIGGER ALL",
    ):
        with denied():
            writer.execute(trap.encode())
    assert "keeper" not in write(writer)
    assert_fresh(kept)


def test_the_owners_triggers_run_as_the_writer(kept, connection, writer):
    connection.execute("GRANT TRIGGER ON items TO mallory")
    writer.execute(
        "CREATE FUNCTION mallory.fires() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM mallory.tells(1); RETURN NEW; END$$;"
        "CREATE TRIGGER a_first BEFORE INSERT OR UPDATE ON items FOR EACH ROW "
        "EXECUTE FUNCTION mallory.fires();"
        "CREATE TRIGGER zzz_last AFTER INSERT OR UPDATE OR DELETE ON items "
        "EXECUTE FUNCTION mallory.fires()"
    )
    ran = write(writer)
    assert set(ran) == {"mallory"}
    assert_fresh(kept)


def test_a_users_domain_as_key(keeper, connection, writer):
    """Its check runs where rows are written, as the writer, and not where codes are."""
    writer.execute(
        "CREATE DOMAIN mallory.key AS bigint CHECK (mallory.tells(VALUE));"
        "CREATE DOMAIN mallory.wish AS text CHECK (mallory.tells(VALUE))"
    )
    connection.execute(
        "DROP TABLE items; CREATE TABLE items (id mallory.key PRIMARY KEY, "
        "category mallory.wish, embedding vector(8)); ALTER TABLE items OWNER TO keeper;"
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO mallory"
    )
    index = create_index(keeper)
    ran = write(writer)
    assert ran
    assert set(ran) == {"mallory"}
    assert_fresh(index)
    with pytest.raises(InvalidInputError, match=r"mallory.wish, which is not built in"):
        create_index(keeper, "second", tenant="category")


@pytest.mark.newest
@pytest.mark.parametrize("kind", ["composite", "range", "array of a domain"])
def test_keys_that_are_refused(keeper, connection, writer, kind):
    writer.execute(
        "CREATE TYPE mallory.pair AS (a int, b int);"
        "CREATE TYPE mallory.span AS RANGE (subtype = int);"
        "CREATE DOMAIN mallory.wish AS int"
    )
    types = {"composite": "mallory.pair", "range": "mallory.span"}
    connection.execute(
        f"CREATE TABLE other (id {types.get(kind, 'mallory.wish[]')} PRIMARY KEY, "
        "embedding vector(8)); ALTER TABLE other OWNER TO keeper".encode()
    )
    with pytest.raises(InvalidInputError, match="key .* of .* is of type"):
        create_index(keeper, "other", table="other")


def test_casts_and_operators_of_a_users_enum(keeper, connection, writer):
    """They would be used in triggers, or make = ambiguous there."""
    writer.execute(
        "CREATE TYPE mallory.colour AS ENUM ('red', 'blue', 'green');"
        "CREATE FUNCTION mallory.words(mallory.colour) RETURNS text LANGUAGE plpgsql IMMUTABLE AS "
        "$$BEGIN PERFORM mallory.tells(1); RETURN 'x'; END$$;"
        "CREATE FUNCTION mallory.same(mallory.colour, mallory.colour) RETURNS boolean "
        "LANGUAGE sql IMMUTABLE AS 'SELECT mallory.tells(1)';"
        "CREATE OPERATOR mallory.= (LEFTARG = mallory.colour, RIGHTARG = mallory.colour, "
        "FUNCTION = mallory.same);"
        "CREATE CAST (mallory.colour AS text) WITH FUNCTION mallory.words AS IMPLICIT"
    )
    connection.execute(
        "CREATE TYPE shade AS ENUM ('red', 'blue'); ALTER TYPE shade OWNER TO keeper;"
        "CREATE TABLE other (id mallory.colour PRIMARY KEY, shade shade UNIQUE NOT NULL, "
        "colour mallory.colour, embedding vector(8)); ALTER TABLE other OWNER TO keeper;"
        "GRANT ALL ON other TO mallory"
    )
    where = {"table": "other", "column": "embedding", "model": "lsh"}
    with pytest.raises(InvalidInputError, match='"id" .* mallory.colour, which is not built in'):
        begin_lists(keeper, "other", **where)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidInputError, match='"colour" .* mallory.colour, which is not built in'
    ):
        begin_lists(keeper, "other", **where, key_columns="shade", tenant="colour")  # type: ignore[arg-type]
    index = begin_lists(keeper, "other", **where, key_columns="shade")  # type: ignore[arg-type]
    writer.execute("SET search_path TO mallory, public")
    with telling(writer) as ran:
        writer.execute("INSERT INTO other VALUES ('red', 'red', NULL, '[1,2,3,4,5,6,7,8]')")
        writer.execute("UPDATE other SET embedding = '[1,1,1,1,1,1,1,1]'")
        writer.execute("UPDATE other SET shade = 'blue'")
    assert "keeper" not in ran
    assert_fresh(index)


def test_cascades_from_a_table_of_his(keeper, connection, writer):
    """His updates and deletes reach the indexed table by a foreign key: codes follow."""
    writer.execute(
        "CREATE TABLE mallory.parent (id bigint PRIMARY KEY);"
        "INSERT INTO mallory.parent SELECT generate_series(1, 300);"
        "GRANT REFERENCES ON mallory.parent TO keeper"
    )
    connection.execute(
        "ALTER TABLE items ADD FOREIGN KEY (id) REFERENCES mallory.parent "
        "ON UPDATE CASCADE ON DELETE CASCADE"
    )
    index = indexed(keeper)
    with telling(writer) as ran:
        writer.execute("UPDATE mallory.parent SET id = id + 7000 WHERE id < 50")
        writer.execute("DELETE FROM mallory.parent WHERE id BETWEEN 60 AND 90")
    assert "keeper" not in ran
    assert_fresh(index)


def test_copy(kept, writer):
    with telling(writer) as ran, writer.cursor() as cursor:
        with cursor.copy("COPY items (id, category, embedding) FROM STDIN") as copy:
            for number in range(2000, 2050):
                copy.write_row((number, "w", Vector([float(number % 7)] * 8)))
        with cursor.copy("COPY items (id) FROM STDIN") as copy:
            copy.write_row((3000,))
    assert "keeper" not in ran
    assert_fresh(kept)


def test_policies_that_hold_for_the_administrator(keeper, connection, writer):
    """FORCE ROW LEVEL SECURITY with a policy that calls his function: an error, and no call."""
    index = indexed(keeper)
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY p ON items TO keeper USING (mallory.tells(id));"
        "CREATE POLICY q ON items TO mallory USING (true)"
    )
    with telling(writer) as ran:
        for statement in WRITES[:-1]:
            with pytest.raises(psycopg.Error, match="row-level security"):
                writer.execute(statement.encode())
    assert ran == []
    connection.execute("ALTER TABLE items NO FORCE ROW LEVEL SECURITY; DROP POLICY p ON items")
    assert_fresh(index)


def test_executable_files_are_reported(kept, connection, as_role):
    """Only the administrator and the table's owner may EXECUTE SECURITY DEFINER functions."""
    rows = connection.execute(
        "SELECT p.proname, p.proowner::regrole::text, acl.grantee::regrole::text FROM pg_proc p, "
        "aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) acl WHERE p.prosecdef "
        "AND p.pronamespace = 'hashindex'::regnamespace"
    ).fetchall()
    assert set(rows) == {("sync_items_idx", "keeper", "keeper")}
