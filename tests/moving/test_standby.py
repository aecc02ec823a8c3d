"""A hot standby, made by pg_basebackup: it answers as its primary does, and writes nothing."""

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from click.testing import CliRunner
from fixtures.databases import run_as_admin
from fixtures.house import QUERIES, ROWS, answers, furnish
from fixtures.servers import SETTINGS, make_folder
from pg_hashindex.cli import main
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.db.work import claimed_work
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.server import EmbeddedServer, files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house(server, schema_template):
    run_as_admin(server, f"CREATE DATABASE mirrored TEMPLATE {schema_template} STRATEGY file_copy")
    yield furnish(server.uri("mirrored"))
    run_as_admin(server, "DROP DATABASE mirrored WITH (FORCE)")


@pytest.fixture(scope="module")
def standby(server, house):
    folder = make_folder("pg_hashindex-standby-")
    user = files.owner(server.data_dir)
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    user.own(data_dir)
    # A backup takes every file along, and root's mark of how long the server runs is closed to it.
    server._mark.chmod(0o644)
    program = files.server_bin_dir(server.version, user) / "pg_basebackup"
    options = ["--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream"]
    status, output = user.run([program, *options, "--dbname", server.uri(), "-D", data_dir])
    assert status == 0, output
    standby = EmbeddedServer(data_dir)
    standby.start(until_exit=True, settings=SETTINGS)
    yield standby
    standby.stop()
    shutil.rmtree(folder)


@pytest.fixture
def url(standby):
    """The mirrored database."""
    return standby.uri("mirrored")


@pytest.fixture
def on(url, monkeypatch):
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)

    def invoke(*arguments, code=0):
        result = CliRunner().invoke(main, [*map(str, arguments)])
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return invoke


def catch_up(primary, standby):
    with psycopg.connect(primary) as session:
        row = session.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    with psycopg.connect(standby, autocommit=True) as session:
        until = time.monotonic() + 60
        while session.execute("SELECT pg_last_wal_replay_lsn() < %s", row).fetchone() != (False,):
            assert time.monotonic() < until
            time.sleep(0.05)


def test_every_search_answers_the_same(house, url):
    with connect(url) as connection:
        state = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        assert state == (True,)
        assert answers(connection) == house.answers
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert answers(connection) == house.answers
        rows = connection.execute(
            "SELECT s.id FROM hashindex.search('By-Lists', %s, 5, "
            """where_equals => '{"category": "z"}') s""",
            [QUERIES[0].tolist().__repr__()],
        ).fetchall()
        assert rows == [("9",)]


def test_functions_that_read(house, url):
    """Every access path, by the name of the index: conditions, health, encoding."""
    with connect(house.url) as primary, connect(url) as reader:
        sessions = (primary, reader)
        for session in sessions:
            session.execute("SET default_transaction_read_only TO on")
        indexes = list_indexes(primary)
        assert len({index.access for index in indexes}) == 2
        for index in indexes:
            values = {"name": index.name, "query": Vector(ROWS[20])}
            calls = [
                "search(%(name)s, %(query)s, 5, 20)",
                "exact_search(%(name)s, %(query)s, 5)",
                "search(%(name)s, %(query)s, 5, filter => 'true')",
            ]
            if index.name != "words":
                calls += [
                    'search(%(name)s, %(query)s, 5, 20, where_equals => \'{"category": "b"}\')',
                    "search(%(name)s, %(query)s, 5, 20, filter => $$category <> 'b'$$)",
                ]
            for call in calls:
                found = [
                    session.execute(f"SELECT * FROM hashindex.{call}".encode(), values).fetchall()
                    for session in sessions
                ]
                assert found[0] == found[1], (index.name, call)
                # A model that a swap has only begun to encode has few codes yet.
                assert len(found[1]) == 5 or index.swap_state == "next", (index.name, call)
            checks = [
                session.execute(
                    "SELECT check_name FROM hashindex.health(%(name)s)", values
                ).fetchall()
                for session in sessions
            ]
            assert checks[0] == checks[1]
            assert len(checks[1]) > 5
        for call in ("encode('lsh', %s)", "project('lsh:1', %s)"):
            query = f"SELECT hashindex.{call}".encode()
            coded = [session.execute(query, [Vector(ROWS[20])]).fetchone() for session in sessions]
            assert coded[0] == coded[1]
        assert reader.execute("SELECT hashindex.recall('scanned', 5, 5, 240)").fetchone() == (1.0,)


def test_it_cannot_tell_whether_work_runs(house, url, on):
    with connect(house.url) as primary, claimed_work(primary, "encode", "scanned") as work:
        work.phase("encoding", 9)
        catch_up(house.url, url)
        said = on("index", "show", "scanned").stderr
    assert "encode of scanned: encoding, 0 of 9 rows" in said
    assert "under way, or dead: only the primary can tell" in said


def test_commands_that_read(on, tmp_path):
    names = [line.split("  ")[0] for line in on("index", "show").stdout.splitlines()[1:]]
    assert "By-Lists" in names
    for name in ("scanned", "By-Lists", "swapped"):
        on("index", "show", name)
        on("search", name, "--like", 5)
        on("search", name, "--like", 5, "--radius", 3)
    on("evaluate", "By-Lists", "--queries", 5)
    doctor = ("doctor", "items", "embedding", "--queries", 5)
    on(*doctor, "--filter", "id > 9", "--html", tmp_path / "page.html")
    on("search", "scanned", "--like", 5, "--columns", "category")
    assert "Not known" not in (tmp_path / "page.html").read_text()
    on("schema", "status")
    on("model", "show", "lsh")


@pytest.mark.newest
@pytest.mark.parametrize(
    "command",
    [
        [
            "index",
            "create",
            "new",
            "--access",
            "scan",
            "--table",
            "items",
            "--column",
            "embedding",
            "--model",
            "lsh",
        ],
        ["index", "encode", "half_way"],
        ["index", "swap", "scanned", "--access", "lists"],
        ["index", "rebalance", "By-Lists"],
        ["index", "swap", "scanned", "--model", "more bits"],
        ["index", "rollback", "swapped"],
        ["index", "prune", "swapped"],
        ["index", "repair", "scanned"],
        ["index", "repair", "--orphans"],
        ["index", "drop", "scanned", "--yes"],
        [
            *("model", "train", "x", "--method", "lsh", "--bits", 8, "--force"),
            *("--table", "items", "--column", "embedding"),
        ],
        ["schema", "upgrade"],
        ["quickstart", "items", "embedding", "--yes"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_that_write_are_refused(on, command):
    result = on(*command, code=3)
    message = result.stderr.splitlines()[-1]
    assert message.startswith("Error: ")
    assert re.search("the server is a standby.*: connect to the primary server", message)


@pytest.fixture
def changing(server, house, standby):
    """A copy of the database, on both: the other tests may come later."""
    run_as_admin(server, "CREATE DATABASE changing TEMPLATE mirrored STRATEGY file_copy")
    catch_up(house.url, standby.uri("mirrored"))
    yield server.uri("changing"), standby.uri("changing")
    run_as_admin(server, "DROP DATABASE changing WITH (FORCE)")


def test_it_follows_a_swap_and_a_repair(changing):
    """A session that was there before, too."""
    primary_url, url = changing
    with connect(primary_url) as primary, connect(url) as reader:
        followed = HashIndex.open(reader, "scanned")
        beside = HashIndex.open(reader, "By-Lists")
        HashIndex.open(primary, "scanned").swap(model="more bits", force=True)
        HashIndex.open(primary, "By-Lists").swap(model="more bits", access="scan", force=True)
        catch_up(primary_url, url)
        for index in (followed, beside):
            assert index.search(ROWS[49], 1)[0].id == 50
        primary.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 7")
        primary.execute("ALTER TABLE items RENAME embedding TO vectors")
        for index in list_indexes(primary):
            if index.table_name == "items":
                operations.rebind(index, column="vectors")
        catch_up(primary_url, url)
        assert answers(reader) == answers(primary)


def test_an_index_on_a_function(changing):
    primary_url, url = changing
    with connect(primary_url) as primary:
        primary.execute(
            "SELECT hashindex.create_functions('lsh');"
            "CREATE INDEX by_code ON items USING hnsw "
            "((hashindex.code_lsh(embedding)::bit(12)) bit_hamming_ops)"
        )
        catch_up(primary_url, url)
        with connect(url) as reader:
            reader.execute("SET enable_seqscan = off")
            query = (
                "SELECT id FROM items ORDER BY hashindex.code_lsh(embedding)::bit(12) "
                "<~> (SELECT hashindex.code_lsh(%s)) LIMIT 3"
            )
            explained = reader.execute(f"EXPLAIN {query}".encode(), [Vector(ROWS[3])]).fetchall()
            assert "by_code" in str(explained)
            found = [
                session.execute(query.encode(), [Vector(ROWS[3])]).fetchall()
                for session in (primary, reader)
            ]
            assert found[0] == found[1]


@pytest.mark.parametrize("name", ["scanned", "By-Lists", "kept"])
def test_a_conflict_with_recovery_cancels_a_search_alone(changing, standby, name):
    """Inside a subtransaction PostgreSQL would end the session."""
    primary_url, url = changing
    query = (
        f"SELECT * FROM hashindex.search('{name}', %s, 5, filter => 'pg_sleep(0.2) IS NOT NULL')"
    )
    with (
        connect(standby.uri()) as settings, connect(primary_url) as primary,
        connect(url) as reader, ThreadPoolExecutor() as pool,
    ):  # fmt: skip
        if name == "kept":
            primary.execute("SELECT hashindex.create_index('kept', 'items', 'embedding', 'none')")
            catch_up(primary_url, url)
        settings.execute("ALTER SYSTEM SET max_standby_streaming_delay = '50ms'")
        settings.execute("SELECT pg_reload_conf()")
        try:
            found = pool.submit(reader.execute, query.encode(), [Vector(ROWS[3])])
            time.sleep(1)
            with primary.transaction():
                primary.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
            # The commit is sent at once, with what comes before it.
            with pytest.raises(psycopg.errors.SerializationFailure, match="with recovery"):
                found.result(60)
            assert reader.execute("SELECT 1").fetchone() == (1,)
        finally:
            settings.execute("ALTER SYSTEM RESET max_standby_streaming_delay")
            settings.execute("SELECT pg_reload_conf()")
