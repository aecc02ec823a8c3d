"""SADIH and SADIH-L1: semantic-aware discrete hashing (Zhang et al., AAAI 2019).

The alternation works on label sets instead of rows. Rows of one label set have one embedding and,
since they start alike, one code. Let N_g be the rows of set g (or the sum of their weights), v_g
and b_g its embedding and code, and s_gh the similarity of two sets. Then

    ||l S - V'B||_21 = sum_g N_g sqrt(sum_h N_h (l s_gh - v_g'b_h)^2) = sum_g N_g u_g.

The steps are as follows. Where the printed equations do not follow from the objective, both are
given:

- **D** (text above eq. 8): d_g = 1 / (2 u_g). But for a constant, sum_g N_g d_g u_g^2 equals the
  norm at the present point and is greater elsewhere, so lowering it lowers the norm. A small number
  is added to u_g^2, in the objective too, so that d_g stays finite.
- **W** (eq. 15). D weighs the rows of l S - V'B, which belong to V. The derivative in W is 0 where

      (Y D Y') W (B B') + (Y Y') W M = l Y D S B' + Y X'(alpha P2 + beta P1'),
      M = alpha P2'P2 + (beta + gamma) I.

  Printed is Q D B' and B D B', as if D weighed the columns, and P2 P2' (m x m) for P2'P2; with one
  label a row, and d_c for the D of its class, row c of W is what eq. 15 gives with d_c B B' for
  B D B'. In general two eigenproblems of size c and l solve it, (Y D Y', Y Y') and (B B', M). With
  one label a row the first is solved already, both of its matrices being diagonal.
- **P1** (eq. 16). P1 is l x m, so for l < m only P1 P1' = I can hold, not the printed P1'P1 = I.
  But then ||P1 X||^2 depends on P1, and the SVD of V X' = U s R', P1 = U R', does not minimise
  ||V - P1 X||^2; it maximises tr(P1 X V'). The term taken here is therefore
  ||V||^2 - 2 tr(P1 X V') + ||X||^2: equal to the printed one where P1'P1 = I, and to
  ||X - P1'V||^2 where P1 P1' = I; W's part in it is as printed. Only singular values above 0 count,
  at most c - 1 of them: V says nothing about other directions, so they would be arbitrary.
- **P2** (eq. 17): alpha X V'(alpha V V' + gamma I)^-1. Printed (eq. 18) is
  (alpha X X' + gamma I)^-1 X V', which solves the regression of V on X, another problem.
- **B, l21** (eq. 8 to 13): b_h minimises b'(V D V')b - 2 b'm_h with m_h = l sum_g N_g d_g s_gh v_g,
  bit by bit: b = sgn(m - B' R' D r), R = V, B' and R' without the bit. M = W'D Q in print is
  l W'Y D S.
- **B, l1** (eq. 7): sgn(W'Q), Q = l Y S. It minimises ||l S - V'B||_1 if |v_i'b_j| <= l |s_ij|, for
  then |l s - t| = l |s| - sgn(s) t; in general it is the first order of that. Since the loss of
  this step is not the loss of the W step, the objective may rise here, whatever the paper's
  theorem 1 says: by 1 % on text embeddings with 32 bits, by half with 128, and over five rounds
  from random signs on USPS by two thirds. The codes were no worse for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..models.codes import pack
from ..models.layers import MAX_DIMENSION, Layer
from .base import first_and_last
from .feature_hasher import FeatureHasher
from .numerics.rows import RowSource
from .parameters import Factor, integer
from .supervision.discrete import Start, cyclic_descent, signs, start_codes, without_constant_bits
from .supervision.label_sets import LabelSets, check_label_count
from .supervision.labels import Supervision, labelled_rows

# Most labels if rows have several: every round solves an eigenproblem of this size.
_MAX_LABELS = 2000
_MAX_SWEEPS = 10
# Least norm of a row of the residual, as a part of l sqrt(n), the norm of a row of l S.
_LEAST_RESIDUAL = 1e-6
# Singular values below this part of the greatest are rounding: centred class sums add up to 0.
_NO_DIRECTION = 1e-6
# Eigenvalues below this part of the greatest are rounding.
_NO_EIGENVALUE = 1e-10
# Least penalty, as a part of the trace of its matrix; less is lost in rounding.
_LEAST_PENALTY = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class SADIH(FeatureHasher):
    """Codes whose products with a label embedding rebuild the similarity of all training rows.

    With features X (m x n), labels Y (c x n), S_ij the similarity of rows i and j, l bits, codes B
    (l x n) in {-1, 1} and the embedding V = W'Y (l x n), it minimises by turns

        ||l S - V'B||_21 + alpha ||X - P2 V||^2 + beta ||V - P1 X||^2 + gamma (||P2||^2 + ||V||^2)

    The steps, their derivation, and differences from the printed equations are at the head of the
    module `pg_hashindex.hashers.sadih`. No n x n matrix is ever built: everything that depends on
    labels is computed by label set. Nor has the paper our guard against constant bits: a bit that a
    step would make the same for all rows keeps its values.

    ``balance`` weights pairs and rows; the paper does not. -1 pairs outnumber +1 pairs c - 1 to 1,
    and pull all codewords together. So S is minus the quotient of the weights of +1 and -1 pairs
    for them, at least -1: -1/(c - 1) if classes have equal sizes. Large classes drown small ones,
    whose codewords then coincide. So each row weighs 1 / sqrt(rows of its label), averaged over its
    labels and scaled to a mean of 1. On 10,000 text embeddings of 58 unequal classes, 32 bits, MAP
    is 0.676 with both, 0.636 with neither.

    Training holds n x n_anchors float32 values, in memory up to 1 GiB, beyond that in a temporary
    file, and in memory n_anchors x labels float64 values and a few times n_bits for each label set.
    With one label a row, time is linear in labels. If rows have several, every round solves an
    eigenproblem of labels by labels, so there may be 2,000 labels, and takes time for each pair of
    label sets that share a label. Unlabelled rows are left out.

    Parameters
    ----------
    n_bits
        1 to 16,000. c classes can be split in two in 2^(c - 1) - 1 ways; further bits are copies of
        others.
    loss : {"l1", "l21"}
        How codes are chosen. "l1" chooses all bits at once by the sign of a product: SADIH-L1.
        "l21" chooses bit after bit for the objective above, which then never rises. "l1" is faster,
        and was as good or better in the paper and in our studies.
    hash_function
        "ridge" regresses the codes on the features; "encoder" is the paper's P1, which is weak:
        `SADIH.paper` keeps "ridge".
    balance
        Whether to weight pairs and rows as above.
    n_anchors, anchors, width, sigma, ridge
        As of `SDH`.
    n_iter
        Rounds.
    start
        The first codes: codewords of classes far from each other, or random signs for each label
        set (rows of one label set always share a code here). Spread codewords scored up to 0.015
        more MAP. If classes have equal sizes and bits enough, no step changes them.
    alpha, beta, gamma
        Weights of the terms above.

    Attributes
    ----------
    codes_ : uint8 (n_labelled, ceil(n_bits / 8))
        The learned codes of the labelled rows, in row order.
    objective_ : float64 (n_iter, 4)
        The objective after the W, P1, P2 and B step of each round.
    """

    method = "sadih"
    learns_codes = True
    paper_parameters: ClassVar[Mapping[str, Any]] = {"balance": False, "start": "random"}
    paper_choices: ClassVar[Mapping[str, Any]] = {
        "alpha": (0.01, 0.1, 1.0, 5.0, 10.0),
        "beta": (0.01, 0.1, 1.0, 5.0, 10.0),
    }

    loss: Literal["l1", "l21"] = "l1"
    hash_function: Literal["ridge", "encoder"] = "ridge"
    balance: bool = True
    n_anchors: Annotated[int, integer(2, MAX_DIMENSION)] | None = 1000
    n_iter: Annotated[int, integer(1, 100_000)] = 5
    start: Start = "spread"
    alpha: Factor = 1.0
    beta: Factor = 1.0
    gamma: Factor = 1e-3

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        check_label_count(self.method, labels, _MAX_LABELS)
        sets = LabelSets.of_several(labels)
        features = self._features(rows, rng)
        start = start_codes(sets, self.n_bits_, self.start, rng)
        weights = sets.balancing_weights() if self.balance else np.ones(len(sets))
        mean, variances = features.moments(weights[sets.of_row])
        # The paper asks for features of mean 0 and equal variance.
        scale = 1 / np.sqrt(variances)
        XY = features.by_label(labels, weights[sets.of_row])
        rows_of_label = (weights * sets.counts) @ sets.members
        for feature, values in enumerate(XY):
            # Feature by feature, since this matrix is large if there are many labels.
            values -= mean[feature] * rows_of_label
            values *= scale[feature]
        learning = Alternation(
            sets,
            weights * sets.counts,
            XY,
            float(np.count_nonzero(scale) * rows.n_rows),
            start,
            balance=self.balance,
            alpha=self.alpha,
            beta=self.beta,
            gamma=self.gamma,
        )
        self.objective_ = learning.run(self.loss, self.n_iter)
        B = learning.B[sets.of_row]
        self.codes_ = pack(B > 0)
        if self.hash_function == "ridge":
            return features.layers(*features.regress(B), B)
        encoder = scale[:, None] * learning.P1.T
        return features.layers(encoder, -mean @ encoder)

    def _summary(self) -> dict[str, Any]:
        return {"objective": first_and_last(self.objective_[:, -1])}


class Alternation:
    """The variables of SADIH, B (g, l), W (c, l), P1 (l, m) and P2 (m, l), and its steps.

    ``row_weights`` (g,) are sums over the rows of each label set. ``XY`` (m, c) is X Y' and
    ``squares`` ||X||^2, rows weighted. ``B`` holds the first code of each label set. With
    ``balance`` all -1 pairs together weigh as much as all +1 pairs.
    """

    def __init__(
        self,
        sets: LabelSets,
        row_weights: NDArray[np.float64],
        XY: NDArray[np.float64],
        squares: float,
        B: NDArray[np.int8],
        *,
        balance: bool = True,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 1e-3,
    ) -> None:
        self._sets, self._N, self._XY, self._squares = sets, row_weights, XY, squares
        self._alpha, self._beta, self._gamma = alpha, beta, gamma
        n, members = row_weights.sum(), sets.members
        positive = sets.sharing(row_weights[:, None])[:, 0]
        n_positive = row_weights @ positive
        # The size of S for a -1 pair; codes cannot reach less than -1.
        self._minus = 1.0
        if balance and 2 * n_positive < n * n:
            self._minus = float(n_positive / (n * n - n_positive))
        # The sum of squares of a row of l S for each set.
        self._target = B.shape[1] ** 2 * (positive + self._minus**2 * np.maximum(n - positive, 0))
        self._floor = (_LEAST_RESIDUAL * B.shape[1]) ** 2 * n
        self._YY = sets.gram(row_weights)
        # E with E'Y Y'E = I; not needed if Y Y' is diagonal.
        self._whitening = None if sets.single else _whitening(self._YY.toarray())
        self.B = B
        self.W = np.zeros((members.shape[1], B.shape[1]))
        self.P1 = np.zeros((B.shape[1], len(XY)))
        self.P2 = np.zeros((len(XY), B.shape[1]))

    def run(self, loss: Literal["l1", "l21"], n_iter: int) -> NDArray[np.float64]:
        """Run rounds; return the objective after the W, P1, P2 and B step of each, (n_iter, 4)."""
        # Encoder and decoder start from an embedding of the codes alone.
        self.step_w(np.full(len(self._N), 1 / (2 * self._target.max() ** 0.5)))
        self.step_p1()
        self.step_p2()
        fit_codes = self.step_b_l1 if loss == "l1" else self.step_b_l21
        result = []
        for _ in range(n_iter):
            values = []
            for step in (self.step_w, self.step_p1, self.step_p2, fit_codes):
                step()
                values.append(self.objective())
            result.append(values)
        return np.array(result)

    def similar(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return S times the values (g, k) of all rows of each set, (g, k)."""
        values = self._N[:, None] * values
        result = (1 + self._minus) * self._sets.sharing(values)
        result -= self._minus * values.sum(axis=0)
        return result

    def residuals(self) -> NDArray[np.float64]:
        """Return the length of a row of l S - V'B for each set, u_g (g,)."""
        B, V = self.B.astype(np.float64), self._sets.members @ self.W
        cross = np.einsum("ij,ij->i", V, self.similar(B))
        fitted = np.einsum("ij,ij->i", V @ (B.T @ (self._N[:, None] * B)), V)
        squares = np.maximum(self._target - 2 * B.shape[1] * cross + fitted, 0)
        result: NDArray[np.float64] = np.sqrt(squares + self._floor)
        return result

    def objective(self) -> float:
        """Return the objective."""
        XV, VV = self._XY @ self.W, self.W.T @ (self._YY @ self.W)
        decoder = self._squares - 2 * np.sum(self.P2 * XV) + np.sum((self.P2 @ VV) * self.P2)
        encoder = np.trace(VV) - 2 * np.sum(self.P1.T * XV) + self._squares
        sizes = np.sum(self.P2**2) + np.trace(VV)
        return float(
            self._N @ self.residuals()
            + self._alpha * decoder
            + self._beta * encoder
            + self._gamma * sizes
        )

    def step_w(self, D: NDArray[np.float64] | None = None) -> None:
        """Set W; see eq. 15 above."""
        if D is None:
            D = 1 / (2 * self.residuals())
        B, members = self.B.astype(np.float64), self._sets.members
        weights = (self._N * D)[:, None]
        right = B.shape[1] * (members.T @ (weights * self.similar(B)))
        right += self._XY.T @ (self._alpha * self.P2 + self._beta * self.P1.T)
        M = self._alpha * self.P2.T @ self.P2
        least = _LEAST_PENALTY * np.trace(M)
        M[np.diag_indices_from(M)] += max(self._beta + self._gamma, least)
        bit_values, F = scipy.linalg.eigh(B.T @ (self._N[:, None] * B), M)
        right, YDY = right @ F, self._sets.gram(weights[:, 0])
        if self._whitening is None:
            squares = self._YY.diagonal()
            row_values = YDY.diagonal() / squares
            self.W = (right / squares[:, None] / (np.outer(row_values, bit_values) + 1)) @ F.T
        else:
            row_values, rotation = scipy.linalg.eigh(self._whitening.T @ (YDY @ self._whitening))
            E = self._whitening @ rotation
            self.W = E @ ((E.T @ right) / (np.outer(row_values, bit_values) + 1)) @ F.T

    def step_p1(self) -> None:
        """Set P1; see eq. 16 above."""
        left, sizes, right = np.linalg.svd((self._XY @ self.W).T, full_matrices=False)
        kept = sizes > _NO_DIRECTION * sizes[0]
        self.P1 = left[:, kept] @ right[kept]

    def step_p2(self) -> None:
        """Set P2; see eq. 17 above."""
        VV = self._alpha * self.W.T @ (self._YY @ self.W)
        VV[np.diag_indices_from(VV)] += max(self._gamma, _LEAST_PENALTY * np.trace(VV))
        self.P2 = self._alpha * scipy.linalg.solve(VV, (self._XY @ self.W).T, assume_a="pos").T

    def step_b_l1(self) -> None:
        """Set B to sgn(W'Q)."""
        new = signs(self.similar(self._sets.members @ self.W))
        self.B = without_constant_bits(new, self.B)

    def step_b_l21(self) -> None:
        """Set B bit by bit; see eq. 8 to 13 above."""
        V, D = self._sets.members @ self.W, 1 / (2 * self.residuals())
        linear = self.B.shape[1] * self.similar(D[:, None] * V)
        quadratic = V.T @ ((self._N * D)[:, None] * V)
        self.B = cyclic_descent(self.B, linear.__getitem__, quadratic, _MAX_SWEEPS)


def _whitening(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return E (c, k) with E'C E = I, for a C that may have no inverse.

    Labels that always occur together make Y Y' singular; V depends on their sum only.
    """
    values, directions = scipy.linalg.eigh(squares)
    kept = values > _NO_EIGENVALUE * values[-1]
    result: NDArray[np.float64] = directions[:, kept] / np.sqrt(values[kept])
    return result
