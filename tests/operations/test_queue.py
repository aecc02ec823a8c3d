"""Triggers of an index that only Python can encode: who changes a vector takes its code away."""

import psycopg
import pytest
from fixtures.indexes import create_index
from fixtures.known import OTHERS, UNKNOWN, assert_queued
from pgvector import Vector

from pg_hashindex import store

pytestmark = pytest.mark.newest

# Rows that the model does not know.
NEVER = list(range(UNKNOWN[0], UNKNOWN[1] + 1))


def vector(number):
    return Vector(OTHERS[number])


def test_writes_leave_rows_in_the_queue(encoded):
    run = encoded.connection.execute
    assert_queued(encoded, NEVER)
    run("UPDATE items SET category = 'z'")
    run("UPDATE items SET embedding = embedding")
    assert_queued(encoded, NEVER)
    run("INSERT INTO items VALUES (1000, 'a', %s), (1001, 'b', NULL)", [vector(0)])
    run("UPDATE items SET embedding = %s WHERE id IN (1, 2)", [vector(1)])
    run("UPDATE items SET embedding = NULL WHERE id = 3")
    run("DELETE FROM items WHERE id = 4")
    run(
        "INSERT INTO items VALUES (5, 'a', %s) ON CONFLICT (id) DO UPDATE "
        "SET embedding = excluded.embedding",
        [vector(2)],
    )
    assert_queued(encoded, [1, 2, 5, *NEVER, 1000])
    assert encoded.encode() == 4
    assert_queued(encoded, NEVER)
    run("TRUNCATE items")
    assert_queued(encoded, [])
    with (
        encoded.connection.cursor() as cursor,
        cursor.copy("COPY items (id, embedding) FROM STDIN") as copy,
    ):
        copy.write_row((7, str(vector(3).to_list())))
    assert_queued(encoded, [7])


def test_a_key_that_changes(encoded):
    """The code is another row's to be."""
    encoded.connection.execute("UPDATE items SET id = id + 1000 WHERE id <= 2")
    assert_queued(encoded, [*NEVER, 1001, 1002])
    encoded.connection.execute("INSERT INTO items VALUES (1, 'a', %s)", [vector(0)])
    encoded.encode()
    assert_queued(encoded, NEVER)


def test_rollback_gives_the_codes_back(encoded):
    connection = encoded.connection
    with connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM items WHERE id < 100")
        connection.execute("UPDATE items SET embedding = %s", [vector(1)])
    assert_queued(encoded, NEVER)


def test_a_code_that_a_writer_brings_along_is_not_taken(encoded):
    # With codes in the table itself, the rows bring theirs along.
    encoded.connection.execute(
        "CREATE TEMP TABLE rows AS SELECT * FROM items WHERE id <= 2;"
        "UPDATE rows SET id = id + 1000; INSERT INTO items SELECT * FROM rows"
    )
    assert_queued(encoded, [*NEVER, 1001, 1002])


NESTED = [
    ("INSERT", "UPDATE items SET embedding = %L WHERE id = NEW.id", [1, 1000]),
    ("INSERT", "DELETE FROM items WHERE id = NEW.id", [1]),
    ("UPDATE", "UPDATE items SET embedding = %L WHERE id = NEW.id", [1, 1000]),
    ("UPDATE", "UPDATE items SET id = NEW.id + 5000 WHERE id = NEW.id", [1000, 5001]),
    ("DELETE", "INSERT INTO items VALUES (OLD.id, 'again', %L)", [1, 2, 1000]),
]


def test_a_users_trigger_that_writes_the_same_rows(encoded):
    connection = encoded.connection
    for event, nested, waiting in NESTED:
        statement = nested.replace("%L", f"'{vector(4).to_list()}'")
        with connection.transaction(force_rollback=True):
            connection.execute(
                f"""
                CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN IF pg_trigger_depth() = 1 THEN {statement}; END IF; RETURN NULL; END $$;
                CREATE TRIGGER meddle AFTER {event} ON items
                FOR EACH ROW EXECUTE FUNCTION meddle();
                """.encode()
            )
            connection.execute("INSERT INTO items VALUES (1000, 'a', %s)", [vector(1)])
            connection.execute("UPDATE items SET embedding = %s WHERE id = 1", [vector(2)])
            connection.execute("DELETE FROM items WHERE id = 2")
            assert_queued(encoded, [*NEVER, *waiting])


@pytest.mark.parametrize(
    ("level", "write"),
    [
        ("REPEATABLE READ", "UPDATE items SET embedding = NULL WHERE id = 1"),
        ("SERIALIZABLE", "DELETE FROM items"),
    ],
)
def test_an_old_snapshot_leaves_no_code_behind(connection, other, items, known_model, level, write):
    store.save(connection, known_model)
    index = create_index(connection, "late", model="known")
    with pytest.raises(psycopg.errors.SerializationFailure), other.transaction():
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        other.execute("SELECT count(*) FROM items")
        index.encode()
        other.execute(write.encode())
    assert_queued(index, NEVER)
    # One whose snapshot is new enough succeeds, and leaves no mark on rows without a code.
    with other.transaction():
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        other.execute("UPDATE items SET embedding = %s WHERE id IN (1, 300)", [vector(0)])
    assert_queued(index, [1, *NEVER])


def test_a_vector_that_the_model_cannot_take_is_refused(connection, known_model):
    store.save(connection, known_model)
    connection.execute("CREATE TABLE loose (id int PRIMARY KEY, embedding vector)")
    index = create_index(connection, "loose", table="loose", model="known")
    connection.execute("INSERT INTO loose VALUES (1, %s), (2, NULL)", [vector(0)])
    for write in (
        "INSERT INTO loose VALUES (3, '[1,2,3]')",
        "UPDATE loose SET embedding = '[1,2,3]' WHERE id = 1",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="3 dimensions.*takes 8"):
            connection.execute(write.encode())
    connection.execute("DELETE FROM loose WHERE id = 2")
    assert_queued(index, [1])


def test_comments_say_who_encodes(queued):
    rows = queued.connection.execute(
        "SELECT p.proname, obj_description(p.oid, 'pg_proc') FROM pg_proc p "
        "WHERE p.pronamespace = 'hashindex'::regnamespace AND p.proname LIKE '%items_idx'"
    ).fetchall()
    comments = dict(rows)
    assert "evaluated in Python" in comments["sync_items_idx"]
    assert "pg-hashindex index encode items_idx" in comments["sync_items_idx"]
    assert "query_code is the query's code, from Python" in comments["search_items_idx"]
    row = queued.connection.execute(
        "SELECT obj_description('hashindex.items_idx_codes'::regclass, 'pg_class')"
    ).fetchone()
    assert "pg-hashindex index encode" in row[0]
    assert row[0].endswith("triggers on public.items take away those of rows that change")


def test_dropping_leaves_nothing(queued):
    queued.drop()
    left = queued.connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace "
        "AND proname LIKE '%items_idx' "
        "UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass "
        "AND NOT tgisinternal UNION ALL SELECT attname FROM pg_attribute "
        "WHERE attrelid = 'items'::regclass AND attname LIKE 'items_idx%'"
    ).fetchall()
    assert left == []
    store.drop(queued.connection, "known")
