"""Codes stay those of their rows, whoever writes, and through whichever node."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, assert_fresh, one
from fixtures.faults import eventually

from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

SHOWN = "-c citus.override_table_visibility=off"
SINES = "ARRAY(SELECT sin(g * d) FROM generate_series(1, 8) d)::vector"


def write_everything(connection):
    """Write in every way that there is."""
    for statement in (
        f"INSERT INTO {TABLE} SELECT 5000 + g, 'd', {SINES} FROM generate_series(1, 50) g",
        f"INSERT INTO {TABLE} VALUES (6001, 'd', NULL)",
        f"UPDATE {TABLE} SET embedding = '{QUERY.to_text()}' WHERE id = 7",
        f"UPDATE {TABLE} SET embedding = NULL WHERE id = 8",
        f"UPDATE {TABLE} SET embedding = embedding + '[1,0,0,0,0,0,0,0]' WHERE id % 5 = 1",
        f"UPDATE {TABLE} SET category = 'e' WHERE id < 100",
        f"DELETE FROM {TABLE} WHERE id BETWEEN 200 AND 300",
        f"INSERT INTO {TABLE} SELECT id, 'a', '{QUERY.to_text()}' "
        "FROM unnest(ARRAY[9, 6002]) id "
        "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
        f"INSERT INTO {TABLE} VALUES (9, 'a', NULL) ON CONFLICT (id) DO NOTHING",
        f"MERGE INTO {TABLE} t USING rows_to_copy s ON t.id = s.id AND s.id < 20 "
        "WHEN MATCHED THEN UPDATE SET embedding = s.embedding",
        f"WITH gone AS (DELETE FROM {TABLE} WHERE id = 400 RETURNING id, category, embedding) "
        f"SELECT count(*) FROM gone",
    ):
        connection.execute(statement.encode())
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {TABLE} (id, category, embedding) FROM STDIN".encode()) as copy,
    ):
        copy.write_row((6000, "d", QUERY.to_text()))
        copy.write_row((6003, "d", None))


def test_every_write_is_seen(spread):
    write_everything(spread.connection)
    assert_fresh(spread)
    assert one(spread.connection, f"SELECT count(embedding) FROM {TABLE}") == spread.summary().codes
    assert {hit.id for hit in spread.search(QUERY, 2)} <= {9, 6000, 6002}


def test_landmarks_are_looked_up_by_their_index(session, own_cluster, filled):
    """On every worker, by encoding and by triggers, though the planner would read them all."""
    workers = [own_cluster.worker(filled, number) for number in (1, 2)]
    table = ""

    def configure(change):
        database = session.info.dbname
        session.execute(f"ALTER DATABASE {database} {change}".encode())

    def scans(kind):
        found = 0
        for worker in workers:
            with psycopg.connect(worker, options=SHOWN) as reading:
                statement = f"SELECT {kind} FROM pg_stat_all_tables WHERE relname ~ %s"
                found += one(reading, statement, f"^{table}_[0-9]+$")
        return found

    configure("SET random_page_cost = 1000")  # on all nodes
    try:
        with connect(filled) as connection:
            HashIndex.create(
                connection, INDEX, table=TABLE, column="embedding", model=MODEL, access="landmarks"
            ).encode()
            table = one(connection, "SELECT landmark_table FROM hashindex.index")
            eventually(lambda: scans("idx_scan") >= 2000)
            read, looked_up = scans("seq_scan"), scans("idx_scan")
            write_everything(connection)
            eventually(lambda: scans("idx_scan") > looked_up + 400)
            assert scans("seq_scan") == read
    finally:
        configure("RESET random_page_cost")


def test_writes_through_a_worker(spread, cluster, filled):
    with psycopg.connect(cluster.worker(filled, 2), autocommit=True) as worker:
        write_everything(worker)
    assert_fresh(spread)


def test_a_transaction_that_is_rolled_back(spread):
    with spread.connection.transaction(force_rollback=True):
        write_everything(spread.connection)
    assert_fresh(spread)


@pytest.mark.parametrize("node", [0, 1])
def test_truncate(spread, cluster, filled, node):
    with psycopg.connect(cluster.worker(filled) if node else filled, autocommit=True) as other:
        other.execute(f"TRUNCATE {TABLE}".encode())
    assert_fresh(spread)
    assert spread.search(QUERY, 3) == []
    spread.connection.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', %s)".encode(), [QUERY])
    assert [hit.id for hit in spread.search(QUERY, 3)] == [1]


def test_rows_that_a_cascade_deletes(spread):
    connection = spread.connection
    connection.execute("CREATE TABLE parents (id bigint PRIMARY KEY)")
    connection.execute(
        f"SELECT create_distributed_table('parents', 'id', colocate_with => '{TABLE}')".encode()
    )
    connection.execute(f"INSERT INTO parents SELECT id FROM {TABLE}".encode())
    connection.execute(
        f"ALTER TABLE {TABLE} ADD CONSTRAINT of_parent FOREIGN KEY (id) "
        "REFERENCES parents (id) ON DELETE CASCADE".encode()
    )
    try:
        connection.execute("DELETE FROM parents WHERE id % 3 = 0")
        assert_fresh(spread)
        assert spread.summary().codes == 2000 - 666
    finally:
        connection.execute("DROP TABLE parents CASCADE")


def test_a_trigger_of_the_user_that_writes_to_the_row(spread):
    """The transition tables do not tell what the row is in the end: the shard does."""
    connection = spread.connection
    connection.execute(
        "CREATE OR REPLACE FUNCTION turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.embedding := NEW.embedding + '[0,0,5,0,0,0,0,0]'; RETURN NEW; END $$"
    )
    with connection.transaction():
        connection.execute("SET LOCAL citus.enable_unsafe_triggers TO on")
        connection.execute(
            f"CREATE TRIGGER a_turn BEFORE INSERT OR UPDATE ON {TABLE} "
            "FOR EACH ROW EXECUTE FUNCTION turn()".encode()
        )
    connection.execute(
        f"INSERT INTO {TABLE} SELECT id + 10000, 'd', embedding FROM rows_to_copy".encode()
    )
    connection.execute(f"UPDATE {TABLE} SET category = 'x' WHERE id < 50".encode())
    assert_fresh(spread)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_two_writers_of_one_row(spread, filled, level):
    # The second writer is refused if its snapshot on the worker is older than the first's commit.
    refusals = [psycopg.errors.SerializationFailure] if level == "REPEATABLE READ" else []
    with connect(filled) as other, ThreadPoolExecutor(1) as threads:
        with contextlib.suppress(*refusals), other.transaction():
            other.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            other.execute("SELECT 1")
            with spread.connection.transaction():
                spread.connection.execute(
                    f"UPDATE {TABLE} SET embedding = %s WHERE id = 5".encode(), [QUERY]
                )
                waiting = threads.submit(
                    other.execute, f"UPDATE {TABLE} SET embedding = NULL WHERE id = 5".encode()
                )
            waiting.result()
    assert_fresh(spread)


def test_writers_need_no_rights_in_the_schema(spread, filled):
    connection = spread.connection
    connection.execute("DROP ROLE IF EXISTS citus_tests_writer")
    connection.execute("CREATE ROLE citus_tests_writer LOGIN")
    connection.execute(
        f"GRANT INSERT, UPDATE, DELETE, SELECT (id) ON {TABLE} TO citus_tests_writer".encode()
    )
    try:
        with psycopg.connect(filled, user="citus_tests_writer", autocommit=True) as writer:
            writer.execute(
                f"INSERT INTO {TABLE} SELECT 7000 + g, 'w', {SINES} "
                "FROM generate_series(1, 20) g".encode()
            )
            writer.execute(
                f"UPDATE {TABLE} SET embedding = '{QUERY.to_text()}' WHERE id = 7001".encode()
            )
            writer.execute(f"DELETE FROM {TABLE} WHERE id = 7002".encode())
        assert_fresh(spread)
    finally:
        connection.execute("DROP OWNED BY citus_tests_writer")
        connection.execute("DROP ROLE citus_tests_writer")


def test_a_trigger_function_on_another_table_does_nothing(make):
    index = make()
    connection = index.connection
    connection.execute(
        "CREATE TABLE hostile (id bigint PRIMARY KEY, category text, embedding vector(8))"
    )
    connection.execute("SELECT create_distributed_table('hostile', 'id')")
    try:
        with connection.transaction():
            connection.execute("SET LOCAL citus.enable_unsafe_triggers TO on")
            connection.execute(
                f"CREATE TRIGGER forge AFTER INSERT ON hostile REFERENCING NEW TABLE AS new_rows "
                f"FOR EACH STATEMENT EXECUTE FUNCTION hashindex.sync_{INDEX}()".encode()
            )
        connection.execute(
            f"INSERT INTO hostile SELECT g, 'd', {SINES} FROM generate_series(1, 100) g".encode()
        )
        assert_fresh(index)
    finally:
        connection.execute("DROP TABLE hostile")


def test_vectors_of_another_dimension(session, make):
    session.execute(f"ALTER TABLE {TABLE} ALTER COLUMN embedding TYPE vector".encode())
    index = make()
    with pytest.raises(psycopg.Error, match="the vector has 3 dimensions, the model takes 8"):
        session.execute(f"UPDATE {TABLE} SET embedding = '[1,2,3]' WHERE id = 1".encode())
    assert_fresh(index)
