"""Training: what is refused, what is measured on rows held back."""

import numpy as np
import pytest
import scipy.sparse
from fixtures.tagged import Tagged

from pg_hashindex.db.progress import show_progress
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS
from pg_hashindex.hashers.supervision.labels import Supervision
from pg_hashindex.models import codes
from pg_hashindex.server.data import load_packages
from pg_hashindex.training import distinct_bits, held_back, train


@pytest.fixture(scope="module")
def embeddings():
    return load_packages().embedding[:2000]


def test_measurements_of_training(embeddings):
    options = {"n_bits": 64, "cuts": 1, "metric": "cosine", "random_state": 5}
    model = train(embeddings, "texts", "itq", **options)
    summary = model.training
    assert summary["rows"] == 1800
    assert summary["held_back_rows"] == 200
    assert summary["recall"]["among"] == 1800
    # No more than 200 are counted.
    assert 100 < summary["recall"]["candidates"] <= 200
    assert 0.95 < summary["recall"]["value"] < 0.99
    shares = summary["share_of_ones"]
    assert 0 < shares["least"] < shares["mean"] < shares["greatest"] < 1
    assert summary["distinct_bits"] == 64
    assert "supervision" not in summary
    assert model.metric == "cosine"
    assert model.parameters["normalize"] == "l2"
    assert model.layers[0].kind == "normalize"
    again = train(embeddings, "texts", "itq", **options)
    assert again.checksum == model.checksum


def test_recall_is_counted_as_an_index_will(embeddings):
    """Codes of several cuts rank rows of many lengths by distance."""
    lengths = np.exp(0.3 * np.random.default_rng(3).standard_normal(len(embeddings)))
    X = (embeddings * lengths[:, None]).astype(np.float32)
    model = train(X, "texts", "itq", n_bits=960, cuts=5, metric="l2", random_state=1)
    hidden = held_back(len(X), Supervision.read(len(X)), 1)
    queries, rows = X[hidden], np.delete(X, hidden, axis=0)
    far = ((queries[:, None].astype(np.float64) - rows) ** 2).sum(axis=2)
    true = np.argsort(far, axis=1)[:, :10]

    def recall(order, candidates):
        kept = np.argsort(order, axis=1, kind="stable")[:, :candidates]
        return np.mean([np.isin(true[q], kept[q]).mean() for q in range(len(queries))])

    order = model.order(queries, "l2")
    coded = order.distances(slice(None), model.encode(rows)).astype(int)
    found = model.training["recall"]
    # Ties in row order, not in all orders.
    assert found["value"] == pytest.approx(recall(coded, found["candidates"]), abs=3e-3)
    assert found["value"] >= 0.98


def test_defaults(embeddings):
    """ITQ, 3 cuts, 256 projections or what rows and dimensions allow; 1 cut for labels."""

    def shape(X, *method, **options):
        model = train(X, "m", *method, force=True, **options)
        return model.method, model.n_projections, len(model.cuts)

    y = np.arange(2000) % 300
    wide = np.random.default_rng(0).standard_normal((2600, 300)).astype(np.float32)
    assert shape(wide) == ("itq", 256, 3)
    assert shape(embeddings) == ("itq", 200, 3)
    assert shape(embeddings, cuts=1) == ("itq", 200, 1)
    assert shape(embeddings[:9, :4]) == ("itq", 1, 3)
    assert shape(wide[:, :20], n_bits=8) == ("itq", 8, 1)
    assert shape(wide[:, :20]) == ("itq", 20, 3)
    assert shape(embeddings, "sign") == ("sign", 384, 1)
    assert shape(lambda: iter([wide]), "pcah") == ("pcah", 256, 3)
    assert shape(embeddings, "sdh", y=y, parameters={"n_anchors": 50}) == ("sdh", 128, 1)
    assert shape(embeddings[:50], "sth") == ("sth", 5, 3)
    assert shape(embeddings, "agh", n_bits=9) == ("agh", 9, 1)
    with pytest.raises(InvalidInputError, match="models of cghash have one cut, not 3"):
        train(embeddings, "m", "cghash", y=y, cuts=3)
    # A code has 16,000 bits at the most.
    long = np.random.default_rng(0).standard_normal((20, 8001)).astype(np.float32)
    assert shape(long, "thermometer", cuts=1) == ("thermometer", 8001, 1)
    with pytest.raises(InvalidInputError, match="more than the 16000 of a code"):
        shape(long, "thermometer", cuts=3)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("rows", [1500, 3000])
def test_default_bits_are_at_most_those_that_the_rows_have(rows, blocks):
    """Whether the number of rows or the method's default is above what the rows have."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((rows, 20)) @ rng.standard_normal((20, 300))
    X = plane.astype(np.float32)
    model = train((lambda: iter([X])) if blocks else X, "m", "pcah")
    assert (model.n_projections, model.parameters["n_bits"]) == (20, 20)
    with pytest.raises(InvalidInputError, match="n_bits is 150"):
        train(X, "m", "pcah", n_bits=150, cuts=1, force=True)


@pytest.mark.parametrize(("rows", "bits", "least"), [(999, 8, 1000), (1999, 200, 2000)])
def test_too_few_rows(embeddings, rows, bits, least):
    with pytest.raises(InvalidInputError, match=f"{rows} rows are too few .* {least}"):
        train(embeddings[:rows], "few", "lsh", n_bits=bits)
    few = train(embeddings[:rows], "few", "lsh", n_bits=bits, force=True)
    assert few.n_projections == bits


def test_bits_and_seed_are_no_parameters_of_the_method(embeddings):
    for name in ("n_bits", "random_state", "preset", "name"):
        with pytest.raises(InvalidInputError, match=f"{name} cannot be given in parameters"):
            train(embeddings, "m", "lsh", n_bits=8, parameters={name: 16})
    with pytest.raises(InvalidInputError, match="n_bits must be an integer from 1 to 16000"):
        train(embeddings, "m", "lsh", n_bits=999_999)
    with pytest.raises(InvalidInputError, match="cannot name a model"):
        train(embeddings, "a:b", "lsh", n_bits=8)
    with pytest.raises(InvalidInputError, match="an index without one"):
        train(embeddings, "none", "lsh", n_bits=8)


def test_copies_of_bits():
    """A bit and its opposite say the same; one that is the same for all rows says nothing."""
    rng = np.random.default_rng(0)
    bits = rng.random((77, 9)) < 0.5
    everything = np.hstack([bits, ~bits[:, :3], bits[:, 4:7], np.zeros((77, 1)), np.ones((77, 4))])
    order = rng.permutation(everything.shape[1])
    packed = codes.pack(everything[:, order].astype(bool))
    assert distinct_bits(packed, everything.shape[1]) == 9
    assert distinct_bits(codes.pack(bits), 9) == 9
    assert distinct_bits(codes.pack(bits[:1]), 9) == 0
    assert distinct_bits(codes.pack(bits[:, :1]), 1) == 1


def test_two_classes_make_copies(embeddings):
    y = (embeddings[:, 0] > 0).astype(int)
    model = train(embeddings, "m", "itq-cca", y=y, n_bits=32)
    assert model.training["distinct_bits"] < 5
    assert model.training["supervision"] == "labels"


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_small_classes_are_not_held_back(embeddings, several, seed):
    """At most a tenth of each class, so none of those of fewer than ten rows."""
    y = np.full(2000, -1)
    y[:1400] = 0
    y[1400:1430] = 1
    y[1430:1439] = 2
    y[1439] = 3
    y = np.random.default_rng(seed).permutation(y)
    given = y
    if several:
        given = np.zeros((2000, 5), int)
        given[np.arange(2000), y] = 1
        given[:, 4] = 0
        given[y == 3, 0] = given[y == 2, 1] = 1
    seen = hidden_rows(embeddings, given, seed)
    assert len(seen) == 200
    taken = {label: int((y[seen] == label).sum()) for label in range(-1, 4)}
    assert taken[2] == taken[3] == 0
    assert taken[1] <= 3
    assert taken[0] <= 140
    assert taken[0] > 100


def hidden_rows(X, y, seed):
    return held_back(len(X), Supervision.read(len(X), y), seed)


def test_a_class_of_one_row(embeddings):
    y = np.zeros(1500, int)
    for row in range(1500, 0, -150):
        y[:] = 0
        y[row - 1] = 1
        model = train(embeddings[:1500], "m", "itq-cca", y=y, n_bits=4, random_state=2)
        # A tenth of 1,499.
        assert model.training["held_back_rows"] == 149
        assert model.training["labels"] == {"rows": 1500, "classes": 2}


def test_masked_numbers_are_refused(embeddings):
    """Below a mask there may be any number."""
    masked = np.ma.masked_array(embeddings[:1000], mask=False)
    masked[7, 3] = np.ma.masked
    with pytest.raises(InvalidInputError, match=r"vectors have masked values.*X\.filled"):
        train(masked, "m", "itq", n_bits=4)
    whole = np.ma.masked_array(embeddings[:1000], mask=False)
    model = train(whole, "m", "itq", n_bits=4)
    assert model.checksum == train(embeddings[:1000], "m", "itq", n_bits=4).checksum


def test_where_each_row_has_a_label_of_its_own(embeddings):
    """Nothing can be spared then, and nothing is measured on rows that were not seen."""
    y = scipy.sparse.csr_array(np.eye(1000, dtype=int))
    model = train(embeddings[:1000], "m", "s3plh", y=y, n_bits=4)
    assert (model.training["rows"], model.training["held_back_rows"]) == (1000, 0)
    assert not {"recall", "label_precision"} & set(model.training)


@pytest.fixture
def _tagged(monkeypatch):
    monkeypatch.setitem(HASHERS, Tagged.method, Tagged)


@pytest.mark.usefixtures("_tagged")
def test_a_graph_goes_with_its_rows(embeddings):
    """Rows held back are not in what a method learns from, nor are their edges."""
    X, y = embeddings[:1000], np.arange(1000) % 4
    graph = np.eye(1000, 1001) + np.eye(1000, 1001, k=1)
    graph[:500:5] = 0
    seen = np.setdiff1d(np.arange(1000), hidden_rows(X, y, 3))
    training = train(X, "m", "tagged", y=y, graph=graph, n_bits=8, random_state=3).training
    assert (training["rows"], training["held_back_rows"], training["labelled"]) == (900, 100, 900)
    assert training["graph"] == {
        "rows": 900,
        "objects": graph[seen].any(axis=0).sum(),
        "edges": (graph[seen] > 0).sum(),
        "isolated_rows": (~graph[seen].any(axis=1)).sum(),
    }
    with pytest.raises(InvalidInputError, match="lsh does not learn from a graph; .* tagged"):
        train(X, "m", "lsh", graph=graph, n_bits=8)
    with pytest.raises(InvalidInputError, match="has 1000 rows, but there are 999 vectors"):
        train(X[:999], "m", "tagged", y=y[:999], graph=graph, n_bits=8, force=True)


@pytest.mark.usefixtures("_tagged")
def test_a_transductive_method_sees_all_rows(embeddings):
    """Also those it is measured by, whose labels are hidden from it."""
    X = embeddings[:1000]
    y = np.where(np.arange(1000) % 5 > 0, np.arange(1000) % 2, -1)
    graph = scipy.sparse.eye_array(1000)
    options = {"y": y, "graph": graph, "n_bits": 64, "random_state": 4}
    model = train(X, "m", "tagged", parameters={"known_only": True}, **options)
    hidden = held_back(1000, Supervision.read(1000, y), 4)
    training = model.training
    assert (training["rows"], training["held_back_rows"]) == (1000, 100)
    assert training["graph"] == {"rows": 1000, "objects": 1000, "edges": 1000, "isolated_rows": 0}
    assert training["labelled"] == 800 - (y[hidden] >= 0).sum()
    assert training["labels"] == {"rows": 800, "classes": 2}
    assert {"recall", "label_precision"} <= set(training)
    # The codes of the training, for rows held back too.
    seen_labels = codes.unpack(model.encode(X), 64)[:, 0]
    assert seen_labels.tolist() == ((y >= 0) & ~np.isin(np.arange(1000), hidden)).tolist()


@pytest.mark.usefixtures("_tagged")
def test_how_training_runs_is_not_in_the_model(embeddings):
    X, y = embeddings[:1000], np.arange(1000) % 4
    options = {"y": y, "n_bits": 8, "random_state": 1}
    plain = train(X, "m", "tagged", **options)
    with show_progress():
        elsewhere = train(X, "m", "tagged", parameters={"device": "cpu"}, **options)
    assert plain.training["runs"] == ["auto", False]
    assert elsewhere.training["runs"] == ["cpu", True]
    assert elsewhere.parameters == plain.parameters
    assert set(plain.parameters) == {"n_bits", "known_only", "random_state", "normalize"}
    assert elsewhere.checksum == plain.checksum
    # Methods that have no bar train all the same.
    with show_progress():
        assert train(X, "m", "lsh", n_bits=8).n_projections == 8
