"""Who may do what on a cluster: an administrator who is not a superuser, and an attacker."""

import contextlib

import numpy as np
import psycopg
import pytest
from fixtures.attackers import TELLING
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, assert_fresh, faults, one, role

from pg_hashindex import operations, schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

SYNC = f"hashindex.sync_{INDEX}()"


def test_the_trigger_function_cannot_be_used(spread, filled):
    """On no node, whatever the name of the index: one that a swap made needs quotes."""
    beside = one(spread.connection, "SELECT hashindex.begin_swap(%s, %s)", INDEX, f"{MODEL}_itq")
    for index in (spread, HashIndex.open(spread.connection, beside)):
        rows = spread.connection.execute(
            "SELECT result FROM run_command_on_all_nodes(format("
            "'SELECT has_function_privilege(''public'', ''hashindex.%%I()'', ''EXECUTE'')', "
            "hashindex._sync_name(%s)))",
            [index.storage],
        ).fetchall()
        assert {row[0] for row in rows} == {"f"}, index.name


@pytest.mark.parametrize("place", ["coordinator", "shard", "elsewhere"])
@pytest.mark.parametrize("owned", ["public", "mallory"])
def test_a_table_with_the_name_of_a_shard(spread, cluster, filled, place, owned):
    """Its writes change no code and its owner's functions do not run, were he let use the trigger.

    On the coordinator, which has no shard; on the worker that has the shard, in another schema;
    and on the worker that does not have it.
    """
    shard, node = spread.connection.execute(
        "SELECT s.shardid, n.nodeport FROM pg_dist_shard s "
        "JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node n USING (groupid) "
        "WHERE s.logicalrelid = %s::regclass LIMIT 1",
        [TABLE],
    ).fetchall()[0]
    urls = {
        "coordinator": filled,
        **{
            "shard" if f":{node}/" in url else "elsewhere": url
            for url in (cluster.worker(filled, number) for number in (1, 2))
        },
    }
    if (place, owned) == ("shard", "public"):
        pytest.skip("the name is taken there")
    name = f"{owned}.{TABLE}_{shard}"
    with role(filled, "mallory"), psycopg.connect(urls[place], autocommit=True) as superuser:
        superuser.execute("SET citus.enable_ddl_propagation TO off")
        superuser.execute(TELLING.encode())
        superuser.execute(
            f"GRANT CREATE ON SCHEMA public TO mallory; "
            f"GRANT EXECUTE ON FUNCTION {SYNC} TO mallory".encode()
        )
        try:
            with psycopg.connect(urls[place], user="mallory", autocommit=True) as mallory:
                mallory.execute("SET citus.enable_ddl_propagation TO off")
                mallory.execute("SET citus.enable_manual_changes_to_shards TO on")
                mallory.execute(
                    f"CREATE TABLE {name} (id bigint PRIMARY KEY, category text, "
                    f"embedding public.vector(8))".encode()
                )
                mallory.execute(
                    f"CREATE INDEX ON {name} (id) WHERE mallory.tells(category)".encode()
                )
                with contextlib.suppress(psycopg.Error):
                    _attach(mallory, name)
                for statement in (
                    f"INSERT INTO {name} SELECT g, 'm', '{QUERY.to_text()}' "
                    "FROM generate_series(1, 2000) g",
                    f"DELETE FROM {name} WHERE id < 1000",
                    f"TRUNCATE {name}",
                ):
                    mallory.execute(statement.encode())
                ran_as = one(mallory, "SELECT pg_catalog.current_setting('attack.ran_as', true)")
            assert set((ran_as or "").split()) <= {"mallory"}
            assert_fresh(spread)
        finally:
            superuser.execute(f"DROP TABLE IF EXISTS {name}".encode())
            superuser.execute("DROP SCHEMA mallory CASCADE")
            superuser.execute(
                f"REVOKE CREATE ON SCHEMA public FROM mallory; "
                f"REVOKE EXECUTE ON FUNCTION {SYNC} FROM mallory".encode()
            )


def _attach(session, name):
    timings = [
        "AFTER INSERT ON {} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
        "AFTER DELETE ON {} REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT",
        "AFTER TRUNCATE ON {} FOR EACH STATEMENT",
    ]
    for number, timing in enumerate(timings):
        session.execute(
            f"CREATE TRIGGER forge{number} {timing.format(name)} EXECUTE FUNCTION {SYNC}".encode()
        )


def test_an_administrator_who_is_no_superuser(own_cluster, rows):
    """From the first upgrade to the last; a table that is distributed later, and another's."""
    url = own_cluster.database("administered")
    with connect(url) as superuser:
        # The fixture has installed it as the superuser.
        superuser.execute("DROP SCHEMA hashindex CASCADE")
        superuser.execute("CREATE ROLE citus_tests_keeper LOGIN")
        superuser.execute("CREATE SCHEMA hashindex AUTHORIZATION citus_tests_keeper")
        superuser.execute("GRANT CREATE ON SCHEMA public TO citus_tests_keeper")
    keepers = url.replace("postgres@", "citus_tests_keeper@")
    _upgrade(keepers)
    with connect(keepers) as keeper:
        store.save(keeper, LSH(n_bits=16, random_state=3).fit(rows).to_model(MODEL))
        for early in (True, False):
            keeper.execute(
                "CREATE TABLE kept (id bigint PRIMARY KEY, category text, embedding vector(8))"
            )
            with keeper.cursor() as cursor, cursor.copy("COPY kept FROM STDIN") as copy:
                for number, row in enumerate(rows[:300]):
                    copy.write_row((number, "a", str(row.tolist())))
            if early:
                keeper.execute("SELECT create_distributed_table('kept', 'id')")
            made = HashIndex.create(
                keeper, INDEX, table="kept", column="embedding", model=MODEL,
                access="landmarks",
            )  # fmt: skip
            made.encode()
            if not early:
                # Citus distributes no table that has triggers.
                keeper.execute(f"DROP FUNCTION {SYNC} CASCADE".encode())
                keeper.execute("SELECT create_distributed_table('kept', 'id')")
                operations.repair(HashIndex.open(keeper, INDEX))
            keeper.execute("UPDATE kept SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 9")
            keeper.execute("DELETE FROM kept WHERE id = 9")
            index = HashIndex.open(keeper, INDEX)
            assert index.search(np.ones(8), 3, candidates=400)[0].id == 0
            assert_fresh(index)
            assert faults(index, full=True) == []
            _upgrade(keepers)
            index.rebalance()
            operations.swap(index, MODEL, queries=3, force=True)
            assert_fresh(HashIndex.open(keeper, INDEX))
            HashIndex.open(keeper, INDEX).drop()
            keeper.execute("DROP TABLE kept")


def _upgrade(url):
    engine = create_engine(url)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
