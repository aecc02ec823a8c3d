"""hashindex.train: models trained by SQL alone are those that Python trains."""

import numpy as np
import psycopg
import pytest
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import ITQ, LSH, Sign, Thermometer
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.models.profiles import Profile
from pg_hashindex.server.data import load_packages

ROWS, DIMENSION = 1200, 24


@pytest.fixture(scope="module")
def uneven():
    """Rows that vary by less and less from dimension to dimension, and not at all in the last."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((ROWS, DIMENSION)) * 0.85 ** np.arange(DIMENSION) + 0.3
    X[:, -1] = 0.5
    return X.astype(np.float32)


@pytest.fixture
def filled(connection, uneven):
    """A session with table texts, in a schema whose name needs quotes."""
    connection.execute(
        f'CREATE SCHEMA "A b"; CREATE TABLE "A b".texts (id int PRIMARY KEY, "the vector" '
        f"vector({DIMENSION}), half halfvec({DIMENSION}), label text)"
    )
    with connection.cursor() as cursor:
        copy = 'COPY "A b".texts (id, "the vector") FROM STDIN'
        with cursor.copy(copy) as target:
            for i, vector in enumerate(uneven):
                target.write_row((i, Vector(vector)))
    connection.execute('UPDATE "A b".texts SET half = "the vector"')
    connection.execute('INSERT INTO "A b".texts (id) VALUES (-1)')
    return connection


def train(connection, name="texts", **given):
    values = {"table_name": '"A b".texts', "column_name": "the vector", "metric": "l2", **given}
    arguments = ", ".join(f"{key} => %s" for key in values)
    row = connection.execute(
        f"SELECT hashindex.train(%s, {arguments})".encode(), [name, *values.values()]
    ).fetchone()
    # Loading checks the checksum.
    return store.load(connection, row[0])


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_sign_is_that_of_python(filled, uneven, metric):
    model = train(filled, method="sign", metric=metric)
    normalize = "l2" if metric == "cosine" else None
    hasher = Sign(normalize=normalize, random_state=0).fit(uneven)
    same = hasher.to_model("texts", metric=metric)
    assert (model.metric, model.cuts, model.method) == (metric, (0,), "sign")
    assert model.parameters == same.parameters
    assert [layer.kind for layer in model.layers] == [layer.kind for layer in same.layers]
    np.testing.assert_allclose(model.layers[-1].bias, same.layers[-1].bias, rtol=1e-6)
    assert (np.bitwise_count(model.encode(uneven) ^ same.encode(uneven))).mean() < 1e-3


@pytest.mark.parametrize("given", [{}, {"cuts": 5}, {"bits": 24}, {"bits": 72}])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_thermometer_is_that_of_python(filled, uneven, metric, given):
    model = train(filled, method="thermometer", metric=metric, **given)
    hasher = Thermometer(
        normalize="l2" if metric == "cosine" else None, random_state=0, n_bits=given.get("bits")
    ).fit(uneven)
    same = hasher.to_model("texts", metric=metric, cuts=given.get("cuts"))
    assert (model.method, model.n_bits) == ("thermometer", same.n_bits)
    np.testing.assert_allclose(model.cuts, same.cuts, rtol=1e-5)
    np.testing.assert_allclose(model.layers[-1].bias, same.layers[-1].bias, rtol=1e-5, atol=1e-7)
    assert (np.bitwise_count(model.encode(uneven) ^ same.encode(uneven))).mean() < 1e-3


@pytest.mark.newest
def test_cuts_of_other_methods(filled, uneven):
    for method, bits, metric in (("itq", 48, "l2"), ("lsh", 60, "l2"), ("lsh", 60, "ip")):
        model = train(filled, method=method, bits=bits, cuts=3, metric=metric)
        assert (model.n_projections, model.n_bits) == (bits // 3, bits)
        means = np.square(model.project(uneven), dtype=np.float64).mean(axis=1)
        # By inner product the longest rows count.
        square = np.quantile(means, 0.99, method="inverted_cdf") if metric == "ip" else means.mean()
        np.testing.assert_allclose(
            model.cuts, np.sqrt(square) * np.array([-0.8, 0, 0.8]), rtol=1e-4
        )
        assert model.profile is not None
        bits_of = codes.unpack(model.encode(uneven), model.n_bits)
        assert np.abs(model.profile.ones - bits_of.sum(axis=0)).max() <= 3
    assert train(filled, method="itq", bits=15, cuts=1).n_projections == 15


@pytest.mark.newest
@pytest.mark.parametrize(("method", "bits"), [("lsh", 40), ("itq", 48), ("sign", None)])
def test_its_profile_and_facts_are_those_of_its_rows(filled, uneven, method, bits):
    model = train(filled, method=method, bits=bits)
    assert model.training["rows"] == ROWS
    assert model.training["held_back_rows"] == 0
    assert model.training["seconds"] > 0
    # The last dimension is the same for all rows.
    assert model.training["distinct_bits"] <= model.n_bits
    expected = Profile.of(model.project(uneven), model.cuts)
    assert model.profile is not None
    assert model.profile.rows == ROWS
    np.testing.assert_allclose(model.profile.edges, expected.edges, rtol=1e-4, atol=1e-4)
    assert np.abs(model.profile.counts - expected.counts).max() <= 3
    assert np.abs(model.profile.ones - expected.ones).max() <= 3
    shares = model.profile.ones / ROWS
    assert model.training["share_of_ones"] == {
        "least": round(shares.min(), 4),
        "mean": pytest.approx(shares.mean(), abs=1e-4),
        "greatest": round(shares.max(), 4),
    }


def test_lsh_draws_normal_directions_by_its_seed_alone(filled, uneven):
    filled.execute("SELECT setseed(0.25)")
    expected = filled.execute("SELECT random()").fetchone()
    filled.execute("SELECT setseed(0.25)")
    model = train(filled, method="lsh", bits=100, seed=3)
    assert filled.execute("SELECT random()").fetchone() == expected
    W, b = model.layers[-1].weights, model.layers[-1].bias
    assert abs(W.mean()) < 0.1
    assert W.std() == pytest.approx(1, abs=0.05)
    assert (W**4).mean() == pytest.approx(3, abs=0.4)
    assert np.abs(np.corrcoef(W.T) - np.eye(DIMENSION)).max() < 0.5
    np.testing.assert_allclose(b, -W @ uneven.mean(axis=0), atol=1e-4)
    assert train(filled, method="lsh", bits=100, seed=3).checksum == model.checksum
    assert train(filled, method="lsh", bits=100, seed=4).checksum != model.checksum
    assert LSH(n_bits=100, random_state=3).fit(uneven).to_model("x").parameters == model.parameters


def test_the_metric_is_cosine_by_default(filled):
    filled.execute("SELECT hashindex.train('m', '\"A b\".texts', 'the vector', 'sign')")
    assert store.load(filled, "m").metric == "cosine"


def test_itq_keeps_the_variance_that_python_keeps(filled, uneven):
    model = train(filled, method="itq", bits=10, seed=1)
    hasher = ITQ(n_bits=10, n_iter=0, random_state=1).fit(uneven)
    same = hasher.to_model("texts")
    # SQL takes no rounds, so their end is not a parameter.
    of_rounds = {"tolerance", "extrapolation"}
    kept = {name: value for name, value in same.parameters.items() if name not in of_rounds}
    assert model.parameters == kept
    W = model.layers[-1].weights
    np.testing.assert_allclose(W @ W.T, np.eye(10), atol=1e-5)
    kept, expected = (m.project(uneven).var(axis=0).sum() for m in (model, same))
    assert kept == pytest.approx(expected, rel=2e-3)
    np.testing.assert_allclose(model.project(uneven).mean(axis=0), 0, atol=1e-4)


def test_itq_takes_as_many_bits_as_dimensions(filled, uneven):
    """Although the last dimension does not vary."""
    W = train(filled, method="itq").layers[-1].weights
    np.testing.assert_allclose(W @ W.T, np.eye(DIMENSION), atol=1e-5)


def test_a_sample_is_drawn_by_the_seed(filled):
    drawn = train(filled, method="sign", sample=1000)
    again = train(filled, method="sign", sample=1000)
    other = train(filled, method="sign", sample=1000, seed=2)
    assert drawn.training["rows"] == 1000
    assert drawn.version == 1
    assert again.version == 2
    assert drawn.checksum == again.checksum != other.checksum


def test_a_halfvec_column_and_partitions(filled):
    filled.execute(
        "CREATE TABLE divided (id int, half halfvec) PARTITION BY RANGE (id);"
        "CREATE TABLE d1 PARTITION OF divided FOR VALUES FROM (0) TO (600);"
        "CREATE TABLE d2 PARTITION OF divided FOR VALUES FROM (600) TO (9999);"
        'INSERT INTO divided SELECT id, half FROM "A b".texts WHERE id >= 0'
    )
    whole = train(filled, column_name="half", method="sign")
    divided = train(filled, table_name="divided", column_name="half", method="sign")
    assert whole.checksum == divided.checksum


REFUSED = [
    ({"name": None}, "name is NULL"),
    ({"name": "a:b"}, '"a:b" cannot name a model'),
    ({"name": ""}, '"" cannot name a model'),
    ({"table_name": None}, "table_name is NULL"),
    ({"column_name": None}, "column_name is NULL"),
    ({"table_name": "nothing"}, 'relation "nothing" does not exist'),
    ({"table_name": "seen"}, "seen is not a table"),
    ({"column_name": "nothing"}, 'has no column "nothing"'),
    ({"column_name": "label"}, "is of type text, not vector or halfvec"),
    ({"method": "ksh"}, 'method "ksh" cannot be trained in SQL'),
    ({"method": None}, "cannot be trained in SQL"),
    ({"bits": 0}, "bits is 0; it must be 1 to 72"),
    ({"bits": 25}, "bits is 25; it must be 1 to 24"),
    ({"method": "sign", "bits": 23}, "bits is 23; it must be 24 or left out"),
    ({"method": "lsh", "bits": 16_002}, "it must be 1 to 15999"),
    ({"cuts": 2}, "cuts is 2; it must be 1, 3 or 5"),
    ({"cuts": 3}, "bits is 8; it must be a multiple of 3"),
    ({"cuts": 3, "bits": 75}, "bits is 75; it must be 1 to 72"),
    ({"method": "sign", "cuts": 3, "bits": None}, "cuts is 3; it must be 1, 3 or 5; sign has 1"),
    ({"method": "thermometer", "bits": 25}, "1, 3 or 5 times 24, or left out"),
    ({"method": "thermometer", "bits": 48}, "1, 3 or 5 times 24, or left out"),
    ({"method": "thermometer", "bits": 72, "cuts": 1}, "1, 3 or 5 times 24, or left out"),
    ({"metric": "l1"}, 'metric "l1" is unknown'),
    ({"metric": None}, "is unknown"),
    ({"sample": 0}, "sample is 0"),
    ({"sample": None}, "sample is NULL"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": None}, "seed is"),
    ({"sample": 500}, "rows are too few to learn 8 projections from"),
    ({"bits": 24, "table_name": "few"}, "1 rows are too few"),
    ({"table_name": "empty"}, 'has no row with a vector in column "the vector"'),
    ({"table_name": "mixed"}, "holds vectors of several dimensions"),
    ({"table_name": "zeros", "metric": "cosine"}, "are all equal"),
    ({"table_name": "zeros"}, "are all equal"),
]


@pytest.mark.newest
def test_one_clear_error_and_nothing_half_made(filled):
    filled.execute(
        'CREATE VIEW seen AS SELECT * FROM "A b".texts;'
        'CREATE TABLE empty (id int, "the vector" vector); INSERT INTO empty VALUES (1);'
        'CREATE TABLE few ("the vector" vector(24));'
        "INSERT INTO few SELECT array_fill(1, ARRAY[24])::vector;"
        'CREATE TABLE zeros ("the vector" vector(24));'
        "INSERT INTO zeros SELECT array_fill(0, ARRAY[24])::vector FROM generate_series(1, 1000);"
        'CREATE TABLE mixed ("the vector" vector);'
        'INSERT INTO mixed SELECT "the vector" FROM "A b".texts; INSERT INTO mixed VALUES (\'[1]\')'
    )
    for given, message in REFUSED:
        with pytest.raises(psycopg.Error, match=message):
            train(filled, **{"name": "texts", "method": "itq", "bits": 8, **given})
    assert store.list_models(filled) == []


def test_force_takes_few_rows(filled):
    with pytest.raises(psycopg.Error, match="too few"):
        train(filled, method="lsh", bits=500)
    assert train(filled, method="lsh", bits=500, force=True).n_projections == 500


def test_defaults_are_those_of_python(filled):
    """3 cuts, and as many projections as rows and dimensions allow."""

    def shape(**given):
        model = train(filled, **given)
        return model.method, model.n_projections, len(model.cuts)

    assert shape() == ("itq", 24, 3)
    assert shape(cuts=1) == ("itq", 24, 1)
    assert shape(bits=9) == ("itq", 3, 3)
    assert shape(bits=8) == ("itq", 8, 1)
    assert shape(method="lsh") == ("lsh", 120, 3)
    assert shape(method="lsh", sample=900, force=True) == ("lsh", 90, 3)
    assert shape(method="sign") == ("sign", 24, 1)


@pytest.mark.newest
def test_sign_takes_rows_for_its_means_alone(filled):
    """Each bit learns its mean from all rows: 200 bits need no more rows than 8."""
    filled.execute(
        'CREATE TABLE wide ("the vector" vector(200));'
        "INSERT INTO wide SELECT array_agg(sin(n * j) ORDER BY j)::real[]::vector(200) "
        "FROM generate_series(1, 1000) n, generate_series(1, 200) j GROUP BY n"
    )
    assert train(filled, method="sign", bits=None, table_name="wide").n_projections == 200


@pytest.mark.newest
@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"sample": 500}, "Let the sample have 1000 rows or more, or pass force => true."),
        ({"sample": 1, "force": True}, "Let the sample have 2 rows or more."),
        (
            {"method": "lsh", "bits": 500},
            "Let the table have 5000 rows or more, learn fewer bits, or pass force => true.",
        ),
        (
            {"method": "sign", "bits": None, "table_name": "wide"},
            "Let the table have 1000 rows or more, or pass force => true.",
        ),
    ],
    ids=str,
)
def test_hints_of_too_few_rows_help(filled, given, hint):
    filled.execute(
        'CREATE TABLE wide ("the vector" vector(200));'
        "INSERT INTO wide SELECT array_fill(n, ARRAY[200])::vector FROM generate_series(1, 999) n"
    )
    with pytest.raises(psycopg.Error) as refused:
        train(filled, **{"bits": 8, **given})  # type: ignore[arg-type]
    assert refused.value.diag.message_hint == hint


def test_a_read_only_transaction(filled):
    with filled.transaction():
        filled.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="a model is stored"):
            train(filled, method="sign")


def test_only_the_administrator_trains_and_reads_with_his_own_rights(filled, as_role):
    writer = as_role("writer")
    filled.execute('GRANT USAGE ON SCHEMA "A b" TO writer; GRANT SELECT ON "A b".texts TO writer')
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="does not administer"):
        train(writer, method="sign")


@pytest.mark.slow
@pytest.mark.newest
def test_train_index_search_filter_and_evaluate_in_sql_alone(connection):
    """The recall of texts is that of the same model from Python, and stays with landmarks."""
    texts = load_packages()
    X = np.asarray(texts.embedding[:3000], np.float32)
    connection.execute(
        "CREATE TABLE texts (id int PRIMARY KEY, section text, embedding vector(384))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY texts FROM STDIN") as copy:
        for i, (section, vector) in enumerate(zip(texts.section[:3000], X, strict=True)):
            copy.write_row((i, str(section), Vector(vector)))
    hashers = {
        "itq": ITQ(n_bits=128, n_iter=0, random_state=0, normalize="l2"),
        "lsh": LSH(n_bits=256, random_state=0, normalize="l2"),
    }
    for method, hasher in hashers.items():
        connection.execute(
            "SELECT hashindex.train(%s, 'texts', 'embedding', %s, %s, 3, 'cosine')",
            [method, method, 3 * hasher.n_bits],
        )
        same = hasher.fit(X).to_model(f"{method}_python", metric="cosine", cuts=3)
        store.save(connection, same)
        for model in (method, same.name):
            connection.execute(
                "SELECT hashindex.create_index(%s, 'texts', 'embedding', %s, "
                "filter_columns => '{section}')",
                [f"{model}_idx", model],
            )
            connection.execute("SELECT hashindex.encode_rows(%s)", [f"{model}_idx"])
        measured = recall(connection, f"{method}_idx"), recall(connection, f"{same.name}_idx")
        assert measured[0] == pytest.approx(measured[1], abs=0.01)
        assert measured[0] > 0.85
    before = recall(connection, "itq_idx")
    connection.execute("SELECT hashindex.build_landmarks('itq_idx')")
    assert recall(connection, "itq_idx") > before - 0.05
    index = HashIndex.open(connection, "itq_python_idx")
    index.configure(access="landmarks")
    index.encode()
    by_python = recall(connection, "itq_python_idx")
    assert recall(connection, "itq_idx") == pytest.approx(by_python, abs=0.015)
    found = connection.execute(
        "SELECT t.section FROM hashindex.search('itq_idx', "
        "(SELECT embedding FROM texts WHERE id = 1), 10, filter => $$section = 'games'$$) s "
        "JOIN texts t ON t.id = s.id::int"
    ).fetchall()
    assert found == [("games",)] * 10


def recall(connection, index):
    # The queries are drawn by random().
    connection.execute("SELECT setseed(0.5)")
    row = connection.execute(
        "SELECT hashindex.recall(%s, sample => 200, candidates => 40)", [index]
    ).fetchone()
    return float(row[0])
