import numpy as np
import pytest

from pg_hashindex.hashers import SIKH, sikh
from pg_hashindex.models import codes


def literal_sikh(X, n_bits, width, seed):
    """Draw w, b and t once, as the hasher does, and apply equation by equation."""
    rng = np.random.default_rng(seed)
    rng.choice(len(X), len(X), replace=False)
    w = rng.standard_normal((n_bits, X.shape[1])) / width
    b, t = rng.uniform(0, 2 * np.pi, n_bits), rng.uniform(-1, 1, n_bits)
    Z = X - X.mean(axis=0, dtype=np.float64)
    return np.array([[np.cos(w[k] @ z + b[k]) + t[k] for k in range(n_bits)] for z in Z])


def expected_share(distance, width):
    """Return the share of differing bits: lemma of the paper, for the Gaussian kernel."""
    m = np.arange(1, 2000)[:, None]
    K = np.exp(-((m * distance) ** 2) / (2 * width**2))
    return 8 / np.pi**2 * ((1 - K) / (4 * m**2 - 1)).sum(axis=0)


@pytest.fixture
def no_redraw(monkeypatch):
    """Take the first wave drawn for each bit, as the paper does."""
    monkeypatch.setattr(sikh, "_LEAST_SHARE", 0)


@pytest.fixture(scope="module")
def pairs():
    """Return rows, and the distances of the first one to the 60 next: 0.05 to 4 widths of 2."""
    rng = np.random.default_rng(5)
    direction = rng.standard_normal((60, 10))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    distances = np.geomspace(0.1, 8, 60)
    # Others all around, so that hardly a wave is the same for all rows.
    others = 20 * rng.standard_normal((500, 10))
    X = np.vstack([np.zeros(10), direction * distances[:, None], others]) + 3
    return X.astype(np.float32), distances


@pytest.mark.parametrize("n_bits", [1, 12, 40])
def test_agrees_with_the_paper(n_bits, rows, no_redraw):
    hasher = SIKH(n_bits=n_bits, width=2.5, random_state=4).fit(rows)
    assert [layer.kind for layer in hasher.layers_] == ["affine", "cos", "shift"]
    np.testing.assert_allclose(hasher.project(rows), literal_sikh(rows, n_bits, 2.5, 4), atol=2e-5)


def differing_shares(hasher, X):
    encoded = hasher.encode(X[:61])
    return codes.hamming_distances(encoded[:1], encoded[1:])[0] / hasher.n_bits_


def test_distances_tell_the_kernel(pairs, no_redraw):
    X, distances = pairs
    n_bits = 3_000
    found = differing_shares(SIKH(n_bits=n_bits, width=2, random_state=0).fit(X), X)
    true = expected_share(distances, 2)
    np.testing.assert_array_less(
        np.abs(found - true), 5 * np.sqrt(true * (1 - true) / n_bits) + 1e-4
    )
    # The paper's bounds on the expectation, which it proves uniform over all pairs.
    u = np.exp(-(distances**2) / 8)
    low = 4 / np.pi**2 * (1 - u)
    high = np.minimum(np.sqrt(1 - u) / 2, 4 / np.pi**2 * (1 - 2 * u / 3))
    assert (low - 0.025 < found).all()
    assert (found < high + 0.025).all()


def test_distances_grow_with_the_rows_up_to_the_width(pairs):
    X, distances = pairs
    found = differing_shares(SIKH(n_bits=4_000, width=2, random_state=0).fit(X), X)
    near = distances < 3
    assert np.corrcoef(distances[near], found[near])[0, 1] > 0.98
    # Beyond, half of the bits differ or so, and which rows are farther is lost.
    assert 0.35 < found[distances > 6].min() < found[distances > 6].max() < 0.55


def test_width_is_measured(rows):
    hasher = SIKH(n_bits=4, random_state=0).fit(rows)
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2).mean()
    assert hasher.width_ == pytest.approx(0.8 * np.sqrt(squares), rel=1e-5)
    assert hasher.training_["width"] == hasher.width_
    assert SIKH(n_bits=4, width=np.float32(3)).fit(rows).width_ == 3


def test_no_wave_leaves_all_rows_on_one_side(rows):
    ones = (SIKH(n_bits=2000, random_state=0).fit(rows).project(rows) > 0).mean(axis=0)
    assert ones.min() >= 0.1 - 1e-9
    assert ones.max() <= 0.9 + 1e-9
    assert 0.4 < ones.mean() < 0.6


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_rows_that_nearly_all_are_equal(share, rows):
    """Then no wave can part nine rows in ten; what others there are, it must part all the same."""
    X = rows - rows.mean(axis=0)
    X[: int(share * len(X))] = 0
    bits = SIKH(n_bits=32, random_state=0).fit(X).project(X) > 0
    ones = bits.mean(axis=0)
    assert np.minimum(ones, 1 - ones).min() >= 0.25 * (1 - share)
    assert len(np.unique(bits, axis=0)) > 3
