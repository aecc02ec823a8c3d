"""Whatever a statement does to the table, each row has its one right code after it."""

import itertools

import psycopg
import pytest
from faults.twins import HOOKS, Twins, assert_all_found
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pg_hashindex.index.handle import HashIndex

#: Access paths and primary keys.
KINDS = (("scan", "id"), ("lists", "id"), ("scan", "part, id"), ("lists", "part, id"))
ROWS = 30

#: Statements that write to the table more than once, or to what others write to.
STATEMENTS = {
    "keys move up, and parents after them": "UPDATE items SET id = id + 1000",
    "keys move down, and parents after them": "UPDATE items SET id = id - 1",
    "one key moves under its children": "UPDATE items SET id = 500 WHERE id = 1",
    "keys and vectors move": "UPDATE items SET id = id + 1000, embedding = v(id + 77)",
    "children go with their parent": "DELETE FROM items WHERE id = 3",
    "delete, insert, delete": """
        WITH d AS (DELETE FROM items WHERE id = 29 RETURNING id),
        i AS (INSERT INTO items (id, embedding) SELECT id, v(501) FROM d RETURNING id),
        e AS (DELETE FROM items WHERE id = 30 RETURNING id)
        SELECT (SELECT count(*) FROM i), (SELECT count(*) FROM e)""",
    "delete and insert of one key": """
        WITH d AS (DELETE FROM items WHERE id = 30 RETURNING id)
        INSERT INTO items (id, embedding) SELECT id, v(501) FROM d""",
    "insert, then delete and insert of one key": """
        WITH n AS (INSERT INTO items (id, embedding) VALUES (700, v(7)) RETURNING id),
        d AS (DELETE FROM items WHERE id = 30 AND EXISTS (SELECT FROM n) RETURNING id),
        i AS (INSERT INTO items (id, embedding) SELECT id, v(501) FROM d RETURNING id)
        SELECT count(*) FROM i""",
    "update, delete, insert of other keys": """
        WITH u AS (UPDATE items SET embedding = v(600) WHERE id = 2 RETURNING id),
        d AS (DELETE FROM items WHERE id = 30 AND EXISTS (SELECT FROM u) RETURNING id),
        i AS (INSERT INTO items (id, embedding) SELECT 700, v(7) FROM d RETURNING id)
        SELECT count(*) FROM i""",
    "a key that an update leaves is inserted": """
        WITH u AS (UPDATE items SET id = 700 WHERE id = 30 RETURNING id),
        i AS (INSERT INTO items (id, embedding) SELECT 30, v(501) FROM u RETURNING id),
        e AS (UPDATE items SET embedding = v(9) WHERE id = 5 AND EXISTS (SELECT FROM i) RETURNING 1)
        SELECT count(*) FROM e""",
    "a key that is deleted is taken by an update": """
        WITH d AS (DELETE FROM items WHERE id = 30 RETURNING id),
        u AS (UPDATE items SET id = 30 WHERE id = 29 AND EXISTS (SELECT FROM d) RETURNING id),
        e AS (DELETE FROM items WHERE id = 28 AND EXISTS (SELECT FROM u) RETURNING id)
        SELECT count(*) FROM e""",
    "update of a parent's key and of its child": """
        WITH u AS (UPDATE items SET id = 900 WHERE id = 4 RETURNING id)
        UPDATE items SET embedding = v(600) WHERE id IN (5, 6) AND EXISTS (SELECT FROM u)""",
    "a parent goes, and its key comes": """
        WITH d AS (DELETE FROM items WHERE id = 20 RETURNING id)
        INSERT INTO items (id, embedding) SELECT id, v(600) FROM d""",
    "vectors go, and one comes": """
        WITH u AS (UPDATE items SET embedding = NULL WHERE id < 4 RETURNING id),
        i AS (INSERT INTO items (id) SELECT 700 FROM u LIMIT 1 RETURNING id)
        UPDATE items SET embedding = v(600) WHERE id = 5 AND EXISTS (SELECT FROM i)""",
    "insert on conflict": """
        INSERT INTO items (id, embedding) SELECT n, v(n + 100) FROM generate_series(25, 35) n
        ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding""",
    "insert on conflict moves the key": """
        INSERT INTO items (id, embedding) VALUES (3, v(300)), (800, v(800))
        ON CONFLICT (id) DO UPDATE SET id = items.id + 500, embedding = excluded.embedding""",
    "insert on conflict beside a delete": """
        WITH d AS (DELETE FROM items WHERE id = 30 RETURNING id)
        INSERT INTO items (id, embedding) SELECT n, v(n + 100) FROM d, generate_series(29, 31) n
        ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding""",
    "merge": """
        MERGE INTO items USING (SELECT generate_series(20, 40) AS n) s ON items.id = s.n
        WHEN MATCHED AND n > 27 THEN DELETE
        WHEN MATCHED AND n > 25 THEN UPDATE SET id = n + 1000
        WHEN MATCHED THEN UPDATE SET embedding = v(n + 100)
        WHEN NOT MATCHED THEN INSERT (id, embedding) VALUES (n, v(n))""",
    "a function that writes": """
        UPDATE items SET embedding = v(600)
        WHERE id = 1 AND run('DELETE FROM items WHERE id = 30') = 1
          AND run('INSERT INTO items (id, embedding) VALUES (30, v(501))') = 1""",
    "a function that writes the same row": """
        INSERT INTO items (id, embedding)
        SELECT 700, v(7) WHERE run('INSERT INTO items (id, embedding) VALUES (701, v(8))') = 1
          AND run('UPDATE items SET id = 702 WHERE id = 701') = 1""",
}

#: A statement, and what runs inside of each of its triggers in turn.
HOOKED = {
    "the same row's vector": (
        "UPDATE items SET embedding = v(600) WHERE id = 30",
        "UPDATE items SET embedding = v(601) WHERE id = 30",
    ),
    "the same row goes": (
        "UPDATE items SET embedding = v(600) WHERE id = 30",
        "DELETE FROM items WHERE id = 30",
    ),
    "the row that came goes": (
        "INSERT INTO items (id, embedding) VALUES (700, v(7))",
        "DELETE FROM items WHERE id = 700",
    ),
    "the row that came takes another key": (
        "INSERT INTO items (id, embedding) VALUES (700, v(7))",
        "UPDATE items SET id = 701 WHERE id = 700",
    ),
    "the row that went comes": (
        "DELETE FROM items WHERE id = 30",
        "INSERT INTO items (id, embedding) VALUES (30, v(501)) ON CONFLICT DO NOTHING",
    ),
    "the vector of the row that came goes": (
        "INSERT INTO items (id, embedding) VALUES (700, v(7)), (701, v(8))",
        "UPDATE items SET embedding = NULL WHERE id = 700",
    ),
    "all keys move": (
        "UPDATE items SET embedding = v(600) WHERE id IN (1, 2)",
        "UPDATE items SET id = id + 1000",
    ),
    "its children go": (
        "UPDATE items SET id = 900 WHERE id = 20",
        "DELETE FROM items WHERE id IN (20, 900)",
    ),
}


@pytest.fixture(params=KINDS, ids="-".join)
def twins(request, connection, model):
    return Twins(connection, *request.param)


@pytest.mark.newest
def test_statements_that_write_more_than_once(twins):
    failures = {}
    for name, statement in STATEMENTS.items():
        twins.fill(ROWS)
        try:
            twins.run(statement)
        except AssertionError as error:
            failures[name] = str(error)[:200]
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


def test_a_chain_of_300_rows(twins):
    """All keys but one move by cascades of the first statement's."""
    twins.fill(300)
    twins.run("UPDATE items SET id = id + 1000")
    assert twins.index.summary().codes == 300
    twins.run("UPDATE items SET id = id - 1")
    assert twins.index.summary().codes == 300


@pytest.mark.newest
def test_triggers_that_write_to_the_table(twins):
    failures = {}
    for hook, (name, (statement, nested)) in itertools.product(HOOKS, HOOKED.items()):
        # A trigger BEFORE a row may not write to that row.
        twins.fill(ROWS)
        try:
            with twins.transaction():
                twins.run(statement, {hook: nested})
                twins.run("UPDATE items SET embedding = v(id + 3) WHERE id < 3")
        except AssertionError as error:
            failures[f"{hook}: {name}"] = str(error)[:200]
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


# The policy lets a tenant give rows away. Row 40 is the other's, under one of the writer's.
_TENANTS = """
    CREATE FUNCTION v(n bigint) RETURNS vector LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::public.vector $$;
    CREATE TABLE docs (
        id bigint PRIMARY KEY,
        tenant text NOT NULL DEFAULT 'few',
        parent bigint REFERENCES docs ON UPDATE CASCADE ON DELETE CASCADE,
        embedding vector(8)
    );
    CREATE FUNCTION run_as_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE statement text := current_setting('app.nested', true);
    BEGIN
        IF statement <> '' THEN
            PERFORM set_config('app.nested', '', false);
            EXECUTE statement;
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER a_nested AFTER INSERT OR UPDATE OR DELETE ON docs
        FOR EACH STATEMENT EXECUTE FUNCTION run_as_owner();
    GRANT SELECT, INSERT, UPDATE, DELETE ON docs TO app, boss;
    ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON docs
        USING (tenant = current_setting('app.tenant', true)) WITH CHECK (true);
"""
_FILL_TENANTS = """
    TRUNCATE docs;
    INSERT INTO docs SELECT n, 'few', NULL, v(n) FROM generate_series(101, 105) n;
    INSERT INTO docs SELECT n, 'many', CASE n WHEN 40 THEN 103 END, v(n)
    FROM generate_series(1, 40) n;
"""

#: Statements of a tenant, each with what a trigger of the owner's runs inside of it.
TENANT_STATEMENTS = {
    "own vectors": ("UPDATE docs SET embedding = v(id + 9)", ""),
    "own rows go": ("DELETE FROM docs WHERE id <> 103", ""),
    # Without a WHERE: who reads a row must see it after the change, too.
    "rows are given away": ("UPDATE docs SET tenant = 'many'", ""),
    "rows are changed and given away": (
        "UPDATE docs SET tenant = 'many', embedding = v(600)", "",
    ),
    "a row that he does not see comes": (
        "INSERT INTO docs (id, tenant, embedding) VALUES (900, 'many', v(7))", "",
    ),
    "a key that he does not see": ("INSERT INTO docs (id, embedding) VALUES (1, v(7))", ""),
    "a key that he does not see is taken": ("UPDATE docs SET id = 1 WHERE id = 101", ""),
    "a row of the other goes with its parent": ("DELETE FROM docs WHERE id = 103", ""),
    "a row of the other follows its parent": ("UPDATE docs SET id = 903 WHERE id = 103", ""),
    "delete, insert, delete": (
        """WITH d AS (DELETE FROM docs WHERE id = 104 RETURNING id),
        i AS (INSERT INTO docs SELECT id, 'many', NULL, v(501) FROM d RETURNING 1),
        e AS (DELETE FROM docs WHERE id = 105 RETURNING 1)
        SELECT (SELECT count(*) FROM e)""", "",
    ),
    "the owner's trigger changes rows of the other": (
        "UPDATE docs SET embedding = v(600) WHERE id = 101",
        "UPDATE docs SET embedding = v(id + 50) WHERE id < 5",
    ),
    "the owner's trigger moves keys of the other": (
        "DELETE FROM docs WHERE id = 101", "UPDATE docs SET id = id + 1000 WHERE id < 30",
    ),
    "the owner's trigger deletes rows of the other": (
        "INSERT INTO docs (id, embedding) VALUES (900, v(7))", "DELETE FROM docs WHERE id < 5",
    ),
    "the owner's trigger gives the row away": (
        "INSERT INTO docs (id, embedding) VALUES (900, v(7))",
        "UPDATE docs SET tenant = 'many', embedding = v(8) WHERE id = 900",
    ),
    "the owner's trigger brings the row back": (
        "DELETE FROM docs WHERE id = 101",
        "INSERT INTO docs (id, tenant, embedding) VALUES (101, 'many', v(501))",
    ),
}  # fmt: skip


@pytest.mark.newest
@pytest.mark.parametrize("writer", ["app", "boss"])
@pytest.mark.parametrize("access", ["scan", "lists"])
def test_writers_who_do_not_see_every_row(connection, as_role, model, access, writer):
    """A tenant; and the owner of a table whose policies are forced upon him."""
    session = {role: as_role(role) for role in ("app", "boss")}[writer]
    connection.execute(_TENANTS)
    connection.execute(_FILL_TENANTS)
    index = indexed(connection, "docs_idx", table="docs", access=access)
    index = HashIndex.open(connection, "docs_idx")
    if writer == "boss":
        connection.execute(
            "GRANT postgres TO boss; ALTER TABLE docs OWNER TO boss; "
            "ALTER TABLE docs FORCE ROW LEVEL SECURITY"
        )
    failures = {}
    for name, (statement, nested) in TENANT_STATEMENTS.items():
        connection.execute(_FILL_TENANTS)
        session.execute(
            "SELECT set_config('app.tenant', 'few', false), set_config('app.nested', %s, false)",
            [nested],
        )
        try:
            session.execute(statement.encode())
        except psycopg.errors.UniqueViolation:
            assert "a key" in name
        except psycopg.Error as error:
            failures[name] = str(error)[:200]
            continue
        try:
            assert_fresh(index)
            assert_all_found(index)
        except AssertionError as error:
            failures[name] = str(error)[:200]
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())


KEYS = st.integers(1, 6)


@st.composite
def pieces(draw):
    """One INSERT, UPDATE or DELETE of one key, to which a WHERE can be added."""
    key, other, n = draw(KEYS), draw(KEYS), draw(st.integers(1, 9))
    return draw(
        st.sampled_from(
            [
                f"DELETE FROM items WHERE id = {key}",
                f"INSERT INTO items (id, embedding) SELECT {key}, v({n}) WHERE true",
                f"INSERT INTO items SELECT {key}, {other}, v({n}) WHERE true",
                f"UPDATE items SET embedding = v({n}) WHERE id = {key}",
                f"UPDATE items SET embedding = NULL WHERE id = {key}",
                f"UPDATE items SET id = {other} WHERE id = {key}",
                f"UPDATE items SET id = {other}, embedding = v({n}) WHERE id = {key}",
                f"UPDATE items SET parent = {other} WHERE id = {key}",
            ]
        )
    )


@st.composite
def statements(draw):
    """A statement of one piece, of several that run in order, or of another kind."""
    kind = draw(st.integers(0, 9))
    key, other, n = draw(KEYS), draw(KEYS), draw(st.integers(1, 9))
    if kind == 0:
        return f"UPDATE items SET id = id + {n}"
    if kind == 1:
        return f"UPDATE items SET id = id - {n}, embedding = v(id + {n}) WHERE id > {key}"
    if kind == 2:
        return (
            f"INSERT INTO items (id, embedding) VALUES ({key}, v({n})), ({other}, v({n + 1})) "
            f"ON CONFLICT (id) DO UPDATE SET id = items.id + {key % 2 * 6}, "
            "embedding = excluded.embedding"
        )
    if kind == 3:
        return (
            f"MERGE INTO items USING (VALUES ({key}), ({other})) s(n) ON items.id = s.n "
            f"WHEN MATCHED AND n > {n} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET id = n + {n % 3}, embedding = v({n}) "
            f"WHEN NOT MATCHED THEN INSERT (id, embedding) VALUES (n, v({n}))"
        )
    parts = draw(st.lists(pieces(), min_size=1, max_size=4))
    if len(parts) == 1:
        return parts[0]
    ctes = [
        f"p{number} AS ({part}"
        # So that it runs after the one before.
        + (f" AND (SELECT count(*) FROM p{number - 1}) >= 0" if number else "")
        + " RETURNING 1)"
        for number, part in enumerate(parts)
    ]
    return f"WITH {', '.join(ctes)} SELECT count(*) FROM p{len(parts) - 1}"


HOOKED_STATEMENTS = st.tuples(
    statements(), st.dictionaries(st.sampled_from(HOOKS), statements(), max_size=2)
)


@pytest.mark.newest
def test_random_statements(twins):
    """With cascades, and other random statements inside of triggers."""

    @settings(
        max_examples=40,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["READ COMMITTED", "REPEATABLE READ"]),
                st.lists(HOOKED_STATEMENTS, min_size=1, max_size=3),
            ),
            min_size=1,
            max_size=3,
        )
    )
    def run(transactions):
        twins.fill(5)
        for level, written in transactions:
            with twins.transaction(level):
                for statement, hooks in written:
                    twins.run(statement, hooks)

    run()
