"""Searches as statements of SQLAlchemy: filters restrict what is searched, not the answers."""

import asyncio
import datetime
import decimal
import uuid

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.books import DIMENSION, QUERY, ROWS, Book, Label, Mood, Review, exact, ids, search
from pgvector import HalfVector, Vector
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from pg_hashindex.contrib.sqlalchemy import HashIndex as Declared
from pg_hashindex.contrib.sqlalchemy import nearest
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest


def distances(books):
    """Return how far each book is from the query, by its id."""
    return {row["id"]: float(np.linalg.norm(row["embedding"] - QUERY)) for row in books}


def written(statement):
    return str(statement.compile(dialect=sa.dialects.postgresql.dialect()))


CONDITIONS = {
    "text": (Book.title == "b'\\", lambda r: r["title"] == "b'\\"),
    "longer text than the column's": (Book.title != "abc, and more", lambda r: True),
    "percent and colon": (Book.title.in_(["100", ":%s"]), lambda r: r["title"] in ("100", ":%s")),
    "like": (Book.title.like("%0%"), lambda r: "0" in r["title"]),
    "not in": (Book.price.not_in([1, 2, 3]), lambda r: r["price"] not in (1, 2, 3)),
    "in nothing": (Book.price.in_([]), lambda r: False),
    "not in nothing": (Book.price.not_in([]), lambda r: True),
    "float beside integer": (Book.price * 1.5 > 4.4, lambda r: r["price"] * 1.5 > 4.4),
    "numeric": (
        Book.weight < decimal.Decimal("1.005"),
        lambda r: r["weight"] < decimal.Decimal("1.005"),
    ),
    "date": (
        Book.made >= datetime.date(2020, 2, 1),
        lambda r: r["made"] >= datetime.date(2020, 2, 1),
    ),
    "enum": (Book.mood == Mood.calm, lambda r: r["mood"] is Mood.calm),
    "uuid": (Book.token == uuid.UUID(int=7), lambda r: r["id"] == 7),
    "uuids": (Book.token.in_([uuid.UUID(int=7)]), lambda r: r["id"] == 7),
    "json": (Book.notes["kind"]["of"].astext == "odd", lambda r: r["id"] % 2 == 1),
    "json contains": (Book.notes.contains({"kind": {"of": "odd"}}), lambda r: r["id"] % 2 == 1),
    "array": (Book.words.contains(["w1"]), lambda r: r["id"] % 3 == 1),
    "null": (Book.title.is_(None), lambda r: False),
    "true": (sa.true(), lambda r: True),
    "none of two": (
        ~sa.or_(Book.price == 1, Book.mood == Mood.wild),
        lambda r: r["price"] != 1 and r["mood"] is Mood.calm,
    ),
    "vector": (
        Book.embedding.l2_distance([0.0] * DIMENSION) < 1.8,
        lambda r: float(np.sqrt((r["embedding"].astype(float) ** 2).sum())) < 1.8,
    ),
    "exists": (
        sa.exists().where(Review.book_id == Book.id, Review.hidden),
        lambda r: r["id"] % 5 == 0,
    ),
    "relationship": (Book.labels.any(Label.name == "red"), lambda r: r["id"] % 3 == 0),
    "in a query": (
        Book.id.in_(sa.select(Review.book_id).where(Review.hidden)),
        lambda r: r["id"] % 5 == 0,
    ),
    "longer text in": (Book.title.in_(["abcd", "100"]), lambda r: r["title"] == "100"),
    "longer text not in": (Book.title.not_in(["1000"]), lambda r: True),
    "backslash": (Book.title.like("b'!\\%", escape="!"), lambda r: r["title"] == "b'\\"),
    "escape": (Book.title.like("1\\00", escape="\\"), lambda r: r["title"] == "100"),
    "finer number not in": (Book.weight.not_in([decimal.Decimal("3.804")]), lambda r: True),
    "larger number in": (Book.weight.in_([decimal.Decimal("1000")]), lambda r: False),
    # 0.1 as a real is a little more than as double precision.
    "real": (Book.score > 0.1, lambda r: True),
    "real in": (Book.score.in_([0.1, 0.5]), lambda r: r["score"] == 0.5),
    "real not in": (Book.score.not_in([0.1]), lambda r: True),
    "rough": (Book.rough > 0.1, lambda r: True),
    "rough in": (Book.rough.in_([0.1, 0.5]), lambda r: r["rough"] == 0.5),
    "enum in": (Book.mood.in_([Mood.calm]), lambda r: r["mood"] is Mood.calm),
    "expression": (Book.backwards == "one", lambda r: r["backwards"] == "one"),
    "point": (Book.place.op("~=")("2 0"), lambda r: r["place"] == "2 0"),
    "list of json in": (Book.notes["list"].in_([[1], [2, 0]]), lambda r: r["notes"]["list"] == [1]),
    "vectors in": (Book.embedding.in_([[1.0] * DIMENSION, QUERY]), lambda r: False),
    "path of json": (Book.notes[("kind", "of")].astext == "odd", lambda r: r["id"] % 2 == 1),
    "jsonpath": (Book.notes.path_exists('$.kind ? (@.of == "odd")'), lambda r: r["id"] % 2 == 1),
    "any of an array": (
        Book.price == sa.any_(sa.literal([1, 2], ARRAY(sa.Integer))),
        lambda r: r["price"] in (1, 2),
    ),
    "text of the caller": (
        sa.text("books.title = :t AND price > :p").bindparams(t="abc", p=2),
        lambda r: r["title"] == "abc" and r["price"] > 2,
    ),
    "signs": (Book.price - sa.literal(-1) > 3, lambda r: r["price"] > 2),
    "remainder": (Book.price % 2 == 1, lambda r: r["price"] % 2 == 1),
}


def test_filters_restrict_what_is_searched(library, books):
    found, expected = {}, {}
    with orm.Session(library) as session:
        for name, (condition, keep) in CONDITIONS.items():
            found[name] = ids(session, search().where(condition))
            expected[name] = exact(books, keep)
    assert found == expected
    assert len({tuple(each) for each in expected.values()}) > 12


def test_the_answers_come_with_their_distance_in_order(library, books):
    with orm.Session(library) as session:
        rows = session.execute(search(k=5)).all()
    assert [row.Book.id for row in rows] == exact(books, lambda r: True, 5)
    far = distances(books)
    assert [row.distance for row in rows] == pytest.approx([far[row.Book.id] for row in rows])


def test_the_index_is_that_of_the_table_that_the_statement_names():
    named = (
        "hashindex.search(hashindex._searched_name('books_idx', 'books'::pg_catalog.regclass, "
        "ARRAY['id']::pg_catalog.text[]), "
    )
    assert named in written(search())
    assert "filter =>" not in written(search())
    assert named in written(search().where(Book.price == 1))


def test_joins_restrict_what_is_searched(library, books):
    with orm.Session(library) as session:
        joined = ids(session, search().join(Book.labels).where(Label.name == "red"))
        bare = ids(session, search().join(Review, Review.book_id == Book.id))
        outer = search().outerjoin(Book.reviews).where(Review.id.is_(None))
        assert ids(session, outer) == [1]
    assert joined == exact(books, lambda r: r["id"] % 3 == 0)
    assert bare == exact(books, lambda r: r["id"] > 1)


def test_loading_strategies_restrict_nothing(library, books):
    for option in (orm.joinedload(Book.reviews), orm.selectinload(Book.reviews)):
        with orm.Session(library) as session:
            found = session.scalars(search().options(option)).unique().all()
        assert [book.id for book in found] == exact(books, lambda r: True)
        assert [len(book.reviews) for book in found] == [
            (book.id > 1) + (book.id % 7 == 0) for book in found
        ]
    assert "filter =>" not in written(search().options(orm.joinedload(Book.reviews)))


def test_fewer_answers_may_be_taken(library, books):
    """With a limit of its own and an eager join SQLAlchemy puts the search into a subquery."""
    statement = search().options(orm.joinedload(Book.reviews)).where(Book.price == 0).limit(2)
    wanted = exact(books, lambda r: r["price"] == 0, 2)
    with orm.Session(library) as session:
        assert ids(session, statement) == wanted
        inside = sa.select(statement.with_only_columns(Book.id).subquery().c.id)
        found = session.scalars(sa.select(Book.id).where(Book.id.in_(inside))).all()
    assert sorted(found) == sorted(wanted)


def test_aliases_and_tables(library, books):
    other = orm.aliased(Book, name="of the book's kind %")
    table = Book.__table__
    wanted = exact(books, lambda r: r["price"] == 3)
    near = nearest(table, table.c.embedding, QUERY, index="books_idx", candidates=ROWS)
    with orm.Session(library) as session:
        joined = search(other).join(Book, Book.id == other.id).where(Book.price == 3)
        assert ids(session, joined) == wanted
        assert ids(session, search(other).where(other.price == 3)) == wanted
        rows = session.execute(near.where(table.c.price == 3)).all()
    assert [row.id for row in rows] == wanted


def test_filters_on_the_distance_restrict_the_answers(library, books):
    with orm.Session(library) as session:
        every = search()
        third = session.execute(every).all()[2].distance
        near = every.where(every.selected_columns.distance <= third)
        assert "filter =>" not in written(near)
        assert len(session.execute(near).all()) == 3
        both = ids(session, near.where(Book.price == 3))
    first, far = exact(books, lambda r: r["price"] == 3), distances(books)
    assert both == [i for i in first if far[i] <= third + 1e-9]


def test_a_column_distance_of_the_entity_stays_its_own(library, connection, books):
    connection.execute("ALTER TABLE books ADD distance double precision DEFAULT 1000")
    base = orm.declarative_base()

    class Far(base):  # type: ignore[misc, valid-type]
        __tablename__ = "books"
        id = orm.mapped_column(sa.BigInteger, primary_key=True)
        distance = orm.mapped_column(sa.Double)
        embedding = orm.mapped_column(VECTOR(DIMENSION))

    wanted = sorted(distances(books).values())[:5]
    alias, table = orm.aliased(Far), Far.__table__
    with orm.Session(library) as session:
        for entity, column in ((Far, Far.embedding), (alias, alias.embedding), (table, table.c[2])):
            near = nearest(entity, column, QUERY, 5, index="books_idx", candidates=ROWS)
            rows = session.execute(near).all()
            assert [row.hashindex_distance for row in rows] == pytest.approx(wanted)
            assert (rows[0] if entity is table else rows[0][0]).distance == 1000
            close = near.where(near.selected_columns.hashindex_distance < sum(wanted[1:3]) / 2)
            assert len(session.execute(close).all()) == 2
            assert "filter =>" not in written(close)
            assert session.execute(near.where(near.selected_columns.distance < 4)).all() == []


def test_a_compiled_statement_takes_new_values(library, books):
    """SQLAlchemy keeps the text of a statement; values, of IN too, must be those of each call."""
    with orm.Session(library) as session:
        for turn in range(12):
            prices = list(range(turn % 4))
            statement = search(k=1 + turn % 3).where(Book.price.in_(prices), Book.id > turn)
            keep = lambda r, p=prices, i=turn: r["price"] in p and r["id"] > i  # noqa: E731
            assert ids(session, statement) == exact(books, keep, 1 + turn % 3)


def test_values_are_never_part_of_the_text(library):
    hostile = "'); DROP TABLE books; --"
    with orm.Session(library) as session:
        for value in (hostile, "\\'", "$1", "%(k)s", "{}", "\u00e9\U0001f600"):
            assert ids(session, search().where(Book.title == value)) == []
            assert ids(session, search().where(Book.title.in_([value]))) == []
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == ROWS


def test_async_engines_give_the_same(library, books):
    async def ask():
        other = create_async_engine(library.url)
        async with AsyncSession(other) as session:
            statement = search().where(Book.price == 3).options(orm.selectinload(Book.reviews))
            found = [book.id for book in await session.scalars(statement)]
        await other.dispose()
        return found

    assert asyncio.run(ask()) == exact(books, lambda r: r["price"] == 3)


def test_the_path_of_the_caller_counts(library, connection, books):
    connection.execute("CREATE SCHEMA shop")
    connection.execute("CREATE TABLE shop.offers AS SELECT id AS book_id FROM books WHERE id < 50")
    # Tables that our functions would find by their own path.
    connection.execute("CREATE TABLE public.offers AS SELECT 7::bigint AS book_id")
    offers = sa.Table("offers", sa.MetaData(), sa.Column("book_id", sa.BigInteger))
    with orm.Session(library) as session:
        session.execute(sa.text("SET LOCAL search_path TO shop, public"))
        found = ids(session, search().where(Book.id.in_(sa.select(offers.c.book_id))))
        assert session.scalar(sa.text("SHOW search_path")) == "shop, public"
    assert found == exact(books, lambda r: r["id"] < 50)


@pytest.mark.reads
@pytest.mark.parametrize("kind", [list, np.asarray, Vector, HalfVector])
def test_queries_of_any_kind(library, kind):
    near = nearest(Book, Book.embedding, kind(QUERY), index="books_idx", candidates=ROWS)
    with orm.Session(library) as session:
        assert session.execute(near).all() == session.execute(search()).all()


def test_values_at_execution_and_in_the_text(library, books):
    named = search().where(Book.price == sa.bindparam("p"), sa.text("title = :t"))
    with orm.Session(library) as session:
        for price in range(7):
            found = ids(session, named, {"p": price, "t": "abc"})
            keep = lambda r, p=price: r["price"] == p and r["title"] == "abc"  # noqa: E731
            assert found == exact(books, keep)
        written = (
            search()
            .where(Book.title.in_(["abc", "b'\\"]), Book.mood == Mood.wild, Book.price > -1)
            .compile(library, compile_kwargs={"literal_binds": True})
        )
        rows = session.connection().exec_driver_sql(
            str(written), execution_options={"no_parameters": True}
        )
        assert [row.id for row in rows] == exact(
            books, lambda r: r["title"] in ("abc", "b'\\") and r["mood"] is Mood.wild
        )


def test_lists_that_cannot_be_written_are_refused(library):
    prices = sa.bindparam("prices", [1, 2], expanding=True)
    with orm.Session(library) as session:
        for condition in (
            Book.price.in_(prices),
            sa.text("price IN :prices").bindparams(prices),
            sa.tuple_(Book.price, Book.id).in_([(1, 1)]),
            Book.words.in_([["all", "w1"]]),
            Book.backwards.in_(["one"]),
        ):
            with pytest.raises(sa.exc.CompileError, match="cannot be restricted by IN"):
                session.scalars(search().where(condition))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k is 0; it must be 1 or more"),
        ({"query": [1.0, 2.0]}, "2"),
        ({"column": Book.price}, "needs one of type VECTOR or HALFVEC"),
        ({"column": "embedding"}, "must be an attribute of a mapped class"),
        ({"index": None}, "0 indexes are declared on"),
        ({"candidates": -1}, "candidates is -1"),
        ({"query": [float("nan")] * DIMENSION}, "nan"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(change, message):
    given = {
        "column": Book.embedding, "query": [0.0] * DIMENSION, "k": 3, "index": "books_idx",
    } | change  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        nearest(Book, given.pop("column"), given.pop("query"), given.pop("k"), **given)


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
    assert "FROM hashindex.search(hashindex._searched_name('i', 'pairs'" in written
    assert "pairs.a = CAST(anon_1.hashindex_id_0" in written
    written = str(nearest(pairs, pairs.c.v, [1, 2], index="i", key=pairs.c.uid))
    assert "pairs.uid = CAST" in written
    Declared("i", pairs.c.v, model="m", key_columns="uid")
    for alias in (pairs, pairs.alias("p")):
        written = str(nearest(alias, alias.c.v, [1, 2]))
        assert f"{alias.name}.uid = CAST" in written
        assert "hashindex._searched_name('i', 'pairs'" in written
