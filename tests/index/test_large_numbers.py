"""Rows whose numbers are too large for float32: commands leave them out, and name their keys."""

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from fixtures.indexes import create_index, indexed
from pg_hashindex.cli import main

from pg_hashindex import store
from pg_hashindex.errors import RowsLeftOutWarning
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.training import fitting, sampling

pytestmark = pytest.mark.newest

LARGE = 3e38
_SET = "UPDATE items SET embedding = array_fill({}::real, ARRAY[8])::vector WHERE id = ANY (%s)"


def enlarge(connection, *keys, value=LARGE):
    connection.execute("ALTER TABLE items DISABLE TRIGGER USER")
    connection.execute(_SET.format(value).encode(), [list(keys)])
    connection.execute("ALTER TABLE items ENABLE TRIGGER USER")


@pytest.fixture
def models(connection, items, vectors):
    """A model of lengths, and one of directions."""
    hasher = LSH(n_bits=16, random_state=1).fit(vectors)
    store.save(connection, hasher.to_model("lengths", metric="l2"))
    directed = LSH(n_bits=16, random_state=1, normalize="l2").fit(vectors)
    store.save(connection, directed.to_model("directions", metric="cosine"))


def coded(connection, index):
    codes = HashIndex.open(connection, index.name).codes.as_string(connection)
    return {row[0] for row in connection.execute(f"SELECT id FROM {codes}".encode())}


def all_but(*keys):
    return set(range(1, 301)) - set(keys)


LEFT_OUT = (
    r"left out 2 rows of \"public\".\"items\" whose numbers are too large for model lengths:1, so "
    "that searches by codes miss them: key 5, 200; correct or remove them"
)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("access", ["scan", "lists"])
def test_encode_leaves_them_out(connection, access):
    enlarge(connection, 5, 200)
    index = create_index(connection, model="lengths", metric="l2", access=access)
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        index.encode()
    assert coded(connection, index) == all_but(5, 200)
    assert HashIndex.open(connection, "items_idx").access == access
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        assert index.encode() == 0
    if access == "lists":
        with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
            index.rebalance()
        assert coded(connection, index) == all_but(5, 200)
    # In SQL, and without Python.
    connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 5")
    assert coded(connection, index) == all_but(200)
    with pytest.raises(psycopg.DataError):
        connection.execute(_SET.format(LARGE).encode(), [[5]])


@pytest.fixture
def notices(connection):
    from pg_hashindex.db.server_errors import warning_of

    found = []

    def keep(notice):
        if warning := warning_of(notice):
            found.append(warning)

    connection.add_notice_handler(keep)
    return found


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("access", ["scan", "lists"])
def test_a_swap_from_directions_to_lengths(connection, access):
    enlarge(connection, 5, 200)
    index = indexed(connection, model="directions", metric="cosine", access=access)
    assert coded(connection, index) == all_but()
    with pytest.warns(RowsLeftOutWarning, match=LEFT_OUT):
        index.swap(model="lengths", force=True)
    assert coded(connection, index) == all_but(5, 200)


@pytest.mark.usefixtures("models")
def test_a_repair(connection, url):
    index = indexed(connection, model="lengths", metric="l2")
    enlarge(connection, 5, 200)
    arguments = ["index", "repair", "items_idx", "--full", "--database-url", url]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "warning: left out 2 rows" in result.stderr
    assert result.stderr.count("key 5, 200") == 1
    assert "2 rows have no code, since their numbers are too large for the model" in result.output
    assert coded(connection, index) == all_but(5, 200)
    found = HashIndex.open(connection, "items_idx").search(np.ones(8), 5)
    assert len(found) == 5


@pytest.mark.usefixtures("models")
def test_commands(connection, url):
    enlarge(connection, 5, 200)
    end = ["--database-url", url]
    made = ["--table", "items", "--column", "embedding", "--model", "lengths", "--metric", "l2"]
    result = CliRunner().invoke(
        main, ["index", "create", "items_idx", "--access", "scan", *made, *end]
    )
    assert result.exit_code == 0, result.output
    assert "warning: left out 2 rows" in result.stderr
    train = ["model", "train", "fresh", "--table", "items", "--column", "embedding", "--force"]
    for options in (
        ["--method", "itq", "--bits", "8"],
        ["--method", "itq", "--bits", "8", "--all-rows"],
        ["--method", "lsh", "--bits", "8", "--metric", "cosine"],
    ):
        result = CliRunner().invoke(main, [*train, *options, *end])
        assert result.exit_code == 0, (options, result.output, result.exception)
        assert (
            'left out 2 rows of "public"."items" whose numbers are too large to train on: key '
            in result.stderr
        ) or "left out 2 rows of items" in result.stderr, result.stderr


def test_training_on_a_table_without_a_key(connection, items):
    enlarge(connection, 5)
    connection.execute("CREATE TABLE bare AS SELECT embedding FROM items")
    with pytest.warns(RowsLeftOutWarning, match="1 row of .*bare.* too large"):
        drawn = sampling.sample_table(connection, "bare", "embedding")
    assert len(drawn.X) == 299
    model = fitting.train(drawn.X, "m", "itq", n_bits=8, force=True)
    assert isinstance(model, Model)


def test_training_in_sql(connection, items):
    enlarge(connection, 5)
    connection.execute(
        "SELECT hashindex.train('m', 'items', 'embedding', metric => 'l2', force => true)"
    )


def test_which_rows_a_model_takes(vectors):
    model = LSH(n_bits=16, random_state=1).fit(vectors).to_model("lengths", metric="l2")
    rows = vectors[:9].copy()
    rows[[2, 7]] = LARGE
    projections, taken = model.project_taken(rows)
    assert np.flatnonzero(~taken).tolist() == [2, 7]
    np.testing.assert_allclose(projections, model.project(rows[taken]), rtol=1e-5, atol=1e-5)
    projections, taken = model.project_taken(rows[:0])
    assert (projections.shape, taken.shape) == ((0, 16), (0,))
