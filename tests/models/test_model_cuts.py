"""Several cuts of a projection: the same bits in Python and SQL, ranked as distances are."""

import numpy as np
import psycopg
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ, LSH, PCAH, Thermometer, make_hasher
from pg_hashindex.models import codes
from pg_hashindex.models.layers import affine, shift
from pg_hashindex.models.model import Model
from pg_hashindex.models.quantization import above_cuts, quantize
from pg_hashindex.training import train

CUTS = (-1.5, 0.0, 2.0)
ROWS = np.random.default_rng(4).standard_normal((1200, 16)).astype(np.float32)


def byhand(layers=None, **given):
    weights = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    return Model("byhand", "byhand", 4, layers or [affine(weights)], **{"cuts": CUTS, **given})


def test_bits_of_the_first_cut_come_first():
    projections = np.array([[-2.0, 1.0], [0.0, 3.0], [2.0, -1.5]], np.float32)
    bits = [[0, 1, 0, 1, 0, 0], [1, 1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(quantize(projections, CUTS), bits)
    assert above_cuts(projections, (0.0,)) is projections


def test_a_model_and_its_file():
    model = byhand()
    assert (model.n_projections, model.n_bits, model.cuts) == (2, 6, CUTS)
    again = Model.from_bytes(model.to_bytes())
    assert (again.cuts, again.checksum) == (CUTS, model.checksum)
    signs = byhand(cuts=(0.0,))
    assert signs.checksum not in (model.checksum, byhand(cuts=(0.5,)).checksum)
    assert b"cuts" not in signs.to_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cuts": ()}, "finite rising numbers, got \\(\\)"),
        ({"cuts": (0.0, 0.0)}, "finite rising"),
        ({"cuts": (1.0, np.nan)}, "finite rising"),
        ({"cuts": (0.0, 1e39)}, "finite rising"),
        ({"bit_weights": np.ones(6)}, "has weights of bits, so it has one cut"),
        (
            {"layers": [shift(np.zeros(4)), affine(np.ones((6000, 4)))]},
            "6000 projections with 3 cuts take 18000 bits, more than the 16000",
        ),
    ],
    ids=str,
)
def test_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        byhand(**given)


@pytest.mark.parametrize("n_cuts", range(2, 9))
@pytest.mark.parametrize("kind", [ITQ, PCAH, LSH, Thermometer])
def test_cuts_are_multiples_of_the_deviation(kind, n_cuts):
    hasher = kind(random_state=1).fit(ROWS)
    model = hasher.to_model("m", cuts=n_cuts)
    assert len(model.cuts) == n_cuts
    assert model.n_bits == n_cuts * model.n_projections
    deviation = np.sqrt(np.mean(model.project(ROWS).astype(float) ** 2))
    step = {2: 1.0, 3: 0.8, 4: 0.8, 5: 0.7, 6: 0.6, 7: 0.5, 8: 0.5}[n_cuts]
    np.testing.assert_allclose(np.diff(model.cuts), step * deviation, rtol=1e-5)
    # As many to either side of 0, and one there if their number is odd.
    np.testing.assert_array_equal(model.cuts, -np.flip(model.cuts))
    assert (0 in model.cuts) == (n_cuts % 2 == 1)
    assert model.profile is not None
    bits = codes.unpack(model.encode(ROWS), model.n_bits)
    np.testing.assert_array_equal(model.profile.ones, bits.sum(axis=0))


def test_hamming_distances_are_those_of_levels():
    model = Thermometer(random_state=0).fit(ROWS).to_model("m", cuts=3)
    levels = (model.project(ROWS)[:, :, None] > np.array(model.cuts, np.float32)).sum(axis=2)
    encoded = model.encode(ROWS)
    found = codes.hamming_distances(encoded[:5], encoded)
    np.testing.assert_array_equal(found, np.abs(levels[:5, None] - levels[None]).sum(axis=2))


def test_thermometer_by_dimensions():
    def bits(dimension, **given):
        # Too few rows to measure by.
        X = np.random.default_rng(0).standard_normal((11, dimension))
        return Thermometer(**given).fit(X).to_model("m").n_bits

    assert [bits(n) for n in (768, 5333, 5334, 8001, 1)] == [3 * 768, 15999, 10668, 8001, 3]
    assert [bits(8, n_bits=n) for n in (8, 16, 64)] == [8, 16, 64]
    for n in (4, 20, 72):
        with pytest.raises(InvalidInputError, match=f"1 to 8 times 8, or left out; got {n}"):
            bits(8, n_bits=n)


def test_recorded_parameters_of_a_thermometer_repeat_its_training():
    for given, metric, cuts in (
        ({}, "l2", None),
        ({}, "ip", None),
        ({}, "l2", 5),
        ({"n_bits": 32}, "l2", None),
    ):
        model = (
            Thermometer(random_state=0, **given).fit(ROWS).to_model("m", metric=metric, cuts=cuts)
        )
        assert model.parameters["n_bits"] == model.n_bits
        again = make_hasher("thermometer", **model.parameters).fit(ROWS)
        same = again.to_model("m", metric=metric)
        assert (same.checksum, same.parameters) == (model.checksum, model.parameters)


def test_parameters_that_are_set_after_training_change_no_model():
    hasher = Thermometer(random_state=0).fit(ROWS)
    before = hasher.to_model("m")
    hasher.set_params(n_bits=16, normalize="l2", random_state=7)
    after = hasher.to_model("m")
    assert (after.checksum, after.parameters) == (before.checksum, before.parameters)
    assert hasher.fit(ROWS).to_model("m").n_bits == 16


def test_training_takes_the_length_of_a_code():
    model = train(ROWS, "m", "itq", n_bits=24, cuts=3)
    assert (model.n_projections, model.n_bits) == (8, 24)
    shapes = {n: train(ROWS, "m", "sgh", n_bits=n).n_projections for n in (None, 24, 25)}
    assert shapes == {None: 120, 24: 8, 25: 25}
    assert train(ROWS, "m", "lsh").n_bits == 3 * 120
    assert train(ROWS, "m", "itq", cuts=1).n_bits == 16
    assert train(ROWS, "m", "thermometer", n_bits=80, cuts=5).n_bits == 80
    assert train(ROWS, "m", "thermometer", n_bits=80).n_bits == 80
    for given, message in (
        ({"n_bits": 25, "cuts": 3}, "25 bits cannot be divided among 3 cuts"),
        ({"cuts": 9}, "cuts must be 1 to 8, got 9"),
        ({"cuts": 3, "method": "sign"}, "models of sign have one cut"),
        ({"n_bits": 16_002}, "n_bits"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            train(ROWS, "m", **{"method": "itq", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_as_many_cuts_as_the_rows_ask_for(spread):
    """One cut tells clusters apart; of rows without clusters more cuts need fewer candidates."""
    rng = np.random.default_rng(7)
    centres = spread * rng.standard_normal((200, 64))
    X = centres[rng.integers(200, size=3000)] + rng.standard_normal((3000, 64))
    hasher = Thermometer(random_state=0).fit(X)
    chosen = len(hasher.to_model("m").cuts)
    costs = {}
    for cuts in range(1, 9):
        packed = hasher.to_model("m", cuts=cuts).encode(X)
        asking = np.arange(29, 3000, 30)
        places = []
        for query in asking:
            far = np.square(X - X[query]).sum(axis=1)
            far[query] = np.inf
            line = codes.hamming_distances(packed[[query]], packed)[0]
            others = np.sort(np.delete(line, query))
            places += [np.searchsorted(others, line[row], "right") for row in np.argsort(far)[:10]]
        costs[cuts] = np.quantile(places, 0.98) * (2 + cuts)
    assert costs[chosen] <= 1.2 * min(costs.values())
    assert len(train(X, "m", "thermometer").cuts) in range(1, 9)


def test_more_cuts_need_fewer_candidates():
    found = {}
    for cuts in (1, 3):
        recall = train(ROWS, "m", "thermometer", cuts=cuts).training["recall"]
        found[cuts] = recall["candidates"]
    assert found[3] < found[1]


def test_stored_and_encoded_in_sql(connection):
    model = store.save(connection, byhand())
    assert store.load(connection, "byhand").cuts == CUTS
    assert store.describe(connection, "byhand").cuts == list(CUTS)
    # Projections of small integers are exact, and some are at a cut.
    rows = np.random.default_rng(2).integers(-3, 4, (100, 4)).astype(np.float32) / 2
    assert np.isin(model.project(rows), CUTS).any()
    for row, bits in zip(rows, codes.unpack(model.encode(rows), 6), strict=True):
        found = connection.execute(
            "SELECT hashindex.encode('byhand', %s)::text", [Vector(row)]
        ).fetchone()
        assert found == ("".join("01"[int(bit)] for bit in bits),)


def test_a_script_keeps_cuts(connection):
    saved = store.save(connection, byhand())
    connection.execute(store.script(connection, "byhand").encode())
    assert store.load(connection, "byhand:2").checksum == saved.checksum


@pytest.mark.newest
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cuts = '{0,NULL}'", "cuts"),
        ("cuts = '{1,0}'", "cuts are finite and rising|has cuts"),
        ("cuts = '{}', n_bits = 0", "n_bits|cuts"),
        ("cuts = '{0,Infinity}'", "has cuts"),
        ("cuts = '{0,1}'", "with 2 cuts, and its codes have 6 bits"),
        ("bit_weights = '[1,1,1,1,1,1]'", "weights of bits or a network"),
    ],
)
def test_sql_refuses_what_python_refuses(connection, change, message):
    store.save(connection, byhand())
    connection.execute("CREATE TEMPORARY TABLE given AS SELECT * FROM hashindex.model")
    connection.execute(f"UPDATE given SET version = 2, {change}".encode())
    connection.execute("ALTER TABLE given DROP COLUMN id")
    columns = connection.execute(
        "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute "
        "WHERE attrelid = 'given'::regclass AND attnum > 0 AND NOT attisdropped"
    ).fetchone()
    with pytest.raises(psycopg.errors.IntegrityError, match=message):
        connection.execute(
            f"INSERT INTO hashindex.model ({columns[0]}) SELECT {columns[0]} FROM given".encode()
        )


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_an_index_of_a_model_with_cuts(connection, items, vectors, access):
    model = Thermometer(random_state=0).fit(vectors).to_model("cut", metric="l2")
    store.save(connection, model)
    index = begin_lists(
        connection, "cut", table=items, column="embedding", model="cut", access=access,
    )  # fmt: skip
    index.encode()
    query = Vector(vectors[0])
    order = model.order(vectors[:1], "l2")
    expected = order.distances(slice(0, 1), model.encode(vectors))[0]
    if access == "scan":
        found = connection.execute(
            "SELECT id::bigint FROM hashindex.candidates('cut', %s, 30)", [query]
        )
        assert sorted(expected[id_ - 1] for (id_,) in found) == sorted(expected)[:30]
    exact = np.argsort(((vectors - vectors[0]) ** 2).sum(axis=1))[:10] + 1
    hits = index.search(vectors[0], 10, candidates=100)
    assert len({hit.id for hit in hits} & {*exact.tolist()}) >= 9
    found = {
        finding.check: finding.status for finding in operations.check(index, full=True).findings
    }
    assert {found[name] for name in ("bits", "correlation", "bit_drift", "wrong_codes")} == {"ok"}
    # Triggers give new rows codes too.
    connection.execute("INSERT INTO items (id, embedding) VALUES (1000, %s)", [query])
    assert index.encode() == 0
    assert 1000 in {hit.id for hit in index.search(vectors[0], 2)}
