import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import spearmanr

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ
from pg_hashindex.models.codes import pack, weighted_distances
from pg_hashindex.models.quantization import (
    code_distances,
    quantize,
    query_codes,
    weighted_query_codes,
)

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((400, 24)).astype(np.float32) * RNG.uniform(0.1, 9, (400, 1))


def signs(bits):
    return np.where(bits, 1, -1)


def unpacked(codes, n):
    return np.unpackbits(codes, axis=-1, count=n).astype(bool)


def test_zeros():
    zeros = np.zeros((1, 5), np.float32)
    assert not quantize(zeros).any()
    codes, weights = query_codes(zeros)
    assert (weights @ signs(unpacked(codes, 5))[0] == -1).all()


@settings(max_examples=60)
@given(
    st.integers(1, 40).flatmap(
        lambda n: npst.arrays(np.float32, (4, n), elements=st.floats(-100, 100, width=32))
    ),
)
def test_distances_order_as_products_with_signs(rows):
    n = rows.shape[1]
    bits = quantize(rows)
    p = rows[:1].astype(np.float64)
    p = np.float32(p / (np.linalg.norm(p) or 1))[0]
    edges = np.float32(np.arange(1, 4) * 0.586 / np.sqrt(n))
    wanted = (2 * (np.abs(p)[:, None] > edges).sum(axis=1) + 1) * signs(p > 0)
    codes, weights = query_codes(rows[:1])
    assert (weights @ signs(unpacked(codes[0], n))).tolist() == wanted.tolist()
    distances = code_distances(codes, weights, pack(bits)).astype(np.int64)
    assert (signs(bits) @ wanted == weights.sum() * n - 2 * distances).all()


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


@pytest.mark.parametrize(("metric", "least"), [("l2", 0.9), ("cosine", 0.9), ("ip", 0.8)])
def test_rows_are_ordered_as_by_the_metric(metric, least):
    """Lengths count for l2 and ip, as they do for the model, and no mean is added to products."""
    rows, queries = ROWS + np.float32(3), ROWS[:20] + np.float32(3)
    hasher = ITQ(random_state=0, normalize="l2" if metric == "cosine" else None).fit(rows)
    model = hasher.to_model("m", cuts=5)
    found = model.order(queries, metric).distances(slice(None), model.encode(rows))
    products = queries.astype(np.float64) @ rows.T
    lengths = np.linalg.norm(rows, axis=1)
    exact = {"l2": lengths**2 - 2 * products, "cosine": -products / lengths, "ip": -products}
    for coded, right in zip(found, exact[metric], strict=True):
        assert spearmanr(coded, right).statistic > least
