import numpy as np
import pytest
import scipy.linalg
from fixtures.literal import literal_itq

from pg_hashindex.hashers import ITQ, PCAH
from pg_hashindex.hashers.itq import learn_rotation, nearest_rotation, random_rotation


@pytest.mark.parametrize("n_bits", [1, 6, 12])
def test_agrees_with_the_paper(n_bits, rows):
    hasher = ITQ.paper(n_bits=n_bits, n_iter=10, random_state=2).fit(rows)
    pca = PCAH(n_bits=n_bits).fit(rows)
    V = (rows - rows.mean(axis=0, dtype=np.float64)) @ pca.layers_[0].weights.T.astype(np.float64)
    start = random_rotation(n_bits, n_bits, np.random.default_rng(2))
    R, losses = literal_itq(V, start, 10)
    np.testing.assert_allclose(hasher.project(rows), V @ R, atol=1e-3)
    np.testing.assert_allclose(hasher.quantization_loss_ * 400, losses, rtol=1e-4)


@pytest.mark.parametrize("extrapolation", [0.0, 0.5, 1.0])
def test_loss_never_rises(extrapolation, rows):
    for seed in range(5):
        hasher = ITQ(n_bits=10, n_iter=80, tolerance=0.0, extrapolation=extrapolation)
        losses = hasher.set_params(random_state=seed).fit(rows).quantization_loss_
        assert len(losses) == 81
        assert (np.diff(losses) <= 1e-6 * losses[:-1]).all()
        assert losses[-1] < losses[0]


def test_a_rotation_that_is_worse_is_dropped(rows):
    """Far too great an extrapolation leaves the paper's rounds."""
    V = rows - rows.mean(axis=0)
    start = random_rotation(12, 12, np.random.default_rng(0))
    R, losses = learn_rotation(V, start, 60, extrapolation=50.0)
    assert (np.diff(losses) <= 1e-6 * losses[:-1]).all()
    assert ((np.where(V @ R > 0, 1, -1) - V @ R) ** 2).sum() == pytest.approx(
        losses[-1] * len(V), rel=1e-4
    )
    assert losses[-1] < 0.9 * losses[0]


def test_ends_once_the_loss_hardly_falls(rows):
    """Half the fall of the loss is what sum |VR| gains."""
    hasher = ITQ(n_bits=10, tolerance=0.01, random_state=0).fit(rows)
    losses = hasher.quantization_loss_
    V = ITQ(n_bits=10, tolerance=0.01, random_state=0).fit(rows).project(rows)
    assert 2 < len(losses) < 51
    assert losses[-1] == pytest.approx(((np.sign(V) - V) ** 2).sum() / len(V), rel=1e-4)
    sums = np.abs(V).sum() / len(V) - (losses - losses[-1]) / 2
    gains = np.diff(sums) / sums[1:]
    assert (gains[:-1] >= 0.01).all()
    assert gains[-1] < 0.01


def test_few_rounds_lose_no_more_than_fifty_of_the_paper(rows):
    """That is what the extrapolation is for."""
    for seed in range(5):
        ours = ITQ(n_bits=10, n_iter=20, tolerance=0.0, random_state=seed).fit(rows)
        paper = ITQ.paper(n_bits=10, random_state=seed).fit(rows)
        assert len(paper.quantization_loss_) == 51
        assert ours.quantization_loss_[-1] < paper.quantization_loss_[-1] * 1.01


def test_only_rotates_the_principal_directions(rows):
    W = ITQ(n_bits=7, random_state=0).fit(rows).layers_[0].weights
    P = PCAH(n_bits=7).fit(rows).layers_[0].weights
    np.testing.assert_allclose(W @ W.T, np.eye(7), atol=1e-5)
    np.testing.assert_allclose(W.T @ W, P.T @ P, atol=1e-5)


def test_without_rounds_it_is_a_random_rotation(rows):
    hasher = ITQ(n_bits=4, n_iter=0, random_state=0).fit(rows)
    assert hasher.quantization_loss_.shape == (1,)


def test_first_rotation_is_orthogonal():
    R = random_rotation(30, 30, np.random.default_rng(0))
    np.testing.assert_allclose(R @ R.T, np.eye(30), atol=1e-12)


def test_rotates_to_more_bits_than_directions(rows):
    """As rows padded with zeros would be, by a square rotation. They need not be centred."""
    V = (rows[:, :3] - rows[:, :3].mean(axis=0) + 0.7).astype(np.float32)
    start = random_rotation(3, 8, np.random.default_rng(0))
    np.testing.assert_allclose(start @ start.T, np.eye(3), atol=1e-12)
    padded = np.hstack([V, np.zeros((400, 5))])
    R, losses = literal_itq(padded, np.vstack([start, scipy.linalg.null_space(start).T]), 10)
    found, found_losses = learn_rotation(V, start, 10)
    np.testing.assert_allclose(found, R[:3], atol=1e-4)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found_losses * 400, losses, rtol=1e-4)


def test_rotation_is_the_same_whatever_the_blocks(rows, monkeypatch):
    V = rows - rows.mean(axis=0)
    start = random_rotation(12, 12, np.random.default_rng(0))
    expected = learn_rotation(V, start, 10)
    monkeypatch.setattr("pg_hashindex.hashers.itq._BLOCK_ROWS", 37)
    for found, whole in zip(learn_rotation(V, start, 10), expected, strict=True):
        np.testing.assert_allclose(found, whole, atol=1e-4)


def test_rows_may_vary_in_fewer_directions_than_bits(rows):
    flat = rows.copy()
    flat[:, 5:] = 1
    bits = ITQ(n_bits=8, random_state=0).fit(flat).project(flat) > 0
    assert (bits.mean(axis=0) > 0.05).all()
    assert (bits.mean(axis=0) < 0.95).all()


@pytest.mark.parametrize("least", [1.0, 1e-2, 1e-8, 0.0])
def test_nearest_rotation_is_that_of_singular_vectors(least):
    rng = np.random.default_rng(0)
    U, W = random_rotation(5, 5, rng), random_rotation(5, 9, rng)
    found = nearest_rotation(U @ np.diag([9.0, 5, 2, 1, least]) @ W)
    np.testing.assert_allclose(found @ found.T, np.eye(5), atol=1e-10)
    if least:
        np.testing.assert_allclose(found, U @ W, atol=1e-6)
