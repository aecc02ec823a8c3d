"""Indexes on tables whose key has several columns, for each access path."""

import json
import re

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh, of_tables
from fixtures.indexes import begin_lists, with_access
from pgvector import Vector
from psycopg import sql
from scipy.spatial.distance import cdist

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

# Three tenants have ids 1 to 100 each.
POSTS = """
    CREATE TABLE posts (
        tenant_id integer, id bigint, category text, embedding vector(8),
        PRIMARY KEY (tenant_id, id)
    );
    INSERT INTO posts SELECT (id - 1) % 3 + 1, (id - 1) / 3 + 1, category, embedding FROM items;
"""

KINDS = ("scan", "lists")


def make(connection, access="scan", **options):
    named = {"table": "posts", "column": "embedding", "model": "lsh"} | options
    index = begin_lists(connection, "posts_idx", access=access, **named)
    index.encode()
    return HashIndex.open(connection, "posts_idx")


@pytest.fixture(params=KINDS)
def index(request, connection, items, model):
    """An index of posts, once for each kind."""
    connection.execute(POSTS)
    return make(connection, request.param)


@pytest.fixture
def posts(connection, items, model):
    connection.execute(POSTS)
    return connection


def vector(seed):
    return Vector(np.random.default_rng(seed).standard_normal(8).astype(np.float32))


def nearest(connection, query, k, where="true"):
    """The nearest rows by brute force, in numpy."""
    rows = connection.execute(
        f"SELECT tenant_id, id, embedding FROM posts WHERE {where}".encode()
    ).fetchall()
    far = cdist([query.to_numpy()], np.stack([row[2].to_numpy() for row in rows]))[0]
    return [tuple(rows[n][:2]) for n in np.argsort(far, kind="stable")[:k]]


def objects(connection):
    """Objects of indexes in schema hashindex."""
    rows = connection.execute(
        """
        SELECT f.what FROM pg_namespace n CROSS JOIN LATERAL (
            SELECT 'relation ' || relname FROM pg_class WHERE relnamespace = n.oid
            UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typnamespace = n.oid
            UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = n.oid
        ) f(what) WHERE n.nspname = 'hashindex'
        """
    ).fetchall()
    return {row[0] for row in rows if "posts_idx" in row[0]}


def test_answers_have_the_columns_of_the_key(index):
    connection = index.connection
    (result,) = connection.execute(
        "SELECT pg_get_function_result(p.oid) FROM pg_proc p WHERE p.proname = 'search_posts_idx'"
    ).fetchone()
    assert result == "TABLE(tenant_id integer, id bigint, distance double precision)"
    assert_fresh(index)
    for seed in range(5):
        query = vector(seed)
        expected = nearest(connection, query, 10)
        found = connection.execute(
            "SELECT * FROM hashindex.search_posts_idx(%s, 10, 300, effort => 1000)", [query]
        ).fetchall()
        assert [row[:2] for row in found] == expected
        for name in ("search('posts_idx', %s, 10, 300, 1000)", "exact_search('posts_idx', %s, 10)"):
            found = connection.execute(f"SELECT id FROM hashindex.{name}".encode(), [query])
            assert [tuple(json.loads(row[0])) for row in found] == expected
        assert len(index.search(query, 400)) == 300


def test_filters_on_any_column_and_on_those_of_the_key(index):
    query = vector(1)
    for arguments, where in {
        "where_equals => '{\"tenant_id\": 2}'": "tenant_id = 2",
        "filter => 'tenant_id = 2 AND id < 50'": "tenant_id = 2 AND id < 50",
        "filter => 'posts.id > 20 AND category = ''a'''": "id > 20 AND category = 'a'",
    }.items():
        expected = nearest(index.connection, query, 5, where)
        for function in ("search_posts_idx(%s", "search('posts_idx', %s"):
            found = index.connection.execute(
                f"SELECT s.*::text FROM hashindex.{function}, 5, {arguments}) s".encode(), [query]
            ).fetchall()
            keys = [tuple(map(int, re.findall(r"\d+", row[0])[:2])) for row in found]
            assert keys == expected


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_codes_follow_writes_of_every_kind(index, isolation):
    connection = index.connection
    connection.execute(
        "CREATE TABLE tenants (tenant_id integer PRIMARY KEY);"
        "INSERT INTO tenants VALUES (1), (2), (3), (4), (5);"
        "ALTER TABLE posts ADD FOREIGN KEY (tenant_id) REFERENCES tenants "
        "ON UPDATE CASCADE ON DELETE CASCADE"
    )
    for statement in (
        "INSERT INTO posts VALUES (4, 1, 'a', %(v)s), (4, 2, 'a', NULL)",
        "INSERT INTO posts SELECT 5, id, category, embedding FROM posts WHERE tenant_id = 1",
        "INSERT INTO posts VALUES (1, 1, 'a', %(v)s), (4, 3, 'b', %(v)s) "
        "ON CONFLICT (tenant_id, id) DO UPDATE SET embedding = excluded.embedding",
        "UPDATE posts SET embedding = %(v)s WHERE id <= 3",
        "UPDATE posts SET embedding = NULL WHERE tenant_id = 2 AND id <= 5",
        "UPDATE posts SET id = id + 1000 WHERE tenant_id = 1",
        # To a key that another tenant's row had.
        "UPDATE posts SET tenant_id = 4, id = id + 500 WHERE tenant_id = 3",
        "UPDATE tenants SET tenant_id = 7 WHERE tenant_id = 5",
        "DELETE FROM posts WHERE id BETWEEN 10 AND 20",
        "DELETE FROM tenants WHERE tenant_id = 4",
        "MERGE INTO posts p USING (SELECT 2 AS t, n AS id FROM generate_series(40, 60) n) s "
        "ON (p.tenant_id, p.id) = (s.t, s.id) WHEN MATCHED AND p.id < 50 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET embedding = %(v)s, id = p.id + 9000 "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.t, s.id, 'z', %(v)s)",
    ):
        with connection.transaction():
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}".encode())
            connection.execute(statement.encode(), {"v": vector(len(statement))})
        assert_fresh(index)
    with connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM posts")
        assert_fresh(index)
    connection.execute("TRUNCATE posts")
    assert index.summary().codes == 0
    connection.execute("INSERT INTO posts VALUES (7, 1, 'a', %s)", [vector(1)])
    assert_fresh(index)


def test_a_key_that_was_deleted_since_the_snapshot(posts, url):
    """Both rows are visible then; a join that took the key for unique would encode either."""
    index = make(posts)
    with connect(url) as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT FROM posts")
        posts.execute("DELETE FROM posts WHERE (tenant_id, id) = (1, 1)")
        insert = "INSERT INTO posts VALUES (1, 1, 'a', %s)"
        with pytest.raises(psycopg.errors.SerializationFailure), other.transaction():
            other.execute(insert, [vector(1)])
    assert_fresh(index)


def test_keys_that_change_places(posts):
    index = make(posts)
    posts.execute(
        "ALTER TABLE posts DROP CONSTRAINT posts_pkey, "
        "ADD CONSTRAINT posts_pkey PRIMARY KEY (tenant_id, id) DEFERRABLE INITIALLY IMMEDIATE"
    )
    posts.execute("UPDATE posts SET tenant_id = 3 - tenant_id WHERE tenant_id IN (1, 2)")
    assert_fresh(index)


def test_plans_that_are_kept_look_keys_up(posts):
    """They are made while the tables are empty; reading all rows would be quadratic later."""
    posts.execute("TRUNCATE posts")
    posts.execute("VACUUM ANALYZE posts")
    index = make(posts)
    plans = []
    posts.add_notice_handler(lambda notice: plans.append(notice.message_detail or ""))
    posts.execute("INSERT INTO posts VALUES (1, 1, 'a', %s)", [vector(1)])
    posts.execute("VACUUM ANALYZE posts")
    posts.execute("VACUUM ANALYZE hashindex.set_1_codes")
    posts.execute("DISCARD PLANS; SET debug_print_plan = on; SET client_min_messages = log")
    posts.execute("UPDATE posts SET embedding = %s", [vector(2)])
    posts.execute("RESET debug_print_plan")
    refreshes = [plan for plan in plans if of_tables(plan) and "{INDEX" in plan]
    assert refreshes
    for plan in refreshes:
        assert "{SEQSCAN" not in plan
        assert not re.search(r"\{(HASH|MERGE)JOIN", plan)
        assert plan.count("{INDEXSCAN") + plan.count("{INDEXONLYSCAN") >= 1
    assert_fresh(index)


def test_near_duplicates(posts):
    index = make(posts, "lists", metric="cosine")
    rows = posts.execute("SELECT tenant_id, id, embedding FROM posts").fetchall()
    far = cdist(*[np.stack([row[2].to_numpy() for row in rows])] * 2, "cosine")
    expected = {
        (rows[i][:2], rows[j][:2]) for i, j in np.argwhere(far <= 0.1) if rows[i][:2] < rows[j][:2]
    }
    found = posts.execute(
        "SELECT id, other_id FROM hashindex.near_duplicates('posts_idx', 0.1, 12, 1000)"
    ).fetchall()
    assert expected
    assert {tuple(tuple(json.loads(key)) for key in row) for row in found} == expected
    assert index.row.n_bits == 12


def test_codes_by_key_and_within_a_radius(index):
    connection = index.connection
    (code,) = connection.execute("SELECT hashindex.code_of('posts_idx', '[2, 7]')").fetchone()
    (fresh,) = connection.execute(
        "SELECT hashindex.encode('lsh', embedding) FROM posts WHERE (tenant_id, id) = (2, 7)"
    ).fetchone()
    assert code == fresh
    assert connection.execute("SELECT hashindex.code_of('posts_idx', '[9, 7]')").fetchone() == (
        None,
    )
    for wrong in ("7", "[7]", "[1, 2, 3]", "{}", "(2,7)", ""):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="JSON array of 2 values"):
            connection.execute("SELECT hashindex.code_of('posts_idx', %s)", [wrong])
    found = connection.execute(
        "SELECT id, distance FROM hashindex.within('posts_idx', %s, 3)", [vector(1)]
    ).fetchall()
    every = connection.execute(
        "SELECT tenant_id, id, bit_count(hashindex.encode('lsh', embedding) "
        "# hashindex.encode('lsh', %s))::integer FROM posts ORDER BY 3, 1, 2",
        [vector(1)],
    ).fetchall()
    near = [(*json.loads(key), distance) for key, distance in found]
    assert near == [row for row in every if row[2] <= 3]


def test_landmarks_and_writes_while_they_are_built(posts):
    index = make(posts)
    with_access(index, "lists")
    assert index.access == "lists"
    assert_fresh(index)
    (coming,) = posts.execute("SELECT hashindex._begin_rebalance('posts_idx')").fetchone()
    posts.execute("SELECT hashindex._begin_lists(%s)", [coming])
    posts.execute("UPDATE posts SET embedding = %s, id = id + 500 WHERE id < 10", [vector(9)])
    posts.execute("DELETE FROM posts WHERE id BETWEEN 20 AND 30")
    touched = posts.execute("SELECT id_1, id_2 FROM hashindex.set_3_log").fetchall()
    assert {(1, 501), (2, 3), (3, 25)} <= set(touched)
    posts.execute("TRUNCATE posts")
    (emptied,) = posts.execute("SELECT hashindex._catch_up(%s)", [coming]).fetchone()
    assert emptied == -1
    assert operations.repair(index).done
    assert_fresh(index)


def test_a_swap_keeps_the_type_of_the_key(index):
    connection = index.connection
    before = objects(connection)
    assert "type posts_idx_key" in before
    with_access(index, "scan" if index.access == "lists" else "lists")
    types = {name for name in objects(connection) if re.fullmatch("type posts_.*_key", name)}
    assert types == {"type posts_idx_key"}
    swapped = HashIndex.open(connection, "posts_idx")
    assert_fresh(swapped)
    connection.execute("UPDATE posts SET embedding = %s WHERE id < 5", [vector(8)])
    assert_fresh(swapped)
    found = connection.execute(
        "SELECT tenant_id, id FROM hashindex.search_posts_idx(%s, 5, 300, 1000)", [vector(2)]
    ).fetchall()
    assert found == nearest(connection, vector(2), 5)
    connection.execute("SELECT hashindex.drop_index('posts_idx')")
    assert objects(connection) == set()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            "ALTER TABLE posts DROP COLUMN id CASCADE",
            'key "id" of public.posts is not there any more',
        ),
        ("ALTER TABLE posts RENAME id TO number", 'key "id" of public.posts is not there any more'),
        (
            "ALTER TABLE posts ALTER tenant_id TYPE bigint",
            'key "tenant_id" of public.posts is of type bigint, and was of integer',
        ),
        (
            "ALTER TABLE posts DROP CONSTRAINT posts_pkey",
            'columns "tenant_id" and "id" of public.posts are not a key',
        ),
        (
            "ALTER TABLE posts DROP CONSTRAINT posts_pkey, ADD PRIMARY KEY (id, tenant_id)",
            None,
        ),
    ],
)
def test_a_changed_key_is_a_fault(posts, change, fault):
    make(posts)
    posts.execute(change)
    found = posts.execute(
        "SELECT detail FROM hashindex.health('posts_idx') WHERE check_name = 'table'"
    )
    (detail,) = found.fetchone()
    assert detail.startswith(fault or "table, column, key and codes are there")


def test_names_that_need_quotes_and_values_of_many_types(connection, items, model):
    connection.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'a "happy" one');
        CREATE DOMAIN word AS text CHECK (value <> '');
        CREATE TABLE "Po%sts ""x"" y" (
            "Ten%ant ""x"" y" word, "Id of {it}" uuid, "ID_1" mood, "order" numeric, "c" "char",
            at timestamptz, embedding vector(8),
            PRIMARY KEY ("Ten%ant ""x"" y", "Id of {it}", "ID_1", "order", "c", at)
        );
        INSERT INTO "Po%sts ""x"" y" SELECT category || '"\\ %s', gen_random_uuid(),
            'a "happy" one', id / 7.0, 'c', 'infinity', embedding FROM items;
        """
    )
    index = make(connection, "lists", table='"Po%sts ""x"" y"')
    assert_fresh(index)
    connection.execute(
        'UPDATE "Po%%sts ""x"" y" SET embedding = %s, "order" = -"order" '
        'WHERE "Ten%%ant ""x"" y" LIKE \'a%%\'',
        [vector(1)],
    )
    assert_fresh(index)
    columns = '"Ten%%ant ""x"" y", "Id of {it}", "ID_1", "order", "c", at::text'
    expected = connection.execute(
        f'SELECT {columns} FROM "Po%%sts ""x"" y" '
        f"ORDER BY embedding <-> %s, {columns} LIMIT 5".encode(),
        [vector(2)],
    ).fetchall()
    found = connection.execute(
        f"SELECT {columns} FROM hashindex.search_posts_idx(%s, 5, 300, 1000)".encode(), [vector(2)]
    ).fetchall()
    assert found == expected
    keys = connection.execute(
        "SELECT hashindex.code_of('posts_idx', id) "
        "FROM hashindex.search('posts_idx', %s, 5, filter => $$\"order\" < 0$$)",
        [vector(2)],
    ).fetchall()
    assert None not in [row[0] for row in keys]
    assert len(keys) == 5
    connection.execute("SELECT hashindex.drop_index('posts_idx')")
    assert objects(connection) == set()


VALUES = {
    "money": "id::text::money",
    "bytea": "int8send(id)",
    "inet": "('10.0.0.' || id % 250)::inet",
    "float8": "id / 3.0",
    "real": "id / 7.0",
    "bit(3)": "(id % 8)::integer::bit(3)",
    "interval": "id * interval '1.5 day'",
    "char(3)": "id::text",
    "varchar(5)": "'a' || id",
    "boolean": "id % 2 = 0",
    "date": "date '2020-01-01' + id::integer",
    "time": "'12:00'",
    "timetz": "'12:00+9'",
    "timestamp": "'-infinity'",
    "jsonb": """(ARRAY['null', '"a"', '[1]', '0.10'])[id % 4 + 1]::jsonb""",
    "name": "'n' || id",
    "numeric": "'NaN'",
    "macaddr": "'08:00:2b:01:02:03'",
    "pg_lsn": "(id || '/0')::pg_lsn",
    "xid8": "id::text::xid8",
}


def test_values_of_every_kind_survive_as_text(connection, items, model):
    """Searches with a filter, and code_of, have keys as text."""
    columns = ", ".join(f"k{n} {kind}" for n, kind in enumerate(VALUES))
    names = ", ".join(f"k{n}" for n in range(len(VALUES)))
    texts = ", ".join(f"k{n}::text" for n in range(len(VALUES)))
    connection.execute("SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Tokyo'")
    connection.execute(
        f"CREATE TABLE posts ({columns}, number bigint, embedding vector(8), "
        f"PRIMARY KEY (number, {names}));"
        f"INSERT INTO posts SELECT {', '.join(VALUES.values())}, id, embedding FROM items".encode()
    )
    index = make(connection)
    connection.execute("UPDATE posts SET embedding = embedding + embedding WHERE number < 20")
    connection.execute("UPDATE posts SET number = number + 1000 WHERE number < 5")
    connection.execute("DELETE FROM posts WHERE number BETWEEN 31 AND 40")
    assert_fresh(index)
    every = "FROM posts ORDER BY embedding <-> %s"
    expected = connection.execute(f"SELECT number, {texts} {every}".encode(), [vector(1)])
    found = connection.execute(
        f"SELECT number, {texts} "
        "FROM hashindex.search_posts_idx(%s, 290, filter => 'true')".encode(),
        [vector(1)],
    )
    assert found.fetchall() == expected.fetchall()
    (codes,) = connection.execute(
        "SELECT count(hashindex.code_of('posts_idx', id)) "
        "FROM hashindex.exact_search('posts_idx', %s, 300)",
        [vector(1)],
    ).fetchone()
    assert codes == 290
    found = index.search(vector(1), k=290)
    assert len({tuple(hit.id) for hit in found}) == 290
    for hit in found[:4]:
        assert index.search_like(hit.id, k=1)[0].id != hit.id


def test_keys_are_the_same_by_the_collation_of_their_columns(posts):
    posts.execute(
        """
        CREATE COLLATION mine FROM "C";
        ALTER TABLE posts ADD slug text COLLATE mine;
        UPDATE posts SET slug = 'Row ' || id;
        ALTER TABLE posts DROP CONSTRAINT posts_pkey, ADD PRIMARY KEY (tenant_id, slug)
        """
    )
    index = make(posts)
    posts.execute("UPDATE posts SET slug = upper(slug), embedding = %s WHERE id < 20", [vector(1)])
    assert_fresh(index)
    posts.execute("DELETE FROM posts WHERE slug = 'Row 30'")
    assert index.summary().codes == 297
    found = posts.execute("SELECT slug FROM hashindex.search_posts_idx(%s, 300, 300)", [vector(1)])
    assert len(found.fetchall()) == 297


@pytest.mark.parametrize("name", ["distance", "query", "k", "n", "filter", "radius"])
def test_a_column_with_the_name_of_an_argument(posts, name):
    posts.execute(f"ALTER TABLE posts RENAME id TO {name}".encode())
    index = make(posts, "lists")
    posts.execute(f"UPDATE posts SET embedding = %s WHERE {name} < 5".encode(), [vector(1)])
    assert_fresh(index)
    read = f"SELECT tenant_id, {name} FROM posts ORDER BY embedding <-> %s, 1, 2 LIMIT 5"
    expected = posts.execute(read.encode(), [vector(1)]).fetchall()
    for more in ("300, 1000", "300, filter => 'true'"):
        found = posts.execute(
            f"SELECT tenant_id, id_2 FROM hashindex.search_posts_idx(%s, 5, {more})".encode(),
            [vector(1)],
        )
        assert found.fetchall() == expected
    assert [hit.id for hit in index.search(vector(1), 5, candidates=300)] == expected
    read = "SELECT id FROM hashindex.within('posts_idx', %s, 12)"
    assert len(posts.execute(read.encode(), [vector(1)]).fetchall()) == 300


@pytest.mark.parametrize(
    ("before", "key", "says"),
    [
        (
            "",
            ["tenant_id", "category"],
            'columns "tenant_id" and "category" of public.posts are not a key',
        ),
        (
            "ALTER TABLE posts DROP CONSTRAINT posts_pkey, ADD UNIQUE (tenant_id, id), "
            "ALTER id DROP NOT NULL",
            ["tenant_id", "id"],
            'columns "tenant_id" and "id" of public.posts are not a key: they must be NOT NULL',
        ),
        (
            "ALTER TABLE posts ADD parts integer[] NOT NULL DEFAULT '{}', "
            "ADD UNIQUE (id, tenant_id, parts)",
            ["tenant_id", "id", "parts"],
            'key "parts" of public.posts is of type integer[], an array',
        ),
        (
            "CREATE TYPE span AS RANGE (subtype = float8); "
            "ALTER TABLE posts ADD span span NOT NULL DEFAULT '[1,2]', "
            "ADD UNIQUE (id, tenant_id, span)",
            ["tenant_id", "id", "span"],
            'key "span" of public.posts is of type public.span, which is not built in',
        ),
    ],
)
def test_bad_input(posts, before, key, says):
    if before:
        posts.execute(before.encode())
    with pytest.raises((HashIndexError, psycopg.Error), match=re.escape(says)):
        make(posts, key_columns=key)
    assert objects(posts) == set()


def test_the_key_has_the_order_of_its_index(posts):
    posts.execute("ALTER TABLE posts ADD UNIQUE (id, tenant_id)")
    assert make(posts, key_columns=["id", "tenant_id"]).row.key_columns == ["id", "tenant_id"]
    posts.execute("SELECT hashindex.drop_index('posts_idx')")
    posts.execute("ALTER TABLE posts DROP CONSTRAINT posts_id_tenant_id_key")
    assert make(posts, key_columns=["id", "tenant_id"]).row.key_columns == ["tenant_id", "id"]


def test_a_reader_needs_every_column_of_the_key(posts, as_role):
    reader = as_role("reads_keys")
    posts.execute("GRANT SELECT (id, embedding) ON posts TO reads_keys")
    make(posts)
    with pytest.raises(
        psycopg.Error, match='may not read columns "tenant_id", "id" and "embedding"'
    ):
        posts.execute("SELECT hashindex.grant_reader('posts_idx', 'reads_keys')")
    posts.execute("GRANT SELECT (tenant_id) ON posts TO reads_keys")
    posts.execute("SELECT hashindex.grant_reader('posts_idx', 'reads_keys')")
    found = reader.execute(
        "SELECT tenant_id, id FROM hashindex.search_posts_idx(%s, 5, 300)", [vector(2)]
    ).fetchall()
    assert found == nearest(posts, vector(2), 5)


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        (["note_id"], ["note_id"]),
        (["Note Id"], ["Note Id"]),
        (["k"], ["id"]),
        (["$1"], ["id"]),
        (["query", "id_1"], ["id_1_", "id_1"]),
        (["id_2", "k"], ["id_2", "id_2_"]),
        (["distance", "id_1"], ["id_1_", "id_1"]),
        (["$1", "x"], ["id_1", "x"]),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_answers_have_the_key_s_own_names(connection, items, model, key, answer, kind):
    named = [sql.Identifier(name) for name in key]
    columns = sql.SQL(", ").join(named)
    connection.execute(
        sql.SQL("CREATE TABLE posts ({}, embedding vector(8), PRIMARY KEY ({}))").format(
            sql.SQL(", ").join([name + sql.SQL(" bigint") for name in named]), columns
        )
    )
    connection.execute(
        sql.SQL("INSERT INTO posts ({}, embedding) SELECT {}embedding FROM items").format(
            columns, sql.SQL("id, " * len(key))
        )
    )
    index = make(connection, kind)
    found = connection.execute("SELECT * FROM hashindex.search_posts_idx(%s, 5)", [vector(1)])
    assert [column.name for column in found.description] == [*answer, "distance"]
    whole = [(hit.id, hit.distance) for hit in index.search(vector(1), 5, candidates=300)]
    connection.execute("SELECT hashindex.rebuild_functions()")
    condition = sql.SQL("{} > 0").format(named[0]).as_string()
    filtered = index.search(vector(1), 5, candidates=300, filter=condition)
    assert [(hit.id, hit.distance) for hit in filtered] == whole
    assert index.search_like(whole[0][0], 4)


def test_a_key_s_type_is_no_table_s_row(posts):
    """The codes of index posts are in table posts_codes."""
    posts.execute(
        "CREATE TABLE others AS TABLE posts; ALTER TABLE others ADD PRIMARY KEY (id, tenant_id)"
    )
    named = {"table": "others", "column": "embedding", "model": "lsh"}
    for name in ("key_a", "a_codes", "a", "a_key"):
        begin_lists(posts, name, **named).encode()
    assert_fresh(HashIndex.open(posts, "a_codes"))
    for name in ("key_a", "a_codes", "a", "a_key"):
        posts.execute("SELECT hashindex.drop_index(%s)", [name])
    assert objects(posts) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_type_and_orphans(posts, kind):
    index = make(posts, kind)
    posts.execute("DROP TYPE hashindex.posts_idx_key CASCADE")
    (detail,) = posts.execute(
        "SELECT detail FROM hashindex.health('posts_idx') WHERE check_name = 'functions'"
    ).fetchone()
    assert "type hashindex.posts_idx_key is missing" in detail
    assert "recreated the functions" in operations.repair(index).done
    posts.execute("SELECT hashindex.rebuild_functions()")
    posts.execute("UPDATE posts SET embedding = %s WHERE id = 1", [vector(1)])
    assert_fresh(index)
    (owner,) = posts.execute(
        "SELECT t.typowner = n.nspowner FROM pg_type t "
        "JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typname = 'posts_idx_key'"
    ).fetchone()
    assert owner
    posts.execute("DELETE FROM hashindex.index WHERE name = 'posts_idx'")
    orphans = posts.execute("SELECT kind, object FROM hashindex.orphans()").fetchall()
    assert ("type", "hashindex.posts_idx_key") in orphans
    posts.execute("SELECT hashindex.drop_orphans()")
    assert objects(posts) == set()
