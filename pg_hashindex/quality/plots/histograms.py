"""Histograms of times of queries, and of lengths of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .figures import COLOURS, drawing, name_panel, new_figure, number_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bins_of", "draw_list_lengths", "draw_query_times"]

_INCHES = (5.4, 3.4)
_MOST_BINS = 40
# Part of the panel below the legend.
_HIGHEST = 0.78


def bins_of(
    values: ArrayLike, *, whole: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count values in bins of one width.

    Parameters
    ----------
    values : array-like (n,)
        At least one.
    whole : bool
        Whether the values, and so the edges of the bins, are integers.

    Returns
    -------
    int (b,), floating (b + 1,)
        Values in each bin, and its edges; of the last bin both belong to it.
    """
    array = np.asarray(values, dtype=np.float64)
    edges = np.histogram_bin_edges(array, bins="auto")
    n_bins = min(_MOST_BINS, len(edges) - 1)
    if whole:
        low, high = array.min(), array.max() + 1
        width = max(1.0, np.ceil((high - low) / n_bins))
        edges = low + width * np.arange(np.ceil((high - low) / width) + 1)
    elif n_bins < len(edges) - 1:
        edges = np.linspace(edges[0], edges[-1], n_bins + 1)
    counts, _ = np.histogram(array, edges)
    return counts.astype(np.int64), edges


@drawing()
def draw_query_times(milliseconds: ArrayLike) -> Figure:
    """Draw how long each query took, with the median and the 95th percentile.

    Parameters
    ----------
    milliseconds : array-like (n,)

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure: Figure = new_figure(_INCHES)
    panel = figure.subplots()
    _stairs(panel, *bins_of(milliseconds))
    for share, style in ((50, "-"), (95, "--")):
        at = float(np.percentile(np.asarray(milliseconds), share))
        _mark(panel, at, f"p{share} {at:.3g} ms", style)
    name_panel(panel, "", "ms", "queries")
    panel.legend(loc="upper right", frameon=False, fontsize=9)
    return figure


@drawing()
def draw_list_lengths(lengths: ArrayLike, long: float) -> Figure:
    """Draw how many codes the lists of landmarks have.

    Parameters
    ----------
    lengths : array-like of int (n,)
    long : float
        The number of codes above which a list is long; marked if there is such a list.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure: Figure = new_figure(_INCHES)
    panel = figure.subplots()
    array = np.asarray(lengths)
    _stairs(panel, *bins_of(array, whole=True))
    mean = float(array.mean())
    _mark(panel, mean, f"mean {mean:.3g}", "-")
    if array.max() > long:
        _mark(panel, long, f"long: above {long:.3g}", "--")
    name_panel(panel, "", "codes of a list", "lists")
    panel.legend(loc="upper right", frameon=False, fontsize=9)
    return figure


def _stairs(panel: Axes, counts: NDArray[Any], edges: NDArray[Any]) -> None:
    panel.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.75)
    panel.set_ylim(0, counts.max() / _HIGHEST)
    number_whole(panel.yaxis)


def _mark(panel: Axes, at: float, name: str, style: str) -> None:
    panel.axvline(at, ymax=_HIGHEST, color=COLOURS[1], linestyle=style, linewidth=1.4, label=name)
