"""Python and SQL evaluate the same layers: the same bits, save where float32 rounding decides."""

import functools
import itertools

import numpy as np
import psycopg
import pytest
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS, make_hasher
from pg_hashindex.models import codes
from pg_hashindex.models.layers import Layer, affine, affinity, normalize, rbf, shift
from pg_hashindex.models.model import Model
from pg_hashindex.models.quantization import above_cuts
from pg_hashindex.server.data import load_packages

pytestmark = pytest.mark.newest

ROWS = 250
# Decision trees are a network, which SQL does not evaluate.
IN_SQL = [name for name in HASHERS if name != "fasth"]
# Evaluation is the same; training is what would take long.
SMALLER = {
    "ksh": {"max_labelled": 300},
    "sth": {"max_rows": 500},
    **{method: {"n_iter": 2, "n_anchors": 200} for method in ("bre", "sbre")},
    "cghash": {"max_rows": 300, "n_starts": 3},
    **{method: {"rounds": 2} for method in ("dpsh", "deep-dsh", "dhn", "ssdh")},
    "bgdh": {"rounds": 2, "pretrain": 5, "n_landmarks": 500, "embedding_hidden": (128, 64)},
    **{method: {"n_anchors": 300} for method in ("sdh", "fsdh", "sadih")},
}


@functools.cache
def packages():
    return load_packages()


@functools.cache
def trained(method, metric):
    """A hasher fitted on the packages, the same for all servers that one process tests on."""
    options = {} if method in ("sign", "thermometer") else {"n_bits": 128}
    options |= SMALLER.get(method, {})
    options |= {"normalize": "l2"} if metric == "cosine" else {}
    hasher = make_hasher(method, random_state=0, **options)
    labels = np.unique(packages().section, return_inverse=True)[1]
    hasher.fit(packages().embedding[::2], labels[::2])
    return hasher


def in_sql(connection, reference, rows):
    """Projections and bits of rows, as the database computes them."""
    width = rows.shape[1]
    connection.execute(f"CREATE TEMPORARY TABLE given (n int, v vector({width}))".encode())
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY given FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.set_types(["int4", "vector"])
        for position, row in enumerate(rows):
            copy.write_row((position, Vector(row)))
    found = connection.execute(
        "SELECT hashindex.project(%s, v), hashindex.encode(%s, v)::text FROM given ORDER BY n",
        [reference, reference],
        binary=True,
    ).fetchall()
    connection.execute("DROP TABLE given")
    projections = np.stack([vector.to_numpy() for vector, _ in found])
    return projections, np.array([[bit == "1" for bit in code] for _, code in found])


def in_python(model, rows):
    return model.project(rows), codes.unpack(model.encode(rows), model.n_bits).astype(bool)


def assert_steps_agree(connection, reference, rows, projections):
    """The expression in the functions of an index gives the very numbers of hashindex.project."""
    row = connection.execute(
        "SELECT hashindex._projection(m, '$1', format('hashindex._layers_of(%%s)', m.id)) "
        "FROM hashindex.find_model(%s) m",
        [reference],
    ).fetchone()
    connection.execute(
        "CREATE FUNCTION pg_temp.steps(vector) RETURNS vector LANGUAGE plpgsql AS "
        f"$$ BEGIN RETURN {row[0]}; END $$".encode()
    )
    for vector, projection in zip(rows, projections, strict=True):
        found = connection.execute("SELECT pg_temp.steps(%s)", [Vector(vector)]).fetchone()
        np.testing.assert_array_equal(found[0].to_numpy(), projection)
    connection.execute("DROP FUNCTION pg_temp.steps(vector)")


# Normalising is one layer more, the same for all: two methods are enough to see it.
@pytest.mark.newest
@pytest.mark.parametrize(
    ("method", "metric"),
    [
        *((name, "l2") for name in IN_SQL),
        *((name, "cosine") for name in ("sgh", "itq", "thermometer")),
    ],
)
def test_every_hasher_on_real_vectors(connection, method, metric):
    embeddings = packages().embedding
    hasher = trained(method, metric)
    cuts = hasher.default_cuts(hasher.n_bits_)
    model = store.save(connection, hasher.to_model(method, metric=metric, cuts=cuts))
    assert model.n_bits == cuts * {"sign": 384, "thermometer": 384}.get(method, 128)
    rows = embeddings[:: len(embeddings) // ROWS][:ROWS]
    theirs, their_bits = in_sql(connection, method, rows)
    assert_steps_agree(connection, method, rows[:20], theirs[:20])
    ours, our_bits = in_python(model, rows)

    scale = np.abs(ours).mean()
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-4 * scale)
    differing = their_bits != our_bits
    assert differing.mean() < 1e-5
    assert np.all(np.abs(above_cuts(ours, model.cuts))[differing] < 1e-4 * scale)
    # Half of the bits or so are ones: nothing here agrees by being constant.
    assert 0.3 < our_bits.mean() < 0.7


RNG = np.random.default_rng(11)


def integers(*shape, most=4):
    return RNG.integers(-most, most + 1, shape).astype(np.float32)


EXACT = {
    "affine": [affine(integers(13, 6), integers(13))],
    "affine without bias": [affine(integers(9, 6))],
    "one bit": [affine(integers(1, 6), integers(1))],
    "shift": [shift(integers(6))],
    "relu": [Layer("relu")],
    "shift relu affine": [shift(integers(6)), Layer("relu"), affine(integers(7, 6), integers(7))],
    "affine twice": [affine(integers(5, 6), integers(5)), affine(integers(8, 5), integers(8))],
    "affine relu stack": [
        affine(integers(10, 6), integers(10)),
        Layer("relu"),
        affine(integers(4, 10), integers(4)),
        Layer("relu"),
        shift(integers(4)),
        affine(integers(17, 4), integers(17)),
    ],
    # exp of a multiple of 0: exactly 1 at an anchor; elsewhere far below, and cut off to 0.
    # The same value for anchors at the same distance, and 0 beyond: 1, or shares of 1 / 2^k.
    "affinity to the nearest": [affinity(integers(9, 6), 1, 1), affine(integers(7, 9))],
    "affinity to two": [affinity(integers(9, 6), 1e30, 2), affine(integers(7, 9))],
    "affinity to four equal ones": [
        affinity(np.ones((5, 6)), 1e30, 4),
        affine(np.vstack([integers(7, 5), [1, -1, 1, -1, 3]])),
    ],
    "rbf at its anchors": [rbf(1000 * np.eye(6), 1e30), affine(2 * integers(9, 6), integers(9))],
}


def small_integers():
    """Rows with many ties, and so with many projections of exactly 0."""
    return np.concatenate(
        [
            np.zeros((1, 6), np.float32),
            integers(150, 6, most=2),
            integers(50, 6, most=30),
            (1000 * np.eye(6)).astype(np.float32),
        ]
    )


@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("cuts", [(0,), (-1, 1), (-1, 0, 2)], ids=len)
def test_small_integers_agree_exactly(connection, name, cuts):
    model = store.save(connection, Model("exact", "byhand", 6, EXACT[name], cuts=cuts))
    rows = small_integers()
    theirs, their_bits = in_sql(connection, "exact", rows)
    ours, our_bits = in_python(model, rows)
    np.testing.assert_array_equal(theirs, ours)
    np.testing.assert_array_equal(their_bits, our_bits)
    # The bit of a projection that is exactly at a cut is 0.
    above = above_cuts(ours, model.cuts)
    assert not their_bits[above == 0].any()
    assert (above == 0).any()


def test_quantize_by_hand(connection):
    found = connection.execute(
        "SELECT hashindex._quantize(v)::text, hashindex._quantize(v, '{-2,4}')::text "
        "FROM unnest(ARRAY['[8,-4,4,-2]', '[-8,4,5,-4]', '[0,0,0,0]']::vector[]) v"
    ).fetchall()
    assert found == [("1010", "10101000"), ("0110", "01100010"), ("0000", "11110000")]
    assert connection.execute(
        "SELECT hashindex._quantize('[1]', NULL), hashindex._quantize(NULL)"
    ).fetchone() == (None, None)


ROUNDED = {
    "normalize": [normalize()],
    "tanh": [Layer("tanh")],
    "sin": [Layer("sin")],
    "cos": [Layer("cos")],
    "rbf": [rbf(integers(7, 6), 0.05)],
    "normalize affine": [normalize(), affine(integers(9, 6))],
    "affinity": [affinity(integers(9, 6), 0.05, 3)],
    "affinity to all": [affinity(integers(9, 6), 0.05, 9)],
    "affinity to all that is far": [affinity(1000 + integers(9, 6), 0.05, 9)],
    "affinity affine relu affine": [
        affinity(integers(30, 6), 0.05, 3),
        affine(RNG.standard_normal((8, 30)), RNG.standard_normal(8)),
        Layer("relu"),
        affine(RNG.standard_normal((9, 8)), integers(9) / 8),
    ],
    "rbf shift affine": [
        rbf(integers(12, 6), 0.03),
        shift(-RNG.random(12)),
        affine(RNG.standard_normal((9, 12))),
    ],
    "affine sin affine cos": [
        affine(RNG.standard_normal((9, 6)) / 3, integers(9) / 8),
        Layer("sin"),
        affine(RNG.standard_normal((11, 9)), integers(11) / 8),
        Layer("cos"),
    ],
    "affine tanh affine relu shift": [
        affine(RNG.standard_normal((9, 6)) / 3),
        Layer("tanh"),
        affine(RNG.standard_normal((11, 9))),
        Layer("relu"),
        shift(-np.full(11, 0.7)),
    ],
}


@pytest.mark.parametrize("name", list(ROUNDED))
def test_other_layers_agree_within_rounding(connection, name):
    """If SQL and NumPy have a libm each, the last digit may differ."""
    model = store.save(connection, Model("rounded", "byhand", 6, ROUNDED[name]))
    rows = small_integers()[:-6]
    theirs, their_bits = in_sql(connection, "rounded", rows)
    ours, our_bits = in_python(model, rows)
    np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=2e-5)
    differing = their_bits != our_bits
    assert np.all(np.abs(ours[differing]) < 1e-5)


def project(connection, layers, row):
    store.save(connection, Model("byhand", "byhand", len(row), layers))
    found = connection.execute(
        "SELECT hashindex.project('byhand', %s)", [Vector(row)], binary=True
    ).fetchone()
    return [float(value) for value in found[0].to_list()]


@pytest.mark.parametrize(
    ("layer", "row", "expected"),
    [
        (Layer("sin"), [0, 0.5, -2], [0, 0.47942554, -0.90929743]),
        (Layer("cos"), [0, 0.5, -2], [1, 0.87758256, -0.41614684]),
        (Layer("tanh"), [0, 0.5, -2], [0, 0.46211716, -0.96402758]),
        # exp(-0.5), exp(-2) and exp(-0.5 * 14).
        (rbf(np.array([[1, 0, 0], [2, 0, 0], [1, 2, 3]]), 0.5), [0, 0, 0],
         [0.60653066, 0.13533528, 0.00091188]),
        # Squared distances 1, 4 and 14: shares by exp(-0.5 * 3) of the nearest.
        (affinity(np.array([[1, 0, 0], [2, 0, 0], [1, 2, 3]]), 0.5, 2), [0, 0, 0],
         [0.81757448, 0.18242552, 0]),
        (affinity(np.array([[1, 0, 0], [2, 0, 0], [1, 2, 3]]), 0.5, 3), [0, 0, 0],
         [0.81657076, 0.18220156, 0.00122766]),
        # Among equally far anchors the first ones.
        (affinity(np.array([[2, 0, 0], [0, 1, 0], [0, 0, 2], [0, -1, 0]]), 1, 1), [0, 0, 0],
         [0, 1, 0, 0]),
        (affinity(np.array([[2, 0, 0], [0, 1, 0], [0, 0, 2], [0, -1, 0]]), 1, 3), [0, 0, 0],
         [0.02428890, 0.48785555, 0, 0.48785555]),
        # So far that exp() of the distances themselves would be 0.
        (affinity(np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0]]), 1, 2), [1000, 1000, 0],
         [0.5, 0.5, 0]),
        (affinity(np.array([[3, 4, 5]]), 1, 1), [1, 1, 1], [1]),
    ],
)  # fmt: skip
def test_layers_by_hand(connection, layer, row, expected):
    np.testing.assert_allclose(project(connection, [layer], row), expected, atol=1e-7)
    np.testing.assert_allclose(
        layer.apply(np.array([row], np.float32))[0], expected, rtol=1e-6, atol=1e-7
    )


def test_affinity_takes_the_same_anchors_where_float32_cannot_tell(connection):
    """Distances of integers above 2^24: as float32 many are equal that are not, and the reverse."""
    rng = np.random.default_rng(0)
    anchors = rng.integers(-3, 4, (60, 6)) + 5000.0
    layers = [affinity(anchors, 1e-7, 4)]
    model = store.save(connection, Model("far", "byhand", 6, layers))
    rows = rng.integers(-3, 4, (300, 6)).astype(np.float32)
    exact = ((rows[:, None].astype(np.int64) - anchors.astype(np.int64)) ** 2).sum(axis=2)
    order = np.argsort(exact, axis=1, kind="stable")
    # The case is there: the fourth nearest is as far as the fifth, or nearly.
    fourth, fifth = (np.take_along_axis(exact, order[:, [k]], axis=1) for k in (3, 4))
    assert (fourth == fifth).any()
    assert ((fourth < fifth) & (fourth.astype(np.float32) == fifth.astype(np.float32))).any()
    for found in (in_sql(connection, "far", rows)[0], model.project(rows)):
        assert (np.count_nonzero(found, axis=1) == 4).all()
        assert np.take_along_axis(found, order[:, :4], axis=1).all()


EXTREME = {
    "zeros": np.zeros(6),
    "tiny": np.full(6, 1e-40),
    "least": np.full(6, 1e-45),
    "huge": np.full(6, 1e30),
    "largest": np.full(6, 3.4028235e38),
    "one huge": np.array([1e30, 0, 0, 0, 0, 0]),
    "both signs": np.array([1e38, -1e38, 1e38, -1e38, 1, -1]),
    "mixed": np.array([1e30, 1e-40, 1, -1e-40, -1e30, 0]),
}


@pytest.mark.parametrize("name", list(EXACT | ROUNDED))
def test_extremes_give_one_answer_or_an_error(connection, name):
    """Values beyond float32 are refused; where both sides accept a vector, they agree.

    A sum may overflow on the way in the order of one side, and not in that of the other.
    """
    layers = (EXACT | ROUNDED)[name]
    periodic = any(layer.kind in {"sin", "cos"} for layer in layers)
    model = store.save(connection, Model("extreme", "byhand", 6, layers))
    agreed = []
    for what, values in EXTREME.items():
        row = values.astype(np.float32)[None]
        # Two libraries need not agree on the sine of 1e30.
        if periodic and np.abs(values).max() > 1:
            continue
        try:
            theirs, their_bits = in_sql(connection, "extreme", row)
            ours, our_bits = in_python(model, row)
        except (InvalidInputError, psycopg.errors.DataError):
            connection.execute("DROP TABLE IF EXISTS given")
            continue
        agreed.append(what)
        assert np.isfinite(ours).all(), what
        scale = max(float(np.abs(ours).max()), 1e-30)
        np.testing.assert_allclose(theirs / scale, ours / scale, atol=1e-5, err_msg=what)
        differing = their_bits != our_bits
        assert np.all(np.abs(ours[differing]) <= 1e-5 * scale), what
    assert {"zeros", "tiny", "least"} <= set(agreed)


@pytest.mark.parametrize("values", [[3e38] * 6, [-3e38] * 6])
def test_overflow_is_refused_by_both(connection, values):
    weights = np.full((2, 6), 10)
    for layers in ([affine(weights)], [affine(weights), Layer("tanh")], [shift(np.array(values))]):
        model = store.save(connection, Model("over", "byhand", 6, layers))
        with pytest.raises(InvalidInputError, match="row 1 is too large"):
            model.encode([[0.0] * 6, values])
        with pytest.raises(psycopg.errors.DataError):
            connection.execute("SELECT hashindex.encode('over', %s)", [Vector(values)])


def test_a_vector_of_another_dimension(connection):
    store.save(connection, Model("six", "byhand", 6, [normalize(), affine(integers(4, 6))]))
    for function, size in itertools.product(("project", "encode"), (1, 5, 7)):
        with pytest.raises(psycopg.errors.DataError, match=f"has {size} dimensions"):
            connection.execute(
                f"SELECT hashindex.{function}('six', %s)".encode(), [Vector([1.0] * size)]
            )


def test_null_gives_null(connection):
    store.save(connection, Model("m", "byhand", 6, [affine(integers(4, 6))]))
    row = connection.execute(
        "SELECT hashindex.project('m', NULL), hashindex.encode('m', NULL), "
        "hashindex.encode(NULL, '[1,2,3,4,5,6]'), hashindex.encode_with(NULL, '[1]')"
    ).fetchone()
    assert row == (None, None, None, None)


def test_codes_compare_as_bits(connection):
    """The code's text, its length and its Hamming distances are those of the packed bytes."""
    model = store.save(connection, Model("m", "byhand", 6, [affine(integers(19, 6), integers(19))]))
    rows = integers(20, 6)
    packed = model.encode(rows)
    _, bits = in_sql(connection, "m", rows)
    np.testing.assert_array_equal(codes.pack(bits), packed)
    hamming = connection.execute(
        "SELECT bit_count(hashindex.encode('m', %s) # hashindex.encode('m', %s))",
        [Vector(rows[0]), Vector(rows[1])],
    ).fetchone()
    assert hamming == (codes.hamming_distances(packed[:1], packed[1:2])[0, 0],)
