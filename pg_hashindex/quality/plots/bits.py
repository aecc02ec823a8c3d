"""The figure of the bits of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .figures import COLOURS, drawing, name_panel, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawing()
def draw_ones(ones: ArrayLike) -> Figure:
    """Draw the share of codes in which each bit is one, up and down from a half.

    Parameters
    ----------
    ones : array-like (b,)
    """
    from matplotlib.ticker import MaxNLocator

    shares = np.asarray(ones, dtype=np.float64)
    figure: Figure = new_figure((7.5, 3.0))
    panel = figure.subplots()
    edges = np.arange(len(shares) + 1) - 0.5
    panel.stairs(shares, edges, baseline=0.5, fill=True, color=COLOURS[0])
    panel.axhline(0.5, color="grey", linewidth=0.8)
    panel.set_xlim(edges[0], edges[-1])
    panel.set_ylim(0, 1)
    panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    name_panel(panel, "", "bit", "share of ones")
    return figure
