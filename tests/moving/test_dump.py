"""pg_dump takes everything along: the restored database gives the same answers."""

import shutil
import subprocess

import pytest
from fixtures.checks import assert_fresh
from fixtures.house import restore_in_parallel, run
from fixtures.indexes import indexed
from fixtures.servers import make_folder

from pg_hashindex import schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.server import EmbeddedServer


@pytest.mark.parametrize("parallel", [False, True])
def test_dump_and_restore(server, index, url, make_database, tmp_path, parallel):
    before = [index.search([float(n)] * 8, 20, candidates=40) for n in range(5)]
    restored = make_database("template0")
    dump = tmp_path / "dump"
    # Several jobs ask for the directory format.
    form = ["--format=directory", "--jobs=2"] if parallel else ["--format=custom"]
    run(server, "pg_dump", *form, "--file", dump, url)
    if parallel:
        restore_in_parallel(server, dump, restored)
    else:
        run(server, "pg_restore", "--exit-on-error", "--dbname", restored, dump)
    with connect(restored) as connection:
        again = HashIndex.open(connection, "items_idx")
        assert [again.search([float(n)] * 8, 20, candidates=40) for n in range(5)] == before
        assert_fresh(again)
        connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
        connection.execute("DELETE FROM items WHERE id > 290")
        assert_fresh(again)
        assert again.encode() == 0
        again.drop()


def test_from_16_to_18(server, connection, items, model, tmp_path):
    """An upgrade of the server by dump: both layouts, and pgvector where it was."""
    if server.version != 16:
        pytest.skip("the dump is taken from PostgreSQL 16")
    queries = [[float(n)] * 8 for n in range(5)]
    layouts = ("table", "column")
    before = {}
    for layout in layouts:
        index = indexed(connection, f"A-{layout}", layout=layout)
        before[index.name] = [index.search(query, 20, candidates=40) for query in queries]
    dump = tmp_path / "dump"
    folder = make_folder("pg_hashindex-newer-")
    try:
        with EmbeddedServer(folder / "data", version=18) as newer:
            # The newer server's pg_dump, as PostgreSQL's own manual has it.
            dump_it = [newer.bin_dir / "pg_dump", "--format=custom", "--file", dump]
            subprocess.run([*dump_it, connection.info.dsn], check=True)
            restore = [newer.bin_dir / "pg_restore", "--exit-on-error", "--no-owner"]
            subprocess.run([*restore, "--dbname", newer.uri(), dump], check=True)
            with connect(newer.uri()) as restored:
                for index in list_indexes(restored):
                    found = [index.search(query, 20, candidates=40) for query in queries]
                    assert found == before.pop(index.name)
                restored.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
                restored.execute("DELETE FROM items WHERE id > 290")
                for index in list_indexes(restored):
                    assert_fresh(index)
            assert before == {}
            with create_engine(newer.uri()).begin() as transaction:
                assert schema.status(transaction).up_to_date
                schema.upgrade(transaction)
    finally:
        shutil.rmtree(folder)
