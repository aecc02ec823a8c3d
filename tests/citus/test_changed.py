"""Searches after the table or the index has changed."""

import pytest
from fixtures.citus import INDEX, QUERY, TABLE, exact

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.db.statements import execute
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus


def test_filter_columns(listed):
    connection = listed.connection
    candidates = connection.execute(
        f"SELECT id FROM hashindex.candidates_{INDEX}(%s, 50, 100, 'category = ''b''')".encode(),
        [QUERY],
    ).fetchall()
    assert len(candidates) == 50
    assert {"abc"[row[0] % 3] for row in candidates} == {"b"}
    kept = (
        "SELECT hashindex._kept_filter(i, $1) IS NOT NULL FROM hashindex.index i WHERE i.name = $2"
    )
    for condition, is_kept in (("true", True), (f"{TABLE} IS NOT NULL", False)):
        condition = f"{TABLE}.category = 'b' AND {condition}"
        assert execute(connection, kept, [condition, INDEX]).fetchone() == (is_kept,)
    connection.execute(f"UPDATE {TABLE} SET category = 'moved' WHERE id % 100 = 7".encode())
    condition = "category = 'moved'"
    found = connection.execute(
        "SELECT id FROM hashindex.search(%s, %s, 10, 2000, filter => %s)", [INDEX, QUERY, condition]
    ).fetchall()
    assert [int(row[0]) for row in found] == exact(connection, 10, condition)


@pytest.mark.parametrize("access", ["scan", "landmarks"])
def test_an_old_snapshot_gets_the_exact_answer(make, filled, access):
    index = make(access=access)
    connection = index.connection
    with connect(filled) as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        expected = exact(other, 5)
        operations.swap(index, "citus_tests_itq", force=True)
        found = other.execute(
            f"SELECT id FROM hashindex.search_{INDEX}(%s, 5)".encode(), [QUERY]
        ).fetchall()
        assert [row[0] for row in found] == expected
    assert [
        hit.id for hit in HashIndex.open(connection, INDEX).search(QUERY, 5, candidates=2000)
    ] == expected
