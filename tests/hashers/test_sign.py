import numpy as np
import pytest

from pg_hashindex.hashers import Sign
from pg_hashindex.models import codes


@pytest.mark.parametrize(
    ("center", "centre_of"),
    [
        ("mean", lambda X: X.mean(axis=0, dtype=np.float64)),
        ("median", lambda X: np.median(X, axis=0)),
        (None, lambda X: np.zeros(X.shape[1])),
    ],
)
def test_is_the_sign_of_each_dimension(center, centre_of, rows):
    hasher = Sign(center=center).fit(rows)
    expected = rows > centre_of(rows).astype(np.float32)
    assert np.array_equal(codes.unpack(hasher.encode(rows), 12), expected)
    assert hasher.n_bits_ == hasher.to_model("m").parameters["n_bits"] == 12


def test_normalizes_before_it_centres(rows):
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    hasher = Sign(center="median", normalize="l2").fit(rows)
    expected = unit - np.median(unit, axis=0)
    np.testing.assert_allclose(hasher.project(rows), expected, atol=1e-6)


def test_median_splits_rows_in_halves(rows):
    bits = codes.unpack(Sign(center="median").fit(rows).encode(rows), 12)
    assert (bits.sum(axis=0) == 200).all()


def test_median_of_too_many_rows_is_of_a_sample(rows, monkeypatch):
    monkeypatch.setattr("pg_hashindex.hashers.sign._MEDIAN_VALUES", 100 * 12)
    hasher = Sign(center="median", random_state=1).fit(lambda: np.split(rows, 10))
    sample = np.random.default_rng(1).choice(400, 100, replace=False)
    assert np.array_equal(-hasher.layers_[0].bias, np.median(rows[sample], axis=0))
