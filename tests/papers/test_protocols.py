"""The papers' protocols: few labels, graphs, triplets, seeds, and parameters chosen by validation.

Expected values are counted by hand, or computed by plain loops and other functions of NumPy.
"""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse

from pg_hashindex import metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS
from pg_hashindex.hashers.lsh import LSH
from pg_hashindex.hashers.supervision.labels import Supervision
from pg_hashindex.papers import (
    Measures,
    Method,
    Outcome,
    Split,
    Truth,
    average,
    compare,
    draw_labelled,
    load_split,
)
from pg_hashindex.papers.validation import HeldBack

LABEL = Truth("label")


class Watching(LSH):
    """Keeps what it was given."""

    method = "watching"
    learns_from = ("labels", "triplets", "pairs")
    takes_graph = True
    given: ClassVar[list[Supervision]] = []

    def _learn(self, rows, given, rng):
        self.given.append(given)
        return super()._learn(rows, given, rng)


@pytest.fixture(autouse=True)
def _watching(monkeypatch):
    monkeypatch.setitem(HASHERS, "watching", Watching)
    Watching.given.clear()


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_labelled_rows_are_so_many_of_each_class_and_fewer_are_among_more():
    y = np.array([2] * 3 + [0] * 100 + [-1] * 9 + [1] * 50)
    few, more = (draw_labelled(y, count, 7) for count in (5, 20))
    assert np.unique(y[few], return_counts=True)[1].tolist() == [5, 5, 3]
    assert np.unique(y[more], return_counts=True)[1].tolist() == [20, 20, 3]
    assert set(few) <= set(more)
    assert not np.array_equal(more, draw_labelled(y, 20, 8))
    several = scipy.sparse.csr_array([[1, 1], [1, 0], [0, 0], [0, 1]])
    assert draw_labelled(several, 2, 0).tolist() == [0, 1, 3]
    with pytest.raises(InvalidInputError, match="1 or more rows of each class, got 0"):
        draw_labelled(y, 0, 0)


NUMBERS = {"query": [0, 5], "database": [1, 2, 3, 4, 6, 7], "train": [4, 2, 7, 1]}
SMALL = np.eye(8), np.array([0, 0, 0, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("of_split", [0, 1, 3]),  # by place among the training rows 4, 2, 7, 1
        ("rows", [1, 2, 3]),  # rows 2, 7 and 1; row 3 is not one of the training
        ("mask", [0, 2, 3]),  # rows 1, 4, 6 and 7
        (1, None),
    ],
)
def test_labelled_rows_of_an_array(tmp_path, name, places):
    mask = np.isin(np.arange(8), [1, 4, 6, 7])
    data = save(tmp_path / "d.npz", X=SMALL[0], y=SMALL[1], rows=[3, 1, 2, 7], mask=mask)
    file = save(tmp_path / "s.npz", **NUMBERS, of_split=[0, 1, 3])
    if places is None:
        with pytest.raises(
            InvalidInputError, match="2 labelled .* have 2 classes, of 1 rows at most"
        ):
            load_split(data, file, labelled=name)
        return
    if name == "rows":
        with pytest.raises(
            InvalidInputError, match="3 labelled .* have 1 classes, of 3 rows at most"
        ):
            load_split(data, file, labelled=name)
        data = save(tmp_path / "d.npz", X=SMALL[0], y=[0, 0, 1, 0, 0, 0, 0, 0], rows=[3, 1, 2, 7])
    loaded = load_split(data, file, labelled=name)
    assert loaded.labelled.tolist() == places
    seen = Method("s3plh", labels="labelled").training_data(loaded)[1]
    assert np.flatnonzero(seen >= 0).tolist() == places


def test_a_graph_and_triplets_name_rows_of_the_data_or_places_of_the_split(tmp_path):
    edges, triplets = [[7, 30, 2], [4, 10, 1], [4, 30, 1], [5, 10, 1]], [[4, 2, 1], [4, 0, 1]]
    data = save(tmp_path / "d.npz", X=SMALL[0], y=SMALL[1], edges=edges, triplets=triplets)
    # Objects 10 and 30 are columns 0 and 1; training rows are 4, 2, 7, 1.
    places = [[2, 30, 2], [0, 10, 1], [0, 30, 1]]
    file = save(tmp_path / "s.npz", **NUMBERS, own=places, named=[[0, 1, 3]])
    for graph, known in (("edges", "triplets"), ("own", "named")):
        loaded = load_split(data, file, graph=graph, triplets=known)
        assert loaded.train_graph.toarray().tolist() == [[1, 1], [0, 0], [0, 2], [0, 0]]
        # The triplet of row 0, a query, is left out.
        assert loaded.triplets.tolist() == [[0, 1, 3]]
        of_query = [1, 0] if graph == "edges" else [0, 0]
        expected = [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0], [0, 2], [0, 0], of_query]
        assert loaded.graph.toarray().tolist() == expected
        X, y, given = Method("watching").fit_arguments(loaded, Watching())
        assert y is None
        assert np.array_equal(X, SMALL[0][[4, 2, 7, 1]])
        assert given["triplets"].tolist() == [[0, 1, 3]]
        assert np.array_equal(given["graph"].toarray(), loaded.train_graph.toarray())
        # The database is rows 1, 2, 3, 4, 6, 7: row 4 has place 3, row 2 place 1, row 1 place 0.
        everything = Method("watching").relations(loaded, Watching(), transductive=True)
        assert everything["triplets"].tolist() == [[3, 1, 0]]
        assert everything["graph"].toarray().tolist() == expected


def test_pairs_and_features_of_a_graph(tmp_path):
    features = np.arange(16.0).reshape(8, 2)
    pairs = [[4, 2, 1], [4, 0, 1], [7, 1, -1]]
    data = save(tmp_path / "d.npz", X=SMALL[0], y=SMALL[1], looks=features, pairs=pairs)
    # Training rows are 4, 2, 7, 1.
    file = save(tmp_path / "s.npz", **NUMBERS, own=[[0, 1, 1], [2, 3, -1]], labelled=[0, 1, 3])
    for name in ("pairs", "own"):
        loaded = load_split(data, file, labelled="labelled", pairs=name, graph_features="looks")
        # The pair of row 0, a query, is left out.
        assert loaded.pairs.tolist() == [[0, 1, 1], [2, 3, -1]]
        X, y, given = Method("watching").fit_arguments(loaded, Watching())
        assert y is None
        assert np.array_equal(X, SMALL[0][[4, 2, 7, 1]])
        assert given["pairs"].tolist() == [[0, 1, 1], [2, 3, -1]]
        assert np.array_equal(given["graph_features"], features[[4, 2, 7, 1]])
        few = Method("watching", labels="labelled").fit_arguments(loaded, Watching())
        assert few[1].tolist() == [1, 0, -1, 0]
        assert few[2]["pairs"].tolist() == given["pairs"].tolist()
        # The database is rows 1, 2, 3, 4, 6, 7, and then come the queries, 0 and 5.
        everything = Method("watching").relations(loaded, Watching(), transductive=True)
        assert everything["pairs"].tolist() == [[3, 1, 1], [5, 0, -1]]
        assert np.array_equal(everything["graph_features"], features[[1, 2, 3, 4, 6, 7, 0, 5]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labelled": "none"}, r"there is no array 'none' in .*s.npz .* or .*d.npz"),
        ({"labelled": "beyond"}, "'beyond' has numbers from 3 to 8, but there are 8 rows"),
        ({"labelled": "queries"}, "no training row is among the rows of 'queries'"),
        ({"labelled": "X"}, r"'X' must be one or more row numbers, got float64 \(8, 8\)"),
        (
            {"labelled": "places"},
            "'labelled' of the split has numbers from 0 to 4, but there are 4",
        ),
        ({"graph": "beyond_edges"}, r"must name rows by number, 0 to 7; number 1 .* \[8, 1\]"),
        ({"graph": "edge_of_query"}, "no training row has an edge"),
        ({"graph": "rows"}, "must be lines of a row number and an object's number"),
        ({"graph": "missing"}, "there is no array 'missing'"),
        ({"triplets": "beyond_triplets"}, "triplets name rows by number, 0 to 7 here"),
        ({"triplets": "of_others"}, "none of the 1 triplets is of training rows alone"),
        ({"triplets": "missing"}, "there is no array 'missing'"),
        ({"pairs": "pair_of_query"}, "none of the 1 pairs is of training rows alone"),
        ({"pairs": "beyond_triplets"}, "pairs name rows by number, 0 to 7 here|1 for neighbours"),
        ({"pairs": "missing"}, "there is no array 'missing'"),
        ({"graph_features": "missing"}, "there is no array 'missing'"),
        ({"graph_features": "few"}, "there are 4 rows of features for the graph of 8 rows"),
        ({"graph_features": "X", "graph": "edges"}, "give either a graph, or features"),
    ],
)
def test_refuses_arrays(tmp_path, options, message):
    data = save(
        tmp_path / "d.npz", X=SMALL[0], y=SMALL[1], rows=[1, 2], beyond=[3, 8], queries=[0, 5],
        beyond_edges=[[0, 1], [8, 1]], edge_of_query=[[0, 1]], beyond_triplets=[[1, 2, 9]],
        of_others=[[0, 1, 2]], pair_of_query=[[0, 1, 1]], few=np.eye(4), edges=[[1, 0], [2, 0]],
    )  # fmt: skip
    file = save(tmp_path / "s.npz", **NUMBERS, places=[0, 4])
    with pytest.raises(InvalidInputError, match=message):
        load_split(data, file, **options)


def test_labelled_needs_labels(tmp_path, rows):
    with pytest.raises(InvalidInputError, match="has no labels y"):
        load_split(save(tmp_path / "d.npz", X=rows), labelled=5)


def test_anchors_of_the_split(split):
    method = Method("sgh", {"anchors": "split", "n_anchors": 20})
    with pytest.raises(InvalidInputError, match="sgh .* but the split has no 'anchors'"):
        compare(split, [method], [8], truths=[LABEL])
    anchored = replace(split, anchors=np.arange(50, 0, -1))
    (outcome,) = compare(anchored, [method], [8], truths=[LABEL])
    given = Method("sgh", {"anchors": split.train[np.arange(50, 30, -1)]})
    (expected,) = compare(split, [given], [8], truths=[LABEL])
    assert outcome.scores["label"].values == expected.scores["label"].values
    chosen = Method("sgh", {"anchors": "split"}, choices={"n_anchors": [4, 20]})
    (found,) = compare(anchored, [chosen], [8], truths=[LABEL])
    assert found.tried[0]["MAP"] < found.tried[1]["MAP"]
    assert found.scores["label"].values == expected.scores["label"].values


def test_seeds_are_means_and_standard_deviations(split):
    single = [
        next(compare(split, [Method("lsh")], [8], truths=[LABEL], random_state=seed))
        for seed in (4, 5, 6)
    ]
    several = list(compare(split, [Method("lsh")], [8], truths=[LABEL], random_state=4, seeds=3))
    assert [outcome.seed for outcome in several] == [4, 5, 6]
    assert [bool(outcome.train_peak_bytes) for outcome in several] == [True, False, False]
    (joined,) = average(several)
    assert (joined.seed, joined.seeds) == (4, 3)
    assert joined.train_wall_s == pytest.approx(np.mean([o.train_wall_s for o in several]))
    for name, mean in joined.scores["label"].values.items():
        found = [outcome.scores["label"].values[name] for outcome in single]
        assert mean == pytest.approx(sum(found) / 3)
        variance = sum((value - mean) ** 2 for value in found) / 3
        assert joined.standard_deviation["scores"]["label"][name] == pytest.approx(variance**0.5)
    curves = [outcome.scores["label"].curve for outcome in single]
    recall = sum(curve.recall for curve in curves) / 3
    np.testing.assert_allclose(joined.scores["label"].curve.recall, recall)
    assert average(single[:1]) == single[:1]
    with pytest.raises(InvalidInputError, match="seeds must be 1 or more, got 0"):
        compare(split, [Method("lsh")], [8], truths=[LABEL], seeds=0)


def test_a_seed_that_fails_is_the_outcome(split):
    joined = average(compare(split, [Method("itq")], [8, 64], truths=[LABEL], seeds=2))
    assert [(o.n_bits, o.error is None) for o in joined] == [(8, True), (64, False)]


def test_outcomes_are_read_again(split):
    found = average(
        compare(split, [Method("lsh"), Method("itq")], [8, 64], truths=[LABEL], seeds=2)
    )
    for outcome in found:
        text = json.dumps(outcome.as_dict())
        assert json.dumps(Outcome.from_dict(json.loads(text)).as_dict()) == text


def test_parameters_are_chosen_on_training_rows_held_back(split):
    """As a plain program would: train on the kept rows, rank those by the queries held back."""
    method = Method("s3plh", choices={"eta": [1e-6, 0.03, 10.0]})
    held = HeldBack.of(split, method, LABEL, 3)
    assert (len(held.split.queries), len(held.split.database)) == (60, 240)
    every = np.concatenate([held.split.queries, held.split.database])
    assert np.array_equal(np.sort(every, axis=0), np.sort(split.train, axis=0))
    expected = []
    for eta in (1e-6, 0.03, 10.0):
        hasher = HASHERS["s3plh"](n_bits=6, random_state=3, eta=eta)
        hasher.fit(held.split.train, held.split.train_labels)
        expected.append(
            metrics.mean_average_precision(
                hasher.encode(held.split.queries),
                hasher.encode(held.split.database),
                metrics.same_label(held.split.query_labels, held.split.labels),
            )
        )
    # Whatever the queries and the database are, the choice is the same.
    changed = replace(split, queries=split.queries + 5, database=split.database - 5)
    for given in (split, changed):
        first, second = compare(given, [method], [6], truths=[LABEL], random_state=3, seeds=2)
        assert [line["MAP"] for line in first.tried] == pytest.approx(expected)
        best = [1e-6, 0.03, 10.0][int(np.argmax(expected))]
        assert first.chosen == second.chosen == {"eta": best}
        assert first.parameters["eta"] == second.parameters["eta"] == best


def test_choices_see_known_labels_alone(split):
    few = replace(split, labelled=np.arange(0, 300, 3))
    held = HeldBack.of(few, Method("watching", labels="labelled"), LABEL, 0)
    assert len(held.split.queries) == 20
    assert len(held.split.database) == 280
    assert np.count_nonzero(held.split.train_labels >= 0) == 80
    assert len(held.ranked.database) == 80
    assert (held.ranked.query_labels >= 0).all()
    method = Method("watching", labels="labelled", choices={"normalize": ["l2", None]})
    (outcome,) = compare(few, [method], [8], truths=[LABEL])
    assert [len(given.labels.labelled) for given in Watching.given[:2]] == [80, 80]
    assert len(outcome.tried) == 2


def test_relations_of_held_back_rows_are_left_out(split):
    rng = np.random.default_rng(0)
    triplets = np.array([rng.choice(300, 3, replace=False) for _ in range(200)])
    graph = scipy.sparse.csr_array(rng.integers(3, size=(400, 5)))
    known = replace(split, triplets=triplets, train_graph=graph[:300], graph=graph)
    held = HeldBack.of(known, Method("watching"), Truth("nearest-k", 10), 0)
    place = {row.tobytes(): number for number, row in enumerate(split.train)}
    kept = [place[row.tobytes()] for row in held.split.database]
    expected = [t for t in triplets.tolist() if set(t) <= set(kept)]
    assert [[kept[row] for row in t] for t in held.split.triplets] == expected
    assert np.array_equal(held.split.train_graph.toarray(), graph.toarray()[kept])
    pairs = np.column_stack([triplets[:, :2], rng.choice((1, -1), 200)])
    features = rng.standard_normal((400, 3))
    known = replace(
        split, pairs=pairs, train_graph_features=features[:300], graph_features=features
    )
    again = HeldBack.of(known, Method("watching"), Truth("nearest-k", 10), 0)
    expected = [pair for pair in pairs.tolist() if set(pair[:2]) <= set(kept)]
    assert [[kept[i], kept[j], sign] for i, j, sign in again.split.pairs] == expected
    assert np.array_equal(again.split.train_graph_features, features[kept])
    assert len(again.split.graph_features) == 300


def test_all_combinations_are_tried_and_failures_are_left_out(split):
    method = Method("sgh", choices={"rho": [1.0, 2.0], "n_anchors": [5, 20]})
    (outcome,) = compare(split, [method], [12], truths=[LABEL])
    tried = [{k: v for k, v in line.items() if k in method.choices} for line in outcome.tried]
    assert tried == [
        {"rho": 1.0, "n_anchors": 5}, {"rho": 1.0, "n_anchors": 20},
        {"rho": 2.0, "n_anchors": 5}, {"rho": 2.0, "n_anchors": 20},
    ]  # fmt: skip
    # For unit rows rho must be 2 or more, which only the training finds out.
    assert ["error" in line for line in outcome.tried] == [True, True, False, False]
    assert outcome.chosen["rho"] == 2.0


@pytest.mark.parametrize(
    ("method", "truth", "message"),
    [
        ({"choices": {"eta": [1.0]}}, LABEL, "s3plh.eta has 1 values"),
        ({"choices": {"eta": [1.0, 2.0]}, "parameters": {"eta": 1.0}}, LABEL, "eta is given"),
        ({"choices": {"beta": [1.0, 2.0]}}, LABEL, "no parameter 'beta'"),
        ({"choices": {"eta": [1.0, -2.0]}}, LABEL, "eta must be"),
        ({"choices": {"eta": [1.0, 2.0]}}, Truth("nearest-k", 300), "got 300"),
    ],
)
def test_refuses_choices_before_any_work(split, method, truth, message):
    with pytest.raises(InvalidInputError, match=message):
        compare(split, [Method("s3plh", **method)], [8], truths=[truth])


def test_classes_of_one_row_leave_none_to_hold_back(rows):
    numbers = {"query": range(40), "database": range(40, 400), "train": range(300, 400)}
    y = np.where(np.arange(400) < 300, 500, np.arange(400))
    alone = Split.of(rows, y, numbers=numbers)
    method = Method("s3plh", choices={"eta": [0.1, 1.0]})
    with pytest.raises(InvalidInputError, match="0 training rows .* another row has; at least 5"):
        compare(alone, [method], [8], truths=[LABEL], measures=Measures(k=(1,)))
