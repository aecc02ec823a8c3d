"""LFH: supervised hashing with latent factor models (Zhang, Zhang, Li & Guo, SIGIR 2014)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from ..models.codes import pack
from ..models.layers import Layer
from .base import first_and_last
from .feature_hasher import FeatureHasher
from .numerics.rows import RowSource, row_slices, scratch_array
from .parameters import Factor, integer
from .supervision.discrete import signs
from .supervision.label_sets import LabelSets
from .supervision.labels import Labels, Supervision, labelled_rows


@dataclass(kw_only=True, eq=False, repr=False)
class LFH(FeatureHasher):
    """Signs of latent factors that tell which rows share a label.

    Factors U_i of n_bits numbers give the probability sigmoid(T_ij), T_ij = U_i'U_j / 2, that rows
    i and j share a label. With a normal prior of variance beta the log posterior is

        sum of s_ij T_ij - log(1 + exp(T_ij)) over i and j  -  sum of ||U_i||^2 / (2 beta)

    s_ij being 1 or 0; each pair counts in both orders. Each round draws n_bits columns (the paper's
    stochastic learning), those of the rows O, and updates the factors of the other rows G, then
    those of O, by the maximum of a quadratic lower bound that touches the posterior (its surrogate
    algorithm): U_i gains H^-1 g for

        g = sum over j of (s_ij - sigmoid(T_ij)) U_j - U_i / beta
        H = sum over j of U_j U_j' / 8 + I / beta

    The hash function is then the ridge regression of the factors on the rows, or on kernel values.

    Differences from the paper: pairs of two rows of O are left out, so each update is that of
    independent rows and raises the posterior of the drawn columns; the first factors are normal
    random numbers, not principal components, of which there are only d.

    Training holds n x n_anchors (n x d without anchors) and n x n_bits float32 values, in memory up
    to 1 GiB each, beyond that in temporary files. Time is linear in rows. Unlabelled rows are left
    out.

    Parameters
    ----------
    n_bits
        1 to 16,000.
    beta
        Variance of the prior. 1e-12 to 1e12, like all numbers here.
    n_anchors, anchors, width, ridge
        As of `SDH`. Without anchors, as in the paper, the hash function is linear.
    n_iter
        Rounds.

    Attributes
    ----------
    codes_ : uint8 (n_labelled, ceil(n_bits / 8))
        The signs of the factors of the labelled rows, in row order.
    losses_ : float64 (n_iter,)
        The mean of log(1 + exp(T_ij)) - s_ij T_ij over the pairs of each round, after the update of
        the rows G.
    """

    method = "lfh"

    beta: Factor = 30.0
    n_iter: Annotated[int, integer(1, 100_000)] = 50

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        LabelSets.of_several(labels)
        features = self._features(rows, rng)
        factors = scratch_array((rows.n_rows, self.n_bits_))
        for part in row_slices(rows.n_rows):
            factors[part] = rng.standard_normal(factors[part].shape)
        n_columns = min(self.n_bits_, rows.n_rows // 2)
        draws = (rng.choice(rows.n_rows, n_columns, replace=False) for _ in range(self.n_iter))
        self.losses_ = np.array([update(factors, labels, draw, self.beta) for draw in draws])
        B = signs(factors)
        self.codes_ = pack(B > 0)
        return features.layers(*features.regress(factors), B)

    def _summary(self) -> dict[str, Any]:
        return {"loss": first_and_last(self.losses_)}


def update(U: NDArray[np.float32], labels: Labels, drawn: NDArray[np.intp], beta: float) -> float:
    """Update all factors by the columns of the drawn rows; return the mean loss in between."""
    n, r = U.shape
    prior = np.eye(r) / beta
    of_drawn = U[drawn].astype(np.float64)
    bound = scipy.linalg.cho_factor(of_drawn.T @ of_drawn / 8 + prior)
    gradient, curvature, loss = -of_drawn / beta, 8 * prior, 0.0
    for part in row_slices(n):
        numbers = np.setdiff1d(np.arange(part.start, part.stop), drawn)
        V, same = U[numbers].astype(np.float64), labels.same(numbers, drawn)
        error = same - scipy.special.expit(V @ of_drawn.T / 2)
        V += scipy.linalg.cho_solve(bound, (error @ of_drawn - V / beta).T).T
        U[numbers] = V
        T = V @ of_drawn.T / 2
        gradient += (same - scipy.special.expit(T)).T @ V
        curvature += V.T @ V
        loss += float(np.logaddexp(0, np.where(same, -T, T)).sum())
    bound = scipy.linalg.cho_factor(curvature / 8)
    U[drawn] = of_drawn + scipy.linalg.cho_solve(bound, gradient.T).T
    return float(loss / ((n - len(drawn)) * len(drawn)))
