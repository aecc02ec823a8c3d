"""Searches with filters answer as a plain query with the same WHERE does, whichever way they go."""

import json

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.filters import look_codes_up
from fixtures.indexes import create_index, indexed, with_access
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.filter_text import filter_text
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

ROWS = 400
QUERY = np.random.default_rng(3).standard_normal(8).astype(np.float32)

FILTERS = [
    "category = 'a'",
    "category IN ('a', 'c') AND price < 50",
    "category IS NULL",
    "category IS NOT NULL AND mood IS NULL",
    "category IS DISTINCT FROM 'b'",
    "NOT (category = 'a')",
    "price BETWEEN 10 AND 30",
    "shop.price % 7 = 3",
    "price + 1 > 60 OR sold < '2024-01-20'",
    "sold >= date '2024-02-01'",
    "extract(month FROM sold) = 1",
    "mood = 'sad'",
    "mood > 'sad'",
    "info ->> 'n' = '3'",
    "id < 50",
    "id = 7",
    "true",
    "false",
    "NULL",
    "note LIKE 'note 1%'",
    "category = 'a' AND note LIKE '%3'",
    "tags @> ARRAY['x']",
    "vector_norm(embedding) < 2.5 AND category = 'a'",
    # The row as a whole.
    "shop IS NOT NULL",
    "NOT (shop IS NOT NULL)",
    "to_jsonb(shop) ? 'note'",
    "(shop.*)::text LIKE '%note 3%'",
    "shop.ctid IS NOT NULL",
    "category = 'a' AND \"shop\" IS NOT NULL",
    # Other tables, comments, quotes, percents and braces.
    "id IN (SELECT id FROM liked)",
    "EXISTS (SELECT FROM liked l WHERE l.id = shop.id AND l.category = shop.category)",
    "category = (SELECT 'a')",
    "category = 'a' -- and no more",
    "category = 'a' /* or 'b' */",
    "note <> '%s %I %% $1 {table} $body$ '' --'",
    "category LIKE '%a%' AND category <> '%1$s'",
    "category <> E'\\n);' OR false",
    "public.is_cheap(price)",
    "is_cheap(price)",
]


@pytest.fixture
def shop(connection, vectors, model):
    """400 rows with columns of several types, some of them NULL; twenty rows without a vector."""
    connection.execute(
        """
        CREATE TYPE mood AS ENUM ('happy', 'sad', 'angry');
        CREATE TABLE shop (
            id bigint PRIMARY KEY, category text, price int, sold date, mood mood, info json,
            note varchar(40), tags text[], embedding vector(8)
        );
        CREATE TABLE liked (id bigint, category text);
        INSERT INTO liked SELECT n, chr(97 + n % 3) FROM generate_series(1, 400, 5) n;
        CREATE FUNCTION is_cheap(price int) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN price < 20
        """
    )
    rng = np.random.default_rng(1)
    with connection.cursor() as cursor, cursor.copy("COPY shop FROM STDIN") as copy:
        for n in range(ROWS):
            copy.write_row(
                (
                    n + 1,
                    None if n % 11 == 0 else "abc"[n % 3],
                    None if n % 13 == 0 else int(rng.integers(100)),
                    None if n % 17 == 0 else f"2024-0{1 + n % 3}-{10 + n % 19}",
                    None if n % 5 == 0 else ("happy", "sad", "angry")[n % 3],
                    json.dumps({"n": n % 4}),
                    f"note {n}",
                    ["x", "y"] if n % 2 else [],
                    None if n % 20 == 19 else Vector(rng.standard_normal(8)),
                )
            )
    connection.execute("ANALYZE shop")
    return "shop"


@pytest.fixture(params=["scan", "lists"])
def index(request, connection, shop):
    """An index of every access path."""
    indexed(connection, "shop_idx", table=shop, access=request.param)
    return HashIndex.open(connection, "shop_idx")


def plain(connection, condition, k=10):
    """The answers of PostgreSQL alone."""
    return connection.execute(
        f"SELECT id, embedding <-> $1 AS distance FROM shop WHERE "
        f"embedding IS NOT NULL AND ({condition}\n) "
        "ORDER BY distance, id LIMIT $2".replace("%", "%%")
        .replace("$1 AS", "%s AS")
        .replace("LIMIT $2", "LIMIT %s")
        .encode(),
        [Vector(QUERY), k],
    ).fetchall()


def by_sql(connection, k=10, **asked):
    names = ", ".join(f"{name} => %({name})s" for name in asked)
    return connection.execute(
        f"SELECT id::bigint, distance FROM hashindex.search("
        f"'shop_idx', %(query)s, %(k)s, {names})".encode(),
        {"query": Vector(QUERY), "k": k, **asked},
    ).fetchall()


def test_filters_of_every_kind(connection, index):
    """With all rows as candidates the answers are exact, by codes and by rows."""
    for codes_first in (False, True):
        if codes_first:
            look_codes_up(connection)
        for condition in FILTERS:
            wanted = plain(connection, condition)
            for candidates in (1000, 40):
                found = by_sql(connection, filter=condition, candidates=candidates)
                if candidates == 1000:
                    assert found == wanted, (condition, codes_first)
                # Fewer candidates: as many answers, and of the right rows.
                assert len(found) == len(wanted), (condition, codes_first)
                assert set(found) <= set(plain(connection, condition, 1000)), condition
            assert index.search(QUERY, filter=condition, candidates=1000) == wanted, condition


def test_columns_that_equal_values(connection, index):
    cases = [
        ({"category": "a"}, "category = 'a'"),
        ({"category": None}, "category IS NULL"),
        ({"category": "a", "price": 30}, "category = 'a' AND price = 30"),
        ({"price": 30.0}, "price = 30"),
        ({"sold": "2024-01-22"}, "sold = '2024-01-22'"),
        ({"mood": "sad", "category": "b"}, "mood = 'sad' AND category = 'b'"),
        ({"mood": None}, "mood IS NULL"),
        ({"note": "note 7"}, "note = 'note 7'"),
        ({"category": "a", "note": "note 3"}, "category = 'a' AND note = 'note 3'"),
        ({"category": "it's %s $body$ {table} --"}, "false"),
        ({}, "true"),
    ]
    for codes_first in (False, True):
        if codes_first:
            look_codes_up(connection)
        for values, condition in cases:
            wanted = plain(connection, condition)
            given = json.dumps(values)
            assert by_sql(connection, where_equals=given, candidates=1000) == wanted, condition
            both = by_sql(
                connection, where_equals=given, filter="id > 20 OR id < 9 -- x", candidates=1000
            )
            assert both == plain(connection, f"({condition}) AND (id > 20 OR id < 9)"), condition
    assert by_sql(connection, filter=None, candidates=1000) == plain(connection, "true")


def test_a_filter_that_few_rows_pass(connection, index):
    """All of them are found, however few candidates there are."""
    look_codes_up(connection)
    for condition in ("id % 50 = 3", "price = 30 AND category = 'b'", "category = 'none'"):
        found = by_sql(connection, filter=condition, candidates=10)
        assert found == plain(connection, condition)


REFUSED = {
    "category =": "42601",
    "": "42601",
    "-- nothing": "42601",
    "category = 'a": "42601",
    "category = 'a')": "42601",
    "(category = 'a'": "42601",
    "category = 'a'; DROP TABLE shop": "42601",
    "true)); DROP TABLE shop; SELECT ((true": "42",
    "true)) UNION SELECT id, 1 FROM shop WHERE ((true": "42601",
    "true) UNION ALL (SELECT 1": "42601",
    "wrong = 1": "42703",
    "other.category = 'a'": "42P01",
    "category + 1": "42883",
    "nothing(category)": "42883",
    "category": "42804",
    "price = 'many'": "22P02",
    "mood = 'none'": "22P02",
    "sold = 'yesterdaze'": "22007",
    "price / 0 = 1": "22012",
    "count(*) > 1": "42803",
    "rank() OVER () = 1": "42P20",
    "category = $1": "42",
    "category = :value": "42601",
    "id IN (SELECT id FROM nowhere)": "42P01",
    "hashindex_distance < 3": "42703",
}


def test_invalid_filters(connection, index):
    """One error that names what is wrong, whichever way the search would go; and no harm."""
    for codes_first in (False, True):
        if codes_first:
            look_codes_up(connection)
        for condition, state in REFUSED.items():
            with pytest.raises(psycopg.Error) as caught:
                by_sql(connection, filter=condition)
            assert (caught.value.sqlstate or "").startswith(state), (condition, caught.value)
            with pytest.raises(InvalidInputError):
                index.search(QUERY, filter=condition)
    for given, message in (
        ('["a"]', "not a JSON object"),
        ('{"wrong": 1}', "column shop.wrong does not exist"),
        ('{"category": ["a"]}', 'cannot compare column "category" with'),
        ('{"price": "many"}', "invalid input syntax"),
    ):
        with pytest.raises(psycopg.Error, match=message) as caught:
            by_sql(connection, where_equals=given)
        assert (caught.value.sqlstate or "")[:2] in {"22", "42"}
    assert connection.execute("SELECT count(*) FROM shop").fetchone() == (ROWS,)


def test_functions_that_are_not_stable(connection, index):
    """They are run as the caller, as in a query of his own."""
    connection.execute(
        "CREATE SEQUENCE calls; CREATE FUNCTION counted(text) RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM nextval('calls'); RETURN $1 = 'a'; END $$"
    )
    for codes_first in (False, True):
        if codes_first:
            look_codes_up(connection)
        found = by_sql(connection, filter="counted(category)", candidates=1000)
        assert found == plain(connection, "category = 'a'")
        assert len(by_sql(connection, filter="random() < 2", candidates=1000)) == 10
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            found = by_sql(connection, filter="category = 'a'", candidates=1000)
        assert found == plain(connection, "category = 'a'")


def test_filters_see_the_table_as_it_is(connection, index):
    for statement in (
        "UPDATE shop SET category = 'new' WHERE id < 20",
        "UPDATE shop SET price = NULL, mood = 'angry' WHERE id BETWEEN 15 AND 30",
        "UPDATE shop SET info = NULL WHERE id = 3",
        "UPDATE shop SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id IN (20, 40, 60)",
        "UPDATE shop SET embedding = NULL WHERE id = 41",
        "UPDATE shop SET id = id + 1000, category = 'moved' WHERE id < 5",
        "INSERT INTO shop (id, category, sold, embedding) "
        "VALUES (2000, 'in', '2025-01-01', '[1,1,1,1,1,1,1,1]')",
        "DELETE FROM shop WHERE id = 77",
    ):
        connection.execute(statement.encode())
    look_codes_up(connection)
    for condition in ("category = 'new'", "price IS NULL", "category = 'in'", "info IS NULL"):
        assert by_sql(connection, filter=condition, candidates=1000) == plain(connection, condition)
    assert_fresh(index)
    assert operations.check(index, full=True).status == "ok"


def test_a_column_that_is_dropped(connection, index):
    look_codes_up(connection)
    connection.execute("ALTER TABLE shop DROP COLUMN price")
    for condition in ("category = 'a'", "note LIKE 'note 1%'"):
        assert by_sql(connection, filter=condition, candidates=1000) == plain(connection, condition)
    with pytest.raises(psycopg.errors.UndefinedColumn, match="price"):
        by_sql(connection, filter="price > 3")
    connection.execute("INSERT INTO shop (id, embedding) VALUES (2000, '[1,1,1,1,1,1,1,1]')")
    assert_fresh(index)


def test_a_column_whose_type_changes(connection, index):
    look_codes_up(connection)
    connection.execute(
        "ALTER TABLE shop ALTER category TYPE int USING ascii(category), "
        "ALTER sold TYPE timestamp USING sold + time '12:00'"
    )
    for condition in (
        "category = 97",
        "category = '097'",
        "sold > '2024-02-11 11:00'",
        "price < 9",
    ):
        assert by_sql(connection, filter=condition, candidates=1000) == plain(connection, condition)


def test_an_alternative_beside_a_filter_stays_within_it(connection, index):
    price = sa.column("price")
    alternatives = sa.or_(price < 30, price > 60)
    found = index.search(QUERY, 400, filter="category = 'a'", where=alternatives)
    assert [hit.id for hit in found] == [
        key for key, _ in plain(connection, "category = 'a' AND (price < 30 OR price > 60)", 400)
    ]


def test_columns_of_odd_names(connection, model):
    """In a table of one."""
    names = ['a"b', "%s", "$body$", "{table}", "it's", "select", "tenant", "code", "landmark"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    columns = ", ".join(f"{name} int" for name in quoted)
    connection.execute(
        f'CREATE TABLE "sh""op %s" (id bigint PRIMARY KEY, {columns}, v vector(8))'.encode()
    )
    index = create_index(connection, "N-1", table='"sh""op %s"', column="v")
    connection.execute(
        f'INSERT INTO "sh""op %s" SELECT n, {", ".join(["n % 7"] * len(names))}, '
        "ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(1, 70) n".encode()
    )
    look_codes_up(connection)
    for access in ("scan", "lists"):
        index = with_access(index, access)  # type: ignore[arg-type]
        index.encode()
        index = HashIndex.open(connection, index.name)
        assert index.access == access
        for name in quoted:
            for condition in (
                f"{name} = 3",
                f'"sh""op %s".{name} = 3',
                f'{name} = 3 AND "sh""op %s" IS NOT NULL',
            ):
                hits = index.search(QUERY, 70, filter=condition, candidates=1000)
                assert sorted(hit.id for hit in hits) == list(range(3, 71, 7)), condition
    connection.execute(f'UPDATE "sh""op %s" SET {quoted[0]} = 9 WHERE id < 3'.encode())
    assert {hit.id for hit in index.search(QUERY, filter=f"{quoted[0]} = 9")} == {1, 2}


@pytest.mark.newest
def test_a_table_that_is_named_as_our_aliases(connection, items, model):
    """Its missing column is the caller's fault, not an old schema's."""
    connection.execute("ALTER TABLE items RENAME TO i")
    index = indexed(connection, "i_idx", table="i")
    with pytest.raises(InvalidInputError, match=r"column i\.absent does not exist"):
        index.search(np.ones(8), filter="i.absent = 1")


def test_filters_that_name_the_table(connection, items, model):
    """By its name before a column, as a whole row, or as text in a value."""
    connection.execute("ALTER TABLE items RENAME TO cat")
    index = indexed(connection, "cats", table="cat")
    cat = sa.Table("cat", sa.MetaData(), sa.Column("category", sa.Text), schema="public")
    for condition in (
        "cat.category = 'a'",
        "\"cat\" . category = 'a'",
        "category = 'a' AND cat IS NOT NULL",
        "category = 'a' AND (CAT.*) IS NOT NULL",
        "public.cat.category = 'a'",
        filter_text(connection, cat.c.category == "a", "cat", "public.cat"),
        "category = 'a' AND (public.cat.*) IS NOT NULL",
        "category = 'a' AND category <> 'it''s a cat'",
        "category = 'a' AND category <> E'\\' or a cat'",
        "category = 'a' /* ' */ AND cat IS NOT NULL /* ' */",
        "category = 'a' AND category <> $$'$$ AND cat IS NOT NULL AND category <> $$'$$",
        "category = 'a' AND (SELECT public.cat.id > 0)",
        "category = 'a' AND (SELECT cat IS NOT NULL)",
        "category = 'a' AND EXISTS (SELECT FROM pg_class LIMIT length(cat::text))",
        "category = 'a' AND to_jsonb(cat) ? 'embedding'",
    ):
        assert {h.id % 3 for h in index.search(QUERY, filter=condition, candidates=300)} == {1}


def test_operators_of_an_extension(connection, items, model):
    """The = of a column is found by the caller's path."""
    connection.execute(
        """
        CREATE TYPE citext;
        CREATE FUNCTION citext_in(cstring) RETURNS citext LANGUAGE internal IMMUTABLE AS 'textin';
        CREATE FUNCTION citext_out(citext) RETURNS cstring LANGUAGE internal IMMUTABLE AS 'textout';
        CREATE TYPE citext (INPUT = citext_in, OUTPUT = citext_out, LIKE = text, CATEGORY = 'S',
            COLLATABLE = true);
        CREATE CAST (citext AS text) WITHOUT FUNCTION AS IMPLICIT;
        CREATE CAST (text AS citext) WITHOUT FUNCTION AS ASSIGNMENT;
        CREATE FUNCTION same(citext, citext) RETURNS boolean IMMUTABLE
            RETURN lower($1::text) = lower($2::text);
        CREATE OPERATOR = (LEFTARG = citext, RIGHTARG = citext, FUNCTION = same);
        ALTER TABLE items ALTER category TYPE citext
            USING CASE id % 2 WHEN 0 THEN upper(category) ELSE category END
        """
    )
    index = indexed(connection)
    look_codes_up(connection)
    hits = index.search(QUERY, 100, filter="category = 'a'", candidates=300)
    assert sorted(hit.id for hit in hits) == list(range(1, 301, 3))


def test_numbers_that_a_literal_does_not_equal(connection, items, model):
    """0.1 of type real is not the double precision 0.1, and money compares with no number."""
    connection.execute("ALTER TABLE items ADD weight real DEFAULT 0.1, ADD price money DEFAULT 1.5")
    indexed(connection)
    for values in ({"weight": 0.1}, {"price": 1.5}):
        found = connection.execute(
            "SELECT id FROM hashindex.search('items_idx', %s, where_equals => %s)",
            [Vector(QUERY), json.dumps(values)],
        ).fetchall()
        assert len(found) == 10, values


def test_a_role_that_may_not_read_codes(connection, items, model):
    """It pays for one exact search, and not for batches of candidates in exact order."""
    index = indexed(connection)
    look_codes_up(connection)
    exact = index.search(QUERY, filter="category = 'a'", candidates=300)
    connection.execute(
        "CREATE ROLE filtering; GRANT SELECT ON items TO filtering; "
        "SELECT hashindex.revoke_reader('items_idx', 'filtering'); "
        "DROP FUNCTION hashindex._asymmetric_codes; SET ROLE filtering"
    )
    assert index.search(QUERY, filter="category = 'a'") == exact
