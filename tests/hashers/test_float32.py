"""Float32: values of any size, weights that it does not blur, no bits of rounding."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import AGH, KSH, S3PLH, SDH, SGH, USPLH


@pytest.mark.parametrize("kind", [USPLH, S3PLH])
@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_size_of_values_does_not_matter(kind, factor, rows, labels):
    expected = kind(n_bits=12).fit(rows, labels).project(rows)
    found = kind(n_bits=12).fit(factor * rows, labels).project(factor * rows)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("factor", [2.0**-36, 2.0**36])
def test_size_of_values_hardly_matters_to_k_means(factor, rows):
    expected = AGH(n_bits=8, random_state=0).fit(rows).encode(rows)
    found = AGH(n_bits=8, random_state=0).fit(factor * rows).encode(factor * rows)
    assert (found == expected).mean() > 0.99


@pytest.mark.parametrize("kind", [AGH, SDH])
@pytest.mark.parametrize("size", [1e-20, 1e18])
def test_refuses_rows_of_a_size_beyond_float32(kind, size, rows, labels):
    scaled = (size * rows).astype(np.float32)
    with pytest.raises(InvalidInputError, match="mean squared distance of the rows is .* multiply"):
        kind(n_bits=8, random_state=0).fit(scaled, labels)
    assert kind(n_bits=8, normalize="l2", random_state=0).fit(scaled, labels).n_bits_ == 8


@pytest.mark.parametrize("size", [1e-25, 1e18])
def test_sgh_refuses_rows_of_such_a_size_only_as_they_are(size, rows):
    scaled = (size * rows).astype(np.float32)
    with pytest.raises(InvalidInputError, match="mean squared distance of the rows is .* multiply"):
        SGH(n_bits=8, scale=None, random_state=0).fit(scaled)
    assert SGH(n_bits=8, random_state=0).fit((1e-10 * rows).astype(np.float32)).n_bits_ == 8


@pytest.mark.parametrize(("kind", "n_bits"), [(USPLH, 6), (S3PLH, 40)])
def test_no_bit_is_made_of_rounding(kind, n_bits, rows, labels):
    flat = rows.copy()
    flat[:, 5:] = 1 + 1e-7 * flat[:, 5:]
    hasher = kind(n_bits=n_bits).fit(flat, labels)
    projections = hasher.project(flat)
    assert projections.std(axis=0).min() > 1e-4
    assert np.abs(hasher.layers_[0].weights[:, 5:]).max() < 1e-3
    assert ((projections > 0).mean(axis=0) > 0.02).all()


@pytest.mark.parametrize("kind", [KSH, SDH])
def test_weights_are_of_a_size_at_which_rounding_does_not_reach_the_bits(kind, rows, labels):
    hasher = kind(n_bits=32, random_state=0).fit(rows, labels)
    rbf, shift, affine = hasher.layers_
    squares = ((rows[:, None].astype(np.float64) - rbf.weights[None]) ** 2).sum(axis=2)
    K = np.exp(-rbf.scale * squares) + shift.bias
    exact = K @ affine.weights.T.astype(np.float64) + affine.bias
    assert np.sqrt(np.mean((hasher.project(rows) - exact) ** 2)) < 3e-5 * exact.std()
