"""A table that is distributed by its tenant, with a key of tenant and id, on a real cluster."""

import pytest
from fixtures.citus import INDEX, MODEL, QUERY

from pg_hashindex import operations
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus


@pytest.mark.parametrize("access", ["scan", "landmarks"])
def test_a_table_distributed_by_tenant(session, access):
    session.execute("CREATE TABLE odd AS SELECT id % 5 AS tenant, id, embedding FROM rows_to_copy")
    session.execute("ALTER TABLE odd ADD PRIMARY KEY (tenant, id)")
    session.execute("SELECT create_distributed_table('odd', 'tenant')")
    index = HashIndex.create(
        session, INDEX, table="odd", column="embedding", model=MODEL, access=access
    )
    try:
        index.encode()
        read = "SELECT tenant, id, embedding <-> %s FROM odd ORDER BY 3, 1, 2 LIMIT 11"
        for change in (
            "SELECT",
            "UPDATE odd SET embedding = embedding * '[2,1,1,1,1,1,1,1]' WHERE id % 7 = 0",
            "DELETE FROM odd WHERE tenant = 3",
        ):
            session.execute(change.encode())
            wanted = [tuple(row[:2]) for row in session.execute(read, [QUERY]).fetchall()]
            found = index.search(
                QUERY, 11, candidates=2000, probes=1000 if access != "scan" else None
            )
            assert [hit.id for hit in found] == wanted
        assert [hit.id for hit in index.search_like(wanted[0], 3)]
        assert operations.check(index, full=True).status == "ok"
        assert operations.repair(index, full=True).left == ()
        assert index.summary().codes == 1600
    finally:
        index.drop()
        session.execute("DROP TABLE odd")
