"""Splits that are drawn, several or by the papers' protocols, and of files of other kinds."""

import numpy as np
import pytest
import scipy.io

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.papers import PROTOCOLS, draw_split, load_split, load_splits

SIZES = (700, 650, 900)


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def classes(tmp_path):
    """Three classes, shuffled; a row's number is its vector."""
    y = np.random.default_rng(0).permutation(np.repeat([4, 0, 9], SIZES))
    return save(tmp_path / "d.npz", X=np.arange(len(y), dtype=float)[:, None], y=y), y


def numbers(rows):
    return rows[:, 0].astype(int)


@pytest.mark.parametrize(
    ("protocol", "queries", "train", "labelled"),
    [("few-train", 100, 500, None), ("few-labels", 100, None, 500)],
)
def test_protocols_draw_rows_of_each_class(classes, protocol, queries, train, labelled):
    path, y = classes
    split = load_split(path, protocol=protocol, random_state=3)
    query, database, known = map(numbers, (split.queries, split.database, split.train))
    assert np.unique(y[query], return_counts=True)[1].tolist() == [queries] * 3
    assert sorted([*query, *database]) == list(range(sum(SIZES)))
    assert split.train_labels.tolist() == y[known].tolist()
    if train is None:
        assert known.tolist() == database.tolist()
        drawn = y[known[split.labelled]]
        assert np.unique(drawn, return_counts=True)[1].tolist() == [labelled] * 3
    else:
        assert np.unique(y[known], return_counts=True)[1].tolist() == [train] * 3
        assert set(known) <= set(database)
        assert split.labelled is None


def test_all_train_takes_1000_queries_a_class(tmp_path):
    y = np.repeat([0, 1], [1001, 1500])
    path = save(tmp_path / "d.npz", X=np.ones((2501, 1)), y=y)
    split = load_split(path, protocol="all-train")
    assert np.bincount(split.query_labels).tolist() == [1000, 1000]
    assert np.bincount(split.train_labels).tolist() == [1, 500]
    assert split.train_places.tolist() == list(range(501))


def test_unlabelled_rows_are_in_the_database_alone(tmp_path):
    y = np.repeat([0, -1, 1], [600, 300, 601])
    split = load_split(save(tmp_path / "d.npz", X=np.eye(1501, 2), y=y), protocol="few-train")
    assert [np.count_nonzero(part == -1) for part in (split.query_labels, split.labels)] == [0, 300]
    assert np.bincount(split.train_labels).tolist() == [500, 500]


def test_other_numbers_of_labelled_rows_win(classes):
    path, _ = classes
    split = load_split(path, protocol="few-labels", labelled=250)
    assert (
        np.unique(split.train_labels[split.labelled], return_counts=True)[1].tolist() == [250] * 3
    )


def test_splits_are_those_of_their_seeds(rows, labels, tmp_path):
    path = save(tmp_path / "d.npz", X=rows, y=labels)
    found = list(load_splits(path, splits=3, queries=30, train_rows=200, random_state=5))
    for seed, split in zip((5, 6, 7), found, strict=True):
        expected = draw_split(rows, labels, queries=30, train_rows=200, random_state=seed)
        for part in ("queries", "database", "train", "train_labels"):
            assert np.array_equal(getattr(split, part), getattr(expected, part))
    drawn = {tuple(map(tuple, split.queries)) for split in found}
    assert len(drawn) == 3


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"y": None}, {"protocol": "few-train"}, "one label each; there are none"),
        ({"y": np.eye(900, 2, dtype=int)}, {"protocol": "few-train"}, "these have several"),
        ({}, {"protocol": "cifar"}, "'cifar' is unknown; known are few-train, all-train, few-l"),
        (
            {},
            {"protocol": "few-train"},
            "100 queries and 500 training rows or more .* the smallest class has 450 rows",
        ),
        ({}, {"protocol": "all-train"}, "1000 queries and 1 training rows or more"),
        ({}, {"protocol": "few-train", "queries": 9}, "protocol few-train says .* give no numbers"),
        ({}, {"protocol": "few-train", "split": True}, "is one split; leave it out"),
        ({}, {"splits": 2, "split": True}, "is one split; leave it out"),
        ({}, {"splits": 0}, "splits must be 1 or more, got 0"),
        ({}, {"labels": "gnd"}, "no array 'gnd' in .*it holds X, y"),
        ({"y": np.zeros(899, int)}, {}, "there are 899 labels for 900 rows"),
        (
            {"X": np.eye(4), "y": None},
            {"splits": 5, "queries": 1},
            "4 rows are too few for 5 different splits with 1 queries; take fewer splits",
        ),
        ({"X": np.eye(1), "y": None}, {"splits": 5}, "queries must be from 1 to one less"),
    ],
)
def test_refuses(tmp_path, arrays, options, message):
    given = {"X": np.ones((900, 2)), "y": np.arange(900) % 2} | arrays
    data = save(tmp_path / "d.npz", **{k: v for k, v in given.items() if v is not None})
    if "split" in options:
        options = options | {"split": save(tmp_path / "s.npz", query=[0], database=[1], train=[1])}
    with pytest.raises(InvalidInputError, match=message):
        load_splits(data, **options)


def test_matlab(tmp_path):
    X, y = np.eye(8), np.array([0, 0, 0, 1, 1, 1, 1, 0])
    scipy.io.savemat(tmp_path / "d.mat", {"fea": X, "gnd": y[:, None].astype(float)})
    named = {"query": [0.0, 5.0], "database": [1.0, 2, 3, 4, 6, 7], "train": [[4.0], [2], [7], [1]]}
    scipy.io.savemat(tmp_path / "s.mat", named)
    split = load_split(tmp_path / "d.mat", tmp_path / "s.mat", labels="gnd")
    assert np.array_equal(split.queries, X[[0, 5]])
    assert split.train_labels.tolist() == y[[4, 2, 7, 1]].tolist()
    # MATLAB counts from 1.
    scipy.io.savemat(tmp_path / "s.mat", named | {"database": [2.0, 3, 4, 5, 7, 8]})
    with pytest.raises(
        InvalidInputError, match="from 2 to 8, but there are 8 rows, numbered from 0"
    ):
        load_split(tmp_path / "d.mat", tmp_path / "s.mat", labels="gnd")


def test_bytes_are_scaled_whatever_the_file(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (30, 4), dtype=np.uint8)
    head = np.frombuffer(np.int32(4).tobytes() * 30, np.uint8).reshape(30, 4)
    (tmp_path / "d.bvecs").write_bytes(np.hstack([head, rows]).tobytes())
    np.save(tmp_path / "d.npy", rows)
    np.save(tmp_path / "y.npy", np.arange(30) % 3)
    for name in ("d.bvecs", "d.npy"):
        split = load_split(tmp_path / name, labels=str(tmp_path / "y.npy"))
        expected = draw_split(rows, np.arange(30) % 3)
        assert np.array_equal(split.database, expected.database)
        assert split.labels.tolist() == expected.labels.tolist()
        assert split.database.max() <= 1


def test_protocols_are_those_of_the_papers():
    """By class of CIFAR-10, which has 10 of 6,000 rows each."""
    named = {
        name: (10 * p.queries, 10 * (p.train or 6000 - p.queries)) for name, p in PROTOCOLS.items()
    }
    assert named == {
        "few-train": (1_000, 5_000), "all-train": (10_000, 50_000), "few-labels": (1_000, 59_000),
    }  # fmt: skip
    assert PROTOCOLS["few-labels"].labelled == 500


@pytest.fixture
def parts(tmp_path):
    """A database, queries and training rows in files of their own, of 12, 3 and 5 rows."""
    rows = np.random.default_rng(4).standard_normal((20, 6)).astype(np.float32)
    for name, part in zip(("base", "query", "learn"), np.split(rows, [12, 15]), strict=True):
        np.save(tmp_path / f"{name}.npy", part)
    np.save(tmp_path / "y.npy", np.arange(20) % 4)
    return tmp_path, rows


def test_queries_and_training_rows_of_files_of_their_own(parts):
    folder, rows = parts
    split = load_split(
        folder / "base.npy", queries=folder / "query.npy", train_rows=folder / "learn.npy",
        labels=str(folder / "y.npy"),
    )  # fmt: skip
    assert np.array_equal(split.database, rows[:12])
    assert np.array_equal(split.queries, rows[12:15])
    assert np.array_equal(split.train, rows[15:])
    assert split.train_labels.tolist() == [3, 0, 1, 2, 3]
    assert split.train_places is None
    drawn = load_split(folder / "base.npy", queries=folder / "query.npy", train_rows=7)
    assert np.array_equal(drawn.train, rows[drawn.train_places])
    assert len({*drawn.train_places}) == 7
    whole = load_split(folder / "base.npy", queries=folder / "query.npy")
    assert whole.train_places.tolist() == list(range(12))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_rows": "learn.npy"}, "learn.npy has training rows; give a file of queries too"),
        ({"train_rows": "learn.npy", "queries": 2}, "give a file of queries too"),
        ({"queries": "query.npy", "splits": 2}, "query.npy has the queries, so there is one split"),
        ({"queries": "query.npy", "protocol": "few-train"}, "few-train says which rows"),
        ({"queries": "flat.npy"}, "flat.npy has rows of 2 dimensions, .*base.npy of 6"),
        ({"queries": "query.npy", "train_rows": 1}, "train_rows must be 2 or more, got 1"),
        ({"queries": "query.npy", "labels": "y.npy"}, "there are 20 labels for 15 rows"),
        (
            {"queries": "bytes.npy"},
            "bytes.npy has rows of uint8, .*base.npy of float32, and uint8 is divided by 255",
        ),
        ({"queries": "none.npy"}, "none.npy: .*No such file"),
    ],
)
def test_refuses_files_of_their_own(parts, options, message):
    folder, _ = parts
    np.save(folder / "flat.npy", np.ones((3, 2)))
    np.save(folder / "bytes.npy", np.ones((3, 6), np.uint8))
    given = {
        name: folder / value if str(value).endswith(".npy") else value
        for name, value in options.items()
    }
    if "labels" in given:
        given["labels"] = str(given["labels"])
    with pytest.raises(InvalidInputError, match=message):
        load_splits(folder / "base.npy", **given)
