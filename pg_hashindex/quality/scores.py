"""The measures of the papers, all from one ranking for each ground truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import metrics
from ..errors import InvalidInputError
from ..hashers.supervision.labels import Labels
from ..metrics.blocks import check_count
from ..metrics.ranking import (
    Distances,
    Measure,
    average_precision,
    check_ties,
    curve_measure,
    curve_ranks,
    mean_over_queries,
    precision_measure,
    share_measure,
)
from ..metrics.truth import Relevant, RelevantRows, relevant_by_label
from ..models.model import Model
from ..models.vectors import SparseRows

#: One label of each row, or several as 0 and 1 in columns; -1 or a line of zeros for none.
LabelArray: TypeAlias = NDArray[np.integer] | SparseRows


@dataclass(frozen=True)
class Measures:
    """Measures beside the mean average precision over the whole ranking and the curves.

    Parameters
    ----------
    k
        Precision among the first k rows, ``P@k``, and the share of the relevant rows that is
        among them, ``found@k``; at most as many as the database has.
    top
        The R of ``MAP@R``.
    radius
        The radius of the precision within a Hamming radius, ``PH2`` for 2.
    neighbours
        Rows that vote in the classification error, ``3-NN error`` for 3; only by labels, if every
        row has one.
    ties
        Tied rows in row order, or the expectation over all their orders. Votes are in row order.
    """

    k: tuple[int, ...] = (100,)
    top: tuple[int, ...] = ()
    radius: int = 2
    neighbours: int = 3
    ties: metrics.Ties = "order"

    def check(self, n: int) -> None:
        """Refuse measures that need more than n rows."""
        if not self.k:
            raise InvalidInputError("k must be one or more numbers of rows, got none")
        for k in self.k:
            check_count("k", k, n)
        for top in self.top:
            check_count("top", top, n)
        check_count("neighbours", self.neighbours, n)
        if self.radius < 0:
            raise InvalidInputError(f"radius must be 0 or more, got {self.radius}")
        check_ties(self.ties)


#: The version of how codes are scored: a figure of another version is not comparable.
SCORING = 1


@dataclass(frozen=True)
class Scores:
    """All measures by one ground truth.

    Attributes
    ----------
    values
        ``MAP``, ``MAP@R``, ``P@k``, ``found@k``, ``PH2``, ``3-NN error``, as `Measures` says.
    curve
        Precision and recall over the number of rows retrieved.
    """

    values: Mapping[str, float]
    curve: metrics.Curve

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        curve = {name: array.tolist() for name, array in self.curve._asdict().items()}
        return {**self.values, "curve": curve}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Scores":
        """Read what `as_dict` wrote."""
        curve = metrics.Curve(**{name: np.asarray(line) for name, line in found["curve"].items()})
        return cls({name: value for name, value in found.items() if name != "curve"}, curve)

    @classmethod
    def spread(cls, several: Sequence["Scores"]) -> tuple["Scores", dict[str, float]]:
        """Return the means of several runs, and the standard deviation of each value."""
        values = {name: [scores.values[name] for scores in several] for name in several[0].values}
        at, precision, recall = (
            np.mean([getattr(scores.curve, part) for scores in several], axis=0)
            for part in metrics.Curve._fields
        )
        mean = cls(
            {name: float(np.mean(found)) for name, found in values.items()},
            metrics.Curve(at.astype(np.intp), precision, recall),
        )
        return mean, {name: float(np.std(found)) for name, found in values.items()}


def score(
    model: Model,
    queries: NDArray[np.floating],
    codes: NDArray[np.uint8],
    relevant: Mapping[str, Relevant],
    measures: Measures,
    *,
    labels: tuple[LabelArray, LabelArray] | None = None,
    distances: Distances | None = None,
) -> dict[str, Scores]:
    """Take all measures of a model's codes, by the name of the truth.

    Rankings are by Hamming distance with the model's weights of bits, or by ``distances`` if they
    are given; measures within a radius always use Hamming distance.

    Parameters
    ----------
    codes
        Of the database.
    relevant
        Which rows of the database are relevant to which query, by the name of the truth; ``label``
        for a shared label.
    labels
        Of the queries and of the database, which vote by the truth ``label`` if each row has one.
    """
    query_codes = model.encode(queries)
    ranks = curve_ranks(len(codes))
    taken = _ranking_measures(measures)
    result = {}
    for name, truth in relevant.items():
        *means, curve = mean_over_queries(
            query_codes,
            codes,
            truth,
            [*taken.values(), curve_measure(ranks)],
            ties=measures.ties,
            weights=model.bit_weights,
            distances=distances,
        )
        values = {measure: float(mean) for measure, mean in zip(taken, means, strict=True)}
        values[f"PH{measures.radius}"] = metrics.precision_within_radius(
            query_codes, codes, truth, measures.radius
        )
        if name == "label" and labels is not None and all(map(_one_each, labels)):
            values[f"{measures.neighbours}-NN error"] = metrics.neighbour_error(
                query_codes,
                codes,
                *labels,
                measures.neighbours,
                weights=model.bit_weights,
                distances=distances,
            )
        result[name] = Scores(values, metrics.Curve(ranks, *curve))
    return result


def sharing_labels(query_labels: LabelArray, labels: LabelArray) -> RelevantRows:
    """Return which rows share a label with which query; refuse labels that none share."""
    relevant = relevant_by_label(query_labels, labels)
    if not relevant.any():
        queries, rows = (len(Labels.read(y, y.shape[0]).labelled) for y in (query_labels, labels))
        raise InvalidInputError(
            f"none of the {query_labels.shape[0]} queries shares a label with a row of the "
            f"database ({queries} queries and {rows} rows have one); label more rows, or take "
            "nearest-fraction or nearest-k as truth"
        )
    return relevant


def _ranking_measures(measures: Measures) -> dict[str, Measure]:
    result: dict[str, Measure] = {"MAP": average_precision}
    for top in measures.top:
        result[f"MAP@{top}"] = partial(average_precision, top=top)
    for k in measures.k:
        result[f"P@{k}"] = precision_measure(k)
    for k in measures.k:
        result[f"found@{k}"] = share_measure(k)
    return result


def _one_each(labels: LabelArray) -> bool:
    return labels.ndim == 1 and bool((labels >= 0).all())
