"""The convex problem of CGHash over the hash functions found so far, with its dual."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from .triplets import Comparisons

# L-BFGS-B stops at this relative change of the objective, and at this gradient.
_OBJECTIVE_TOLERANCE = 1e-9
_GRADIENT_TOLERANCE = 1e-7
_MAX_ITERATIONS = 500
# Line searches may try greater exponents, which float64 cannot hold.
_GREATEST_EXPONENT = 700.0

_Array = NDArray[np.float64]
_Function = Callable[[_Array], _Array]


class Loss(NamedTuple):
    """A convex loss f(rho) of margins, with u = -f'(rho) (equation 10) and its conjugate f*(-u).

    If it is not ``smooth``, f has a kink, and the solver gives the duals u.
    """

    value: _Function
    dual: _Function
    conjugate: _Function
    smooth: bool = True


def _hinge(rho: _Array) -> _Array:
    result: _Array = np.maximum(1 - rho, 0)
    return result


def _exponential(rho: _Array) -> _Array:
    result: _Array = np.exp(np.minimum(-rho, _GREATEST_EXPONENT))
    return result


#: The losses by name. A conjugate is finite for u >= 0; for the logistic loss and the hinge also u
#: <= 1.
LOSSES: dict[str, Loss] = {
    # max(0, 1 - rho)^2
    "squared_hinge": Loss(
        lambda rho: _hinge(rho) ** 2, lambda rho: 2 * _hinge(rho), lambda u: u * u / 4 - u
    ),
    # log(1 + exp(-rho))
    "logistic": Loss(
        lambda rho: np.logaddexp(0, -rho),
        lambda rho: expit(-rho),
        lambda u: xlogy(u, u) + xlogy(1 - u, 1 - u),
    ),
    # exp(-rho)
    "exponential": Loss(_exponential, _exponential, lambda u: xlogy(u, u) - u),
    # max(0, 1 - rho); at w = 0 all margins are below the kink, where the slope is 1
    "hinge": Loss(_hinge, lambda rho: np.where(rho < 1, 1.0, 0.0), lambda u: -u, smooth=False),
}


class Solution(NamedTuple):
    """The optimum over the functions that were added so far: weights w (k,) and duals u (t,).

    ``dual_objective`` is that of u over the same functions; at the optimum it equals ``objective``.
    """

    weights: NDArray[np.float64]
    duals: NDArray[np.float64]
    objective: float
    dual_objective: float


class RestrictedProblem:
    """The primal and dual problem over k hash functions, to which functions are added.

    With h in {0, 1}, a_j[i] = |h_j(x_i) - h_j(x_i-)| - |h_j(x_i) - h_j(x_i+)| is in {-1, 0, 1}.
    Both terms are means, so that C means the same for any number of triplets t and duplets::

        primal    min_w  1/t sum_i f(w'a_i) + r'w     0 <= w <= c
        dual      max_u  -1/t sum_i f*(-u_i) - c 1'q   1/t A u <= r + q, q >= 0

    For "l1" r = C and c is infinite, which leaves no q (equations 7 and 9); for "l_inf" r = 0 and c
    = C (equations 15 and 17); with duplets r_j = C s_j, s_j being the part of them that h_j splits
    (at the end of section 2), and c is infinite. A dual u of the primal optimum is -f'(rho)
    (equation 10); for the hinge loss, whose problems are linear, it comes with w from HiGHS.

    A function that splits no duplet would cost nothing, and a loss without a minimum would drive
    its weight to infinity. So it is charged for half a duplet.

    ``capped`` is "l_inf": C bounds the weights in place of charging for them.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        loss: Loss,
        C: float,
        *,
        capped: bool,
        max_functions: int,
    ) -> None:
        self.comparisons, self.loss, self.C, self.capped = comparisons, loss, C, capped
        self._split = np.empty((max_functions, comparisons.n_pairs), np.float32)
        self._prices = np.empty(max_functions)
        self._n = 0
        # Equation 10 at w = 0, where there are no functions yet.
        self.solution = self._at(np.empty(0))

    def charges(self, duals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gain from splitting each pair, float64 (p,).

        Summed over the pairs that a function splits, it is 1/t sum_i u_i a[i] less the price of
        duplets. The best function has the greatest sum (equation 11).
        """
        result = self.comparisons.by_pair(duals) / self.comparisons.n_triplets
        duplets = self.comparisons.duplets
        if len(duplets):
            result -= self.C / len(duplets) * np.bincount(duplets, minlength=len(result))
        return result

    def price(self, bits: NDArray[np.bool_]) -> float:
        """Return the price r of a function from its bits of the rows."""
        if self.capped:
            return 0.0
        duplets = self.comparisons.duplets
        if not len(duplets):
            return self.C
        split = int(np.count_nonzero(self.comparisons.split_by(bits)[duplets]))
        return self.C * max(split, 0.5) / len(duplets)

    def worth(self, bits: NDArray[np.bool_], duals: NDArray[np.float64]) -> float:
        """Return 1/t sum_i u_i a[i] of a function, the left side of its dual constraint."""
        by_pair = self.comparisons.by_pair(duals) / self.comparisons.n_triplets
        return float(by_pair[self.comparisons.split_by(bits)].sum())

    def add(self, bits: NDArray[np.bool_]) -> Solution:
        """Add a function, given its bits of the rows, and solve the problem again."""
        self._split[self._n] = self.comparisons.split_by(bits)
        self._prices[self._n] = self.price(bits)
        self._n += 1
        if self.loss.smooth:
            self.solution = self._at(self._descend(np.append(self.solution.weights, 0.0)))
        else:
            self.solution = self._linear_program()
        return self.solution

    def violated_by(self, bits: NDArray[np.bool_], tolerance: float) -> bool:
        """Tell whether a function is worth more than its price, by more than rounding."""
        price, duals = self.price(bits), self.solution.duals
        scale = price if price else float(duals.mean())
        return self.worth(bits, duals) - price > tolerance * scale

    def gap(self, bits: NDArray[np.bool_] | None) -> float:
        """Bound the gain of functions not added yet, from the best one among them.

        With l1 it is the duality gap over all functions, if none is worth more: u, scaled down
        until it satisfies the constraint of that function, is a feasible dual. (The dual objective
        is concave along this line and still rising at u, so the greatest feasible multiple is the
        best.) With l_inf the dual has a term for each of infinitely many functions, and with
        duplets each function has its own price. There it is the gap of the problem with this
        function added.

        ``bits`` (m,) are those of the best function; None if there is no other.
        """
        solution = self.solution
        worth, price = 0.0, 0.0
        if bits is not None:
            worth, price = self.worth(bits, solution.duals), self.price(bits)
        if self.capped:
            return solution.objective - (solution.dual_objective - self.C * max(worth, 0.0))
        if worth <= price:
            return solution.objective - solution.dual_objective
        feasible = solution.duals * (price / worth)
        return solution.objective + float(self.loss.conjugate(feasible).mean())

    def _at(
        self, weights: NDArray[np.float64], duals: NDArray[np.float64] | None = None
    ) -> Solution:
        rho = self._margins(weights)
        if duals is None:
            duals = self.loss.dual(rho)
        objective = float(self.loss.value(rho).mean()) + float(self._prices[: self._n] @ weights)
        dual_objective = -float(self.loss.conjugate(duals).mean())
        if self.capped:
            dual_objective -= self.C * float(np.maximum(self._worths(duals), 0).sum())
        return Solution(weights, duals, objective, dual_objective)

    def _margins(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        distances = weights.astype(np.float32) @ self._split[: self._n]
        return self.comparisons.margins(distances).astype(np.float64)

    def _worths(self, duals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1/t A u, float64 (k,)."""
        by_pair = self.comparisons.by_pair(duals) / self.comparisons.n_triplets
        result: NDArray[np.float64] = (self._split[: self._n] @ by_pair.astype(np.float32)).astype(
            np.float64
        )
        return result

    def _descend(self, start: NDArray[np.float64]) -> NDArray[np.float64]:
        prices = self._prices[: self._n]

        def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            rho = self._margins(weights)
            value = float(self.loss.value(rho).mean()) + float(prices @ weights)
            return value, prices - self._worths(self.loss.dual(rho))

        found = scipy.optimize.minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, self.C if self.capped else None)] * len(start),
            options={
                "ftol": _OBJECTIVE_TOLERANCE,
                "gtol": _GRADIENT_TOLERANCE,
                "maxiter": _MAX_ITERATIONS,
            },
        )
        weights: NDArray[np.float64] = found.x
        return weights

    def _linear_program(self) -> Solution:
        """Solve the dual of the hinge loss (equations 4 and 6); its marginals are the weights.

        The dual has one constraint for each function, the primal one for each triplet: with many
        triplets solving the dual is ten times as fast.
        """
        split, t = self._split[: self._n].astype(np.int8), self.comparisons.n_triplets
        A = scipy.sparse.csr_array(split[:, self.comparisons.far] - split[:, self.comparisons.near])
        A = A.astype(np.float64) / t
        gain, upper = np.full(t, -1 / t), np.ones(t)
        if self.capped:
            A = scipy.sparse.hstack([A, -scipy.sparse.eye_array(self._n)])
            gain = np.append(gain, np.full(self._n, self.C))
            upper = np.append(upper, np.full(self._n, np.inf))
        found = scipy.optimize.linprog(
            gain,
            A_ub=A,
            b_ub=self._prices[: self._n],
            bounds=np.column_stack([np.zeros(len(upper)), upper]),
            method="highs-ds",
        )
        if found.x is None:
            # Feasible (u = 0) and bounded, so only a limit of the solver leads here.
            raise RuntimeError(f"HiGHS could not solve the linear program: {found.message}")
        weights = np.maximum(-found.ineqlin.marginals, 0)
        return self._at(weights, np.clip(found.x[:t], 0, 1))
