"""Graphs from the database: edges by key, counted against the rows that were drawn."""

import numpy as np
import pytest
from fixtures.items import ids_of

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.training.sampling import sample_table

pytestmark = pytest.mark.newest


def edges_of(sample, vectors):
    """Objects and weights of each row that has some, by key."""
    assert sample.graph is not None
    assert sample.graph.dtype == np.float32
    lines = enumerate(ids_of(sample.X, vectors))
    found = {key: sample.graph[[row]].tocoo() for row, key in lines}
    return {
        key: list(zip(line.col.tolist(), line.data.tolist(), strict=True))
        for key, line in found.items()
        if line.nnz
    }


@pytest.fixture
def tags(connection, items):
    """Tags of rows 5, 6, 7 and 300; row 6 has one of them twice. Row 7 has no vector."""
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 7")
    connection.execute(
        "CREATE TABLE tags (item bigint, tag text);"
        "INSERT INTO tags VALUES (5, 'b'), (6, 'a'), (6, 'b'), (6, 'a'), (7, 'c'), (300, 'd')"
    )


@pytest.mark.parametrize(
    "query", ["tags", "SELECT item, tag FROM tags WHERE tag LIKE '%' -- all\n;", "TABLE tags"]
)
@pytest.mark.usefixtures("tags")
def test_edges_by_key(connection, vectors, query):
    """The edges are those of the whole table; row 7 has no vector, and its tags are not objects."""
    sample = sample_table(connection, "items", "embedding", graph=query)
    assert sample.graph is not None
    assert sample.graph.shape == (299, 3)
    expected = {5: [(1, 1.0)], 6: [(0, 2.0), (1, 1.0)], 300: [(2, 1.0)]}
    assert edges_of(sample, vectors) == expected


def test_edges_of_the_rows_that_are_drawn(connection, items, vectors):
    """Any edges of some rows, against a count by hand; the draw is the same as without a graph."""
    rng = np.random.default_rng(0)
    edges = np.column_stack([rng.integers(1, 301, 4000), rng.integers(-50, 50, 4000)])
    weights = rng.integers(1, 9, 4000) / 4
    connection.execute("CREATE TABLE owned (id int, owner int, times float4)")
    with connection.cursor() as cursor, cursor.copy("COPY owned FROM STDIN") as copy:
        for line in zip(*edges.T.tolist(), weights.tolist(), strict=True):
            copy.write_row(line)
    connection.execute("ALTER TABLE items ADD label text")
    connection.execute("UPDATE items SET label = category WHERE id <= 20")
    options = {"labels": "label", "rows": 60, "random_state": 3}
    sample = sample_table(connection, items, "embedding", graph="owned", **options)
    alone = sample_table(connection, items, "embedding", **options)
    np.testing.assert_array_equal(sample.X, alone.X)
    assert alone.graph is None
    drawn = ids_of(sample.X, vectors)
    expected = np.zeros((60, 100))
    for (key, owner), weight in zip(edges.tolist(), weights.tolist(), strict=True):
        if key in drawn:
            expected[drawn.index(key), owner + 50] += weight
    assert sample.graph is not None
    assert np.array_equal(sample.graph.toarray(), expected[:, expected.any(axis=0)])
    again = sample_table(connection, items, "embedding", graph="owned", **options)
    assert again.graph is not None
    assert (again.graph != sample.graph).nnz == 0


OBJECTS = [
    ("(1, 'x'::text), (2, 'X'), (3, 'x ')", 3),
    ("(1, 'x'::char(3)), (2, 'x '), (3, 'y')", 2),
    ("(1, 1.0), (2, 1.00), (3, 2)", 2),
    ("(1, 0.5::float8), (2, 0.5), (3, 0.5000000000000001)", 2),
    ("(1, now()), (2, now()), (3, 'infinity')", 2),
    ("(1, '{1,2}'::int[]), (2, '{1, 2}'), (3, NULL::int[] || 1)", 2),
    ("(1, md5('x')::uuid), (2, md5('x')::uuid), (3, md5('y')::uuid)", 2),
    ("(1, '[1,2]'::jsonb), (2, '[1, 2]'), (3, '{}')", 2),
    ("(1, ROW(1, NULL)), (2, ROW(1, NULL)), (3, ROW(1, 2))", 2),
]


def test_objects_of_any_type(connection, items, vectors):
    for values, n_objects in OBJECTS:
        sample = sample_table(connection, items, "embedding", graph=f"VALUES {values}")
        assert sample.graph is not None
        assert sample.graph.shape == (300, n_objects), values
        found = edges_of(sample, vectors)
        assert (found[1] == found[2]) == (n_objects == 2), values
        assert found[3] != found[1], values


@pytest.mark.parametrize(
    ("key", "value", "given"),
    [
        ("integer", "id", "17.0"),
        ("uuid", "md5(id::text)::uuid", "upper(md5('17'))"),
        ("varchar(4)", "'k' || id", "'k17' COLLATE \"POSIX\""),
        ('text COLLATE "C"', "'k' || id", "'k17'::name"),
        ("numeric", "id + 0.50", "17.5"),
        ("counted", "id", "17::float8"),
    ],
)
def test_keys_are_compared_as_their_type_does(connection, items, vectors, key, value, given):
    """A graph's column may have another type or collation than the key."""
    connection.execute("CREATE DOMAIN counted AS numeric CHECK (VALUE > 0)")
    connection.execute(f"ALTER TABLE items ADD k {key}".encode())
    connection.execute(f"UPDATE items SET k = {value}".encode())
    connection.execute("ALTER TABLE items ALTER k SET NOT NULL, ADD UNIQUE (k)")
    connection.execute(f"CREATE TABLE known AS SELECT {given} AS a, 1 AS b".encode())
    sample = sample_table(connection, items, "embedding", graph="known", key_columns="k")
    assert edges_of(sample, vectors) == {17: [(0, 1.0)]}


def test_weights_of_any_number(connection, items, vectors):
    for weight in ("2", "2::smallint", "2.0", "2::float4", "2::double precision"):
        query = f"SELECT 5, 'a', {weight} UNION ALL SELECT 5, 'a', {weight}"
        sample = sample_table(connection, items, "embedding", graph=query)
        assert edges_of(sample, vectors) == {5: [(0, 4.0)]}, weight


UNUSABLE = [
    ("nothing", 'graph: .*"nothing" does not exist'),
    ("DROP TABLE items", "graph: .* a query that begins with SELECT"),
    ("SELECT 1", "2 columns, key and object, or 3 with a weight, got 1"),
    ("SELECT 1, 2, 3, 4 AS x", r"got 4: .*, x; choose"),
    ("SELECT 1, 'a', true AS sure", "a number; sure is of type bool"),
    ("SELECT 1, 'a', '2' AS times", "a number; times is of type text"),
    ("SELECT 1, 'a' WHERE false", "there are no edges in SELECT"),
    ("SELECT 4, 'a'", "none of the edges in SELECT 4, 'a' belongs to one of the 299 rows drawn"),
    ("VALUES (1, 'a'), (2, NULL)", "line 2 of the graph has a NULL: 2, NULL"),
    ("VALUES (NULL, 'a'), (2, 'a')", "line 1 of the graph has a NULL: NULL, a"),
    ("VALUES (1, 'a', 1.0), (2, 'b', NULL)", "line 2 of the graph has a NULL: 2, b, NULL"),
    ("VALUES (1, 'a'), (999, 'a')", "graph names a row with id = 999, but items has none; lea"),
    ("VALUES (1, 'a', 1), (2, 'b', 0)", "must be above 0 .* line 2, 2 and b, has 0"),
    ("VALUES (1, 'a', -0.5)", "line 1, 1 and a, has -0.5"),
    ("VALUES (1, 'a', 'NaN'::float8)", "has NaN"),
    ("VALUES (1, 'a', 'inf'::float4)", "has Infinity"),
    ("VALUES (1, 'a', 1e400)", "has 1000"),
    ("VALUES (1, 'a', 1e-400)", "has 0.000"),
    ("SELECT 1, 2 /* all", "graph: unterminated /"),
    ("SELECT 'x', 2", 'graph: invalid input .* bigint: "x"; as key id of items is'),
    ("SELECT 1.5, 2", 'graph: invalid input .* bigint: "1.5"'),
    ("SELECT now(), 2", "graph: cannot cast type timestamp .* as key id of items"),
    ("SELECT 1, 2; DROP TABLE items", "syntax error"),
]


def test_graphs_that_cannot_be_used(connection, items):
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 4")
    for graph, message in UNUSABLE:
        with pytest.raises(InvalidInputError, match=message):
            sample_table(connection, items, "embedding", graph=graph)
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (300,)


def test_a_key_is_needed(connection, items):
    connection.execute("CREATE TABLE keyless AS SELECT * FROM items")
    with pytest.raises(InvalidInputError, match="has no primary key"):
        sample_table(connection, "keyless", "embedding", graph="SELECT 1, 2")


def test_vectors_for_a_graph_come_in_the_order_of_the_rows(connection, items, vectors):
    connection.execute("ALTER TABLE items ADD side halfvec(2)")
    connection.execute("UPDATE items SET side = format('[%s, 1]', id)::halfvec")
    sample = sample_table(connection, items, "embedding", graph_features="side", rows=50)
    expected = [[key, 1] for key in ids_of(sample.X, vectors)]
    assert sample.graph_features is not None
    assert sample.graph_features.tolist() == expected
    connection.execute("UPDATE items SET side = NULL WHERE id IN (3, 8)")
    with pytest.raises(InvalidInputError, match="2 of 300 rows have no vector in column 'side'"):
        sample_table(connection, items, "embedding", graph_features="side")
