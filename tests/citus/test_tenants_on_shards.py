"""An index with tenants of a table that is distributed by its tenant, on a real cluster."""

import contextlib

import numpy as np
import pytest
from fixtures.citus import INDEX, MODEL, QUERY, one, with_calls

from pg_hashindex import operations
from pg_hashindex.errors import RowsLeftOutWarning
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

LONG = "".join(map(str, np.random.default_rng(8).integers(0, 10**9, 1100)))
COUNT = "hashindex._tenant_landmarks(bigint)"
EXACT = "SELECT id FROM odd WHERE tenant = %s ORDER BY (embedding <-> %s) + 0, id LIMIT 10"


@contextlib.contextmanager
def few_landmarks(session):
    """Give tenants of 100 rows landmarks already."""
    before = one(session, f"SELECT pg_get_functiondef('{COUNT}'::regprocedure)")
    session.execute(
        "CREATE OR REPLACE FUNCTION hashindex._tenant_landmarks(rows bigint) RETURNS integer "
        "LANGUAGE sql IMMUTABLE RETURN CASE WHEN rows < 100 THEN 0 ELSE rows / 20 END"
    )
    try:
        yield
    finally:
        session.execute(before.encode())


@pytest.fixture
def index(session):
    """Tenants 1 to 5, of which the first has most rows, and the last has 40."""
    session.execute(
        "CREATE TABLE odd AS SELECT CASE WHEN id <= 40 THEN 5 WHEN id <= 800 THEN 2 + id % 3 "
        "ELSE 1 END AS tenant, id, embedding FROM rows_to_copy"
    )
    session.execute("ALTER TABLE odd ADD PRIMARY KEY (tenant, id)")
    session.execute("SELECT create_distributed_table('odd', 'tenant')")
    made = HashIndex.create(
        session, INDEX, table="odd", column="embedding", model=MODEL, tenant="tenant"
    )
    try:
        with few_landmarks(session):
            made.encode()
            yield HashIndex.open(session, INDEX)
    finally:
        made.drop()
        session.execute("DROP TABLE odd")


def assert_found(index):
    session = index.connection
    for tenant in range(1, 7):
        exact = [(tenant, key) for (key,) in session.execute(EXACT, [tenant, QUERY]).fetchall()]
        found = index.search(QUERY, 10, tenant=tenant, candidates=2000, probes=1000)
        assert [hit.id for hit in found] == exact


def test_a_search_within_a_tenant_is_right_while_rows_change(index, session):
    sizes = session.execute("SELECT tenant, landmarks FROM hashindex.tenants(%s)", [INDEX])
    landmarks = dict(sizes.fetchall())
    assert landmarks.pop("5") == 0
    assert all(landmarks.values())
    for change in (
        "SELECT",
        "INSERT INTO odd SELECT 6, id, embedding FROM odd WHERE tenant = 2",
        "INSERT INTO odd SELECT 1, id, embedding FROM odd WHERE tenant = 5",
        "DELETE FROM odd WHERE tenant = 3",
        "UPDATE odd SET embedding = embedding * '[2,1,1,1,1,1,1,1]' WHERE id % 7 = 0",
    ):
        session.execute(change.encode())
        assert_found(index)
    assert operations.check(index, full=True).status == "ok"
    assert operations.repair(index, full=True).left == ()
    index.rebalance()
    assert_found(index)


def test_a_search_within_a_tenant_is_one_call_on_its_shard(index, session):
    search = f"SELECT id FROM hashindex.search_{INDEX}(%s, 10, 2000, 1000, tenant => %s::integer)"
    for tenant in (1, 5):
        rows, calls, others = with_calls(session, search, [QUERY, tenant])
        assert rows == session.execute(EXACT.encode(), [tenant, QUERY]).fetchall()
        assert (len(calls), others) == (1, [])
    # Rows of no tenant are looked for by the exact query too.
    assert with_calls(session, search, [QUERY, 99])[0] == []


@pytest.mark.parametrize("tenant", [1, 5])
def test_tenants_of_a_table_that_is_distributed_by_its_key(session, tenant):
    session.execute(
        "CREATE TABLE even AS SELECT CASE WHEN id <= 40 THEN 5 ELSE 1 END AS tenant, id, embedding "
        "FROM rows_to_copy"
    )
    session.execute("ALTER TABLE even ADD PRIMARY KEY (id)")
    session.execute("SELECT create_distributed_table('even', 'id')")
    index = HashIndex.create(
        session, INDEX, table="even", column="embedding", model=MODEL, tenant="tenant"
    )
    try:
        with few_landmarks(session):
            index.encode()
        search = f"SELECT id FROM hashindex.search_{INDEX}(%s, 10, 2000, 1000, tenant => %s)"
        rows, calls, others = with_calls(session, search, [QUERY, tenant])
        assert rows == session.execute(EXACT.replace("odd", "even"), [tenant, QUERY]).fetchall()
        assert (len(calls), others) == (2, [])
    finally:
        index.drop()
        session.execute("DROP TABLE even")


def test_a_search_within_a_tenant_asks_one_shard(index, session):
    index.search(QUERY, 10, tenant=1)
    # Queries of several shards are errors from here on.
    session.execute("SET citus.multi_task_query_log_level TO 'error'")
    try:
        for tenant in (1, 5, 99):
            index.search(QUERY, 10, tenant=tenant)
        with pytest.raises(Exception, match="multi-task"):
            session.execute("SELECT count(*) FROM odd")
    finally:
        session.execute("RESET citus.multi_task_query_log_level")


def test_a_tenant_that_is_longer_than_a_b_tree_holds(session):
    """Its rows have no code; commands and writes pass and name its keys, and searches are exact."""
    session.execute(
        "CREATE TABLE odd AS SELECT CASE WHEN id <= 300 THEN %s WHEN id <= 900 THEN 'two' "
        "ELSE 'one' END AS tenant, id, embedding FROM rows_to_copy",
        [LONG],
    )
    session.execute("ALTER TABLE odd ADD PRIMARY KEY (id)")
    session.execute("SELECT create_distributed_table('odd', 'id')")
    made = HashIndex.create(
        session, INDEX, table="odd", column="embedding", model=MODEL, tenant="tenant"
    )
    says = "tenant is longer than .*: key .*[0-9]+, .*, "

    def check(codes):
        index = HashIndex.open(session, INDEX)
        assert one(session, f"SELECT count(*) FROM {index.codes.as_string()}") == codes
        exact = session.execute(EXACT, [LONG, QUERY]).fetchall()
        found = index.search(QUERY, 10, tenant=LONG, candidates=2000, probes=1000)
        assert [(hit.id,) for hit in found] == exact
        return index

    try:
        with few_landmarks(session):
            with pytest.warns(RowsLeftOutWarning, match=says):
                made.encode()
            with pytest.warns(RowsLeftOutWarning, match=says):
                check(1700).rebalance()
            session.execute("UPDATE odd SET tenant = 'two' WHERE id = 7")
            session.execute("UPDATE odd SET tenant = %s WHERE id = 1000", [LONG])
            check(1700)
            session.execute("SELECT hashindex.encode_rows(%s)", [INDEX])
            assert not {f.status for f in operations.check(check(1700)).findings} - {"ok"}
    finally:
        made.drop()
        session.execute("DROP TABLE odd")
