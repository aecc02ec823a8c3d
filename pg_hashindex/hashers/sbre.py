"""Supervised BRE: binary reconstructive embeddings of labels (Kulis & Darrell, NIPS 2009)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..models.layers import Layer
from .bre import BRE
from .numerics.rows import RowSource
from .supervision.labels import Labels, Supervision, labelled_rows


@dataclass(kw_only=True, eq=False, repr=False)
class SBRE(BRE):
    """BRE of the distances that labels give: 0 for rows that share a label, 1 for others.

    Pairs are each row with ``n_pairs`` rows that share a label with it and as many that share none,
    drawn at random; a row with fewer of a kind has more of the other. All else is as in `BRE`.
    Unlabelled rows are left out.
    """

    method = "sbre"
    learns_from = ("labels",)

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        return super()._learn(rows, Supervision(labels), rng)

    def _pairs(
        self, X: NDArray[np.float32], labels: Labels | None, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        assert labels is not None  # noqa: S101  (`labelled_rows` asks for them)
        same = labels.same(slice(None))
        order = rng.random(same.shape)
        np.fill_diagonal(order, np.inf)
        width = min(self.n_pairs, len(X) - 1)
        j = np.hstack([np.argsort(order + far, axis=1)[:, :width] for far in (~same, same)]).ravel()
        i = np.repeat(np.arange(len(X)), 2 * width)
        return i, j, np.where(same[i, j], 0.0, 1.0)
