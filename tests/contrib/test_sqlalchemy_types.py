"""Codes in statements of SQLAlchemy: their type, their distance, the functions that make them."""

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.books import engine_of
from pgvector import Bit, Vector
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql

from pg_hashindex.contrib.sqlalchemy import HashCode, encode, project

pytestmark = pytest.mark.newest


@pytest.fixture
def engine(url):
    return engine_of(url)


def test_a_column_of_codes_is_bit_n(engine):
    table = sa.Table(
        "codes", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column("code", HashCode(6))
    )
    codes = {1: "000000", 2: "110100", 3: "111111"}
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"id": i, "code": code} for i, code in codes.items()])
        kind = connection.scalar(
            sa.text("SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
                    "WHERE attrelid = 'codes'::regclass AND attname = 'code'")
        )  # fmt: skip
        assert kind == "bit(6)"
        assert {row.id: row.code for row in connection.execute(sa.select(table))} == codes
        distance = table.c.code.hamming_distance("110000")
        found = connection.execute(sa.select(table.c.id, distance).order_by(distance, table.c.id))
        # By hand: 110000 differs from 110100 in one bit, from 000000 in two, from 111111 in four.
        assert list(found) == [(2, 1), (1, 2), (3, 4)]
        other = table.alias()
        pairs = sa.select(table.c.code.hamming_distance(other.c.code)).join_from(
            table, other, sa.and_(table.c.id == 1, other.c.id == 3)
        )
        assert connection.scalar(pairs) == 6

        class Item:
            pass

        orm.registry().map_imperatively(Item, table, primary_key=[table.c.id])
        twin = orm.aliased(Item)
        near = sa.select(Item.id, twin.id).where(
            Item.id < twin.id, Item.code.hamming_distance(twin.code) < 4
        )
        assert set(connection.execute(near)) == {(1, 2), (2, 3)}


def test_the_distance_counts_bits_and_uses_no_index_of_pgvector():
    column = sa.column("code", HashCode(4))
    written = str(column.hamming_distance("0101").compile(dialect=postgresql.dialect()))
    assert written.startswith("bit_count(code # %(param_1)s")


def test_codes_of_another_length_are_refused(engine):
    """A cast to bit(n), which the driver writes, would cut them off or fill them up."""
    table = sa.Table("codes", sa.MetaData(), sa.Column("code", HashCode(6)))
    with engine.begin() as connection:
        table.create(connection)
        for code in ("11010", "1101001", Bit("0")):
            with pytest.raises(sa.exc.StatementError, match="bits, expected 6"):
                connection.execute(table.insert(), {"code": code})
        connection.execute(table.insert(), {"code": Bit("110100")})
        with pytest.raises(sa.exc.DBAPIError, match="bit strings of different sizes"):
            connection.scalar(sa.select(table.c.code.hamming_distance("11010")))


def test_encode_and_project_are_those_of_the_model(engine, connection, items, model, vectors):
    table = sa.Table(items, sa.MetaData(), sa.Column("id"), sa.Column("embedding", VECTOR(8)))
    row = table.c.id == 5
    projection = model.project(vectors[4:5])[0]
    code = "".join("01"[int(value > 0)] for value in projection)
    with engine.connect() as session:
        assert session.scalar(sa.select(encode("lsh", table.c.embedding)).where(row)) == code
        for vector in (vectors[4], vectors[4].tolist(), Vector(vectors[4])):
            assert session.scalar(sa.select(encode("lsh:1", vector))) == code
            got = session.scalar(sa.select(project("lsh", vector)))
            np.testing.assert_allclose(got, projection, rtol=1e-5, atol=1e-6)
        distance = encode("lsh", table.c.embedding).hamming_distance(encode("lsh", vectors[4]))
        assert session.scalar(sa.select(distance).where(row)) == 0
