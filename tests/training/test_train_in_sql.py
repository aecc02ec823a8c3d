"""hashindex.train: models that SQL trains are those that Python trains."""

from math import ceil

import numpy as np
import psycopg
import pytest
from pgvector import Vector

from pg_hashindex import store, training
from pg_hashindex.hashers import Sign, Thermometer
from pg_hashindex.models.profiles import Profile
from pg_hashindex.training.fitting import distinct_bits

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


@pytest.mark.parametrize("given", [{}, *({"cuts": n} for n in range(1, 9))], ids=str)
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_thermometer_is_that_of_python(filled, uneven, metric, given):
    model = train(filled, metric=metric, **given)
    normalize = "l2" if metric == "cosine" else None
    # The queries by which cuts are chosen are places in the sample.
    drawn = filled.execute(
        'SELECT id FROM "A b".texts WHERE id >= 0 ORDER BY hashtidextended(ctid, 0) & 4294967295'
    ).fetchall()
    rows = uneven[[id_ for (id_,) in drawn]]
    hasher = Thermometer(normalize=normalize, random_state=0).fit(rows)
    same = hasher.to_model("texts", metric=metric, **given)
    assert (model.method, model.n_bits) == ("thermometer", same.n_bits)
    assert len(model.cuts) == given.get("cuts", len(same.cuts))
    assert model.parameters == same.parameters
    np.testing.assert_allclose(model.cuts, same.cuts, rtol=1e-5)
    np.testing.assert_allclose(model.layers[-1].bias, same.layers[-1].bias, rtol=1e-5, atol=1e-7)
    assert (np.bitwise_count(model.encode(uneven) ^ same.encode(uneven))).mean() < 1e-3


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("cuts", [None, 1, 4])
def test_enough_candidates_are_those_of_python(filled, uneven, metric, cuts):
    model = train(filled, metric=metric, cuts=cuts, seed=2)
    measured = model.training["recall"]
    again = train(filled, metric=metric, cuts=cuts, seed=2)
    assert (again.training["recall"], again.checksum) == (measured, model.checksum)
    same = training.train(uneven, "texts", "thermometer", metric=metric, cuts=len(model.cuts))
    expected = same.training["recall"]
    assert (measured["k"], measured["among"]) == (10, ROWS - 1)
    assert measured["value"] >= 0.98 or measured["candidates"] == 200
    assert 0.7 < measured["candidates"] / expected["candidates"] < 1.4


def test_an_index_takes_what_training_found(filled):
    filled.execute('VACUUM (FULL, ANALYZE) "A b".texts')
    model = train(filled)
    filled.execute(
        "SELECT hashindex.create_index('texts', '\"A b\".texts', 'the vector', 'texts', "
        "access => 'lists')"
    )
    found = filled.execute(
        "SELECT hashindex._usual_candidates(i, m) FROM hashindex.index i, hashindex.model m"
    ).fetchone()
    enough = model.training["recall"]["candidates"]
    assert found[0] == ceil(enough * (ROWS / (ROWS - 1)) ** 0.2) < 200


@pytest.mark.newest
@pytest.mark.parametrize("given", [{}, {"cuts": 2}, {"cuts": 8}, {"method": "sign"}], ids=str)
def test_its_profile_and_facts_are_those_of_its_rows(filled, uneven, given):
    model = train(filled, **given)
    assert model.training["rows"] == ROWS
    assert model.training["held_back_rows"] == 0
    assert model.training["seconds"] > 0
    # The last dimension is the same for all rows.
    assert model.training["distinct_bits"] == distinct_bits(model.encode(uneven), model.n_bits)
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


def test_rows_of_zeros_are_left_out_by_cosine(filled):
    """They would find each other by one code, and so recall be measured too high."""
    expected = train(filled, metric="cosine")
    filled.execute(
        'INSERT INTO "A b".texts (id, "the vector") '
        f"SELECT n, array_fill(0, ARRAY[{DIMENSION}])::vector FROM generate_series(2000, 2999) n"
    )
    model = train(filled, metric="cosine")
    assert model.training["rows"] == ROWS
    assert model.checksum == expected.checksum
    assert model.training["recall"] == expected.training["recall"]
    assert train(filled, metric="l2").training["rows"] == ROWS + 1000


def test_the_metric_is_cosine_by_default(filled):
    filled.execute("SELECT hashindex.train('m', '\"A b\".texts', 'the vector', 'sign')")
    assert store.load(filled, "m").metric == "cosine"


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
    ({"name": "none"}, '"none" cannot name a model'),
    ({"name": ""}, '"" cannot name a model'),
    ({"table_name": None}, "table_name is NULL"),
    ({"column_name": None}, "column_name is NULL"),
    ({"table_name": "nothing"}, 'relation "nothing" does not exist'),
    ({"table_name": "seen"}, "seen is not a table"),
    ({"column_name": "nothing"}, 'has no column "nothing"'),
    ({"column_name": "label"}, "is of type text, not vector or halfvec"),
    ({"method": "itq"}, 'method "itq" cannot be trained in SQL'),
    ({"method": None}, "cannot be trained in SQL"),
    ({"cuts": 0}, "cuts is 0; it must be 1 to 8"),
    ({"cuts": 9}, "cuts is 9; it must be 1 to 8"),
    ({"method": "sign", "cuts": 3}, "cuts is 3; it must be 1 to 8; sign has 1"),
    ({"metric": "l1"}, 'metric "l1" is unknown'),
    ({"metric": None}, "is unknown"),
    ({"sample": 0}, "sample is 0"),
    ({"sample": None}, "sample is NULL"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": None}, "seed is"),
    ({"sample": 500}, "500 rows are too few"),
    ({"table_name": "few"}, "1 rows are too few"),
    (
        {"table_name": "long", "cuts": 5, "force": True},
        "cuts is 5; it must be at most 4: a code has 16000 bits at most",
    ),
    ({"table_name": "empty"}, 'has no row with a vector in column "the vector"'),
    ({"table_name": "mixed"}, "holds vectors of several dimensions"),
    ({"table_name": "zeros", "metric": "cosine"}, "0 rows are too few"),
    ({"table_name": "zeros"}, "are all equal"),
]


@pytest.mark.newest
def test_one_clear_error_and_nothing_half_made(filled):
    filled.execute(
        'CREATE VIEW seen AS SELECT * FROM "A b".texts;'
        'CREATE TABLE empty (id int, "the vector" vector); INSERT INTO empty VALUES (1);'
        'CREATE TABLE few ("the vector" vector(24));'
        "INSERT INTO few SELECT array_fill(1, ARRAY[24])::vector;"
        'CREATE TABLE long ("the vector" vector(4000));'
        "INSERT INTO long SELECT array_fill(1, ARRAY[4000])::vector;"
        'CREATE TABLE zeros ("the vector" vector(24));'
        "INSERT INTO zeros SELECT array_fill(0, ARRAY[24])::vector FROM generate_series(1, 1000);"
        'CREATE TABLE mixed ("the vector" vector);'
        'INSERT INTO mixed SELECT "the vector" FROM "A b".texts; INSERT INTO mixed VALUES (\'[1]\')'
    )
    for given, message in REFUSED:
        with pytest.raises(psycopg.Error, match=message):
            train(filled, **{"name": "texts", **given})
    assert store.list_models(filled) == []


def test_force_takes_few_rows(filled):
    with pytest.raises(psycopg.Error, match="too few"):
        train(filled, sample=900)
    assert train(filled, sample=900, force=True).training["rows"] == 900


@pytest.mark.newest
@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"sample": 500}, "Let the sample have 1000 rows or more, or pass force => true."),
        ({"sample": 1, "force": True}, "Let the sample have 2 rows or more."),
        (
            {"table_name": "wide"},
            "Let the table have 1000 rows or more, or pass force => true.",
        ),
        (
            {"table_name": "wide", "metric": "cosine"},
            "Let the table have 1000 rows or more that are not zeros, or pass force => true.",
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
        train(filled, **given)
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


def test_few_vectors_in_a_table_that_counts_as_large(filled):
    """Pages are drawn until the sample is full: most rows may wait for their vectors."""
    filled.execute(
        "CREATE TABLE large (id int PRIMARY KEY, v vector(3), filler text);"
        "INSERT INTO large SELECT n, CASE WHEN n % 10 = 0 THEN ARRAY[n, n % 7, 1]::vector END, "
        "repeat('x', 100) FROM generate_series(1, 30000) n; ANALYZE large;"
        "UPDATE pg_class SET reltuples = 2e6 WHERE relname = 'large'"
    )
    given = {"table_name": "large", "column_name": "v", "method": "sign"}
    assert train(filled, **given, sample=2000).training["rows"] == 2000
    assert train(filled, **given, sample=20_000).training["rows"] == 3000
