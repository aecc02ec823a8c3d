"""Revision 0003 makes room for networks: what was installed before it keeps working."""

from typing import Any

import alembic.command
import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.database import connect, create_engine
from pg_hashindex.errors import InUseError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model
from pg_hashindex.network import known_rows

ROWS = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)

# What the search by name was, before a query could bring its code.
OLD_SEARCH = """
    DROP FUNCTION hashindex.search;
    CREATE FUNCTION hashindex.search(
        index_name text, query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL,
        where_equals jsonb DEFAULT NULL
    ) RETURNS TABLE (id text, distance double precision) LANGUAGE sql AS $$ SELECT 'old', 0.0 $$;
"""


def known() -> Model:
    codes = LSH(n_bits=16, random_state=0).fit(ROWS).encode(ROWS)
    return Model("known", "byhand", 8, (), network=known_rows(ROWS, codes, 16))


def lsh() -> Model:
    return LSH(n_bits=16, random_state=0).fit(ROWS).to_model("lsh")


def upgrade(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        schema.upgrade(connection)
    engine.dispose()


def to_second_revision(connection: sa.Connection) -> None:
    alembic.command.downgrade(schema._config(connection), "0002")


@pytest.mark.parametrize("layout", ["table", "column"])
def test_models_indexes_and_rights_survive(url: str, layout: Any) -> None:
    with connect(url) as session:
        store.save(session, lsh())
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        session.execute("CREATE ROLE model_reader")
        session.execute("GRANT SELECT ON hashindex.model TO PUBLIC")
        session.execute("GRANT SELECT, UPDATE ON hashindex.model TO model_reader")
        session.execute("CREATE ROLE model_lender")
        session.execute("GRANT USAGE ON SCHEMA hashindex TO model_lender")
        session.execute("GRANT SELECT ON hashindex.model TO model_lender WITH GRANT OPTION")
        # Granted twice, by two roles: one right, which the second passes on no further.
        session.execute("SET ROLE model_lender")
        session.execute("GRANT SELECT ON hashindex.model TO model_reader")
        session.execute("RESET ROLE")
        index = HashIndex.create(
            session, "i", table="items", column="v", model="lsh", layout=layout
        )
        session.cursor().executemany(
            "INSERT INTO items VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(ROWS[:40])]
        )
        before = index.search(ROWS[3], 5)
    engine = create_engine(url)
    with engine.begin() as connection:
        to_second_revision(connection)
        connection.exec_driver_sql(OLD_SEARCH)
        assert schema.status(connection).revision == "0002"
    engine.dispose()
    for _ in range(2):
        upgrade(url)
        with connect(url) as session:
            assert store.load(session, "lsh").checksum == lsh().checksum
            index = HashIndex.open(session, "i")
            assert (index.encoded_in, index.waiting()) == ("sql", 0)
            assert index.search(ROWS[3], 5) == before
            found = session.execute(
                "SELECT id::int, distance FROM hashindex.search('i', %s, 5)", [Vector(ROWS[3])]
            ).fetchall()
            assert found == before
    with connect(url) as session:
        rights = session.execute(
            "SELECT acl::text FROM pg_class c, unnest(c.relacl) acl "
            "WHERE c.oid = 'hashindex.model_part'::regclass AND acl::text !~ '^postgres='"
        ).fetchall()
        assert sorted(rights) == [
            ("=r/postgres",),
            ("model_lender=r*/postgres",),
            ("model_reader=r/postgres",),
        ]
        session.execute("DROP OWNED BY model_reader, model_lender")
        session.execute("DROP ROLE model_reader, model_lender")
        session.cursor().executemany(
            "INSERT INTO items VALUES (%s, %s)",
            [(n, Vector(v)) for n, v in enumerate(ROWS) if n >= 40],
        )
        index = HashIndex.open(session, "i")
        assert_fresh(index)
        # And what is new works beside it.
        store.save(session, known())
        other = HashIndex.create(session, "o", table="items", column="v", model="known")
        assert other.encode() == 50
        assert other.search(ROWS[7], 1)[0].id == 7
        index.drop()
        other.drop()


def test_an_upgrade_brings_the_functions_of_an_index_encoded_in_python_back(url: str) -> None:
    with connect(url) as session:
        store.save(session, known())
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        index = HashIndex.create(session, "i", table="items", column="v", model="known")
        session.execute("INSERT INTO items VALUES (7, %s)", [Vector(ROWS[7])])
        index.encode()
        session.execute("DROP FUNCTION hashindex.search_i")
        upgrade(url)
        assert index.search(ROWS[8], 1)[0].id == 7
        index.drop()
    with connect(url) as session:
        left = session.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace "
            "AND proname ~ '_i$'"
        ).fetchall()
        assert left == []


def test_downgrade_with_a_network(url: str) -> None:
    """Models go with the schema; where an index uses one, nothing goes."""
    engine = create_engine(url)
    with connect(url) as session:
        store.save(session, known())
        store.save(session, lsh())
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        index = HashIndex.create(session, "i", table="items", column="v", model="known")
        with engine.connect() as connection, pytest.raises(InUseError, match="there are indexes"):
            schema.downgrade(connection)
        with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
            to_second_revision(connection)
        assert store.load(session, "known").checksum == known().checksum
        index.drop()
    # To the revision before, which knows no networks, the other models go along.
    with engine.begin() as connection:
        to_second_revision(connection)
        names = connection.scalars(sa.text("SELECT name FROM hashindex.model")).all()
        assert names == ["lsh"]
        schema.upgrade(connection)
    with connect(url) as session:
        store.save(session, known())
    with engine.begin() as connection:
        schema.downgrade(connection)
        assert not schema.status(connection).installed
    engine.dispose()
