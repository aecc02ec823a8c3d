"""Training on a table or a file: what is drawn, what is refused, what is measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pg_hashindex import training
from pg_hashindex.data import load_packages
from pg_hashindex.database import Connection
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.training import load_rows, sample_table, train


@pytest.fixture(scope="module")
def embeddings() -> NDArray[np.float32]:
    return load_packages().embedding[:2000]


def as_set(rows: NDArray[Any]) -> set[bytes]:
    return {row.tobytes() for row in rows}


def test_a_small_table_is_read_whole(
    connection: Connection, items: str, vectors: NDArray[np.float32]
) -> None:
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 7")
    sample = sample_table(connection, items, "embedding")
    assert sample.dtype == np.float32
    assert as_set(sample) == as_set(np.delete(vectors, 6, axis=0))


@pytest.mark.parametrize("large_table", [1_000_000, 100])
def test_a_sample_is_repeatable(
    connection: Connection, items: str, monkeypatch: pytest.MonkeyPatch, large_table: int
) -> None:
    """By rows, and by pages as of a large table."""
    monkeypatch.setattr(training, "_LARGE_TABLE", large_table)
    first = sample_table(connection, items, "embedding", rows=40, random_state=1)
    assert 1 <= len(first) <= 40
    np.testing.assert_array_equal(
        first, sample_table(connection, items, "embedding", rows=40, random_state=1)
    )
    assert as_set(first) != as_set(
        sample_table(connection, items, "embedding", rows=40, random_state=2)
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


def test_files(tmp_path: Path, vectors: NDArray[np.float32]) -> None:
    np.save(tmp_path / "plain.npy", vectors)
    np.savez(tmp_path / "named.npz", X=vectors, Y=vectors[:5])
    np.savez(tmp_path / "single.npz", embeddings=vectors, labels=np.arange(300))
    for name in ("plain.npy", "named.npz", "single.npz"):
        np.testing.assert_array_equal(load_rows(tmp_path / name), vectors)
    drawn = load_rows(tmp_path / "plain.npy", rows=20, random_state=4)
    assert len(as_set(drawn)) == 20
    assert as_set(drawn) < as_set(vectors)


def test_files_that_cannot_be_read(tmp_path: Path, vectors: NDArray[np.float32]) -> None:
    np.savez(tmp_path / "two.npz", a=vectors, b=vectors)
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", vectors[0])
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").touch()
    for name, message in {
        "two.npz": "must be called X",
        "objects.npy": "cannot read vectors",
        "flat.npy": r"got shape \(8,\)",
        "text.npy": "cannot read vectors",
        "empty.npy": "cannot read vectors",
        "missing.npy": "No such file",
        ".": "cannot read vectors",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            load_rows(tmp_path / name)


def test_what_training_measures(embeddings: NDArray[np.float32]) -> None:
    model = train(embeddings, "texts", "itq", n_bits=64, metric="cosine", random_state=5)
    summary = model.training
    assert summary["rows"] == 1800
    assert summary["held_back_rows"] == 200
    assert summary["recall"]["among"] == 1800
    assert 0.8 < summary["recall"]["value"] <= 1
    shares = summary["share_of_ones"]
    assert 0 < shares["least"] < shares["mean"] < shares["greatest"] < 1
    assert model.metric == "cosine"
    assert model.parameters["normalize"] == "l2"
    assert model.layers[0].kind == "normalize"
    again = train(embeddings, "texts", "itq", n_bits=64, metric="cosine", random_state=5)
    assert again.checksum == model.checksum


def test_sign_needs_no_bits(embeddings: NDArray[np.float32]) -> None:
    assert train(embeddings, "s", "sign", force=True).n_bits == 384
    with pytest.raises(InvalidInputError, match="'itq' needs a number of bits"):
        train(embeddings, "s", "itq")


@pytest.mark.parametrize(("rows", "bits", "least"), [(999, 8, 1000), (1999, 200, 2000)])
def test_too_few_rows(embeddings: NDArray[np.float32], rows: int, bits: int, least: int) -> None:
    with pytest.raises(InvalidInputError, match=f"{rows} rows are too few .* {least}"):
        train(embeddings[:rows], "few", "lsh", n_bits=bits)
    assert train(embeddings[:rows], "few", "lsh", n_bits=bits, force=True).n_bits == bits


@pytest.mark.parametrize("large_table", [1_000_000, 100])
@pytest.mark.parametrize("rows", [1, 10, 90])
def test_a_sample_is_as_large_as_asked_for(
    connection: Connection, items: str, monkeypatch: pytest.MonkeyPatch, large_table: int, rows: int
) -> None:
    """Though few rows are drawn, and most of the table has no vector."""
    monkeypatch.setattr(training, "_LARGE_TABLE", large_table)
    connection.execute("UPDATE items SET embedding = NULL WHERE id % 3 > 0")
    for seed in range(5):
        sample = sample_table(connection, items, "embedding", rows=rows, random_state=seed)
        assert len(sample) == len(as_set(sample)) == rows
    assert len(sample_table(connection, items, "embedding", rows=101)) == 100


def test_what_may_be_sampled(connection: Connection, items: str) -> None:
    """Partitioned tables and materialised views too, and whatever the caller's transaction is."""
    connection.execute(
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM items;"
        "CREATE TABLE parts (id bigint, embedding vector(8)) PARTITION BY RANGE (id);"
        "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (1000);"
        "INSERT INTO parts SELECT id, embedding FROM items; ANALYZE"
    )
    whole = as_set(sample_table(connection, items, "embedding"))
    for table in ("seen", "parts"):
        assert as_set(sample_table(connection, table, "embedding")) == whole
        assert as_set(sample_table(connection, table, "embedding", rows=20)) < whole
    with connection.transaction():
        assert len(sample_table(connection, items, "embedding", rows=20)) == 20
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
    sample = sample_table(connection, items, "embedding", rows=50)
    assert len(as_set(sample)) == 50


def test_bits_and_seed_are_no_parameters_of_the_method(embeddings: NDArray[np.float32]) -> None:
    for name in ("n_bits", "random_state"):
        with pytest.raises(InvalidInputError, match=f"{name} cannot be a parameter"):
            train(embeddings, "m", "lsh", n_bits=8, parameters={name: 16})
    with pytest.raises(InvalidInputError, match="n_bits must be an integer from 1 to 16000"):
        train(embeddings, "m", "lsh", n_bits=999_999)
    with pytest.raises(InvalidInputError, match="cannot name a model"):
        train(embeddings, "a:b", "lsh", n_bits=8)


def test_damaged_archives(tmp_path: Path, vectors: NDArray[np.float32]) -> None:
    np.savez(tmp_path / "whole.npz", X=vectors)
    data = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "fake.npz").write_bytes(b"PK\x03\x04" + bytes(200))
    for name in ("cut.npz", "fake.npz"):
        with pytest.raises(InvalidInputError, match="cannot read vectors"):
            load_rows(tmp_path / name)
    np.savez(tmp_path / "beside.npz", X=vectors, notes=np.array([None]))
    np.testing.assert_array_equal(load_rows(tmp_path / "beside.npz"), vectors)
