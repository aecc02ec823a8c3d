"""Searches by name through SQLAlchemy and Django: k rows come back if k rows match."""

import numpy as np
import pytest
import sqlalchemy as sa
from django.db import connections, models
from django.test.utils import isolate_apps
from pgvector import Vector
from pgvector.django import VectorField
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import orm
from test_django import Project

from pg_hashindex.contrib.django import NearestQuerySet
from pg_hashindex.contrib.sqlalchemy import nearest

pytestmark = pytest.mark.newest

ROWS, DIMENSION, PARTS = 3000, 24, 50
SETS = {
    "codes": "model => 'texts'",
    "codes_in_ivfflat": "model => 'texts', access => 'ivfflat'",
    "stored_codes": "model => 'texts', store => true",
    "vectors": "model => 'none'",
}
SESSIONS = (
    "",
    "-c hnsw.ef_search=60",
    "-c hnsw.ef_search=60 -c hnsw.iterative_scan=relaxed_order",
)
COUNTS = (1, 10, 50, 100, 300)


class Base(orm.DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True)
    part: orm.Mapped[int]
    embedding = orm.mapped_column(VECTOR(DIMENSION))


def make_vectors():
    """Return rows in 30 clusters."""
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((30, DIMENSION))[rng.integers(30, size=ROWS)]
    return (vectors + 0.5 * rng.standard_normal(vectors.shape)).astype(np.float32)


def make_names(connection):
    """Make table items, of 50 parts that are alike, with a name for each kind of set."""
    connection.execute(
        f"CREATE TABLE items (id bigint PRIMARY KEY, part integer, embedding vector({DIMENSION}))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for n, vector in enumerate(make_vectors()):
            copy.write_row((n, n % PARTS, Vector(vector)))
    connection.execute("ANALYZE items")
    connection.execute("SELECT hashindex.train('texts', 'items', 'embedding', metric => 'cosine')")
    for name, options in SETS.items():
        create = f"SELECT hashindex.create_index('{name}', 'items', 'embedding', {options})"
        connection.execute(create.encode())


@pytest.fixture(scope="session")
def named_template(make_template):
    return make_template("named", make_names)


@pytest.fixture
def vectors(named_template, connection):
    """The vectors of table items, which the template has with its names."""
    return make_vectors()


@pytest.fixture
def secure(connection, as_role, vectors):
    """Role reader, which row security lets see one part; not in effect for the owner."""
    as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY own ON items USING (part = 9)")


def check(vectors, query, k, found, part=None):
    """Check rows, as key and distance, of a search: none is missing and none is wrong."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - unit @ (vectors[query] / np.linalg.norm(vectors[query]))
    matching = [n for n in range(ROWS) if part is None or n % PARTS == part]
    ids = [n for n, _ in found]
    assert len(set(ids)) == len(ids) == min(k, len(matching))
    assert {*ids} <= {*matching}
    np.testing.assert_allclose([distance for _, distance in found], distances[ids], atol=1e-5)
    truth = sorted(matching, key=distances.__getitem__)[:k]
    assert len({*truth} & {*ids}) >= 0.8 * len(truth)


@pytest.mark.usefixtures("secure")
def test_sqlalchemy(url, vectors):
    url = url.replace("postgresql:", "postgresql+psycopg:", 1)
    for options in SESSIONS:
        engine = sa.create_engine(url, connect_args={"options": options})
        with orm.Session(engine) as session:

            def search(k, name, *conditions, session=session):
                statement = nearest(Item, Item.embedding, vectors[5], k, index=name)
                found = session.execute(statement.where(*conditions)).all()
                return [(item.id, distance) for item, distance in found]

            for name in SETS:
                for k in COUNTS:
                    check(vectors, 5, k, search(k, name))
                    check(vectors, 5, k, search(k, name, Item.part == 7), part=7)
            session.execute(sa.text("SET ROLE reader"))
            for name in SETS:
                for k in COUNTS:
                    check(vectors, 5, k, search(k, name), part=9)
        engine.dispose()


@pytest.mark.usefixtures("secure")
def test_django(url, vectors, tmp_path, monkeypatch):
    with isolate_apps("fixtures.shop"):

        class Thing(models.Model):
            part = models.IntegerField()
            embedding = VectorField(dimensions=DIMENSION)
            objects = NearestQuerySet.as_manager()

            class Meta:
                app_label = "shop"
                db_table = "items"

    def search(k, name, **conditions):
        found = Thing.objects.filter(**conditions).nearest("embedding", vectors[5], k, index=name)
        return list(found.values_list("id", "distance"))

    Project(tmp_path, url)
    default = connections["default"]
    for options in SESSIONS:
        monkeypatch.setitem(default.settings_dict, "OPTIONS", {"options": options})
        for name in SETS:
            for k in COUNTS:
                check(vectors, 5, k, search(k, name))
                check(vectors, 5, k, search(k, name, part=7), part=7)
        with default.cursor() as cursor:
            cursor.execute("SET ROLE reader")
        for name in SETS:
            for k in COUNTS:
                check(vectors, 5, k, search(k, name), part=9)
        default.close()


def test_candidates_for_an_order_of_ones_own(url, vectors, tmp_path):
    """Both are a select over hashindex.candidates, joined with the table."""
    query = Vector(vectors[5])
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    near = sa.func.hashindex.candidates(
        "codes", sa.cast(query, Item.embedding.type), 100
    ).table_valued("id", "distance")
    statement = sa.select(Item.id, near.c.distance).join(
        near, Item.id == sa.cast(near.c.id, sa.BigInteger)
    )
    with orm.Session(engine) as session:
        found = session.execute(statement.order_by(near.c.distance, Item.id)).all()
    engine.dispose()
    assert len(found) == 100
    assert tuple(found[0]) == (5, 0)
    Project(tmp_path, url)
    with isolate_apps("fixtures.shop"):

        class Other(models.Model):
            part = models.IntegerField()
            embedding = VectorField(dimensions=DIMENSION)

            class Meta:
                app_label = "shop"
                db_table = "items"

    given = Other.objects.get(pk=5).embedding
    rows = Other.objects.raw(
        "SELECT p.*, c.distance FROM hashindex.candidates('codes', %s::vector, 100) c "
        "JOIN items p ON p.id = c.id::bigint ORDER BY c.distance, p.id",
        [Vector(given).to_text()],
    )
    assert [(row.pk, row.distance) for row in rows] == [tuple(row) for row in found]
    connections["default"].close()


def test_an_ivfflat_index_reads_more_lists_for_more_rows(connection, vectors):
    connection.execute("SELECT hashindex.configure_index('codes_in_ivfflat', 80, 2)")
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    truth = {*np.argsort(-unit @ unit[200], kind="stable")[:100].tolist()}

    def found(effort):
        rows = connection.execute(
            "SELECT id FROM hashindex.search_codes_in_ivfflat(%s, 100, effort => %s)",
            [Vector(vectors[200]), effort],
        )
        return {id_ for (id_,) in rows}

    # Two lists for ten rows are seven for a hundred.
    assert found(None) == found(7)
    assert len(truth & found(None)) >= len(truth & found(2))
