"""Training on every row of a table, in blocks."""

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ
from pg_hashindex.hashers.supervision.labels import Supervision
from pg_hashindex.training import held_back, train, whole_tables
from pg_hashindex.training.whole_tables import train_on_table

pytestmark = pytest.mark.newest

ROWS = 9_000


@pytest.fixture
def rows(connection):
    X = np.random.default_rng(3).standard_normal((ROWS, 6)).astype(np.float32)
    X[:, 0] *= 3
    connection.execute("CREATE TABLE items (id int PRIMARY KEY, embedding vector(6))")
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for number, row in enumerate(X):
            copy.write_row((number, Vector(row)))
        copy.write_row((ROWS, None))
    return X


def test_the_model_is_that_of_the_same_rows_in_an_array(connection, rows):
    model = train_on_table(
        connection, "items", "embedding", "all", "itq", n_bits=5, metric="cosine", random_state=2
    )
    hidden = held_back(ROWS, Supervision.read(ROWS), 2)
    assert len(hidden) == 500
    seen = np.delete(rows, hidden, axis=0)
    expected = (
        ITQ(n_bits=5, random_state=2, normalize="l2").fit(seen).to_model("all", metric="cosine")
    )
    assert [layer.kind for layer in model.layers] == [layer.kind for layer in expected.layers]
    for found, wanted in zip(model.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(found.weights, wanted.weights)
        np.testing.assert_array_equal(found.bias, wanted.bias)
    assert model.training["rows"] == len(seen)
    assert model.training["held_back_rows"] == 500
    # All others are few enough to be measured among.
    in_memory = train(rows, "all", "itq", n_bits=5, metric="cosine", random_state=2)
    assert model.training["recall"] == in_memory.training["recall"]


def test_methods_that_need_rows_in_memory_are_refused(connection, rows):
    def blocks():
        return [rows]

    with pytest.raises(InvalidInputError, match="labels cannot be used with rows in blocks"):
        train(blocks, "m", "cghash", n_bits=4, y=np.zeros(ROWS, int))
    with pytest.raises(InvalidInputError, match="9000 rows are too few to learn 1000 projections"):
        train_on_table(connection, "items", "embedding", "m", "lsh", n_bits=1000)
    connection.execute("ALTER TABLE items ALTER embedding TYPE vector")
    connection.execute("INSERT INTO items VALUES (-1, '[1, 2]')")
    with pytest.raises(InvalidInputError, match="dimensions 2, 6|2 dimensions, expected 6"):
        train_on_table(connection, "items", "embedding", "m", "lsh", n_bits=4)


def test_no_row_changes_between_passes(url, connection, rows):
    """Another session writes while the first pass is read."""
    seen = []
    read = whole_tables._passes

    def passes(source, metric):  # type: ignore[no-untyped-def]
        inner = read(source, metric)

        def once():  # type: ignore[no-untyped-def]
            blocks = list(inner())
            seen.append(sum(map(len, blocks)))
            with connect(url) as second:
                second.execute("DELETE FROM items WHERE id < %s", [100 * len(seen)])
            return iter(blocks)

        return once

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_tables, "_passes", passes)
        train_on_table(connection, "items", "embedding", "m", "itq", n_bits=4)
    assert len(seen) > 3
    assert set(seen) == {ROWS}
