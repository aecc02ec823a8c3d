import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pg_hashindex import codes
from pg_hashindex.errors import InvalidInputError

bit_arrays = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=150))


@given(bit_arrays)
def test_unpack_undoes_pack(bits):
    packed = codes.pack(bits)
    assert packed.shape == (len(bits), codes.code_bytes(bits.shape[1]))
    assert np.array_equal(codes.unpack(packed, bits.shape[1]), bits)


@given(bit_arrays)
def test_text_of_postgres_is_the_bits_in_order(bits):
    n_bits = bits.shape[1]
    for row, bit in zip(bits, codes.to_postgres(codes.pack(bits), n_bits), strict=True):
        assert bit.to_text() == "".join("01"[int(value)] for value in row)


@given(st.integers(1, 150), st.data())
def test_hamming_distance_counts_differing_bits(n_bits, data):
    arrays = hnp.arrays(bool, st.tuples(st.integers(1, 12), st.just(n_bits)))
    a, b = data.draw(arrays), data.draw(arrays)
    expected = (a[:, None] != b[None]).sum(axis=2)
    assert np.array_equal(codes.hamming_distances(codes.pack(a), codes.pack(b)), expected)


def test_first_bit_is_the_highest():
    packed = codes.pack(np.array([[True, *[False] * 8, True]]))
    assert packed.tolist() == [[0b1000_0000, 0b0100_0000]]


def test_distance_of_the_longest_codes():
    ones = np.full((1, 2000), 255, dtype=np.uint8)
    assert codes.hamming_distances(ones, np.zeros_like(ones)) == 16_000


def test_no_rows():
    assert codes.pack(np.zeros((0, 12), bool)).shape == (0, 2)
    assert codes.unpack(np.zeros((0, 2), np.uint8), 12).shape == (0, 12)
    assert codes.to_postgres(np.zeros((0, 2), np.uint8), 12) == []


@pytest.mark.parametrize("n_bits", [8, 17, 24])
def test_refuses_codes_of_another_width(n_bits):
    for act in (codes.unpack, codes.to_postgres):
        with pytest.raises(InvalidInputError, match=rf"shape \(3, 2\); {n_bits} bits need"):
            act(np.zeros((3, 2), np.uint8), n_bits)


def test_refuses_codes_of_two_models():
    with pytest.raises(InvalidInputError, match="2 bytes and codes 4"):
        codes.hamming_distances(np.zeros((1, 2), np.uint8), np.zeros((1, 4), np.uint8))
