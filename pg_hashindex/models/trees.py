"""Votes of decision trees, the network of kind ``trees``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError

__all__ = ["check_trees", "votes"]

_MOST_DEPTH = 8
# Places in trees, of rows in a block.
_BLOCK_PLACES = 1 << 18


def votes(
    X: NDArray[np.float32],
    features: NDArray[np.int32],
    thresholds: NDArray[np.float32],
    leaves: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Sum, for each bit, the values of the leaves that rows reach in its trees.

    A row goes from split k to split 2 k + 1, or to 2 k + 2 if its feature is above the threshold;
    the last splits lead to the leaves, in that order.

    Parameters
    ----------
    X : float32 (n, d)
    features : int32 (n_bits, n_trees, 2^depth - 1)
        The feature of each split, 0 to d - 1.
    thresholds : float32 (n_bits, n_trees, 2^depth - 1)
    leaves : float32 (n_bits, n_trees, 2^depth)

    Returns
    -------
    float32 (n, n_bits)
    """
    n_bits, n_trees, n_splits = features.shape
    first = np.arange(n_bits * n_trees) * n_splits
    # Every tree has one leaf more than splits.
    first_leaf = np.arange(n_bits * n_trees) - n_splits
    of_split = features.ravel().astype(np.intp)
    above, values = thresholds.ravel(), leaves.ravel()
    result = np.empty((len(X), n_bits), np.float32)
    size = max(1, _BLOCK_PLACES // len(first))
    for start in range(0, len(X), size):
        block = X[start : start + size]
        place = np.zeros((len(block), len(first)), np.intp)
        for _ in range((n_splits + 1).bit_length() - 1):
            split = first + place
            found = np.take_along_axis(block, of_split[split], axis=1)
            place = 2 * place + 1 + (found > above[split])
        reached = values[first + first_leaf + place].reshape(-1, n_bits, n_trees)
        result[start : start + size] = reached.sum(axis=2, dtype=np.float64)
    return result


def check_trees(config: Any, arrays: Any, n_bits: int) -> None:
    """Refuse a configuration or arrays that are not trees, as a file may hold them."""
    dimension = config.get("dimension")
    if set(config) != {"dimension"} or type(dimension) is not int or dimension < 1:
        raise InvalidInputError(
            f"the config of a network of kind trees is its dimension, 1 or more, got {config}"
        )
    if set(arrays) != {"features", "thresholds", "leaves"}:
        raise InvalidInputError(
            "a network of kind trees has the arrays features, thresholds and leaves, got "
            + ", ".join(arrays)
        )
    shape = arrays["features"].shape
    n_leaves = shape[-1] + 1 if len(shape) == 3 and shape[0] == n_bits else 0
    if n_leaves not in (2**depth for depth in range(1, _MOST_DEPTH + 1)):
        raise InvalidInputError(
            f"features of the trees of {n_bits} bits must be ({n_bits}, trees, 2^depth - 1) with "
            f"a depth of 1 to {_MOST_DEPTH}, got {shape}"
        )
    for name, dtype, expected in (
        ("features", np.int32, shape),
        ("thresholds", np.float32, shape),
        ("leaves", np.float32, (*shape[:2], n_leaves)),
    ):
        if arrays[name].dtype != dtype or arrays[name].shape != expected:
            raise InvalidInputError(
                f"{name} of trees must be {np.dtype(dtype)} {expected}, got {arrays[name].dtype} "
                f"{arrays[name].shape}"
            )
    features = arrays["features"]
    if features.min() < 0 or features.max() >= dimension:
        raise InvalidInputError(
            f"features of trees must be 0 to {dimension - 1}, got {features.min()} to "
            f"{features.max()}"
        )
