"""Candidates of every access path and kind of model come in the order that Python computes."""

from typing import NamedTuple

import numpy as np
import psycopg
import pytest
from fixtures.indexes import create_index, indexed, with_access
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.db.connection import Connection
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

QUERIES = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
KINDS = [
    *((weighted, 1, a) for weighted in (False, True) for a in ("scan", "lists")),
    *((False, 3, a) for a in ("scan", "lists")),
]


def model_of(weighted, cuts):
    rng = np.random.default_rng(2)
    weights = rng.random(16).astype(np.float32) if weighted else None
    layers = [affine(rng.standard_normal((16, 8)))]
    kept = (0.0,) if cuts == 1 else (-2.0, 0.0, 2.0)
    return Model("byhand", "byhand", 8, layers, bit_weights=weights, cuts=kept)


def distances(model, vectors, query):
    """How far each row is from a query by code."""
    order = model.order(query[None], "l2")
    return order.distances(slice(None), model.encode(vectors))[0].astype(np.int64)


class Ranked(NamedTuple):
    connection: Connection
    model: Model

    def ids(self, query, n, *rest):
        marks = ", ".join(["%s"] * (2 + len(rest)))
        rows = self.connection.execute(
            f"SELECT id::bigint FROM hashindex.candidates('items_idx', {marks})".encode(),
            [Vector(query), n, *rest],
        ).fetchall()
        return [row[0] for row in rows]


def codes_of(connection):
    """The table of codes, which a build makes a new one of."""
    row = connection.execute("SELECT 'set_' || id || '_codes' FROM hashindex.index_set").fetchone()
    return str(row[0])


def make(connection, weighted, cuts, access, **options):
    model = store.save(connection, model_of(weighted, cuts))
    index = indexed(
        connection,
        model=model.name,
        access=access,
        **options,
    )
    index = HashIndex.open(connection, "items_idx")
    assert index.state == "used"
    return index, Ranked(connection, model)


@pytest.mark.parametrize(("weighted", "cuts", "access"), KINDS)
def test_the_order_of_candidates(connection, items, vectors, weighted, cuts, access):
    _, ranked = make(connection, weighted, cuts, access)
    same = places = 0
    for query in QUERIES:
        wanted = distances(ranked.model, vectors, query)
        for n in (1, 20, 300, 1000):
            found = ranked.ids(query, n, 1000)
            assert len(found) == len(set(found)) == min(n, 300)
            theirs = wanted[np.array(found) - 1]
            assert (np.diff(theirs) >= 0).all()
            same += int((theirs == np.sort(wanted)[: len(found)]).sum())
            places += len(found)
            # Ties may be in any order, but nothing nearer is left out.
    # Lists are ranked roughly first.
    if (access, weighted) == ("lists", True):
        assert same >= 0.95 * places
    else:
        assert same == places


def test_one_probe_reads_one_list(connection, items, vectors):
    """More are read where it holds fewer rows than are asked for."""
    _, ranked = make(connection, False, 1, "lists")
    lists = {}
    for key, landmark in connection.execute(
        f"SELECT id, landmark FROM hashindex.{codes_of(connection)}".encode()
    ).fetchall():
        lists.setdefault(landmark, set()).add(key)
    assert sum(map(len, lists.values())) == 300
    for query in QUERIES:
        (found,) = ranked.ids(query, 1, 1)
        wanted = distances(ranked.model, vectors, query)
        own = next(keys for keys in lists.values() if found in keys)
        assert wanted[found - 1] == min(wanted[key - 1] for key in own)
        assert len(ranked.ids(query, 299, 1)) == 299


BAD = [
    ("candidates('items_idx', %(q)s, 0)", "n is 0; it must be 1 or more"),
    ("candidates('items_idx', %(q)s, -5)", "n is -5"),
    ("candidates('items_idx', NULL)", "the query vector is NULL"),
    ("candidates('items_idx', '[1,2]')", "the vector has 2 dimensions, the model takes 8"),
    ("search_items_idx(%(q)s, 0)", "k is 0; it must be 1 or more"),
    ("search_items_idx(%(q)s, -1)", "k is -1"),
    ("search_items_idx(%(q)s, NULL)", "k is NULL"),
    ("search_items_idx(%(q)s, 5, 0)", "candidates is 0"),
    ("search_items_idx(%(q)s, 5, -1)", "candidates is -1"),
    ("search_items_idx(NULL)", "the query vector is NULL"),
    ("search_items_idx('[1,2]')", "the vector has 2 dimensions"),
    ("within('items_idx', %(q)s, -1)", "radius is -1"),
    ("within('items_idx', %(q)s, 17)", "radius is 17; it must be 0 to 16"),
    ("within('items_idx', %(q)s, NULL)", "radius is NULL"),
    ("within('items_idx', %(q)s, 2147483647)", "radius is 2147483647"),
    ("within('items_idx', NULL, 3)", "the query vector is NULL"),
    ("exact_search('items_idx', %(q)s, 0)", "k is 0"),
    ("exact_search('items_idx', %(q)s, NULL)", "k is NULL"),
    ("exact_search('items_idx', '[1,2]')", "the vector has 2 dimensions"),
    ("exact_search('items_idx', NULL)", "the query vector is NULL"),
    ("search('items_idx', %(q)s, 0)", "k is 0"),
    ("search('items_idx', %(q)s, NULL)", "k is NULL"),
    ("search('items_idx', NULL)", "the query vector is NULL"),
    ("search('items_idx', %(q)s, filter => 'true', k => 0)", "k is 0"),
    ("search('items_idx', %(q)s, filter => 'true', k => NULL)", "k is NULL"),
    ("search('items_idx', %(q)s, filter => 'true', candidates => 0)", "candidates is 0"),
    ("search('items_idx', %(q)s, filter => 'true', candidates => -3)", "candidates is -3"),
    ("search('items_idx', '[1,2]', filter => 'true')", "the vector has 2 dimensions"),
    ("search('items_idx', NULL, filter => 'true')", "the query vector is NULL"),
    ("search('items_idx', %(q)s, filter => 'true', effort => 0)", "effort is 0"),
    ("search('items_idx', %(q)s, filter => 'true', effort => 1001)", "effort is 1001"),
]
BAD_PROBES = [
    ("candidates('items_idx', %(q)s, 5, 0)", "effort is 0; it must be 1 to 1000"),
    ("candidates('items_idx', %(q)s, 5, -1)", "effort is -1"),
    ("candidates('items_idx', %(q)s, 5, 2147483647)", "effort is 2147483647"),
    ("search_items_idx(%(q)s, 5, 5, 0)", "effort is 0"),
    ("search('items_idx', %(q)s, effort => 1001)", "effort is 1001"),
]


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_arguments_out_of_range(connection, items, access):
    make(connection, False, 1, access)
    values = {"q": Vector(QUERIES[0])}
    for call, message in BAD + (BAD_PROBES if access == "lists" else []):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(f"SELECT * FROM hashindex.{call}".encode(), values)
        assert (caught.value.sqlstate or "").startswith("22"), call
        assert (caught.value.diag.message_primary or "").startswith(message), call
    most = 2**31 - 1
    for call in (
        f"candidates('items_idx', %(q)s, {most})",
        f"search_items_idx(%(q)s, {most}, {most}, 1000)",
        f"search_items_idx(%(q)s, {most}, 1)",
        f"search('items_idx', %(q)s, {most}, {most}, filter => 'id > 0')",
        f"exact_search('items_idx', %(q)s, {most})",
    ):
        found = connection.execute(f"SELECT count(*) FROM hashindex.{call}".encode(), values)
        assert found.fetchone() == (300,), call
    # NULL stands for the default of the index.
    rows = connection.execute(
        "SELECT id FROM hashindex.search_items_idx(%(q)s, 10, NULL, NULL, NULL)", values
    ).fetchall()
    assert len(rows) == 10


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_zeros_under_cosine(connection, items, access):
    """Rows of zeros are left out; to a query of zeros every row is as near as any."""
    connection.execute("UPDATE items SET embedding = array_fill(0, ARRAY[8])::vector WHERE id = 9")
    make(connection, False, 1, access, metric="cosine")
    connection.execute(
        "INSERT INTO items VALUES (301, 'z', array_fill(0, ARRAY[8])::vector);"
        "UPDATE items SET embedding = array_fill(0, ARRAY[8])::vector WHERE id = 10"
    )
    zero = Vector(np.zeros(8))
    for call in ("search_items_idx(%s)", "search('items_idx', %s, filter => 'id > 0')"):
        found = connection.execute(
            f"SELECT id::bigint, distance FROM hashindex.{call}".encode(), [zero]
        ).fetchall()
        assert len(found) == 10
        assert all(np.isnan(row[1]) for row in found)
    for call in (
        "search_items_idx(%s, 400, 400)",
        "search('items_idx', %s, 400, 400, filter => 'id > 0')",
        "exact_search('items_idx', %s, 400)",
    ):
        found = connection.execute(
            f"SELECT id::bigint FROM hashindex.{call}".encode(), [Vector(QUERIES[0])]
        ).fetchall()
        assert {*range(1, 302)} - {row[0] for row in found} == {9, 10, 301}, call


def test_landmarks_asked_for_while_there_are_no_rows(connection, vectors):
    store.save(connection, model_of(False, 3))
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(8))")
    index = create_index(connection, model="byhand", access="lists")
    assert index.encode() == 0
    assert HashIndex.open(connection, "items_idx").trained_rows is None
    query = Vector(vectors[3])
    search = "SELECT id FROM hashindex.search_items_idx(%s, 3)"
    assert connection.execute(search, [query]).fetchall() == []
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for i, vector in enumerate(vectors):
            copy.write_row((i + 1, Vector(vector)))
    assert connection.execute(search, [query]).fetchall()[0] == (4,)
    index.rebalance()
    assert HashIndex.open(connection, "items_idx").trained_rows == 300
    assert connection.execute(search, [query]).fetchall()[0] == (4,)
    # Emptied, and filled again, by triggers alone.
    connection.execute("CREATE TABLE kept AS TABLE items; TRUNCATE items")
    assert connection.execute(search, [query]).fetchall() == []
    connection.execute("INSERT INTO items TABLE kept")
    assert connection.execute(search, [query]).fetchall()[0] == (4,)
    unlisted = connection.execute(
        f"SELECT count(*) FROM hashindex.{codes_of(connection)} WHERE landmark IS NULL".encode()
    ).fetchone()
    assert unlisted == (0,)


def test_an_index_whose_name_ends_like_that_of_a_function_of_a_build(connection, items):
    """While one index is built, the functions of another are left alone."""
    store.save(connection, model_of(False, 1))
    for name in ("x", "x_next", "next_x"):
        indexed(connection, name, model="byhand")
    with_access(HashIndex.open(connection, "x"), "lists")
    for name in ("x_next", "next_x"):
        index = HashIndex.open(connection, name)
        index.encode()
        connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 5")
        assert operations.check(index).status == "ok"
    HashIndex.open(connection, "x").drop()
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id = 5")
    for name in ("x_next", "next_x"):
        assert operations.check(HashIndex.open(connection, name), full=True).status == "ok"
