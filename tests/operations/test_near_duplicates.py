"""Near-duplicates by lists and codes, against all pairs by brute force."""

import json

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector
from scipy.spatial.distance import cdist

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError, HashIndexError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import Layer
from pg_hashindex.models.model import Model
from pg_hashindex.operations import duplicates as module
from pg_hashindex.operations.duplicates import radius_of

pytestmark = pytest.mark.newest


BOTH = pytest.mark.parametrize("listed", ["l2", "cosine"], indirect=True)


@pytest.fixture
def listed(request, connection, items, model):
    """300 rows, and 40 near copies of the first ones, in a dozen lists; by l2, or by `BOTH`."""
    rng = np.random.default_rng(1)
    read = "SELECT embedding FROM items WHERE id <= 40 ORDER BY id"
    for i, (row,) in enumerate(connection.execute(read.encode()).fetchall()):
        copy = row.to_numpy() + 0.001 * rng.standard_normal(8).astype(np.float32)
        connection.execute("INSERT INTO items VALUES (%s, 'a', %s)", [301 + i, Vector(copy)])
    created = begin_lists(
        connection,
        "items_idx",
        table=items,
        column="embedding",
        model=model.name,
        metric=getattr(request, "param", "l2"),
        access="lists",
    )
    created.encode()
    return created


@pytest.fixture
def rows(listed):
    every = listed.connection.execute("SELECT embedding FROM items ORDER BY id").fetchall()
    return np.stack([row[0].to_numpy() for row in every]).astype(np.float64)


def brute_force(rows, metric, farthest):
    far = cdist(rows, rows, "cosine" if metric == "cosine" else "euclidean")
    return {(int(i) + 1, int(j) + 1) for i, j in np.argwhere(far <= farthest) if i < j}


def pairs(connection, table="twins"):
    found = connection.execute(f"SELECT id, other_id, distance FROM {table}".encode()).fetchall()
    return {(row[0], row[1]): row[2] for row in found}


@BOTH
def test_all_pairs_are_found_if_all_lists_and_codes_are_compared(listed, rows):
    farthest = {"l2": 0.9, "cosine": 0.08}[listed.row.metric]
    done = operations.near_duplicates(listed, "twins", max_distance=farthest, radius=12, lists=1000)
    expected = brute_force(rows, listed.row.metric, farthest)
    assert pairs(listed.connection).keys() == expected
    assert {(i, 300 + i) for i in range(1, 41)} <= expected
    assert (done.table, done.pairs, done.radius) == ("twins", len(expected), 12)
    # The same in one statement of SQL.
    found = listed.connection.execute(
        "SELECT id::int, other_id::int FROM hashindex.near_duplicates('items_idx', %s, 12, 1000)",
        [farthest],
    ).fetchall()
    assert set(found) == expected


@BOTH
def test_the_default_radius_and_lists_find_nearly_all(listed, rows):
    farthest = {"l2": 0.9, "cosine": 0.08}[listed.row.metric]
    done = operations.near_duplicates(listed, "twins", max_distance=farthest)
    expected = brute_force(rows, listed.row.metric, farthest)
    found = pairs(listed.connection).keys()
    assert found <= expected
    assert len(found) >= 0.95 * len(expected)
    assert done.radius < 12


def test_a_run_goes_on_with_its_radius_after_writes(listed, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module._Target, "write", cut)
        with pytest.raises(KeyboardInterrupt):
            operations.near_duplicates(listed, "twins", max_distance=0.08)
    # From now on it would be found otherwise.
    monkeypatch.setattr(module, "radius_of", lambda *_: 3)
    assert operations.near_duplicates(listed, "twins", max_distance=0.08).radius != 3
    assert operations.near_duplicates(listed, "others", max_distance=0.08).radius == 3


def test_a_run_that_was_cut_off_goes_on(listed, rows, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_LISTS", 2)
    write, starts = module._Target.write, []

    def cut(target, start, end):
        starts.append(start)
        if len(starts) == 3:
            raise KeyboardInterrupt
        write(target, start, end)

    monkeypatch.setattr(module._Target, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        operations.near_duplicates(listed, "twins", max_distance=0.08, radius=12, lists=1000)
    operations.near_duplicates(listed, "twins", max_distance=0.08, radius=12, lists=1000)
    assert starts[:4] == [0, 2, 4, 4]
    assert pairs(listed.connection).keys() == brute_force(rows, listed.row.metric, 0.08)
    # A complete table is not computed again, and other settings do not mix with it.
    again = len(starts)
    operations.near_duplicates(listed, "twins", max_distance=0.08, radius=12, lists=1000)
    assert len(starts) == again
    with pytest.raises(DatabaseStateError, match="these settings; .* or drop it: DROP TABLE twins"):
        operations.near_duplicates(listed, "twins", max_distance=0.01, radius=12, lists=1000)
    # No message tells users to drop a table of theirs.
    with pytest.raises(DatabaseStateError, match="table items exists, .* name another table$"):
        operations.near_duplicates(listed, "items", max_distance=0.01, radius=12)


def test_lists_rebuilt_concurrently(listed, connection, url, monkeypatch):
    """The rest of the new lists would hold other rows than the rest of the old ones."""
    monkeypatch.setattr(module, "_BLOCK_LISTS", 2)
    write = module._Target.write

    def rebalanced(target, start, end):
        write(target, start, end)
        if start == 2:
            with connect(url) as other:
                HashIndex.open(other, listed.name).rebalance()

    monkeypatch.setattr(module._Target, "write", rebalanced)
    with pytest.raises(DatabaseStateError, match="built again while pairs were written"):
        operations.near_duplicates(listed, "twins", max_distance=0.08, radius=12, lists=1000)
    with pytest.raises(DatabaseStateError, match="holds no pairs of these settings"):
        operations.near_duplicates(listed, "twins", max_distance=0.08, radius=12, lists=1000)


def test_the_radius_is_that_of_turned_copies():
    """Signs of the two axes: a turn by 90 degrees changes one or two bits of every row."""
    model = Model(
        "axes",
        "byhand",
        2,
        (Layer("affine", np.eye(2, dtype=np.float32), np.zeros(2, np.float32)),),
    )
    angles = np.linspace(0.1, 6.2, 400)
    circle = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    assert radius_of(model, circle, "cosine", 0.0, 0) == 0
    assert radius_of(model, circle, "cosine", 1.0, 0) == 1
    assert radius_of(model, circle, "cosine", 2.0, 0) == 2


@pytest.fixture
def of_tenants(connection, model):
    """Tenants of 120, 120, 30, 6 and 5 rows, the last NULL; those of 100 and more have lists."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex._tenant_landmarks(rows bigint) RETURNS integer "
        "LANGUAGE sql IMMUTABLE RETURN CASE WHEN rows < 100 THEN 0 ELSE rows / 20 END"
    )
    connection.execute(
        "CREATE TABLE things (id bigint PRIMARY KEY, tenant text, embedding vector(8))"
    )
    sizes = {"a": 120, "b": 120, "c": 30, "d": 6, None: 5}
    tenants = [tenant for tenant, size in sizes.items() for _ in range(size)]
    vectors = np.random.default_rng(2).standard_normal((len(tenants), 8)).astype(np.float32)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s)",
            [(n, tenants[n], Vector(vectors[n])) for n in range(len(tenants))],
        )
    created = begin_lists(
        connection, "things_idx", table="things", column="embedding", model=model.name,
        metric="l2", access="lists", tenant="tenant",
    )  # fmt: skip
    created.encode()
    return created


def within_tenants(connection, farthest):
    """All pairs of rows of one tenant, by the exact query."""
    found = connection.execute(
        "SELECT a.id, b.id FROM things a JOIN things b ON a.id < b.id "
        "AND a.tenant IS NOT DISTINCT FROM b.tenant WHERE a.embedding <-> b.embedding <= %s",
        [farthest],
    )
    return set(found.fetchall())


def test_pairs_within_tenants_of_every_size(of_tenants, connection):
    expected = within_tenants(connection, 3)
    sizes = {tenant for (tenant,) in connection.execute(
        "SELECT DISTINCT tenant FROM things WHERE id = ANY (%s)",
        [[key for pair in expected for key in pair]],
    )}  # fmt: skip
    assert sizes == {"a", "b", "c", "d", None}
    asked = {"max_distance": 3, "radius": 16, "lists": 1000}
    operations.near_duplicates(of_tenants, "twins", **asked)
    assert pairs(connection).keys() == expected
    # The same in one statement of SQL.
    found = connection.execute(
        "SELECT id::int, other_id::int FROM hashindex.near_duplicates('things_idx', 3, 16, 1000)"
    )
    assert set(found.fetchall()) == expected


def test_pairs_after_the_lists_of_a_tenant_were_built_again(of_tenants, connection):
    # The numbers of these lists come after all others.
    of_tenants.rebalance(tenant="a")
    operations.near_duplicates(of_tenants, "twins", max_distance=3, radius=16, lists=1000)
    assert pairs(connection).keys() == within_tenants(connection, 3)


def test_pairs_with_a_row_that_is_in_no_list_yet(of_tenants, connection):
    (codes,) = connection.execute(
        "SELECT 'set_' || id || '_codes' FROM hashindex.index_set"
    ).fetchone()
    connection.execute(f'UPDATE hashindex."{codes}" SET landmark = NULL WHERE id % 3 = 0'.encode())
    operations.near_duplicates(of_tenants, "twins", max_distance=3, radius=16, lists=1000)
    assert pairs(connection).keys() == within_tenants(connection, 3)


def test_lists_of_a_tenant_rebuilt_concurrently(of_tenants, url, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_LISTS", 2)
    write = module._Target.write

    def rebalanced(target, start, end):
        write(target, start, end)
        if start == 2:
            with connect(url) as other:
                HashIndex.open(other, of_tenants.name).rebalance(tenant="b")

    monkeypatch.setattr(module._Target, "write", rebalanced)
    with pytest.raises(DatabaseStateError, match="built again while pairs were written"):
        operations.near_duplicates(of_tenants, "twins", max_distance=3, radius=16)


def test_codes_that_no_longer_follow_policies_are_refused(of_tenants, connection, as_role):
    connection.execute("ALTER TABLE things ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY own ON things USING (tenant = 'a')")
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON things TO reader")
    of_tenants.grant("reader")
    found = "SELECT id FROM hashindex.near_duplicates('things_idx', 3, 16, 1000)"
    assert reader.execute(found).fetchall()
    connection.execute("ALTER POLICY own ON things USING (tenant = 'b')")
    with pytest.raises(Exception, match="do not follow the policies of public.things"):
        reader.execute(found)


def test_bad_input_makes_no_table(listed):
    for values, message in (
        ({"max_distance": float("nan")}, "finite"),
        ({"max_distance": 0.1, "radius": -1}, "radius"),
        ({"max_distance": 0.1, "radius": 3, "lists": 0}, "lists"),
    ):
        with pytest.raises(HashIndexError, match=message):
            operations.near_duplicates(listed, "twins", **values)
        found = listed.connection.execute("SELECT to_regclass('twins')").fetchone()
        assert found == (None,), message


@pytest.mark.parametrize(("into", "name"), [("Twins", "twins"), ('"My ""Pairs"', 'My "Pairs')])
def test_the_table_is_named_as_in_sql(listed, into, name):
    operations.near_duplicates(listed, into, max_distance=0.01, radius=1)
    found = listed.connection.execute("SELECT FROM pg_class WHERE relname = %s", [name])
    assert found.rowcount == 1


def test_a_table_made_again_is_refused(listed):
    listed.connection.execute(
        "CREATE TABLE items_new (LIKE items INCLUDING ALL); INSERT INTO items_new TABLE items; "
        "DROP TABLE items; ALTER TABLE items_new RENAME TO items"
    )
    with pytest.raises(DatabaseStateError, match="recreated"):
        operations.near_duplicates(listed, "twins", max_distance=0.1)
    assert listed.connection.execute("SELECT to_regclass('twins')").fetchone() == (None,)


def test_an_index_without_lists_is_refused(index):
    with pytest.raises(DatabaseStateError, match="swap items_idx --access lists"):
        operations.near_duplicates(index, "twins", max_distance=0.1)
    with pytest.raises(Exception, match="near-duplicates are found by lists"):
        index.connection.execute("SELECT hashindex.near_duplicates('items_idx', 0.1, 3)")


@BOTH
def test_the_command(listed, rows, on):
    given = ["dedup", "items_idx", "--into", "twins", "--radius", "12", "--lists", "1000"]
    result = on(*given, "--max-distance", "0.08", "--json")
    expected = brute_force(rows, listed.row.metric, 0.08)
    assert json.loads(result.stdout)["pairs"] == len(expected)
    code = 0 if listed.row.metric == "cosine" else 2
    on("dedup", "items_idx", "--into", "more", "--min-similarity", "0.92", code=code)
    on("dedup", "items_idx", "--into", "more", code=2)
