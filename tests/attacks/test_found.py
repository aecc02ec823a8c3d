"""Attacks that were once possible, by their number in the list; the design prevents each now."""

import contextlib

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.attackers import TELLING, telling
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index, indexed, with_access
from fixtures.landmarks import train_landmarks
from fixtures.outdated import leave_extension
from fixtures.roles import denied
from pgvector import Vector

from pg_hashindex import operations, schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.db.locks import claim
from pg_hashindex.errors import HashIndexError, MissingRightsError
from pg_hashindex.hashers import AGH, LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.evaluate import evaluate


def upgrade(connection):
    """Upgrade the schema, as its owner."""
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(connection.info.dsn, user="keeper"),
    )
    try:
        with engine.begin() as upgrading:
            schema.upgrade(upgrading)
    finally:
        engine.dispose()


@pytest.fixture
def theirs(connection, keeper, mallory):
    """The administrator's index of a table that mallory may read and write."""
    connection.execute("GRANT ALL ON items TO mallory")
    return indexed(keeper)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE hashindex.index_set SET code_column = 'secret'",
        "UPDATE hashindex.index SET key_types = '{bigint); ALTER ROLE mallory}'",
        "UPDATE hashindex.index_set SET state = 'former'",
        "UPDATE hashindex.index SET table_name = 'secret'",
        "UPDATE hashindex.index_set SET relation = 'secret', owns_relation = true",
        "INSERT INTO hashindex.index SELECT * FROM hashindex.index",
        "DELETE FROM hashindex.index",
    ],
)
def test_1_to_3_the_administrator_owns_the_catalog(theirs, mallory, change):
    with denied():
        mallory.execute(change.encode())


@pytest.mark.parametrize(
    "key_type",
    [
        "bigint); ALTER ROLE mallory SUPERUSER; --",
        "bigint[]) RETURNS void LANGUAGE sql AS $$ALTER ROLE mallory SUPERUSER$$; --",
        "mallory.no_type",
        "",
    ],
)
def test_2_catalog_text_never_becomes_sql(theirs, connection, mallory, key_type):
    """Not even if it came there: it is read as the name of a type, and no more."""
    connection.execute("UPDATE hashindex.index SET key_types = %s", [[key_type]])
    for call in (
        lambda: upgrade(connection),
        lambda: HashIndex.open(connection, "items_idx").search([1.0] * 8),
        lambda: HashIndex.open(connection, "items_idx").search_like(1),
        lambda: HashIndex.open(connection, "items_idx").encode(),
        lambda: operations.check(HashIndex.open(connection, "items_idx"), full=True),
        lambda: connection.execute("SELECT hashindex.configure_index('items_idx', 50)"),
        lambda: connection.execute("SELECT hashindex.code_of('items_idx', '1')"),
        lambda: operations.repair(HashIndex.open(connection, "items_idx")),
    ):
        with contextlib.suppress(HashIndexError, psycopg.Error):
            call()
        assert connection.execute(
            "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"
        ).fetchone() == (False,)


def test_4_a_tenant_leaves_the_codes_of_others(theirs, connection, mallory):
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON items "
        "USING (category = 'a') WITH CHECK (true)"
    )
    near = [hit.id for hit in theirs.search([1.0] * 8, 50)]
    mallory.execute("UPDATE items SET embedding = NULL")
    mallory.execute("DELETE FROM items")
    mallory.execute("INSERT INTO items VALUES (9001, 'b', '[1,2,3,4,5,6,7,8]')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        mallory.execute("INSERT INTO items VALUES (2, 'a', '[9,9,9,9,9,9,9,9]')")
    assert_fresh(theirs)
    left = {hit.id for hit in theirs.search([1.0] * 8, 300)}
    assert {key for key in near if key % 3 != 1} <= left


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE FUNCTION hashindex.to_come(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION hashindex._layers_of(integer) RETURNS hashindex.layer[] "
        "LANGUAGE sql AS 'SELECT NULL::hashindex.layer[]'",
        "CREATE TABLE hashindex.to_come (id int)",
        "CREATE TYPE hashindex.to_come AS ENUM ('x')",
        "CREATE VIEW hashindex.to_come AS SELECT 1",
        "CREATE FUNCTION mallory.same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';"
        "CREATE OPERATOR hashindex.<~> (LEFTARG = text, RIGHTARG = text, FUNCTION = mallory.same)",
    ],
)
def test_5_and_6_planted_objects_are_refused(theirs, connection, mallory, planted):
    with denied():
        mallory.execute(planted.encode())
    connection.execute("GRANT CREATE ON SCHEMA hashindex TO mallory")
    mallory.execute(planted.encode())
    connection.execute("REVOKE CREATE ON SCHEMA hashindex FROM mallory")
    with pytest.raises(HashIndexError, match="belongs to role mallory, not to the owner"):
        upgrade(connection)
    assert operations.check(theirs).as_dict()["status"] == "broken"


def test_5_an_upgrade_by_a_superuser_makes_what_is_the_administrator_s(theirs, connection):
    leave_extension(connection)
    connection.execute("DROP FUNCTION hashindex.recall")
    upgrade(connection)
    rows = connection.execute(
        "SELECT DISTINCT proowner::regrole::text FROM pg_proc "
        "WHERE pronamespace = 'hashindex'::regnamespace"
    ).fetchall()
    assert rows == [("keeper",)]


def test_8_no_landmark_is_the_vector_of_a_row(vectors):
    """Each is the mean of three rows or more."""
    for metric in ("l2", "cosine"):
        landmarks = train_landmarks(vectors, 60, spherical=metric == "cosine", random_state=0)
        rows = vectors.astype(np.float64)
        if metric == "cosine":
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        distances = np.linalg.norm(landmarks[:, None] - rows[None], axis=2)
        assert distances.min() > 0.05


def test_9_to_11_what_indexes_share(theirs, connection, mallory, as_role):
    """Not read, forged or deleted by anybody but the administrator."""
    as_role("other_role")
    connection.execute("REVOKE ALL ON items FROM mallory; GRANT INSERT ON items TO mallory")
    theirs.revoke("mallory")
    for table in ("recall_history", "model_part"):
        for statement in (
            "TABLE hashindex.{}",
            "DELETE FROM hashindex.{}",
            "TRUNCATE hashindex.{}",
        ):
            with denied():
                mallory.execute(statement.format(table).encode())
    for statement in (
        "TABLE hashindex.set_1_codes",
        "UPDATE hashindex.set_1_codes SET code = ~code",
        "INSERT INTO hashindex.model (name, version) VALUES ('lsh', 2)",
        "INSERT INTO hashindex.model (id, name, version) OVERRIDING SYSTEM VALUE "
        "VALUES (1, 'lsh', 1)",
        "INSERT INTO hashindex.model_part VALUES (1, 0, '')",
        "SELECT layers FROM hashindex.model",
    ):
        with denied():
            mallory.execute(statement.encode())


def test_10_rights_on_one_column_give_no_codes(keeper, connection, mallory):
    connection.execute("GRANT INSERT ON items TO mallory; GRANT SELECT (id) ON items TO mallory")
    index = indexed(keeper)
    with_access(index, "lists")
    held = connection.execute(
        "SELECT c.relname FROM pg_class c, aclexplode(c.relacl) acl "
        "WHERE c.relnamespace = 'hashindex'::regnamespace AND acl.grantee = 'mallory'::regrole"
    ).fetchall()
    assert held == []


def test_12_a_view_in_the_place_of_a_code_table(theirs, connection, mallory):
    """Only the administrator can put one there; and a superuser's commands are refused."""
    for statement in (
        "ALTER TABLE hashindex.set_1_codes RENAME TO away",
        "DROP TABLE hashindex.set_1_codes",
        "CREATE VIEW hashindex.set_1_codes AS SELECT mallory.tells(1)",
    ):
        with denied():
            mallory.execute(statement.encode())
    with telling(connection) as ran:
        with pytest.raises(MissingRightsError, match="belongs to role keeper"):
            HashIndex.open(connection, "items_idx")
        evaluate(theirs, queries=3, k=2, candidates=[300])
    assert ran == []


def test_others_cannot_block_the_administrator(theirs, connection, mallory):
    """Advisory locks are anybody's to take: none that could be known before is waited for."""
    for work in ("encode", "repair", "swap", "model"):
        for name in ("items_idx", "lsh"):
            mallory.execute(
                "SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"hashindex.{work}:{name}"]
            )
        with denied():
            claim(mallory, work, "items_idx")
    for number in range(100):
        mallory.execute("SELECT pg_advisory_lock(1751805794, %s)", [number])
    with denied():
        mallory.execute("INSERT INTO hashindex.claim VALUES ('encode', 'items_idx', 1, 1)")
    with_access(theirs, "lists")
    HashIndex.open(theirs.connection, "items_idx").rebalance()
    operations.repair(theirs)
    store.save(theirs.connection, theirs.loaded_model)
    # The lock is held by the process that works: waiting in line for it gains nothing.
    claim(theirs.connection, "encode", "items_idx")
    (lock,) = connection.execute("SELECT lock FROM hashindex.claim").fetchone() or (0,)
    mallory.execute("SET lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        mallory.execute("SELECT pg_advisory_lock(%s)", [lock])
    theirs.connection.execute("SELECT pg_advisory_unlock(%s)", [lock])
    mallory.execute("SELECT pg_advisory_lock(%s)", [lock])
    assert HashIndex.open(theirs.connection, "items_idx").encode() == 0


def test_others_cannot_block_an_upgrade(theirs, connection, mallory):
    """It waits for locks of the schema's owner alone: for no number, and no lock of readers."""
    engine = create_engine(theirs.connection.info.dsn)
    with mallory.transaction():
        mallory.execute("SELECT pg_advisory_xact_lock(%s)", [0x7067686173686978])
        mallory.execute("LOCK TABLE hashindex.index IN ACCESS SHARE MODE")
        mallory.execute("SELECT FROM hashindex.index, hashindex.claim")
        for refused in (
            "COMMENT ON SCHEMA hashindex IS 'mine'",
            "LOCK TABLE hashindex.index IN ROW SHARE MODE",
            "SELECT FROM hashindex.index FOR KEY SHARE",
            "LOCK TABLE hashindex.alembic_version IN ACCESS SHARE MODE",
        ):
            with denied(), mallory.transaction():
                mallory.execute(refused.encode())
        with engine.begin() as upgrading:
            upgrading.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
            schema.upgrade(upgrading)
    # A second upgrade does wait for the first.
    with engine.begin() as first, engine.connect() as second:
        schema.upgrade(first)
        second.exec_driver_sql("SET lock_timeout = '100ms'")
        with pytest.raises(HashIndexError, match="lock"):
            schema.upgrade(second)
    engine.dispose()


#: Nearer matches for calls in the schema than PostgreSQL's own, polymorphic or variadic.
NEARER = (
    ("unnest", "bigint[]"), ("unnest", "real[]"), ("unnest", "text[]"),
    ("cardinality", "bigint[]"), ("cardinality", "hashindex.layer[]"),
    ("format", "text, text"), ("format", "text, integer"), ("array_fill", "real, integer[]"),
    ("sqrt", "integer"), ("exp", "real"), ("array_agg", "bigint"), ("to_regclass", "name"),
    ("concat", "text, text"), ("concat_ws", "text, text, text"), ("count", "bigint"),
)  # fmt: skip


def plant(mallory, *more):
    """Have mallory make functions in schema public, where he may."""
    for name, arguments in (*NEARER, *more):
        mallory.execute(
            f"CREATE FUNCTION public.{name}({arguments}) RETURNS boolean LANGUAGE sql "
            "AS 'SELECT mallory.tells(1)'".encode()
        )


@pytest.mark.parametrize("kind", ["lsh", "agh", "lsh3"])
def test_functions_beside_pgvector(connection, keeper, mallory, kind):
    """Who may create where pgvector lives runs nothing as the administrator; a check warns."""
    rows = np.array(
        [row[0].to_numpy() for row in connection.execute("SELECT embedding FROM items")]
    )
    if kind == "agh":
        store.save(keeper, AGH(n_bits=4, n_anchors=20).fit(rows).to_model("agh"))
    elif kind == "lsh3":
        store.save(keeper, LSH(n_bits=8).fit(rows).to_model("lsh3", cuts=3))
    index = create_index(keeper, model=kind)
    connection.execute("GRANT CREATE ON SCHEMA public TO mallory; GRANT ALL ON items TO mallory")
    finding = next(f for f in operations.check(index).findings if f.check == "rights")
    assert finding.status == "warning"
    assert "role mallory may create functions in schema public" in finding.detail
    plant(mallory, ("unnest", "vector[]"))
    with telling(mallory) as ran:
        mallory.execute("UPDATE items SET embedding = embedding * embedding WHERE id < 20")
        mallory.execute("INSERT INTO items VALUES (5000, 'x', '[1,2,3,4,5,6,7,8]')")
        mallory.execute("UPDATE items SET id = id + 9000 WHERE id BETWEEN 50 AND 60")
        mallory.execute("DELETE FROM items WHERE id = 5000")
        with pytest.raises(psycopg.Error):
            mallory.execute("UPDATE items SET embedding = '[1]'")
    assert "keeper" not in ran


@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan", "lists"])
def test_7_pgvector_in_a_schema_of_its_own(server, make_database, as_role, access):
    """Then no role may trust schema public: nothing of it runs in what a caller asks."""
    url = make_database("template0")
    with psycopg.connect(url, autocommit=True) as bare:
        bare.execute("CREATE SCHEMA ext; CREATE EXTENSION vector SCHEMA ext")
    engine = create_engine(url)
    with engine.begin() as upgrading:
        schema.upgrade(upgrading)
    engine.dispose()
    as_role("mallory")
    with connect(url) as owner:
        owner.execute(TELLING)
        owner.execute("GRANT CREATE ON SCHEMA public TO mallory; SET search_path TO public, ext")
        owner.execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.items (id bigint PRIMARY KEY, n int, "
            "embedding ext.vector(8)); GRANT USAGE ON SCHEMA ext TO PUBLIC"
        )
        rows = np.random.default_rng(3).standard_normal((400, 8)).astype(np.float32)
        with owner.cursor() as cursor, cursor.copy("COPY shop.items FROM STDIN") as copy:
            for number, row in enumerate(rows):
                copy.write_row((number, number % 10, Vector(row)))
        store.save(owner, LSH(n_bits=12, random_state=0).fit(rows).to_model("lsh"))
        owner.execute("SET ROLE mallory; SET search_path TO public, mallory, ext")
        plant(owner, ("unnest", "ext.vector[]"), ("encode_with", "hashindex.layer[], ext.vector"))
        owner.execute("RESET ROLE")
        for path in ("public, ext", "public"):
            owner.execute(f"SET search_path TO {path}".encode())
            with telling(owner) as ran:
                index = indexed(
                    owner,
                    f"{access}_{len(path)}",
                    table="shop.items",
                    access=access,
                )
                index = HashIndex.open(owner, index.name)
                few, many = sa.column("n") == 3, sa.column("n") < 9
                for where in (few, many):
                    assert index.search(rows[3], 5, where=where)[0].id == 3
                for filter_ in ("n = 3", "n < 9", "id % 2 = 1"):
                    assert index.search(rows[3], 5, filter=filter_)[0].id == 3
                index.search_like(5, 3)
                index.within(rows[3], 3)
                evaluate(index, queries=3, k=2, candidates=[300])
                for call in (
                    "hashindex.search(%(n)s, %(q)s, filter => 'n = 3')",
                    "hashindex.search(%(n)s, %(q)s, where_equals => '{\"n\": 3}')",
                    "hashindex.exact_search(%(n)s, %(q)s)",
                    "hashindex.health(%(n)s)",
                ):
                    owner.execute(
                        f"SELECT * FROM {call}".encode(), {"n": index.name, "q": Vector(rows[3])}
                    ).fetchall()
                operations.repair(index, full=True)
                index.swap(access="lists" if access == "scan" else "scan", force=True)
                index.rollback()
                owner.execute("UPDATE shop.items SET embedding = embedding WHERE id < 9")
            assert ran == []
        owner.execute("DROP OWNED BY mallory CASCADE")
