import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models import codes

bit_arrays = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=150))


@given(bit_arrays)
def test_unpack_undoes_pack(bits):
    packed = codes.pack(bits)
    assert packed.shape == (len(bits), codes.code_bytes(bits.shape[1]))
    assert np.array_equal(codes.unpack(packed, bits.shape[1]), bits)


@given(st.integers(1, 150), st.data())
def test_hamming_distance_counts_differing_bits(n_bits, data):
    arrays = hnp.arrays(bool, st.tuples(st.integers(1, 12), st.just(n_bits)))
    a, b = data.draw(arrays), data.draw(arrays)
    expected = (a[:, None] != b[None]).sum(axis=2)
    assert np.array_equal(codes.hamming_distances(codes.pack(a), codes.pack(b)), expected)


@given(n_bits=st.integers(1, 130), seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
def test_spherical_distance_divides_by_the_common_bits(n_bits, seed, share):
    a, b = np.random.default_rng(seed).random((2, 7, n_bits)) < share
    found = codes.spherical_distances(codes.pack(a), codes.pack(b))
    for i in range(7):
        for j in range(7):
            differing, common = (a[i] ^ b[j]).sum(), (a[i] & b[j]).sum()
            if common:
                assert found[i, j] == differing / common
            else:
                assert found[i, j] == (8 * -(-n_bits // 8) + 1 if differing else 0)


def test_first_bit_is_the_highest():
    packed = codes.pack(np.array([[True, *[False] * 8, True]]))
    assert packed.tolist() == [[0b1000_0000, 0b0100_0000]]


def test_distance_of_the_longest_codes():
    ones = np.full((1, 2000), 255, dtype=np.uint8)
    assert codes.hamming_distances(ones, np.zeros_like(ones)) == 16_000


def test_no_rows():
    assert codes.pack(np.zeros((0, 12), bool)).shape == (0, 2)
    assert codes.unpack(np.zeros((0, 2), np.uint8), 12).shape == (0, 12)


@pytest.mark.parametrize("n_bits", [8, 17, 24])
def test_refuses_codes_of_another_width(n_bits):
    with pytest.raises(InvalidInputError, match=rf"shape \(3, 2\); {n_bits} bits need"):
        codes.unpack(np.zeros((3, 2), np.uint8), n_bits)


def test_refuses_codes_of_two_models():
    with pytest.raises(InvalidInputError, match="2 bytes and codes 4"):
        codes.hamming_distances(np.zeros((1, 2), np.uint8), np.zeros((1, 4), np.uint8))


@given(st.integers(1, 70), st.data())
def test_weighted_distance_adds_up_the_weights_of_differing_bits(n_bits, data):
    arrays = hnp.arrays(bool, st.tuples(st.integers(1, 12), st.just(n_bits)))
    a, b = data.draw(arrays), data.draw(arrays)
    weight = st.one_of(st.just(0.0), st.floats(2**-20, 2**20))
    weights = data.draw(hnp.arrays(np.float64, n_bits, elements=weight).filter(np.any))
    expected = ((a[:, None] != b[None]) * weights).sum(axis=2)
    measured = codes.weighted_distances(codes.pack(a), codes.pack(b), weights)
    np.testing.assert_allclose(measured, expected, rtol=0, atol=n_bits * 2**-51 * weights.sum())


@given(st.integers(1, 300), st.floats(1e-300, 1e300), st.integers(0, 9))
def test_equal_weights_tie_as_bits_do(n_bits, weight, seed):
    """0.1 + 0.2 and 0.3 differ in float64: here the order of the bits must not matter."""
    rng = np.random.default_rng(seed)
    a, b = codes.pack(rng.random((3, n_bits)) < 0.5), codes.pack(rng.random((50, n_bits)) < 0.5)
    hamming = codes.hamming_distances(a, b)
    weighted = codes.weighted_distances(a, b, np.full(n_bits, weight))
    assert len(np.unique(weighted)) == len(np.unique(hamming))
    np.testing.assert_allclose(weighted, hamming * weight, rtol=1e-12)


def test_equal_sums_of_other_bits_are_equal_numbers():
    bits = np.array([[1, 1, 0], [0, 0, 1]], bool)
    distances = codes.weighted_distances(np.zeros((1, 1), np.uint8), codes.pack(bits), [1, 2, 3])
    assert distances.tolist() == [[3.0, 3.0]]


def test_weights_in_blocks(monkeypatch):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 256, (n, 4), dtype=np.uint8) for n in (5, 100))
    weights = rng.random(32).astype(np.float32)
    whole = codes.weighted_distances(a, b, weights)
    monkeypatch.setattr("pg_hashindex.models.codes._BLOCK_BITS", 7 * 32)
    assert np.array_equal(codes.weighted_distances(a, b, weights), whole)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], r"shape \(3, 2\); 3 bits need \(n, 1\)"),
        ([], r"shape \(0,\)"),
        (np.ones((16, 1)), r"shape \(16, 1\)"),
        (np.zeros(16), "at least one above 0"),
        ([-1.0] + [1.0] * 15, "got -1.0 to 1.0"),
        ([np.nan] * 16, "finite"),
        ([np.inf] * 16, "finite"),
    ],
)
def test_refuses_weights(weights, message):
    with pytest.raises(InvalidInputError, match=message):
        codes.weighted_distances(np.zeros((3, 2), np.uint8), np.zeros((3, 2), np.uint8), weights)
