"""docs/citus.md, as a reader follows it from start to finish."""

import pytest
from fixtures.pages import REPOSITORY, Reader, blocks_of

from pg_hashindex.db.connection import connect

pytestmark = [pytest.mark.citus, pytest.mark.slow]


def test_the_page_runs(own_cluster, monkeypatch, tmp_path):
    url = own_cluster.database("docs")
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)
    monkeypatch.chdir(tmp_path)
    reader = Reader(url)
    for block in blocks_of(REPOSITORY / "docs" / "citus.md"):
        reader.follow(block)
    reader.close()
    with connect(url) as connection:
        indexes = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE tablename = 'items' ORDER BY 1"
        ).fetchall()
        shards = connection.execute(
            "SELECT count(*), bool_and(success), sum(result::integer) FROM run_command_on_shards("
            "'items', $$SELECT count(*) FROM pg_index WHERE indrelid = '%s'::regclass$$)"
        ).fetchone()
    assert len(indexes) == 2
    assert ("items_pkey",) in indexes
    count, succeeded, made = shards
    assert (succeeded, made) == (True, 2 * count)
