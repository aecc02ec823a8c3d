"""Nothing of an attacker's is run in place of ours: not by search_path, pg_temp, or look-alikes."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.decoys import RUN_ALL, decoys
from fixtures.roles import As, make_administrator
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.db.connection import Connection
from pg_hashindex.db.jobs import list_jobs
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex, Layout, list_indexes
from pg_hashindex.models.model import Model
from pg_hashindex.quality import query_sets
from pg_hashindex.quality.evaluate import evaluate

pytestmark = pytest.mark.newest


@pytest.fixture
def poisoned(connection: Connection, items: str, model: Model, as_role: As) -> Connection:
    """A session of the owner of table items, with an attacker's schema before all others."""
    connection.execute(RUN_ALL)
    statements = ["CREATE SCHEMA evil", *decoys(connection)]
    row = connection.execute("SELECT pg_temp.run_all(%s)", [statements]).fetchone()
    assert row is not None
    made = row[0]
    assert made > 1000
    for table in ("model", "index", "items_idx_codes", "pg_class", "vector", "layer", "bit"):
        connection.execute(f'CREATE TABLE evil."{table}" (id int)'.encode())
        if table not in {"vector", "bit"}:
            connection.execute(f'CREATE TABLE public."{table}" (id int)'.encode())
    owner = as_role("keeper")
    connection.execute(
        "ALTER TABLE items OWNER TO keeper; GRANT USAGE, CREATE ON SCHEMA public TO keeper; "
        "GRANT USAGE ON SCHEMA evil TO keeper"
    )
    make_administrator(connection, "keeper")
    owner.execute("SET search_path TO evil, public")
    return owner


def test_the_decoys_would_be_taken(poisoned: Connection) -> None:
    """Or the other tests could not fail."""
    for statement in (
        "SELECT hashtextextended('x', 0)",
        "SELECT '[1,2]'::public.vector <-> '[1,2]'::public.vector",
        "SELECT format('%s'::text, 'x'::text)",
        "SELECT 'x'::text || 1",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="HIJACKED"):
            poisoned.execute(statement)


@pytest.mark.parametrize("layout", ["table", "column"])
def test_an_owner_on_an_attackers_path(
    poisoned: Connection, vectors: NDArray[np.float32], layout: Layout
) -> None:
    """Whatever he asks of an index, in SQL and from Python."""
    index = HashIndex.create(
        poisoned,
        "items_idx",
        table="public.items",
        column="embedding",
        model="lsh",
        layout=layout,
    )
    assert index.encode() == 300
    query = Vector(vectors[0])
    for access in ("lookup", "hnsw", "landmarks", "scan"):
        if (access, layout) == ("landmarks", "column"):
            continue
        HashIndex.open(poisoned, "items_idx").configure(access=access).encode()
        index = HashIndex.open(poisoned, "items_idx")
        assert index.access == access
        assert index.search(vectors[0], 3)[0].id == 1
        assert index.within(vectors[0], 12)
        assert index.search_like(1, 3)
        calls = [
            "hashindex.search_items_idx(%(q)s)",
            "hashindex.within_items_idx(%(q)s, 2)",
            "hashindex.search('items_idx', %(q)s)",
            "hashindex.search('items_idx', %(q)s, where_equals => '{\"category\": \"a\"}')",
            "hashindex.exact_search('items_idx', %(q)s)",
            "hashindex.recall('items_idx', 3, 3)",
            "hashindex.encode('lsh', %(q)s)",
            "hashindex.project('lsh', %(q)s)",
        ]
        for call in calls:
            assert poisoned.execute(f"SELECT * FROM {call}".encode(), {"q": query}).fetchall()
        _write(poisoned)
    poisoned.execute("SELECT * FROM hashindex.health('items_idx')")
    assert evaluate(index, queries=3, k=2, candidates=[300]).points[0].recall == 1
    assert index.summary().waiting == index.waiting() == 0
    store.save(poisoned, LSH(n_bits=16).fit(vectors).to_model("lsh2"))
    beside = poisoned.execute("SELECT hashindex.begin_swap('items_idx', 'lsh2')").fetchone()
    assert beside is not None
    HashIndex.open(poisoned, beside[0]).encode()
    poisoned.execute("SELECT hashindex.swap_is_ready('items_idx')")
    poisoned.execute("SELECT hashindex.exchange('items_idx', 'ready')")
    assert HashIndex.open(poisoned, "items_idx").search(vectors[5], 1)[0].id == 6
    index = HashIndex.open(poisoned, "items_idx")
    index.prune()
    assert index.swap("lsh", queries=3, force=True).model == "lsh:1"
    index.rollback()
    index.prune()
    index = HashIndex.open(poisoned, "items_idx")
    queries = query_sets.save(index, query_sets.draw(index, 3), "few")
    assert query_sets.load(index, "few").queries == queries.queries
    query_sets.drop(index, "few")
    index.check(full=True)
    index.repair(full=True)
    assert list_jobs(poisoned, ended=True)
    assert [found.name for found in list_indexes(poisoned)] == ["items_idx"]
    assert store.describe(poisoned, "lsh2").indexes == ["items_idx"]
    store.load(poisoned, "lsh2")
    poisoned.execute("SET search_path TO public")
    assert_fresh(HashIndex.open(poisoned, "items_idx"))
    poisoned.execute("SET search_path TO evil, public")
    HashIndex.open(poisoned, "items_idx").drop()


def _write(session: Connection) -> None:
    """Fire every trigger, by statements that the attacker's operators could be in nothing of."""
    row = "(1001, 'w', '[1,2,3,4,5,6,7,8]')"
    session.execute(f"INSERT INTO public.items VALUES {row}".encode())
    session.execute("UPDATE public.items SET embedding = embedding, category = category")
    session.execute(
        "UPDATE public.items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE category IS NULL"
    )
    session.execute(
        "DELETE FROM public.items WHERE id OPERATOR(pg_catalog.=) 1001 OR embedding IS NULL"
    )


def test_functions_whatever_comes_before_pg_catalog(
    poisoned: Connection, vectors: NDArray[np.float32]
) -> None:
    """With pg_catalog behind the attacker's schema even = is his; our functions do not care."""
    HashIndex.create(
        poisoned, "items_idx", table="public.items", column="embedding", model="lsh"
    ).encode()
    poisoned.execute("SET search_path TO evil, pg_catalog, public")
    with pytest.raises(psycopg.errors.RaiseException, match="HIJACKED"):
        poisoned.execute("SELECT 1 = 1")
    query = str(vectors[0].tolist())
    for call in (
        "hashindex.search_items_idx(%(q)s)",
        "hashindex.within_items_idx(%(q)s, 2)",
        "hashindex.search('items_idx', %(q)s)",
        "hashindex.search('items_idx', %(q)s, where_equals => '{\"category\": \"a\"}')",
        "hashindex.exact_search('items_idx', %(q)s)",
        "hashindex.recall('items_idx', 3, 3)",
        "hashindex.encode('lsh', %(q)s)",
        "hashindex.create_index('second', 'public.items', 'embedding', 'lsh')",
        "hashindex.configure_index('second', access => 'hnsw')",
        "hashindex.begin_swap('second', 'lsh')",
        "hashindex.drop_index('second')",
    ):
        poisoned.execute(f"SELECT {call}".encode(), {"q": query})
    _write(poisoned)


def test_temporary_tables_of_the_same_names(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    """The session's own temporary tables come first on no path of ours."""
    connection = index.connection
    before = index.search(vectors[0])
    for table in (
        "items", "items_idx_codes", "model", "index", "pg_class", "pg_proc", "pg_extension",
        "pg_namespace", "pg_attribute", "pg_index", "new_rows", "old_rows", "vector", "layer",
    ):  # fmt: skip
        connection.execute(f'CREATE TEMP TABLE "{table}" (id bigint, embedding text)'.encode())
    connection.execute("INSERT INTO pg_temp.items VALUES (-1, 'x'), (-2, 'y')")
    connection.execute("INSERT INTO pg_temp.new_rows VALUES (-1, 'x')")
    query = str(vectors[0].tolist())
    for call in (
        "hashindex.search_items_idx(%s::public.vector)",
        "hashindex.search('items_idx', %s::public.vector)",
        "hashindex.exact_search('items_idx', %s::public.vector)",
    ):
        found = connection.execute(f"SELECT id::text FROM {call}".encode(), [query]).fetchall()
        assert [int(row[0]) for row in found] == [hit.id for hit in before]
    connection.execute("INSERT INTO public.items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    connection.execute("UPDATE public.items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 5")
    connection.execute("DELETE FROM public.items WHERE id = 9")
    connection.execute(
        "SELECT hashindex.create_index('second', 'public.items', 'embedding', 'lsh'), "
        "hashindex.drop_index('second')"
    )
    connection.execute("DISCARD TEMP")
    assert_fresh(index)


def test_an_upgrade_on_an_attackers_path(poisoned: Connection, connection: Connection) -> None:
    """By a superuser, whose path an attacker may write to: schema public, of old."""
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(connection.info.dsn)
    )
    with engine.begin() as upgrading:
        upgrading.exec_driver_sql("SET LOCAL search_path TO evil, public")
        schema.upgrade(upgrading)
    engine.dispose()
