import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import PCAH


def test_projects_on_the_singular_vectors(rows):
    hasher = PCAH(n_bits=5).fit(rows)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions[:5].T
    projections = hasher.project(rows)
    signs = np.sign((projections * expected).sum(axis=0))
    np.testing.assert_allclose(projections, expected * signs, atol=1e-4)
    np.testing.assert_allclose(hasher.explained_variance_, singular[:5] ** 2 / 400, rtol=1e-6)


def test_directions_have_a_fixed_sign(rows):
    (layer,) = PCAH(n_bits=12).fit(rows).layers_
    assert (layer.weights.max(axis=1) == np.abs(layer.weights).max(axis=1)).all()


def test_refuses_more_bits_than_dimensions(rows):
    with pytest.raises(InvalidInputError, match=r"n_bits is 13, .* 12; .*sgh or lsh"):
        PCAH(n_bits=13).fit(rows)


def test_refuses_bits_of_directions_without_variance(rows):
    flat = np.hstack([rows[:, :3], np.full((400, 4), 2.5, np.float32)])
    assert PCAH(n_bits=3).fit(flat).n_bits_ == 3
    with pytest.raises(InvalidInputError, match="vary in only 3 directions"):
        PCAH(n_bits=4).fit(flat)
    with pytest.raises(InvalidInputError, match="vary in only 4 directions"):
        PCAH(n_bits=5).fit(rows[:5])
