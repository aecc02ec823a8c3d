import itertools

import numpy as np
import pytest

from pg_hashindex.hashers.numerics.weak_functions import Cut, LinearFunctions, Stumps


@pytest.fixture
def few(rows):
    return rows[:60]


@pytest.fixture
def charged():
    """All pairs of 60 rows that follow each other by up to 7, with charges of both signs."""
    pairs = np.array([p for p in itertools.combinations(range(60), 2) if p[1] - p[0] < 8])
    return pairs, np.random.default_rng(2).standard_normal(len(pairs))


@pytest.fixture
def cut(charged):
    pairs, charges = charged
    return Cut(*pairs.T, charges, 60)


def collected(charged, bits):
    pairs, charges = charged
    return sum(c for (i, j), c in zip(pairs, charges, strict=True) if bits[i] != bits[j])


def test_laplacian_is_the_sum_over_pairs(charged, cut):
    t = np.random.default_rng(3).standard_normal(60)
    pairs, charges = charged
    expected = sum(c * (t[i] - t[j]) ** 2 for (i, j), c in zip(pairs, charges, strict=True))
    assert t @ (cut.laplacian() @ t) == pytest.approx(expected / np.abs(charges).sum(), rel=1e-4)


def test_thresholds_are_searched_exhaustively(charged, cut):
    ranks = np.random.default_rng(4).integers(20, size=60)
    ranks[:20] = np.arange(20)
    expected = [collected(charged, ranks > r) for r in range(19)]
    np.testing.assert_allclose(cut.by_threshold(ranks, 20), expected, atol=1e-9)


def test_stumps_are_searched_exhaustively(few, charged, cut):
    few = np.round(few, 1)
    family = Stumps(few)
    every = {
        (f, tuple(few[:, f] > value)): collected(charged, few[:, f] > value)
        for f in range(12)
        for value in np.unique(few[:, f])[:-1]
    }
    known, found = [], []
    for _ in range(25):
        function = family.best(cut, known, np.random.default_rng(0))
        known.append(function)
        found.append(collected(charged, function.bits))
    np.testing.assert_allclose(found, sorted(every.values())[:-26:-1])
    distinct = {(int(np.argmax(f.weights)), tuple(f.bits)) for f in known}
    assert len(distinct) == 25
    layer = family.layer(known)
    np.testing.assert_array_equal(layer.apply(few) > 0, np.array([f.bits for f in known]).T)
    assert (np.count_nonzero(layer.weights, axis=1) == 1).all()


def test_stumps_come_to_an_end():
    X = np.array([[0, 5], [0, 6], [1, 7]], np.float32)
    family, known = Stumps(X), []
    cut = Cut(np.array([0, 1]), np.array([1, 2]), np.array([1.0, 2.0]), 3)
    while function := family.best(cut, known, np.random.default_rng(0)):
        known.append(function)
    assert [(int(np.argmax(f.weights)), f.bits.tolist()) for f in known] == [
        (0, [False, False, True]),
        (1, [False, False, True]),
        (1, [False, True, True]),
    ]


def test_stump_between_neighbouring_floats():
    """No float32 lies between these two; the layer must still tell them apart."""
    low = np.float32(1.1)
    high = np.nextafter(low, np.float32(2), dtype=np.float32)
    X = np.array([[low], [high]], np.float32)
    family = Stumps(X)
    function = family.best(
        Cut(np.array([0]), np.array([1]), np.ones(1), 2), [], np.random.default_rng(0)
    )
    assert (family.layer([function]).apply(X) > 0).ravel().tolist() == [False, True]


def test_linear_gradient_leads_up(few, charged, cut):
    """With more iterations a function collects no less, and more than any of its starts."""
    amounts = []
    for max_iter in (0, 3, 100):
        family = LinearFunctions(few, 50, max_iter)
        amounts.append(collected(charged, family.best(cut, [], np.random.default_rng(1)).bits))
    assert amounts[0] < amounts[-1]
    family = LinearFunctions(few, 50, 100)
    rng = np.random.default_rng(1)
    V, b = rng.standard_normal((50, 12)), rng.uniform(-1, 1, 50)
    scaled = (few - few.mean(axis=0)) / np.sqrt(((few - few.mean(axis=0)) ** 2).sum() / len(few))
    starts = [collected(charged, scaled @ v + c > 0) for v, c in zip(V, b, strict=True)]
    assert amounts[-1] > max(starts)


def test_linear_objective_is_the_relaxed_one(few, charged, cut, monkeypatch):
    """The function handed to L-BFGS: -sum of charge (tanh - tanh)^2, and its slope."""
    seen = {}

    def minimize(loss, start, **options):
        seen.update(loss=loss, start=start)
        raise StopIteration

    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    family = LinearFunctions(few, 1, 1)
    with pytest.raises(StopIteration):
        family.best(cut, [], np.random.default_rng(1))
    pairs, charges = charged
    features = (few - few.mean(axis=0)) / np.sqrt(((few - few.mean(axis=0)) ** 2).sum() / len(few))

    def literal(vb):
        t = np.tanh(features @ vb[:-1] + vb[-1])
        total = sum(c * (t[i] - t[j]) ** 2 for (i, j), c in zip(pairs, charges, strict=True))
        return -total / np.abs(charges).sum()

    value, slope = seen["loss"](seen["start"])
    assert value == pytest.approx(literal(seen["start"]), rel=1e-4)
    steps = 1e-5 * np.eye(13)
    by_difference = [
        (literal(seen["start"] + s) - literal(seen["start"] - s)) / 2e-5 for s in steps
    ]
    np.testing.assert_allclose(slope, by_difference, atol=1e-4)


def test_linear_threshold_is_the_best_along_the_direction(few, charged, cut):
    family = LinearFunctions(few, 20, 20)
    function = family.best(cut, [], np.random.default_rng(1))
    along = (few - few.mean(axis=0)) @ function.weights
    values = np.sort(along)
    amounts = [collected(charged, along > t) for t in (values[1:] + values[:-1]) / 2]
    assert collected(charged, function.bits) == pytest.approx(max(amounts))
    layer = family.layer([function])
    np.testing.assert_array_equal((layer.apply(few) > 0).ravel(), function.bits)
    # A size that float32 holds well.
    assert layer.apply(few).std() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("family", [LinearFunctions, Stumps])
def test_drawn_functions_split_the_rows(family, few):
    made = family(few, 5, 5) if family is LinearFunctions else family(few)
    rng = np.random.default_rng(0)
    drawn = [made.draw(rng) for _ in range(20)]
    bits = np.array([function.bits for function in drawn])
    np.testing.assert_array_equal(made.layer(drawn).apply(few) > 0, bits.T)
    assert (bits.any(axis=1) & ~bits.all(axis=1)).all()
    assert len(np.unique(bits, axis=0)) == 20
    if family is LinearFunctions:
        assert (np.abs(bits.mean(axis=1) - 0.5) < 0.35).all()


def test_no_function_of_rows_that_are_equal(cut):
    family = LinearFunctions(np.vstack([np.zeros((60, 3)), np.ones((1, 3))]), 5, 5)
    family.X = family.X[:60]
    assert family.best(cut, [], np.random.default_rng(0)) is None
    assert Stumps(np.ones((60, 2), np.float32)).best(cut, [], np.random.default_rng(0)) is None
