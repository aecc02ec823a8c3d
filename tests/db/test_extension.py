"""CREATE EXTENSION pg_hashindex, beside and instead of `schema upgrade`."""

import subprocess
from pathlib import Path

import psycopg
import pytest
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh
from fixtures.databases import run_as_admin
from fixtures.house import check_moved, furnish
from fixtures.house import run as run_program
from fixtures.indexes import indexed
from fixtures.items import DIMENSION
from fixtures.outdated import outdate

from pg_hashindex import schema, store
from pg_hashindex.db import extension
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import HashIndexError, InUseError, InvalidInputError, MissingSchemaError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

ITEMS = f"""
    CREATE TABLE items (id bigint PRIMARY KEY, embedding vector({DIMENSION}));
    INSERT INTO items SELECT n, array_agg(sin(n * d))::vector FROM generate_series(1, 60) n,
        generate_series(1, {DIMENSION}) d GROUP BY n;
"""
QUERIES = [[float(n)] * DIMENSION for n in range(1, 4)]
MEMBERS = """
    SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
    JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
    WHERE e.extname = 'pg_hashindex' AND d.deptype = 'e'
"""
#: Another role may administer.
OWNER = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'hashindex'"
OLDER = "0.0.9"


@pytest.fixture(scope="module")
def extension_template(server, vector_template):
    run_as_admin(server, f"CREATE DATABASE template_extension TEMPLATE {vector_template}")
    with psycopg.connect(server.uri("template_extension"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION pg_hashindex")
    yield "template_extension"
    run_as_admin(server, "DROP DATABASE template_extension")


@pytest.fixture
def installed(make_database, extension_template):
    """A database with the extension."""
    return make_database(extension_template)


@pytest.fixture
def migrated(empty_url):
    """A database that `schema upgrade` made, in whatever way the other tests install."""
    upgrade(empty_url)
    return empty_url


@pytest.fixture
def folder(server):
    """The server's folder of extensions."""
    program = [server.bin_dir / "pg_config", "--sharedir"]
    shared = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    return Path(shared.strip()) / "extension"


def execute(url, statements):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statements.encode())
        return cursor.fetchall() if cursor.description else []


def state(url):
    with psycopg.connect(url, autocommit=True) as connection:
        return catalog(connection)


def upgrade(url):
    engine = create_engine(url)
    with engine.begin() as connection:
        schema.upgrade(connection)
    engine.dispose()


def as_administrator(url):
    """Return the address at which the owner of the schema, if there is one, connects."""
    owner = execute(url, OWNER)
    return url.replace("postgres@", f"{owner[0][0]}@") if owner else url


def status(url):
    with create_engine(as_administrator(url)).connect() as connection:
        return schema.status(connection)


def make_index(connection, lsh_model):
    connection.execute(ITEMS)
    store.save(connection, lsh_model)
    return indexed(connection)


def answers(connection):
    index = HashIndex.open(connection, "items_idx")
    return [index.search(query, 10, candidates=30) for query in QUERIES]


def test_it_makes_what_schema_upgrade_makes(installed, migrated):
    found = status(installed)
    assert (found.extension, found.up_to_date) == ("0.1.0", True)
    assert status(migrated).extension is None
    execute(installed, "SELECT hashindex.leave_extension()")
    assert execute(installed, MEMBERS) == []
    assert state(installed) == state(migrated)
    upgrade(installed)
    assert state(installed) == state(migrated)


def test_files_are_written_through_no_link(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "Makefile").symlink_to(tmp_path / "kept")
    extension.write(tmp_path / "made")
    assert (tmp_path / "kept").read_text() == "kept"


def test_statements_of_a_script_are_for_no_psql_and_no_transaction():
    for name, text in extension.files().items():
        lines = text.splitlines()
        assert not [line for line in lines if line.startswith("\\")], name
        assert not {"BEGIN;", "COMMIT;"} & {line.strip() for line in lines}, name
        # PostgreSQL replaces these in scripts.
        assert not [word for word in ("@extschema", "@extowner", "MODULE_PATHNAME") if word in text]


def test_it_stays_while_there_are_indexes(installed, lsh_model):
    with connect(installed) as connection:
        index = make_index(connection, lsh_model)
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
            connection.execute("DROP EXTENSION pg_hashindex")
        assert "on table items depends on function hashindex.sync_items_idx()" in str(refused.value)
        assert_fresh(index)
        engine = create_engine(installed)
        with engine.begin() as other, pytest.raises(InUseError, match="items_idx"):
            schema.downgrade(other)
        engine.dispose()
        # By force, triggers go too: writers do not fail.
        with connection.transaction(force_rollback=True):
            connection.execute("DROP EXTENSION pg_hashindex CASCADE")
            connection.execute("UPDATE items SET embedding = embedding; DELETE FROM items")
            left = connection.execute(
                "SELECT proname FROM pg_proc p JOIN pg_namespace n "
                "ON n.oid = p.pronamespace WHERE n.nspname = 'hashindex'"
            ).fetchall()
            assert left == []
        index.drop()
        connection.execute("DROP EXTENSION pg_hashindex; CREATE EXTENSION pg_hashindex")
    assert status(installed).up_to_date


def test_downgrade_drops_it(installed, empty_url):
    engine = create_engine(installed)
    with engine.begin() as connection:
        schema.downgrade(connection)
    engine.dispose()
    assert state(installed) == state(empty_url)


@pytest.mark.newest
def test_a_dump_takes_everything_along(server, installed, make_database, tmp_path):
    house, restored = furnish(installed), make_database("template0")
    run_program(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump", installed)
    text = subprocess.run(
        [server.bin_dir / "pg_restore", "-f", "-", tmp_path / "dump"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "CREATE EXTENSION IF NOT EXISTS pg_hashindex" in text
    assert "CREATE TABLE hashindex.model" not in text
    run_program(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "dump")
    assert set(execute(restored, MEMBERS)) == set(execute(installed, MEMBERS))
    check_moved(restored, house.answers, repair=True)
    # Numbers continue.
    with connect(restored) as connection:
        rows = [[float(n * d % 7) for d in range(8)] for n in range(30)]
        assert store.save(connection, LSH(n_bits=8).fit(rows).to_model("new")).version == 1


@pytest.fixture
def roles(server):
    """An administrator who is not a superuser, and a reader."""
    names = ("extension_admin", "extension_reader")
    run_as_admin(server, *(f"CREATE ROLE {name} LOGIN" for name in names))
    yield names
    run_as_admin(server, *(f"DROP ROLE {name}" for name in names))


def test_from_one_to_the_other_and_back(
    server, migrated, lsh_model, roles, make_database, tmp_path
):
    reads = f"has_column_privilege('{roles[1]}', 'hashindex.set_1_codes', 'code', 'SELECT')"
    with connect(migrated) as connection:
        make_index(connection, lsh_model)
        connection.execute(f"GRANT SELECT ON items TO {roles[1]}".encode())
        connection.execute("SELECT hashindex.grant_reader('items_idx', %s)", [roles[1]])
        expected, before = answers(connection), state(migrated)
        connection.execute("SELECT hashindex.join_extension()")
        assert status(migrated).extension == "0.1.0"
        assert not [name for (name,) in execute(migrated, MEMBERS) if "items_idx" in str(name)]
        assert answers(connection) == expected
    restored = make_database("template0")
    run_program(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump", migrated)
    run_program(server, "pg_restore", "--exit-on-error", "--dbname", restored, tmp_path / "dump")
    for url in (restored, migrated):
        with connect(url) as connection:
            assert answers(connection) == expected
            assert connection.execute(f"SELECT {reads}".encode()).fetchone() == (True,)
            connection.execute("SELECT hashindex.leave_extension()")
            assert answers(connection) == expected
        assert status(url).extension is None
        assert status(url).up_to_date
        assert state(url) == before
        execute(url, f"DROP OWNED BY {', '.join(roles)}")


def test_an_extension_without_members_is_refused(migrated):
    """A dump would hold CREATE EXTENSION and its objects too."""
    execute(migrated, "CREATE EXTENSION pg_hashindex VERSION 'unpackaged'")
    refused(
        migrated,
        psycopg.errors.ObjectNotInPrerequisiteState,
        "no object of schema hashindex belongs to the extension",
        "ALTER EXTENSION pg_hashindex UPDATE",
    )
    execute(migrated, "DROP EXTENSION pg_hashindex; SELECT hashindex.join_extension()")
    assert status(migrated).extension == "0.1.0"


def test_objects_of_no_index_are_left_out(migrated, lsh_model):
    with connect(migrated) as connection:
        make_index(connection, lsh_model)
        connection.execute("DELETE FROM hashindex.index")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="drop_orphans"):
            connection.execute("SELECT hashindex.join_extension()")
        connection.execute("SELECT hashindex.drop_orphans(); SELECT hashindex.join_extension()")


@pytest.fixture
def older(
    folder, make_database, vector_template, lsh_model,
    monkeypatch
):  # fmt: skip
    """A database with an earlier version of the extension, and an index in it."""
    monkeypatch.setattr(extension, "_RELEASES", {OLDER: "0001d"})
    made = extension.files()
    scripts = {
        f"pg_hashindex--{OLDER}.sql": made["pg_hashindex--0.1.0.sql"],
        f"pg_hashindex--{OLDER}--0.1.0.sql": made[f"pg_hashindex--{OLDER}--0.1.0.sql"],
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
    url = make_database(vector_template)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE EXTENSION pg_hashindex VERSION '{OLDER}'".encode())
    with connect(url) as connection:
        make_index(connection, lsh_model)
        outdate(connection, extension=True)
    yield url
    for name in scripts:
        (folder / name).unlink()


def check_updated(url, installed):
    found = status(url)
    assert (found.extension, found.up_to_date) == ("0.1.0", True)
    assert set(execute(url, MEMBERS)) == set(execute(installed, MEMBERS))
    with connect(as_administrator(url)) as connection:
        assert len(HashIndex.open(connection, "items_idx").search(QUERIES[0], 10)) == 10
        connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 5")
        assert_fresh(HashIndex.open(connection, "items_idx"))
    configured = "SELECT cardinality(extconfig) FROM pg_extension WHERE extname = 'pg_hashindex'"
    assert execute(url, configured) == execute(installed, configured)


def test_an_update_under_indexes(older, installed):
    assert not status(older).up_to_date
    execute(older, "ALTER EXTENSION pg_hashindex UPDATE")
    check_updated(older, installed)


def test_an_update_where_an_ordinary_role_administers(older, installed, roles):
    admin = roles[0]
    execute(
        older,
        f"ALTER SCHEMA hashindex OWNER TO {admin}; ALTER TABLE items OWNER TO {admin};"
        "DO $$ DECLARE o record; BEGIN FOR o IN SELECT CASE relkind WHEN 'v' THEN 'VIEW' "
        "ELSE 'TABLE' END AS kind, oid::regclass::text AS name FROM pg_class "
        "WHERE relnamespace = 'hashindex'::regnamespace AND relkind IN ('r', 'v') "
        "UNION ALL SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc "
        "WHERE pronamespace = 'hashindex'::regnamespace "
        "UNION ALL SELECT 'TYPE', 'hashindex.layer' "
        f"LOOP EXECUTE format('ALTER %s %s OWNER TO {admin}', o.kind, o.name); "
        "END LOOP; END $$",
    )
    execute(older, "ALTER EXTENSION pg_hashindex UPDATE")
    check_updated(older, installed)
    assert execute(older, "SELECT * FROM hashindex._strangers()") == []
    execute(older, f"REASSIGN OWNED BY {admin} TO postgres")


def test_schema_upgrade_updates_it(older, installed):
    for _ in range(2):
        upgrade(older)
        check_updated(older, installed)


def test_schema_upgrade_refuses_planted_objects(installed):
    """Also when there is nothing to update."""
    execute(
        installed,
        "CREATE FUNCTION hashindex.to_come(text) RETURNS int LANGUAGE sql AS 'SELECT 1';"
        "DROP ROLE IF EXISTS planter; CREATE ROLE planter;"
        "GRANT CREATE ON SCHEMA hashindex TO planter;"
        "ALTER FUNCTION hashindex.to_come(text) OWNER TO planter;"
        "REVOKE CREATE ON SCHEMA hashindex FROM planter",
    )
    try:
        with pytest.raises(HashIndexError, match="belongs to role planter, not to the owner"):
            upgrade(installed)
    finally:
        execute(installed, "DROP OWNED BY planter; DROP ROLE planter")


def test_schema_upgrade_says_what_to_do_without_the_files(older, folder, run):
    update = folder / f"pg_hashindex--{OLDER}--0.1.0.sql"
    text = update.read_text()
    update.unlink()
    with pytest.raises(MissingSchemaError, match=r"update it to 0\.1\.0.*extension --install"):
        upgrade(older)
    told = run("schema", "upgrade", "--database-url", older, code=3)
    assert "pg-hashindex extension --install" in told.output
    update.write_text(text)


def test_schema_commands_beside_it(installed, run):
    before = state(installed)
    on = ("--database-url", installed)
    assert "already up to date" in run("schema", "upgrade", *on).output
    assert state(installed) == before
    assert "0.1.0" in run("schema", "status", *on).output
    assert '"extension": "0.1.0"' in run("schema", "status", "--json", *on).output
    with pytest.raises(psycopg.errors.DuplicateObject, match="already"):
        execute(installed, "CREATE EXTENSION pg_hashindex")


def refused(url, error, text, statement=""):
    before = state(url)
    with pytest.raises(error, match=text):
        execute(url, statement or "CREATE EXTENSION pg_hashindex")
    assert state(url) == before


def test_where_it_is_refused(server, migrated, installed, make_database, vector_template):
    errors = psycopg.errors
    refused(migrated, errors.DuplicateObject, r"(?s)without the extension.*join_extension")
    bare = make_database("template0")
    refused(bare, errors.UndefinedObject, '(?s)"vector" is not installed.*CASCADE')
    old = make_database(vector_template)
    execute(old, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    refused(old, psycopg.Error, "(?s)older than 0.8.*ALTER EXTENSION vector UPDATE")
    held = make_database(vector_template)
    execute(held, "CREATE SCHEMA hashindex; CREATE FUNCTION hashindex.f() RETURNS int RETURN 1")
    refused(held, errors.DuplicateObject, "(?s)not the extension.*DROP SCHEMA hashindex CASCADE")
    # The other ways refuse the extension.
    before = state(installed)
    script = subprocess.run(
        [server.bin_dir / "psql", "-X", "-q", installed],
        input=schema.script(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "already exists" in script.stderr
    assert "ALTER EXTENSION pg_hashindex UPDATE" in script.stderr
    assert script.returncode != 0
    assert state(installed) == before


def test_it_belongs_to_whom_installs_it(server, make_database, vector_template, roles):
    url = make_database(vector_template)
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    theirs = url.replace("postgres@", f"{roles[0]}@")
    refused(theirs, psycopg.errors.InsufficientPrivilege, "permission denied for database")
    run_as_admin(server, f"GRANT CREATE ON DATABASE {name} TO {roles[0]}")
    execute(theirs, "CREATE EXTENSION pg_hashindex")
    owners = "SELECT DISTINCT c.relowner::regrole::text FROM pg_class c WHERE c.relnamespace = "
    assert execute(url, owners + "'hashindex'::regnamespace") == [(roles[0],)]
    # A superuser who installs it into a schema of an ordinary role's makes that one the owner.
    execute(theirs, "DROP EXTENSION pg_hashindex")
    # He has to name it: the role could have made the schema to become superuser.
    refused(url, psycopg.errors.InsufficientPrivilege, f"belongs to role {roles[0]}, which can run")
    execute(url, f"SET hashindex.owner = '{roles[0]}'; CREATE EXTENSION pg_hashindex")
    assert execute(url, owners + "'hashindex'::regnamespace") == [(roles[0],)]
    execute(url, f"DROP EXTENSION pg_hashindex; DROP OWNED BY {roles[0]}")


def test_pgvector_in_another_schema(make_database, lsh_model):
    url = make_database("template0")
    execute(url, 'CREATE SCHEMA "Ext"; CREATE EXTENSION vector SCHEMA "Ext"')
    execute(url, "CREATE EXTENSION pg_hashindex")
    with connect(url) as connection:
        connection.execute('SET search_path TO public, "Ext"')
        assert_fresh(make_index(connection, lsh_model))
        connection.execute("SET search_path TO pg_catalog")
        assert len(answers(connection)) == len(QUERIES)


def test_schema_upgrade_follows_pgvector_into_another_schema(installed, lsh_model):
    with connect(installed) as connection:
        make_index(connection, lsh_model)
        before, members = answers(connection), execute(installed, MEMBERS)
        connection.execute("CREATE SCHEMA ext; ALTER EXTENSION vector SET SCHEMA ext")
    upgrade(installed)
    assert (status(installed).extension, status(installed).up_to_date) == ("0.1.0", True)
    assert len(execute(installed, MEMBERS)) == len(members)
    with connect(installed) as connection:
        assert answers(connection) == before


def test_cascade_brings_pgvector(make_database):
    url = make_database("template0")
    execute(url, "CREATE EXTENSION pg_hashindex CASCADE")
    assert status(url).up_to_date


def test_the_script_for_pg_tle(
    server, empty_url, migrated, make_database,
    vector_template
):  # fmt: skip
    """A function that keeps what it is given stands for pg_tle, which tests/servers runs itself."""
    url = make_database(vector_template)
    execute(
        url,
        "CREATE SCHEMA pgtle; CREATE TABLE pgtle.given (name text, version text, ext text, "
        "requires text[]); CREATE FUNCTION pgtle.install_extension(name text, version text, "
        "description text, ext text, requires text[] DEFAULT NULL) RETURNS boolean BEGIN ATOMIC "
        "INSERT INTO pgtle.given VALUES (name, version, ext, requires); SELECT true; END",
    )
    execute(url, extension.tle_script())
    ((name, version, text, requires),) = execute(url, "SELECT * FROM pgtle.given")
    assert (name, version, requires) == ("pg_hashindex", "0.1.0", ["vector"])
    assert text == extension.files()["pg_hashindex--0.1.0.sql"]
    assert "$_pgtle_" not in str(text)


def test_install_says_what_is_wrong(tmp_path, run):
    with pytest.raises(InvalidInputError, match="does not run.*--pg-config"):
        extension.install(str(tmp_path / "pg_config"))
    program = tmp_path / "pg_config"
    program.write_text(f"#!/bin/sh\necho {tmp_path}/nowhere\n")
    program.chmod(0o755)
    with pytest.raises(InvalidInputError, match="nowhere/extension cannot be written"):
        extension.install(str(program))
    (tmp_path / "nowhere" / "extension").mkdir(parents=True)
    told = run("extension", "--install", "--pg-config", program)
    assert "CREATE EXTENSION pg_hashindex CASCADE" in told.output
    assert sorted(path.name for path in (tmp_path / "nowhere" / "extension").iterdir()) == sorted(
        extension.files()
    )


def test_the_folder_for_pgxn(server, tmp_path, run):
    """Its Makefile installs what `extension --install` copies."""
    run("extension", tmp_path / "extension")
    program, root = server.bin_dir / "pg_config", tmp_path / "root"
    subprocess.run(
        ["make", "--silent", "install", f"PG_CONFIG={program}", f"DESTDIR={root}"],
        cwd=tmp_path / "extension", check=True, capture_output=True,
    )  # fmt: skip
    made = {path.name: path.read_text() for path in root.rglob("pg_hashindex*") if path.is_file()}
    assert made == extension.files()


def test_the_script_of_pg_tle_is_written(tmp_path, run):
    path = tmp_path / "script.sql"
    assert run("extension", "--tle", path).output == f"{path}\n"
    assert path.read_text() == extension.tle_script()


def test_the_recipe_of_the_image(folder, make_database, tmp_path, run):
    """The copied files reach the server, and its commands make the extension."""
    run("extension", tmp_path)
    lines = (tmp_path / "Dockerfile").read_text().splitlines()
    parent, copied, ran = [line for line in lines if not line.startswith("#")]
    assert parent == "FROM pgvector/pgvector:pg18"
    *patterns, target = copied.split()[1:]
    assert target == "/usr/share/postgresql/18/extension/"
    files = {path.name for pattern in patterns for path in tmp_path.glob(pattern)}
    assert files == set(extension.files())
    assert files <= {path.name for path in folder.iterdir()}
    # The image runs what lies in that folder in its first database, as a superuser.
    statement, script = ran.removeprefix("RUN echo ").split(" > ")
    assert script == "/docker-entrypoint-initdb.d/pg_hashindex.sql"
    url = make_database("template0")
    execute(url, statement.strip('"'))
    assert status(url).up_to_date
