"""Comparing methods as the papers do: train, encode and score them on one data set."""

from .loading import QUERIES, TRAIN_ROWS, draw_split, load_split
from .methods import Method, default_methods
from .outcomes import Outcome
from .running import compare
from .scores import Measures, Scores
from .splits import Split
from .truth import Truth, TruthKind

__all__ = [
    "QUERIES",
    "TRAIN_ROWS",
    "Measures",
    "Method",
    "Outcome",
    "Scores",
    "Split",
    "Truth",
    "TruthKind",
    "compare",
    "default_methods",
    "draw_split",
    "load_split",
]
