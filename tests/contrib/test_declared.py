"""Indexes declared beside tables of SQLAlchemy: made and dropped with them."""

import asyncio
import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.indexes import indexed
from fixtures.known import code_texts, stored_codes
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from pg_hashindex import store
from pg_hashindex.contrib.sqlalchemy import HashIndex, declared_on, nearest
from pg_hashindex.contrib.sqlalchemy.statements import drop_statement
from pg_hashindex.db.connection import create_engine
from pg_hashindex.errors import (
    DuplicateNameError,
    HashIndexError,
    InvalidInputError,
    MissingSchemaError,
    UnknownIndexError,
    UnknownModelError,
)
from pg_hashindex.index import handle as live

pytestmark = pytest.mark.newest


def items_table(*declared, metadata=None):
    return sa.Table(
        "items",
        sa.MetaData() if metadata is None else metadata,
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("category", sa.Text),
        sa.Column("embedding", VECTOR(8)),
        *declared,
    )


@pytest.fixture
def engine(url):
    engine = create_engine(url)
    yield engine
    engine.dispose()


def indexes(connection):
    return connection.execute(
        "SELECT i.name, i.schema_name, i.table_name, m.name || ':' || m.version "
        "FROM hashindex.index i "
        "JOIN hashindex.index_set s ON s.index_name = i.name AND s.state = 'used' "
        "JOIN hashindex.model m ON m.id = s.model_id ORDER BY 1"
    ).fetchall()


def objects_of_indexes(connection):
    return connection.execute(
        "SELECT relname FROM pg_class WHERE relname ~ 'items_idx' "
        "UNION ALL SELECT proname FROM pg_proc WHERE proname ~ 'items_idx' "
        "UNION ALL SELECT tgname FROM pg_trigger WHERE tgname ~ 'items_idx'"
    ).fetchall()


def assert_encoded(connection, model, vectors):
    """Each row of items has the code that the model gives its vector, and there is no other."""
    index = live.HashIndex.open(connection, "items_idx")
    stored = stored_codes(index)
    expected = code_texts(model.encode(vectors), model.n_bits)
    assert {key: code for key, (code, _) in stored.items()} == dict(enumerate(expected, 1))


def test_an_index_comes_and_goes_with_its_table(engine, connection, model, vectors):
    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "items"
        __table_args__ = (
            HashIndex("items_idx", "embedding", model="lsh", access="scan"),
            {"comment": "items"},
        )
        id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
        category: Mapped[str | None]
        embedding: Mapped[Any] = mapped_column(VECTOR(8))

    declared = declared_on(Item.__table__)["items_idx"]
    assert declared.column is Item.__table__.c.embedding
    assert (declared.name, declared.model) == ("items_idx", "lsh")
    with engine.begin() as transaction:
        Base.metadata.create_all(transaction)
        # Neither fails where both are there.
        Base.metadata.create_all(transaction)
    assert indexes(connection) == [("items_idx", "public", "items", "lsh:1")]
    with engine.begin() as transaction:
        rows = [{"id": n, "embedding": vector} for n, vector in enumerate(vectors, 1)]
        transaction.execute(sa.insert(Item), rows)
    assert_encoded(connection, model, vectors)
    with engine.begin() as transaction:
        Base.metadata.drop_all(transaction)
    assert indexes(connection) == []
    assert objects_of_indexes(connection) == []


@pytest.mark.parametrize("kind", ["vector", "halfvec"])
def test_rows_that_are_there_are_encoded(engine, connection, items, model, vectors, kind):
    if kind == "halfvec":
        connection.execute("ALTER TABLE items ALTER embedding TYPE halfvec(8)")
        vectors = vectors.astype(np.float16).astype(np.float32)
    column = sa.Column("embedding", HALFVEC(8) if kind == "halfvec" else VECTOR(8))
    table = sa.Table(
        "items", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), column
    )
    index = HashIndex("items_idx", table.c.embedding, model="lsh:1", access="scan", candidates=77)
    with engine.begin() as transaction:
        with pytest.warns(UserWarning, match="pg-hashindex index encode items_idx"):
            index.create(transaction)
        index.create(transaction, checkfirst=True)
    live.HashIndex.open(connection, "items_idx").encode()
    assert_encoded(connection, model, vectors)
    found = live.HashIndex.open(connection, "items_idx")
    assert (found.candidates, found.access) == (77, "scan")
    # All 300 are candidates: the search is the exact one.
    distances = np.linalg.norm(vectors - vectors[4], axis=1)
    assert [hit.id for hit in found.search(vectors[4], k=5, candidates=300)] == list(
        np.argsort(distances)[:5] + 1
    )
    with engine.begin() as transaction, pytest.raises(DuplicateNameError, match="exists already"):
        index.create(transaction)
    with engine.begin() as transaction:
        index.drop(transaction)
        index.drop(transaction, checkfirst=True)
    with engine.begin() as transaction, pytest.raises(UnknownIndexError, match="items_idx"):
        index.drop(transaction)
    assert objects_of_indexes(connection) == []


def test_rows_wait_to_be_encoded(engine, connection, items, model):
    index = HashIndex("items_idx", items_table().c.embedding, model="lsh", access="scan")
    with engine.begin() as transaction, pytest.warns(UserWarning, match="encode items_idx") as told:
        index.create(transaction)
    assert told[0].filename == __file__
    found = live.HashIndex.open(connection, "items_idx")
    assert found.waiting() == 300
    # A warning may be meant to be an error; it is of the line that asked for the index.
    refused = HashIndex("refused_idx", items_table().c.embedding, model="lsh", access="scan")
    with engine.begin() as transaction, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="encode refused_idx"):
            refused.create(transaction)


def test_missing_model(engine, connection, items, lsh_model):
    table = items_table()
    with (
        engine.begin() as transaction,
        pytest.raises(UnknownModelError, match='model "lsh" does not exist'),
    ):
        HashIndex("strict_idx", table.c.embedding, model="lsh").create(transaction)
    metadata = sa.MetaData()
    deferred = HashIndex("items_idx", "embedding", model="lsh", access="scan", defer=True)
    items_table(deferred, metadata=metadata)
    with engine.begin() as transaction:
        with pytest.warns(UserWarning, match=r'"items_idx" is not made: model "lsh" does not'):
            assert HashIndex.create_missing(transaction, metadata) == []
    assert indexes(connection) == []
    store.save(connection, lsh_model)
    with engine.begin() as transaction:
        with pytest.warns(UserWarning, match="pg-hashindex index encode items_idx"):
            assert HashIndex.create_missing(transaction, metadata) == ["items_idx"]
        assert HashIndex.create_missing(transaction, metadata) == []
        # Left as it is.
        deferred.create(transaction)
    live.HashIndex.open(connection, "items_idx").encode()
    assert indexes(connection) == [("items_idx", "public", "items", "lsh:1")]


def test_a_database_without_the_schema(empty_url):
    metadata = sa.MetaData()
    items_table(HashIndex("items_idx", "embedding", model="lsh"), metadata=metadata)
    engine = create_engine(empty_url)
    with (
        engine.begin() as transaction,
        pytest.raises(MissingSchemaError, match="pg-hashindex schema upgrade"),
    ):
        metadata.create_all(transaction)
    with engine.begin() as transaction:
        transaction.execute(sa.text("CREATE TABLE items (id int)"))
        metadata.drop_all(transaction)
        assert not sa.inspect(transaction).has_table("items")
    engine.dispose()


def test_a_column_of_another_dimension(engine, connection, model):
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(16))")
    index = HashIndex("items_idx", items_table().c.embedding, model="lsh")
    with (
        engine.begin() as transaction,
        pytest.raises(InvalidInputError, match="16 dimensions, the model takes 8"),
    ):
        index.create(transaction)


def test_an_index_of_that_name_on_another_table_stays(engine, connection, items, model):
    indexed(connection)
    metadata = sa.MetaData()
    other = sa.Table("others", metadata, sa.Column("id", sa.Integer, primary_key=True))
    other.append_column(sa.Column("embedding", VECTOR(8)))
    HashIndex("items_idx", other.c.embedding, model="lsh")
    with engine.begin() as transaction:
        transaction.execute(sa.text("CREATE TABLE others (id int)"))
        metadata.drop_all(transaction)
    assert indexes(connection) == [("items_idx", "public", "items", "lsh:1")]


def test_copies_of_a_table_have_indexes_of_their_own(engine, connection, model):
    table = items_table(HashIndex("items_idx", "embedding", model="lsh", candidates=33))
    shop = sa.MetaData()
    copy = table.to_metadata(shop, schema="shop")
    copied = declared_on(copy)["items_idx"]
    assert copied.column is copy.c.embedding
    assert copied.spec().given() == {"schema": "shop", "candidates": 33}
    HashIndex("second_idx", copy.c.embedding, model="lsh")
    assert set(declared_on(table)) == {"items_idx"}
    assert declared_on(table)["items_idx"].column is table.c.embedding
    with engine.begin() as transaction:
        transaction.execute(sa.text("CREATE SCHEMA shop"))
        shop.create_all(transaction)
    assert indexes(connection) == [
        ("items_idx", "shop", "items", "lsh:1"),
        ("second_idx", "shop", "items", "lsh:1"),
    ]
    with engine.begin() as transaction:
        shop.drop_all(transaction)
    assert indexes(connection) == []


def test_no_translation_of_schemas(engine, connection, model):
    table = items_table(HashIndex("items_idx", "embedding", model="lsh"))
    with engine.begin() as transaction:
        table.create(transaction.execution_options(schema_translate_map=None))
    assert indexes(connection) == [("items_idx", "public", "items", "lsh:1")]


def test_schemas_are_translated(engine, connection, model):
    table = items_table(HashIndex("items_idx", "embedding", model="lsh"))
    connection.execute("CREATE SCHEMA tenant")
    with engine.begin() as transaction:
        tenant = transaction.execution_options(schema_translate_map={None: "tenant"})
        table.create(tenant)
        assert indexes(connection) == []
    assert indexes(connection) == [("items_idx", "tenant", "items", "lsh:1")]


def test_an_async_engine(url, connection, items):
    table = items_table(HashIndex("items_idx", "embedding", model="lsh", defer=True))
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    async def run():
        async with engine.begin() as transaction:
            await transaction.run_sync(declared_on(table)["items_idx"].create)
        await engine.dispose()

    with pytest.warns(UserWarning, match="is not made"):
        asyncio.run(run())


def test_on_another_database_there_are_no_indexes():
    metadata = items_table(HashIndex("items_idx", "embedding", model="lsh")).metadata
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    metadata.create_all(engine)
    assert sa.inspect(engine).get_table_names() == ["items"]
    metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()


def test_the_statements_can_be_printed():
    printed = []
    engine = sa.create_mock_engine(
        "postgresql+psycopg://", lambda statement, *_, **__: printed.append(str(statement))
    )
    index = HashIndex(
        "Items-100", "embedding", model="lsh", access="lists",
        tenant="tenant_id",
    )  # fmt: skip
    metadata = items_table(index).metadata
    metadata.create_all(engine, checkfirst=False)
    assert printed[-1] == (
        "SELECT hashindex.create_index("
        "name => hashindex._declared_name('Items-100', '\"items\"'), table_name => '\"items\"', "
        "column_name => 'embedding', model => 'lsh', access => 'lists', "
        "tenant => 'tenant_id')"
    )
    metadata.drop_all(engine, checkfirst=False)
    assert [text.split("(")[0] for text in printed[-2:]] == [
        "SELECT hashindex.drop_index",
        "\nDROP TABLE items",
    ]


def test_a_drop_after_its_table_takes_the_index_of_its_schema(connection):
    for schema in ("one", "two"):
        table = f"{schema}.items"
        connection.execute(
            f"CREATE SCHEMA {schema}; CREATE TABLE {table} (id int PRIMARY KEY, v vector(8))"
        )
        connection.execute(
            f"SELECT hashindex.create_index(hashindex._declared_name('items_idx', '{table}'), "
            f"'{table}', 'v', 'none', 'hnsw')"
        )
    connection.execute("DROP TABLE two.items; SET search_path = two, public")
    connection.execute(drop_statement("items_idx", table="items"))
    assert connection.execute("SELECT name FROM hashindex.index").fetchall() == [("items_idx",)]


def declare(column, **options):
    HashIndex("items_idx", column, **{"model": "lsh", **options})


class Mapping(DeclarativeBase):
    pass


class Thing(Mapping):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str]
    vector: Mapped[Any] = mapped_column("embedding", VECTOR(8))


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (lambda: declare(Thing.label), r"things\.label, which is of type String.*VECTOR or HALF"),
        (lambda: items_table(HashIndex("x", "category", model="m")), "which is of type Text"),
        (lambda: items_table(HashIndex("x", "vector", model="m")), "table items does not have"),
        (lambda: declare(aliased(Thing).vector), "give it an attribute of a mapped class"),
        (lambda: declare(3), "declared on 3"),
        (lambda: declare(Thing.vector, model="m:0"), "model 'm:0'"),
        (lambda: declare(Thing.vector, filter_columns=["label"]), "got filter_columns"),
        (lambda: declare(Thing.vector, key_columns=[Thing.label]), "a list of names"),
        (lambda: declare(Thing.vector, tenant=Thing.label), "is the name of a column"),
        (lambda: declare(Thing.vector, access="ivf"), "'ivf'.*lists, scan"),
        (lambda: HashIndex("é" * 21, Thing.vector, model="m"), "1 to 40 letters"),
        (lambda: HashIndex("x", "embedding", model="m").column, "is not declared on a table"),
    ],
)
def test_invalid_declarations(declaration, message):
    with pytest.raises(InvalidInputError, match=message):
        declaration()


def test_a_column_may_be_given_before_it_has_a_table():
    class Other(Mapping):
        __tablename__ = "others"
        id: Mapped[int] = mapped_column(primary_key=True)
        vector: Mapped[Any] = mapped_column("embedding", VECTOR(8))
        __table_args__ = (HashIndex("others_idx", vector, model="lsh"),)

    assert declared_on(Other.__table__)["others_idx"].column is Other.__table__.c.embedding
    column = sa.Column("embedding", HALFVEC(8))
    table = sa.Table("t", sa.MetaData(), column, HashIndex("t_idx", column, model="lsh"))
    assert declared_on(table)["t_idx"].column is column


def test_a_name_is_declared_once():
    metadata = sa.MetaData()
    first = HashIndex("items_idx", "embedding", model="lsh")
    table = items_table(first, metadata=metadata)
    # The same again, as when a cell of a notebook is run again.
    HashIndex("items_idx", table.c.embedding, model="lsh")
    with pytest.raises(HashIndexError, match="already, otherwise"):
        HashIndex("items_idx", table.c.embedding, model="other")
    other = sa.Table("others", metadata, sa.Column("embedding", VECTOR(8)))
    with pytest.raises(HashIndexError, match="declared on items already, otherwise"):
        HashIndex("items_idx", other.c.embedding, model="lsh")
    with pytest.raises(HashIndexError, match="cannot be on elsewhere too"):
        sa.Table("elsewhere", sa.MetaData(), sa.Column("embedding", VECTOR(8)), first)
    mapped = HashIndex("things_idx", Thing.vector, model="lsh")
    assert mapped.column is Thing.__table__.c.embedding


@pytest.mark.parametrize("by", ["schema_translate_map", "search_path"])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_schema_for_each_tenant(engine, connection, model, vectors, by, filtered):
    """Tables of one class have an index each, and a statement searches that of its table."""
    metadata = sa.MetaData()
    table = items_table(HashIndex("items_idx", "embedding", model="lsh"), metadata=metadata)

    def begin(schema, stack):
        if by == "search_path":
            session = stack.enter_context(engine.begin())
            session.execute(sa.text(f'SET LOCAL search_path = "{schema}", public'))
            return session
        return stack.enter_context(
            engine.execution_options(schema_translate_map={None: schema}).begin()
        )

    schemas = ["one", "it's 2", "s" * 40]
    for number, schema in enumerate(schemas):
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        with contextlib.ExitStack() as stack:
            session = begin(schema, stack)
            metadata.create_all(session)
            rows = np.roll(vectors, number, axis=0)
            session.execute(
                sa.insert(table), [{"id": n, "embedding": row} for n, row in enumerate(rows)]
            )
    names = [name for name, *_ in indexes(connection)]
    assert len(names) == 3
    assert "items_idx" in names
    for number, schema in enumerate(schemas):
        statement = nearest(table, table.c.embedding, vectors[7], 1)
        statement = statement.where(table.c.id >= 0) if filtered else statement
        with contextlib.ExitStack() as stack:
            assert begin(schema, stack).execute(statement).scalar_one() == 7 + number
    with contextlib.ExitStack() as stack:
        metadata.drop_all(begin(schemas[1], stack))
    assert [schema for _, schema, *_ in indexes(connection)] == [schemas[0], schemas[2]]
