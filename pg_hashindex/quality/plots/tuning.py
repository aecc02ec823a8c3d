"""Figure of a frontier: what tuning has tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..tuning import Advice, frontier
from .figures import drawing, name_panel, new_figure, plain, save_figure, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_frontier", "save_frontier"]


def save_frontier(advice: Advice, path: Path) -> None:
    """Draw what was tried into a file; its name says in which format.

    Parameters
    ----------
    advice : Advice
    path : Path

    Raises
    ------
    InvalidInputError
        As `check_plot`.
    OSError
        If the file cannot be written.
    """
    save_figure(lambda: draw_frontier(advice), path)


@drawing()
def draw_frontier(advice: Advice) -> Figure:
    """Draw recall against the time of the median query, a line for each system.

    Trials beaten by another one of their system are left out; the recommended one has a ring.

    Parameters
    ----------
    advice : Advice

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    figure: Figure = new_figure((7.5, 4.5))
    from matplotlib.ticker import LogLocator, NullFormatter

    panel = figure.subplots()
    systems = dict.fromkeys(trial.system for trial in advice.trials)
    for system, style in zip(systems, styles(), strict=False):
        shown = frontier([trial for trial in advice.trials if trial.system == system])
        points = [(trial.recall, trial.p50_ms) for trial in shown]
        panel.plot(*zip(*points, strict=True), label=plain(system), **style)
    if advice.recommended is not None:
        chosen = advice.recommended
        panel.plot(
            chosen.recall, chosen.p50_ms, "o", markersize=12, markerfacecolor="none",
            color="black", label="recommended",
        )  # fmt: skip
    panel.axvline(advice.goal.recall, color="grey", linewidth=0.8)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    title = f"{plain(advice.table)}, {advice.rows} rows"
    name_panel(panel, title, f"recall@{advice.goal.k}", "p50 ms")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure
