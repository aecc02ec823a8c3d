"""Rows drawn from a table to train on, with what the database knows about them."""

import numpy as np
import pytest
from fixtures.indexes import indexed
from fixtures.items import ids_of
from pgvector import Vector

from pg_hashindex.errors import HashIndexError, InvalidInputError, RowsLeftOutWarning
from pg_hashindex.models import store
from pg_hashindex.quality.queries import draw
from pg_hashindex.training.fitting import train
from pg_hashindex.training.sampling import SAMPLE_ROWS, UNSUPERVISED_ROWS, sample_rows, sample_table
from pg_hashindex.training.whole_tables import train_on_table

pytestmark = pytest.mark.newest


def as_set(rows):
    return {row.tobytes() for row in rows}


@pytest.mark.parametrize(
    ("method", "rows"),
    [("itq", UNSUPERVISED_ROWS), ("sgh", UNSUPERVISED_ROWS), ("sadih", SAMPLE_ROWS)],
)
def test_methods_without_labels_need_fewer_rows(method, rows):
    assert sample_rows(method) == rows


def test_a_small_table_is_read_whole(connection, items, vectors):
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 7")
    sample = sample_table(connection, items, "embedding").X
    assert sample.dtype == np.float32
    assert as_set(sample) == as_set(np.delete(vectors, 6, axis=0))


@pytest.mark.parametrize("large_table", [1_000_000, 100])
def test_a_sample_is_repeatable(connection, items, monkeypatch, large_table):
    """By rows, and by pages as of a large table."""
    monkeypatch.setattr("pg_hashindex.db.rows._LARGE_TABLE", large_table)
    first = sample_table(connection, items, "embedding", rows=40, random_state=1).X
    assert 1 <= len(first) <= 40
    np.testing.assert_array_equal(
        first, sample_table(connection, items, "embedding", rows=40, random_state=1).X
    )
    assert as_set(first) != as_set(
        sample_table(connection, items, "embedding", rows=40, random_state=2).X
    )


@pytest.mark.parametrize("large_table", [1_000_000, 100])
@pytest.mark.parametrize("rows", [1, 10, 90])
def test_a_sample_is_as_large_as_asked_for(connection, items, monkeypatch, large_table, rows):
    """Though few rows are drawn, and most of the table has no vector."""
    monkeypatch.setattr("pg_hashindex.db.rows._LARGE_TABLE", large_table)
    connection.execute("UPDATE items SET embedding = NULL WHERE id % 3 > 0")
    for seed in range(5):
        sample = sample_table(connection, items, "embedding", rows=rows, random_state=seed).X
        assert len(sample) == len(as_set(sample)) == rows
    assert len(sample_table(connection, items, "embedding", rows=101).X) == 100


def test_relations_that_can_be_sampled(connection, items):
    """Partitioned tables and materialised views too, and whatever the caller's transaction is."""
    connection.execute(
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM items;"
        "CREATE TABLE parts (id bigint, embedding vector(8)) PARTITION BY RANGE (id);"
        "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (1000);"
        "INSERT INTO parts SELECT id, embedding FROM items; ANALYZE"
    )
    whole = as_set(sample_table(connection, items, "embedding").X)
    for table in ("seen", "parts"):
        assert as_set(sample_table(connection, table, "embedding").X) == whole
        assert as_set(sample_table(connection, table, "embedding", rows=20).X) < whole
    with connection.transaction():
        assert len(sample_table(connection, items, "embedding", rows=20).X) == 20
        connection.execute("SELECT 1")


def test_a_table_far_larger_than_its_statistics(connection, items):
    """The sample is what was asked for, whatever the planner believes."""
    connection.execute("ANALYZE items")
    connection.execute("UPDATE pg_class SET reltuples = 20000 WHERE oid = 'items'::regclass")
    connection.execute(
        "INSERT INTO items SELECT 1000 + n, 'x', "
        "ARRAY(SELECT n * d FROM generate_series(1, 8) d)::vector FROM generate_series(1, 5000) n"
    )
    sample = sample_table(connection, items, "embedding", rows=50).X
    assert len(as_set(sample)) == 50


CYCLE = "(ARRAY['sad', NULL, 'glad'])[id % 3 + 1]"


@pytest.mark.parametrize(
    ("kind", "expression", "names"),
    [
        ("integer", "CASE id % 3 WHEN 0 THEN 10 WHEN 2 THEN 9 END", ("10", "9")),
        ("smallint", "CASE id % 3 WHEN 0 THEN 10 WHEN 1 THEN -1 ELSE 9 END", ("10", "9")),
        ("bigint", "CASE id % 3 WHEN 0 THEN 5000000000 WHEN 2 THEN 7 END", ("5000000000", "7")),
        ("positive", "CASE id % 3 WHEN 0 THEN 2 WHEN 2 THEN 1 END", ("2", "1")),
        ("text", CYCLE, ("sad", "glad")),
        ("varchar(9)", CYCLE, ("sad", "glad")),
        ("char(5)", CYCLE, ("sad", "glad")),
        ("name", CYCLE, ("sad", "glad")),
        (
            "date",
            "date '2025-02-01' + (ARRAY[9, NULL, 5])[id % 3 + 1]",
            ("2025-02-10", "2025-02-06"),
        ),
        ("mood", f"{CYCLE}::mood", ("sad", "glad")),
        ("boolean", "(ARRAY[true, NULL, false])[id % 3 + 1]", ("true", "false")),
    ],
)
def test_labels_of_every_type(connection, items, vectors, kind, expression, names):
    """One label for ids that 3 divides, none for the next ones, another for those after."""
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad')")
    connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
    connection.execute(f'ALTER TABLE items ADD "The label" {kind}'.encode())
    connection.execute(f'UPDATE items SET "The label" = {expression}'.encode())
    sample = sample_table(connection, items, "embedding", labels="The label")
    # Classes are numbered in the order of their names.
    classes = sorted(names, key=int if names[0].isdecimal() else str)
    expected = {0: classes.index(names[0]), 1: -1, 2: classes.index(names[1])}
    assert sample.y.tolist() == [expected[n % 3] for n in ids_of(sample.X, vectors)]


@pytest.mark.parametrize("kind", ["integer[]", "text[]"])
def test_several_labels_a_row(connection, items, vectors, kind):
    connection.execute(f"ALTER TABLE items ADD tags {kind}".encode())
    connection.execute(
        f"UPDATE items SET tags = (ARRAY["
        f"'{{10, 9, NULL, 9}}', '{{}}', '{{9}}', NULL])[id % 4 + 1]::{kind}".encode()
    )
    sample = sample_table(connection, items, "embedding", labels="tags")
    nine = [1, 0] if kind == "integer[]" else [0, 1]
    expected = {0: [1, 1], 1: [0, 0], 2: nine, 3: [0, 0]}
    assert sample.y.toarray().tolist() == [expected[n % 4] for n in ids_of(sample.X, vectors)]


def test_arrays_of_arrays_are_lists_of_labels(connection, items, vectors):
    """To PostgreSQL int[] and int[][] are one type."""
    connection.execute("ALTER TABLE items ADD tags integer[]")
    connection.execute(
        "UPDATE items SET tags = (ARRAY['{{4,2},{2,3}}', '{{-1,NULL}}', '{3}'])[id % 3 + 1]::int[]"
    )
    sample = sample_table(connection, items, "embedding", labels="tags")
    expected = {0: [1, 1, 1], 1: [0, 0, 0], 2: [0, 1, 0]}
    assert sample.y.toarray().tolist() == [expected[n % 3] for n in ids_of(sample.X, vectors)]


@pytest.mark.parametrize(
    "unlabelled", ["ARRAY[NULL]", "ARRAY[-1]", "ARRAY[NULL, -1]", "'{}'", "NULL"]
)
def test_arrays_without_a_label_come_last(connection, items, unlabelled):
    connection.execute("ALTER TABLE items ADD tags int[]")
    connection.execute(
        f"UPDATE items SET tags = CASE WHEN id % 10 = 0 THEN ARRAY[1, NULL] "
        f"ELSE {unlabelled}::int[] END".encode()
    )
    sample = sample_table(connection, items, "embedding", labels="tags", rows=40)
    assert len(sample.X) == 40
    assert sample.y.sum() == 30


def test_labelled_rows_come_first(connection, items, vectors):
    """Few labels among many rows would all but vanish from a uniform sample."""
    connection.execute("ALTER TABLE items ADD label text")
    connection.execute("UPDATE items SET label = category WHERE id % 20 = 0")
    for rows, labelled in ((10, 10), (15, 15), (40, 15), (300, 15)):
        sample = sample_table(connection, items, "embedding", labels="label", rows=rows)
        assert len(as_set(sample.X)) == rows
        assert (sample.y >= 0).sum() == labelled
        assert all(n % 20 == 0 for n in ids_of(sample.X[sample.y >= 0], vectors))


def test_pairs_and_triplets_by_key(connection, items, vectors):
    """From a table, and from a query with what a driver may take for a placeholder."""
    connection.execute(
        "CREATE TABLE alike (a bigint, b bigint, same integer);"
        "INSERT INTO alike VALUES (17, 200, 1), (200, 3, -1);"
        "CREATE TABLE clicks (at timestamptz, query text, clicked text, skipped text);"
        "INSERT INTO clicks VALUES (now(), 5, 6, 7), (now(), 300, 5, 17)"
    )
    sample = sample_table(
        connection,
        items,
        "embedding",
        pairs="alike",
        triplets="SELECT query, clicked, skipped FROM clicks WHERE query LIKE '%' ORDER BY 1 DESC;",
        rows=20,
    )
    assert len(as_set(sample.X)) == 20
    ids = np.array(ids_of(sample.X, vectors))
    assert ids[sample.pairs[:, :2]].tolist() == [[17, 200], [200, 3]]
    assert sample.pairs[:, 2].tolist() == [1, -1]
    assert ids[sample.triplets].tolist() == [[5, 6, 7], [300, 5, 17]]


#: Arguments beside table items and column embedding, and why they are refused.
REFUSED = [
    ({"table": "nothing"}, 'relation "nothing" does not exist'),
    ({"column": "nothing"}, "no column 'nothing'"),
    ({"column": "category"}, "of type text, not vector"),
    ({"table": "items_pkey"}, "neither a table"),
    ({"table": "a b c"}, "invalid name syntax"),
    ({"table": "loose", "column": "v"}, "vectors of dimensions 2, 3"),
    ({"table": "empty", "column": "v"}, "no row with a vector in column 'v'"),
    ({"rows": 0}, "1 row or more, got 0"),
    ({"table": "labelled", "labels": "nothing"}, "no column 'nothing'"),
    ({"table": "labelled", "labels": "embedding"}, "type vector; labels are integers"),
    ({"table": "labelled", "labels": "price"}, "type numeric; labels are integers"),
    ({"table": "labelled", "labels": "prices"}, r"type numeric\[\]; labels are integers"),
    # As in arrays: most often such a number stands for some other kind of no label.
    ({"table": "labelled", "labels": "below"}, "label -2; integer labels are 0 or more"),
    ({"table": "labelled", "labels": "smaller"}, "label -3; integer labels are 0 or more"),
    ({"table": "labelled", "labels": "several"}, "label -2; integer labels are 0 or more"),
    ({"pairs": "nothing"}, '"nothing" does not exist'),
    ({"pairs": "SELECT 1, 2"}, "3 columns, got 2"),
    ({"triplets": "items"}, "triplets: cannot cast type vector to bigint; .* key id of items"),
    ({"triplets": "things"}, "got 2: id, v"),
    ({"triplets": "SELECT 1, 2, 3, 4"}, "must come in 3 columns, got 4"),
    ({"triplets": "SELECT 1, 2, 3 WHERE false"}, "there are no triplets in SELECT"),
    ({"triplets": "SELECT 1, NULL, 3"}, "line 1 of the triplets has a NULL"),
    ({"triplets": "SELECT 1, 2, 999"}, "triplets name a row with id = 999"),
    ({"triplets": "SELECT 1, 2, 4"}, "triplets name a row with id = 4"),
    ({"triplets": "SELECT 1, 2, 'x'"}, 'triplets: invalid input .* bigint: "x"; .* key id of'),
    ({"triplets": "SELECT 1, 2, 3.5"}, 'triplets: invalid input .* bigint: "3.5"'),
    ({"triplets": "SELECT 1, 2, 3e10"}, "triplets name a row with id = 30000000000"),
    ({"triplets": "SELECT 1, 2, 3e30"}, "triplets: value .* is out of range"),
    ({"triplets": "SELECT 1, 2, now()"}, "triplets: cannot cast type timestamp"),
    (
        {"triplets": "VALUES (17, 200, 3), (200, 17, 200)"},
        "different rows, but line 2 has id = 200 twice: 200, 17, 200",
    ),
    ({"pairs": "VALUES (200, 200, 1)"}, "different rows, but line 1 has id = 200 twice"),
    (
        {"pairs": "VALUES (17, 200, 1), (1, 2, 1), (200, 17, -1)"},
        "rows with id = 200 and 17 are given both as neighbours and as others, by lines 1 and "
        "3 of the pairs",
    ),
    ({"pairs": "SELECT 1, 2, 'yes'"}, "third column of the pairs must be 1"),
    ({"pairs": "SELECT 41, 2, 0"}, "neighbours or -1 for others; line 1, 41 and 2, has 0"),
    ({"pairs": "SELECT 1, 2, 99999999999999999999"}, "has 99999999999999999999"),
    ({"pairs": "SELECT 1, 2, 'NaN'::float8"}, "has NaN"),
    ({"pairs": "SELECT 1, 2, 1 /* all"}, "pairs: unterminated /"),
    ({"pairs": "SELECT 1, 2, 1", "key_columns": "category"}, "is not a key"),
    ({"pairs": "SELECT 1, 2, 1; DROP TABLE items"}, "syntax error"),
    ({"pairs": "SELECT 1, 2, 1", "rows": 1}, "pairs name 2 rows, but at most 1"),
]


def test_what_cannot_be_sampled(connection, items):
    connection.execute(
        "UPDATE items SET embedding = NULL WHERE id = 4;"
        "CREATE TABLE things (id int, v int);"
        "CREATE TABLE loose (v vector); INSERT INTO loose VALUES ('[1,2]'), ('[1,2,3]');"
        "CREATE TABLE empty (v vector(3)); INSERT INTO empty VALUES (NULL);"
        "CREATE TABLE labelled AS SELECT *, 1.0 AS price, ARRAY[1.0] AS prices, -2 AS below, "
        "-3::smallint AS smaller, ARRAY[1, -2]::bigint[] AS several FROM items"
    )
    for given, message in REFUSED:
        with pytest.raises(InvalidInputError, match=message):
            sample_table(connection, **{"table": items, "column": "embedding"} | given)
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (300,)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 5, 6, 7 -- all of them",
        "-- the near ones\nSELECT 5, 6, 7",
        "/* the /* near */ ones */ VALUES (5, 6, 7);  ",
        "(SELECT 5, 6, 7)",
        " ( -- far\n (TABLE known) UNION (TABLE known) )\n;\n",
        "WITH k AS (SELECT 5, 6, 7) SELECT * FROM k",
        "known",
        'public . "known"',
    ],
)
def test_queries_however_they_are_written(connection, items, vectors, query):
    connection.execute("CREATE TABLE known AS SELECT 5 AS a, 6 AS b, 7 AS c")
    sample = sample_table(connection, items, "embedding", triplets=query, rows=3)
    assert np.array(ids_of(sample.X, vectors))[sample.triplets].tolist() == [[5, 6, 7]]


@pytest.mark.parametrize("what", ["pairs", "triplets", "graph"])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1,2,3) k; DROP TABLE items; COMMIT; SELECT * FROM (SELECT 1,2,3", "multiple"),
        ("SELECT 1,2,3) k; DROP TABLE items; COMMIT; --", "multiple commands|syntax error"),
        ("SELECT 1,2,3) k, (SELECT 4", "must come in .* got 4"),
        ("SELECT a, 2, 3 FROM spend() a", "read-only transaction"),
        ("SELECT key, number, 1 FROM drawn", '"drawn" does not exist'),
        ("WITH gone AS (DELETE FROM items RETURNING 1) SELECT 1, 2, 3", "top level"),
    ],
)
def test_queries_only_read(connection, other, items, what, query, message):
    """Whatever they are, in whatever transaction; which is as before afterwards."""
    connection.execute(
        "CREATE FUNCTION spend() RETURNS int LANGUAGE sql "
        "AS 'DELETE FROM items RETURNING 1; SELECT 1'"
    )
    known = {what: query}
    with pytest.raises(HashIndexError, match=message):
        sample_table(connection, items, "embedding", **known)
    with connection.transaction():
        with pytest.raises(HashIndexError, match=message):
            sample_table(connection, items, "embedding", **known)
        known[what] = "SELECT 1, 2, 3" if what == "triplets" else "SELECT 1, 2, 1"
        sample_table(connection, items, "embedding", **known)
        connection.execute("INSERT INTO items (id) VALUES (1000)")
    assert other.execute("SELECT count(*) FROM items").fetchone() == (301,)


@pytest.mark.parametrize(
    ("key", "value", "given"),
    [
        ("bigint", "id", "{}::numeric(10, 2)"),
        ("bigint", "id", "{}::float8"),
        ("integer", "id", "' ' || {}"),
        ("bigint", "id", "{}::smallint"),
        ("uuid", "md5(id::text)::uuid", "upper(md5(({})::text))"),
        ("text", "'k' || id", "('k' || {})::name"),
        ("varchar(4)", "'k' || id", "'k' || {}"),
        ("char(9)", "'k' || id", "'k' || {} || '  '"),
        ("numeric", "id + 0.50", "{} + 0.5"),
        ("counted", "id", "{}.0"),
        ("date", "date '2025-01-01' + id::int", "(timestamp '2025-01-01' + {} * interval '1 day')"),
    ],
)
def test_keys_of_another_type(connection, items, vectors, key, value, given):
    """They are what the key's own type makes of them."""
    connection.execute("CREATE DOMAIN counted AS numeric CHECK (VALUE > 0)")
    connection.execute(f"ALTER TABLE items ADD k {key}".encode())
    connection.execute(f"UPDATE items SET k = {value}".encode())
    connection.execute("ALTER TABLE items ALTER k SET NOT NULL, ADD UNIQUE (k)")
    lines = ", ".join(given.format(n) for n in (17, 200, 3))
    sample = sample_table(
        connection, items, "embedding", triplets=f"SELECT {lines}", key_columns="k", rows=3
    )
    assert np.array(ids_of(sample.X, vectors))[sample.triplets].tolist() == [[17, 200, 3]]


def test_keys_are_never_cut_to_fit(connection, items):
    connection.execute("ALTER TABLE items ADD k varchar(4)")
    connection.execute("UPDATE items SET k = 'k' || id")
    connection.execute("ALTER TABLE items ALTER k SET NOT NULL, ADD UNIQUE (k)")
    with pytest.raises(InvalidInputError, match="triplets name a row with k = k1000, but items"):
        sample_table(
            connection, items, "embedding", triplets="SELECT 'k1', 'k2', 'k1000'", key_columns="k"
        )


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ("1", "-1"),
        ("1.0", "-1.00"),
        ("1::float4", "-1::float4"),
        ("'1'", "'-1'"),
        ("true", "false"),
        ("(1 = 1)::yes", "(1 = 2)::yes"),
    ],
)
def test_neighbours_and_others(connection, items, near, far):
    connection.execute("CREATE DOMAIN yes AS boolean")
    pairs = f"SELECT 1, 2, {near} UNION ALL SELECT 3, 4, {far} UNION ALL SELECT 2, 1, {near}"
    sample = sample_table(connection, items, "embedding", pairs=pairs)
    assert sample.pairs[:, 2].tolist() == [1, -1, 1]


@pytest.mark.newest
def test_rows_of_zeros_have_no_cosine(connection, vectors):
    """They are neither learned from nor asked, and a warning counts them."""
    connection.execute("CREATE TABLE zeros (id int PRIMARY KEY, v vector(8))")
    connection.cursor().executemany(
        "INSERT INTO zeros VALUES (%s, %s)",
        [(n, Vector(row * (n % 10 > 0))) for n, row in enumerate(vectors)],
    )
    counted = {"match": "left out 30 rows of .*zeros.* vector is zero"}
    with pytest.warns(RowsLeftOutWarning, **counted):
        drawn = sample_table(connection, "zeros", "v", metric="cosine")
    assert drawn.X.any(axis=1).all()
    assert len(sample_table(connection, "zeros", "v").X) == 300
    with pytest.warns(RowsLeftOutWarning, **counted):
        train_on_table(connection, "zeros", "v", "m", metric="cosine", n_bits=8, force=True)
    X = vectors * (np.arange(300) % 10 > 0)[:, None]
    model = train(X, "m", metric="cosine", n_bits=8, force=True)
    assert model.training["recall"]["value"] > 0
    store.save(connection, model)
    index = indexed(connection, "z", table="zeros", column="v", model="m")
    with pytest.warns(RowsLeftOutWarning, **counted):
        assert len(draw(index, 300)) == 270
