"""Every command on a distributed table: it works, or is refused before anything changes."""

from dataclasses import replace

import psycopg
import pytest
from click.testing import CliRunner
from fixtures.citus import INDEX, MODEL, QUERY, TABLE, assert_fresh, exact, faults, install, one
from pg_hashindex.cli import main

from pg_hashindex import operations, store
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

pytestmark = pytest.mark.citus

TURN = "embedding = embedding + '[1,1,1,1,1,1,1,1]'"


def run(url, *arguments):
    done = CliRunner().invoke(main, [*arguments, "--database-url", url])
    assert done.exit_code == 0, done.output
    return done.output


def changed(connection, *statements):
    with connection.transaction():
        connection.execute("SET LOCAL citus.enable_unsafe_triggers TO on")
        for statement in statements:
            connection.execute(statement.encode())


def create(session, **options):
    named = {"table": TABLE, "column": "embedding", "model": MODEL} | options
    return HashIndex.create(session, INDEX, **named)


def refused(session, message, **options):
    with pytest.raises(HashIndexError, match=message):
        create(session, **options)
    assert one(session, "SELECT count(*) FROM hashindex.index") == 0


def repaired(index, **options):
    """Repair an index; what is there then is right."""
    operations.repair(index, **options)
    now = HashIndex.open(index.connection, index.name)
    assert faults(now) == []
    return now


def test_check_finds_what_is_wrong(spread):
    connection = spread.connection
    codes = spread.codes.as_string(connection)
    connection.execute(f"UPDATE {codes} SET code = B'{'01' * 8}' WHERE id < 500".encode())
    connection.execute(f"DELETE FROM {codes} WHERE id BETWEEN 600 AND 620".encode())
    connection.execute(f"INSERT INTO {codes} (id, code) VALUES (-1, 0::bit(16))".encode())
    assert {"rows_without_code", "codes_without_row"} <= set(faults(spread))
    assert "wrong_codes" in faults(spread)
    assert_fresh(repaired(spread, full=True))


def test_rebind_takes_a_renamed_table(spread):
    connection = spread.connection
    connection.execute(f"ALTER TABLE {TABLE} RENAME TO renamed".encode())
    try:
        connection.execute(f"UPDATE renamed SET {TURN} WHERE id < 10".encode())
        assert "table" in faults(spread)
        operations.rebind(spread, table="renamed")
        now = HashIndex.open(connection, spread.name)
        assert faults(now) == []
        assert now.table_name == "renamed"
        assert_fresh(now)
    finally:
        connection.execute(f"ALTER TABLE renamed RENAME TO {TABLE}".encode())


def test_drop_of_a_renamed_table(spread):
    connection = spread.connection
    connection.execute(f"ALTER TABLE {TABLE} RENAME TO renamed".encode())
    try:
        spread.drop()
        assert one(connection, "SELECT count(*) FROM hashindex.orphans()") == 0
    finally:
        connection.execute(f"ALTER TABLE renamed RENAME TO {TABLE}".encode())


def test_repair_makes_triggers_again(spread):
    connection = spread.connection
    names = [
        row[0]
        for row in connection.execute(
            "SELECT unnest(hashindex._trigger_names(hashindex.find_index(%s)))", [INDEX]
        )
    ]
    changed(connection, *(f"DROP TRIGGER {name} ON {TABLE}" for name in names))
    connection.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 10".encode())
    assert "triggers" in faults(spread)
    assert_fresh(repaired(spread))


def test_repair_makes_codes_again(listed):
    codes = listed.codes.as_string(listed.connection)
    listed.connection.execute(f"DROP TABLE {codes}".encode())
    assert "table" in faults(listed)
    now = repaired(listed)
    assert now.access == "landmarks"
    assert_fresh(now)


def test_a_table_that_is_no_longer_distributed(spread):
    connection = spread.connection
    connection.execute(f"SELECT undistribute_table('{TABLE}')".encode())
    connection.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 10".encode())
    assert "table" in faults(spread)
    now = repaired(spread, full=True)
    assert not now.distributed
    assert_fresh(now)
    assert [hit.id for hit in now.search(QUERY, 5, candidates=2000)] == exact(connection, 5)
    now.drop()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_table_that_is_distributed_later(session, swapped):
    session.execute(f"SELECT undistribute_table('{TABLE}')".encode())
    plain = create(session)
    plain.encode()
    if swapped:
        operations.swap(plain, f"{MODEL}_itq", force=True)
    with pytest.raises(HashIndexError, match="Distribute the table first"):
        plain.distribute()
    changed(
        session,
        *(
            f"DROP TRIGGER hashindex_{INDEX}_{event} ON {TABLE}"
            for event in ("insert", "update", "delete", "truncate")
        ),
    )
    session.execute(f"SELECT create_distributed_table('{TABLE}', 'id')".encode())
    # Its codes are not distributed yet, so none counts.
    assert (plain.summary().codes, plain.summary().waiting) == (0, 2000)
    assert "table" in faults(plain)
    with pytest.raises(HashIndexError, match=f"run: pg-hashindex index distribute {INDEX}"):
        plain.encode()
    plain.distribute()
    spread = HashIndex.open(session, INDEX)
    assert spread.encode() == 2000
    assert_fresh(spread)
    assert faults(spread) == []
    if swapped:
        beside = HashIndex.open(session, f"{INDEX}~2")
        beside.distribute()
        beside.encode()
        session.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 100".encode())
        operations.rollback(spread)
        for index in (spread, beside):
            assert_fresh(HashIndex.open(session, index.name))
        operations.prune(spread)


def test_swap_rollback_and_prune(spread):
    connection = spread.connection
    operations.swap(spread, f"{MODEL}_itq", force=True)
    now = HashIndex.open(connection, INDEX)
    assert now.model == f"{MODEL}_itq"
    connection.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 100".encode())
    assert_fresh(now)
    operations.rollback(now)
    now = HashIndex.open(connection, INDEX)
    assert now.model == MODEL
    assert_fresh(now)
    assert [hit.id for hit in now.search(QUERY, 5, candidates=2000)] == exact(connection, 5)
    operations.prune(now)
    assert_fresh(now)
    assert one(connection, "SELECT count(*) FROM hashindex.node_index") == 1


def test_a_swap_that_is_given_up(spread):
    spread.connection.execute("SELECT hashindex.begin_swap(%s, %s)", [INDEX, f"{MODEL}_itq"])
    repaired(spread, undo=True)
    assert one(spread.connection, "SELECT count(*) FROM hashindex.index") == 1


def test_rebalance(listed):
    connection = listed.connection
    before = listed.codes
    connection.execute(f"DELETE FROM {TABLE} WHERE id % 4 <> 0".encode())
    done = listed.rebalance()
    assert (done.rows, done.landmarks < done.landmarks_before) == (500, True)
    assert listed.codes != before
    assert one(connection, "SELECT to_regclass(%s)", before.as_string(connection)) is None
    assert_fresh(listed)
    assert faults(listed) == []


def test_a_build_that_was_cut_off_goes_on(make):
    index = make()
    connection = index.connection
    index.configure(access="landmarks")

    class CutError(Exception):
        pass

    with pytest.MonkeyPatch.context() as patch:

        def cut(*_, **__):
            raise CutError

        patch.setattr("pg_hashindex.index.citus._Shards.encode", cut)
        with pytest.raises(CutError):
            index.encode()
    connection.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 100".encode())
    assert_fresh(index)
    generation = one(connection, "SELECT next_generation FROM hashindex.index")
    HashIndex.open(connection, INDEX).encode()
    assert one(connection, "SELECT generation FROM hashindex.index") == generation
    assert_fresh(index)


def test_configure(spread):
    spread.configure(candidates=300, ranking="hamming")
    assert len(spread.search(QUERY, 3)) == 3
    other = "scan" if spread.access == "landmarks" else "landmarks"
    spread.configure(access=other)  # type: ignore[arg-type]
    now = HashIndex.open(spread.connection, INDEX)
    now.encode()
    now = HashIndex.open(spread.connection, INDEX)
    assert now.access == other
    assert_fresh(now)


def test_encode_rows_in_one_transaction(session):
    session.execute(
        "SELECT hashindex.declare_index(%s, %s, 'embedding', %s)", [INDEX, TABLE, MODEL]
    )
    assert_fresh(HashIndex.open(session, INDEX))


def test_throttled_encoding(session):
    index = create(session)
    assert index.encode(rows_per_second=20_000) == 2000
    with pytest.raises(HashIndexError, match="leave batch_rows out"):
        index.encode(batch_rows=5)


def test_the_command_line(session, filled):
    made = ["--table", TABLE, "--column", "embedding", "--model", MODEL]
    run(filled, "index", "create", INDEX, *made, "--access", "landmarks")
    assert "2000 of 2000 rows, 0 wait" in run(filled, "index", "show", INDEX)
    assert INDEX in run(filled, "index", "list")
    for command in ("check", "encode", "distribute", "rebalance", "repair"):
        run(filled, "index", command, INDEX)
    run(filled, "evaluate", INDEX, "--queries", "20")
    assert "7" in run(filled, "search", INDEX, "--like", "7", "-k", "1")
    run(filled, "search", INDEX, "--radius", "2", "--like", "7")
    run(filled, "index", "drop", INDEX, "--yes")
    assert one(session, "SELECT count(*) FROM hashindex.node_index") == 0


def test_grants(make, filled):
    index = make(access="landmarks")
    connection = index.connection
    connection.execute("DROP ROLE IF EXISTS citus_tests_reader")
    connection.execute("CREATE ROLE citus_tests_reader LOGIN")
    connection.execute(f"GRANT SELECT ON {TABLE} TO citus_tests_reader".encode())
    try:
        with psycopg.connect(filled, user="citus_tests_reader", autocommit=True) as reader:
            statement = f"SELECT id FROM hashindex.search_{INDEX}(%s, 5, 2000)".encode()
            codes = f"SELECT count(*) FROM {index.codes.as_string(connection)}".encode()
            # Exactly, at first.
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(codes)
            for _ in range(2):
                found = reader.execute(statement, [QUERY.to_text()]).fetchall()
                assert [row[0] for row in found] == exact(connection, 5)
                index.grant("citus_tests_reader")
            reader.execute(codes)
    finally:
        connection.execute("DROP OWNED BY citus_tests_reader")
        connection.execute("DROP ROLE citus_tests_reader")


def test_dropping_leaves_nothing(spread):
    connection = spread.connection
    spread.drop()
    assert one(connection, "SELECT count(*) FROM hashindex.node_index") == 0
    left = connection.execute(
        "SELECT relname FROM pg_class WHERE relname LIKE 'citus_tests%' UNION ALL "
        "SELECT proname FROM pg_proc WHERE proname LIKE '%citus_tests%'"
    ).fetchall()
    assert left == []
    connection.execute(f"INSERT INTO {TABLE} VALUES (9999, 'a', NULL)".encode())


def test_learned_codes_are_refused(session, rows):
    """Nodes encode their rows by SQL, which does not look learned codes up."""
    model = store.load(session, MODEL)
    learned = known_rows(rows, model.encode(rows), model.n_bits)
    store.save(session, replace(model, name="citus_tests_taught", learned=learned))
    try:
        refused(session, "has learned codes", model="citus_tests_taught")
    finally:
        store.drop(session, "citus_tests_taught")


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["SELECT create_reference_table('odd')"], "has no distribution column"),
        (["SELECT create_distributed_table('odd', NULL)"], "has no distribution column"),
        (
            [
                "ALTER TABLE odd DROP CONSTRAINT odd_pkey",
                "SELECT create_distributed_table('odd', 'tenant')",
            ],
            'is distributed by "tenant", and has no key with that column',
        ),
    ],
    ids=["reference", "one node", "tenant"],
)
def test_tables_that_are_refused(session, statements, message):
    session.execute(
        "CREATE TABLE odd (id bigint PRIMARY KEY, tenant bigint NOT NULL, embedding vector(8))"
    )
    try:
        for statement in statements:
            session.execute(statement.encode())
        refused(session, message, table="odd")
    finally:
        session.execute("DROP TABLE odd")


def test_an_index_of_a_table_that_is_distributed_by_another_column(session):
    session.execute("CREATE TABLE odd AS SELECT id, id % 5 AS tenant, embedding FROM rows_to_copy")
    session.execute("ALTER TABLE odd ADD PRIMARY KEY (id)")
    index = create(session, table="odd")
    index.encode()
    try:
        names = "SELECT unnest(hashindex._trigger_names(hashindex.find_index(%s)))"
        for (name,) in session.execute(names, [INDEX]).fetchall():
            session.execute(f"DROP TRIGGER {name} ON odd".encode())
        session.execute("ALTER TABLE odd DROP CONSTRAINT odd_pkey")
        session.execute("SELECT create_distributed_table('odd', 'tenant')")
        with pytest.raises(HashIndexError, match=r'distributed by "tenant".* by the key "id"'):
            index.distribute()
        assert one(session, "SELECT count(*) FROM hashindex.citus_tests_idx_codes") == 2000
    finally:
        index.drop()
        session.execute("DROP TABLE odd")


def test_a_table_of_a_distributed_schema(session):
    session.execute("CREATE SCHEMA tenant_one")
    try:
        session.execute("SELECT citus_schema_distribute('tenant_one')")
        session.execute(
            "CREATE TABLE tenant_one.items (id bigint PRIMARY KEY, embedding vector(8))"
        )
        refused(session, "has no distribution column", table="tenant_one.items")
    finally:
        session.execute("DROP SCHEMA tenant_one CASCADE")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("extversion", "0.7.0", r"has 0\.7\.0"), ("extname", "not_vector", "has none")],
    ids=["another version", "none"],
)
def test_a_worker_with_another_pgvector(session, cluster, filled, column, value, message):
    change = f"UPDATE pg_extension SET {column} = %s WHERE {column} = %s".encode()
    found = f"SELECT {column} FROM pg_extension WHERE extname = 'vector'"
    with psycopg.connect(cluster.worker(filled), autocommit=True) as worker:
        before = one(session, found)
        worker.execute(change, [value, before])
        try:
            refused(session, f"another pgvector .* {message}")
        finally:
            worker.execute(change, [before, value])


def test_upgrade_under_an_index(spread, filled):
    install(filled)
    spread.connection.execute(f"UPDATE {TABLE} SET {TURN} WHERE id < 100".encode())
    assert_fresh(spread)


def test_a_database_of_its_own_from_start_to_end(own_cluster):
    url = own_cluster.database("whole_life")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(8))")
        connection.execute("SELECT create_distributed_table('items', 'id')")
        connection.execute(
            "INSERT INTO items SELECT g, ARRAY(SELECT sin(g * d) FROM generate_series(1, 8) d)"
            "::vector FROM generate_series(1, 1000) g"
        )
        connection.execute("SELECT hashindex.train('kept', 'items', 'embedding', 'lsh', 8)")
        connection.execute("SELECT hashindex.declare_index('kept', 'items', 'embedding', 'kept')")
        connection.execute("SELECT hashindex.drop_index('kept')")
    run(url, "schema", "downgrade", "--yes")
    for node in (url, own_cluster.worker(url)):
        with psycopg.connect(node) as reading:
            assert one(reading, "SELECT to_regnamespace('hashindex')") is None
    run(url, "schema", "upgrade")
    with psycopg.connect(url) as connection:
        assert one(connection, "SELECT count(*) FROM hashindex.model") == 0


def test_a_model_that_python_evaluates_is_refused(session, rows):
    codes = store.load(session, MODEL).encode(rows)
    known = Model("citus_tests_known", "byhand", 8, (), network=known_rows(rows, codes, 16))
    store.save(session, known)
    try:
        refused(session, "is evaluated in Python", model=known.name)
    finally:
        store.drop(session, known.name)


def test_landmarks_from_10000_rows_on(session):
    """Rows are counted on the shards."""
    more = (
        f"INSERT INTO {TABLE} SELECT 100000 + g, 'a', ARRAY(SELECT sin(g * d) FROM "
        "generate_series(1, 8) d)::vector FROM generate_series(%s::int, %s::int) g"
    )
    missing = 10_000 - one(session, f"SELECT count(*) FROM {TABLE}")
    session.execute(more.encode(), [1, missing - 1])
    index = create(session)
    assert (index.access, index.building) == ("scan", None)
    index.drop()
    session.execute(more.encode(), [missing, missing])
    index = create(session)
    assert (index.access, index.building) == ("scan", "landmarks")
    index.encode()
    assert (index.access, index.building) == ("landmarks", None)
    assert_fresh(index)
