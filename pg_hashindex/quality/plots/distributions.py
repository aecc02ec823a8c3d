"""Figures of distributions: of bits, of times of queries, of lengths of lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .figures import COLOURS, drawing, name_panel, new_figure, number_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Correlations below this look neutral, since chance makes them among a few hundred codes.
_LEAST_SCALE = 0.1
# An odd number of colours, so that one stands for 0. More would only enlarge the file.
_SHADES = 31
_MOST_BINS = 40
# Part of the panel below the legend.
_HIGHEST = 0.78


@drawing()
def draw_ones(ones: ArrayLike) -> Figure:
    """Draw the share of codes in which each bit is one, up and down from a half.

    Parameters
    ----------
    ones : array-like (b,)
    """
    shares = np.asarray(ones, dtype=np.float64)
    figure: Figure = new_figure((5.4, 3.8))
    panel = figure.subplots()
    edges = np.arange(len(shares) + 1) - 0.5
    panel.stairs(shares, edges, baseline=0.5, fill=True, color=COLOURS[0])
    panel.axhline(0.5, color="grey", linewidth=0.8)
    panel.set_xlim(edges[0], edges[-1])
    panel.set_ylim(0, 1)
    number_whole(panel.xaxis)
    name_panel(panel, "", "bit", "share of ones")
    return figure


@drawing()
def draw_correlation(correlation: ArrayLike) -> Figure:
    """Draw the correlation of each two bits as a heat map.

    Parameters
    ----------
    correlation : array-like (b, b)
        NaN where there is none.
    """
    from matplotlib import colormaps

    shown = np.array(correlation, dtype=np.float32)
    np.fill_diagonal(shown, np.nan)
    known = np.abs(shown[np.isfinite(shown)])
    scale = max(_LEAST_SCALE, float(known.max(initial=0)))
    figure: Figure = new_figure((5.4, 3.8))
    panel = figure.subplots()
    image = panel.imshow(
        np.ma.masked_invalid(shown),
        cmap=colormaps["RdBu_r"].resampled(_SHADES).with_extremes(bad="#9a9a9a"),
        vmin=-scale,
        vmax=scale,
        # One point for each bit, which the viewer enlarges.
        interpolation="none",
    )
    for axis in (panel.xaxis, panel.yaxis):
        number_whole(axis)
    bar = figure.colorbar(image, ax=panel)
    if bar.solids is not None:
        # One image, not a shape for each of 256 colours.
        bar.solids.set_rasterized(True)
    name_panel(panel, "", "bit", "bit")
    panel.grid(visible=False)
    return figure


def bins_of(
    values: ArrayLike, *, whole: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count values in bins of one width; if they are whole, so are the edges of the bins.

    Returns the values in each bin (b,), and its edges (b + 1,); of the last bin both belong to it.
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
    """
    p50, p95 = np.percentile(np.asarray(milliseconds), [50, 95])
    marks = [(p50, f"p50 {p50:.3g} ms"), (p95, f"p95 {p95:.3g} ms")]
    return _histogram(*bins_of(milliseconds), marks, "ms", "queries")


@drawing()
def draw_list_lengths(lengths: ArrayLike, long: float) -> Figure:
    """Draw how many codes the lists of landmarks have.

    Parameters
    ----------
    lengths : array-like of int (n,)
    long
        The number of codes above which a list is long; marked if there is such a list.
    """
    array = np.asarray(lengths)
    marks = [(array.mean(), f"mean {array.mean():.3g}")]
    if array.max() > long:
        marks.append((long, f"long: above {long:.3g}"))
    return _histogram(*bins_of(array, whole=True), marks, "codes of a list", "lists")


def _histogram(
    counts: NDArray[np.int64],
    edges: NDArray[np.float64],
    marks: Iterable[tuple[float, str]],
    x: str,
    y: str,
) -> Figure:
    figure: Figure = new_figure((5.4, 3.4))
    panel = figure.subplots()
    panel.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.75)
    panel.set_ylim(0, counts.max() / _HIGHEST)
    number_whole(panel.yaxis)
    for (at, name), style in zip(marks, ("-", "--"), strict=False):
        panel.axvline(
            at, ymax=_HIGHEST, color=COLOURS[1], linestyle=style, linewidth=1.4, label=name
        )
    name_panel(panel, "", x, y)
    panel.legend(loc="upper right", frameon=False, fontsize=9)
    return figure
