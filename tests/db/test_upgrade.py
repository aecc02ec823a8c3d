"""A database of the release before comes up to this one, with its indexes.

No release is out, so the one before is this one with other functions. A later release adds the dump
of a database that `make` filled, taken by its oldest pg_dump, as releases/VERSION.sql.gz.
"""

import gzip
from pathlib import Path

import numpy as np
import pytest
from fixtures.catalog import catalog
from fixtures.checks import assert_fresh
from fixtures.house import run
from fixtures.indexes import create_index
from fixtures.outdated import outdate
from pgvector import Vector

from pg_hashindex import operations, schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import MissingSchemaError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.models.model import Model
from pg_hashindex.operations.repairs import list_orphans

RELEASES = sorted((Path(__file__).parent / "releases").glob("*.sql.gz"))

ROWS = np.random.default_rng(1).integers(-9, 10, (60, 8)).astype(np.float32)
QUERIES = np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)


def make(connection):
    """Make table items with indexes of every kind; its last ten rows come after them."""
    plain = LSH(n_bits=12, random_state=0).fit(ROWS).to_model("lsh")
    for model in (
        plain,
        Model("weighted", "byhand", 8, plain.layers, bit_weights=np.arange(12)),
    ):
        store.save(connection, model)
    connection.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, category text, embedding vector(8))"
    )
    insert(connection, range(1, 51))
    for name, model_name, access in (
        ("scanned", "lsh", "scan"),
        ("weighted", "weighted", "scan"),
        ("by_lists", "lsh", "lists"),
        ("half_way", "lsh", "lists"),
    ):
        index = create_index(connection, name, model=model_name, access=access)
        if name != "half_way":
            index.encode()
    insert(connection, range(51, 61))


def insert(connection, keys):
    connection.cursor().executemany(
        "INSERT INTO items VALUES (%s, 'a', %s)", [(n, Vector(ROWS[n - 1])) for n in keys]
    )


@pytest.fixture(params=["by Python", "by the script", *RELEASES], ids=str)
def old(request, server, url, make_database, vector_template, tmp_path):
    """A database as the release before left it, restored from a dump."""
    dump = tmp_path / "dump.sql"
    if isinstance(request.param, str):
        if request.param == "by the script":
            url = make_database(vector_template)
            script = tmp_path / "script.sql"
            script.write_text(schema.script())
            run(server, "psql", "--no-psqlrc", "--quiet", "--output=/dev/null", "-f", script, url)
        with connect(url) as connection:
            make(connection)
            outdate(connection)
        run(server, "pg_dump", "--file", dump, url)
    else:
        dump.write_bytes(gzip.decompress(request.param.read_bytes()))
    restored = make_database("template0")
    options = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=on", "--output=/dev/null"]
    run(server, "psql", *options, "-f", dump, restored)
    return restored


def upgrade(url):
    engine = create_engine(url)
    with engine.begin() as connection:
        schema.upgrade(connection)
        assert schema.status(connection).up_to_date
    engine.dispose()


def check_searches(connection, index):
    for query in QUERIES:
        found = [hit.distance for hit in index.search(query, 8, candidates=100)]
        np.testing.assert_allclose(found, exact(connection, query), rtol=1e-6)


def exact(connection, query):
    rows = connection.execute("SELECT embedding FROM items").fetchall()
    return sorted(float(np.linalg.norm(v.to_numpy() - query)) for (v,) in rows)[:8]


def test_a_database_of_the_release_before(old, make_database, schema_template):
    engine = create_engine(old)
    with engine.connect() as connection:
        assert not schema.status(connection).up_to_date
    engine.dispose()
    for _ in range(2):
        upgrade(old)
    with connect(old) as connection:
        # Made before, they search, and are whole but for unfinished work.
        for index in list_indexes(connection):
            if index.name == "half_way":
                assert operations.repair(index).done == (
                    "finished a set that was being built: codes of lsh:1 in lists",
                )
            assert operations.repair(index, full=True).done == ()
            check_searches(connection, index)
        assert list_orphans(connection) == []
        # Writes after it get their codes.
        connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 5")
        connection.execute("DELETE FROM items WHERE id BETWEEN 45 AND 47")
        connection.execute("INSERT INTO items VALUES (1001, 'a', '[1,-2,3,-4,5,-6,7,-8]')")
        connection.execute("UPDATE items SET id = 1002 WHERE id = 48")
        for index in list_indexes(connection):
            check_searches(connection, index)
            assert_fresh(index)
        # A swap takes another model.
        store.save(connection, LSH(n_bits=20).fit(ROWS).to_model("longer"))
        HashIndex.open(connection, "scanned").swap(model="longer", force=True)
        index = HashIndex.open(connection, "scanned")
        check_searches(connection, index)
        assert_fresh(index)
        # Without its indexes, it is as a new installation.
        for index in list_indexes(connection):
            index.drop()
        assert list_orphans(connection) == []
        connection.execute("DROP TABLE items")
        with connect(make_database(schema_template)) as new:
            now, wanted = (catalog(c, rights=False) for c in (connection, new))
    for part in wanted:
        # One by one, so that what differs is shown.
        assert set(now[part]) ^ set(wanted[part]) == set(), part


def test_an_old_schema_is_to_be_upgraded(connection):
    connection.execute("ALTER TABLE hashindex.index DROP COLUMN metric CASCADE")
    connection.execute("ALTER TABLE hashindex.model DROP COLUMN profile CASCADE")
    for ask in (list_indexes, store.list_models):
        with pytest.raises(MissingSchemaError, match=r"or old: .* Run: pg-hashindex schema up"):
            ask(connection)
