"""CGHash: hash functions by column generation (Li, Lin, Shen, van den Hengel & Dick, ICML 2013)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError
from ..models.layers import MAX_DIMENSION, Layer, shift
from .base import Hasher, first_and_last
from .numerics.kernels import choose_anchors, gaussian
from .numerics.rows import RowSource
from .numerics.weak_functions import Cut, LinearFunctions, Stumps, WeakFunction, WeakFunctions
from .parameters import Factor, TooManyBitsError, integer
from .supervision.column_generation import LOSSES, RestrictedProblem
from .supervision.labels import Labels, Supervision, check_classes
from .supervision.triplets import Comparisons, label_triplets

_DEFAULT_C = {"l1": 0.01, "l_inf": 0.3}
_WEAK = ("linear", "stump", "rbf")
# Worth of a function above its price, as a part of the price, that counts as more than rounding.
_VIOLATION = 1e-3
# If no constraint is violated, a bit is learned from this part of the triplets. If that many tries
# give no new bit, bits are drawn at random.
_FURTHER_PART = 0.1
_FURTHER_TRIES = 5
_RANDOM_TRIES = 100
# Memory and the time for each bit grow with the number of bits.
_MAX_BITS = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class CGHash(Hasher):
    """Weighted bits from comparisons: row x is nearer to x+ than to x-.

    The distance is d(x, z) = sum_j w_j |h_j(x) - h_j(z)| with w >= 0, and the margin of triplet i
    is rho_i = d(x_i, x_i-) - d(x_i, x_i+). Minimises

        mean f(rho_i) + C sum_j w_j               regularizer "l1" (equation 7)
        mean f(rho_i), all w_j at most C          regularizer "l_inf" (equation 15)

    over all weights of all functions of a family, by column generation (Algorithm 1). Triplets get
    equal weights u at first; each step adds the function that splits the most weight of pairs (x,
    x-) less that of pairs (x, x+), solves for w by L-BFGS-B, and takes u_i = -f'(rho_i). For the
    hinge loss w and u come from linear programs (equations 4 and 6).

    Triplets are given, or made from labels, or both. Labels join each row with each of its K
    nearest rows of the same class and each of its K nearest of other classes. If two classes are
    never among each other's nearest, no such triplet compares them and they may get the same code;
    given triplets can compare them. Pairs of neighbours may be given besides: the paper's duplets.
    The price of a function is then C times the part of the duplets that it splits (half a duplet
    if it splits none), not C.

    Bits have weights, which belong to the model: search orders by them. If no further function is
    worth its price, the optimum over the family is reached, as ``duality_gap_`` shows. Further bits
    then come from random parts of the triplets or, if these give no new bit, are drawn at random;
    their weights are 0 or near it. With classes that are far apart that happens after a few bits.

    Three things go beyond the paper. The terms are means, so that C means the same for any number
    of triplets. Functions of the linear family keep the direction that the relaxation finds, but
    then get the exact best threshold. Beyond ``max_triplets`` a random part is used; given triplets
    come first; `CGHash.paper` takes all.

    Training holds the triplets, about 100 bytes each at first, the m rows that they name twice,
    2 x m x n_starts and n_bits x p float32 values, p being the number of distinct pairs of rows in
    triplets; with labels it is at most 2 K times the rows. "hinge" holds n_bits x triplets too.

    Parameters
    ----------
    n_bits
        1 to 4,096.
    loss
        f. The squared hinge max(0, 1 - rho)^2 is what the paper's experiments use. "hinge" takes
        about twenty times as long, for no better neighbours.
    regularizer : {"l1", "l_inf"}
    C
        Above 0; 0.01 for "l1" and 0.3 for "l_inf" if not given. From 0.001 to 0.03 it mattered
        little on training rows of MNIST, USPS and text embeddings: 0.01 of precision for each
        threefold.
    weak
        The family: hyperplanes; thresholds of single dimensions, searched exhaustively; or
        hyperplanes in the space of ``n_anchors`` RBF kernel features.
    n_neighbours
        K, of triplets made from labels; 30 suits a few thousand rows, as the paper has it.
    max_rows
        Labelled rows that triplets are made from, drawn at random if there are more: finding their
        neighbours takes time with the square of them.
    n_starts, max_iter
        Random starts, and iterations of L-BFGS that improve the best of them ("linear", "rbf").
    n_anchors
        Kernel bases, drawn from all rows ("rbf").
    anchors : array-like (m, d), optional
        Kernel bases to use instead.

    Attributes
    ----------
    bit_weights_ : float64 (n_bits,)
        w.
    objective_ : float64 (n_bits,)
        The objective with 1 to n_bits bits; it never rises.
    duality_gap_ : float64 (n_bits,)
        The most that the objective can be above the optimum over the family; see
        `RestrictedProblem.gap`. For stumps it is a bound, for the others an estimate: their search
        finds a local optimum.
    n_iter_
        Steps of column generation, one for each bit.
    n_violated_
        Bits that a violated constraint gave.
    n_triplets_
        Triplets that were learned from.
    """

    method = "cghash"
    learns_from = ("labels", "triplets", "pairs")
    pairs_alone = False
    weighs_bits = True
    # All triplets of all rows.
    paper_parameters: ClassVar[Mapping[str, Any]] = {
        "max_triplets": 100_000_000,
        "max_rows": 1_000_000,
    }

    n_bits: Annotated[int, integer(1, _MAX_BITS)] | None = None
    loss: Literal["squared_hinge", "logistic", "exponential", "hinge"] = "squared_hinge"
    regularizer: Literal["l1", "l_inf"] = "l1"
    C: Factor | None = None
    weak: Literal["linear", "stump", "rbf"] = "linear"
    n_neighbours: Annotated[int, integer(1, 1000)] = 10
    max_triplets: Annotated[int, integer(1, 100_000_000)] = 100_000
    max_rows: Annotated[int, integer(2, 1_000_000)] = 10_000
    n_starts: Annotated[int, integer(1, 100_000)] = 100
    max_iter: Annotated[int, integer(0, 100_000)] = 50
    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] = 300
    anchors: ArrayLike | None = None

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        comparisons = self._comparisons(rows, given, rng)
        first, family = self._family(rows, comparisons.rows, rng)
        functions = self._generate(comparisons, family, rng)
        self.n_triplets_ = comparisons.n_triplets
        return [*first, family.layer(functions)]

    def _comparisons(
        self, rows: RowSource, given: Supervision, rng: np.random.Generator
    ) -> Comparisons:
        if given.triplets is None and given.labels is None:
            raise InvalidInputError("cghash needs triplets or labels, also with pairs; give some")
        triplets = np.empty((0, 3), np.intp)
        if given.triplets is not None:
            triplets = given.triplets
            if len(triplets) > self.max_triplets:
                kept = rng.choice(len(triplets), int(self.max_triplets), replace=False)
                triplets = triplets[np.sort(kept)]
        room = int(self.max_triplets) - len(triplets)
        if given.labels is not None and room:
            try:
                of_labels = self._triplets_of_labels(rows, given.labels, room, rng)
            except InvalidInputError:
                if given.triplets is None:
                    raise
            else:
                triplets = np.concatenate([triplets, of_labels])
        return Comparisons.of(triplets, self._duplets(given))

    def _triplets_of_labels(
        self, rows: RowSource, labels: Labels, most: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        check_classes(labels)
        numbers = labels.labelled
        if len(numbers) > self.max_rows:
            numbers = np.sort(rng.choice(numbers, int(self.max_rows), replace=False))
        triplets = label_triplets(
            rows.rows(numbers), labels.take(numbers), int(self.n_neighbours), most, rng
        )
        return numbers[triplets]

    def _duplets(self, given: Supervision) -> NDArray[np.intp] | None:
        if given.pairs is None:
            return None
        if self.regularizer != "l1":
            raise InvalidInputError(
                f"pairs change the price of functions, which {self.regularizer!r} does not have; "
                "leave out the pairs, or use the regularizer 'l1'"
            )
        if n_others := int(np.count_nonzero(given.pairs[:, 2] != 1)):
            raise InvalidInputError(
                f"cghash learns from pairs of neighbours only, but {n_others} of the "
                f"{len(given.pairs)} pairs are of others: leave them out, or say by triplets what "
                "they are farther than"
            )
        return given.pairs[:, :2]

    def _family(
        self, rows: RowSource, numbers: NDArray[np.intp], rng: np.random.Generator
    ) -> tuple[list[Layer], WeakFunctions]:
        """Return the layers that make features, and the family of functions over some rows."""
        if self.weak == "stump":
            return [], Stumps(rows.rows(numbers))
        if self.weak == "linear":
            return [], LinearFunctions(rows.rows(numbers), self.n_starts, self.max_iter)
        anchors = choose_anchors(rows, self.anchors, self.n_anchors, rng)
        kernel = gaussian(rows, anchors, 2.0)
        values = rows.restricted_to(numbers).through(kernel).array()
        # Kernel values are close together; centred, float32 holds their projections well.
        centre = shift(-values.mean(axis=0, dtype=np.float64))
        features = LinearFunctions(centre.apply(values), self.n_starts, self.max_iter)
        return [kernel, centre], features

    def _generate(
        self, comparisons: Comparisons, family: WeakFunctions, rng: np.random.Generator
    ) -> list[WeakFunction]:
        problem = RestrictedProblem(
            comparisons,
            LOSSES[self.loss],
            self._regularization(),
            capped=self.regularizer == "l_inf",
            max_functions=self.n_bits_,
        )
        functions: list[WeakFunction] = []
        objective, gaps = np.empty(self.n_bits_), np.empty(self.n_bits_)
        self.n_violated_ = 0

        def cut(duals: NDArray[np.float64]) -> Cut:
            charges = problem.charges(duals)
            return Cut(comparisons.first, comparisons.second, charges, len(comparisons.rows))

        found = family.best(cut(problem.solution.duals), functions, rng)
        self._check_worth(problem, found)
        for bit in range(self.n_bits_):
            if (
                found is not None
                and problem.violated_by(found.bits, _VIOLATION)
                and _is_new(found, functions)
            ):
                self.n_violated_ += 1
            else:
                found = self._further(family, functions, cut, comparisons.n_triplets, rng)
            functions.append(found)
            solution = problem.add(found.bits)
            found = family.best(cut(solution.duals), functions, rng)
            objective[bit] = solution.objective
            gaps[bit] = problem.gap(None if found is None else found.bits)
        if not problem.solution.weights.any():
            raise InvalidInputError(
                f"with C = {problem.C:g} all bits weigh 0 but for rounding; give a "
                + ("greater C" if problem.capped else "smaller C")
            )
        self.bit_weights_ = problem.solution.weights
        self.objective_, self.duality_gap_ = objective, gaps
        self.n_iter_ = len(functions)
        return functions

    def _regularization(self) -> float:
        """Return C, as given or by default."""
        return float(_DEFAULT_C[self.regularizer] if self.C is None else self.C)

    def _check_worth(self, problem: RestrictedProblem, found: WeakFunction | None) -> None:
        """Refuse training that would end with weights of 0, by the best function at w = 0."""
        if found is not None and problem.violated_by(found.bits, _VIOLATION):
            return
        worth = 0.0 if found is None else problem.worth(found.bits, problem.solution.duals)
        price = 0.0 if found is None else problem.price(found.bits)
        if worth <= 0 or not price:
            raise InvalidInputError(
                f"no {self.weak} function puts more far rows than near ones of the "
                f"{problem.comparisons.n_triplets} triplets apart; they may contradict each other, "
                "or have the near and the far row the wrong way round"
            )
        raise InvalidInputError(
            f"with C = {problem.C:g} no hash function is worth its price; give a C below "
            f"{problem.C * worth / price:.2g}"
        )

    def _further(
        self,
        family: WeakFunctions,
        functions: list[WeakFunction],
        cut: Callable[[NDArray[np.float64]], Cut],
        n_triplets: int,
        rng: np.random.Generator,
    ) -> WeakFunction:
        """Find the best unused function, whether or not it is worth its price."""
        for attempt in range(_FURTHER_TRIES + _RANDOM_TRIES):
            if attempt < _FURTHER_TRIES:
                part = rng.random(n_triplets) < _FURTHER_PART
                part[rng.integers(n_triplets)] = True
                found = family.best(cut(part.astype(np.float64)), functions, rng)
            else:
                found = family.draw(rng)
            if found is not None and _is_new(found, functions):
                return found
        raise TooManyBitsError(
            f"only {len(functions)} different {self.weak} functions could be found over the "
            f"{len(functions[0].bits)} rows that triplets name, but n_bits is {self.n_bits_}; ask "
            "for fewer bits, or give triplets of more rows",
            most=len(functions),
        )

    def _bit_weights(self) -> NDArray[np.floating]:
        return self.bit_weights_

    def _summary(self) -> dict[str, Any]:
        return {
            "C": self._regularization(),
            "triplets": self.n_triplets_,
            "violated": self.n_violated_,
            "objective": first_and_last(self.objective_),
            "duality_gap": first_and_last(self.duality_gap_),
        }


def _is_new(found: WeakFunction, functions: list[WeakFunction]) -> bool:
    """Return whether a function splits the rows unlike each of the others."""
    return not any(
        np.array_equal(found.bits, known.bits) or np.array_equal(found.bits, ~known.bits)
        for known in functions
    )
