"""``model encode`` with a column of a table."""

import json

import numpy as np
import pytest

from pg_hashindex.models.model import Model

ENCODE = ("model", "encode", "lsh", "--table", "items", "--column", "embedding", "--into", "code")


@pytest.fixture
def coded(connection, items, model):
    connection.execute("ALTER TABLE items ADD COLUMN code bit(12)")
    return items


def with_code(connection):
    return connection.execute("SELECT count(code) FROM items").fetchone()[0]


def test_fills_a_column_and_says_what_it_did(on, connection, coded):
    said = on(*ENCODE).stderr.splitlines()
    assert said[0] == "encoding items"
    assert said[-1] == "wrote 300 codes of model lsh:1 to code"
    connection.execute("UPDATE items SET code = NULL WHERE id <= 2")
    done = json.loads(on(*ENCODE, "--missing", "--json").stdout)
    assert done == {
        "model": "lsh:1", "written": 2, "unchanged": 0, "left_out": 0, "reasons": {},
    }  # fmt: skip
    assert on(*ENCODE).stderr.endswith(
        "wrote 0 codes of model lsh:1 to code, 300 rows had theirs\n"
    )


def test_names_rows_without_a_code(on, connection, coded):
    connection.execute("ALTER TABLE items ALTER embedding TYPE vector")
    connection.execute("UPDATE items SET embedding = '[1,2]' WHERE id IN (7, 9)")
    said = on(*ENCODE).stderr.splitlines()
    reason = "it has 2 dimensions, the model takes 8"
    assert said[-3:] == [
        "wrote 298 codes of model lsh:1 to code, 2 left without",
        f"key 7: {reason}",
        f"key 9: {reason}",
    ]


def test_continues_after_it_was_stopped(on, connection, coded, monkeypatch):
    encode, calls = Model.encode, []

    def stopped(self, X):
        calls.append(X)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(self, X)

    monkeypatch.setattr(Model, "encode", stopped)
    assert on(*ENCODE, code=130).stderr == "encoding items\ninterrupted\n"
    monkeypatch.undo()
    assert with_code(connection) == 256
    on(*ENCODE, "--missing", "--rows-per-second", 1e6)
    assert with_code(connection) == 300


def test_warns_of_an_index_before(on, connection, coded):
    connection.execute("CREATE INDEX by_code ON items USING hnsw (code bit_hamming_ops)")
    said = on(*ENCODE).stderr
    assert "warning: index by_code has column 'code' of items" in said
    assert with_code(connection) == 300


def test_refuses_in_one_line(on, connection, coded):
    for changed, message in (
        (("--into", "category"), "column 'category' of items is of type text"),
        (("--into", "none"), "items has no column 'none'; run: ALTER TABLE"),
        (("--codes", "learned"), "model lsh:1 has no learned codes"),
        (("--id", "category"), 'column "category" of public.items is not a key'),
    ):
        refused = on(*ENCODE, *changed, code=3).stderr.splitlines()
        assert refused[-1].startswith("Error: ")
        assert message in refused[-1]
    assert with_code(connection) == 0


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--table", "items"),
        ("--table", "items", "--column", "embedding"),
        ("--from", "rows.npy"),
        ("--from", "rows.npy", "--to", "codes.npy", "--missing"),
        (*ENCODE[3:], "--from", "rows.npy"),
        (*ENCODE[3:], "--force"),
    ],
)
def test_either_a_column_or_a_file(on, coded, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.zeros((2, 8), np.float32))
    refused = on("model", "encode", "lsh", *options, code=2).stderr
    assert "give either --table, --column and --into, or --from and --to" in refused


def test_training_names_the_command(on, connection, items, vectors):
    of_table = ("--table", "items", "--column", "embedding")
    how = ("--method", "fasth", "--bits", 4, "--param", "n_trees=2", "--labels", "category")
    said = on("model", "train", "trees", *of_table, *how, "--force").stdout
    assert said.splitlines()[-1] == (
        "Next, with a column of type bit(4): pg-hashindex model encode trees --table items "
        "--column embedding --into COLUMN"
    )
    connection.execute("ALTER TABLE items ADD COLUMN code bit(4)")
    on("model", "encode", "trees", *ENCODE[3:])
    assert with_code(connection) == 300
