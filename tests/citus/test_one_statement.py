"""A search by landmarks reaches every node by one statement, wherever shards are."""

import psycopg
import pytest
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, exact, one, role, with_calls

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

OTHER = f"{INDEX}_other"


def found(connection, k=5, candidates=2000, probes=500, name=INDEX):
    """The keys of a search, its calls on nodes, and what else it sends to other nodes."""
    search = f"SELECT id FROM hashindex.search_{name}(%s, {k}, {candidates}, {probes})"
    rows, calls, others = with_calls(connection, search, [QUERY])
    return [row[0] for row in rows], calls, others


@pytest.fixture
def index(make):
    return make(access="landmarks")


def test_each_node_gets_one_statement(index):
    keys, calls, others = found(index.connection)
    assert keys == exact(index.connection, 5)
    assert (len(calls), others) == (2, [])


def test_in_a_transaction_that_writes(index):
    connection = index.connection
    with connection.transaction(force_rollback=True):
        connection.execute(f"DELETE FROM {TABLE} WHERE id = %s".encode(), [exact(connection, 1)[0]])
        assert found(connection)[0] == exact(connection, 5)


def test_candidates_are_shared_out_among_shards(index):
    """Each shard compares its share of the candidates exactly."""
    connection = index.connection
    few = found(connection, k=20, candidates=20)[0]
    many = found(connection, k=20, candidates=400)[0]
    truth = exact(connection, 20)
    assert len(set(few) & set(truth)) <= len(set(many) & set(truth))
    distances = dict(
        connection.execute(
            f"SELECT id, embedding <-> %s FROM {TABLE} WHERE id = ANY (%s)".encode(), [QUERY, few]
        ).fetchall()
    )
    assert few == sorted(few, key=lambda key: (distances[key], key))


def test_lists_with_too_few_codes(index):
    keys, calls, others = found(index.connection, k=400, candidates=400, probes=1)
    assert (len(keys), len(calls)) == (400, 2)
    assert others != []


def test_on_a_worker(index, cluster, filled):
    expected = exact(index.connection, 5)
    with connect(cluster.worker(filled)) as worker:
        keys, calls, others = found(worker)
    assert keys == expected
    assert (len(calls), others) == (2, [])


def test_for_a_reader(index, filled):
    with role(filled, "citus_reader"):
        index.connection.execute(f"GRANT SELECT ON {TABLE} TO citus_reader".encode())
        index.grant("citus_reader")
        with connect(filled) as reader:
            reader.execute("SET ROLE citus_reader")
            keys = reader.execute(
                f"SELECT id FROM hashindex.search_{INDEX}(%s, 5, 2000, 500)".encode(), [QUERY]
            ).fetchall()
        assert [key[0] for key in keys] == exact(index.connection, 5)


def test_after_all_shards_have_moved_to_one_node(index):
    connection = index.connection
    shards = connection.execute(
        "SELECT s.shardid, n.nodename, n.nodeport, o.nodename, o.nodeport "
        "FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid) "
        "JOIN pg_dist_node n USING (groupid) "
        "JOIN pg_dist_node o ON o.groupid <> ALL (ARRAY[0, n.groupid]) "
        "WHERE s.logicalrelid = %s::regclass AND n.groupid = ("
        "SELECT max(groupid) FROM pg_dist_node)",
        [TABLE],
    ).fetchall()
    assert shards
    try:
        for shard in shards:
            connection.execute(
                "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')", shard
            )
        keys, calls, others = found(connection)
        assert keys == exact(connection, 5)
        assert (len(calls), others) == (1, [])
    finally:
        connection.execute("CALL citus_cleanup_orphaned_resources()")
        connection.execute("SELECT rebalance_table_shards()")
        connection.execute("CALL citus_cleanup_orphaned_resources()")


def test_shards_that_are_elsewhere(index, cluster, filled):
    """A node ends its answer with a row without a key only if it has all the shards."""
    places = dict(
        index.connection.execute(
            "SELECT s.number, p.groupid FROM hashindex._shards_of(%s::regclass) s "
            "JOIN pg_dist_placement p ON p.shardid = s.shard",
            [TABLE],
        ).fetchall()
    )
    here = min(places.values())
    with psycopg.connect(cluster.worker(filled, 1)) as worker:
        for number, group in places.items():
            first = [number if n == number else 0 for n in sorted(places)]
            rows = worker.execute(
                f"SELECT id, distance FROM hashindex.nearest_{INDEX}(%s, %s::integer[], "
                "(SELECT array_agg(n) FROM generate_series(1, 1000) n), %s::varbit[], "
                "%s::vector, 5, 5) ORDER BY distance",
                [number, first, ["0" * 16] * 5, QUERY.to_text()],
            ).fetchall()
            # Its rows, of which there are few in a shard that was split off, come after.
            assert [key for key, _ in rows[:1]] == ([None] if group == here else [])
            assert len(rows) <= 6


@pytest.mark.parametrize("other", ["numbers", "keys"])
def test_rows_of_shards_that_are_wrong(index, other):
    """Whatever they say, no answer is short."""
    connection = index.connection
    in_shards = f"SELECT id, number FROM hashindex.{INDEX}_shards ORDER BY number"
    rows = connection.execute(in_shards.encode()).fetchall()
    assert [number for _, number in rows] == list(range(1, len(rows) + 1))
    connection.execute(f"DELETE FROM hashindex.{INDEX}_shards")
    for key, number in rows:
        connection.execute(
            f"INSERT INTO hashindex.{INDEX}_shards VALUES (%s, %s)",
            [key + 1000, number] if other == "keys" else [key, len(rows) + 1 - number],
        )
    assert found(connection)[0] == exact(connection, 5)
    index.distribute()
    assert connection.execute(in_shards.encode()).fetchall() == rows
    keys, calls, others = found(connection)
    assert keys == exact(connection, 5)
    assert (len(calls), others) == (2, [])


def test_a_shard_that_was_split(index):
    connection = index.connection
    connection.execute(
        "SELECT isolate_tenant_to_new_shard(%s, '11', 'CASCADE', 'block_writes')", [TABLE]
    )
    keys, calls, _ = found(connection)
    assert keys == exact(connection, 5)
    assert calls == []
    connection.execute(f"UPDATE {TABLE} SET embedding = %s WHERE id = 11".encode(), [QUERY])
    slower = [f.detail for f in operations.check(index).findings if f.check == "functions"]
    assert "3 shards are new since the functions were made" in " ".join(slower)
    assert operations.repair(index).done == ("recreated the functions",)
    assert [f.status for f in operations.check(index).findings if f.check == "functions"] == ["ok"]
    keys, calls, others = found(connection)
    assert keys == exact(connection, 5)
    assert keys[0] == 11
    assert (len(calls), others) == (2, [])


@pytest.mark.parametrize(
    ("key", "value", "one_call"),
    [
        ("smallint", "n", True),
        ("integer", "n", True),
        ("numeric", "n / 10.0", True),
        ("text", "'key ' || n", True),
        ("varchar(20)", "n::text", True),
        ("uuid", "md5(n::text)::uuid", True),
        ("date", "date '2020-01-01' + n", True),
        ("timestamptz", "timestamptz '2020-01-01' + n * interval '1 hour'", True),
        # A type of which no value for each shard is known: in two rounds, as before.
        ("interval", "n * interval '1 hour'", False),
    ],
)
def test_keys(session, key, value, one_call):
    session.execute("CREATE TABLE citus_tests_keys (id " + key + " PRIMARY KEY, v vector(8))")
    session.execute("SELECT create_distributed_table('citus_tests_keys', 'id')")
    session.execute(
        f"INSERT INTO citus_tests_keys SELECT {value}, embedding FROM ("
        "SELECT (id % 30000)::integer AS n, embedding FROM rows_to_copy) r".encode()
    )
    try:
        HashIndex.create(
            session, OTHER, table="citus_tests_keys", column="v", model=MODEL, access="landmarks"
        ).encode()
        nearest = session.execute(
            b"SELECT id FROM citus_tests_keys ORDER BY v <-> %s, id LIMIT 5", [QUERY]
        ).fetchall()
        keys, calls, _ = found(session, name=OTHER)
        assert keys == [row[0] for row in nearest]
        assert len(calls) == (2 if one_call else 0)
        session.execute(
            b"UPDATE citus_tests_keys SET v = %s WHERE id = %s", [QUERY, nearest[-1][0]]
        )
        assert found(session, k=1, name=OTHER)[0] == [nearest[-1][0]]
        HashIndex.open(session, OTHER).drop()
        assert one(session, "SELECT to_regclass(%s)", f"hashindex.{OTHER}_shards") is None
    finally:
        session.execute("DROP TABLE citus_tests_keys CASCADE")


def test_many_landmarks_are_looked_up_in_their_graph(index):
    """The copy on this node has statistics, and the distributed table has none."""
    landmarks = index.row.landmarks.as_string(index.connection)
    copy = one(index.connection, "SELECT name FROM hashindex._shards_of(%s::regclass)", landmarks)
    limit = (
        "SELECT substring(prosrc FROM 'n_probes <= (\\d+) THEN') FROM pg_proc "
        f"WHERE proname = 'search_{INDEX}'"
    )
    assert one(index.connection, limit) == "64"
    index.connection.execute("SET citus.override_table_visibility TO off")
    index.connection.execute("UPDATE pg_class SET reltuples = 4000 WHERE relname = %s", [copy])
    index.distribute()
    assert one(index.connection, limit) == "200"


def test_codes_lie_in_the_order_of_landmarks(index):
    """After a build; each shard's, as far as its rows were there."""
    codes = index.row.codes.as_string(index.connection)
    for _, fine, result in index.connection.execute(
        "SELECT * FROM run_command_on_shards(%s, %s)",
        [
            codes,
            "SELECT bool_and(later >= landmark) FROM (SELECT landmark, "
            "lead(landmark, 1, landmark) OVER (ORDER BY ctid) AS later FROM %s) c",
        ],
    ).fetchall():
        assert (fine, result) == (True, "t")
