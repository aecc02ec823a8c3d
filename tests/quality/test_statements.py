"""doctor counts what users run, by PostgreSQL's own pg_stat_statements."""

import shutil

import pytest
from fixtures.databases import AS_EXTENSION
from fixtures.servers import OLDEST, SETTINGS, make_folder

from pg_hashindex import schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.server import EmbeddedServer

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(AS_EXTENSION, reason="its server has an installation without the extension"),
]


@pytest.fixture
def counting(debian_programs):
    """A database of Debian's PostgreSQL, with a table of 500 rows and what counts statements."""
    folder = make_folder("pg_hashindex-statements-")
    server = EmbeddedServer(folder / "data", version=OLDEST)
    loaded = {"shared_preload_libraries": "pg_stat_statements"}
    server.start(until_exit=True, settings=SETTINGS | loaded)
    try:
        with connect(server.uri()) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            with create_engine(server.uri()).begin() as transaction:
                schema.upgrade(transaction)
            connection.execute(
                "CREATE TABLE notes (id integer PRIMARY KEY, body text, embedding vector(8)); "
                "INSERT INTO notes SELECT n, n, (SELECT array_agg(sin(n * p)) FROM "
                "generate_series(1, 8) p)::vector(8) FROM generate_series(1, 500) n; "
                "ANALYZE notes"
            )
            connection.execute(
                "SELECT hashindex.create_index('docs', 'notes', 'embedding', 'none')"
            )
            connection.execute("SELECT pg_stat_statements_reset()")
            yield connection
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_statements_that_search_are_counted(counting):
    query = "(SELECT embedding FROM notes WHERE id = 1)"
    for limit in (1, 2, 3):
        counting.execute(f"SELECT id FROM notes ORDER BY embedding <=> {query} LIMIT {limit}")
        counting.execute(f"SELECT id FROM hashindex.search_docs({query}, {limit})")
    counting.execute("SELECT count(*) FROM notes WHERE body = '3'")
    counting.execute("CREATE TABLE others AS SELECT * FROM notes")
    counting.execute("SELECT id FROM others ORDER BY embedding <=> '[1,2,3,4,5,6,7,8]' LIMIT 1")
    assert diagnose(counting, "notes", "embedding", sample=5).statements == (2, 6)
    # The five searches by name of the first one are like those of an application.
    assert diagnose(counting, "notes", "embedding", sample=5).statements == (3, 11)
