"""Tools for research: methods trained, encoded and scored on one data set, as in the papers.

Imports `quality` and what is below it. Read `load_split` first, then `compare`.
"""

from ..quality.scores import Measures, Scores
from .comparison import Comparison, compare
from .loading import (
    PROTOCOLS,
    QUERIES,
    TRAIN_ROWS,
    draw_labelled,
    draw_split,
    load_split,
    load_splits,
)
from .methods import Method, default_methods
from .outcomes import Outcome, average
from .splits import Split, Truth, TruthKind

__all__ = [
    "PROTOCOLS",
    "QUERIES",
    "TRAIN_ROWS",
    "Comparison",
    "Measures",
    "Method",
    "Outcome",
    "Scores",
    "Split",
    "Truth",
    "TruthKind",
    "average",
    "compare",
    "default_methods",
    "draw_labelled",
    "draw_split",
    "load_split",
    "load_splits",
]
