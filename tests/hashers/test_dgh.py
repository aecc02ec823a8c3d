from itertools import pairwise, product

import numpy as np
import pytest

from pg_hashindex.hashers import AGH, DGH
from pg_hashindex.hashers.agh import AnchorGraph
from pg_hashindex.hashers.dgh import Codes, rotated
from pg_hashindex.hashers.numerics.rows import RowSource
from pg_hashindex.models import codes as packed

N, R = 60, 5
RHO = 0.4


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(4)
    X = (rng.standard_normal((N, 4)) * [3, 2, 1, 1]).astype(np.float32)
    return AnchorGraph(RowSource(X), X[:12] + np.float32(0.1), 3)


@pytest.fixture(scope="module")
def similarity(graph):
    Z = graph.Z.toarray()
    return Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T


def random_signs(shape, seed=0):
    return np.where(np.random.default_rng(seed).random(shape) < 0.5, -1, 1).astype(np.int8)


@pytest.fixture
def codes(graph):
    _, weights = graph.directions(R, R)
    return Codes(graph, random_signs((N, R)), weights, RHO)


def test_objective_is_that_of_the_paper(codes, similarity):
    B, Y = codes.B.astype(float), codes.Y.astype(float)
    expected = np.trace(B.T @ similarity @ B) + RHO * np.trace(B.T @ Y)
    assert codes.objective() == pytest.approx(expected / (N * R))


def test_steps_for_codes_follow_the_gradient_until_nothing_changes(codes, similarity):
    B, Y = codes.B.astype(float), codes.Y.astype(float)
    values = [codes.objective()]
    while codes.improve_codes(1):
        gradient = 2 * similarity @ B + RHO * Y
        B = np.where(gradient == 0, B, np.sign(gradient))
        assert np.array_equal(codes.B, B)
        values.append(codes.objective())
    assert len(values) > 2
    assert all(after >= before for before, after in pairwise(values))
    assert not codes.improve_codes(100)


def test_bits_without_a_gradient_stay(graph):
    codes = Codes(graph, random_signs((N, 2)), np.zeros((graph.Z.shape[1], 2)), 1.0)
    codes.B[:, 1] = codes.B[:, 0] = random_signs(N, 3)
    codes._sums = np.full_like(codes._sums, np.inf)
    before = codes.B.copy()
    assert not codes.improve_codes(5)
    assert np.array_equal(codes.B, before)


@pytest.mark.parametrize("kind", ["independent", "copies", "constant"])
def test_directions_are_the_best_for_the_codes(kind, codes):
    if kind == "copies":
        codes.B[:, 3] = -codes.B[:, 1]
        codes.B[:, 4] = codes.B[:, 1]
    elif kind == "constant":
        codes.B[:, 2] = 1
    before = codes.objective()
    codes.improve_directions(np.random.default_rng(0))
    Y = codes.Y.astype(float)
    np.testing.assert_allclose(Y.sum(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(Y.T @ Y, N * np.eye(R), atol=1e-3)
    # The greatest trace(B'Y) is sqrt(n) times the sum of the singular values of B about its mean.
    centred = codes.B - codes.B.mean(axis=0)
    most = np.sqrt(N) * np.linalg.svd(centred, compute_uv=False).sum()
    assert np.trace(codes.B.T @ Y) == pytest.approx(most, rel=1e-5)
    assert codes.objective() >= before - 1e-6


def test_start_is_rotated_to_fit_its_codes(graph, similarity):
    values, weights = graph.directions(R, R)
    H = graph.Z @ weights / np.sqrt(N)
    np.testing.assert_allclose(similarity @ H, H * values, atol=1e-6)

    def trace(rotation, B):
        return np.trace(rotation.T @ H.T @ similarity @ B)

    rotation, B = rotated(graph, values, weights, 100)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(R), atol=1e-9)
    found = trace(rotation, B)
    assert found == pytest.approx(np.abs(similarity @ H @ rotation).sum())
    assert found > trace(np.eye(R), np.sign(H * values))
    # Neither other codes nor turning any two directions helps.
    for seed in range(20):
        assert found >= trace(rotation, random_signs((N, R), seed))
    for (i, j), angle in product([(0, 1), (1, 3), (2, 4)], (-0.1, 0.1)):
        turn = np.eye(R)
        turn[[i, j], [i, j]] = np.cos(angle)
        turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
        assert found > trace(rotation @ turn, B)


@pytest.mark.parametrize("start", ["rotated", "eigenvectors"])
@pytest.mark.parametrize("rho", [0.0, 0.1, 10.0])
def test_objective_never_falls(start, rho, rows):
    hasher = DGH(n_bits=12, start=start, rho=rho, random_state=0).fit(rows)
    assert len(hasher.objective_) > 1
    assert (np.diff(hasher.objective_) >= -1e-6).all()
    assert hasher.training_["objective"]["last"] == hasher.objective_[-1]


def test_start_of_eigenvectors_is_that_of_one_layer_of_agh(rows):
    hasher = DGH(n_bits=6, start="eigenvectors", n_iter=0, random_state=0).fit(rows)
    agh = AGH(n_bits=6, n_layers=1, random_state=0, n_anchors=len(hasher.anchors_)).fit(rows)
    np.testing.assert_array_equal(hasher.anchors_, agh.anchors_)
    learned = packed.unpack(hasher.codes_, 6)
    assert np.mean(learned == (agh.project(rows) > 0)) > 0.999


def test_projections_are_similarities_to_the_learned_codes(rows):
    hasher = DGH(n_bits=8, random_state=0).fit(rows)
    shares, projection = hasher.layers_
    assert (shares.kind, projection.kind) == ("affinity", "affine")
    assert not projection.bias.any()
    Z = shares.apply(rows).astype(float)
    z = shares.apply(rows[:9] + np.float32(0.1)).astype(float)
    B = np.where(packed.unpack(hasher.codes_, 8), 1.0, -1.0)
    expected = z / Z.sum(axis=0) @ Z.T @ B
    np.testing.assert_allclose(hasher.project(rows[:9] + np.float32(0.1)), expected, atol=1e-4)
    assert np.mean(packed.unpack(hasher.codes_, 8) == (hasher.project(rows) > 0)) > 0.95


def test_a_great_rho_gives_balanced_and_uncorrelated_bits():
    cloud = np.random.default_rng(0).standard_normal((400, 5)) * [3, 2, 1, 1, 1]

    def dependence(rho):
        codes = DGH(n_bits=12, rho=rho, random_state=0).fit(cloud).codes_
        B = np.where(packed.unpack(codes, 12), 1.0, -1.0)
        return np.abs(B.T @ B / len(B) - np.eye(12)).mean() + np.abs(B.mean(axis=0)).mean()

    assert dependence(3.0) < 0.7 * dependence(0.0)
