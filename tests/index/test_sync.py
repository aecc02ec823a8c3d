"""Codes stay fresh whatever is written, by whatever statement."""

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh, of_tables
from fixtures.indexes import create_index
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector import Vector


def vector(seed):
    return Vector(np.random.default_rng(seed).standard_normal(8).astype(np.float32))


def count_codes(index):
    return index.summary().codes


#: Writes one after another, and how many rows have a vector then.
WRITES = {
    "INSERT INTO items VALUES (1000, 'a', %(v)s), (1001, 'a', NULL)": 301,
    "INSERT INTO items SELECT id + 2000, category, embedding FROM items": 602,
    "INSERT INTO items VALUES (1, 'a', %(v)s), (5000, 'b', %(v)s) "
    "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding": 603,
    "UPDATE items SET embedding = %(v)s WHERE id <= 20": 603,
    "UPDATE items SET id = id + 10000 WHERE id <= 50": 603,
    "UPDATE items SET embedding = NULL WHERE id BETWEEN 51 AND 60": 593,
    "UPDATE items SET embedding = %(v)s WHERE id IN (51, 1001)": 595,
    "DELETE FROM items WHERE id > 2000": 243,
    "TRUNCATE items": 0,
    "INSERT INTO items VALUES (1, 'a', %(v)s)": 1,
}


def test_writes_of_every_kind(index):
    for statement, codes in WRITES.items():
        index.connection.execute(statement.encode(), {"v": vector(codes)})
        assert_fresh(index)
        assert count_codes(index) == codes, statement
    with (
        index.connection.cursor() as cursor,
        cursor.copy("COPY items (id, category, embedding) FROM STDIN") as copy,
    ):
        for row in range(50):
            copy.write_row((5000 + row, "c", str(vector(row).to_list())))
    assert_fresh(index)
    assert count_codes(index) == 51


def test_update_of_another_column_leaves_codes_alone(index):
    """Codes that are wrong on purpose must survive: nothing was encoded again."""
    connection = index.connection
    connection.execute("UPDATE hashindex.set_1_codes SET code = ~code")
    codes = "SELECT id, code FROM hashindex.set_1_codes ORDER BY id"
    before = connection.execute(codes).fetchall()
    connection.execute("UPDATE items SET category = 'z'")
    assert connection.execute(codes).fetchall() == before


def test_keys_that_change_places(index):
    index.connection.execute(
        "ALTER TABLE items DROP CONSTRAINT items_pkey, "
        "ADD CONSTRAINT items_pkey PRIMARY KEY (id) DEFERRABLE INITIALLY IMMEDIATE"
    )
    index.connection.execute("UPDATE items SET id = 3 - id WHERE id IN (1, 2)")
    assert_fresh(index)


@pytest.mark.parametrize("index_template", ["table"], indirect=True)
def test_plans_that_are_kept_suit_statements_of_any_size(index):
    """They are made for the first statement, while the tables are small, and look up keys."""
    connection = index.connection
    plans = []
    connection.add_notice_handler(lambda notice: plans.append(notice.message_detail or ""))
    connection.execute("SET debug_print_plan = on; SET client_min_messages = log")
    connection.execute("UPDATE items SET embedding = %s WHERE id = 1", [vector(1)])
    connection.execute("DELETE FROM items WHERE id = 2")
    connection.execute("RESET debug_print_plan")
    # The codes of written keys are looked up by key, however many they are.
    refreshes = [plan for plan in plans if of_tables(plan) and "{INDEX" in plan]
    assert len(refreshes) >= 2
    assert not any("{SEQSCAN" in plan for plan in refreshes)


def test_rollback_and_savepoints(index):
    connection = index.connection
    with connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM items WHERE id < 100")
        connection.execute("UPDATE items SET embedding = %s", [vector(1)])
    assert_fresh(index)
    with connection.transaction():
        connection.execute("UPDATE items SET embedding = %s WHERE id = 1", [vector(2)])
        with connection.transaction(force_rollback=True):
            connection.execute("DELETE FROM items")
    assert_fresh(index)
    assert count_codes(index) == 300


def test_a_row_that_cannot_be_encoded_is_refused_whole(connection, model):
    """A column without a fixed dimension takes any vector; the index takes the model's only."""
    connection.execute("CREATE TABLE loose (id int PRIMARY KEY, embedding vector)")
    index = create_index(connection, "loose", table="loose")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="3 dimensions.*takes 8"):
        connection.execute("INSERT INTO loose VALUES (1, '[1,2,3]')")
    assert index.summary().rows == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("write", ["DELETE FROM items", "UPDATE items SET embedding = NULL"])
def test_an_old_snapshot_leaves_no_code_behind(connection, other, items, model, level, write):
    """A writer whose snapshot is older than the encoder's codes fails, as its level promises."""
    index = create_index(connection, "late")
    with pytest.raises(psycopg.errors.SerializationFailure), other.transaction():
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        other.execute("SELECT count(*) FROM items")
        index.encode()
        other.execute(write)
    assert_fresh(index)


@pytest.mark.parametrize(
    ("event", "nested"),
    [
        ("INSERT", "UPDATE items SET embedding = '[8,7,6,5,4,3,2,-1]' WHERE id = NEW.id"),
        ("INSERT", "UPDATE items SET embedding = NULL WHERE id = NEW.id"),
        ("INSERT", "DELETE FROM items WHERE id = NEW.id"),
        ("UPDATE", "UPDATE items SET embedding = '[8,7,6,5,4,3,2,-1]' WHERE id = NEW.id"),
        ("UPDATE", "UPDATE items SET id = NEW.id + 5000 WHERE id = NEW.id"),
        ("UPDATE", "DELETE FROM items WHERE id = NEW.id"),
        ("DELETE", "INSERT INTO items VALUES (OLD.id, 'again', '[8,7,6,5,4,3,2,-1]')"),
    ],
)
def test_a_users_trigger_that_writes_the_same_rows(index, event, nested):
    connection = index.connection
    connection.execute(
        f"""
        CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF pg_trigger_depth() = 1 THEN {nested}; END IF; RETURN NULL; END $$;
        CREATE TRIGGER meddle AFTER {event} ON items FOR EACH ROW EXECUTE FUNCTION meddle();
        """
    )
    connection.execute("INSERT INTO items VALUES (1000, 'a', %s), (1001, 'b', NULL)", [vector(1)])
    assert_fresh(index)
    connection.execute("UPDATE items SET embedding = %s WHERE id IN (1, 2)", [vector(2)])
    assert_fresh(index)
    connection.execute("DELETE FROM items WHERE id IN (3, 4)")
    assert_fresh(index)


writes = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "null", "other", "delete", "key", "truncate"]),
        st.integers(1, 12),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=12,
)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(writes=writes)
def test_any_writes_in_any_order(index, writes):
    connection = index.connection
    connection.execute("TRUNCATE items")
    for what, row_id, seed, kept in writes:
        with connection.transaction(force_rollback=not kept):
            match what:
                case "insert":
                    connection.execute(
                        "INSERT INTO items VALUES (%s, 'a', %s) ON CONFLICT (id) DO NOTHING",
                        [row_id, vector(seed) if seed else None],
                    )
                case "update":
                    connection.execute(
                        "UPDATE items SET embedding = %s WHERE id <= %s", [vector(seed), row_id]
                    )
                case "null":
                    connection.execute("UPDATE items SET embedding = NULL WHERE id = %s", [row_id])
                case "other":
                    connection.execute("UPDATE items SET category = 'b' WHERE id <= %s", [row_id])
                case "delete":
                    connection.execute("DELETE FROM items WHERE id = %s", [row_id])
                case "key":
                    connection.execute("UPDATE items SET id = id + 100 WHERE id = %s", [row_id])
                case _:
                    connection.execute("TRUNCATE items")
    assert_fresh(index)


def assert_coded_as_rows_are(index):
    """Every row with a vector has one code, that of its vector, and no other key has one."""
    connection = index.connection
    name = f"set_{index.row.set_id}_codes"
    wrong = connection.execute(
        "SELECT coalesce(i.id, c.id) FROM (SELECT id, hashindex.encode('lsh', embedding)::text "
        "AS code FROM items WHERE embedding IS NOT NULL) i FULL JOIN "
        f"hashindex.{name} c ON c.id = i.id WHERE i.code IS DISTINCT FROM c.code::text".encode()
    ).fetchall()
    assert wrong == []


DEFERRABLE = (
    "ALTER TABLE items DROP CONSTRAINT items_pkey, "
    "ADD CONSTRAINT items_pkey PRIMARY KEY (id) DEFERRABLE INITIALLY {}"
)


@pytest.mark.parametrize("checked", ["IMMEDIATE", "DEFERRED"])
@pytest.mark.parametrize(
    "writes",
    [
        ["UPDATE items SET id = 4 - id WHERE id IN (1, 3)"],
        ["UPDATE items SET id = id + 1"],
        ["UPDATE items SET id = id - 1", "DELETE FROM items WHERE id = 4"],
        ["UPDATE items SET id = 300 - id, embedding = embedding + embedding"],
        [
            "DELETE FROM items WHERE id = 5",
            "INSERT INTO items VALUES (5, 'a', '[1,2,3,4,5,6,7,8]')",
        ],
        ["UPDATE items SET id = 7 WHERE id = 8", "DELETE FROM items WHERE id = 7"],
        [
            "UPDATE items SET id = 7 WHERE id = 8",
            "UPDATE items SET id = 999 WHERE ctid = (SELECT min(ctid) FROM items WHERE id = 7)",
        ],
        ["UPDATE items SET id = 301 - id, embedding = NULL WHERE id < 10 OR id > 291"],
    ],
)  # fmt: skip
def test_keys_that_move(index, checked, writes):
    """A code is deleted only where no row has its key."""
    connection = index.connection
    connection.execute(DEFERRABLE.format(checked).encode())
    try:
        with connection.transaction():
            for write in writes:
                connection.execute(write.encode())
    except psycopg.errors.UniqueViolation:
        assert "SET id = 7" in writes[0]
    assert_coded_as_rows_are(index)
    assert_fresh(index)


@pytest.mark.parametrize(
    "change",
    [
        "NEW.embedding := l2_normalize(NEW.embedding) + l2_normalize(NEW.embedding)",
        "NEW.embedding := NULL",
        "NEW.id := NEW.id + 5000",
    ],
)
def test_a_users_trigger_that_changes_the_row_before_it_is_written(index, change):
    """An update that names another column may change the vector, too."""
    connection = index.connection
    connection.execute(
        f"""
        CREATE FUNCTION adjust() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN {change}; RETURN NEW; END $$;
        CREATE TRIGGER adjust BEFORE INSERT OR UPDATE ON items
            FOR EACH ROW EXECUTE FUNCTION adjust();
        """.encode()
    )
    for write in (
        "UPDATE items SET category = 'b' WHERE id < 20",
        "INSERT INTO items VALUES (1000, 'a', '[1,2,3,4,5,6,7,8]'), (30, 'a', '[8,2,3,4,5,6,7,8]') "
        "ON CONFLICT (id) DO UPDATE SET category = 'c'",
        "MERGE INTO items USING (VALUES (40), (2000)) s(n) ON items.id = s.n WHEN MATCHED THEN "
        "UPDATE SET category = 'd' WHEN NOT MATCHED THEN INSERT "
        "VALUES (n, 'e', '[1,1,3,4,5,6,7,8]')",
    ):
        connection.execute(write.encode())
        assert_coded_as_rows_are(index)
    assert_fresh(index)


def test_a_replicas_writes_are_not_seen_and_repaired(index):
    """As `session_replication_role` says; what other sessions write is."""
    connection = index.connection
    connection.execute("SET session_replication_role = replica")
    connection.execute("UPDATE items SET embedding = %s WHERE id = 1", [vector(3)])
    connection.execute("RESET session_replication_role")
    connection.execute("UPDATE items SET category = 'z' WHERE id = 1")
    connection.execute("UPDATE items SET embedding = %s WHERE id = 2", [vector(3)])
    with pytest.raises(AssertionError):
        assert_coded_as_rows_are(index)
    connection.execute("UPDATE items SET id = 5000 WHERE id = 1")
    assert_coded_as_rows_are(index)


def test_a_dropped_column_leaves_writers_alone(index):
    connection = index.connection
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        connection.execute("ALTER TABLE items DROP COLUMN embedding")
    connection.execute("ALTER TABLE items DROP COLUMN embedding CASCADE")
    for write in (
        "INSERT INTO items VALUES (1000, 'a')",
        "UPDATE items SET id = 1001 WHERE id = 1",
        "DELETE FROM items WHERE id < 10",
        "TRUNCATE items",
    ):
        connection.execute(write.encode())
