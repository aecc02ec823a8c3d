"""Values of all types in the filters of searches that are statements of SQLAlchemy."""

import decimal

import pytest
import sqlalchemy as sa
from fixtures.books import DIMENSION, QUERY, Book, Mood, exact, ids, search
from sqlalchemy import orm
from sqlalchemy.dialects.postgresql import ARRAY

pytestmark = pytest.mark.newest


CONDITIONS = {
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
    "text": (
        sa.text("books.title = :t AND price > :p").bindparams(t="abc", p=2),
        lambda r: r["title"] == "abc" and r["price"] > 2,
    ),
    "signs": (Book.price - sa.literal(-1) > 3, lambda r: r["price"] > 2),
    "remainder": (Book.price % 2 == 1, lambda r: r["price"] % 2 == 1),
}


def test_values_of_many_types(library, books):
    found, expected = {}, {}
    with orm.Session(library) as session:
        for name, (condition, keep) in CONDITIONS.items():
            found[name] = ids(session, search().where(condition))
            expected[name] = exact(books, keep)
    assert found == expected


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
