"""Tuning: find the codes, access path and settings that reach a recall the fastest."""

from .advice import Advice, Goal, Trial, frontier, read_advice, recommend
from .applying import apply
from .running import tune_index, tune_table
from .sample import Budget

__all__ = [
    "Advice",
    "Budget",
    "Goal",
    "Trial",
    "apply",
    "frontier",
    "read_advice",
    "recommend",
    "tune_index",
    "tune_table",
]
