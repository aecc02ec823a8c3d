import itertools

import numpy as np
import pytest
import scipy.optimize

from pg_hashindex.hashers.supervision.column_generation import LOSSES, RestrictedProblem
from pg_hashindex.hashers.supervision.triplets import Comparisons

LITERAL = {
    "squared_hinge": lambda rho: max(0.0, 1 - rho) ** 2,
    "logistic": lambda rho: np.log(1 + np.exp(-rho)),
    "exponential": lambda rho: np.exp(-rho),
    "hinge": lambda rho: max(0.0, 1 - rho),
}

each_loss = pytest.mark.parametrize("loss", LITERAL)
each_regularizer = pytest.mark.parametrize("capped", [False, True])


def some_triplets(n=200, m=30, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(m)[:3] for _ in range(n)])


def some_functions(k=6, m=30, seed=1):
    """Bits of a row's number, so that rows of similar numbers have similar bits."""
    rng = np.random.default_rng(seed)
    return (np.arange(m) / m + 0.5 * rng.random((k, m))) > rng.random((k, 1)) * 0.8 + 0.3


def differences(triplets, functions):
    """Return a (t, k) by its definition, one triplet at a time."""
    h = functions.astype(int)
    return np.array([[abs(f[x] - f[z]) - abs(f[x] - f[y]) for f in h] for x, y, z in triplets])


def sorted_triplets(n=200, m=30):
    """Triplets in which the near row is the one of the nearer number."""
    t = some_triplets(n, m)
    swap = np.abs(t[:, 0] - t[:, 1]) > np.abs(t[:, 0] - t[:, 2])
    t[swap, 1:] = t[swap, :0:-1]
    return t


def problem_of(triplets, functions, loss, C, *, capped=False, duplets=None):
    problem = RestrictedProblem(
        Comparisons.of(triplets, duplets),
        LOSSES[loss],
        C,
        capped=capped,
        max_functions=len(functions),
    )
    for bits in functions:
        problem.add(bits[problem.comparisons.rows])
    return problem


@each_loss
def test_losses_and_their_duals(loss):
    f = LOSSES[loss]
    rho = np.array([-3.0, -0.5, 0.0, 0.3, 0.999, 1.001, 4.0])
    np.testing.assert_allclose(f.value(rho), [LITERAL[loss](r) for r in rho])
    step = 1e-6
    slopes = (f.value(rho + step) - f.value(rho - step)) / (2 * step)
    np.testing.assert_allclose(f.dual(rho), -slopes, atol=1e-5)
    # The conjugate f*(-u) = sup over rho of -u rho - f(rho), on a grid.
    grid = np.linspace(-20, 20, 400_001)
    values = f.value(grid)
    for u in (0.05, 0.3, 0.9):
        expected = np.max(-u * grid - values)
        assert f.conjugate(np.array([u]))[0] == pytest.approx(expected, abs=1e-6)


@each_loss
@each_regularizer
def test_reaches_the_optimum(loss, capped):
    """Against the literal primal, solved without derivatives or duals being ours."""
    triplets, functions, C = sorted_triplets(), some_functions(), 0.4 if capped else 0.02
    solution = problem_of(triplets, functions, loss, C, capped=capped).solution
    a = differences(triplets, functions)

    def literal(w):
        value = np.mean([LITERAL[loss](rho) for rho in a @ w])
        return value if capped else value + C * w.sum()

    assert solution.objective == pytest.approx(literal(solution.weights), rel=1e-5)
    bounds = [(0, C if capped else None)] * len(functions)
    if loss == "hinge":
        # min 1/t 1'xi + r'w, xi >= 1 - A w
        t, k = a.shape
        found = scipy.optimize.linprog(
            np.concatenate([np.full(t, 1 / t), np.full(k, 0 if capped else C)]),
            A_ub=np.hstack([-np.eye(t), -a]),
            b_ub=-np.ones(t),
            bounds=[(0, None)] * t + bounds,
        )
        expected = found.fun
    else:
        found = scipy.optimize.minimize(
            literal, np.full(len(functions), 0.1), bounds=bounds, method="Powell", tol=1e-10
        )
        expected = min(found.fun, literal(solution.weights))
        assert found.fun >= expected - 1e-5 * abs(expected)
    assert solution.objective == pytest.approx(expected, rel=2e-4)
    assert (solution.weights >= 0).all()
    assert (solution.weights <= (C if capped else np.inf)).all()
    assert solution.weights.any()


@each_loss
@each_regularizer
def test_strong_duality(loss, capped):
    """At the optimum both problems have one value, and u satisfies the dual constraints."""
    triplets, functions, C = sorted_triplets(), some_functions(), 0.4 if capped else 0.02
    problem = problem_of(triplets, functions, loss, C, capped=capped)
    solution = problem.solution
    assert solution.dual_objective == pytest.approx(solution.objective, rel=1e-3)
    worths = differences(triplets, functions).T @ solution.duals / len(triplets)
    rows = problem.comparisons.rows
    np.testing.assert_allclose(
        [problem.worth(bits[rows], solution.duals) for bits in functions], worths, atol=1e-6
    )
    if not capped:
        assert (worths <= C * 1.01).all()
        # Complementary slackness: what weighs is worth its price.
        np.testing.assert_allclose(worths[solution.weights > 1e-3], C, rtol=0.01)


@each_loss
def test_starts_from_equal_duals(loss):
    problem = problem_of(sorted_triplets(), some_functions(0), loss, 0.1)
    duals = problem.solution.duals
    assert (duals == duals[0]).all()
    assert duals[0] > 0


@each_loss
@each_regularizer
def test_objective_never_rises(loss, capped):
    triplets, functions = sorted_triplets(), some_functions(12)
    problem = problem_of(triplets, functions[:0], loss, 0.02, capped=capped)
    problem = RestrictedProblem(
        problem.comparisons, LOSSES[loss], 0.02, capped=capped, max_functions=12
    )
    values = [problem.solution.objective]
    for bits in functions:
        values.append(problem.add(bits[problem.comparisons.rows]).objective)
    assert (np.diff(values) <= 1e-6).all()
    assert values[-1] < values[0]


def test_gap_bounds_what_is_left():
    """Against the optimum over every function there is of 6 rows."""
    rng = np.random.default_rng(3)
    triplets = np.array([rng.permutation(6)[:3] for _ in range(40)])
    # Functions split pairs alike if one is the other negated: 31 of 64 matter.
    every = np.array([p for p in itertools.product([False, True], repeat=6) if p[0]])[:-1]
    best = problem_of(triplets, every, "squared_hinge", 0.05).solution.objective
    problem = RestrictedProblem(
        Comparisons.of(triplets), LOSSES["squared_hinge"], 0.05, capped=False, max_functions=31
    )
    gaps = []
    for _ in range(31):
        duals = problem.solution.duals
        worths = [problem.worth(bits, duals) for bits in every]
        found = every[int(np.argmax(worths))]
        gaps.append(problem.gap(found))
        assert problem.solution.objective - best <= gaps[-1] + 1e-6
        if not problem.violated_by(found, 1e-3):
            break
        problem.add(found)
    assert gaps[-1] < 1e-3
    assert gaps[0] > 0.1
    assert problem.gap(None) == pytest.approx(0, abs=1e-3)


def test_duplets_are_the_price():
    """The l1 term becomes C sum s_j w_j, s_j being the part of the duplets that h_j splits."""
    triplets, functions = sorted_triplets(), some_functions()
    duplets = np.array([[0, 1], [3, 9], [3, 20], [29, 2], [7, 8]])
    problem = problem_of(triplets, functions, "squared_hinge", 0.1, duplets=duplets)
    h = functions.astype(int)
    s = [np.mean([abs(f[x] - f[z]) for x, z in duplets]) for f in h]
    assert any(s)
    prices = [0.1 * max(part, 0.5 / 5) for part in s]
    rows = problem.comparisons.rows
    np.testing.assert_allclose([problem.price(bits[rows]) for bits in functions], prices)
    w, a = problem.solution.weights, differences(triplets, functions)
    literal = np.mean([LITERAL["squared_hinge"](rho) for rho in a @ w]) + np.dot(prices, w)
    assert problem.solution.objective == pytest.approx(literal, rel=1e-5)
    # The search maximises worth less price.
    u = np.random.default_rng(0).random(len(triplets))
    charges = problem.charges(u)
    for j, bits in enumerate(functions):
        split = problem.comparisons.split_by(bits[rows])
        assert charges[split].sum() == pytest.approx(a[:, j] @ u / len(triplets) - 0.1 * s[j])
