"""No search answers with fewer rows than there are, whatever happened to the codes."""

import threading

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.faults import eventually
from fixtures.indexes import create_index, without_codes
from pgvector import Vector

from pg_hashindex.db.connection import connect
from pg_hashindex.db.work import Work
from pg_hashindex.errors import DatabaseStateError, HashIndexError
from pg_hashindex.index.handle import HashIndex

SEARCHES = (
    "SELECT id::bigint, distance FROM hashindex.search_items_idx(%(q)s, 10)",
    "SELECT id::bigint, distance FROM hashindex.search('items_idx', %(q)s, 10)",
    "SELECT id::bigint, distance FROM hashindex.search('items_idx', %(q)s, filter => 'id > 0')",
    "SELECT id::bigint, distance FROM hashindex.search_items_idx(%(q)s, filter => 'id > 0')",
    "SELECT id::bigint, distance FROM hashindex.hybrid('items_idx', %(q)s, '', 'category')",
)
EXACT = "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %(q)s)"


def assert_exact(connection, query):
    values = {"q": Vector(query)}
    exact = connection.execute(EXACT, values).fetchall()
    assert len(exact) == 10
    for search in SEARCHES:
        assert connection.execute(search.encode(), values).fetchall() == exact, search


@pytest.mark.parametrize("access", ["scan", "lists"])
@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (False, 'index "items_idx" has no set in use'),
        (True, 'index "items_idx" is not yet encoded'),
    ],
    ids=["not built", "codes lost"],
)
def test_an_index_that_is_not_encoded(connection, items, model, vectors, access, lost, message):
    index = create_index(connection, access=access)
    if lost:
        index.encode()
        index = without_codes(index)
    assert not index.encoded
    assert_exact(connection, -vectors[0])
    # Rows that are written now have codes, and others have none.
    connection.execute("UPDATE items SET embedding = embedding WHERE id % 9 = 0")
    connection.execute(
        "INSERT INTO items SELECT id + 300, category, embedding + embedding FROM items"
    )
    assert_exact(connection, -vectors[0])
    with pytest.raises(DatabaseStateError, match=message):
        index.within(vectors[0], 2)
    index.encode()
    index = HashIndex.open(connection, "items_idx")
    assert index.encoded
    assert index.access == access
    assert index.within(vectors[0], 0)
    assert_fresh(index)


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_a_first_encode_that_was_cut_off(
    connection, items, model, vectors, access,
    monkeypatch
):  # fmt: skip
    index = create_index(connection, access=access)

    def cut(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Work, "advance", cut)
        index.encode(batch_rows=50)
    assert not HashIndex.open(connection, "items_idx").encoded
    assert_exact(connection, -vectors[0])
    index.encode()
    assert HashIndex.open(connection, "items_idx").encoded


def test_a_table_that_is_still_empty(connection, items, model):
    """Triggers encode whatever comes, so there is nothing to wait for."""
    connection.execute("CREATE TABLE kept AS TABLE items; TRUNCATE items")
    index = create_index(connection)
    assert index.encoded
    connection.execute("INSERT INTO items TABLE kept")
    assert_fresh(index)


def test_a_swap_takes_over_what_is_encoded(index, model):
    index.swap(model="lsh", force=True, access="lists")
    index = HashIndex.open(index.connection, index.name)
    assert index.access == "lists"
    assert index.encoded


def test_codes_that_are_missing(index, connection, vectors):
    """As after a restore with triggers off."""
    connection.execute("SET session_replication_role = replica")
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id > 5")
    connection.execute("RESET session_replication_role")
    assert_exact(connection, vectors[0])


@pytest.mark.parametrize("how", ["search", "filtered", "detached"])
def test_a_table_that_is_filled_again_while_a_search_waits(url, connection, index, vectors, how):
    """Its snapshot sees neither the rows of before nor those of after."""
    search = {
        "search": "SELECT count(*) FROM hashindex.search_items_idx(%s, 10)",
        "filtered": "SELECT count(*) FROM hashindex.search('items_idx', %s, filter => 'id > 0')",
        "detached": "SELECT count(*) FROM hashindex.exact_search('items_idx', %s)",
    }[how]
    connection.execute("CREATE TABLE kept AS TABLE items")
    failures = []

    def ask(session):
        try:
            session.execute(search.encode(), [Vector(vectors[0])])
        except psycopg.Error as error:
            failures.append(error)

    with connect(url) as searching:
        thread = threading.Thread(target=ask, args=[searching])
        with connection.transaction():
            connection.execute("TRUNCATE items; INSERT INTO items TABLE kept")
            thread.start()
            waiting = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
            pid = [searching.info.backend_pid]
            eventually(lambda: connection.execute(waiting, pid).rowcount > 0)
        thread.join(30)
        assert [error.sqlstate for error in failures] == ["40001"]
        assert searching.execute(search.encode(), [Vector(vectors[0])]).fetchone() == (10,)


def test_python_asks_again_where_the_table_was_filled_again(url, connection, index, vectors):
    connection.execute("CREATE TABLE kept AS TABLE items")
    found = []
    with connect(url) as searching:
        other = HashIndex.open(searching, index.name)
        other.search(vectors[0])

        def ask():
            try:
                found.append(len(other.search(vectors[0])))
            except HashIndexError as error:
                found.append(error)

        thread = threading.Thread(target=ask)
        with connection.transaction():
            connection.execute("TRUNCATE items; INSERT INTO items TABLE kept")
            thread.start()
            waiting = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
            pid = [searching.info.backend_pid]
            eventually(lambda: connection.execute(waiting, pid).rowcount > 0)
        thread.join(30)
    assert found == [10]


def test_a_table_that_is_emptied_and_stays_empty(connection, index, vectors):
    connection.execute("TRUNCATE items")
    assert index.search(vectors[0]) == []
    assert index.search(vectors[0], filter="id > 0") == []


def test_typed_keys_with_filters(connection, index, vectors):
    values = {"q": Vector(vectors[0])}
    exact = connection.execute(
        "SELECT id, category FROM items WHERE category = 'a' AND id > 9 "
        "ORDER BY embedding <-> %(q)s, id LIMIT 5",
        values,
    ).fetchall()
    for arguments in (
        "5, filter => $$category = 'a' AND id > 9$$",
        """k => 5, filter => 'id > 9', where_equals => '{"category": "a"}'""",
        """5, filter => 'items.id > 9 -- x', where_equals => '{"category": "a"}'""",
    ):
        found = connection.execute(
            f"SELECT id, i.category FROM hashindex.search_items_idx(%(q)s, {arguments}) s "
            "JOIN items i USING (id) ORDER BY s.distance, id".encode(),
            values,
        ).fetchall()
        assert found == exact, arguments


def test_a_filter_cannot_cancel_the_columns_that_are_to_equal_values(connection, index, vectors):
    for condition in (
        "true)) OR ((true",
        "true) OR (true",
        "(true",
        "true) --",
        "true UNION SELECT",
    ):
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute(
                "SELECT * FROM hashindex.search('items_idx', %s, filter => %s, "
                """where_equals => '{"category": "a"}')""",
                [Vector(vectors[0]), condition],
            )


def test_columns_that_are_to_equal_values_are_columns(connection, index, vectors):
    """To PostgreSQL items.shout is shout(items), if there is no such column."""
    connection.execute(
        "CREATE FUNCTION shout(items) RETURNS text LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION ''called''; END'"
    )
    with pytest.raises(psycopg.errors.UndefinedColumn, match=r"column items\.shout does not exist"):
        connection.execute(
            """SELECT * FROM hashindex.search('items_idx', %s, where_equals => '{"shout": "x"}')""",
            [Vector(vectors[0])],
        )


@pytest.mark.reads
@pytest.mark.parametrize(
    "query",
    [
        "%(q)s::vector",
        "%(q)s::vector::halfvec",
        "%(list)s",
        "%(list)s::real[]",
        "'{text}'",
        "%(text)s",
    ],
)
def test_a_query_in_any_form(connection, index, vectors, query):
    numbers = [1.0, 2.0, 0.5, -3.0, 0.0, 1.5, -0.25, 4.0]
    text = str(numbers)
    values = {"q": Vector(numbers), "list": numbers, "text": text}
    for search in (
        "search_items_idx({}, 3)",
        "search_items_idx({}, 3, filter => 'id > 0')",
        "search('items_idx', {}, 3)",
        "exact_search('items_idx', {}, 3)",
        "hybrid('items_idx', {}, 'a', 'category', 3)",
        "candidates('items_idx', {}, 3)",
        "within('items_idx', {}, 3)",
    ):
        statement = "SELECT * FROM hashindex." + search
        found = connection.execute(
            statement.format(query.replace("{text}", text)).encode(), values
        ).fetchall()
        assert found == connection.execute(statement.format("%(q)s").encode(), values).fetchall()
        assert found


def test_a_query_that_is_not_a_vector(connection, index):
    for query, message in (
        ("'{}'", "malformed|invalid input syntax for type vector"),
        ("NULL", "the query vector is NULL"),
        ("ARRAY[1.0, 2.0]", "the vector has 2 dimensions, the model takes 8"),
        ("true", "cannot cast type boolean to .*vector"),
    ):
        with pytest.raises(psycopg.Error, match=message):
            connection.execute(f"SELECT * FROM hashindex.search_items_idx({query})".encode())
