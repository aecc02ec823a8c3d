"""Searches as statements of SQLAlchemy: filters restrict what is searched, not the answers."""

import asyncio
import datetime
import decimal
import enum
import uuid
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.books import engine_of
from fixtures.filters import look_codes_up
from fixtures.indexes import indexed
from pgvector import HalfVector, Vector
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from pg_hashindex import store
from pg_hashindex.contrib.sqlalchemy import HashIndex as Declared
from pg_hashindex.contrib.sqlalchemy import nearest
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest

ROWS, DIMENSION = 400, 8


class Base(orm.DeclarativeBase):
    pass


class Mood(enum.Enum):
    calm = "calm"
    wild = "wild"


class Item(Base):
    __tablename__ = "things"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(5))
    price: orm.Mapped[int]
    weight: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(6, 2))
    made: orm.Mapped[datetime.date]
    mood: orm.Mapped[Mood]
    token: orm.Mapped[uuid.UUID]
    notes: orm.Mapped[dict[str, Any]] = orm.mapped_column(JSONB)
    words: orm.Mapped[list[str]] = orm.mapped_column(ARRAY(sa.Text))
    embedding: orm.Mapped[Any] = orm.mapped_column(VECTOR(DIMENSION))
    tags: orm.Mapped[list["Tag"]] = orm.relationship(back_populates="item")


class Tag(Base):
    __tablename__ = "tags"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    item_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("things.id"))
    label: orm.Mapped[str]
    item: orm.Mapped[Item] = orm.relationship(back_populates="tags")


NAMES = ["a", "b'", "100%", ":x %s"]


@pytest.fixture(scope="module")
def things():
    rng = np.random.default_rng(5)
    return [
        {
            "id": i,
            "name": NAMES[i % 4],
            "price": i % 7,
            "weight": decimal.Decimal(i) / 100,
            "made": datetime.date(2020, 1, 1) + datetime.timedelta(days=i),
            "mood": Mood.wild if i % 5 else Mood.calm,
            "token": uuid.UUID(int=i),
            "notes": {"kind": "odd" if i % 2 else "even", "n": i},
            "words": ["all", f"w{i % 3}"],
            "embedding": rng.standard_normal(DIMENSION).astype(np.float32),
        }
        for i in range(1, ROWS + 1)
    ]


KEPT = ["name", "price", "weight", "made", "mood", "token", "notes", "words"]


@pytest.fixture(params=["compared", "looked up", "kept"])
def library_template(request, server, make_template, things):
    """Rows that match a filter are compared at once, or looked up; its columns kept, or not."""
    name = f"things_{request.param.replace(' ', '_')}"
    engine = engine_of(server.uri(f"template_{name}"))
    return make_template(name, lambda session: make_things(engine, session, things, request.param))


@pytest.fixture
def engine(library_template, url):
    engine = engine_of(url)
    yield engine
    engine.dispose()


def make_things(engine, connection, things, how):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session, session.begin():
        session.execute(sa.insert(Item), things)
        session.execute(
            sa.insert(Tag),
            [
                {"item_id": row["id"], "label": label}
                for row in things
                for label in ("red", "blue")[: row["id"] % 3]
            ],
        )
    X = np.array([row["embedding"] for row in things])
    store.save(connection, LSH(n_bits=16, random_state=1).fit(X).to_model("m"))
    if how != "compared":
        look_codes_up(connection)
    indexed(
        connection,
        "things_idx",
        table="things",
        model="m",
        filter_columns=KEPT if how == "kept" else [],
    )


@pytest.fixture
def query():
    return np.random.default_rng(6).standard_normal(DIMENSION).astype(np.float32)


def exact(things, query, keep, k=10):
    """The nearest of the rows that Python lets through, by brute force."""
    kept = [row for row in things if keep(row)]
    kept.sort(key=lambda row: (float(((row["embedding"] - query) ** 2).sum()), row["id"]))
    return [row["id"] for row in kept[:k]]


# With more candidates than rows a search is exact, so that answers can be told from brute force.
ALL = {"candidates": ROWS}

CONDITIONS = {
    "text": (Item.name == "b'", lambda r: r["name"] == "b'"),
    "longer text than the column's": (Item.name != "a, and more", lambda r: True),
    "percent and colon": (Item.name.in_(["100%", ":x %s"]), lambda r: r["name"] in NAMES[2:]),
    "like": (Item.name.like("%0%"), lambda r: "0" in r["name"]),
    "not in": (Item.price.not_in([1, 2, 3]), lambda r: r["price"] not in (1, 2, 3)),
    "in nothing": (Item.price.in_([]), lambda r: False),
    "not in nothing": (Item.price.not_in([]), lambda r: True),
    "float beside integer": (Item.price * 1.5 > 4.4, lambda r: r["price"] * 1.5 > 4.4),
    "numeric": (
        Item.weight < decimal.Decimal("1.005"),
        lambda r: r["weight"] < decimal.Decimal("1.005"),
    ),
    "date": (
        Item.made >= datetime.date(2020, 12, 1),
        lambda r: r["made"] >= datetime.date(2020, 12, 1),
    ),
    "enum": (Item.mood == Mood.calm, lambda r: r["mood"] is Mood.calm),
    "uuid": (Item.token == uuid.UUID(int=7), lambda r: r["id"] == 7),
    "uuids": (Item.token.in_([uuid.UUID(int=7)]), lambda r: r["id"] == 7),
    "json": (Item.notes["kind"].astext == "odd", lambda r: r["id"] % 2 == 1),
    "json contains": (Item.notes.contains({"kind": "odd"}), lambda r: r["id"] % 2 == 1),
    "array": (Item.words.contains(["w1"]), lambda r: r["id"] % 3 == 1),
    "null": (Item.name.is_(None), lambda r: False),
    "true": (sa.true(), lambda r: True),
    "none of two": (
        ~sa.or_(Item.price == 1, Item.mood == Mood.wild),
        lambda r: r["price"] != 1 and r["mood"] is Mood.calm,
    ),
    "vector": (
        Item.embedding.l2_distance([0.0] * DIMENSION) < 2.5,
        lambda r: float(np.sqrt((r["embedding"].astype(float) ** 2).sum())) < 2.5,
    ),
    "exists": (
        sa.exists().where(Tag.item_id == Item.id, Tag.label == "blue"),
        lambda r: r["id"] % 3 == 2,
    ),
    "relationship": (Item.tags.any(Tag.label == "blue"), lambda r: r["id"] % 3 == 2),
    "in a query": (
        Item.id.in_(sa.select(Tag.item_id).where(Tag.label == "blue")),
        lambda r: r["id"] % 3 == 2,
    ),
}


def test_filters_restrict_what_is_searched(engine, things, query):
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    found, expected = {}, {}
    with orm.Session(engine) as session:
        for name, (condition, keep) in CONDITIONS.items():
            found[name] = [item.id for item in session.scalars(statement.where(condition))]
            expected[name] = exact(things, query, keep)
    assert found == expected
    assert len({tuple(ids) for ids in expected.values()}) > 12


def test_the_answers_come_with_their_distance_in_order(engine, things, query):
    with orm.Session(engine) as session:
        rows = session.execute(
            nearest(Item, Item.embedding, query, 5, index="things_idx", **ALL)
        ).all()
    assert [row.Item.id for row in rows] == exact(things, query, lambda r: True, 5)
    by_id = {row["id"]: row["embedding"] for row in things}
    expected = [float(np.linalg.norm(by_id[row.Item.id] - query)) for row in rows]
    assert [row.distance for row in rows] == pytest.approx(expected)


def test_without_a_filter_the_index_own_function_is_called(query):
    statement = nearest(Item, Item.embedding, query, index="things_idx")
    written = str(statement.compile(dialect=sa.dialects.postgresql.dialect()))
    assert "hashindex.search_things_idx(" in written
    assert "filter =>" not in written
    assert "hashindex.search('things_idx', " in str(
        statement.where(Item.price == 1).compile(dialect=sa.dialects.postgresql.dialect())
    )


def test_joins_restrict_what_is_searched(engine, things, query):
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    with orm.Session(engine) as session:
        joined = session.scalars(statement.join(Item.tags).where(Tag.label == "blue")).all()
        bare = session.scalars(statement.join(Tag, Tag.item_id == Item.id)).unique().all()
    assert [item.id for item in joined] == exact(things, query, lambda r: r["id"] % 3 == 2)
    assert [item.id for item in bare] == exact(things, query, lambda r: r["id"] % 3 > 0)


def test_loading_strategies_restrict_nothing(engine, things, query):
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    for option in (orm.joinedload(Item.tags), orm.selectinload(Item.tags)):
        with orm.Session(engine) as session:
            found = session.scalars(statement.options(option)).unique().all()
        assert [item.id for item in found] == exact(things, query, lambda r: True)
        assert [len(item.tags) for item in found] == [item.id % 3 for item in found]
    outer = nearest(Item, Item.embedding, query, index="things_idx").options(
        orm.joinedload(Item.tags)
    )
    assert "filter =>" not in str(outer.compile(dialect=sa.dialects.postgresql.dialect()))


def test_fewer_answers_may_be_taken(engine, things, query):
    """With a limit of its own and an eager join SQLAlchemy puts the search into a subquery."""
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    statement = statement.options(orm.joinedload(Item.tags)).where(Item.price == 3).limit(2)
    wanted = exact(things, query, lambda r: r["price"] == 3, 2)
    with orm.Session(engine) as session:
        found = session.scalars(statement).unique().all()
        inside = sa.select(statement.with_only_columns(Item.id).subquery().c.id)
        ids = session.scalars(sa.select(Item.id).where(Item.id.in_(inside))).all()
    assert [item.id for item in found] == wanted
    assert sorted(ids) == sorted(wanted)


def test_an_outer_join_with_a_filter_restricts(engine, things, query):
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    with orm.Session(engine) as session:
        untagged = session.scalars(statement.outerjoin(Item.tags).where(Tag.id.is_(None))).all()
    assert [item.id for item in untagged] == exact(things, query, lambda r: r["id"] % 3 == 0)


def test_aliases_and_tables(engine, things, query):
    other = orm.aliased(Item, name="of the thing's kind %")
    table = Item.__table__
    wanted = exact(things, query, lambda r: r["price"] == 3)
    with orm.Session(engine) as session:
        found = session.scalars(
            nearest(other, other.embedding, query, index="things_idx", **ALL)
            .join(Item, Item.id == other.id)
            .where(Item.price == 3)
        ).all()
        alone = session.scalars(
            nearest(other, other.embedding, query, index="things_idx", **ALL).where(
                other.price == 3
            )
        ).all()
        rows = session.execute(
            nearest(table, table.c.embedding, query, index="things_idx", **ALL).where(
                table.c.price == 3
            )
        ).all()
    assert [item.id for item in found] == wanted
    assert [item.id for item in alone] == wanted
    assert [row.id for row in rows] == wanted


def test_filters_on_the_distance_restrict_the_answers(engine, things, query):
    statement = nearest(Item, Item.embedding, query, 10, index="things_idx", **ALL)
    with orm.Session(engine) as session:
        third = session.execute(statement).all()[2].distance
        near = statement.where(statement.selected_columns.distance <= third)
        assert "filter =>" not in str(near.compile(dialect=sa.dialects.postgresql.dialect()))
        assert len(session.execute(near).all()) == 3
        both = session.scalars(near.where(Item.price == 3)).all()
    first = exact(things, query, lambda r: r["price"] == 3)
    by_id = {row["id"]: row["embedding"] for row in things}
    assert [item.id for item in both] == [
        i for i in first if float(np.linalg.norm(by_id[i] - query)) <= third + 1e-9
    ]


def test_a_compiled_statement_takes_new_values(engine, things):
    """SQLAlchemy keeps the text of a statement; values, of IN too, must be those of each call."""
    rng = np.random.default_rng(9)
    with orm.Session(engine) as session:
        for round_ in range(12):
            query = rng.standard_normal(DIMENSION).astype(np.float32)
            prices = list(range(round_ % 4))
            k = 1 + round_ % 3
            statement = nearest(Item, Item.embedding, query, k, index="things_idx", **ALL)
            found = session.scalars(statement.where(Item.price.in_(prices), Item.id > round_)).all()
            keep = lambda r, p=prices, i=round_: r["price"] in p and r["id"] > i  # noqa: E731
            assert [item.id for item in found] == exact(things, query, keep, k)


def test_values_are_never_part_of_the_text(engine, query):
    hostile = "'); DROP TABLE things; --"
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL)
    with orm.Session(engine) as session:
        for value in (hostile, "\\'", "$1", "%(k)s", "{}", "\u00e9\U0001f600"):
            assert session.scalars(statement.where(Item.name == value)).all() == []
            assert session.scalars(statement.where(Item.name.in_([value]))).all() == []
        assert session.scalar(sa.select(sa.func.count()).select_from(Item)) == ROWS


def test_async_engines_give_the_same(engine, things, query):
    async def ask():
        other = create_async_engine(engine.url)
        async with AsyncSession(other) as session:
            found = await session.scalars(
                nearest(Item, Item.embedding, query, index="things_idx", **ALL)
                .where(Item.price == 3)
                .options(orm.selectinload(Item.tags))
            )
            ids = [item.id for item in found]
        await other.dispose()
        return ids

    assert asyncio.run(ask()) == exact(things, query, lambda r: r["price"] == 3)


def test_the_path_of_the_caller_counts(engine, connection, things, query):
    connection.execute("CREATE SCHEMA shop")
    connection.execute("CREATE TABLE shop.offers AS SELECT id AS item_id FROM things WHERE id < 50")
    # Tables that our functions would find by their own path.
    connection.execute("CREATE TABLE public.offers AS SELECT 7::bigint AS item_id")
    offers = sa.Table("offers", sa.MetaData(), sa.Column("item_id", sa.BigInteger))
    statement = nearest(Item, Item.embedding, query, index="things_idx", **ALL).where(
        Item.id.in_(sa.select(offers.c.item_id))
    )
    with orm.Session(engine) as session:
        session.execute(sa.text("SET LOCAL search_path TO shop, public"))
        found = session.scalars(statement).all()
        assert session.scalar(sa.text("SHOW search_path")) == "shop, public"
    assert [item.id for item in found] == exact(things, query, lambda r: r["id"] < 50)


@pytest.mark.parametrize("kind", [list, np.asarray, Vector, HalfVector])
def test_queries_of_any_kind(engine, kind):
    query = [1.0, -2.0, 0.5, 0.0, 3.0, 1.0, -1.0, 2.0]
    with orm.Session(engine) as session:
        statement = nearest(Item, Item.embedding, kind(query), 3, index="things_idx", **ALL)
        expected = nearest(Item, Item.embedding, query, 3, index="things_idx", **ALL)
        assert session.execute(statement).all() == session.execute(expected).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k is 0; it must be 1 or more"),
        ({"query": [1.0, 2.0]}, "2"),
        ({"column": Item.price}, "needs one of type VECTOR or HALFVEC"),
        ({"column": "embedding"}, "must be an attribute of a mapped class"),
        ({"index": None}, "0 indexes are declared on"),
        ({"candidates": -1}, "candidates is -1"),
        ({"query": [float("nan")] * DIMENSION}, "nan"),
    ],
)
def test_bad_input_is_told_before_anything_runs(change, message):
    given = {
        "column": Item.embedding, "query": [0.0] * DIMENSION, "k": 3, "index": "things_idx",
    } | change  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        nearest(Item, given.pop("column"), given.pop("query"), given.pop("k"), **given)


def test_a_key_is_named_or_the_primary_key():
    pairs = sa.Table(
        "pairs",
        sa.MetaData(),
        sa.Column("a", sa.Integer, primary_key=True),
        sa.Column("b", sa.Integer, primary_key=True),
        sa.Column("uid", sa.Integer, unique=True),
        sa.Column("v", VECTOR(2)),
    )
    keyless = sa.Table("keyless", pairs.metadata, sa.Column("v", VECTOR(2)))
    with pytest.raises(InvalidInputError, match="has no primary key; name the key"):
        nearest(keyless, keyless.c.v, [1, 2], index="i")
    written = str(nearest(pairs, pairs.c.v, [1, 2], index="i"))
    assert "FROM hashindex.search('i', " in written
    assert "pairs.a = CAST(anon_1.hashindex_id_0" in written
    written = str(nearest(pairs, pairs.c.v, [1, 2], index="i", key=pairs.c.uid))
    assert "pairs.uid = CAST" in written
    Declared("i", pairs.c.v, model="m", key="uid")
    for alias in (pairs, pairs.alias("p")):
        written = str(nearest(alias, alias.c.v, [1, 2]))
        assert f"{alias.name}.uid = CAST" in written
        assert "hashindex.search_i(" in written
