import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import PCAH
from pg_hashindex.hashers.numerics.rows import RowSource
from pg_hashindex.hashers.pcah import principal_directions


def test_projects_on_the_singular_vectors(rows):
    hasher = PCAH(n_bits=5).fit(rows)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions[:5].T
    projections = hasher.project(rows)
    signs = np.sign((projections * expected).sum(axis=0))
    np.testing.assert_allclose(projections, expected * signs, atol=1e-4)
    np.testing.assert_allclose(hasher.explained_variance_, singular[:5] ** 2 / 400, rtol=1e-6)


@pytest.mark.parametrize("scale", [1, 1e-18, 1e18])
def test_fewer_rows_than_dimensions(scale, monkeypatch):
    """They need no covariance of all dimensions, which takes minutes for 16,000."""
    rows = np.float32(np.random.default_rng(0).standard_normal((30, 300)) * scale)
    source = RowSource(rows)
    monkeypatch.setattr(RowSource, "covariance", None)
    variances, directions = principal_directions(source, source.mean(), 20)
    _, singular, right = np.linalg.svd(rows - source.mean(), full_matrices=False)
    np.testing.assert_allclose(variances, singular[:20] ** 2 / 30, rtol=1e-5)
    np.testing.assert_allclose(directions.T @ directions, np.eye(20), atol=1e-10)
    np.testing.assert_allclose(np.abs(right[:20] @ directions), np.eye(20), atol=1e-4)


def test_directions_have_a_fixed_sign(rows):
    (layer,) = PCAH(n_bits=12).fit(rows).layers_
    assert (layer.weights.max(axis=1) == np.abs(layer.weights).max(axis=1)).all()


def test_refuses_more_bits_than_dimensions(rows):
    with pytest.raises(InvalidInputError, match=r" 12; n_bits is 13: .*sgh or lsh"):
        PCAH(n_bits=13).fit(rows)


def test_refuses_bits_of_directions_without_variance(rows):
    flat = np.hstack([rows[:, :3], np.full((400, 4), 2.5, np.float32)])
    assert PCAH(n_bits=3).fit(flat).n_bits_ == 3
    with pytest.raises(InvalidInputError, match="vary in only 3 directions"):
        PCAH(n_bits=4).fit(flat)
    with pytest.raises(InvalidInputError, match="vary in only 4 directions"):
        PCAH(n_bits=5).fit(rows[:5])


@pytest.fixture
def wide():
    """Return rows of 100 dimensions, whose variances fall by a factor of 2 each."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((100, 100)))[0]
    return (rng.standard_normal((1000, 100)) * 2.0 ** (-np.arange(100) / 2)) @ turn


def counted_covariances(monkeypatch):
    types = []
    whole = RowSource.covariance

    def covariance(self, mean, dtype=np.float64):
        types.append(dtype)
        return whole(self, mean, dtype)

    monkeypatch.setattr(RowSource, "covariance", covariance)
    return types


@pytest.mark.parametrize("offset", [0, 100])
@pytest.mark.parametrize(("n_bits", "passes"), [(8, 1), (20, 2)])
def test_many_dimensions(n_bits, passes, offset, wide, monkeypatch):
    """In float32 at first; where the directions fall too low for it, again in float64."""
    types = counted_covariances(monkeypatch)
    X = (wide + offset).astype(np.float32)
    hasher = PCAH(n_bits=n_bits).fit(X)
    assert types == [np.float32, np.float64][:passes]
    centred = X - X.mean(axis=0, dtype=np.float64)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    variances = singular[:n_bits] ** 2 / 1000
    np.testing.assert_allclose(hasher.explained_variance_, variances, rtol=2e-3)
    weights = hasher.layers_[0].weights.astype(np.float64)
    np.testing.assert_allclose(weights @ weights.T, np.eye(n_bits), atol=1e-6)
    agreement = np.abs((weights * directions[:n_bits]).sum(axis=1))
    np.testing.assert_allclose(agreement, 1, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e-12, 1e12, 1e20])
def test_any_scale(scale, wide):
    expected = principal_directions(RowSource(wide), wide.mean(axis=0), 6)
    X = wide * scale
    variances, directions = principal_directions(RowSource(X), X.mean(axis=0), 6)
    np.testing.assert_allclose(variances, expected[0] * scale**2, rtol=1e-3)
    np.testing.assert_allclose(directions, expected[1], atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1000, 100_003])
def test_covariance(dtype, offset, wide, monkeypatch):
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._BLOCK_VALUES", 100 * 64)
    X = (wide + offset).astype(np.float32)
    expected = np.cov(X.T.astype(np.float64), bias=True)
    found = RowSource(X).covariance(X.mean(axis=0, dtype=np.float64), dtype)
    assert found.dtype == np.float64
    atol = (2e-6 if dtype is np.float32 else 1e-12) * expected.max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
