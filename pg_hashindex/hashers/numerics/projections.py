"""Linear projections: their layers, eigenvectors, and the signs of directions."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ...models.layers import Layer, affine


def centred_affine(
    weights: NDArray[np.floating],
    mean: NDArray[np.float64],
    offset: NDArray[np.float64] | float = 0.0,
) -> Layer:
    """Return the layer W (x - mean) + offset, as W x + b.

    W mean is computed in float64 from the float32 weights that the layer keeps, so that rounding
    the weights does not move the centre.
    """
    kept = weights.astype(np.float32)
    bias = -(kept.astype(np.float64) @ mean)
    return affine(kept, bias.astype(np.float32) + offset)


def leading_eigenvector(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the unit eigenvector of the greatest eigenvalue of a symmetric matrix."""
    last = len(matrix) - 1
    _, vectors = scipy.linalg.eigh(matrix, subset_by_index=[last, last], check_finite=False)
    vector: NDArray[np.float64] = vectors[:, 0]
    return vector


def with_fixed_signs(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows (k, d), each with its largest entry above 0.

    The sign of an eigenvector is arbitrary: unless it is fixed, models differ between machines.
    """
    largest = np.abs(directions).argmax(axis=1)
    flipped = directions[np.arange(len(directions)), largest] < 0
    return directions * np.where(flipped, -1, 1)[:, None]
