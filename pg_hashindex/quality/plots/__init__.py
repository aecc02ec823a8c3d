"""Figures: comparisons, frontiers, recall, codes; needs the extra ``plot``."""

from .codes import draw_correlation, draw_ones
from .comparison import draw, save_plot
from .figures import check_plot, save_figure
from .histograms import draw_list_lengths, draw_query_times
from .recall import (
    draw_evaluation,
    draw_frontier,
    draw_history,
    draw_recall,
    draw_times,
    save_evaluation,
    save_frontier,
    save_history,
)

__all__ = [
    "check_plot",
    "draw",
    "draw_correlation",
    "draw_evaluation",
    "draw_frontier",
    "draw_history",
    "draw_list_lengths",
    "draw_ones",
    "draw_query_times",
    "draw_recall",
    "draw_times",
    "save_evaluation",
    "save_figure",
    "save_frontier",
    "save_history",
    "save_plot",
]
