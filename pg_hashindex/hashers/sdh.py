"""SDH: supervised discrete hashing (Shen, Shen, Liu & Shen, CVPR 2015)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from ..models.codes import pack
from ..models.layers import MAX_DIMENSION, Layer
from .feature_hasher import FeatureHasher
from .numerics.rows import RowSource, scratch_array
from .parameters import Factor, integer
from .supervision.code_steps import CodeSteps, CodesToLabels, LabelsToCodes, squared_distance
from .supervision.discrete import Start, random_codes, start_codes
from .supervision.label_sets import LabelSets
from .supervision.labels import Labels, Supervision, labelled_rows


@dataclass(kw_only=True, eq=False, repr=False)
class SDH(FeatureHasher):
    """Codes from which a linear classifier predicts labels, and a kernel hash function.

    Minimises, over codes B in {-1, 1}, classifier W and hash function F,

        ||Y - B W||^2 + penalty ||W||^2 + nu (||B - F(X)||^2 + n mu ||P||^2)

    with F(x) = P'(k(x) - mean) + b, by turns: W and F by ridge regression, B by discrete cyclic
    coordinate descent, bit by bit: b_k = sgn(q_k - B' W' w_k) with Q = Y W' + nu F(X), B' and W'
    being B and W without bit k (rows of B are codes here, columns in the paper). Each step is
    exact, so the objective never rises. Codes of new rows are the signs of F.

    `SDH.program` has the kernel and the ridge of the authors' program, for which it scales rows to
    unit length. Two things differ from the paper. No bit becomes the same for all rows: it keeps
    its values instead or, in the first round from random signs, takes those of ``start="spread"``.
    F has an intercept, which the paper's program gets from a further feature. If F is above 0 for
    all rows or for none, as with a class of few rows, the threshold of that bit moves to the middle
    between the mean of the rows whose code has the bit and that of the others.

    ``start="spread"`` scored 0.001 to 0.007 more MAP on MNIST and USPS. It is not the default,
    because if classes have equal sizes, and bits are enough for codewords far apart, no step
    changes these codes, and the paper's alternation has no effect.

    Training holds n x n_anchors and n x n_bits float32 values, in memory up to 1 GiB each, beyond
    that in temporary files, and in memory three bytes for each bit of a row and a few float64
    matrices of n_bits x labels. Time is linear in rows and in labels. Unlabelled rows are left out.

    Parameters
    ----------
    n_bits
        1 to 16,000. c classes can be split in two in 2^(c - 1) - 1 ways; further bits are copies of
        others, or nearly so.
    n_anchors
        Kernel bases, 2 or more, drawn at random from the labelled rows, equal rows once; if there
        are fewer rows, all of them. None takes the rows themselves as features: a linear hash
        function.
    anchors : array-like (m, d), optional
        Kernel bases to use instead, as rows of the input space.
    width
        The kernel is exp(-distance^2 / (width * mean squared distance of rows and anchors)). 1e-12
        to 1e12, like all numbers here.
    sigma
        The kernel is exp(-distance^2 / (2 sigma^2)) instead, in the units of the rows: a width of
        2 sigma^2 / mean squared distance.
    ridge
        Penalty of the regression, the paper's mu, relative to the mean variance of a feature.
    n_iter
        Most rounds; training ends earlier if no bit changes.
    start
        The first codes: random signs for each row, as in the paper, or class codewords far from
        each other.
    penalty
        Penalty of the classifier, the paper's lambda. The least that counts is 1e-12 of the trace
        of the matrix that it is added to, n n_bits here.
    nu
        Weight of the hash function when codes are chosen.

    Attributes
    ----------
    codes_ : uint8 (n_labelled, ceil(n_bits / 8))
        The learned codes of the labelled rows, in row order.
    objective_ : float64 (rounds,)
        The objective after each round.
    """

    method = "sdh"
    learns_codes = True
    # The program adds 0.01 to sums over rows; with 10,000 rows that is about 5e-4 of the variance.
    program_parameters: ClassVar[Mapping[str, Any]] = {
        "sigma": 0.4,
        "ridge": 5e-4,
        "normalize": "l2",
    }
    _steps: ClassVar[type[CodesToLabels | LabelsToCodes]] = CodesToLabels

    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] | None = 1000
    n_iter: Annotated[int, integer(1, 100_000)] = 5
    start: Start = "random"
    penalty: Factor = 1.0
    nu: Factor = 1e-5

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        steps = self._started(labels, rng)
        features = self._features(rows, rng)
        F = scratch_array((rows.n_rows, self.n_bits_))
        objective: list[float] = []
        for _ in range(self.n_iter):
            steps.fit_weights()
            weights, intercept = features.regress(steps.B)
            for part, values in features.blocks():
                F[part] = values @ weights + intercept
            changed = steps.fit_codes(F, self.nu)
            fit = squared_distance(steps.B, F.__getitem__)
            fit += rows.n_rows * features.penalty * float(np.square(weights).sum())
            objective.append(steps.loss() + self.nu * fit)
            if not changed:
                break
        else:
            weights, intercept = features.regress(steps.B)
        self.codes_, self.objective_ = pack(steps.B > 0), np.array(objective)
        return features.layers(weights, intercept, steps.B)

    def _started(self, labels: Labels, rng: np.random.Generator) -> CodeSteps:
        sets = LabelSets.of_several(labels)
        B = apart = start_codes(sets, self.n_bits_, "spread", rng)[sets.of_row]
        if self.start == "random":
            B = random_codes(len(apart), self.n_bits_, rng)
        return self._steps(labels, B, apart, float(self.penalty))

    def _summary(self) -> dict[str, Any]:
        return {"rounds": len(self.objective_), "objective": float(self.objective_[-1])}
