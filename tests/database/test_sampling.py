"""Rows drawn from a table to train on, with what the database knows about them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pg_hashindex import table_source
from pg_hashindex.database import Connection
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.sampling import sample_table


def as_set(rows: NDArray[Any]) -> set[bytes]:
    return {row.tobytes() for row in rows}


def test_a_small_table_is_read_whole(
    connection: Connection, items: str, vectors: NDArray[np.float32]
) -> None:
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 7")
    sample = sample_table(connection, items, "embedding").X
    assert sample.dtype == np.float32
    assert as_set(sample) == as_set(np.delete(vectors, 6, axis=0))


@pytest.mark.parametrize("large_table", [1_000_000, 100])
def test_a_sample_is_repeatable(
    connection: Connection, items: str, monkeypatch: pytest.MonkeyPatch, large_table: int
) -> None:
    """By rows, and by pages as of a large table."""
    monkeypatch.setattr(table_source, "_LARGE_TABLE", large_table)
    first = sample_table(connection, items, "embedding", rows=40, random_state=1).X
    assert 1 <= len(first) <= 40
    np.testing.assert_array_equal(
        first, sample_table(connection, items, "embedding", rows=40, random_state=1).X
    )
    assert as_set(first) != as_set(
        sample_table(connection, items, "embedding", rows=40, random_state=2).X
    )


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        ("nothing", "embedding", 'relation "nothing" does not exist'),
        ("items", "nothing", "no column 'nothing'"),
        ("items", "category", "of type text, not vector"),
        ("items_pkey", "embedding", "neither a table"),
        ("a b c", "embedding", "invalid name syntax"),
        ("loose", "v", "vectors of dimensions 2, 3"),
        ("empty", "v", "no row with a vector in column 'v'"),
    ],
)
def test_tables_that_cannot_be_sampled(
    connection: Connection, items: str, table: str, column: str, message: str
) -> None:
    connection.execute(
        "CREATE TABLE loose (v vector); INSERT INTO loose VALUES ('[1,2]'), ('[1,2,3]')"
    )
    connection.execute("CREATE TABLE empty (v vector(3)); INSERT INTO empty VALUES (NULL)")
    with pytest.raises(InvalidInputError, match=message):
        sample_table(connection, table, column)


@pytest.mark.parametrize("large_table", [1_000_000, 100])
@pytest.mark.parametrize("rows", [1, 10, 90])
def test_a_sample_is_as_large_as_asked_for(
    connection: Connection, items: str, monkeypatch: pytest.MonkeyPatch, large_table: int, rows: int
) -> None:
    """Though few rows are drawn, and most of the table has no vector."""
    monkeypatch.setattr(table_source, "_LARGE_TABLE", large_table)
    connection.execute("UPDATE items SET embedding = NULL WHERE id % 3 > 0")
    for seed in range(5):
        sample = sample_table(connection, items, "embedding", rows=rows, random_state=seed).X
        assert len(sample) == len(as_set(sample)) == rows
    assert len(sample_table(connection, items, "embedding", rows=101).X) == 100


def test_what_may_be_sampled(connection: Connection, items: str) -> None:
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


def test_rows_asked_for(connection: Connection, items: str) -> None:
    with pytest.raises(InvalidInputError, match="1 row or more, got 0"):
        sample_table(connection, items, "embedding", rows=0)


def test_a_table_far_larger_than_its_statistics(connection: Connection, items: str) -> None:
    """The sample is what was asked for, whatever the planner believes."""
    connection.execute("ANALYZE items")
    connection.execute("UPDATE pg_class SET reltuples = 20000 WHERE oid = 'items'::regclass")
    connection.execute(
        "INSERT INTO items SELECT 1000 + n, 'x', "
        "ARRAY(SELECT n * d FROM generate_series(1, 8) d)::vector FROM generate_series(1, 5000) n"
    )
    sample = sample_table(connection, items, "embedding", rows=50).X
    assert len(as_set(sample)) == 50


def ids_of(rows: NDArray[np.float32], vectors: NDArray[np.float32]) -> list[int]:
    """Keys of rows of items."""
    return [1 + int(np.flatnonzero((vectors == row).all(axis=1))[0]) for row in rows]


CYCLE = "(ARRAY['sad', NULL, 'glad'])[id % 3 + 1]"


@pytest.mark.parametrize(
    ("kind", "expression", "names"),
    [
        ("integer", "CASE id % 3 WHEN 0 THEN 10 WHEN 2 THEN 9 END", ("10", "9")),
        ("smallint", "CASE id % 3 WHEN 0 THEN 10 WHEN 1 THEN -1 ELSE 9 END", ("10", "9")),
        ("bigint", "CASE id % 3 WHEN 0 THEN 5000000000 WHEN 2 THEN -7 END", ("5000000000", "-7")),
        ("positive", "CASE id % 3 WHEN 0 THEN 2 WHEN 2 THEN 1 END", ("2", "1")),
        ("text", CYCLE, ("sad", "glad")),
        ("varchar(9)", CYCLE, ("sad", "glad")),
        ("mood", f"{CYCLE}::mood", ("sad", "glad")),
        ("boolean", "(ARRAY[true, NULL, false])[id % 3 + 1]", ("true", "false")),
    ],
)
def test_labels_of_every_type(
    connection: Connection,
    items: str,
    vectors: NDArray[np.float32],
    kind: str,
    expression: str,
    names: tuple[str, str],
) -> None:
    """One label for ids that 3 divides, none for the next ones, another for those after."""
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad')")
    connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
    connection.execute(f'ALTER TABLE items ADD "The label" {kind}'.encode())
    connection.execute(f'UPDATE items SET "The label" = {expression}'.encode())
    sample = sample_table(connection, items, "embedding", labels="The label")
    found = [sample.classes[number] if number >= 0 else None for number in sample.y]
    expected = {0: names[0], 1: None, 2: names[1]}
    assert found == [expected[n % 3] for n in ids_of(sample.X, vectors)]
    by_value = int if names[0].isdecimal() else str
    assert list(sample.classes) == sorted(names, key=by_value)


@pytest.mark.parametrize("kind", ["integer[]", "text[]"])
def test_several_labels_a_row(
    connection: Connection, items: str, vectors: NDArray[np.float32], kind: str
) -> None:
    connection.execute(f"ALTER TABLE items ADD tags {kind}".encode())
    connection.execute(
        f"UPDATE items SET tags = (ARRAY["
        f"'{{10, 9, NULL, 9}}', '{{}}', '{{9}}', NULL])[id % 4 + 1]::{kind}".encode()
    )
    sample = sample_table(connection, items, "embedding", labels="tags")
    assert sample.classes == (("9", "10") if kind == "integer[]" else ("10", "9"))
    expected = {0: {"9", "10"}, 1: set(), 2: {"9"}, 3: set()}
    found = [{sample.classes[c] for c in np.flatnonzero(line)} for line in sample.y.toarray()]
    assert found == [expected[n % 4] for n in ids_of(sample.X, vectors)]


def test_labelled_rows_come_first(
    connection: Connection, items: str, vectors: NDArray[np.float32]
) -> None:
    """Few labels among many rows would all but vanish from a uniform sample."""
    connection.execute("ALTER TABLE items ADD label text")
    connection.execute("UPDATE items SET label = category WHERE id % 20 = 0")
    for rows, labelled in ((10, 10), (15, 15), (40, 15), (300, 15)):
        sample = sample_table(connection, items, "embedding", labels="label", rows=rows)
        assert len(as_set(sample.X)) == rows
        assert (sample.y >= 0).sum() == labelled
        assert all(n % 20 == 0 for n in ids_of(sample.X[sample.y >= 0], vectors))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("nothing", "no column 'nothing'"),
        ("embedding", r"type vector; labels are integers"),
        ("price", "type numeric; labels are integers"),
        ("prices", r"type numeric\[\]; labels are integers"),
    ],
)
def test_columns_that_are_no_labels(
    connection: Connection, items: str, labels: str, message: str
) -> None:
    connection.execute("ALTER TABLE items ADD price numeric, ADD prices numeric[]")
    with pytest.raises(InvalidInputError, match=message):
        sample_table(connection, items, "embedding", labels=labels)


def test_pairs_and_triplets_by_key(
    connection: Connection, items: str, vectors: NDArray[np.float32]
) -> None:
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
    assert sample.pairs is not None
    assert sample.triplets is not None
    assert ids[sample.pairs[:, :2]].tolist() == [[17, 200], [200, 3]]
    assert sample.pairs[:, 2].tolist() == [1, -1]
    assert ids[sample.triplets].tolist() == [[5, 6, 7], [300, 5, 17]]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"pairs": "nothing"}, '"nothing" does not exist'),
        ({"pairs": "SELECT 1, 2"}, "3 columns, got 2"),
        ({"triplets": "items"}, "got 3: id, category, embedding|NULL|name a row"),
        ({"triplets": "SELECT 1, 2, 3, 4"}, "must come in 3 columns, got 4"),
        ({"triplets": "SELECT 1, 2, 3 WHERE false"}, "there are no triplets in SELECT"),
        ({"triplets": "SELECT 1, NULL, 3"}, "line 1 of the triplets has a NULL"),
        ({"triplets": "SELECT 1, 2, 999"}, "triplets name a row with id = 999"),
        ({"triplets": "SELECT 1, 2, 4"}, "triplets name a row with id = 4"),
        ({"triplets": "SELECT 1, 2, 'x'"}, "x"),
        ({"pairs": "SELECT 1, 2, 'yes'"}, "third column of the pairs must be 1"),
        ({"pairs": "SELECT 1, 2, 1", "id_column": "category"}, "is not a key"),
        ({"pairs": "SELECT 1, 2, 1; DROP TABLE items"}, "syntax error"),
        ({"pairs": "SELECT 1, 2, 1", "rows": 1}, "pairs name 2 rows, but at most 1"),
    ],
)
def test_pairs_and_triplets_that_cannot_be_used(
    connection: Connection, items: str, known: dict[str, Any], message: str
) -> None:
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 4")
    with pytest.raises(InvalidInputError, match=message):
        sample_table(connection, items, "embedding", **known)
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (300,)
