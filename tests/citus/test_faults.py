"""Nodes that stop, come and go while rows are written, searched, encoded and swapped."""

import contextlib
import threading
import time

import psycopg
import pytest
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, assert_fresh, exact, one
from fixtures.faults import eventually

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index import citus
from pg_hashindex.index.handle import HashIndex

pytestmark = [pytest.mark.citus, pytest.mark.slow]

WRITES = (
    f"INSERT INTO {TABLE} SELECT {{n}} * 100 + 10000 + g, 'w', "
    "ARRAY(SELECT sin({n} + g * d) FROM generate_series(1, 8) d)::vector "
    "FROM generate_series(1, 40) g",
    f"UPDATE {TABLE} SET embedding = embedding + '[0,1,0,0,0,0,0,0]' WHERE id % 50 = {{n}} % 50",
    f"DELETE FROM {TABLE} WHERE id % 97 = {{n}} % 97",
)


class Load:
    """Writes and searches of two sessions; counts what succeeds, and keeps what fails."""

    def __init__(self, url):
        self.url, self.done, self.errors = url, 0, list[str]()
        self.wrong = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=[work]) for work in (self.write, self.search)
        ]

    def write(self, connection, number):
        connection.execute(WRITES[number % len(WRITES)].format(n=number).encode())

    def search(self, connection, number):
        found = connection.execute(
            f"SELECT distance FROM hashindex.search_{INDEX}(%s, 5, 5000)".encode(), [QUERY]
        ).fetchall()
        distances = [row[0] for row in found]
        if len(distances) != 5 or distances != sorted(distances):
            self.wrong.append(f"{distances}")

    def _repeat(self, work):
        number = 0
        while not self._stop.is_set():
            try:
                with connect(self.url) as connection:
                    while not self._stop.is_set():
                        number += 1
                        work(connection, number)
                        self.done += 1
            except (psycopg.Error, HashIndexError) as error:
                self.errors.append(str(error))
                time.sleep(0.05)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def stopped(cluster, node):
    """Stop a node without warning, and start it again."""
    cluster.control(node, "stop", "-m", "immediate")
    try:
        yield
    finally:
        cluster.control(node, "start")


@contextlib.contextmanager
def recovered(url):
    """Connect, once what was prepared on nodes that stopped is committed or rolled back."""
    for _ in range(100):
        with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as asking:
            if not one(asking, "SELECT recover_prepared_transactions()"):
                break
        time.sleep(0.1)
    with connect(url) as connection:
        yield connection


@pytest.mark.parametrize("node", [1, 0], ids=["worker", "coordinator"])
def test_a_node_stops_while_rows_are_written(spread, own_cluster, filled, node):
    with Load(filled) as load:
        eventually(lambda: load.done >= 20)
        with stopped(own_cluster, node):
            eventually(lambda: len(load.errors) >= 5)
        before = load.done
        eventually(lambda: load.done >= before + 20)
    assert load.wrong == []
    with recovered(filled) as connection:
        index = HashIndex.open(connection, INDEX)
        assert_fresh(index)
        assert [hit.id for hit in index.search(QUERY, 5, candidates=5000)] == exact(connection, 5)
        assert all(
            found.status != "broken" for found in operations.check(index, full=True).findings
        )


def test_a_worker_that_is_down(spread, own_cluster, session):
    with stopped(own_cluster, 2):
        with pytest.raises(HashIndexError, match="connection to the remote node"):
            spread.search(QUERY, 5)
        with pytest.raises(psycopg.Error, match="connection to the remote node"):
            session.execute(f"UPDATE {TABLE} SET embedding = NULL".encode())
        with pytest.raises(HashIndexError, match="remote node|cannot be reached"):
            HashIndex.create(session, "citus_tests_2", table=TABLE, column="embedding", model=MODEL)
    assert_fresh(spread)


@pytest.mark.parametrize("access", ["scan", "landmarks"])
def test_a_worker_stops_while_an_index_is_made(
    session, own_cluster, filled, access,
    monkeypatch
):  # fmt: skip
    index = HashIndex.create(
        session,
        INDEX,
        table=TABLE,
        column="embedding",
        model=MODEL,
        access=access,  # type: ignore[arg-type]
    )
    passing = citus._Shards._pass

    def cut(self, pace):
        done = passing(self, pace)  # type: ignore[arg-type]
        yield next(done)
        with stopped(own_cluster, 1):
            yield from done

    monkeypatch.setattr(citus._Shards, "_pass", cut)
    monkeypatch.setattr(citus, "_FIRST_PAGES", 1)
    with pytest.raises(HashIndexError, match="remote node|terminat|connection"):
        index.encode()
    monkeypatch.undo()
    with recovered(filled) as connection:
        HashIndex.open(connection, INDEX).encode()
        index = HashIndex.open(connection, INDEX)
        assert index.access == access
        assert_fresh(index)


@pytest.mark.parametrize("step", ["encode", "compare", "exchange"])
def test_a_worker_stops_in_a_swap(
    spread, own_cluster, filled, step,
    monkeypatch
):  # fmt: skip
    with Load(filled) as load:
        with monkeypatch.context() as patch:
            from pg_hashindex.operations import swaps as swapping

            if step == "encode":
                encoding = swapping.encode

                def cut_encode(row, **options):
                    with stopped(own_cluster, 1):
                        return encoding(row, **options)  # type: ignore[arg-type]

                patch.setattr(swapping, "encode", cut_encode)
            else:
                calling = getattr(swapping, f"_{step}")

                def cut(*arguments):
                    own_cluster.control(1, "stop", "-m", "immediate")
                    own_cluster.control(1, "start")
                    return calling(*arguments)

                patch.setattr(swapping, f"_{step}", cut)
            with contextlib.suppress(HashIndexError, psycopg.Error):
                operations.swap(spread, f"{MODEL}_itq", force=True)
    assert load.wrong == []
    with recovered(filled) as connection:
        index = HashIndex.open(connection, INDEX)
        assert_fresh(index)
        if index.model == MODEL:
            operations.swap(index, f"{MODEL}_itq", force=True)
        index = HashIndex.open(connection, INDEX)
        assert index.model == f"{MODEL}_itq"
        assert_fresh(index)


def move_everything(connection, *, to_coordinator):
    """Let the coordinator have shards, or take them from it."""
    connection.execute(
        "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', %s) "
        "FROM pg_dist_node WHERE groupid = 0",
        [to_coordinator],
    )
    if to_coordinator:
        connection.execute(f"SELECT rebalance_table_shards('{TABLE}')".encode())
    else:
        connection.execute(
            "SELECT citus_drain_node(nodename, nodeport) FROM pg_dist_node WHERE groupid = 0"
        )


def test_shards_move_under_load(spread, filled):
    connection = spread.connection
    try:
        with Load(filled) as load:
            move_everything(connection, to_coordinator=True)
            on_coordinator = one(
                connection,
                "SELECT count(*) FROM citus_shards s "
                "JOIN pg_dist_node n USING (nodename, nodeport) "
                f"WHERE n.groupid = 0 AND s.table_name = '{TABLE}'::regclass",
            )
            assert on_coordinator > 0
            time.sleep(0.5)
        assert (load.errors, load.wrong) == ([], [])
        assert_fresh(spread)
        # With shards here, their triggers and tables are listed beside ours.
        assert [
            f
            for f in operations.check(spread, full=True).findings
            if f.status != "ok" and "drift" not in f.check
        ] == []
        assert operations.repair(spread).done == ()
        if spread.access == "landmarks":
            spread.rebalance()
        operations.swap(spread, f"{MODEL}_itq", force=True)
        assert_fresh(spread)
        HashIndex.open(connection, INDEX).drop()
        assert one(connection, "SELECT count(*) FROM hashindex.orphans()") == 0
    finally:
        connection.execute("CALL citus_cleanup_orphaned_resources()")
        move_everything(connection, to_coordinator=False)
        connection.execute("CALL citus_cleanup_orphaned_resources()")


def test_a_node_is_added_under_load(spread, own_cluster, filled):
    connection = spread.connection
    port = own_cluster.port + 2
    node = f"'127.0.0.1', {port}"
    connection.execute(f"SELECT citus_drain_node({node})".encode())
    # No session would remove the rest from a node that has left.
    connection.execute("CALL citus_cleanup_orphaned_resources()")
    connection.execute(f"SELECT citus_remove_node({node})".encode())
    try:
        with Load(filled) as load:
            connection.execute(f"SELECT citus_add_node({node})".encode())
            connection.execute(f"SELECT rebalance_table_shards('{TABLE}')".encode())
            time.sleep(0.5)
        assert (load.errors, load.wrong) == ([], [])
        with psycopg.connect(own_cluster.worker(filled, 2)) as worker:
            found = worker.execute(
                f"SELECT id FROM hashindex.search_{INDEX}(%s, 5, 5000)".encode(), [QUERY.to_text()]
            ).fetchall()
        assert [row[0] for row in found] == exact(connection, 5)
        assert_fresh(spread)
    finally:
        connection.execute("CALL citus_cleanup_orphaned_resources()")
        connection.execute("SELECT rebalance_table_shards()")
        connection.execute("CALL citus_cleanup_orphaned_resources()")


def test_a_shard_is_split(spread):
    connection = spread.connection
    connection.execute(
        "SELECT isolate_tenant_to_new_shard(%s, %s::text, 'CASCADE', 'block_writes')",
        # The shards of the table of the next test are as these are then.
        [TABLE, {"scan": 7, "landmarks": 8}[spread.access]],
    )
    connection.execute(f"UPDATE {TABLE} SET embedding = %s WHERE id IN (7, 8)".encode(), [QUERY])
    assert_fresh(spread)
    assert {hit.id for hit in spread.search(QUERY, 2)} == {7, 8}
