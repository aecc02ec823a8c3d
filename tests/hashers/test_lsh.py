import numpy as np

from pg_hashindex.hashers import LSH
from pg_hashindex.models import codes


def test_directions_are_gaussian_through_the_mean(rows):
    hasher = LSH(n_bits=2000, random_state=5).fit(rows)
    (layer,) = hasher.layers_
    assert np.array_equal(
        layer.weights, np.random.default_rng(5).standard_normal((2000, 12)).astype(np.float32)
    )
    mean = rows.mean(axis=0, dtype=np.float64)
    expected = (rows - mean) @ layer.weights.T.astype(np.float64)
    np.testing.assert_allclose(hasher.project(rows), expected, atol=1e-4)


def test_share_of_differing_bits_is_the_angle(rows):
    n_bits = 16_000
    hasher = LSH(n_bits=n_bits, random_state=0).fit(rows)
    centred = rows[:40] - rows.mean(axis=0, dtype=np.float64)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    share = np.arccos(np.clip(unit @ unit.T, -1, 1)) / np.pi
    encoded = hasher.encode(rows[:40])
    found = codes.hamming_distances(encoded, encoded) / n_bits
    # Five standard deviations of a mean of n_bits coin tosses.
    assert np.abs(found - share).max() < 5 * 0.5 / np.sqrt(n_bits)


def test_gives_more_bits_than_dimensions(rows):
    assert LSH(n_bits=100).fit(rows).encode(rows).shape == (400, 13)
