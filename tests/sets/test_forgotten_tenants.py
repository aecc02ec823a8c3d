"""A search that names no tenant is refused through every door, whatever the set."""

import json

import psycopg
import pytest
import sqlalchemy as sa
from fixtures.indexes import indexed
from pgvector import Vector
from pgvector.sqlalchemy import VECTOR

from pg_hashindex.contrib.sqlalchemy import HashIndex as DeclaredIndex
from pg_hashindex.contrib.sqlalchemy import nearest
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

QUERY = Vector([1, 2, 3, 4, 5, 6, 7, 8])
#: Calls by SQL, with room for more arguments.
CALLS = [
    "search_items_idx(%(q)s{})",
    "search_items_idx(%(q)s, filter => 'id > 0'{})",
    "search_items_idx(%(q)s, filter => $$category = 'a'$${})",
    "search_items_idx(%(q)s, where_equals => %(id)s{})",
    "search('items_idx', %(q)s{})",
    "search('items_idx', %(q)s, filter => 'id > 0'{})",
    "search('items_idx', %(q)s, where_equals => '{{}}'{})",
    "search('items_idx', %(q)s, where_equals => %(id)s{})",
    "candidates('items_idx', %(q)s, 5{})",
    "candidates('items_idx', %(q)s, 5, filter => 'id > 0'{})",
    "exact_search('items_idx', %(q)s{})",
    "within('items_idx', %(q)s, 12{})",
    "hybrid('items_idx', %(q)s, 'a', 'category'{})",
]


@pytest.fixture(params=["hnsw", "lists"])
def index(request, connection, items, model):
    if request.param == "lists":
        indexed(connection, access="lists", tenant="category")
    else:
        HashIndex.create(
            connection, "items_idx", table="items", column="embedding", model="lsh",
            access="hnsw", store=True, tenant="category",
        )  # fmt: skip
    return HashIndex.open(connection, "items_idx")


@pytest.mark.parametrize("call", CALLS)
def test_by_sql(index, call):
    given = {"q": QUERY, "id": json.dumps({"id": 7})}
    statement = f"SELECT * FROM hashindex.{call}"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="the search names none"):
        index.connection.execute(statement.format("").encode(), given)
    every = index.connection.execute(statement.format(", all_tenants => true").encode(), given)
    assert every.fetchall()
    of_tenant = index.connection.execute(statement.format(", tenant => 'a'").encode(), given)
    assert {int(row[0]) % 3 for row in of_tenant.fetchall()} == {1}


def test_the_tenant_of_where_equals(index):
    for door in ("search_items_idx(", "search('items_idx', "):
        found = index.connection.execute(
            f"SELECT id::bigint FROM hashindex.{door}%s, where_equals => %s)".encode(),
            [QUERY, json.dumps({"category": "a"})],
        ).fetchall()
        assert {key % 3 for (key,) in found} == {1}


def test_a_tenant_and_another_one_in_where_equals(index):
    other = json.dumps({"category": "b"})
    for call in (
        "search_items_idx(%s, tenant => 'a', where_equals => %s)",
        "search('items_idx', %s, tenant => 'a', where_equals => %s)",
        "search_items_idx(%s, tenant => 'a', filter => 'id > 0', where_equals => %s)",
    ):
        found = index.connection.execute(
            f"SELECT * FROM hashindex.{call}".encode(), [QUERY, other]
        ).fetchall()
        assert found == [], call


def test_by_python(index):
    category = sa.column("category")
    searches = [
        lambda **given: index.search(QUERY, **given),
        lambda **given: index.search(QUERY, filter="id > 0", **given),
        lambda **given: index.search(QUERY, where=sa.column("id") > 0, **given),
        lambda **given: index.search(
            QUERY, where=sa.or_(category == "a", category == "b"), **given
        ),
        lambda **given: index.search_like(5, **given),
        lambda **given: index.within(QUERY, 12, **given),
        lambda **given: index.within_like(5, 12, **given),
        lambda **given: index.hybrid(QUERY, "a", "category", **given),
    ]
    for search in searches:
        with pytest.raises(InvalidInputError, match="the search names none"):
            search()
        assert search(all_tenants=True)
        assert {hit.id % 3 for hit in search(tenant="a")} == {1}
    assert {hit.id % 3 for hit in index.search(QUERY, where=category == "a")} == {1}


def test_by_sqlalchemy(index, url):
    table = sa.Table(
        "items", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("category", sa.Text), sa.Column("embedding", VECTOR(8)),
    )  # fmt: skip
    DeclaredIndex("items_idx", table.c.embedding, model="lsh", tenant="category")
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as run:
        for forgotten in (
            nearest(table, table.c.embedding, QUERY),
            nearest(table, table.c.embedding, QUERY).where(table.c.id > 0),
        ):
            with pytest.raises(sa.exc.DataError, match="the search names none"):
                run.execute(forgotten)
            run.rollback()
        every = nearest(table, table.c.embedding, QUERY, all_tenants=True)
        assert len(run.execute(every).fetchall()) == 10
        of_tenant = nearest(table, table.c.embedding, QUERY).where(table.c.category == "a")
        assert {row.id % 3 for row in run.execute(of_tenant)} == {1}
    engine.dispose()
