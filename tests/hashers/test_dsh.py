import math

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import DSH
from pg_hashindex.hashers.dsh import plane_entropies


def literal_dsh(centres, X, n_bits, n_nearest):
    """Every pair of groups, plane and entropy by itself, from the centres."""
    distances = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    group = np.linalg.norm(X[:, None] - centres[None], axis=2).argmin(axis=1)
    planes = []
    for i in range(len(centres)):
        for j in range(i):
            nearest_of = [np.argsort(distances[g])[1 : n_nearest + 1] for g in (i, j)]
            if i not in nearest_of[1] and j not in nearest_of[0]:
                continue
            w = centres[i] - centres[j]
            t = w @ (centres[i] + centres[j]) / 2
            p = np.mean([centres[g] @ w > t for g in group])
            planes.append((-p * math.log(p) - (1 - p) * math.log(1 - p), w, t))
    planes.sort(key=lambda plane: -plane[0])
    return planes[:n_bits]


def test_planes_are_those_of_the_paper(rows):
    hasher = DSH(n_bits=6, random_state=0).fit(rows)
    centres = hasher.centres_.astype(float)
    assert centres.shape == (9, 12)
    planes = literal_dsh(centres, rows.astype(float), 6, 3)
    np.testing.assert_allclose(hasher.entropies_, [entropy for entropy, *_ in planes], rtol=1e-9)
    assert (np.diff(hasher.entropies_) < 1e-9).all()
    expected = np.array([rows @ w - t for _, w, t in planes]).T
    found = hasher.project(rows)
    # Planes of the same entropy may come in either order, and a plane has two sides.
    for column in found.T:
        errors = [min(np.abs(column - e).max(), np.abs(column + e).max()) for e in expected.T]
        assert min(errors) < 1e-3 * np.abs(found).mean()
    assert [layer.kind for layer in hasher.layers_] == ["affine"]


def test_entropies_by_hand():
    above = np.array([[True, True], [True, False], [False, False]])
    found = plane_entropies(above, np.array([1, 1, 2]))
    quarter = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    np.testing.assert_allclose(found, [math.log(2), quarter])
    assert plane_entropies(np.ones((3, 1), bool), np.array([1, 1, 2])).tolist() == [0]


def test_more_groups_become_adjacent_where_planes_are_too_few(rows):
    """12 bits of one nearest group each: 12 groups have at most 12 such pairs, mostly fewer."""
    hasher = DSH(n_bits=12, groups=1, n_nearest=1, random_state=0).fit(rows)
    assert hasher.project(rows).shape == (400, 12)
    directions = hasher.layers_[0].weights
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    assert np.abs(directions @ directions.T - np.eye(12)).max() < 0.9999


def test_a_far_origin_does_not_move_the_planes(rows):
    near = DSH(n_bits=8, random_state=0).fit(rows - rows.mean(axis=0))
    moved = DSH(n_bits=8, random_state=0).fit(rows - rows.mean(axis=0) + np.float32(1000))
    bits = near.encode(rows - rows.mean(axis=0)) == moved.encode(
        rows - rows.mean(axis=0) + np.float32(1000)
    )
    assert bits.mean() > 0.99


def test_refuses_more_bits_than_planes():
    message = "n_bits is 8, but 4 groups of rows have only 6 planes between them; ask for fewer"
    with pytest.raises(InvalidInputError, match=message):
        DSH(n_bits=8).fit(np.repeat(np.eye(4), 30, axis=0))
