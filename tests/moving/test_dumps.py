"""A database is dumped and restored: whole, in parts, in parallel, to another release."""

import shutil

import psycopg
import pytest
from fixtures.databases import run_as_admin
from fixtures.house import check_moved, furnish, restore_in_parallel, run
from fixtures.servers import make_folder

from pg_hashindex import schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.index.handle import list_indexes
from pg_hashindex.operations.repairs import drop_orphans, list_orphans
from pg_hashindex.server import EmbeddedServer


@pytest.fixture(scope="module")
def house(server, schema_template):
    run_as_admin(server, f"CREATE DATABASE house TEMPLATE {schema_template} STRATEGY file_copy")
    yield furnish(server.uri("house"))
    run_as_admin(server, "DROP DATABASE house WITH (FORCE)")


@pytest.fixture
def restored(make_database):
    """An empty database."""
    return make_database("template0")


def test_whole_by_pg_restore(server, house, restored, tmp_path):
    run(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump", house.url)
    run(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "dump")
    check_moved(restored, house.answers, repair=True)


@pytest.mark.newest
def test_in_parallel(server, house, restored, tmp_path):
    dump, jobs = tmp_path / "dump", "--jobs=2"
    run(server, "pg_dump", "--format=directory", jobs, "--file", dump, house.url)
    restore_in_parallel(server, dump, restored)
    check_moved(restored, house.answers)


@pytest.mark.parametrize("options", [[], ["--inserts", "--no-comments"]])
def test_plain_by_psql(server, house, restored, tmp_path, options):
    run(server, "pg_dump", *options, "--file", tmp_path / "dump.sql", house.url)
    # A path of the database's own, where nothing is found.
    name = psycopg.conninfo.conninfo_to_dict(restored)["dbname"]
    run_as_admin(server, f"ALTER DATABASE {name} SET search_path TO nowhere")
    stop = "--set=ON_ERROR_STOP=on"
    run(server, "psql", "--no-psqlrc", "--quiet", stop, "-f", tmp_path / "dump.sql", restored)
    with connect(restored) as connection:
        found = {index.name for index in list_indexes(connection)}
        assert found == set(house.answers)
    run_as_admin(server, f"ALTER DATABASE {name} RESET search_path")
    if not options:
        check_moved(restored, house.answers)
        return
    with connect(restored) as connection:
        # Comments are for readers: rows say which objects were made.
        connection.execute("TRUNCATE hashindex.index CASCADE")
        assert drop_orphans(connection)
        assert list_orphans(connection) == []


@pytest.mark.parametrize("triggers", [True, False])
def test_schema_first_and_then_data(server, house, restored, tmp_path, triggers):
    for part in ("schema", "data"):
        file = tmp_path / part
        run(server, "pg_dump", f"--{part}-only", "--format=custom", "--file", file, house.url)
        more = ["--disable-triggers"] if part == "data" and not triggers else []
        # Data of tables whose triggers encode comes after the models.
        order = ["--schema=hashindex"] if part == "data" and triggers else []
        command = ["--exit-on-error", *more, "--dbname", restored]
        run(server, "pg_restore", *order, *command, file)
        if order:
            run(server, "pg_restore", "--exclude-schema=hashindex", *command, file)
    # When the rows came in, triggers encoded those that a swap had not reached yet, and took the
    # codes away that only Python can make.
    before = house.exact_answers if triggers else house.answers
    check_moved(restored, before, reencoded=triggers, repair=triggers)


def test_schema_alone(server, house, restored, tmp_path):
    """The remaining objects belong to no index: they can be dropped, and indexes made again."""
    run(server, "pg_dump", "--schema-only", "--format=custom", "--file", tmp_path / "d", house.url)
    run(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "d")
    insert = "INSERT INTO items VALUES (1, 'a', '[1,2,3,4,5,6,7,8]')"
    with connect(restored) as connection:
        assert list_indexes(connection) == []
        with pytest.raises(psycopg.errors.SerializationFailure, match="is not visible"):
            connection.execute(insert)
        assert drop_orphans(connection)
        assert list_orphans(connection) == []
        connection.execute(insert)
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relname ~ 'scanned|By-Lists|by_|swapped|half_way' "
            "UNION ALL SELECT tgname FROM pg_trigger WHERE tgname ~ 'hashindex' "
            "UNION ALL SELECT attname FROM pg_attribute WHERE attname ~ '_code$' "
            "AND attrelid = 'items'::regclass"
        ).fetchall()
        assert left == []


@pytest.mark.newest
def test_with_pgvector_in_another_schema(server, make_database, restored, tmp_path):
    source = make_database("template0")
    with psycopg.connect(source, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute('CREATE SCHEMA "Ext"; CREATE EXTENSION vector SCHEMA "Ext"')
        connection.execute(f'ALTER DATABASE {name} SET search_path TO public, "Ext"'.encode())
    engine = create_engine(source)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    before = furnish(source).answers
    run(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump", source)
    # Settings of a database are not in the dump of one.
    run(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "dump")
    check_moved(restored, before)


@pytest.mark.slow
def test_from_16_to_18(server, house, tmp_path):
    if server.version != 16:
        pytest.skip("the dump is taken from PostgreSQL 16")
    folder = make_folder("pg_hashindex-newer-")
    try:
        with EmbeddedServer(folder / "data", version=18) as newer:
            # The newer server's pg_dump, as PostgreSQL's own manual has it.
            run(newer, "pg_dump", "--format=custom", "--file", tmp_path / "dump", house.url)
            options = ["--exit-on-error", "--no-owner", "--dbname", newer.uri()]
            run(newer, "pg_restore", *options, tmp_path / "dump")
            check_moved(newer.uri(), house.answers, repair=True)
    finally:
        shutil.rmtree(folder)
