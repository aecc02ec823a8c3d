"""Advice: which codes, access path and settings reach a recall the fastest on a user's own rows."""

from .advice import Advice
from .applying import apply
from .drawing import Effort
from .reading import read_advice
from .recommending import frontier, recommend
from .running import tune_index, tune_table
from .trials import Goal, Trial

__all__ = [
    "Advice",
    "Effort",
    "Goal",
    "Trial",
    "apply",
    "frontier",
    "read_advice",
    "recommend",
    "tune_index",
    "tune_table",
]
