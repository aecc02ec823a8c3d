"""Figures: comparisons, frontiers, recall, codes; needs the extra ``plot``."""

from .distributions import draw_correlation, draw_list_lengths, draw_ones, draw_query_times
from .figures import check_plot, save_figure
from .recall import (
    draw_evaluation,
    draw_frontier,
    draw_history,
    draw_indexes,
    draw_recall,
    draw_sizes,
    draw_times,
)

__all__ = [
    "check_plot",
    "draw_correlation",
    "draw_evaluation",
    "draw_frontier",
    "draw_history",
    "draw_indexes",
    "draw_list_lengths",
    "draw_ones",
    "draw_query_times",
    "draw_recall",
    "draw_sizes",
    "draw_times",
    "save_figure",
]
