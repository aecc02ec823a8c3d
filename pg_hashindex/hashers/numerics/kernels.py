"""Kernel features: anchors among the rows, a width, and the values of all rows."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.layers import Layer, rbf
from ...models.vectors import as_rows
from .rows import RowSource

# In this range float32 holds squares and their sums, here and in the database, and the scale of a
# kernel of any allowed width.
_SQUARED_DISTANCES = (1e-24, 1e24)


def choose_anchors(
    rows: RowSource, anchors: ArrayLike | None, n_anchors: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Take the given anchors, rows of the input space, or draw some among the rows; float32 (m, d).

    Given anchors go through the layers of the rows. Of drawn ones equal rows count once; if there
    are fewer different rows than ``n_anchors``, all are taken.
    """
    if anchors is not None:
        given = as_rows(anchors, dimension=rows.dimension)
        if not len(given):
            raise InvalidInputError("anchors has no rows; give some, or n_anchors instead")
        return rows.transform(given)
    # Draw twice as many, since some may be equal; more, if many are.
    n_drawn = min(rows.n_rows, 2 * int(n_anchors))
    while True:
        drawn = rows.rows(rng.choice(rows.n_rows, n_drawn, replace=False))
        _, first_places = np.unique(drawn, axis=0, return_index=True)
        if len(first_places) >= n_anchors or n_drawn == rows.n_rows:
            return drawn[np.sort(first_places)[: int(n_anchors)]]
        n_drawn = min(rows.n_rows, 4 * n_drawn)


def mean_squared_distance(
    rows: RowSource, anchors: NDArray[np.float32] | NDArray[np.float64]
) -> float:
    """Compute the mean squared distance over all pairs of a row and an anchor."""
    # About the mean anchor the cross terms of all pairs sum to 0, so pairs need no loop.
    centre = anchors.mean(axis=0, dtype=np.float64)
    total = 0.0
    for block in rows.blocks():
        total += float(np.square(block - centre).sum())
    return total / rows.n_rows + float(np.square(anchors - centre).sum() / len(anchors))


def check_size(rows: RowSource) -> None:
    """Refuse rows whose distances are too small or too large for float32."""
    centre, total = None, 0.0
    for block in rows.blocks():
        # Distances to one row have the size of distances between rows.
        centre = block[0].astype(np.float64) if centre is None else centre
        total += float(np.square(block - centre).sum())
    _check_distances(total / rows.n_rows)


def _check_distances(mean_square: float) -> None:
    low, high = _SQUARED_DISTANCES
    if not low <= mean_square <= high:
        raise InvalidInputError(
            f"the mean squared distance of the rows is {mean_square:.3g}, beyond what float32 "
            f"computes with, {low:g} to {high:g}; multiply the rows by a factor, or normalize them"
        )


def gaussian(rows: RowSource, anchors: NDArray[np.float32], width: float) -> Layer:
    """Return the layer of exp(-distance^2 / (width * mean squared distance)) to each anchor."""
    mean_square = mean_squared_distance(rows, anchors)
    if not mean_square:
        raise InvalidInputError("all labelled rows are equal; label some that differ")
    if len(anchors) < 2:
        raise InvalidInputError(
            "there is only 1 distinct anchor, which tells rows apart by one distance alone; "
            "give 2 or more, or a greater n_anchors"
        )
    _check_distances(mean_square)
    return rbf(anchors, 1 / (float(width) * mean_square))
