"""Comparing methods: splits, truth, outcomes, both protocols, and methods that fail."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from fixtures.tagged import Tagged

from pg_hashindex import hashers, metrics
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS, make_hasher
from pg_hashindex.hashers.lsh import LSH
from pg_hashindex.models import codes
from pg_hashindex.papers import (
    Measures,
    Method,
    Split,
    Truth,
    average,
    compare,
    comparison,
    default_methods,
    draw_split,
    load_split,
)

LABEL, NEAREST = Truth("label"), Truth("nearest-fraction", 0.05)


class Learning(LSH):
    """Draws its bits like LSH, and keeps codes of its labelled rows: the class, in every bit."""

    method = "learning"
    learns_from = ("labels",)

    def _learn(self, rows, given, rng):
        numbers = given.labels.numbers()[given.labels.labelled]
        bits = (numbers[:, None] >> np.arange(self.n_bits) % 3) & 1
        self.codes_ = np.packbits(bits.astype(bool), axis=1)
        self.seen_ = numbers
        return super()._learn(rows, given, rng)


class Weighing(LSH):
    """Weighs its first bit alone."""

    method = "weighing"

    def _bit_weights(self):
        return np.arange(self.n_bits_, 0, -1) // self.n_bits_


class Broken(LSH):
    """Fails as no method should."""

    method = "broken"

    def _learn(self, rows, given, rng):
        raise ZeroDivisionError("division\nby zero")


@pytest.fixture(autouse=True)
def _more_hashers(monkeypatch):
    for hasher in (Learning, Weighing, Broken, Tagged):
        monkeypatch.setitem(HASHERS, hasher.method, hasher)


def run(split, *methods, bits=(8,), truths=(LABEL,), **options):
    chosen = [Method(m) if isinstance(m, str) else m for m in methods]
    return list(compare(split, chosen, bits, truths=truths, **options))


def test_draw(split, rows, labels):
    assert (len(split.queries), len(split.database), len(split.train)) == (40, 360, 300)
    assert np.array_equal(split.database[split.train_places], split.train)
    every = np.concatenate([split.queries, split.database])
    assert np.array_equal(np.sort(every, axis=0), np.sort(rows, axis=0))
    for part, of_part in ((split.queries, split.query_labels), (split.train, split.train_labels)):
        where = [np.flatnonzero((rows == row).all(axis=1))[0] for row in part]
        assert np.array_equal(labels[where], of_part)
    again = draw_split(rows, labels, queries=40, train_rows=300, random_state=1)
    other = draw_split(rows, labels, queries=40, train_rows=300, random_state=2)
    assert np.array_equal(again.queries, split.queries)
    assert not np.array_equal(other.queries, split.queries)


def test_draw_by_default(rows):
    drawn = draw_split(rows)
    assert (len(drawn.queries), len(drawn.database), len(drawn.train)) == (40, 360, 360)
    assert drawn.labels is None
    assert np.array_equal(drawn.train, drawn.database)


NUMBERS = {"query": [0, 5], "database": [1, 2, 3, 4], "train": [4, 2]}


def test_split_by_numbers(rows, labels):
    numbers = NUMBERS | {"anchors": [1], "labelled": [0, 1]}
    split = Split.of(rows[:6], labels[:6], numbers=numbers)
    assert np.array_equal(split.train, rows[[4, 2]])
    assert np.array_equal(split.train_labels, labels[[4, 2]])
    assert split.train_places.tolist() == [3, 1]
    assert (split.anchors.tolist(), split.labelled.tolist()) == ([1], [0, 1])
    outside = Split.of(rows[:6], numbers=NUMBERS | {"train": [4, 5]})
    assert outside.train_places is None


def test_bytes_are_scaled(rows):
    images = np.arange(72, dtype=np.uint8).reshape(6, 12)
    split = Split.of(images, numbers=NUMBERS)
    assert split.database.dtype == np.float32
    np.testing.assert_allclose(split.database * 255, images[1:5], rtol=1e-6)
    wide = Split.of(images.astype(np.int32), numbers=NUMBERS)
    assert np.array_equal(wide.database, images[1:5])


def test_labels_that_are_names():
    names = np.array(["b", "a", "", "b", "a", "a"])
    # As HDF5 and MATLAB have them, in any encoding.
    in_bytes = np.array([b"b", b"\xe4", b"", b"b", b"\xe4", b"\xe4"])
    for given in (names, in_bytes):
        split = Split.of(np.eye(6), given, numbers=NUMBERS)
        assert (split.query_labels.tolist(), split.labels.tolist()) == ([1, 0], [0, -1, 1, 0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": [0, 1]}, "row 1 is a query and in the database"),
        ({"query": [6]}, "from 6 to 6, but there are 6 rows"),
        ({"train": [-1]}, "from -1 to -1"),
        ({"train": [1, 1]}, "'train' of the split has a row twice"),
        ({"train": [0.5]}, "'train' .* float64"),
        ({"train": []}, "'train' of the split must be one or more"),
        ({"train": [[1]]}, r"\(1, 1\)"),
        ({"anchors": [2]}, "'anchors' .* there are 2 training rows"),
    ],
)
def test_refuses_splits(changed, message):
    with pytest.raises(InvalidInputError, match=message):
        Split.of(np.eye(6), numbers=NUMBERS | changed)


def test_refuses_a_split_without_a_part():
    with pytest.raises(InvalidInputError, match="no 'database'; it needs"):
        Split.of(np.eye(6), numbers={"query": [0], "train": [1]})


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(5, int), "5 labels for 6 rows"),
        (np.zeros(6), "must be integers"),
        (np.full((6, 2), 3), "must be 0 or 1"),
    ],
)
def test_refuses_labels(y, message):
    with pytest.raises(InvalidInputError, match=message):
        Split.of(np.eye(6), y, numbers=NUMBERS)


@pytest.mark.parametrize("options", [{"queries": 0}, {"queries": 6}, {"train_rows": 1}])
def test_refuses_draws(options):
    with pytest.raises(InvalidInputError, match=f"{next(iter(options))} must be"):
        draw_split(np.eye(6), **options)


def test_truth(split):
    assert (LABEL.name, NEAREST.name, Truth("nearest-k", 7).name) == (
        "label", "nearest 5 %", "nearest 7",
    )  # fmt: skip
    assert np.array_equal(
        split.relevant(LABEL).whole(), metrics.same_label(split.query_labels, split.labels)
    )
    assert (split.relevant(NEAREST).whole().sum(axis=1) == 18).all()
    assert (split.relevant(Truth("nearest-k", 7)).whole().sum(axis=1) == 7).all()
    assert split.relevant(Truth("nearest-fraction", 0.05)) is split.relevant(NEAREST)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("colour",), "'colour' is unknown; use label"),
        (("label", 3), "amount 3"),
        (("nearest-k",), "amount None"),
    ],
)
def test_refuses_truth(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Truth(*arguments)


@pytest.mark.parametrize("ties", ["order", "average"])
def test_scores_are_the_measures(split, ties):
    measures = Measures(k=(10, 50), top=(60, 20), radius=1, neighbours=5, ties=ties)
    (outcome,) = run(
        split, "itq", bits=(12,), truths=(LABEL, NEAREST), measures=measures, random_state=4
    )
    hasher = make_hasher("itq", n_bits=12, random_state=4).fit(split.train)
    pair = hasher.encode(split.queries), hasher.encode(split.database)
    for truth in (LABEL, NEAREST):
        relevant = split.relevant(truth)
        expected = {
            "MAP": metrics.mean_average_precision(*pair, relevant, ties=ties),
            "MAP@60": metrics.mean_average_precision(*pair, relevant, top=60, ties=ties),
            "MAP@20": metrics.mean_average_precision(*pair, relevant, top=20, ties=ties),
            "P@10": metrics.precision_at_k(*pair, relevant, 10, ties=ties),
            "P@50": metrics.precision_at_k(*pair, relevant, 50, ties=ties),
            "found@10": metrics.share_found_at_k(*pair, relevant, 10, ties=ties),
            "found@50": metrics.share_found_at_k(*pair, relevant, 50, ties=ties),
            "PH1": metrics.precision_within_radius(*pair, relevant, 1),
        }
        if truth is LABEL:
            labels = split.query_labels, split.labels
            expected["5-NN error"] = metrics.neighbour_error(*pair, *labels, 5)
        scores = outcome.scores[truth.name]
        assert list(scores.values) == list(expected)
        assert scores.values == pytest.approx(expected)
        curve = metrics.precision_recall_by_rank(*pair, relevant, ties=ties)
        for ours, theirs in zip(scores.curve, curve, strict=True):
            np.testing.assert_allclose(ours, theirs)


def test_outcome(split):
    (outcome,) = run(split, Method("sgh", {"n_anchors": 20}), random_state=3)
    assert (outcome.method, outcome.n_bits, outcome.seed) == ("sgh", 8, 3)
    assert (outcome.codes, outcome.distance, outcome.ties) == ("hashed", "hamming", "order")
    assert outcome.train_rows == 300
    assert outcome.parameters["n_anchors"] == 20
    assert outcome.train_wall_s > 0
    assert outcome.encode_wall_s > 0
    # At the least the kernel values of 300 rows and 20 anchors.
    assert 300 * 20 * 4 < outcome.train_peak_bytes < 100e6
    assert not tracemalloc.is_tracing()
    printed = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    assert printed["scores"]["label"]["MAP"] == outcome.scores["label"].values["MAP"]
    assert printed["scores"]["label"]["curve"]["at"][0] == 1
    assert "error" not in printed


def test_memory_is_counted_from_where_training_starts(split):
    tracemalloc.start()
    try:
        held = np.ones(30_000_000, np.uint8)
        (outcome,) = run(split, "pcah")
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert outcome.train_peak_bytes < len(held)


def test_every_method_at_every_length(split):
    outcomes = run(split, "lsh", Method("pcah", name="mine"), bits=(4, 8))
    assert [(outcome.method, outcome.n_bits) for outcome in outcomes] == [
        ("lsh", 4), ("lsh", 8), ("mine", 4), ("mine", 8),
    ]  # fmt: skip


def test_same_seed_same_scores(split):
    first, again, other = (
        run(split, "lsh", random_state=seed)[0].scores["label"].values for seed in (1, 1, 2)
    )
    assert first == again != other


def test_failures_do_not_stop_the_others(split):
    unlabelled = replace(split, labels=None, query_labels=None, train_labels=None)
    outcomes = run(unlabelled, "itq", "broken", "learning", "lsh", bits=(16,), truths=(NEAREST,))
    assert [outcome.error is None for outcome in outcomes] == [False, False, False, True]
    assert "16" in outcomes[0].error
    assert outcomes[1].error == "ZeroDivisionError: division by zero"
    assert "learns from labels" in outcomes[2].error
    assert outcomes[1].as_dict() == {
        "method": "broken", "n_bits": 16, "seed": 0,
        "error": "ZeroDivisionError: division by zero",
    }  # fmt: skip


def test_without_training_rows_that_differ(rows):
    """Nothing to warm up with, and nothing to learn from: still an outcome."""
    numbers = {"query": [0], "database": [1, 2, 3], "train": [2, 3]}
    split = Split.of(np.concatenate([rows[:2], np.ones((2, 12))]), numbers=numbers)
    (outcome,) = run(split, "pcah", truths=(NEAREST,), measures=Measures(k=(1,)))
    assert "2 distinct rows" in outcome.error


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        (["minhash"], {}, "'minhash' is unknown"),
        ([Method("itq", {"bits": 3})], {}, "no parameter 'bits'"),
        ([Method("itq", {"n_bits": 3})], {}, "n_bits cannot be a parameter of itq"),
        (["lsh"], {"measures": Measures(k=(361,))}, "rows, 360; got 361"),
        (["lsh"], {"measures": Measures(k=())}, "got none"),
        (["lsh"], {"measures": Measures(top=(0,))}, "top must be"),
        (["lsh"], {"measures": Measures(neighbours=0)}, "neighbours must be"),
        (["lsh"], {"measures": Measures(radius=-1)}, "radius must be"),
        (["lsh"], {"measures": Measures(ties="none")}, "ties must be"),
        (["lsh"], {"truths": [Truth("nearest-k", 999)]}, "got 999"),
    ],
)
def test_refuses_before_any_work(split, methods, options, message, monkeypatch):
    monkeypatch.setattr(comparison, "_warm_up", None)
    with pytest.raises(InvalidInputError, match=message):
        run(split, *methods, **options)


def test_refuses_truth_without_labels(rows):
    with pytest.raises(InvalidInputError, match="no labels; take nearest-fraction"):
        run(draw_split(rows), "lsh")


def test_learned_codes_of_the_database(split, rows, labels):
    """Only where all of the database was trained on; rows without a label stay hashed."""
    assert [outcome.codes for outcome in run(split, "learning")] == ["hashed"]
    places = np.arange(360)
    on_database = replace(
        split, train=split.database, train_labels=split.labels, train_places=places
    )
    hashed, learned = run(on_database, "learning")
    assert (hashed.codes, learned.codes, learned.train_rows) == ("hashed", "learned", 360)
    # A permutation of the database is the database too.
    order = np.random.default_rng(0).permutation(360)
    shuffled = replace(
        split, train=split.database[order], train_labels=split.labels[order], train_places=order
    )
    outcomes = run(shuffled, "learning", "lsh")
    assert [(o.method, o.codes) for o in outcomes] == [
        ("learning", "hashed"), ("learning", "learned"), ("lsh", "hashed"),
    ]  # fmt: skip
    assert outcomes[0].scores["label"].values != learned.scores["label"].values
    assert outcomes[1].scores["label"].values == pytest.approx(learned.scores["label"].values)


def test_learned_codes_stand_at_their_rows(split):
    y = np.where(np.arange(360) % 4 > 0, split.labels, -1)
    order = np.random.default_rng(0).permutation(360)
    partly = replace(
        split, train=split.database[order], train_labels=y[order], train_places=order, labels=y
    )
    hasher = Learning(n_bits=8, random_state=0).fit(partly.train, partly.train_labels)
    hashed = hasher.encode(partly.database)
    codes = comparison._learned(partly, hasher, partly.train_labels, hashed)
    assert np.array_equal(codes[y < 0], hashed[y < 0])
    for number in range(8):
        assert len(np.unique(codes[y == number], axis=0)) == 1


def test_a_transductive_method_learns_from_all_that_is_to_have_codes(split, rows, labels):
    """From the database and the queries, but from labels of training rows alone."""
    some = replace(split, labelled=np.array([3, 5, 8]))
    places = some.train_places[some.labelled]
    method = Method("tagged", {"known_only": True}, labels="labelled")
    X, y = method.transductive_data(some)
    assert np.array_equal(X, np.concatenate([split.database, split.queries]))
    assert np.flatnonzero(y >= 0).tolist() == sorted(places)
    assert np.array_equal(y[places], split.labels[places])

    (outcome,) = run(some, method, random_state=2)
    assert (outcome.error, outcome.codes, outcome.train_rows) == (None, "learned", 400)
    hasher = Tagged(n_bits=8, known_only=True, random_state=2).fit(X, y)
    pair = hasher.encode(split.queries), hasher.encode(split.database)
    assert codes.unpack(pair[1], 8)[:, 0].nonzero()[0].tolist() == sorted(places)
    expected = metrics.mean_average_precision(*pair, split.relevant(LABEL))
    assert outcome.scores["label"].values["MAP"] == expected

    on_database = replace(split, train_labels=split.labels, train_places=np.arange(360))
    every = Method("tagged").transductive_data(on_database)[1]
    assert np.array_equal(every, np.concatenate([split.labels, np.full(40, -1)]))
    one_hot = np.eye(8, dtype=np.uint8)
    for form in (np.asarray, scipy.sparse.csr_array):
        several = replace(some, train_labels=form(one_hot[split.train_labels]))
        seen = method.transductive_data(several)[1]
        seen = seen.toarray() if scipy.sparse.issparse(seen) else seen
        assert seen.shape == (400, 8)
        assert np.array_equal(seen[places], one_hot[split.labels[places]])
        assert seen.sum() == 3
    unlabelled = draw_split(rows, random_state=1)
    assert method.transductive_data(replace(unlabelled, labelled=some.labelled))[1] is None
    (outside,) = run(replace(some, train_places=None), method)
    assert "take training rows from the database" in outside.error


def test_labels_of_some_rows(split):
    some = replace(split, labelled=np.array([3, 5, 8, 13, 21, 34]))
    method = Method("learning", labels="labelled")
    X, y = method.training_data(some)
    assert len(X) == 300
    assert np.flatnonzero(y >= 0).tolist() == some.labelled.tolist()
    assert np.array_equal(y[some.labelled], split.train_labels[some.labelled])
    assert run(some, method)[0].error is None
    several = replace(some, train_labels=np.eye(8, dtype=np.uint8)[split.train_labels])
    seen = method.training_data(several)[1]
    assert np.flatnonzero(seen.any(axis=1)).tolist() == some.labelled.tolist()
    assert "'labelled'" in run(split, method)[0].error


def test_several_labels_a_row(rows, labels):
    split = draw_split(rows, np.eye(8, dtype=int)[labels], random_state=1)
    single = draw_split(rows, labels, random_state=1)
    several, expected = (run(s, "itq")[0].scores["label"].values for s in (split, single))
    assert "3-NN error" in expected
    assert "3-NN error" not in several
    assert {**several, "3-NN error": expected["3-NN error"]} == pytest.approx(expected)


@pytest.mark.parametrize("ties", ["order", "average"])
def test_sph_ranks_by_the_distance_of_its_paper_too(ties, split):
    measures = Measures(k=(10,), ties=ties)
    plain, spherical = run(split, "sph", measures=measures, random_state=2)
    assert (plain.distance, spherical.distance) == ("hamming", "spherical")
    assert (plain.codes, spherical.codes) == ("hashed", "hashed")
    hasher = make_hasher("sph", n_bits=8, random_state=2).fit(split.train)
    pair = hasher.encode(split.queries), hasher.encode(split.database)
    relevant = split.relevant(LABEL)
    found = [outcome.scores["label"].values for outcome in (plain, spherical)]
    assert found[0]["MAP"] == metrics.mean_average_precision(*pair, relevant, ties=ties)
    # Ranks of the distances as Hamming distances of codes of that many bits in a row.
    distances = codes.spherical_distances(*pair)
    ranks = np.stack([np.unique(line, return_inverse=True)[1] for line in distances])
    value = 0.0
    for line, marks in zip(ranks, relevant[:], strict=True):
        run_of = np.arange(line.max()) < line[:, None]
        own = metrics.mean_average_precision(
            codes.pack(np.zeros((1, line.max()), bool)), codes.pack(run_of), marks[None], ties=ties
        )
        value += own / len(ranks)
    assert found[1]["MAP"] == pytest.approx(value)
    assert found[0]["PH2"] == found[1]["PH2"]
    assert found[0] != found[1]
    joined = average(
        [replace(outcome, seed=seed) for seed in (1, 2) for outcome in run(split, "sph")]
    )
    assert [outcome.distance for outcome in joined] == ["hamming", "spherical"]


def test_learned_weights_rank(split):
    (outcome,) = run(split, "weighing", random_state=2)
    hasher = Weighing(n_bits=8, random_state=2).fit(split.train)
    pair = hasher.encode(split.queries), hasher.encode(split.database)
    assert outcome.distance == "weighted"
    relevant, weights = split.relevant(LABEL), [1.0] + [0.0] * 7
    values = outcome.scores["label"].values
    assert values["MAP"] == metrics.mean_average_precision(*pair, relevant, weights=weights)
    assert values["PH2"] == metrics.precision_within_radius(*pair, relevant, 2)


def test_default_methods(split, rows):
    chosen = default_methods(split, [12, 16])
    assert {"lsh", "itq", "sign", "learning"} <= set(chosen)
    chosen = default_methods(draw_split(rows), [16])
    assert "learning" not in chosen
    assert "sign" not in chosen
    assert all(not hashers.HASHERS[name].learns_from for name in chosen)


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_load(tmp_path, rows, labels):
    data = save(tmp_path / "d.npz", X=rows, y=labels, text=np.array([None]))
    drawn = load_split(data, queries=40, train_rows=300, random_state=1)
    expected = draw_split(rows, labels, queries=40, train_rows=300, random_state=1)
    assert np.array_equal(drawn.train, expected.train)
    assert np.array_equal(drawn.train_labels, expected.train_labels)
    given = load_split(data, save(tmp_path / "s.npz", **NUMBERS))
    assert np.array_equal(given.queries, rows[[0, 5]])


def test_refuses_files(tmp_path, rows):
    data = save(tmp_path / "d.npz", X=rows)
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "cut.npz").write_bytes(data.read_bytes()[:-200])
    for path, message in (
        (tmp_path / "none.npz", "none.npz.*No such file"),
        (save(tmp_path / "two.npz", a=rows, b=rows), "no array X in .*two.npz .it holds a, b"),
        (tmp_path / "text.npz", "cannot read arrays from .*text.npz"),
        (tmp_path / "cut.npz", "cannot read arrays"),
        (tmp_path, "cannot read arrays"),
        (save(tmp_path / "y.npz", y=[1]), "no array X"),
        (save(tmp_path / "p.npz", X=np.array([None])), "cannot read arrays"),
        (save(tmp_path / "f.npz", X=np.ones(3)), r"shape \(3,\)"),
        (save(tmp_path / "0.npz", X=np.float32(3)), r"shape \(\)"),
        (save(tmp_path / "e.npz", X=np.ones((0, 3))), "got 1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            load_split(path)
    numbers = save(tmp_path / "s.npz", **NUMBERS)
    for options in ({"queries": 3}, {"train_rows": 3}):
        with pytest.raises(InvalidInputError, match="give no numbers of them"):
            load_split(data, numbers, **options)
    with pytest.raises(InvalidInputError, match="no 'query'"):
        load_split(data, data)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
def test_sparse_labels_are_as_dense_ones(rows, kind):
    """Labels of any type: one of 8 bits would lose count of 256 labels that two rows share."""
    y = np.zeros((400, 300), kind)
    y[::2, :256] = 1
    y[np.arange(400), 256 + np.arange(400) % 40] = 1
    y[5] = 0
    numbers = {"query": range(40), "database": range(40, 400), "train": range(40, 400)}
    numbers["labelled"] = range(0, 360, 7)
    dense = Split.of(rows, y.astype(int), numbers=numbers)
    sparse = Split.of(rows, scipy.sparse.coo_array(y), numbers=numbers)
    assert np.array_equal(sparse.relevant(LABEL).whole(), dense.relevant(LABEL).whole())
    for labels in ("all", "labelled"):
        method = Method("sdh", {"n_anchors": 50}, labels=labels)
        seen = method.training_data(sparse)[1].toarray()
        assert np.array_equal(seen, method.training_data(dense)[1])
        for expected, found in zip(run(dense, method), run(sparse, method), strict=True):
            assert found.error is None
            assert found.codes == expected.codes
            assert found.scores["label"].values == expected.scores["label"].values


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_labels_that_no_query_shares(rows, form):
    numbers = {"query": [0, 1], "database": range(2, 400), "train": range(2, 400)}
    y = np.zeros((400, 3), int)
    y[0, 0] = y[7, 1] = y[8, 2] = 1
    with pytest.raises(InvalidInputError, match="none of the 2 queries .*1 queries and 2 rows"):
        compare(Split.of(rows, form(y), numbers=numbers), [Method("lsh")], [8], truths=[LABEL])
