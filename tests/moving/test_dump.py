"""pg_dump takes everything along: the restored database gives the same answers."""

import shutil
import subprocess

import pytest
from fixtures.checks import assert_fresh
from fixtures.databases import AS_EXTENSION
from fixtures.health import findings
from fixtures.house import restore_in_parallel, run
from fixtures.indexes import indexed
from fixtures.servers import make_folder
from pgvector import Vector

from pg_hashindex import operations, schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import HashIndexError
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


@pytest.mark.skipif(AS_EXTENSION, reason="pg_dump has an extension's tables only with all else")
@pytest.mark.newest
def test_a_table_follows_the_schema_that_its_codes_need(
    server, url, connection, items, model, make_database, vector_template, tmp_path
):
    """Schema hashindex first, then the table with a set of pgvector, into another database."""
    connection.execute("SELECT hashindex.create_index('docs', 'items', 'embedding', 'lsh')")
    search = "SELECT id, distance FROM hashindex.search_docs(array_fill(.5, ARRAY[8])::vector)"
    before = connection.execute(search).fetchall()
    moved = make_database(vector_template)
    for part in ("--schema=hashindex", "--table=items"):
        run(server, "pg_dump", part, "--format=custom", "--file", tmp_path / "dump", url)
        run(server, "pg_restore", "--exit-on-error", "--dbname", moved, tmp_path / "dump")
    with connect(moved) as there:
        assert there.execute(search).fetchall() == before
        assert findings(HashIndex.open(there, "docs"))["index"].status == "ok"


@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan", "lists"])
@pytest.mark.parametrize("part", ["--table=items", "--schema=public", "--schema=hashindex"])
def test_a_part_that_is_restored_is_searched_exactly_until_a_repair(
    server, url, connection, items, model, vectors, tmp_path, part, access
):
    """Its triggers come back with a table; the codes are of the rows of before the restore."""
    index = indexed(connection, access=access)

    def restore():
        run(server, "pg_dump", part, "--format=custom", "--file", tmp_path / "dump", url)
        connection.execute(
            "DELETE FROM items WHERE id % 3 = 0; UPDATE items SET embedding = "
            "(embedding * array_fill(-1, ARRAY[8])::vector)::vector(8)"
        )
        command = [server.bin_dir / "pg_restore", "--clean", "--dbname", url, tmp_path / "dump"]
        # Triggers of the table keep functions of the schema from being dropped.
        subprocess.run(command, check=part.endswith("items"), capture_output=True)

    restore()
    connection.close()
    with connect(url) as again:
        index = HashIndex.open(again, "items_idx")

        def is_exact():
            for vector in vectors[:9]:
                found = [hit.id for hit in index.search(vector, 5, candidates=5)]
                exact = "SELECT id FROM items ORDER BY embedding <-> %s, id LIMIT 5"
                assert found == [key for (key,) in again.execute(exact, [Vector(vector)])]

        is_exact()
        assert findings(index)["table"].status == "broken"
        with pytest.raises(HashIndexError, match="or restored"):
            index.within(vectors[0], 4)
        index.encode()
        is_exact()
        assert operations.repair(index).done[0] == "recreated the codes"
        index = HashIndex.open(again, "items_idx")
        assert (index.access, index.encoded) == (access, True)
        assert_fresh(index)
        assert operations.repair(index, full=True).done == ()


def test_from_16_to_18(server, connection, items, model, tmp_path):
    """An upgrade of the server by dump: both access paths, and pgvector where it was."""
    if server.version != 16:
        pytest.skip("the dump is taken from PostgreSQL 16")
    queries = [[float(n)] * 8 for n in range(5)]
    before = {}
    for access in ("scan", "lists"):
        index = indexed(connection, f"A-{access}", access=access)
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
