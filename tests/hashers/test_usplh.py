import numpy as np
import pytest
from fixtures.clusters import up_to_sign_and_size

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import PCAH, USPLH
from pg_hashindex.hashers.usplh import pseudo_sets


def literal_pairs(projections, n_pseudo, *, inner=False):
    """Return S (n, n) for the pseudo-labels of one bit: rows sorted, every pair by itself.

    Pairs within r- and within r+ have 2.
    """
    order = np.argsort(projections, kind="stable")
    below = [i for i in order if projections[i] <= 0]
    above = [i for i in order if projections[i] > 0]
    S = np.zeros((len(order), len(order)))
    near, far = [], []
    for side in (below[::-1], above):  # from the boundary outwards
        near.append(side[: min(n_pseudo, (len(side) + 1) // 2)])
        far.append(side[len(side) - min(n_pseudo, len(side) // 2) :])
    for i in near[0]:
        for j in near[1]:
            S[i, j] = S[j, i] = 1
    for side in (0, 1):
        for i in near[side]:
            for j in far[side]:
                S[i, j] = S[j, i] = -1
            for j in near[side]:
                S[i, j] = 2 * (inner and i != j)
    return S


def literal_usplh(X, n_bits, n_pseudo, eta=0.03125, decay=0.1, boundary="codes", **steps):
    """Follow Algorithm 2: all earlier S_MC are kept, and X is rewritten, but not the rows of pairs.

    The pairs of each kind weigh one half together, as if equally many had been drawn of both. Pairs
    within a set weigh as much each as those of r- and r+.
    """
    original = X - X.mean(axis=0)
    X, earlier, W, cuts = original.copy(), [], [], []
    for k in range(1, n_bits + 1):
        M = eta * X.T @ X / len(X)
        for i, S in enumerate(earlier, 1):
            M += decay ** (k - i) * original.T @ S @ original
        W.append(np.linalg.eigh(M)[1][:, -1])
        projections = (original if boundary == "codes" else X) @ W[-1]
        cuts.append(np.median(projections) if steps.get("cut") == "median" else 0)
        S = literal_pairs(projections - cuts[-1], n_pseudo, inner=steps.get("inner_pairs", False))
        earlier.append(np.sign(S) / (2 * np.where(S > 0, (S == 1).sum(), (S < 0).sum())))
        X = X - X @ np.outer(W[-1], W[-1])
    return original @ np.array(W).T - cuts


@pytest.mark.parametrize(
    "params",
    [
        {"n_pseudo": 80},
        {"n_pseudo": 5},
        {"n_pseudo": 1000, "decay": 0.7, "eta": 0.2},
        {"eta": 0.1, "decay": 0.9, "n_pseudo": 80},
        {**USPLH.paper_parameters, "n_pseudo": 80},
        {**USPLH.program_parameters, "n_pseudo": 80},
        {"n_pseudo": 80, "cut": "median"},
        {"n_pseudo": 80, "inner_pairs": True},
    ],
    ids=["a fifth", "few", "all", "weights", "the paper", "the program", "medians", "inner pairs"],
)
def test_agrees_with_the_paper(params, rows):
    hasher = USPLH(n_bits=10, **params).fit(rows)
    expected = literal_usplh(rows.astype(np.float64), 10, **params)
    found = hasher.project(rows).astype(np.float64)
    np.testing.assert_allclose(up_to_sign_and_size(found), up_to_sign_and_size(expected), atol=1e-3)


def test_takes_a_tenth_of_the_rows(rows):
    found = USPLH(n_bits=6, random_state=0).fit(rows)
    expected = USPLH(n_bits=6, n_pseudo=len(rows) // 10, random_state=0).fit(rows)
    assert found.to_model("m").checksum == expected.to_model("m").checksum


def test_first_direction_is_the_principal_one(rows):
    found, expected = USPLH(n_bits=3).fit(rows), PCAH(n_bits=3).fit(rows)
    cosine = found.layers_[0].weights @ expected.layers_[0].weights[0]
    cosine /= np.linalg.norm(found.layers_[0].weights, axis=1)
    assert cosine[0] == pytest.approx(1, abs=1e-5)
    assert found.variances_[0] == pytest.approx(1)
    assert (found.variances_[1:] < 1).all()


def test_a_bit_corrects_the_one_before(rows):
    """Pairs that were separated near the boundary, and those that were not far from it."""
    hasher = USPLH(n_bits=2).fit(rows)
    bits = np.where(hasher.project(rows) > 0, 1, -1)
    principal = np.where(PCAH(n_bits=2).fit(rows).project(rows)[:, 1] > 0, 1, -1)
    S = literal_pairs(hasher.project(rows)[:, 0], 80)

    def right(h):
        return (S * np.outer(h, h) > 0).sum() / np.count_nonzero(S)

    assert right(bits[:, 0]) == 0
    assert right(bits[:, 1]) > max(0.55, right(principal) + 0.02)


def test_long_codes_find_rows_within_a_small_radius():
    """24 bits of 24 dimensions: if each told something else, as PCAH's do, hardly a row would."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 24)) * np.geomspace(1, 0.1, 24)

    def share_found(hasher):
        bits = hasher.fit(X).project(X) > 0
        distances = (bits[:, None] != bits).sum(axis=2)
        return ((distances <= 2).sum(axis=1) > 1).mean()

    principal = share_found(PCAH(n_bits=24))
    assert principal < 0.01
    assert share_found(USPLH(n_bits=24, **USPLH.paper_parameters)) > 0.1
    assert share_found(USPLH(n_bits=24)) > 2 * principal


@pytest.mark.parametrize("n_pseudo", [1, 3, 5, 100])
@pytest.mark.parametrize("seed", range(5))
def test_sets_are_as_sorting_gives_them(n_pseudo, seed):
    values = np.random.default_rng(seed).integers(-4, 7, 41).astype(np.float32)
    sets = pseudo_sets(values, n_pseudo)
    order = np.argsort(values, kind="stable")
    below, above = order[values[order] <= 0], order[values[order] > 0]
    n_below, n_above = (min(n_pseudo, (len(side) + 1) // 2) for side in (below, above))
    far_below, far_above = (min(n_pseudo, len(side) // 2) for side in (below, above))
    expected = [
        below[len(below) - n_below :],
        below[:far_below],
        above[:n_above],
        above[len(above) - far_above :],
    ]
    for found, wanted in zip(sets, expected, strict=True):
        assert set(found) == set(wanted)
    together = np.concatenate(sets)
    assert len(np.unique(together)) == len(together)


def test_more_bits_than_dimensions(rows):
    hasher = USPLH(n_bits=60).fit(rows)
    bits = (hasher.project(rows) > 0).astype(float)
    assert ((bits.mean(axis=0) > 0.05) & (bits.mean(axis=0) < 0.95)).all()
    assert np.abs(np.corrcoef(bits.T) - np.eye(60)).max() < 0.995


def test_repeated_rows(rows):
    """Ties at every edge of a set."""
    X = np.repeat(rows[:25], 16, axis=0)
    bits = USPLH(n_bits=12).fit(X).project(X) > 0
    assert ((bits.mean(axis=0) > 0.05) & (bits.mean(axis=0) < 0.95)).all()


@pytest.mark.parametrize(
    "X",
    [np.arange(50.0)[:, None], np.outer(np.arange(50), [1, 2, 3]), [[0.0, 1, 1], [1, 3, 1]]],
    ids=["one dimension", "a line", "two rows"],
)
def test_refuses_bits_that_could_only_be_copies(X):
    assert USPLH(n_bits=1).fit(X).n_bits_ == 1
    with pytest.raises(InvalidInputError, match="n_bits is 2, but after 1 bits .* dimension 1:"):
        USPLH(n_bits=2).fit(X)


def test_medians_give_half_of_the_rows_each_bit(rows):
    """Whatever the signs that directions are given."""
    codes = USPLH(n_bits=20, cut="median").fit(rows).project(rows) > 0
    assert (np.abs(codes.mean(axis=0) - 0.5) < 0.01).all()
