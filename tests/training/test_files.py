"""Rows to train on from NumPy's files."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.training.files import load_sample, numbered_labels


def as_set(rows):
    return {row.tobytes() for row in rows}


def test_files(tmp_path, vectors):
    np.save(tmp_path / "plain.npy", vectors)
    np.savez(tmp_path / "named.npz", X=vectors, Y=vectors[:5])
    np.savez(tmp_path / "single.npz", embeddings=vectors, labels=np.arange(300))
    for name in ("plain.npy", "named.npz", "single.npz"):
        np.testing.assert_array_equal(load_sample(tmp_path / name).X, vectors)
    drawn = load_sample(tmp_path / "plain.npy", rows=20, random_state=4).X
    assert len(as_set(drawn)) == 20
    assert as_set(drawn) < as_set(vectors)


def test_files_that_cannot_be_read(tmp_path, vectors):
    np.savez(tmp_path / "two.npz", a=vectors, b=vectors)
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", vectors[0])
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").touch()
    for name, message in {
        "two.npz": "must be called X",
        "objects.npy": "cannot read arrays",
        "flat.npy": r"got shape \(8,\)",
        "text.npy": "cannot read arrays",
        "empty.npy": "cannot read arrays",
        "missing.npy": "No such file",
        ".": "cannot read arrays",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            load_sample(tmp_path / name)


def test_damaged_archives(tmp_path, vectors):
    np.savez(tmp_path / "whole.npz", X=vectors)
    data = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "fake.npz").write_bytes(b"PK\x03\x04" + bytes(200))
    for name in ("cut.npz", "fake.npz"):
        with pytest.raises(InvalidInputError, match="cannot read arrays"):
            load_sample(tmp_path / name)
    np.savez(tmp_path / "beside.npz", X=vectors, notes=np.array([None]))
    np.testing.assert_array_equal(load_sample(str(tmp_path / "beside.npz")).X, vectors)


#: Edges of no graph, and their messages.
EDGES = {
    "outside": np.array([[0, 1], [300, 0]]),
    "below": np.array([[-1, 1]]),
    "half": np.array([[0.5, 1, 1]]),
    "weightless": np.array([[0, 1, 1], [3, 0, 0]]),
    "endless": np.array([[3, 0, np.inf]]),
    "none": np.empty((0, 2), int),
    "named": np.array([["0", "a"]]),
}


@pytest.fixture
def archive(tmp_path, vectors):
    names = np.array(["b", "", "a", "b"] * 75)
    names[8:] = ""
    np.savez(
        tmp_path / "known.npz",
        X=vectors,
        names=names,
        numbers=np.where(names == "", -1, 5),
        tags=np.eye(300, 4, dtype=int),
        triplets=[[0, 1, 2], [250, 2, 1]],
        pairs=[[0, 299, -1]],
        flat=np.zeros((300, 2, 2), int),
        tags_of=[[0, 2**40], [299, 7], [0, 2**40], [5, 7]],
        clicks=[[250, 1, 0.5], [3, 0, 2], [3, 0, 0.25]],
        **EDGES,
    )
    return tmp_path / "known.npz"


def test_supervision_comes_along(archive, vectors):
    whole = load_sample(archive, labels="names", pairs="pairs", triplets="triplets")
    assert whole.y.tolist() == [1, -1, 0, 1] * 2 + [-1] * 292
    part = load_sample(archive, labels="names", pairs="pairs", triplets="triplets", rows=9)
    # Rows named first (0, 1, 2, 250, 299), then labelled ones (3, 4, 6, 7).
    places = [int(np.flatnonzero((vectors == row).all(axis=1))[0]) for row in part.X]
    assert places == [0, 1, 2, 3, 4, 6, 7, 250, 299]
    assert part.y.tolist() == [1, -1, 0, 1, 1, 0, 1, -1, -1]
    assert part.triplets is not None
    assert part.triplets.tolist() == [[0, 1, 2], [7, 2, 1]]
    assert part.pairs is not None
    assert part.pairs.tolist() == [[0, 8, -1]]
    assert load_sample(archive, labels="numbers").y.tolist()[:4] == [5, -1, 5, 5]
    assert load_sample(archive, labels="tags", rows=4).y.tolist() == np.eye(4).tolist()


def test_graphs_come_along(archive, vectors):
    """Objects are any numbers; no row is preferred for its edges."""
    graph = load_sample(archive, graph="tags_of").graph
    assert graph.shape == (300, 2)
    assert {(*place, graph[place]) for place in zip(*graph.nonzero(), strict=True)} == {
        (0, 1, 2.0), (5, 0, 1.0), (299, 0, 1.0),
    }  # fmt: skip
    beside = load_sample(archive, graph_features="X", rows=100, random_state=1)
    np.testing.assert_array_equal(beside.graph_features, beside.X)
    part = load_sample(archive, graph="clicks", rows=100, random_state=1)
    np.testing.assert_array_equal(part.X, load_sample(archive, rows=100, random_state=1).X)
    assert part.graph is not None
    expected = {250: [0, 0.5], 3: [2.25, 0]}
    for row, line in zip(part.X, part.graph.toarray().tolist(), strict=True):
        place = int(np.flatnonzero((vectors == row).all(axis=1))[0])
        assert line == expected.get(place, [0, 0])


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"labels": "nothing"}, "no array 'nothing' in .*known.npz .it holds X, names"),
        ({"labels": "X"}, "labels must be integers"),
        ({"labels": "flat"}, r"got shape \(300, 2, 2\)"),
        ({"triplets": "pairs"}, "triplets name rows by number"),
        ({"pairs": "triplets"}, "1 for neighbours or -1 for others; pair 0 has 2"),
        ({"triplets": "triplets", "rows": 3}, "name 4 rows, but at most 3"),
        ({"graph": "nothing"}, "no array 'nothing'"),
        ({"graph": "tags"}, r"\(e, 3\); got int64 \(300, 4\)"),
        ({"graph": "named"}, "got <U1"),
        ({"graph_features": "names"}, "vectors must be numbers"),
        ({"graph_features": "pairs"}, "there are 1 rows of features for the graph of 300 rows"),
        ({"graph": "clicks", "graph_features": "X"}, "either a graph, or features to make one"),
        ({"graph": "none"}, "no edges"),
        ({"graph": "outside"}, r"by number, 0 to 299; number 1 of them has \[300, 0\]"),
        ({"graph": "below"}, r"by number, 0 to 299; number 0 of them has \[-1, 1\]"),
        ({"graph": "half"}, r"must be integers; number 0 of them has \[0.5,"),
        ({"graph": "weightless"}, r"finite weights above 0; number 1 of them has \[3, 0, 0\]"),
        ({"graph": "endless"}, "finite weights above 0; number 0"),
    ],
)
def test_unknowable_facts(archive, known, message):
    with pytest.raises(InvalidInputError, match=message):
        load_sample(archive, **known)


def test_labels_in_bytes(tmp_path, vectors):
    path = tmp_path / "rows.npz"
    np.savez(path, X=vectors[:3], names=np.array(["é".encode(), b"", b"\xff"]))
    sample = load_sample(path, labels="names")
    # "\\xff" is before "é".
    assert sample.y.tolist() == [1, -1, 0]


def test_a_single_array_has_no_labels(tmp_path, vectors):
    np.save(tmp_path / "plain.npy", vectors)
    with pytest.raises(InvalidInputError, match="no array 'y' in .*plain.npy .a file of one array"):
        load_sample(tmp_path / "plain.npy", labels="y")


def test_names_of_any_length_are_labels():
    """HDF5 has them as objects."""
    names = np.array([b"cat", "dog", b"cat", ""], dtype=object)
    expected = numbered_labels(["cat", "dog", "cat", ""])
    np.testing.assert_array_equal(numbered_labels(names), expected)
