"""Access by landmarks: lists that hold every row, kept so by triggers, of which few are read."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.filters import look_codes_up
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import listing, store
from pg_hashindex.database import Connection
from pg_hashindex.errors import DatabaseStateError, InUseError, InvalidInputError
from pg_hashindex.index import HashIndex
from pg_hashindex.landmarks import Landmarks
from pg_hashindex.model import Model

items_table = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


@pytest.fixture(params=["l2", "cosine"])
def index(
    request: pytest.FixtureRequest, connection: Connection, items: str, model: Model
) -> HashIndex:
    """3,000 rows around 81 landmarks."""
    connection.execute(
        "INSERT INTO items SELECT n, chr(97 + n % 3), "
        "ARRAY(SELECT sin(n * d) + n % 7 FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(301, 3000) n"
    )
    created = HashIndex.create(
        connection,
        "items_idx",
        table=items,
        column="embedding",
        model=model.name,
        metric=request.param,
        access="landmarks",
    )
    assert (created.access, created.building) == ("scan", "landmarks")
    created.encode()
    return HashIndex.open(connection, "items_idx")


def landmarks_of(index: HashIndex) -> Landmarks:
    rows = index.connection.execute(
        "SELECT centre FROM hashindex.items_idx_landmarks ORDER BY landmark"
    ).fetchall()
    return Landmarks(
        np.stack([row[0].to_numpy() for row in rows]), spherical=index.metric == "cosine"
    )


def entries(index: HashIndex) -> set[tuple[int, int, str]]:
    """What is listed: landmark, key, code."""
    rows = index.connection.execute(
        "SELECT l.landmark, u.id, u.code::text "
        "FROM hashindex.items_idx_lists l, unnest(l.ids, l.codes) u(id, code)"
    ).fetchall()
    return set(rows)


def wanted(index: HashIndex) -> set[tuple[int, int, str]]:
    """What has to be, by the assignment in Python."""
    rows = index.connection.execute(
        "SELECT i.id, i.embedding, c.code::text FROM items i "
        "JOIN hashindex.items_idx_codes c ON c.id = i.id"
    ).fetchall()
    if not rows:
        return set()
    assigned = landmarks_of(index).assign(np.stack([row[1].to_numpy() for row in rows]))
    return {
        (int(number), row[0], row[2])
        for row, pair in zip(rows, assigned, strict=True)
        for number in pair
    }


def assert_listed(index: HashIndex) -> None:
    """Every row is in its two lists, up to rounding; what is there besides is stale."""
    assert_fresh(index)
    there, needed = entries(index), wanted(index)
    assert len(needed - there) <= 0.005 * len(needed)
    # Of those, too, each is listed twice.
    current = {(key, code) for _, key, code in needed}
    listed = [(key, code) for _, key, code in there if (key, code) in current]
    assert len(listed) >= 2 * len(current)


def test_every_row_is_in_two_lists(index: HashIndex) -> None:
    assert (index.access, index.building, index.probes) == ("landmarks", None, 24)
    assert entries(index) == wanted(index)
    lists = index.lists()
    assert lists is not None
    assert (lists.landmarks, lists.entries, lists.stale) == (81, 6000, 0)
    assert lists.chunks <= 81
    assert lists.trained_rows == 3000
    assert index.summary().access_bytes > 0


@pytest.mark.parametrize("ranking", ["hamming", "asymmetric"])
def test_all_lists_and_all_candidates_are_exact(
    index: HashIndex, vectors: NDArray[np.float32], ranking: Any
) -> None:
    for query in vectors[:4] + np.float32(0.2):
        exact = index.connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 12)",
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 12, candidates=6000, probes=81, ranking=ranking) == exact


def test_few_probes_find_nearly_all(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    found = 0
    for query in vectors[:50] + np.float32(0.05):
        exact = index.connection.execute(
            "SELECT id::bigint FROM hashindex.exact_search('items_idx', %s, 5)", [Vector(query)]
        ).fetchall()
        hits = index.search(query, 5, candidates=300, probes=12)
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
        found += len({row[0] for row in exact} & {hit.id for hit in hits})
    assert found >= 0.9 * 250


def test_sql_assigns_as_python_does(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    row = index.connection.execute(
        "SELECT hashindex.assigned_landmarks(hashindex.find_index('items_idx'), '$1')"
    ).fetchone()
    assert row is not None
    assigned = landmarks_of(index).assign(vectors)
    different = 0
    for vector, pair in zip(vectors, assigned, strict=True):
        found = psycopg.RawCursor(index.connection).execute(row[0], [Vector(vector)]).fetchall()
        different += [number for (number,) in found] != pair.tolist()
    # Where two landmarks serve a row equally, rounding decides.
    assert different <= 3


def test_what_is_written_is_listed(index: HashIndex) -> None:
    connection = index.connection
    changed = "UPDATE items SET embedding = embedding + '[1,0,0,2,0,0,0,-3]' WHERE id % 50 = 1"
    for statement in (
        "INSERT INTO items SELECT n, 'new', ARRAY(SELECT cos(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(5001, 5040) n",
        "INSERT INTO items VALUES (6000, 'none', NULL)",
        changed,
        changed,
        "UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 6000",
        "UPDATE items SET category = 'other' WHERE id < 1000",
        "UPDATE items SET id = id + 10000 WHERE id BETWEEN 5001 AND 5010",
        "DELETE FROM items WHERE id % 10 = 3",
    ):
        connection.execute(statement.encode())
        assert_listed(index)
    with connection.cursor().copy("COPY items (id, embedding) FROM STDIN") as copy:
        for number in range(20000, 20010):
            copy.write_row((number, f"[{number % 9},1,1,1,1,1,1,1]"))
    assert_listed(index)
    connection.execute("TRUNCATE items")
    assert entries(index) == set()
    assert index.search(np.ones(8)) == []


def test_an_update_of_another_column_lists_nothing(index: HashIndex) -> None:
    count = "SELECT count(*) FROM hashindex.items_idx_lists"
    before = index.connection.execute(count).fetchone()
    index.connection.execute("UPDATE items SET category = 'b'")
    assert index.connection.execute(count).fetchone() == before


def test_k_answers_while_there_are_k_rows(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    """Probing widens where lists hold too few, or hold rows that are gone."""
    assert len(index.search(vectors[0], 2500, probes=1)) == 2500
    index.connection.execute("DELETE FROM items WHERE id % 300 <> 0")
    assert len(index.search(vectors[0], 10, probes=1)) == 10
    assert len(index.search(vectors[0], 11, probes=1)) == 10


@pytest.mark.parametrize("share", [None, 0.3, 0.02])
def test_conditions(index: HashIndex, vectors: NDArray[np.float32], share: float | None) -> None:
    if share is not None:
        look_codes_up(index.connection, share)
    for condition, most in ((items_table.c.category == "b", 1000), (items_table.c.id <= 7, 7)):
        hits = index.search(vectors[0], 20, probes=2, where=condition)
        assert len(hits) == min(20, most)
    by_name = index.connection.execute(
        "SELECT count(*) FROM hashindex.search('items_idx', %s, 20, probes => 2, "
        """where_equals => '{"category": "b"}')""",
        [Vector(vectors[0])],
    ).fetchone()
    assert by_name == (20,)


@pytest.mark.parametrize("probes", [0, -1, 1001])
def test_probes_out_of_range(index: HashIndex, probes: int) -> None:
    with pytest.raises(InvalidInputError, match=f"probes is {probes}; it must be"):
        index.search(np.ones(8), probes=probes)
    with pytest.raises(InvalidInputError, match=f"probes is {probes}; it must be 1 "):
        index.configure(probes=probes)


def test_settings_of_the_session_come_back(index: HashIndex) -> None:
    connection = index.connection
    names = ("hnsw.ef_search", "hnsw.iterative_scan", "enable_seqscan")
    connection.execute("SET hnsw.ef_search = 77")
    before = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    with connection.transaction():
        index.search(np.ones(8), probes=50)
        after = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    assert after == before


def test_a_run_that_was_cut_off_goes_on(
    connection: Connection, items: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    monkeypatch.setattr(listing, "_BATCH_ROWS", 100)
    assign, done = Landmarks.assign, []

    def failing(self: Landmarks, X: Any) -> NDArray[np.intp]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(len(X))
        return assign(self, X)

    monkeypatch.setattr(Landmarks, "assign", failing)
    with pytest.raises(KeyboardInterrupt):
        index.encode()
    index = HashIndex.open(connection, "items_idx")
    assert (index.access, index.building) == ("scan", "landmarks")
    # Meanwhile searches go on, and what is written is listed.
    assert len(index.search(np.ones(8), 5)) == 5
    connection.execute("INSERT INTO items VALUES (9000, 'a', '[1,1,1,1,1,1,1,1]')")
    connection.execute("DELETE FROM items WHERE id IN (3, 250)")
    read: list[int] = []

    def counting(self: Landmarks, X: Any) -> NDArray[np.intp]:
        read.append(len(X))
        return assign(self, X)

    monkeypatch.setattr(Landmarks, "assign", counting)
    assert index.encode() == 0
    # 100 rows of before, of which one went since, and the new one.
    assert sum(read) == 100
    monkeypatch.undo()
    index = HashIndex.open(connection, "items_idx")
    assert index.access == "landmarks"
    assert_listed(index)


def test_an_empty_table_has_nothing_to_train_on(connection: Connection, model: Model) -> None:
    connection.execute("CREATE TABLE nothing (id int PRIMARY KEY, v vector(8))")
    index = HashIndex.create(
        connection, "n", table="nothing", column="v", model=model.name, access="landmarks"
    )
    assert index.encode() == 0
    index = HashIndex.open(connection, "n")
    assert (index.access, index.building) == ("scan", "landmarks")
    assert index.search(np.ones(8)) == []
    connection.execute("INSERT INTO nothing VALUES (1, '[1,2,3,4,5,6,7,8]')")
    index.encode()
    index = HashIndex.open(connection, "n")
    assert index.access == "landmarks"
    assert [hit.id for hit in index.search(np.ones(8))] == [1]


def test_codes_in_a_column_have_no_lists(connection: Connection, items: str, model: Model) -> None:
    with pytest.raises(InvalidInputError, match=r"codes in a column.* layout table"):
        HashIndex.create(
            connection, "c", table=items, column="embedding", model=model.name,
            layout="column", access="landmarks",
        )  # fmt: skip
    row = connection.execute("SELECT count(*) FROM hashindex.index").fetchone()
    assert row == (0,)


def relations(connection: Connection) -> set[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'hashindex'::regnamespace"
    ).fetchall()
    return {row[0] for row in rows if "items_idx" in row[0]}


def test_another_path_takes_the_lists_down(index: HashIndex) -> None:
    with pytest.raises(InvalidInputError, match="probes are of landmarks"):
        index.configure(access="scan", probes=3)
    index = index.configure(access="scan")
    assert (index.access, index.probes, index.trained_rows) == ("scan", None, None)
    assert relations(index.connection) == {"items_idx_codes", "items_idx_codes_pkey"}
    index.connection.execute("DELETE FROM items WHERE id < 100")
    index.connection.execute("INSERT INTO items VALUES (1, 'a', '[1,1,1,1,1,1,1,1]')")
    assert_fresh(index)
    assert index.lists() is None
    # And what was half built goes, too.
    index = index.configure(access="landmarks", probes=5)
    index.connection.execute("SELECT hashindex.create_landmarks('items_idx')")
    index = index.configure(access="hnsw")
    assert not any("list" in name or "landmark" in name for name in relations(index.connection))
    index.connection.execute("INSERT INTO items VALUES (2, 'a', '[1,1,1,1,1,1,1,2]')")
    assert_fresh(index)


def test_dropping_the_index_leaves_nothing(index: HashIndex) -> None:
    index.drop()
    assert relations(index.connection) == set()
    index.connection.execute("INSERT INTO items VALUES (9999, 'a', '[1,1,1,1,1,1,1,1]')")


def test_rows_encoded_in_python_are_listed(
    connection: Connection, items: str, known_model: Model, vectors: NDArray[np.float32]
) -> None:
    store.save(connection, known_model)
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model="known",
        access="landmarks",
    )  # fmt: skip
    assert index.encode() == 290
    index = HashIndex.open(connection, "items_idx")
    assert index.access == "landmarks"
    assert entries(index) == wanted(index)
    connection.execute("UPDATE items SET embedding = embedding WHERE id < 5")
    connection.execute("DELETE FROM hashindex.items_idx_codes WHERE id < 20")
    connection.execute("TRUNCATE hashindex.items_idx_lists")
    assert index.encode() == 19
    assert {key for _, key, _ in entries(index)} == set(range(1, 20))
    assert index.search(vectors[6], 1)[0].id == 7


@pytest.fixture
def roles(connection: Connection) -> Iterator[None]:
    connection.execute("CREATE ROLE list_reader; CREATE ROLE list_writer")
    yield
    connection.execute("RESET ROLE; DROP OWNED BY list_reader, list_writer")
    connection.execute("DROP ROLE list_reader, list_writer")


@pytest.mark.usefixtures("roles")
def test_who_may_use_the_table_may_use_the_lists(
    connection: Connection, items: str, model: Model
) -> None:
    connection.execute("GRANT SELECT ON items TO list_reader")
    connection.execute("GRANT SELECT, INSERT, DELETE, TRUNCATE ON items TO list_writer")
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    index.encode()
    connection.execute("SET ROLE list_reader")
    assert len(index.search(np.ones(8), 5)) == 5
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("INSERT INTO hashindex.items_idx_lists VALUES (0, '{}', '{}')")
    connection.execute("SET ROLE list_writer")
    connection.execute("INSERT INTO items VALUES (9999, 'a', '[1,1,1,1,1,1,1,1]')")
    assert index.search(np.ones(8), 1)[0].id == 9999
    connection.execute("TRUNCATE items")
    connection.execute("RESET ROLE")
    assert entries(index) == set()


@pytest.mark.usefixtures("roles")
def test_row_security(connection: Connection, index: HashIndex) -> None:
    """Rows that a tenant may not see take no place from those that it may."""
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY few ON items USING (id % 100 = 0);"
        "GRANT SELECT ON items TO list_reader; SELECT hashindex.grant_like_table('items_idx')"
    )
    connection.execute("SET ROLE list_reader")
    for ranking in ("hamming", "asymmetric"):
        hits = index.search(np.ones(8), 12, candidates=20, probes=1, ranking=ranking)  # type: ignore[arg-type]
        assert len(hits) == 12
        assert all(hit.id % 100 == 0 for hit in hits)
    connection.execute("RESET ROLE")


def test_rebalance(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    connection = index.connection
    # All of them near one another, and so in the same lists.
    connection.execute(
        "INSERT INTO items SELECT n, 'close', ARRAY(SELECT 3 + 0.2 * sin(n * d) "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(10001, 12000) n"
    )
    connection.execute(
        "UPDATE items SET embedding = embedding + '[1,1,1,1,0,0,0,0]' WHERE id < 900"
    )
    before = index.lists()
    assert before is not None
    assert before.longest >= 1500
    assert before.chunks > before.landmarks
    done = index.rebalance()
    after = index.lists()
    assert after is not None
    # Rows that moved without another code, of 12 bits, stay in their old lists too.
    assert after.stale == 0
    assert 10_000 <= after.entries < 10_500
    assert done.stale == before.entries - after.entries >= before.stale > 1_000
    assert done.split > 0
    assert after.landmarks == before.landmarks + done.landmarks
    assert after.longest < before.longest / 3
    assert after.chunks <= after.landmarks
    assert_fresh(index)
    assert {key for _, key, _ in entries(index)} == {
        row[0] for row in connection.execute("SELECT id FROM items").fetchall()
    }
    for query in vectors[:3]:
        exact = connection.execute(
            "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, 9)",
            [Vector(query)],
        ).fetchall()
        assert index.search(query, 9, candidates=9000, probes=1000) == exact
    again = index.rebalance()
    assert again.stale == 0


def test_what_cannot_be_rebalanced(index: HashIndex, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('hashindex.access:items_idx', 0))")
        with pytest.raises(InUseError, match="built by another session"):
            index.rebalance()
    with (
        index.connection.transaction(),
        pytest.raises(InvalidInputError, match="many transactions"),
    ):
        index.rebalance()
    plain = index.configure(access="scan")
    with pytest.raises(InvalidInputError, match="has the access path scan"):
        plain.rebalance()


def test_rows_without_a_vector_are_no_answers(index: HashIndex) -> None:
    index.connection.execute("UPDATE items SET embedding = NULL WHERE id > 20")
    hits = index.search(np.ones(8), 12, probes=2)
    assert len(hits) == 12
    assert all(hit.id <= 20 for hit in hits)


def test_a_writer_with_a_snapshot_from_before_the_landmarks(
    connection: Connection, items: str, model: Model, url: str
) -> None:
    """It does not see them, and so could not list what it writes."""
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name
    )
    index.encode()
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM items")
        index.configure(access="landmarks").encode()
        with pytest.raises(psycopg.errors.SerializationFailure, match="got landmarks since"):
            old.execute("INSERT INTO items VALUES (9999, 'z', '[1,1,1,1,1,1,1,1]')")
        old.rollback()
        old.execute("INSERT INTO items VALUES (9999, 'z', '[1,1,1,1,1,1,1,1]')")
    assert_listed(index)


def test_a_reader_with_a_snapshot_from_before_the_lists(
    connection: Connection, items: str, model: Model, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees a few entries, of what was written while rows were listed; it reads all codes."""
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    search = "SELECT id FROM hashindex.search_items_idx('[1,1,1,1,1,1,1,1]', 3, 300, 8)"
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assign = Landmarks.assign

        def looked_at(self: Landmarks, X: Any) -> NDArray[np.intp]:
            connection.execute(
                "INSERT INTO items SELECT n, 'far', ARRAY[n, 0, 0, 0, 0, 0, 0, -n]::vector "
                "FROM generate_series(1000, 1100) n"
            )
            old.execute("SELECT count(*) FROM items")
            return assign(self, X)

        monkeypatch.setattr(Landmarks, "assign", looked_at)
        index.encode()
        exact = old.execute(
            "SELECT id::bigint FROM hashindex.exact_search('items_idx', '[1,1,1,1,1,1,1,1]', 3)"
        ).fetchall()
        assert old.execute(search).fetchall() == exact


@pytest.mark.parametrize("layout", ["table", "column"])
def test_a_snapshot_from_before_the_model_spoils_no_later_write(
    connection: Connection, items: str, model: Model, url: str, layout: Any
) -> None:
    """What is folded into a session's plans must not be that the model was not there."""
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pg_class")
        again = store.save(connection, Model("late", "byhand", 8, model.layers))
        index = HashIndex.create(
            connection, "late", table=items, column="embedding", model=again.name, layout=layout
        )
        index.encode()
        write = "INSERT INTO items VALUES (%s, 'z', '[1,1,1,1,1,1,1,1]')"
        with pytest.raises(psycopg.errors.SerializationFailure, match="not visible to this"):
            old.execute(write, [9000])
        old.rollback()
        old.execute(write, [9001])
    assert_fresh(index)


def test_listing_begins_when_bulk_encoding_has_committed(index: HashIndex, url: str) -> None:
    """Or codes that it is about to commit would be in no list."""
    with psycopg.connect(url) as encoder:
        encoder.execute("DELETE FROM hashindex.items_idx_codes WHERE id = 7")
        index.connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            index.connection.execute("SELECT hashindex.begin_listing('items_idx')")


def test_a_path_that_was_given_up_is_not_gone_on_with(
    connection: Connection, items: str, model: Model, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    index = HashIndex.create(
        connection, "items_idx", table=items, column="embedding", model=model.name,
        access="landmarks",
    )  # fmt: skip
    train = listing.train_landmarks

    def interrupted(*arguments: Any, **options: Any) -> NDArray[np.float32]:
        with psycopg.connect(url) as other:
            other.execute("SELECT hashindex.configure_index('items_idx', 'scan')")
        return train(*arguments, **options)

    monkeypatch.setattr(listing, "train_landmarks", interrupted)
    with pytest.raises(DatabaseStateError, match="configured otherwise while its landmarks"):
        index.encode()
    assert relations(connection) == {"items_idx_codes", "items_idx_codes_pkey"}


@pytest.mark.parametrize("scale", [1e-20, 1e6])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_vectors_that_a_halfvec_cannot_hold(
    connection: Connection, model: Model, scale: float, metric: Any
) -> None:
    """They are written and searched as without landmarks; by direction they are listed rightly."""
    connection.execute("CREATE TABLE sized (id int PRIMARY KEY, v vector(8))")
    fill = (
        "INSERT INTO sized SELECT n, ARRAY(SELECT sin(n * d) * %s::real "
        "FROM generate_series(1, 8) d)::vector FROM generate_series(%s::int, %s::int) n"
    )
    connection.execute(fill, [1, 1, 1500])
    index = HashIndex.create(
        connection, "items_idx", table="sized", column="v", model=model.name, metric=metric,
        access="landmarks",
    )  # fmt: skip
    index.encode()
    connection.execute(fill, [scale, 2001, 2100])
    index = HashIndex.open(connection, "items_idx")
    row = connection.execute("SELECT v FROM sized WHERE id = 2050").fetchone()
    assert row is not None
    hits = index.search(row[0], 3, probes=8, candidates=400)
    assert len(hits) == 3
    if metric == "cosine":
        assert hits[0].id == 2050
        assert hits[0].distance == pytest.approx(0, abs=1e-6)


def test_names_with_anything_in_them(connection: Connection, model: Model) -> None:
    connection.execute(
        'CREATE TABLE "per%cent ""x" (touched int PRIMARY KEY, "em%s $body$" vector(8), '
        "hashindex int, model_layers int)"
    )
    connection.execute(
        'INSERT INTO "per%cent ""x" SELECT n, ARRAY(SELECT sin(n * d) '
        "FROM generate_series(1, 8) d)::vector FROM generate_series(1, 200) n"
    )
    index = HashIndex.create(
        connection, "an%s 'index' %I", table='"per%cent ""x"', column="em%s $body$",
        model=model.name, access="landmarks",
    )  # fmt: skip
    index.encode()
    connection.execute(b'INSERT INTO "per%cent ""x" VALUES (999, \'[1,2,3,4,5,6,7,8]\')')
    index = HashIndex.open(connection, index.name)
    assert index.access == "landmarks"
    assert index.search([1, 2, 3, 4, 5, 6, 7, 8], 1)[0].id == 999
    assert index.rebalance().stale == 0
    index.configure(access="scan")
    index.drop()


def test_a_writer_s_effort_does_not_decide_how_rows_are_listed(index: HashIndex) -> None:
    index.connection.execute("SET hnsw.ef_search = 1")
    index.connection.execute(
        "INSERT INTO items SELECT n, 'new', ARRAY(SELECT cos(n * d) FROM generate_series(1, 8) d)"
        "::vector FROM generate_series(5001, 5200) n"
    )
    assert_listed(index)
    assert index.connection.execute("SHOW hnsw.ef_search").fetchone() == ("1",)
