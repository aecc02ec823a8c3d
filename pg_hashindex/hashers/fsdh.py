"""FSDH: fast supervised discrete hashing (Gui, Liu, Sun, Tao & Tan, TPAMI 2018)."""

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from .discrete import signs, without_constant_bits
from .sdh import SDH, class_sums
from .supervision import Labels

__all__ = ["FSDH"]

_BLOCK_ROWS = 8192


class FSDH(SDH):
    """SDH with the regression turned round: from labels to codes, which gives all bits at once.

    Minimises, over codes B in {-1, 1}, weights W of the labels and hash function F,

        ||B - Y W||^2 + penalty ||W||^2 + nu (||B - F(X)||^2 + n mu ||P||^2)

    by turns: W and F by ridge regression, B = sgn(Y W + nu F(X)). Each step is exact, so the
    objective never rises. Y W is near the mean code of a class, so that codes hardly leave where
    they start unless nu is large, and the alternation ends after one or two rounds.

    Parameters, attributes, the start and the hash function are those of `SDH`, with the same
    differences from the paper; ``penalty`` and ``nu`` belong to the objective above.
    """

    method = "fsdh"

    def _fit_labels(self, B: NDArray[np.int8], labels: Labels) -> NDArray[np.float64]:
        indicator = labels.indicator.astype(np.float64)
        products = (
            indicator.T @ indicator + self.penalty * scipy.sparse.eye_array(labels.n_classes)
        ).toarray()
        result: NDArray[np.float64] = scipy.linalg.solve(
            products, class_sums(B, labels), assume_a="pos"
        )
        return result

    def _fit_codes(
        self,
        B: NDArray[np.int8],
        F: NDArray[np.float32],
        W: NDArray[np.float64],
        labels: Labels,
    ) -> NDArray[np.int8]:
        new = np.empty_like(B)
        for start in range(0, len(B), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            new[part] = signs(labels.indicator[part] @ W + self.nu * F[part])
        return without_constant_bits(new, B)

    def _label_loss(self, B: NDArray[np.int8], W: NDArray[np.float64], labels: Labels) -> float:
        error = 0.0
        for start in range(0, len(B), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            error += float(np.square(B[part] - labels.indicator[part] @ W).sum())
        return error + self.penalty * float(np.square(W).sum())
