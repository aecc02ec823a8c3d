import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import spearmanr

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ, CGHash, make_hasher
from pg_hashindex.models.codes import pack, weighted_distances
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import MAX_BITS, Model
from pg_hashindex.models.network import known_rows
from pg_hashindex.models.quantization import (
    QueryOrder,
    code_distances,
    distances_to_edges,
    quantize,
    query_codes,
    row_numbers,
    weighted_query_codes,
)
from pg_hashindex.training import train

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((400, 24)).astype(np.float32) * RNG.uniform(0.1, 9, (400, 1))


def signs(bits):
    return np.where(bits, 1, -1)


def levels_of(bits):
    v1, v2 = np.hsplit(bits, 2)
    return 2 * signs(v1) + signs(v2)


def unpacked(codes, n):
    return np.unpackbits(codes, axis=-1, count=n).astype(bool)


def test_four_levels_by_hand():
    # Four numbers of norm 10 have a standard deviation of 5.
    rows = np.array([[8, -4, 4, -2], [-8, 4, 2, -4], [5, -5, 5, 5]], dtype=np.float32)
    expected = [[3, -1, 1, -1], [-3, 1, 1, -1], [1, -1, 1, 1]]
    assert levels_of(quantize(rows, 4)).tolist() == expected


def test_zeros():
    zeros = np.zeros((1, 5), np.float32)
    assert not quantize(zeros, 2).any()
    assert levels_of(quantize(zeros, 4)).tolist() == [[-1] * 5]
    codes, weights = query_codes(zeros, 2)
    assert (weights @ signs(unpacked(codes, 5))[0] == -1).all()
    assert quantize(np.full((1, 3), 1e-45, np.float32), 4).tolist() == [[True] * 3 + [False] * 3]


@pytest.mark.parametrize("levels", [2, 4])
def test_codes_do_not_depend_on_the_length_of_the_row(levels):
    for factor in (1e-20, 0.25, 1e15):
        scaled = (ROWS * factor).astype(np.float32)
        near = distances_to_edges(ROWS, levels) < 1e-5 * np.linalg.norm(ROWS, axis=1)[:, None]
        differ = quantize(scaled, levels) != quantize(ROWS.astype(np.float32), levels)
        assert not (differ & ~near).any()


def test_distances_to_edges():
    row = np.array([[8, -4, 4, -2]], dtype=np.float32)
    assert distances_to_edges(row, 2).tolist() == [[8, 4, 4, 2]]
    assert distances_to_edges(row, 4).tolist() == [[8, 4, 4, 2, 3, 1, 1, 2]]


@settings(max_examples=60)
@given(
    st.integers(1, 40).flatmap(
        lambda n: npst.arrays(np.float32, (4, n), elements=st.floats(-100, 100, width=32))
    ),
    st.sampled_from([2, 4]),
)
def test_distances_order_as_products_of_levels(rows, levels):
    n = rows.shape[1]
    bits = quantize(rows, levels)
    p = rows[:1].astype(np.float64)
    p = p / (np.linalg.norm(p) or 1)
    step, most = (0.586, 4) if levels == 2 else (0.335, 8)
    edges = np.float32(np.arange(1, most) * step / np.sqrt(n))
    steps = (np.abs(np.float32(p))[0, :, None] > edges).sum(axis=1)
    sign = signs(np.float32(p[0]) > 0)
    wanted = (2 * steps + 1) * sign
    if levels == 4:
        # The second bit counts half as much as the first: for it the query has half as many levels.
        wanted = np.append(wanted, (2 * (steps // 2) + 1) * sign)
    codes, weights = query_codes(rows[:1], levels)
    assert (weights @ signs(unpacked(codes[0], bits.shape[1]))).tolist() == wanted.tolist()
    distances = code_distances(codes, weights, pack(bits)).astype(np.int64)
    assert (signs(bits) @ wanted == weights.sum() * len(wanted) - 2 * distances).all()


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(
            npst.arrays(bool, (3, n)), npst.arrays(np.int64, n, elements=st.integers(0, 15))
        )
    )
)
def test_learned_weights_are_five_codes(drawn):
    bits, whole = drawn
    whole[0] = 15
    codes = pack(bits)
    asked, weights = weighted_query_codes(codes[:1], whole * 0.3)
    assert weights.tolist() == [15, 1, 2, 4, 8]
    distances = code_distances(asked, weights, codes).astype(np.int64)
    expected = weighted_distances(codes[:1], codes, whole)
    assert (distances - distances[0, 0] == 2 * expected).all()


def test_distances_of_long_codes_do_not_overflow():
    asked = np.zeros((1, 2, 2000), np.uint8)
    codes = np.full((1, 2000), 255, np.uint8)
    assert code_distances(asked, np.array([12, 4]), codes).tolist() == [[16 * 16000]]
    with pytest.raises(InvalidInputError, match="there are 3 weights"):
        code_distances(asked, np.array([1, 2, 3]), codes)


def test_models_of_four_levels():
    hasher = ITQ(n_bits=12, random_state=0).fit(ROWS)
    model, plain = hasher.to_model("m", levels=4), hasher.to_model("m")
    assert (model.n_projections, model.n_bits, plain.n_bits) == (12, 24, 12)
    assert model.project(ROWS).shape == (400, 12)
    codes = model.encode(ROWS)
    assert codes.shape == (400, 3)
    assert (unpacked(codes, 12) == unpacked(plain.encode(ROWS), 12)).all()
    assert model.checksum != plain.checksum
    again = Model.from_bytes(model.to_bytes())
    assert (again.levels, again.checksum) == (4, model.checksum)
    assert (again.encode(ROWS) == codes).all()
    assert Model.from_bytes(plain.to_bytes()).levels == 2


def test_models_without_projections_are_refused():
    rows = ROWS[:3].astype(np.float32)
    network = known_rows([rows], np.zeros((3, 1), np.uint8), 8)
    with pytest.raises(InvalidInputError, match="is of kind rows and gives codes"):
        Model("m", "x", 24, [], network=network, levels=4)
    layers = [affine(np.eye(2))]
    with pytest.raises(InvalidInputError, match="weights of bits, so it cannot have 4 levels"):
        Model("m", "x", 2, layers, bit_weights=np.ones(4), levels=4)
    with pytest.raises(InvalidInputError, match=f"more than the {MAX_BITS} of a code"):
        Model("m", "x", 1, [affine(np.ones((8001, 1)))], levels=4)
    with pytest.raises(InvalidInputError, match="levels must be 2 or 4, got 8"):
        Model("m", "x", 2, layers, levels=8)


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (CGHash(n_bits=4), "cghash learns weights of bits, so its models have 2 levels"),
        (make_hasher("bgdh", n_bits=4, variant="transductive"), "bgdh keeps codes, no projections"),
    ],
)
def test_hashers_say_before_they_learn_that_they_have_two_levels(hasher, message):
    hasher.check_levels(2)
    with pytest.raises(InvalidInputError, match=message):
        hasher.check_levels(4)


def test_training_measures_four_levels_by_the_asymmetric_distance():
    X = np.random.default_rng(0).standard_normal((3000, 48)).astype(np.float32)
    kept = {levels: train(X, "m", "itq", n_bits=24, levels=levels) for levels in (2, 4)}
    assert {levels: model.n_bits for levels, model in kept.items()} == {2: 24, 4: 48}
    recalls = {levels: model.training["recall"]["value"] for levels, model in kept.items()}
    assert recalls[4] > recalls[2] + 0.1
    assert kept[4].profile.n_bits == 48


def test_numbers_by_hand():
    # Length 10, so one deviation is 5: the levels are 3, -1, 1, -1, and <u, levels> = 34 / 10.
    numbers = row_numbers(np.array([[8, -4, 4, -2], [0, 0, 0, 0]], np.float32))
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers, [[10, 10 / 34], [0, 0]], rtol=1e-6)


@settings(max_examples=60)
@given(
    npst.arrays(np.float32, (3, 6), elements=st.floats(-4, 4, width=32, allow_subnormal=False)),
    st.floats(-120, 120),
)
def test_numbers_estimate_the_projection_itself(rows, exponent):
    """The inner product of a row with itself has no error: length * fit * <row, levels>."""
    rows = (rows.astype(np.float64) * 2.0**exponent).astype(np.float32)
    lengths, fits = row_numbers(rows).astype(np.float64).T
    levels = levels_of(quantize(rows, 4))
    squares = np.square(rows.astype(np.float64)).sum(axis=1)
    estimates = lengths * fits * (rows.astype(np.float64) * levels).sum(axis=1)
    # A projection next to the edge of a level may count as the other one.
    np.testing.assert_allclose(estimates, squares, rtol=1e-3)


def test_the_longest_rows_have_finite_numbers():
    numbers = row_numbers(np.full((2, 64), 3e38, np.float32))
    assert np.isfinite(numbers).all()
    np.testing.assert_allclose(numbers[0], [3e38, 1 / 8], rtol=1e-6)


@pytest.mark.parametrize("product", [False, True])
def test_numbers_order_rows_as_their_projections(product):
    """The estimate is that of the formula, and orders rows nearly as the exact expectation."""
    queries = ROWS[:20]
    order = QueryOrder.of_numbers(queries, product=product)
    codes, numbers = pack(quantize(ROWS, 4)), row_numbers(ROWS)
    found = order.distances(slice(0, 20), codes, numbers)
    exact = -(queries.astype(np.float64) @ ROWS.T)
    if not product:
        exact = np.square(ROWS).sum(axis=1) + 2 * exact
    for estimated, right in zip(found, exact, strict=True):
        assert spearmanr(estimated, right).statistic > 0.85
    # Codes alone tell the direction, which for rows of such different lengths is not enough.
    alone = order.distances(slice(0, 20), codes)
    assert spearmanr(alone[0], exact[0]).statistic < 0.9


def test_models_that_keep_numbers():
    def kept(metric, levels=4, **parameters):
        model = ITQ(n_bits=8, **parameters).fit(ROWS).to_model("m", levels=levels)
        return model.keeps_numbers(metric)

    metrics = ("l2", "cosine", "ip")
    assert [kept(metric) for metric in metrics] == [True, False, True]
    assert [kept(metric, normalize="l2") for metric in metrics] == [False, True, False]
    assert not kept("l2", levels=2)
