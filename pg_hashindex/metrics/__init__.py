"""Measures of codes, as the papers take them; arrays only, no database.

Rankings are by Hamming distance over all rows, or by the weighted one. A measure of many queries
is the mean of theirs, taken in blocks of queries.

Many rows are at the same distance. Measures of rankings take ``ties``: with "order", tied rows
stand in row order, as the original programs and a stable sort have it; with "average", the measure
is its expectation over all orders of the tied rows, and does not depend on the order of the
database.
"""

from .classification import neighbour_error
from .radius import precision_recall_by_radius, precision_within_radius
from .ranking import (
    Curve,
    Ties,
    mean_average_precision,
    precision_at_k,
    precision_recall_by_rank,
    share_found_at_k,
)
from .search import recall_at_k
from .truth import nearest_fraction, nearest_k, same_label

__all__ = [
    "Curve",
    "Ties",
    "mean_average_precision",
    "nearest_fraction",
    "nearest_k",
    "neighbour_error",
    "precision_at_k",
    "precision_recall_by_radius",
    "precision_recall_by_rank",
    "precision_within_radius",
    "recall_at_k",
    "same_label",
    "share_found_at_k",
]
