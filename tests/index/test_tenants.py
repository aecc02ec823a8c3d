"""An index with tenants: landmarks within each, searches within one, and rows that move."""

import asyncio
import json
import uuid
from enum import Enum, IntEnum, StrEnum

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.filters import drop_filtered_search
from fixtures.indexes import create_index
from pgvector import Vector
from pgvector.sqlalchemy import VECTOR
from psycopg import sql
from psycopg.types.json import Jsonb
from sqlalchemy import orm

from pg_hashindex import AsyncHashIndex, operations, store
from pg_hashindex.contrib.sqlalchemy import HashIndex as DeclaredIndex
from pg_hashindex.contrib.sqlalchemy import nearest as sql_nearest
from pg_hashindex.db.connection import connect
from pg_hashindex.db.keys import as_text
from pg_hashindex.errors import (
    DatabaseStateError,
    HashIndexError,
    InvalidInputError,
    MissingRightsError,
    RowsLeftOutWarning,
)
from pg_hashindex.hashers.itq import ITQ
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks import building, reading
from pg_hashindex.index.search import Search
from pg_hashindex.operations.page import look, page
from pg_hashindex.quality import queries, tenant_recall
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.evaluate import evaluate

pytestmark = pytest.mark.newest

#: Rows by tenant; None is one more tenant. Those of 100 rows and more get landmarks here.
SIZES = {1: 500, 2: 150, 3: 60, 4: 7, None: 20}
TENANTS = [tenant for tenant, size in SIZES.items() for _ in range(size)]
VECTORS = np.random.default_rng(3).standard_normal((len(TENANTS), 16)).astype(np.float32)
QUERIES = np.random.default_rng(4).standard_normal((5, 16)).astype(np.float32)
#: More than all rows: searches with these are exact.
ALL = {"candidates": 1000, "effort": 1000}


def trained(name, seed):
    hasher = ITQ(n_bits=16, random_state=seed).fit(VECTORS)
    return hasher.to_model(name, metric="cosine", cuts=3)


def maker(connection):
    """Return a function that makes the table, with tenants of some type, and its index."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex._tenant_landmarks(rows bigint) RETURNS integer "
        "LANGUAGE sql IMMUTABLE RETURN CASE WHEN rows < 100 THEN 0 ELSE rows / 20 END"
    )

    def made(
        kind="integer",
        value=lambda tenant: tenant,
        *,
        before=None,
        tenant="tenant",
        encode=True,
        **options,
    ):
        connection.execute(
            f"CREATE TABLE things (id bigint PRIMARY KEY, tenant {kind}, price integer, "
            "embedding vector(16))".encode()
        )
        order = np.random.default_rng(5).permutation(len(TENANTS))
        with connection.cursor() as cursor, cursor.copy("COPY things FROM STDIN") as copy:
            for row in order:
                tenant_of_row = None if TENANTS[row] is None else value(TENANTS[row])
                copy.write_row((int(row), tenant_of_row, int(row) % 10, Vector(VECTORS[row])))
        store.save(connection, trained("m", 1))
        if before is not None:
            before(connection)
        index = create_index(
            connection, "things_idx", table="things", model="m", tenant=tenant, **options
        )
        if encode:
            index.encode()
        return index

    return made


@pytest.fixture
def make(connection):
    return maker(connection)


@pytest.fixture
def index_template(make_template):
    return make_template("tenants", lambda connection: maker(connection)())


@pytest.fixture
def index(index_template, connection):
    return HashIndex.open(connection, "things_idx")


def nearest(index, query, k, condition):
    """Return the keys of the nearest rows that meet a condition, by the exact query."""
    rows = index.connection.execute(
        f"SELECT id FROM things WHERE {condition.replace('%', '%%')} AND embedding IS NOT NULL "
        f"ORDER BY (embedding <=> %s) + 0, id LIMIT {k}".encode(),
        [Vector(query)],
    )
    return [key for (key,) in rows.fetchall()]


def keys(hits):
    return [hit.id for hit in hits]


def of(tenant):
    return "tenant IS NULL" if tenant is None else f"tenant = {tenant}"


def assert_whole(index):
    """Every row with a vector has a code in a list of its tenant, or in none if it has none."""
    codes, landmarks = index.connection.execute(
        "SELECT 'set_' || id || '_codes', 'set_' || id || '_landmarks' FROM hashindex.index_set "
        "WHERE index_name = 'things_idx' AND state = 'used'"
    ).fetchone()
    ((wrong, missing),) = index.connection.execute(
        f"SELECT count(*) FILTER (WHERE c.id IS NOT NULL AND (c.tenant IS DISTINCT FROM b.tenant "
        f"OR c.landmark IS DISTINCT FROM coalesce(l.landmark, (SELECT min(o.landmark) "
        f'FROM hashindex."{landmarks}" o WHERE o.tenant = b.tenant)))), '
        f"count(*) FILTER (WHERE c.id IS NULL) "
        f'FROM things b LEFT JOIN hashindex."{codes}" c USING (id) '
        f'LEFT JOIN hashindex."{landmarks}" l ON l.landmark = c.landmark AND l.tenant = b.tenant '
        f"WHERE b.embedding IS NOT NULL".encode()
    ).fetchall()
    assert (wrong, missing) == (0, 0)


LONG = "".join(map(str, np.random.default_rng(8).integers(0, 10**9, 1100)))


@pytest.mark.parametrize("access", ["scan", "lists"])
@pytest.mark.parametrize("size", [500, 7])
def test_a_tenant_that_is_longer_than_a_b_tree_holds(make, connection, access, size):
    """Its rows have no code; builds and writes pass, and searches within it are exact."""
    assert len(LONG) > 9000
    names = {of_size: f"tenant {n}" for n, of_size in SIZES.items() if n is not None}
    names[size] = LONG
    with pytest.warns(RowsLeftOutWarning, match="whose tenant is longer than .*: key [0-9]+, .*, "):
        index = make("text", lambda tenant: names[SIZES[tenant]], access=access)
    codes = len(TENANTS) - size
    assert index.access == access

    def check(index, codes):
        count = sql.SQL("SELECT count(*) FROM {}").format(index.codes)
        assert connection.execute(count).fetchone() == (codes,)
        for query in QUERIES[:2]:
            found = index.search(query, 5, tenant=LONG, **ALL)
            assert keys(found) == nearest(index, query, 5, "length(tenant) > 9000")

    check(index, codes)
    if access == "lists":
        for given in ({}, {"tenant": LONG}):
            with pytest.warns(RowsLeftOutWarning, match="tenant is longer"):
                index.rebalance(**given)
    assert operations.check(index).status == "ok"
    with pytest.warns(RowsLeftOutWarning, match="tenant is longer"):
        assert index.encode() == 0
    (other,) = connection.execute(
        "SELECT max(id) FROM things WHERE length(tenant) < 9000"
    ).fetchone()
    connection.execute("UPDATE things SET tenant = %s WHERE id = %s", [LONG, other])
    check(HashIndex.open(connection, "things_idx"), codes - 1)
    connection.execute("UPDATE things SET tenant = 'short' WHERE id = %s", [other])
    check(HashIndex.open(connection, "things_idx"), codes)
    store.save(connection, trained("m", 2))
    with pytest.warns(RowsLeftOutWarning, match="tenant is longer"):
        index.swap(model="m", force=True)
    check(HashIndex.open(connection, "things_idx"), codes)


def test_landmarks_are_of_large_tenants_and_codes_lie_tenant_by_tenant(index):
    assert index.access == "lists"
    codes, landmarks = index.connection.execute(
        "SELECT 'set_' || id || '_codes', 'set_' || id || '_landmarks' FROM hashindex.index_set "
        "WHERE index_name = 'things_idx' AND state = 'used'"
    ).fetchone()
    counted = index.connection.execute(
        f'SELECT l.tenant, count(*), min(n.rows) FROM hashindex."{landmarks}" l JOIN '
        f'(SELECT landmark, count(*) AS rows FROM hashindex."{codes}" GROUP BY landmark) n '
        "USING (landmark) GROUP BY l.tenant ORDER BY 1".encode()
    ).fetchall()
    assert [tenant for tenant, _, _ in counted] == [1, 2]
    assert 20 <= counted[0][1] <= 25
    assert 5 <= counted[1][1] <= 7
    places = index.connection.execute(
        f'SELECT tenant, landmark FROM hashindex."{codes}" ORDER BY ctid'.encode()
    ).fetchall()
    assert places == sorted(places, key=lambda p: [(part is None, part or 0) for part in p])
    assert_whole(index)


@pytest.mark.reads
@pytest.mark.parametrize("tenant", [1, 2, 3, 4])
def test_a_search_within_a_tenant_is_exact_with_all_its_lists(index, tenant):
    for query in QUERIES:
        exact = nearest(index, query, 10, of(tenant))
        assert keys(index.search(query, 10, tenant=tenant, **ALL)) == exact
        found = keys(index.search(query, 10, tenant=tenant, effort=4, candidates=40))
        assert len(found) == len(exact)
        assert set(found) <= {row for row, own in enumerate(TENANTS) if own == tenant}


def test_a_search_reads_few_lists_of_its_tenant(index):
    statement = b"""
        SELECT count(*) FROM hashindex.candidates('things_idx', %s, 500, 3, tenant => '1')
    """
    # More candidates than three lists hold: the next ones are read too, and those of no other.
    assert index.connection.execute(statement, [Vector(QUERIES[0])]).fetchone() == (500,)
    few = statement.replace(b"500", b"20")
    assert index.connection.execute(few, [Vector(QUERIES[0])]).fetchone() == (20,)


@pytest.mark.reads
@pytest.mark.parametrize("tenant", [1, 3, 4, None])
def test_every_way_to_ask_for_a_tenant_finds_the_same(index, tenant):
    exact = nearest(index, QUERIES[0], 10, of(tenant))
    table = sa.table("things", sa.column("tenant", sa.Integer))
    ways = [
        index.search(QUERIES[0], 10, filter=of(tenant), all_tenants=True, **ALL),
        index.search(
            QUERIES[0], 10, where=table.c.tenant == tenant, all_tenants=tenant is None, **ALL
        ),
    ]
    assert [keys(way) for way in ways] == [exact] * len(ways)
    value = "null" if tenant is None else tenant
    by_json = index.connection.execute(
        "SELECT id::bigint FROM hashindex.search("
        "'things_idx', %s, 10, 1000, 1000, NULL, %s::jsonb)",
        [Vector(QUERIES[0]), f'{{"tenant": {value}}}'],
    )
    assert [key for (key,) in by_json] == exact


def test_other_filters_within_a_tenant(index):
    for condition in ("price < 3", "price < 9", "id > 100 AND price <> 4"):
        exact = nearest(index, QUERIES[1], 10, f"tenant = 1 AND ({condition})")
        assert keys(index.search(QUERIES[1], 10, tenant=1, filter=condition, **ALL)) == exact
        both = f"tenant = 1 AND ({condition})"
        assert keys(index.search(QUERIES[1], 10, filter=both, all_tenants=True, **ALL)) == exact
    with pytest.raises(InvalidInputError):
        index.search(QUERIES[1], 10, tenant=1, filter="true) OR (true")
    assert index.search(QUERIES[1], 10, tenant=1, filter="tenant = 2") == []
    assert index.search(QUERIES[1], 10, tenant=1, where=sa.column("tenant") == 2) == []


def test_an_equality_within_a_tenant(index):
    for query in QUERIES:
        exact = nearest(index, query, 10, "tenant = 1 AND price = 3")
        found = index.search(query, 10, tenant=1, filter="price = 3", **ALL)
        assert keys(found) == exact


def test_the_b_tree_of_the_lists_holds_the_tenants(index):
    """It leads to the codes of a small tenant, which are in no list."""
    row = index.connection.execute(
        "SELECT pg_get_indexdef(x.indexrelid) FROM pg_index x JOIN hashindex.index_set s "
        "ON x.indrelid = format('hashindex.set_%s_codes', s.id)::regclass WHERE NOT x.indisprimary"
    ).fetchone()
    assert row[0].endswith("(landmark, tenant)")


def test_candidates_of_a_role_that_may_not_read_codes(index, as_role):
    """They are the nearest rows of the tenant, by distance."""
    role = as_role("stranger_to_codes")
    index.connection.execute("GRANT SELECT ON things TO stranger_to_codes")
    found = role.execute(
        "SELECT id::bigint FROM hashindex.candidates('things_idx', %s, 5, tenant => '1')",
        [Vector(QUERIES[0])],
    ).fetchall()
    assert [key for (key,) in found] == nearest(index, QUERIES[0], 5, "tenant = 1")


def _sql(call):
    return lambda index: index.connection.execute(
        f"SELECT * FROM hashindex.{call}".encode(), {"q": Vector(QUERIES[0])}
    )


def _handle(name, *given, **options):
    return lambda index: getattr(index, name)(*given, **options)


def _awaited(name, *given, **options):
    async def run(url):
        async with await psycopg.AsyncConnection.connect(url) as lent:
            return await getattr(await AsyncHashIndex.open(lent, "things_idx"), name)(
                *given, **options
            )

    return lambda index: asyncio.run(run(index.connection.info.dsn))


@pytest.mark.parametrize(
    "search",
    [
        *(
            _sql(f"search_things_idx(%(q)s, 10{others})")
            for others in (
                "", ", tenant => NULL", ", tenant => NULL, filter => 'price < 3'",
                ", tenant => NULL, filter => 'true'", ", tenant => NULL, where_equals => '{}'",
                ", where_equals => jsonb_build_object('price', 3)",
            )
        ),
        _sql("search('things_idx', %(q)s)"),
        _sql("search('things_idx', %(q)s, where_equals => '{}')"),
        _sql("search('things_idx', %(q)s, filter => '')"),
        _sql("search('things_idx', %(q)s, filter => '', where_equals => '{}')"),
        _sql("hybrid('things_idx', %(q)s, 'words', 'label')"),
        _sql("within('things_idx', %(q)s, 9)"),
        _sql("within('things_idx', %(q)s, 9, tenant => NULL)"),
        *(
            way(name, what, 9, **options)
            for way in (_handle, _awaited)
            for name, what in (
                ("search", QUERIES[0]), ("search_like", 5), ("within", QUERIES[0]),
                ("within_like", 5),
            )
            for options in ({}, {"tenant": None})
        ),
        _handle("search", QUERIES[0], tenant=None, filter="price < 3"),
        _handle("search", QUERIES[0], tenant=None, where=sa.column("price") < 3),
    ],
)  # fmt: skip
def test_a_search_with_no_tenant_is_refused(index, search):
    index.connection.execute("ALTER TABLE things ADD label text")
    with pytest.raises(
        (HashIndexError, psycopg.Error), match="names none|tenant is None|syntax error"
    ):
        search(index)


@pytest.mark.parametrize("tenant", [1, 3, 4])
def test_codes_within_a_radius_of_one_tenant(index, tenant, on):
    of_tenant = {row for row, own in enumerate(TENANTS) if own == tenant}
    bits = index.n_bits
    every = index.within(QUERIES[0], bits, tenant=tenant)
    assert {hit.id for hit in every} == of_tenant
    near = index.within(QUERIES[0], bits // 2, tenant=tenant)
    assert near == [hit for hit in every if hit.distance <= bits // 2]
    (first, *others) = sorted(of_tenant)
    assert {hit.id for hit in index.within_like(first, bits, tenant=tenant)} == set(others)
    shown = on(
        "search", "things_idx", "--like", first, "--radius", bits, "--tenant", tenant, "--json"
    )
    assert {row["id"] for row in json.loads(shown.stdout)} == set(others)


def test_all_tenants_are_searched_when_they_are_asked_for(index):
    for query in QUERIES:
        every = index.search(query, 10, all_tenants=True, **ALL)
        assert keys(every) == nearest(index, query, 10, "true")
        found = keys(index.search(query, 10, all_tenants=True))
        assert len(set(found) & set(nearest(index, query, 10, "true"))) >= 9
    recall = index.connection.execute("SELECT hashindex.recall('things_idx', 5, 1000)")
    assert recall.fetchone()[0] > 0.9


def test_a_tenant_that_does_not_exist(index):
    assert index.search(QUERIES[0], 10, tenant=99) == []
    assert index.search(QUERIES[0], 10, filter="tenant = 99", all_tenants=True) == []
    with pytest.raises(InvalidInputError, match="invalid input syntax for type integer"):
        index.search(QUERIES[0], 10, tenant="acme")


def test_rows_and_tenants_that_move_stay_found(index):
    run = index.connection.execute
    changes = [
        "UPDATE things SET tenant = 2 WHERE id % 7 = 0",
        "UPDATE things SET tenant = 5 WHERE tenant = 3",
        "UPDATE things SET tenant = NULL WHERE id = 11",
        "DELETE FROM things WHERE tenant = 4",
        "INSERT INTO things SELECT id + 10000, 1, 0, embedding FROM things WHERE tenant = 2",
        "INSERT INTO things SELECT id + 20000, 77, 0, embedding FROM things WHERE tenant = 5",
        "UPDATE things SET embedding = NULL WHERE id % 5 = 0",
        "INSERT INTO things VALUES (3, 9, 0, NULL) ON CONFLICT (id) DO UPDATE SET tenant = 77",
    ]
    for change in changes:
        run(change.encode())
        assert_whole(index)
        for tenant in (1, 2, 3, 4, 5, 77):
            exact = nearest(index, QUERIES[2], 10, of(tenant))
            assert keys(index.search(QUERIES[2], 10, tenant=tenant, **ALL)) == exact
    index.rebalance()
    assert_whole(index)
    for tenant in (1, 2, 3, 4, 5, 77):
        exact = nearest(index, QUERIES[2], 10, of(tenant))
        assert keys(index.search(QUERIES[2], 10, tenant=tenant, **ALL)) == exact


def test_rows_written_without_triggers_get_their_lists_by_encode(index):
    run = index.connection.execute
    run("ALTER TABLE things DISABLE TRIGGER USER")
    run("INSERT INTO things SELECT id + 10000, tenant, 0, embedding FROM things WHERE id % 3 = 0")
    run("ALTER TABLE things ENABLE TRIGGER USER")
    assert keys(index.search(QUERIES[2], 10, tenant=4, **ALL)) == nearest(
        index, QUERIES[2], 10, of(4)
    )
    assert index.encode() == len(TENANTS[::3])
    assert_whole(index)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", lambda tenant: f'it\'s {tenant} "%s" {{x}}'),
        ("uuid", lambda tenant: uuid.UUID(int=tenant)),
        ("varchar(20)", str),
        ("numeric(5, 1)", lambda tenant: tenant + 0.5),
        ("date", lambda tenant: f"2026-01-{tenant:02}"),
        ("boolean", lambda tenant: tenant == 1),
    ],
)
def test_tenants_of_other_types(make, kind, value):
    index = make(kind, value)
    assert_whole(index)
    literal = psycopg.sql.Literal(value(2)).as_string(index.connection)
    exact = nearest(index, QUERIES[0], 10, f"tenant = {literal}")
    assert keys(index.search(QUERIES[0], 10, tenant=value(2), **ALL)) == exact
    assert (
        keys(index.search(QUERIES[0], 10, filter=f"tenant = {literal}", all_tenants=True, **ALL))
        == exact
    )


@pytest.mark.reads
@pytest.mark.parametrize(
    ("equalities", "tenant"),
    [
        ({"tenant": 7}, "7"),
        ({"tenant": "7"}, "7"),
        ({"tenant": 7, "price": 3}, "7"),
        ({"tenant": 7.5}, None),
        ({"tenant": "acme"}, None),
        ({"tenant": None}, None),
        ({"tenant": ["7"]}, None),
        ({"price": 7}, None),
    ],
)
def test_the_tenant_of_equalities(index, equalities, tenant):
    found = index.connection.execute(
        "SELECT hashindex._tenant_of(i, %s) FROM hashindex.index i", [Jsonb(equalities)]
    )
    assert found.fetchone() == (tenant,)


def test_statements_of_sqlalchemy_take_the_typed_route(make, url):
    index = make("uuid", lambda tenant: uuid.UUID(int=tenant))
    mapped = orm.registry().map_imperatively
    Thing = type("Thing", (), {})
    columns = (
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("tenant", sa.Uuid),
        sa.Column("price", sa.Integer),
        sa.Column("embedding", VECTOR(16)),
    )
    table = sa.Table("things", sa.MetaData(), *columns)
    DeclaredIndex("things_idx", table.c.embedding, model="m", tenant="tenant")
    mapped(Thing, table)
    tenant = uuid.UUID(int=2)
    exact = nearest(index, QUERIES[0], 10, f"tenant = '{tenant}'")
    all_of_it = sql_nearest(Thing, Thing.embedding, QUERIES[0], 10, **ALL)
    stranger = all_of_it.where(Thing.tenant == sa.bindparam("tenant", None, sa.Uuid))
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with orm.Session(engine) as session:
        whole = all_of_it.where(Thing.price < 5).where(Thing.tenant == tenant)
        cheap = [key for key in exact if session.get_one(Thing, key).price < 5]
        assert [thing.id for thing in session.scalars(whole)][: len(cheap)] == cheap
        # NULL is equal to no tenant, not to the rows without one.
        assert session.scalars(stranger).all() == []
        session.rollback()
        drop_filtered_search(index.connection)
        for asked in (
            all_of_it.where(Thing.tenant == tenant),
            all_of_it.options(orm.with_loader_criteria(Thing, Thing.tenant == tenant)),
        ):
            assert [thing.id for thing in session.scalars(asked)] == exact
        found = index.search(QUERIES[0], 10, where=Thing.tenant == tenant, **ALL)
        assert keys(found) == exact
    engine.dispose()


def test_a_swap_keeps_the_tenants(index):
    store.save(index.connection, trained("other", 2))
    index.swap(model="other")
    now = HashIndex.open(index.connection, "things_idx")
    assert (now.model, now.tenant_column, now.access) == ("other", "tenant", "lists")
    assert_whole(now)
    assert keys(now.search(QUERIES[0], 10, tenant=1, **ALL)) == nearest(now, QUERIES[0], 10, of(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tenant": "stranger"}, 'no column "stranger"'),
        ({"tenant": "shape"}, "have no order"),
        ({"tenant": "id"}, "key or the vector"),
        ({"tenant": "embedding"}, "key or the vector|no order"),
    ],
)
def test_columns_that_are_no_tenants(connection, options, message):
    connection.execute(
        "CREATE TABLE things (id bigint PRIMARY KEY, tenant integer, shape json, "
        "embedding vector(16))"
    )
    store.save(connection, trained("m", 1))
    with pytest.raises(InvalidInputError, match=message):
        create_index(connection, "things_idx", table="things", model="m", **options)
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


def test_an_index_without_tenants_refuses_one(connection, items, model):
    index = create_index(connection)
    with pytest.raises(InvalidInputError, match="has no tenants"):
        index.search(np.zeros(8), tenant=1)


def test_a_tenant_that_grows_is_named_and_its_lists_are_built_again(index):
    run = index.connection.execute
    before = {
        tenant: landmarks
        for tenant, _, landmarks in run("SELECT * FROM hashindex.tenants('things_idx')").fetchall()
    }
    assert before["3"] == before["4"] == before[None] == 0
    rows = np.random.default_rng(8).standard_normal((4500, 16)).astype(np.float32)
    with index.connection.cursor() as cursor, cursor.copy("COPY things FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((50_000 + number, 3, 1, Vector(row)))
    found = {row[0]: row for row in run("SELECT * FROM hashindex.health('things_idx')").fetchall()}
    assert found["tenants"][1] == "warning"
    assert "have outgrown their lists: 3" in found["tenants"][3]
    assert found["tenants"][4] == "pg-hashindex index rebalance things_idx --tenant 3"
    done = index.rebalance(tenant=3)
    assert (done.rows, done.landmarks_before) == (SIZES[3] + len(rows), 0)
    assert 200 <= done.landmarks <= 228
    assert_whole(index)
    after = {
        tenant: landmarks
        for tenant, _, landmarks in run("SELECT * FROM hashindex.tenants('things_idx')").fetchall()
    }
    assert after == before | {"3": done.landmarks}
    for tenant in (1, 2, 3):
        exact = nearest(index, QUERIES[0], 10, of(tenant))
        assert keys(index.search(QUERIES[0], 10, tenant=tenant, **ALL)) == exact
    found = {row[0]: row for row in run("SELECT * FROM hashindex.health('things_idx')").fetchall()}
    assert found["tenants"][1] == "ok"
    assert {name for name, row in found.items() if row[1] != "ok"} <= {"drift"}
    # Again, from lists that it has; and when it has become small.
    assert index.rebalance(tenant=3).landmarks_before == done.landmarks
    run("DELETE FROM things WHERE id > 50010")
    assert index.rebalance(tenant=3).landmarks == 0
    assert_whole(index)


def test_no_session_lists_codes_while_the_lists_of_a_tenant_change(index, url, monkeypatch):
    retry = building.retry_while_locked

    def change_and_look(connection, change, **options):
        def changed():
            made = change()
            with pytest.raises(psycopg.errors.LockNotAvailable), connect(url) as other:
                other.execute("SET lock_timeout = '50ms'")
                other.execute(sql.SQL("DELETE FROM {} WHERE false").format(index.row.codes))
            return made

        return retry(connection, changed, **options)

    monkeypatch.setattr(building, "retry_while_locked", change_and_look)
    assert index.rebalance(tenant=1).rows == SIZES[1]


def test_the_rows_of_a_tenant_fill_the_blocks_that_are_read(index, monkeypatch):
    """So the last block is empty."""
    monkeypatch.setattr(reading, "_BLOCK_ROWS", SIZES[1] // 2)
    assert index.rebalance(tenant=1).rows == SIZES[1]


def test_what_cannot_be_rebalanced(index, connection):
    with pytest.raises(InvalidInputError, match="no row of tenant '99'"):
        index.rebalance(tenant=99)
    with pytest.raises(InvalidInputError, match="invalid input syntax"):
        index.rebalance(tenant="acme")


def test_a_role_that_may_not_read_tenants_searches_exactly(index, as_role):
    """Codes are in the order of the tenants, and tell them apart."""
    reader = as_role("reader")
    index.connection.execute("GRANT SELECT (id, embedding) ON things TO reader")
    with pytest.raises(DatabaseStateError, match='may not read columns .* and "tenant"'):
        index.grant("reader")
    found = HashIndex.open(reader, "things_idx").search(QUERIES[0], 10)
    assert keys(found) == nearest(index, QUERIES[0], 10, "true")
    with pytest.raises(MissingRightsError):
        HashIndex.open(reader, "things_idx").search(QUERIES[0], 10, tenant=1)
    landmarks = f"set_{index.set_id}_landmarks"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute(f'SELECT centre FROM hashindex."{landmarks}"'.encode())
    index.connection.execute("GRANT SELECT ON things TO reader")
    index.grant("reader")
    assert keys(HashIndex.open(reader, "things_idx").search(QUERIES[0], 10, tenant=1, **ALL)) == (
        nearest(index, QUERIES[0], 10, of(1))
    )


def test_evaluations_search_within_the_tenants_of_rows(index, monkeypatch):
    rows = [int(query.row_id or 0) for query in queries.draw(index, 100)]
    asked = []
    statement = Search.statement
    monkeypatch.setattr(
        Search, "statement", lambda self, row: asked.append(self.tenant) or statement(self, row)
    )
    found = evaluate(index, queries=100, candidates=[20, 1000])
    own = [Search.tenant if TENANTS[row] is None else str(TENANTS[row]) for row in rows]
    assert asked == own * 2
    assert found.points[0].recall < found.points[1].recall
    whole = evaluate(index, queries=VECTORS[:5], candidates=[1000])
    assert asked[-5:] == [Search.tenant] * 5
    assert whole.points[0].recall > 0.5


@pytest.mark.parametrize("comparable", [0, 1])
def test_a_tenant_of_zero_vectors_is_shown_without_a_recall(index, on, comparable):
    zero = np.zeros(16)
    index.connection.execute(
        "UPDATE things SET embedding = %s WHERE tenant = 3 AND id NOT IN "
        "(SELECT id FROM things WHERE tenant = 3 LIMIT %s)",
        [Vector(zero), comparable],
    )
    printed = json.loads(on("evaluate", "things_idx", "--queries", "9", "--json").stdout)
    recalls = {one["tenant"]: one["recall"] for one in printed["tenants"]}
    assert recalls.pop("3") is None
    assert [tenant for tenant, recall in recalls.items() if recall is None] == [None]


def test_tenants_are_shown_with_the_recall_within_them(index, on):
    found = tenant_recall.tenants(index)
    assert [(one.tenant, one.codes) for one in found] == [
        (None if tenant is None else str(tenant), size)
        for tenant, size in sorted(SIZES.items(), key=lambda item: -item[1])
    ]
    assert [one.landmarks > 0 for one in found] == [True, True, False, False, False]
    measured = [tenant_recall.measure(index, one).recall for one in found]
    assert measured[3] is None
    assert [recall > 0.9 for recall in measured if recall is not None] == [True] * 4
    printed = json.loads(on("evaluate", "things_idx", "--queries", "9", "--json").stdout)
    assert [one["recall"] for one in printed["tenants"]] == measured
    assert "landmarks  recall@10" in on("evaluate", "things_idx", "--queries", "9").stdout
    diagnosis = diagnose(index.connection, "things", "embedding", sample=10)
    (looked,) = look(index.connection, diagnosis)  # type: ignore[misc]
    assert [one.codes for one in looked.tenants or ()] == [one.codes for one in found]  # type: ignore[union-attr]
    assert "recall@10 within it" in page(diagnosis, [looked])
    index.connection.execute("DELETE FROM things")
    assert tenant_recall.tenants(index) == []


@pytest.mark.parametrize("tenant", ["tenant", "tenant_id"])
def test_tenants_that_are_in_the_key(make, tenant):
    def changed(connection):
        if tenant != "tenant":
            connection.execute(f"ALTER TABLE things RENAME tenant TO {tenant}".encode())
        connection.execute("DELETE FROM things WHERE id >= 717")
        connection.execute(
            "ALTER TABLE things DROP CONSTRAINT things_pkey, "
            f"ADD PRIMARY KEY ({tenant}, id)".encode()
        )
        # Two tenants may have the same id.
        connection.execute("UPDATE things SET id = id - 500 WHERE id >= 500")

    index = make(tenant=tenant, before=changed)
    assert index.key_columns == [tenant, "id"]
    rows = index.connection.execute(
        f"SELECT {tenant}, id FROM things WHERE {tenant} = 2 "
        "ORDER BY (embedding <=> %s) + 0, id LIMIT 10".encode(),
        [Vector(QUERIES[0])],
    ).fetchall()
    for found in (
        index.search(QUERIES[0], 10, tenant=2, **ALL),
        index.search(QUERIES[0], 10, filter=f"{tenant} = 2", all_tenants=True, **ALL),
        index.search(QUERIES[0], 10, tenant=2, filter="price >= 0", **ALL),
    ):
        assert keys(found) == rows
    column = "id_1" if tenant == "tenant" else tenant
    answer = index.connection.execute(
        "SELECT * FROM hashindex.search_things_idx(%s, 3, tenant => 4)", [Vector(QUERIES[0])]
    )
    assert [part.name for part in answer.description] == [column, "id", "distance"]
    index.connection.execute(f"UPDATE things SET {tenant} = 9 WHERE {tenant} = 1".encode())
    assert len(index.search(QUERIES[0], 10, tenant=9)) == 10
    assert index.search(QUERIES[0], 10, tenant=1) == []
    assert index.rebalance(tenant=9).rows == SIZES[1]
    assert {key[0] for key in keys(index.search(QUERIES[0], 400, tenant=9))} == {9}


def table_check(index):
    rows = index.connection.execute("SELECT * FROM hashindex.health('things_idx')").fetchall()
    return next(row for row in rows if row[0] == "table")


def test_tenants_are_renamed(index):
    run = index.connection.execute
    run("ALTER TABLE things RENAME tenant TO owner")
    with pytest.raises(InvalidInputError, match='"things_idx" has no column "tenant"'):
        index.search(QUERIES[0], 3, tenant=1)
    _, status, _, detail, advice = table_check(index)
    assert status == "broken"
    assert 'tenant column "tenant" of public.things is not there any more' in detail
    assert "pg-hashindex index repair things_idx --tenant COLUMN" in advice
    for column in ("stranger", "embedding"):
        with pytest.raises(InvalidInputError, match="name the column of the tenants"):
            operations.rebind(index, tenant=column)
    operations.rebind(index, tenant="owner")
    now = HashIndex.open(index.connection, "things_idx")
    assert now.tenant_column == "owner"
    assert table_check(now)[1] == "ok"
    run("UPDATE things SET owner = 2 WHERE id % 3 = 0")
    for tenant in (1, 2):
        exact = nearest(now, QUERIES[0], 10, f"owner = {tenant}")
        assert keys(now.search(QUERIES[0], 10, tenant=tenant, **ALL)) == exact


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP tenant", 'tenant column "tenant" of public.things is not there any more'),
        ("ALTER tenant TYPE text", "is of type text, and was of integer"),
    ],
)
def test_tenants_that_are_dropped_or_retyped(index, change, says):
    index.connection.execute(f"ALTER TABLE things {change}".encode())
    assert says in table_check(index)[3]
    with pytest.raises(InvalidInputError):
        index.search(QUERIES[0], 3, tenant=1)
    index.drop()
    assert index.connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


@pytest.mark.parametrize("change", ["DROP tenant", "RENAME tenant TO owner", "DROP id"])
def test_writers_are_left_alone_without_a_column_of_the_index(index, change):
    """PostgreSQL refuses to drop vectors alone: triggers that name a column keep its type."""
    run = index.connection.execute
    run(f"ALTER TABLE things {change}".encode())
    given = ("price", "77") if "id" in change else ("id, price", "95000, 77")
    insert = "INSERT INTO things ({}, embedding) SELECT {}, embedding FROM things LIMIT 1"
    run(insert.format(*given).encode())
    run("UPDATE things SET price = 78, embedding = embedding WHERE price = 77")
    run("DELETE FROM things WHERE price = 78")
    assert table_check(index)[1] == "broken"
    if "owner" in change:
        run("INSERT INTO things SELECT 90000, 1, 0, embedding FROM things WHERE id = 5")
        operations.rebind(index, tenant="owner")
        run("ALTER TABLE things RENAME owner TO tenant")
        operations.rebind(index, tenant="tenant")
        assert_whole(HashIndex.open(index.connection, "things_idx"))


def test_values_that_fit_are_kept_while_the_tenant_has_another_type(index):
    run = index.connection.execute
    run("ALTER TABLE things ALTER tenant TYPE text")
    run("INSERT INTO things SELECT 90000, '1', 0, embedding FROM things WHERE id = 5")
    with pytest.raises(psycopg.errors.DatatypeMismatch, match="have other types"):
        run("INSERT INTO things SELECT 90001, 'one', 0, embedding FROM things WHERE id = 5")
    operations.repair(index)
    assert_whole(HashIndex.open(index.connection, "things_idx"))


def test_a_transaction_that_began_before_new_lists_of_a_tenant(index, url):
    with connect(url) as old:
        old.autocommit = False
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        exact = [
            key
            for (key,) in old.execute(
                "SELECT id FROM things WHERE tenant = 1 "
                "ORDER BY (embedding <=> %s) + 0, id LIMIT 5",
                [Vector(QUERIES[0])],
            )
        ]
        index.rebalance(tenant=1)
        found = old.execute(
            "SELECT id FROM hashindex.search_things_idx(%s, 5, tenant => 1)", [Vector(QUERIES[0])]
        )
        assert [key for (key,) in found] == exact
        with pytest.raises(psycopg.errors.SerializationFailure, match="has been built again"):
            old.execute("UPDATE things SET embedding = embedding WHERE id < 0")
            old.execute("INSERT INTO things SELECT 90000, 1, 0, embedding FROM things LIMIT 1")
        old.rollback()
    assert_whole(index)


def test_values_are_written_as_psycopg_sends_them(connection):
    class Word(StrEnum):
        ACME = "acme"

    class Number(IntEnum):
        ACME = 2

    class Plain(Enum):
        ACME = 2

    for value in (Word.ACME, Number.ACME, Plain.ACME, b"\x01\xff", "it's", 7):
        (sent,) = connection.execute("SELECT %s::text", [value]).fetchone()
        assert as_text(value) == sent
