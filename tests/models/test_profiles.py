import json

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import ITQ
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import Model
from pg_hashindex.models.profiles import Profile, stability_index
from pg_hashindex.models.quantization import quantize
from pg_hashindex.training import train


@pytest.fixture
def projections():
    rng = np.random.default_rng(1)
    return (rng.standard_normal((1000, 3)) * [1, 5, 0.1] + [0, 2, 0]).astype(np.float32)


def test_tenths_of_the_rows(projections):
    profile = Profile.of(projections)
    assert (profile.rows, profile.n_bits) == (1000, 3)
    assert profile.counts.shape == (3, 10)
    # An edge is a little below a number that is there, which it is to count with those above.
    assert (abs(profile.counts - 100) <= 5).all()
    assert profile.edges == pytest.approx(
        np.quantile(projections, np.arange(1, 10) / 10, axis=0).T, abs=0.05
    )
    assert profile.ones.tolist() == [(column > 0).sum() for column in projections.T]


def test_numbers_that_many_rows_share(projections):
    projections[:, 1] = 3
    projections[:600, 2] = 0
    profile = Profile.of(projections)
    assert profile.counts[1].tolist() == [0] * 9 + [1000]
    assert profile.counts[2].sum() == 1000
    for shift in (1e-6, -1e-6):
        # As another machine may round it.
        assert (
            profile.counted(projections + np.float32([0, shift, shift])) == profile.counts
        ).all()


def test_one_row():
    profile = Profile.of(np.float32([[1, -2]]))
    assert profile.counts.tolist() == [[0] * 9 + [1]] * 2
    assert profile.ones.tolist() == [1, 0]


def test_the_index_by_its_definition():
    was, now = np.array([[10, 30], [20, 20]]), np.array([[40, 40], [16, 64]])
    index, noise = stability_index(was, now)
    assert noise == pytest.approx(1 / 40 + 1 / 80)
    a, b = 10.5 / 41, 40.5 / 81
    by_hand = (b - a) * np.log(b / a) + (a - b) * np.log((1 - b) / (1 - a))
    assert index[0] == pytest.approx(by_hand - noise)


def test_chance_alone_gives_no_index_on_average():
    rng = np.random.default_rng(5)
    profile = Profile.of(rng.standard_normal((2000, 200)))
    index, _ = stability_index(profile.counts, profile.counted(rng.standard_normal((500, 200))))
    assert abs(index.mean()) < 0.002
    moved, _ = stability_index(profile.counts, profile.counted(rng.standard_normal((500, 200)) + 1))
    # For two normal distributions a standard deviation apart it is 1, less what the parts hide.
    assert 0.7 < moved.mean() < 1.1


def test_it_is_the_same_after_json(projections):
    profile = Profile.of(projections)
    again = Profile.from_dict(json.loads(json.dumps(profile.as_dict())))
    assert again.rows == profile.rows
    for name in ("edges", "counts", "ones"):
        assert (getattr(again, name) == getattr(profile, name)).all()
    assert again.edges.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "profile of 0 rows"),
        ({"rows": "3"}, "of '3' rows"),
        ({"rows": True}, "of True rows"),
        ({"rows": 999}, "add up to its 999 rows"),
        ({"edges": [[1, 2], [3]]}, "not a profile"),
        ({"edges": [[1] * 8] * 3}, r"edges \(3, 8\)"),
        ({"edges": [[2] * 8 + [1]] * 3}, "finite and rising"),
        ({"edges": [[1] * 8 + [float("nan")]] * 3}, "finite and rising"),
        ({"edges": "much"}, "not a profile"),
        ({"counts": [[100.5] * 10] * 3}, "float64 instead of integers"),
        ({"counts": [[-100, 300, *[100] * 8]] * 3}, "0 or more"),
        ({"ones": [1, 2]}, "counts"),
        ({"ones": [1, 2, 1001]}, "add up"),
        ({"ones": [1, 2, 10**30]}, "not a profile"),
        ({"ones": None}, "not a profile"),
    ],
)
def test_invalid_profiles(projections, changes, message):
    value = Profile.of(projections).as_dict() | changes
    with pytest.raises(InvalidInputError, match=message):
        Profile.from_dict(value)
    for other in ({}, {"rows": 3}):
        with pytest.raises(InvalidInputError, match="not a profile"):
            Profile.from_dict(other)


def test_model_files_keep_it(projections):
    model = Model("m", "byhand", 3, [affine(np.eye(3))], profile=Profile.of(projections))
    plain = Model("m", "byhand", 3, [affine(np.eye(3))])
    # It says nothing about codes, and models from before must keep their checksum.
    assert model.checksum == plain.checksum
    again = Model.from_bytes(model.to_bytes())
    assert again.profile is not None
    assert again.profile.as_dict() == model.profile.as_dict()
    assert Model.from_bytes(plain.to_bytes()).profile is None


def test_a_profile_of_other_bits_is_refused(projections):
    message = "profile is of 3 projections and 3 bits, the model gives 2 and 2"
    with pytest.raises(InvalidInputError, match=message):
        Model("m", "byhand", 2, [affine(np.eye(2))], profile=Profile.of(projections))
    message = "profile is of 3 projections and 3 bits, the model gives 3 and 6"
    with pytest.raises(InvalidInputError, match=message):
        layers = [affine(np.eye(3))]
        Model("m", "byhand", 3, layers, profile=Profile.of(projections), cuts=(0, 1))


def test_a_profile_of_several_cuts_has_the_ones_of_all_bits(projections):
    profile = Profile.of(projections, (0, 1))
    assert (profile.n_projections, profile.n_bits) == (3, 6)
    assert (profile.ones == quantize(projections, (0, 1)).sum(axis=0)).all()
    assert (profile.edges == Profile.of(projections).edges).all()
    again = Profile.from_dict(profile.as_dict())
    assert (again.ones == profile.ones).all()
    assert Model("m", "byhand", 3, [affine(np.eye(3))], profile=again, cuts=(0, 1)).n_bits == 6


@pytest.mark.parametrize("in_blocks", [False, True])
def test_training_makes_it_of_the_rows_that_it_saw(in_blocks):
    X = np.random.default_rng(2).standard_normal((1500, 6)).astype(np.float32)
    model = train((lambda: iter([X[:700], X[700:]])) if in_blocks else X, "m", "itq", n_bits=6)
    assert model.profile is not None
    assert model.profile.rows == 1350
    # 150 rows were held back.
    counts = model.profile.counted(model.project(X))
    assert (counts.sum(axis=1) == 1500).all()
    held_back = counts - model.profile.counts
    assert (held_back >= 0).all()
    assert (held_back.sum(axis=1) == 150).all()


@pytest.mark.parametrize("cuts", [1, 3])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_hasher_that_is_fitted_by_hand_makes_it_too(in_blocks, cuts):
    """As the README does: without it drift cannot be seen."""
    X = np.random.default_rng(2).standard_normal((1500, 6)).astype(np.float32)
    hasher = ITQ(n_bits=4).fit((lambda: iter([X[:700], X[700:]])) if in_blocks else X)
    model = hasher.to_model("m", cuts=cuts)
    expected = Profile.of(model.project(X), model.cuts).as_dict()
    assert model.profile is not None
    assert model.profile.as_dict() == expected
