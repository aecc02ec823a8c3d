"""SQLAlchemy and alembic: pgvector's own index on the codes of a model's function."""

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.migrating import body, online
from pgvector.sqlalchemy import BIT, HALFVEC, VECTOR
from psycopg import sql
from sqlalchemy import orm

from pg_hashindex import store
from pg_hashindex.contrib.sqlalchemy import code, nearest_by_code
from pg_hashindex.errors import InUseError, InvalidInputError, UnknownModelError
from pg_hashindex.hashers import Thermometer

pytestmark = pytest.mark.newest

MODEL = 'Of "items"'
BITS = 24


def declared(kind=VECTOR):
    class Base(orm.DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "items"
        id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True)
        category: orm.Mapped[str | None]
        embedding = orm.mapped_column(kind(8))

    sa.Index(
        "by_code",
        code(Item.embedding, model=MODEL, bits=BITS),
        postgresql_using="hnsw",
        postgresql_ops={"code": "bit_hamming_ops"},
        postgresql_with={"ef_construction": 128},
    )
    return Item


@pytest.fixture
def saved(connection, vectors):
    return store.save(
        connection, Thermometer(random_state=0).fit(vectors).to_model(MODEL, metric="cosine")
    )


@pytest.fixture
def engine(url):
    options = {"options": "-c hnsw.ef_search=300"}
    engine = sa.create_engine(
        url.replace("postgresql:", "postgresql+psycopg:", 1), connect_args=options
    )
    yield engine
    engine.dispose()


def plan_of(session, statement):
    session.execute(sa.text("SET LOCAL enable_seqscan = off"))
    text = statement.compile(session.get_bind(), compile_kwargs={"literal_binds": True})
    return "\n".join(session.connection().exec_driver_sql(f"EXPLAIN {text}").scalars())


def exact(vectors, query, metric, keep=lambda i: True):
    rows, query = vectors.astype(float), query.astype(float)
    distances = {
        "l2": np.linalg.norm(rows - query, axis=1),
        "cosine": 1 - rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query),
        "ip": -rows @ query,
    }[metric]
    order = [int(i) + 1 for i in np.argsort(distances) if keep(i)][:5]
    return order, [distances[i - 1] for i in order]


@pytest.mark.parametrize("kind", [VECTOR, HALFVEC])
def test_an_index_of_create_all_is_searched(engine, connection, saved, vectors, kind):
    connection.execute("SELECT hashindex.create_functions(%s)", [MODEL])
    Item = declared(kind)
    Item.metadata.create_all(engine)
    Item.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.execute(
            sa.insert(Item),
            [
                {"id": i + 1, "category": "abc"[i % 3], "embedding": vector}
                for i, vector in enumerate(vectors)
            ],
        )
        session.commit()
        nearest = nearest_by_code(
            Item, Item.embedding, vectors[7], k=5, model=MODEL, bits=BITS, metric="l2"
        )
        assert "Index Scan using by_code" in plan_of(session, nearest)
        assert "InitPlan" in plan_of(session, nearest)
        by_code = sa.select(Item.id).order_by(
            code(Item.embedding, model=MODEL, bits=BITS).hamming_distance(
                code(sa.select(Item.embedding).where(Item.id == 8).scalar_subquery(), model=MODEL)
            )
        )
        assert session.scalars(by_code.limit(1)).one() == 8
        for metric in ("l2", "cosine", "ip"):
            for where, keep in (
                (None, lambda i: True),
                (Item.category == "b", lambda i: i % 3 == 1),
            ):
                statement = nearest_by_code(
                    Item,
                    Item.embedding,
                    vectors[7],
                    k=5,
                    model=MODEL,
                    bits=BITS,
                    metric=metric,
                    where=where,
                    candidates=300,
                )
                found = session.execute(statement).all()
                ids, distances = exact(vectors, vectors[7], metric, keep)
                assert [item.id for item, _ in found] == ids
                np.testing.assert_allclose([d for _, d in found], distances, atol=1e-2)
        # A table, an alias, and more of the statement.
        other = orm.aliased(Item)
        for entity, column in (
            (Item.__table__, Item.__table__.c.embedding),
            (other, other.embedding),
        ):
            statement = nearest_by_code(
                entity, column, vectors[7], model=MODEL, bits=BITS, metric="l2", candidates=3
            )
            assert len(session.execute(statement.limit(9)).all()) == 3
    Item.metadata.drop_all(engine)
    connection.execute("SELECT hashindex.drop_functions(%s)", [MODEL])


def test_a_search_that_cannot_be(vectors):
    Item = declared()
    options = {"model": "texts", "bits": BITS, "metric": "l2"}
    for column, changed, message in (
        (Item.id, {}, "it needs one of|needs one of type VECTOR"),
        (Item.embedding, {"metric": "l1"}, "metric must be"),
        (Item.embedding, {"model": "a:b"}, "'a:b' is not a name or name:version"),
        (Item.embedding, {"model": ""}, "cannot name a model"),
        (Item.embedding, {"bits": None}, "needs bits"),
        (Item.embedding, {"candidates": 0}, "candidates"),
        (Item.embedding, {"k": 0}, "k"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            nearest_by_code(Item, column, vectors[0], **{**options, **changed})
    assert "code_texts(" in str(code(vectors[0], model="texts:1"))
    assert "code_texts_2(" in str(code(vectors[0], model="texts:2"))


def test_migrations_make_functions_and_index(project, connection, saved, url):
    Item = declared()
    project.write(
        "functions",
        f"op.create_model_functions({MODEL!r})",
        f"op.drop_model_functions({MODEL!r})",
    )
    project.upgrade()
    project.declares(Item.metadata)
    text = project.generate("items")
    assert ".label('code')" in text
    assert body(text, "downgrade")[-1] == "op.drop_table('items')"
    assert f"SELECT hashindex.create_functions(model => '{MODEL}:1')" in project.script()
    project.upgrade()
    # No difference is found in what was made.
    project.check()
    with pytest.raises(InUseError, match="by_code depends on function"):
        online(url, lambda op: op.drop_model_functions(MODEL))
    project.downgrade()
    project.downgrade()
    row = connection.execute("SELECT to_regproc(%s)", [f'hashindex."code_{MODEL}"']).fetchone()
    assert row == (None,)
    with pytest.raises(UnknownModelError):
        online(url, lambda op: op.create_model_functions(f"{MODEL}:2"))


def test_codes_in_a_generated_column(project, engine, connection, saved, vectors):
    connection.execute("SELECT hashindex.create_functions(%s)", [MODEL])
    function = sql.Identifier(f"code_{MODEL}").as_string()
    items = sa.Table(
        "items",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("embedding", VECTOR(8)),
        sa.Column(
            "code",
            BIT(BITS),
            sa.Computed(f"hashindex.{function}(embedding)", persisted=True),
        ),
        sa.Index(
            "by_code", "code", postgresql_using="hnsw", postgresql_ops={"code": "bit_hamming_ops"}
        ),
    )
    project.declares(items.metadata)
    project.generate("items")
    project.upgrade()
    project.check()
    nearest = sa.select(items.c.id).order_by(
        items.c.code.hamming_distance(code(vectors[7], model=MODEL))
    )
    with orm.Session(engine) as session:
        rows = [{"id": i, "embedding": vector} for i, vector in enumerate(vectors, 1)]
        session.execute(sa.insert(items), rows)
        assert "Index Scan using by_code" in plan_of(session, nearest.limit(1))
        assert session.scalars(nearest.limit(1)).one() == 8
