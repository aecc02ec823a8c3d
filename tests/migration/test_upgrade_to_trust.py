"""Revision 0005 lets indexes change their model; databases of every release before come up to it.

releases/ holds dumps by pg_dump 16 of what the last release of each revision made: 60 rows of small
whole numbers in table items, of which models and indexes were made of 50 before the others came.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alembic.command
import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh
from fixtures.house import run
from fixtures.known import assert_queued
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.database import Connection, connect, create_engine
from pg_hashindex.errors import MissingSchemaError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex, list_indexes
from pg_hashindex.orphans import list_orphans
from pg_hashindex.server import EmbeddedServer

RELEASES = Path(__file__).parent / "releases"
REVISIONS = ("0001", "0002", "0003", "0004")

QUERIES = np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)


@pytest.fixture
def restore(
    server: EmbeddedServer, make_database: Callable[[str], str], tmp_path: Path
) -> Callable[[str], str]:
    """Make a database as the last release of a revision left it."""

    def make(revision: str) -> str:
        url = make_database("template0")
        (tmp_path / "dump.sql").write_bytes(
            gzip.decompress((RELEASES / f"{revision}.sql.gz").read_bytes())
        )
        options = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=on"]
        run(server, "psql", *options, "--output=/dev/null", "-f", tmp_path / "dump.sql", url)
        return url

    return make


def upgrade(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        schema.upgrade(connection)
        assert schema.status(connection).up_to_date
    engine.dispose()


def downgrade(url: str, revision: str) -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            alembic.command.downgrade(schema._config(connection), revision)
    finally:
        engine.dispose()


def exact(connection: Connection, query: NDArray[np.float32]) -> list[float]:
    rows = connection.execute("SELECT embedding FROM items").fetchall()
    return sorted(float(np.linalg.norm(v.to_numpy() - query)) for (v,) in rows)[:8]


def check_searches(connection: Connection, index: HashIndex) -> None:
    for query in QUERIES:
        if index.encoded_in == "python":
            continue
        found = [hit.distance for hit in index.search(query, 8, candidates=100)]
        np.testing.assert_allclose(found, exact(connection, query), rtol=1e-6)


def write(connection: Connection) -> None:
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 5")
    connection.execute("DELETE FROM items WHERE id BETWEEN 45 AND 47")
    connection.execute("INSERT INTO items VALUES (1001, 'a', '[1,-2,3,-4,5,-6,7,-8]')")
    connection.execute("UPDATE items SET id = 1002 WHERE id = 48")


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_an_earlier_release(
    restore: Callable[[str], str], url: str, revision: str
) -> None:
    old = restore(revision)
    for _ in range(2):
        upgrade(old)
    with connect(old) as connection:
        names = {index.name for index in list_indexes(connection)}
        assert {"by_table", "in_column"} <= names
        assert ("weighted" in names, "known" in names) == (revision > "0001", revision > "0002")
        assert ("by_lists" in names) == (revision > "0003")
        for index in list_indexes(connection):
            assert (index.storage, index.swap_of) == (index.name, None)
            if index.name == "half_way":
                assert index.repair().done == (
                    "encoded 50 rows",
                    "built the access path landmarks",
                )
            assert index.repair(full=True).done == ()
            check_searches(connection, index)
        assert list_orphans(connection) == []
        write(connection)
        for index in list_indexes(connection):
            check_searches(connection, index)
            if index.encoded_in == "python":
                assert_queued(index, [1, 2, 3, 4, *range(41, 45), *range(49, 61), 1001, 1002])
            else:
                assert_fresh(index)
    # Back to where it came from, where triggers and searches go on, and up again.
    downgrade(old, revision)
    with connect(old) as connection:
        connection.execute("UPDATE items SET embedding = '[1,1,-1,1,1,-1,1,1]' WHERE id = 12")
        rows = connection.execute(
            "SELECT distance FROM hashindex.search_by_table(%s, 8, 100)", [Vector(QUERIES[0])]
        ).fetchall()
        np.testing.assert_allclose(
            [row[0] for row in rows], exact(connection, QUERIES[0]), rtol=1e-6
        )
    upgrade(old)
    with connect(old) as connection:
        for index in list_indexes(connection):
            check_searches(connection, index)
            if index.encoded_in == "sql":
                assert_fresh(index)
                assert index.repair(full=True).done == ()
        # What is new works with what is old.
        rows = np.stack(
            [v.to_numpy() for (v,) in connection.execute("SELECT embedding FROM items")]
        )
        store.save(connection, LSH(n_bits=20).fit(rows).to_model("longer"))
        for name in ("by_table", "in_column"):
            index = HashIndex.open(connection, name)
            index.swap("longer", force=True)
            check_searches(connection, index)
            assert_fresh(HashIndex.open(connection, name))
        for index in list_indexes(connection):
            if index.swap_of is None:
                index.drop()
        assert list_orphans(connection) == []
        connection.execute("DROP TABLE items")
        with connect(url) as fresh:
            now, wanted = (catalog(c, rights=False) for c in (connection, fresh))
        for part in wanted:
            # One by one, so that what differs is shown.
            assert set(now[part]) ^ set(wanted[part]) == set(), part


def index_of(connection: Connection, **options: Any) -> HashIndex:
    rows = np.random.default_rng(1).integers(-9, 10, (60, 8)).astype(np.float32)
    for name, bits in (("lsh", 12), ("longer", 20)):
        store.save(connection, LSH(n_bits=bits, random_state=0).fit(rows).to_model(name))
    connection.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, category text, embedding vector(8))"
    )
    connection.cursor().executemany(
        "INSERT INTO items VALUES (%s, 'a', %s)", [(n, row) for n, row in enumerate(rows, 1)]
    )
    index = HashIndex.create(
        connection, "items_idx", table="items", column="embedding", model="lsh", **options
    )
    index.encode()
    return index


def test_an_old_schema_is_to_be_upgraded(url: str) -> None:
    downgrade(url, "0003")
    with connect(url) as connection:
        for ask in (list_indexes, store.list_models):
            with pytest.raises(MissingSchemaError, match=r"or old: .* Run: pg-hashindex schema up"):
                ask(connection)


@pytest.mark.parametrize("layout", ["table", "column"])
@pytest.mark.parametrize("access", ["scan", "hnsw"])
def test_back_to_0004_and_up_again(url: str, layout: Any, access: Any) -> None:
    """Searches and triggers of indexes go on meanwhile."""
    with connect(url) as connection:
        index_of(connection, layout=layout, access=access)
    downgrade(url, "0004")
    with connect(url) as connection:
        columns = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'hashindex.index'::regclass "
            "AND attname IN ('storage', 'swap_of', 'swap_state')"
        ).fetchall()
        assert columns == []
        write(connection)
        for query in QUERIES:
            rows = connection.execute(
                "SELECT distance FROM hashindex.search_items_idx(%s, 8, 100)", [query]
            ).fetchall()
            np.testing.assert_allclose([r[0] for r in rows], exact(connection, query), rtol=1e-6)
    upgrade(url)
    with connect(url) as connection:
        index = HashIndex.open(connection, "items_idx")
        assert_fresh(index)
        check_searches(connection, index)
        assert index.repair(full=True).done == ()
        index.swap("longer", force=True)
        check_searches(connection, index)


@pytest.mark.parametrize("state", ["next", "previous", "pruned"])
def test_back_is_refused_while_a_swap_is_there(url: str, state: str) -> None:
    with connect(url) as connection:
        index = index_of(connection)
        if state == "next":
            connection.execute("SELECT hashindex.begin_swap('items_idx', 'longer')")
        else:
            index.swap("longer", force=True)
        if state == "pruned":
            index.prune()
    message = {
        "next": 'index "items_idx" has codes of another model beside its own',
        "previous": 'index "items_idx" has codes of another model beside its own',
        "pruned": 'index "items_idx" has had its model swapped',
    }[state]
    with pytest.raises(sa.exc.DBAPIError, match=message):
        downgrade(url, "0004")
    with connect(url) as connection:
        index = HashIndex.open(connection, "items_idx")
        check_searches(connection, index)
        if state == "next":
            index.repair(undo=True)
        elif state == "previous":
            index.rollback()
            index.prune()
        else:
            index.drop()
    downgrade(url, "0004")
    upgrade(url)
    with connect(url) as connection:
        for index in list_indexes(connection):
            check_searches(connection, index)
