"""The measures of the papers on the codes of an index."""

import tracemalloc

import numpy as np
import pytest
from fixtures.indexes import begin_lists

from pg_hashindex import metrics, store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.quality.code_scores import score_codes
from pg_hashindex.quality.scores import Measures
from pg_hashindex.training.sampling import sample_table

pytestmark = pytest.mark.newest


def drawn(n, n_queries, seed):
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_queries]), np.sort(order[n_queries:])


@pytest.mark.reads
def test_measures_by_distance(index, model, vectors):
    (scores,) = score_codes(index, queries=17, random_state=4).values()
    query, rest = drawn(300, 17, 4)
    relevant = metrics.nearest_fraction(vectors[query], vectors[rest], 0.02)
    codes = model.encode(vectors[query]), model.encode(vectors[rest])
    expected = metrics.mean_average_precision(*codes, relevant)
    assert scores.values["MAP"] == pytest.approx(expected)
    assert scores.values["P@100"] == pytest.approx(metrics.precision_at_k(*codes, relevant, 100))


@pytest.mark.parametrize("kind", ["text", "text[]"])
def test_measures_by_label(index, model, vectors, kind):
    """Rows without a label are not part of it."""
    index.connection.execute(f"ALTER TABLE items ADD label {kind}".encode())
    label = "ARRAY[category]" if kind == "text[]" else "category"
    index.connection.execute(f"UPDATE items SET label = {label} WHERE id <= 200".encode())
    scores = score_codes(
        index, labels="label", queries=11, measures=Measures(k=(20,)), random_state=1
    )["label"]
    query, rest = drawn(200, 11, 1)
    relevant = metrics.same_label(query % 3, rest % 3)
    codes = model.encode(vectors[query]), model.encode(vectors[rest])
    assert scores.values["P@20"] == pytest.approx(metrics.precision_at_k(*codes, relevant, 20))


def test_measures_by_labels_that_are_many(connection, items, model, vectors):
    """As many labels as rows and more, in memory for the rows alone."""
    connection.execute(
        "CREATE TABLE tagged AS SELECT 300 * (n - 1) + id AS id, embedding, "
        "ARRAY['t' || id || '-' || n, 'c' || id % 50] AS tags FROM items, generate_series(1, 20) n;"
        "ALTER TABLE tagged ADD PRIMARY KEY (id)"
    )
    index = begin_lists(connection, "i", table="tagged", column="embedding", model="lsh")
    tracemalloc.start()
    scores = score_codes(index, labels="tags", queries=50)["label"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    query, rest = drawn(6000, 50, 0)
    sample = sample_table(connection, "tagged", "embedding", labels="tags").X
    number = {row.tobytes(): n for n, row in enumerate(vectors, start=1)}
    ids = np.array([number[row.tobytes()] for row in sample])
    relevant = metrics.same_label(ids[query] % 50, ids[rest] % 50)
    codes = model.encode(sample[query]), model.encode(sample[rest])
    expected = metrics.mean_average_precision(*codes, relevant)
    assert scores.values["MAP"] == pytest.approx(expected)


@pytest.mark.reads
def test_labels_that_no_rows_share(index):
    with pytest.raises(InvalidInputError, match="none of the 30 queries shares a label"):
        score_codes(index, labels="id")


def test_the_nearest_by_cosine(connection, items, model, vectors):
    index = begin_lists(
        connection, "i", table=items, column="embedding", model="lsh", metric="cosine"
    )
    (scores,) = score_codes(index, queries=30).values()
    query, rest = drawn(300, 30, 0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    relevant = metrics.nearest_fraction(unit[query], unit[rest], 0.02)
    codes = model.encode(vectors[query]), model.encode(vectors[rest])
    assert scores.values["MAP"] == pytest.approx(metrics.mean_average_precision(*codes, relevant))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "nothing"}, "no column 'nothing'"),
        ({"queries": 0}, "queries is 0"),
        ({"rows": 0}, "rows is 0"),
        ({"rows": 19}, "has 19 rows to measure by; 20 are needed"),
        ({"measures": Measures(k=(1000,))}, "k must be from 1"),
    ],
)
@pytest.mark.reads
def test_measuring_refused(index, options, message):
    with pytest.raises(InvalidInputError, match=message):
        score_codes(index, **options)


def test_inner_products_have_no_nearest(connection, items, model):
    store.save(connection, model)
    index = begin_lists(connection, "i", table=items, column="embedding", model="lsh", metric="ip")
    with pytest.raises(InvalidInputError, match="measure its codes by labels"):
        score_codes(index)
    assert 0 < score_codes(index, labels="category")["label"].values["MAP"] < 1
