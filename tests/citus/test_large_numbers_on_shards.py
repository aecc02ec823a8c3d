"""Rows whose numbers are too large for float32 are left out on their nodes, and named."""

import psycopg
import pytest
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, faults, one

from pg_hashindex import operations
from pg_hashindex.db.server_errors import warning_of
from pg_hashindex.errors import RowsLeftOutWarning
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

LARGE = (5, 200)
_SET = f"UPDATE {TABLE} SET embedding = array_fill(3e38::real, ARRAY[8])::vector WHERE id = ANY(%s)"
KINDS = [{"access": "scan"}, {"access": "landmarks"}]
LEFT_OUT = rf"left out 2 rows of .*{TABLE}\S* whose numbers are too large .*: key 5, 200"


def enlarge(connection):
    connection.execute(_SET.encode(), [list(LARGE)])


def missing(index):
    """Keys of the rows without a code."""
    index = HashIndex.open(index.connection, index.name)
    codes = index.codes.as_string(index.connection)
    kept = index.connection.execute(f"SELECT id FROM {codes}".encode())
    rows = index.connection.execute(f"SELECT id FROM {TABLE}".encode()).fetchall()
    return {row[0] for row in rows} - {row[0] for row in kept}


@pytest.mark.parametrize("kind", KINDS)
def test_encoding(session, kind):
    enlarge(session)
    index = HashIndex.create(session, INDEX, table=TABLE, column="embedding", model=MODEL, **kind)
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        assert index.encode() == 1998
    assert missing(index) == set(LARGE)
    assert HashIndex.open(session, INDEX).access == kind["access"]
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        assert index.encode() == 0
    assert len(index.search(QUERY, 5)) == 5
    if kind["access"] == "landmarks":
        index.rebalance()
        assert missing(index) == set(LARGE)
    # A write of the row gives it its code; a write of large numbers is refused.
    session.execute(f"UPDATE {TABLE} SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 5".encode())
    assert missing(index) == {200}
    with pytest.raises(psycopg.Error):
        session.execute(_SET.encode(), [[5]])


def test_encoding_in_one_transaction(session):
    enlarge(session)
    found = []
    session.add_notice_handler(lambda notice: found.append(warning_of(notice)))
    session.execute(
        "SELECT hashindex.declare_index(%s, %s, 'embedding', %s)", [INDEX, TABLE, MODEL]
    )
    assert [text for text in found if text] == [
        f"left out 2 rows of public.{TABLE} whose numbers are too large for the model of index "
        f'"{INDEX}": key 5, 200; Correct or remove them.'
    ]
    assert missing(HashIndex.open(session, INDEX)) == set(LARGE)


@pytest.mark.parametrize("kind", KINDS)
def test_repair_removes_their_codes(session, kind):
    index = HashIndex.create(session, INDEX, table=TABLE, column="embedding", model=MODEL, **kind)
    index.encode()
    with session.transaction():
        # On the shards too, through which the rows are written.
        session.execute("SET LOCAL citus.enable_unsafe_triggers TO on")
        session.execute(f"ALTER TABLE {TABLE} DISABLE TRIGGER USER".encode())
        enlarge(session)
        session.execute(f"ALTER TABLE {TABLE} ENABLE TRIGGER USER".encode())
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        operations.repair(index, full=True)
    assert missing(index) == set(LARGE)
    assert "rows_without_code" in faults(HashIndex.open(session, INDEX))
    assert one(session, f"SELECT count(*) FROM {TABLE}") == 2000
