"""Revision 0004 gives indexes access paths and rankings: those of before search better at once."""

from typing import Any

import alembic.command
import numpy as np
import pytest
import sqlalchemy as sa
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.database import connect, create_engine
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model
from pg_hashindex.network import known_rows

ROWS = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)

# As search functions were: three arguments, or four where queries bring their code.
OLD_SEARCHES = """
    DROP FUNCTION hashindex.search_plain, hashindex.search_weighted, hashindex.search_known;
    CREATE FUNCTION hashindex.search_plain(
        query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL
    ) RETURNS TABLE (id integer, distance float8) LANGUAGE sql AS $$ SELECT 0, 0.0 $$;
    CREATE FUNCTION hashindex.search_weighted(
        query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL
    ) RETURNS TABLE (id integer, distance float8) LANGUAGE sql AS $$ SELECT 0, 0.0 $$;
    CREATE FUNCTION hashindex.search_known(
        query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL,
        query_code bit varying DEFAULT NULL
    ) RETURNS TABLE (id integer, distance float8) LANGUAGE sql AS $$ SELECT 0, 0.0 $$;
"""


def models() -> list[Model]:
    lsh = LSH(n_bits=16, random_state=0).fit(ROWS)
    plain = lsh.to_model("plain")
    codes = lsh.encode(ROWS)
    return [
        plain,
        Model("weighted", "byhand", 8, plain.layers, bit_weights=np.arange(16)),
        Model("known", "byhand", 8, (), network=known_rows(ROWS, codes, 16)),
    ]


@pytest.mark.parametrize("layout", ["table", "column"])
def test_indexes_rank_as_well_as_their_models_can(url: str, layout: Any) -> None:
    with connect(url) as session:
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        session.cursor().executemany(
            "INSERT INTO items VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(ROWS)]
        )
        before = {}
        for model in models():
            store.save(session, model)
            index = HashIndex.create(
                session, model.name, table="items", column="v", model=model.name, layout=layout
            )
            index.encode()
            before[model.name] = index.search(ROWS[4], 7, candidates=9)
    engine = create_engine(url)
    with engine.begin() as connection:
        alembic.command.downgrade(schema._config(connection), "0003")
        connection.exec_driver_sql(OLD_SEARCHES)
    with engine.begin() as connection:
        schema.upgrade(connection)
    engine.dispose()
    with connect(url) as session:
        for name, ranking in (
            ("plain", "asymmetric"), ("weighted", "weighted"), ("known", "hamming"),
        ):  # fmt: skip
            index = HashIndex.open(session, name)
            assert (index.access, index.building, index.candidates) == ("scan", None, 200)
            assert (index.ranking, index.probes) == (ranking, None)
            # One function of that name: the old one would have answered with row 0.
            assert index.search(ROWS[4], 7, candidates=9) == before[name]
            count = session.execute(
                "SELECT count(*) FROM pg_proc WHERE proname = %s", [f"search_{name}"]
            ).fetchone()
            assert count == (1,)
            index.drop()


@pytest.mark.parametrize("built", [False, True])
def test_downgrade_is_refused_while_an_access_path_is_in_use(url: str, built: bool) -> None:
    with connect(url) as session:
        store.save(session, models()[0])
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        session.execute("INSERT INTO items VALUES (1, '[1,2,3,4,5,6,7,8]')")
        index = HashIndex.create(
            session, "i", table="items", column="v", model="plain", access="landmarks"
        )
        if built:
            index.encode()
    engine = create_engine(url)
    with (
        pytest.raises(sa.exc.OperationalError, match='index "i" has the access path landmarks'),
        engine.begin() as connection,
    ):
        alembic.command.downgrade(schema._config(connection), "0003")
    with connect(url) as session:
        HashIndex.open(session, "i").configure(access="scan")
    with engine.begin() as connection:
        alembic.command.downgrade(schema._config(connection), "0003")
    engine.dispose()
