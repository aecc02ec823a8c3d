"""Filters of statements around a search: inheritance, joins, schemas."""

import pytest
import sqlalchemy as sa
from fixtures.books import (
    DIMENSION,
    QUERY,
    ROWS,
    Book,
    Label,
    Mood,
    Praise,
    Review,
    exact,
    ids,
    marks,
    search,
)
from fixtures.indexes import indexed
from pgvector.sqlalchemy import VECTOR
from psycopg import sql
from sqlalchemy import orm

from pg_hashindex.contrib.sqlalchemy import HashIndex as Declared
from pg_hashindex.contrib.sqlalchemy import nearest
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest


def test_outer_joins_through_a_table_between(library, books):
    unlabelled = search().outerjoin(Book.labels).where(Label.id.is_(None))
    with orm.Session(library) as session:
        assert ids(session, unlabelled) == exact(books, lambda r: r["id"] % 3)
        # With one more join the label would be read once more, beside it.
        assert ids(session, unlabelled.join(Book.reviews)) == exact(
            books, lambda r: r["id"] % 3 and r["id"] > 1
        )
        either = search().join(Book.reviews).outerjoin(Book.labels)
        either = either.where(sa.or_(Label.name == "red", Book.price == 3))
        assert ids(session, either) == exact(
            books, lambda r: r["id"] > 1 and (r["id"] % 3 == 0 or r["price"] == 3)
        )
        by_text = search().outerjoin(Book.labels).where(sa.text("labels.id IS NULL"))
        assert ids(session, by_text) == exact(books, lambda r: r["id"] % 3)
        loaded = search().options(orm.joinedload(Book.labels)).where(Book.price == 3)
        assert ids(session, loaded) == exact(books, lambda r: r["price"] == 3)


def test_a_lateral_subquery_of_an_outer_join(library, books):
    per_review = (
        sa.select(sa.func.count().label("of")).where(Label.id == Review.book_id - 1).lateral("per")
    )
    statement = (
        search()
        .outerjoin(Book.reviews)
        .join(per_review, sa.true())
        .where(per_review.c.of == 0, Book.price == 3)
    )
    with orm.Session(library) as session:
        assert ids(session, statement) == exact(books, lambda r: r["price"] == 3)


def test_criteria_of_subclasses_and_options(library, books):
    shown = orm.with_loader_criteria(Review, Review.hidden.is_(False))
    cheap = orm.with_loader_criteria(Book, Book.price < 3)
    with orm.Session(library) as session:
        praised = search().where(Book.praises.any())
        assert ids(session, praised) == exact(books, lambda r: r["id"] % 4 == 0)
        unpraised = search().outerjoin(Book.praises).where(Praise.id.is_(None))
        assert ids(session, unpraised) == exact(books, lambda r: r["id"] % 4)
        reviewed = exact(books, lambda r: r["id"] > 1 and r["id"] % 5)
        assert ids(session, search().join(Book.reviews).options(shown)) == reviewed
        assert ids(session, search().where(Book.reviews.any()).options(shown)) == reviewed
        without = search().outerjoin(Book.reviews).where(Review.id.is_(None)).options(shown)
        assert ids(session, without) == exact(books, lambda r: r["id"] == 1 or r["id"] % 5 == 0)
        assert ids(session, search().options(cheap)) == exact(books, lambda r: r["price"] < 3)


def test_a_name_that_needs_quotes(library, connection, books):
    name = "Its-100"
    indexed(connection, name, table="books", model="m")
    with orm.Session(library) as session:
        assert ids(session, search(index=name)) == exact(books, lambda r: True)
        dear = search(index=name).where(Book.price == 3)
        assert ids(session, dear) == exact(books, lambda r: r["price"] == 3)


def test_a_table_with_percents_in_its_name(library, connection, books):
    name = 'a "%" %%s'
    columns = (sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("price", sa.Integer))
    table = sa.Table(name, sa.MetaData(), *columns, sa.Column("embedding", VECTOR(DIMENSION)))
    quoted = sql.Identifier(name)
    connection.execute(sql.SQL("ALTER TABLE books RENAME TO {}").format(quoted))
    indexed(connection, "percents_idx", table=quoted.as_string(), model="m")
    near = nearest(table, table.c.embedding, QUERY, index="percents_idx", candidates=ROWS)
    with library.connect() as session:
        for condition, keep in (
            (sa.true(), lambda r: True),
            (table.c.price == 3, lambda r: r["price"] == 3),
        ):
            rows = session.execute(near.where(condition))
            assert [row.id for row in rows] == exact(books, keep)


def test_filter_by(library, books):
    with orm.Session(library) as session:
        assert ids(session, search().filter_by(price=3)) == exact(books, lambda r: r["price"] == 3)
        assert ids(session, search().filter_by(id=7)) == [7]


def test_searches_in_other_statements(library, books):
    three, four = (search(k=3).where(Book.price == price) for price in (3, 4))
    parts = [part.with_only_columns(Book.id).order_by(None) for part in (three, four)]
    wanted = {p: set(exact(books, lambda r, p=p: r["price"] == p, 3)) for p in (3, 4)}
    near = search(k=3).where(Book.price == 3).with_only_columns(Book.id).cte("near")
    other = orm.aliased(Book, name='an "other" %(p)s')
    with orm.Session(library) as session:
        both = session.scalars(sa.union(*parts)).all()
        assert set(both) == wanted[3] | wanted[4]
        assert set(session.scalars(sa.select(near.c.id))) == wanted[3]
        # One search among the answers of another, and beside one.
        within = search(other, k=2).where(other.id.in_(sa.select(near.c.id)))
        assert ids(session, within) == exact(books, lambda r: r["id"] in wanted[3], 2)
        beside = search(other, k=2).join(near, near.c.id == other.id)
        assert ids(session, beside) == exact(books, lambda r: r["id"] in wanted[3], 2)


def test_a_statement_around_a_search_cannot_restrict_it(library):
    """It would be read as any row of its table; the search would give too few answers."""
    inner = search().where(Book.id == Review.book_id).with_only_columns(Book.id)
    marked = sa.select(marks.c.book_id).where(marks.c.book_id == Review.id).correlate(Review)
    deeper = search().where(Book.id.in_(marked))
    with orm.Session(library) as session:
        for correlated in (inner.correlate(Review), inner.limit(1)):
            statement = sa.select(Review.id, correlated.scalar_subquery())
            with pytest.raises(sa.exc.CompileError, match="restricted by reviews, of a statement"):
                session.execute(statement)
        statement = sa.select(Review.id).where(deeper.with_only_columns(Book.id).exists())
        with pytest.raises(sa.exc.ProgrammingError, match="reviews"):
            session.execute(statement)


def test_schemas_that_are_translated(library, connection, books):
    schema = 'it\'s "%" \\'
    metadata = sa.MetaData(schema="tenant")
    columns = (
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("price", sa.Integer),
        sa.Column("mood", sa.Enum(Mood, name="temper")),
        sa.Column("embedding", VECTOR(DIMENSION)),
    )
    table = sa.Table("books", metadata, *columns)
    translated = library.execution_options(schema_translate_map={"tenant": schema})
    with translated.begin() as session:
        session.execute(sa.schema.CreateSchema(schema))
        metadata.create_all(session)
        names = [column.name for column in columns]
        session.execute(sa.insert(table), [{name: row[name] for name in names} for row in books])
    indexed(connection, "tenant_idx", table='"it\'s ""%"" \\".books', model="m")
    statement = nearest(table, table.c.embedding, QUERY, index="tenant_idx", candidates=ROWS)
    statement = statement.where(table.c.price > 2)
    other = table.alias()
    with translated.connect() as session:
        for condition in (
            table.c.mood == Mood.wild,
            table.c.mood.in_([Mood.wild]),
            sa.exists().where(other.c.id == table.c.id, other.c.mood == Mood.wild),
        ):
            rows = session.execute(statement.where(condition))
            assert [row.id for row in rows] == exact(
                books, lambda r: r["price"] > 2 and r["mood"] is Mood.wild
            )


def test_filters_of_the_store_only(connection, library):
    """A comment at the end of a filter hides no part of the statement after it."""
    found = connection.execute(
        "SELECT id FROM hashindex.search("
        "'books_idx', '[1,2,3,4]', 3, filter => 'price = 3 -- dear')"
    ).fetchall()
    assert len(found) == 3
    several = nearest(Book, Book.embedding, QUERY, index="no_idx", key=[Book.id, Book.price])
    with orm.Session(library) as session:
        for missing in (
            search(index="no_idx"),
            search(index="no_idx").where(Book.price == 3),
            several,
            several.where(Book.price == 3),
        ):
            with pytest.raises(sa.exc.ProgrammingError, match="no_idx"):
                session.execute(missing)
            session.rollback()


def test_a_search_by_another_key_than_the_index_has_is_refused(library, connection):
    """Its answers would be joined with other rows."""
    connection.execute("ALTER TABLE books ADD uid bigint UNIQUE; UPDATE books SET uid = 61 - id")
    connection.execute("ALTER TABLE books ALTER uid SET NOT NULL")
    indexed(connection, "uid_idx", table="books", model="m", key_columns="uid")
    message = r'"uid_idx" has the key \(uid\), and the search joins its answers by \(id'
    several = nearest(Book, Book.embedding, QUERY, index="uid_idx", key=[Book.id, Book.price])
    with orm.Session(library) as session:
        for statement in (search(index="uid_idx"), several):
            with pytest.raises(sa.exc.DataError, match=message):
                session.execute(statement)
            session.rollback()


def test_entities_and_columns_that_do_not_belong_together():
    other = orm.aliased(Book)
    inside = orm.aliased(Book, sa.select(Book).where(Book.price == 1).subquery())
    for entity, column, message in (
        (other, Book.embedding, "is not of"),
        (Review, Book.embedding, "is not of"),
        (Book.id, Book.embedding, "is not of"),
        (inside, inside.embedding, "is of a subquery"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            nearest(entity, column, QUERY, index="books_idx")
    with pytest.raises(InvalidInputError, match="of another table"):
        nearest(Book, Book.embedding, QUERY, index="books_idx", key=Review.id)
    for entity in (Book, other):
        nearest(entity, entity.embedding, QUERY, index="books_idx", key=entity.price)


def test_an_index_of_another_column_is_refused():
    columns = [sa.Column(name, VECTOR(2)) for name in "vw"]
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)
    Declared("w_idx", table.c.w, model="m")
    with pytest.raises(
        InvalidInputError, match=r"w_idx' is declared on t.w, and cannot search t.v"
    ):
        nearest(table, table.c.v, [1, 2], index="w_idx")
