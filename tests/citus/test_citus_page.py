"""docs/citus.md, as a reader follows it from start to finish."""

import pytest
from fixtures.pages import REPOSITORY, Reader, blocks_of

from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import list_indexes

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
        found = {
            index.name: (index.access, index.distributed) for index in list_indexes(connection)
        }
    assert found == {"items_idx": ("landmarks", True), "notes_idx": ("scan", False)}
