"""Figures of indexes: recall and time, bits, sizes; needs the extra ``plot``."""

from .figures import check_plot, save_figure
from .indexes import SearchPoint, draw_frontier, draw_history, draw_indexes, draw_ones, draw_sizes

__all__ = [
    "SearchPoint",
    "check_plot",
    "draw_frontier",
    "draw_history",
    "draw_indexes",
    "draw_ones",
    "draw_sizes",
    "save_figure",
]
