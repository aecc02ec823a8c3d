"""Landmarks are built beside writers, given up, gone on with, and built again."""

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists, create_index, indexed, with_access
from fixtures.landmarks import (
    assert_listed,
    entries,
    landmarks_of,
    nearest_landmarks,
    points_of,
    relations,
    tables_of,
)
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.db.locks import claim
from pg_hashindex.errors import (
    BuildWarning,
    DatabaseStateError,
    InUseError,
    InvalidInputError,
    RowsLeftOutWarning,
)
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks import building, reading
from pg_hashindex.index.landmarks.assignment import Landmarks
from pg_hashindex.models.layers import affine, normalize
from pg_hashindex.models.model import Model


@pytest.fixture
def index(listed):
    return listed


@pytest.fixture
def begun(connection, items, model):
    """An index on 300 rows, 43 to 50 a page, whose landmarks are still to be built."""
    connection.execute("ALTER TABLE items SET (fillfactor = 45)")
    connection.execute("VACUUM FULL items")
    return create_index(connection, access="lists")


@pytest.fixture
def between_blocks(monkeypatch):
    """Have something done after a block of one page, once."""

    def do(number, work):
        one_page_a_block(monkeypatch)
        write, written = building.ListBuild._write, []

        def watched(self, rows, place):
            write(self, rows, place)
            written.append(place)
            if len(written) == number:
                work()

        monkeypatch.setattr(building.ListBuild, "_write", watched)

    return do


def one_page_a_block(monkeypatch):
    monkeypatch.setattr(reading, "_FIRST_PAGES", 1)
    monkeypatch.setattr(reading, "_MOST_PAGES", 1)


def interrupt():
    raise KeyboardInterrupt


def run(url, *statements):
    with psycopg.connect(url, autocommit=True) as other:
        for statement in statements:
            other.execute(statement.encode())


def test_codes_lie_in_the_order_of_landmarks(index):
    assert_listed(index)
    codes, landmarks = tables_of(index)
    rows = index.connection.execute(
        f"SELECT landmark FROM hashindex.{codes} ORDER BY ctid".encode()
    ).fetchall()
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert {name for name in relations(index.connection) if "key" not in name} == {
        codes, f"{codes}_landmark_idx", landmarks, f"{landmarks}_centre_idx",
    }  # fmt: skip


def test_landmarks_are_the_means_of_their_rows(index):
    rows = index.connection.execute("SELECT id, embedding FROM items").fetchall()
    vectors = np.stack([row[1].to_numpy() for row in rows])
    if index.metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    listed = entries(index)
    places = np.array([listed[row[0]] for row in rows])
    for number, point in enumerate(landmarks_of(index)):
        members = vectors[places == number]
        # Those of fewer rows stay as they were trained, on three rows at least.
        if len(members) >= 3:
            mean = members.mean(axis=0)
            if index.metric == "cosine":
                mean /= np.linalg.norm(mean)
            expected = points_of(index, mean[None].astype(np.float32))[0]
            np.testing.assert_allclose(point, expected, atol=0.01 * np.linalg.norm(expected))


@pytest.mark.newest
@pytest.mark.parametrize(
    ("bits", "scaled", "metric", "dimension"),
    [
        (8, True, "cosine", 8),
        (6, True, "cosine", 8),
        (8, False, "cosine", 8),
        (12, False, "l2", 12),
    ],
)
def test_landmarks_are_compared_with_projections_if_there_are_enough(
    connection, items, bits, scaled, metric, dimension
):
    """As many as dimensions, by a model for which length counts as for the metric; else vectors."""
    weights = np.random.default_rng(3).standard_normal((bits, 8)).astype(np.float32)
    layers = [normalize()] * scaled + [affine(weights)]
    store.save(connection, Model("m", "lsh", 8, layers))
    index = indexed(connection, model="m", metric=metric, access="lists")
    points = landmarks_of(HashIndex.open(connection, "items_idx"))
    assert points.shape[1] == dimension
    if (not scaled and metric == "cosine") or bits < 8:
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=0.01)
    connection.execute("INSERT INTO items VALUES (9001, 'a', '[1,2,3,1,2,3,1,2]')")
    written = np.array([[1, 2, 3, 1, 2, 3, 1, 2]], np.float32)
    assert entries(index)[9001] == nearest_landmarks(index, written, 1)[0, 0]
    assert index.search(written[0], 1)[0].id == 9001


def test_a_run_that_was_cut_off_goes_on(connection, begun, between_blocks, monkeypatch):
    between_blocks(2, interrupt)
    with pytest.raises(KeyboardInterrupt):
        begun.encode()
    index = HashIndex.open(connection, "items_idx")
    assert (index.access, index.state) == ("lists", "building")
    # Meanwhile searches find what is written.
    connection.execute("INSERT INTO items VALUES (9000, 'a', '[1,1,1,1,1,1,1,1]')")
    connection.execute("DELETE FROM items WHERE id IN (3, 250)")
    assert index.search(np.ones(8), 1)[0].id == 9000
    assign, read = Landmarks.assign, []

    def counting(self, X):
        read.append(len(X))
        return assign(self, X)

    monkeypatch.undo()
    monkeypatch.setattr(Landmarks, "assign", counting)
    index.encode()
    # The rows of two pages were written before.
    (rest,) = connection.execute("SELECT count(*) FROM items WHERE ctid >= '(2,0)'").fetchone()
    assert 200 < rest < 220
    assert sum(read) == rest
    assert HashIndex.open(connection, "items_idx").access == "lists"
    assert_listed(index)


@pytest.mark.newest
@pytest.mark.parametrize("step", ["_index_landmarks", "_put_in_order", "_finished"])
def test_no_row_is_read_again_after_the_last_one(connection, begun, step, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(building.ListBuild, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        begun.encode()
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id < 9")
    monkeypatch.undo()
    monkeypatch.setattr(Landmarks, "assign", interrupted)
    begun.encode()
    monkeypatch.undo()
    assert_listed(begun)


def test_a_graph_that_shared_memory_does_not_hold(connection, begun):
    """One process builds it, without shared memory; the settings of the session stay."""
    connection.execute(
        """
        CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            IF current_query() ~ '_index_landmarks'
              AND current_setting('max_parallel_maintenance_workers') <> '0' THEN
                RAISE 'could not resize shared memory segment' USING ERRCODE = 'disk_full';
            END IF;
        END $$;
        CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE INDEX')
            EXECUTE FUNCTION refuse();
        SET max_parallel_maintenance_workers = 2
        """
    )
    settings = (
        "SELECT current_setting('max_parallel_maintenance_workers'), "
        "current_setting('maintenance_work_mem')"
    )
    before = connection.execute(settings).fetchone()
    begun.encode()
    assert connection.execute(settings).fetchone() == before
    assert HashIndex.open(connection, "items_idx").access == "lists"
    assert_listed(begun)


WRITES = {
    "values": [
        "UPDATE items SET embedding = embedding + embedding WHERE id % 3 = 0",
        "DELETE FROM items WHERE id % 7 = 0",
        "INSERT INTO items SELECT id + 1000, category, embedding FROM items WHERE id < 20",
        "UPDATE items SET id = id + 5000 WHERE id % 11 = 0",
        "UPDATE items SET embedding = NULL WHERE id % 13 = 0",
    ],
    # Rows get other places: some behind what was read, some before it.
    "places": [
        "DELETE FROM items WHERE id BETWEEN 30 AND 60", "VACUUM items",
        "UPDATE items SET category = 'moved' WHERE id < 30 OR id > 250",
    ],
    "rewritten": ["DELETE FROM items WHERE id < 40", "VACUUM FULL items"],
    "emptied": [
        "CREATE TABLE kept AS TABLE items", "TRUNCATE items",
        "INSERT INTO items SELECT id + 1, category, embedding FROM kept",
    ],
}  # fmt: skip


@pytest.mark.newest
@pytest.mark.parametrize("number", [1, 3, 6])
@pytest.mark.parametrize("writes", WRITES)
def test_concurrent_writes_count(begun, between_blocks, writes, number, url):
    between_blocks(number, lambda: run(url, *WRITES[writes]))
    begun.encode()
    assert HashIndex.open(begun.connection, "items_idx").access == "lists"
    assert_listed(begun)


def test_a_crash_begins_the_build_again(connection, begun, between_blocks, monkeypatch):
    """It empties what is unlogged, the log of keys as well as the rows that were read."""
    between_blocks(3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        begun.encode()
    monkeypatch.undo()
    connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id < 50")
    connection.execute("TRUNCATE hashindex.set_1_staged, hashindex.set_1_log")
    begun.encode()
    assert_listed(begun)


@pytest.mark.newest
@pytest.mark.parametrize("part", ["log", "landmarks", "codes"])
def test_a_build_whose_table_was_dropped_begins_again(
    connection, begun, between_blocks, monkeypatch, part
):
    between_blocks(3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        begun.encode()
    monkeypatch.undo()
    (table,) = connection.execute(
        "SELECT c.oid::regclass::text FROM pg_class c "
        "WHERE c.relname LIKE %s AND c.relkind = 'r'", [f"set_%_{part}"]
    ).fetchone() or ("",)  # fmt: skip
    connection.execute(f"DROP TABLE {table}".encode())
    operations.repair(begun)
    assert_listed(begun)
    assert HashIndex.open(connection, "items_idx").access == "lists"


@pytest.mark.newest
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("smallint", "n"), ("integer", "-n"), ("bigint", "n * 10 ^ 12"),
        ("uuid", "md5(n::text)::uuid"), ("text", "repeat('é; \"it''s\" ', n % 40) || n"),
        ("varchar(9)", "n::text"), ("char(5)", "n::text"), ("numeric", "n / 7.0"),
        ("timestamptz", "now() + n * interval '1 us'"), ("positive", "n"),
    ],
)  # fmt: skip
def test_keys_of_any_type(connection, model, kind, key):
    connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
    connection.execute(
        f"CREATE TABLE keyed (id {kind} PRIMARY KEY, v vector(8));"
        f"INSERT INTO keyed SELECT ({key})::{kind}, "
        "ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(1, 200) n".encode()
    )
    index = begin_lists(connection, "items_idx", table="keyed", column="v", model=model.name)
    assert index.encode(batch_rows=70) == 200
    assert_fresh(index)
    row = connection.execute("SELECT id, v FROM keyed OFFSET 17 LIMIT 1").fetchone()
    with_access(index, "lists")
    for access in ("lists", "scan"):
        index = with_access(HashIndex.open(connection, "items_idx"), access)  # type: ignore[arg-type]
        assert_fresh(index)
        # Answers have the text of a key of type character, which is not padded.
        found = row[0].rstrip() if kind == "char(5)" else row[0]
        assert index.search(row[1], 1) == [(found, 0)]
        for full in (False, True):
            assert operations.check(index, full=full).status == "ok"


# The second one takes as many bytes as the others.
@pytest.mark.parametrize(("key", "vector"), [("odd one", "[1,2]"), ("oddest", "[1,2,3,4,5,6,7]")])
def test_a_row_of_another_dimension_is_named(connection, model, key, vector):
    connection.execute(
        "CREATE TABLE mixed (id text PRIMARY KEY, v vector);"
        "INSERT INTO mixed SELECT n, '[1,2,3,4,5,6,7,8]' FROM generate_series(10, 99) n"
    )
    index = begin_lists(
        connection, "items_idx", table="mixed", column="v", model=model.name, access="lists"
    )
    connection.execute(
        f"ALTER TABLE mixed DISABLE TRIGGER ALL; INSERT INTO mixed VALUES ('{key}', '{vector}');"
        "ALTER TABLE mixed ENABLE TRIGGER ALL".encode()
    )
    with pytest.raises(InvalidInputError, match=f"row {key} of .* has . dimensions, the model"):
        index.encode()


def test_an_empty_table_has_nothing_to_train_on(connection, model):
    connection.execute("CREATE TABLE nothing (id int PRIMARY KEY, v vector(8))")
    index = begin_lists(
        connection, "n", table="nothing", column="v", model=model.name, access="lists"
    )
    assert index.encode() == 0
    index = HashIndex.open(connection, "n")
    assert (index.access, index.state, index.trained_rows) == ("lists", "used", None)
    assert index.search(np.ones(8)) == []
    connection.execute("INSERT INTO nothing VALUES (1, '[1,2,3,4,5,6,7,8]')")
    index.rebalance()
    index = HashIndex.open(connection, "n")
    assert index.trained_rows == 1
    assert [hit.id for hit in index.search(np.ones(8))] == [1]


def test_dropping_the_index_leaves_nothing(index):
    index.drop()
    assert relations(index.connection) == set()
    index.connection.execute("INSERT INTO items VALUES (9999, 'a', '[1,1,1,1,1,1,1,1]')")


def test_rebalance(index, vectors):
    connection = index.connection
    connection.execute(
        "INSERT INTO items SELECT n, 'close', ARRAY(SELECT 3 + 0.2 * sin(n * d) "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(10001, 12000) n"
    )
    connection.execute(
        "UPDATE items SET embedding = embedding + '[1,1,1,1,0,0,0,0]' WHERE id < 900"
    )
    before, codes = len(landmarks_of(index)), tables_of(index)[0]
    done = index.rebalance()
    assert (done.rows, done.landmarks_before) == (5000, before)
    assert done.landmarks == len(landmarks_of(index)) > 1.3 * before
    assert tables_of(index)[0] != codes
    assert_listed(index)
    index = HashIndex.open(connection, "items_idx")
    operator = "<->" if index.metric == "l2" else "<=>"
    for query in vectors[:3]:
        exact = connection.execute(
            f"SELECT id::bigint, embedding {operator} %s AS distance FROM items "
            "ORDER BY distance, id LIMIT 9".encode(),
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 9, candidates=9000, effort=1000) == exact


@pytest.mark.newest
def test_rebalance_refused(index, url):
    with psycopg.connect(url, autocommit=True) as other:
        claim(other, "swap", "items_idx")
        with pytest.raises(InUseError, match="built by another session"):
            index.rebalance()
    with (
        index.connection.transaction(),
        pytest.raises(InvalidInputError, match="many transactions"),
    ):
        index.rebalance()


@pytest.mark.parametrize("number", [0, 2])
def test_a_build_that_was_given_up_is_not_continued(
    index, between_blocks, number, monkeypatch, url
):
    give_up = "SELECT hashindex._give_up('items_idx', true)"
    train = building.train_by_blocks

    def interrupted(*arguments, **options):
        run(url, give_up)
        return train(*arguments, **options)

    if number:
        between_blocks(number, lambda: run(url, give_up))
    else:
        monkeypatch.setattr(building, "train_by_blocks", interrupted)
    with pytest.raises((DatabaseStateError, InUseError), match="gave up|was dropped"):
        index.rebalance()
    monkeypatch.undo()
    assert_fresh(index)
    assert_listed(index)


@pytest.mark.newest
@pytest.mark.parametrize(
    ("writes", "rows"),
    [
        (WRITES["emptied"], 300),
        (["INSERT INTO items SELECT id + 5000, category, embedding FROM items"], 600),
    ],
    ids=["emptied", "doubled"],
)
def test_a_table_that_changes_while_training_reads_it(begun, monkeypatch, url, writes, rows):
    one_page_a_block(monkeypatch)
    drawn, done = building.ListBuild._drawn, []

    def changed(self, share, seed):
        for block in drawn(self, share, seed):
            yield block
            if not done:
                done.append(share)
                run(url, *writes)

    monkeypatch.setattr(building.ListBuild, "_drawn", changed)
    begun.encode()
    assert HashIndex.open(begun.connection, "items_idx").access == "lists"
    assert_listed(begun)
    assert len(entries(begun)) == rows


@pytest.mark.newest
@pytest.mark.parametrize(
    ("vector", "trained"),
    [
        ("array_fill(0, ARRAY[8])", True),
        ("array_fill(1, ARRAY[8])", True),
        ("ARRAY(SELECT CASE WHEN n % 2 = 0 THEN 1 ELSE sin(n * d) END"
         " FROM generate_series(1, 8) d)", True),
        ("array_fill(3e38::real, ARRAY[8])", False),
    ],
    ids=["zero", "equal", "half equal", "too large"],
)  # fmt: skip
def test_rows_that_hardly_differ(connection, model, vector, trained):
    connection.execute(
        "CREATE TABLE alike (id int PRIMARY KEY, v vector(8));"
        f"INSERT INTO alike SELECT n, ({vector})::vector FROM generate_series(1, 900) n".encode()
    )
    index = begin_lists(
        connection, "items_idx", table="alike", column="v", model=model.name, access="lists"
    )
    if not trained:
        with pytest.warns((RowsLeftOutWarning, BuildWarning)):
            index.encode()
    else:
        assert index.encode() == 900
        assert len(entries(index)) == 900
    assert (HashIndex.open(connection, "items_idx").trained_rows is not None) == trained


def test_memory_that_does_not_hold_the_landmarks_is_refused(begun):
    for memory in ("", "1 mile", "0MB", "-1GB", True):
        with pytest.raises(InvalidInputError, match="give a size such as"):
            begun.encode(memory=memory)
    with pytest.raises(InvalidInputError, match="the least is --memory 257MB"):
        begun.encode(memory="64MB")
    assert not {name for name in relations(begun.connection) if "staged" in name}
    begun.encode(memory="257MB")
    assert_listed(begun)
    with pytest.raises(InvalidInputError, match="the least is --memory 257MB"):
        begun.rebalance(memory=1 << 20)
    assert_listed(begun)


def test_blocks_hold_every_row_whatever_indexes_the_table_has(
    connection, items, model, monkeypatch
):
    """A partial index that fits gives rows by key: blocks skipped rows, or read them twice."""
    monkeypatch.setattr(reading, "_FIRST_PAGES", 1)
    monkeypatch.setattr(reading, "_BLOCK_ROWS", 50)
    connection.execute(
        "ALTER TABLE items ADD payload text; ALTER TABLE items ALTER payload SET STORAGE PLAIN; "
        "INSERT INTO items SELECT n, 'a', CASE WHEN n % 9 = 0 THEN "
        "ARRAY(SELECT sin(n * d) + n % 7 FROM generate_series(1, 8) d)::vector END, "
        "repeat('x', 1000) FROM generate_series(9000, 301, -1) n; "
        "CREATE INDEX ready ON items (id) WHERE embedding IS NOT NULL; "
        "UPDATE items SET category = 'b' WHERE id = 4500"
    )
    connection.execute("VACUUM ANALYZE items")
    # With nearly free pages the planner prefers here the plan that it prefers on millions of rows.
    connection.execute("SET random_page_cost = 0.01")
    index = begin_lists(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="lists",
    )  # fmt: skip
    index.encode()
    assert_listed(index)
    index.rebalance()
    assert_listed(index)


def test_lists_without_landmarks_are_not_rebalanced(index):
    index = with_access(index, "scan")
    with pytest.raises(
        InvalidInputError, match="without landmarks; .* index swap .* --access lists"
    ):
        index.rebalance()
