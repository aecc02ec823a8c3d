"""An installation of the first revision, with models and indexes, comes up to this release."""

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

# The schema's types as the first revision had them.
FIRST_TYPES = """
    CREATE SCHEMA hashindex;
    CREATE TYPE hashindex.layer AS (kind text, weights vector[], bias vector, scale real);
"""


def install_first_revision(connection: sa.Connection) -> None:
    connection.exec_driver_sql(FIRST_TYPES)
    alembic.command.upgrade(schema._config(connection), "0001")


@pytest.mark.parametrize("layout", ["table", "column"])
def test_models_and_indexes_survive(empty_url: str, layout: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    hasher = LSH(n_bits=16, random_state=0).fit(rows)
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        install_first_revision(connection)
    (layer,) = hasher.layers_
    assert layer.weights is not None
    assert layer.bias is not None
    with connect(empty_url) as session:
        session.execute(
            "INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, "
            "parameters, training, layers, checksum) "
            "VALUES ('first', 1, 'lsh', 8, 16, 'l2', '{}', '{}', "
            "ARRAY[ROW('affine', %s, %s, NULL)::hashindex.layer], %s)",
            [[*map(Vector, layer.weights)], Vector(layer.bias), hasher.to_model("x").checksum],
        )
    for _ in range(2):
        with engine.begin() as connection:
            schema.upgrade(connection)
        with connect(empty_url) as session:
            loaded = store.load(session, "first")
            assert loaded.bit_weights is None
            np.testing.assert_array_equal(loaded.encode(rows), hasher.encode(rows))
            text = "".join(f"{byte:08b}" for byte in hasher.encode(rows[:1])[0])
            found = session.execute(
                "SELECT hashindex.encode('first', %s)::text", [Vector(rows[0])]
            ).fetchone()
            assert found == (text,)
    with connect(empty_url) as session:
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v vector(8))")
        index = HashIndex.create(
            session, "i", table="items", column="v", model="first", layout=layout
        )
        session.cursor().executemany(
            "INSERT INTO items VALUES (%s, %s)", [(n, Vector(v)) for n, v in enumerate(rows)]
        )
        assert index.search(rows[7], 1, candidates=50)[0].id == 7
    engine.dispose()
