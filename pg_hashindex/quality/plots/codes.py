"""Figures of the bits of codes: how often each is one, and which are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .figures import COLOURS, drawing, name_panel, new_figure, number_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_correlation", "draw_ones"]

# Correlations below this look neutral, since chance makes them among a few hundred codes.
_LEAST_SCALE = 0.1
# An odd number of colours, so that one stands for 0. More would only enlarge the file.
_SHADES = 31


@drawing()
def draw_ones(ones: ArrayLike) -> Figure:
    """Draw the share of codes in which each bit is one, up and down from a half.

    Parameters
    ----------
    ones : array-like (b,)

    Returns
    -------
    matplotlib.figure.Figure
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

    Returns
    -------
    matplotlib.figure.Figure
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
