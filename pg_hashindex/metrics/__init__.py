"""Measures of codes, as in the papers; on arrays, without a database.

Rankings are of all rows, by Hamming distance or a weighted one. A measure of many queries is the
mean over the queries, computed in blocks.

Many rows have the same distance. Measures of rankings take ``ties``: with "order", tied rows stand
in row order, as in the original programs; with "average", the measure is its expectation over all
orders of the tied rows, and does not depend on the order of the database.
"""

from .classification import neighbour_error
from .radius import precision_within_radius
from .ranking import (
    Curve,
    Ties,
    mean_average_precision,
    precision_at_k,
    precision_recall_by_rank,
    share_found_at_k,
)
from .search import recall_at_k, recall_scorer
from .truth import nearest_fraction, nearest_k, same_label

__all__ = [
    "Curve",
    "Ties",
    "mean_average_precision",
    "nearest_fraction",
    "nearest_k",
    "neighbour_error",
    "precision_at_k",
    "precision_recall_by_rank",
    "precision_within_radius",
    "recall_at_k",
    "recall_scorer",
    "same_label",
    "share_found_at_k",
]
