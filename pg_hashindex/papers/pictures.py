"""Figures of the papers that compare no methods: SGH's approximation, and CGHash's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..hashers import make_hasher
from ..hashers.sgh import feature_map
from ..metrics.ranking import ranking_distances
from ..quality.plots.figures import COLOURS, drawing, name_panel, new_figure
from . import Split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As in SGH's paper, for rows of unit length.
_RHO = 2.0
_PAIR_ROWS = 1_000
_SHOWN_PAIRS = 4_000


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """How well SGH's feature map approximates the similarity of pairs of rows (its Figure 1).

    Attributes
    ----------
    values
        Of the errors of the similarity, which lies in -1 to 1: the ``greatest``, their ``mean``
        and ``deviation``, and ``bound``, the greatest that any pair of unit rows can have;
        and the ``correlation`` of both similarities.
    similarity, approximation : float64 (n,)
        Some of the pairs.
    """

    values: dict[str, float]
    similarity: NDArray[np.float64]
    approximation: NDArray[np.float64]

    @drawing()
    def draw(self) -> Figure:
        """Draw both functions on [-1, 1], as SGH's Figure 1, and both similarities of pairs."""
        figure: Figure = new_figure((8.4, 3.6))
        functions, pairs = figure.subplots(1, 2)
        x = np.linspace(-1, 1, 101)
        functions.plot(x, np.exp(x), color=COLOURS[0], label="exp(x)")
        functions.plot(x, linear_exponential(x), color=COLOURS[1], linestyle="--", label="line")
        functions.legend(frameon=False)
        name_panel(functions, "the function", "x", "")
        pairs.plot(self.similarity, self.approximation, ".", color=COLOURS[0], markersize=1)
        pairs.plot([-1, 1], [-1, 1], color=COLOURS[1], linewidth=1)
        name_panel(pairs, "pairs of rows", "similarity", "P(x)'Q(y)")
        return figure


def linear_exponential(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return (e^2 - 1) / (2 e) x + (e^2 + 1) / (2 e), which SGH takes for e^x on [-1, 1]."""
    line: NDArray[np.floating] = np.sinh(1) * x + np.cosh(1)
    return line


def measure_feature_map(split: Split) -> FeatureMap:
    """Compare SGH's P(x)'Q(y) with the similarity 2 exp(-||x - y||^2 / rho) - 1.

    Rows are centred and scaled to unit length, as SGH does. The pairs are those of 1,000 queries
    and 1,000 training rows.
    """
    mean = split.train.mean(axis=0, dtype=np.float64)
    x, y = (
        _unit(rows[:_PAIR_ROWS].astype(np.float64) - mean) for rows in (split.queries, split.train)
    )
    similarity = (2 * np.exp(-(2 - 2 * x @ y.T) / _RHO) - 1).ravel()
    # P and Q end with 1 and -1, which `feature_map` leaves out.
    P, Q = (feature_map(rows.astype(np.float32), _RHO) for rows in (x, y))
    approximation = (P @ Q.T - 1).ravel()
    # Never below 0, since the line is a chord of a convex function.
    error = approximation - similarity
    # e^x is farthest from the line where their slopes are equal; x = 1 stands for equal rows.
    farthest = np.sinh(1) * np.log(np.sinh(1)) + np.cosh(1) - np.sinh(1)
    some = np.random.default_rng(0).choice(len(error), min(_SHOWN_PAIRS, len(error)), replace=False)
    values = {
        "greatest": np.abs(error).max(),
        "mean": error.mean(),
        "deviation": error.std(),
        "correlation": np.corrcoef(similarity, approximation)[0, 1],
        "bound": farthest * 2 / np.e,
    }
    return FeatureMap(
        {name: float(value) for name, value in values.items()},
        similarity[some],
        approximation[some],
    )


@dataclass(frozen=True, eq=False)
class Retrieved:
    """Queries, and the rows whose codes are nearest to theirs (CGHash's Figure 8).

    Attributes
    ----------
    queries, answers : floating (q, d), (q, k, d)
    right : bool (q, k)
        Whether an answer has the query's label.
    """

    queries: NDArray[np.floating]
    answers: NDArray[np.floating]
    right: NDArray[np.bool_]

    @property
    def values(self) -> dict[str, float]:
        """The share of answers with the query's label."""
        return {"right": float(self.right.mean())}

    @drawing()
    def draw(self) -> Figure:
        """Draw a line of images for each query: the query, then its answers; wrong ones are framed.

        Raises
        ------
        InvalidInputError
            If rows are not square images.
        """
        side = round(self.queries.shape[1] ** 0.5)
        if side**2 != self.queries.shape[1]:
            raise InvalidInputError(
                f"rows of {self.queries.shape[1]} dimensions are not square images"
            )
        n, k = self.right.shape
        figure: Figure = new_figure((0.6 * (k + 1), 0.62 * n + 0.3))
        axes = figure.subplots(n, k + 1, squeeze=False)
        for query, answers, right, line in zip(
            self.queries, self.answers, self.right, axes, strict=True
        ):
            for panel, image, frame in zip(
                line, [query, *answers], [COLOURS[0], *_frames(right)], strict=True
            ):
                panel.imshow(image.reshape(side, side), cmap="gray_r")
                panel.set_xticks([])
                panel.set_yticks([])
                panel.spines[:].set_color(frame)
                panel.spines[:].set_linewidth(0.5 if frame == "lightgrey" else 2)
        axes[0, 0].set_title("query", fontsize=8)
        axes[0, 1].set_title("nearest", fontsize=8)
        return figure


def retrieve(
    split: Split, *, n_queries: int = 5, k: int = 12, n_bits: int = 60, random_state: int = 0
) -> Retrieved:
    """Train CGHash with K = 10 on labelled images, and find the nearest of a few queries.

    Parameters
    ----------
    n_queries
        The first queries of this number of classes.
    k
        Answers, by the weighted Hamming distance; ties in row order.
    """
    y, labels = split.query_labels, split.labels
    if not isinstance(y, np.ndarray) or y.ndim != 1 or not isinstance(labels, np.ndarray):
        raise InvalidInputError("the images need a label each")
    _, first = np.unique(y, return_index=True)
    chosen = np.sort(first)[:n_queries]
    hasher = make_hasher("cghash", n_bits=n_bits, n_neighbours=10, random_state=random_state)
    model = hasher.fit(split.train, split.train_labels).to_model("cghash")
    codes = model.encode(split.queries[chosen])
    distances = ranking_distances(codes, model.encode(split.database), model.bit_weights)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    right = labels[nearest] == y[chosen][:, None]
    return Retrieved(split.queries[chosen], split.database[nearest], right)


def _frames(right: NDArray[np.bool_]) -> list[str]:
    return ["lightgrey" if one else COLOURS[1] for one in right]


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1)
    return unit
