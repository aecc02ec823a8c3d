"""Figures of recall and time against the number of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import COLOURS, drawing, name_panel, new_figure, plain, save_figure, scale_recall

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..evaluate import Evaluation

__all__ = ["draw_evaluation", "draw_recall", "draw_times", "save_evaluation"]

_INCHES = (5.4, 3.4)
# Numbers of candidates that are nearer to each other would write over each other.
_APART = 1.2


def save_evaluation(evaluation: Evaluation, path: Path, *, own: int | None = None) -> None:
    """Draw what was measured of an index into a file; its name says in which format.

    Parameters
    ----------
    evaluation : Evaluation
    path : Path
    own : int, optional
        Candidates that searches of the index keep; they are marked.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, does not write files of this name, or may not write there.
    OSError
        If the file cannot be written.
    """
    save_figure(lambda: draw_evaluation(evaluation, own=own), path)


@drawing()
def draw_evaluation(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw recall and times of searches against candidates, side by side.

    Parameters
    ----------
    evaluation : Evaluation
    own : int, optional
        Candidates that searches of the index keep; they are marked.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure: Figure = new_figure((2 * _INCHES[0], _INCHES[1]))
    recall, times = figure.subplots(1, 2)
    _draw_recall(recall, evaluation, own)
    _draw_times(times, evaluation, own)
    figure.suptitle(f"{plain(evaluation.index)}, {evaluation.queries} queries", fontsize=10)
    return figure


@drawing()
def draw_recall(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw recall alone; as `draw_evaluation`."""
    figure: Figure = new_figure(_INCHES)
    _draw_recall(figure.subplots(), evaluation, own)
    return figure


@drawing()
def draw_times(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw times alone; as `draw_evaluation`."""
    figure: Figure = new_figure(_INCHES)
    _draw_times(figure.subplots(), evaluation, own)
    return figure


def _draw_recall(panel: Axes, evaluation: Evaluation, own: int | None) -> None:
    counts = [point.candidates for point in evaluation.points]
    recalls = [point.recall for point in evaluation.points]
    panel.plot(counts, recalls, "o-", color=COLOURS[0], markersize=5, label="recall")
    _mark(panel, counts, recalls, own)
    scale_recall(panel, recalls)
    _count(panel, counts)
    name_panel(panel, "", "candidates", f"recall@{evaluation.k}")
    panel.legend(loc="lower right", frameon=False, fontsize=9)


def _draw_times(panel: Axes, evaluation: Evaluation, own: int | None) -> None:
    counts = [point.candidates for point in evaluation.points]
    medians = [point.p50_ms for point in evaluation.points]
    slow = [point.p95_ms for point in evaluation.points]
    panel.plot(counts, medians, "o-", color=COLOURS[0], markersize=5, label="median")
    panel.plot(counts, slow, "s--", color=COLOURS[1], markersize=4, label="95th percentile")
    exact = evaluation.exact_p50_ms
    panel.axhline(exact, color="grey", linestyle=":", label="exact search, median")
    _mark(panel, counts, medians, own)
    panel.set_ylim(0, 1.35 * max(exact, *slow))
    _count(panel, counts)
    name_panel(panel, "", "candidates", "ms")
    panel.legend(loc="upper left", frameon=False, fontsize=9, ncols=2)


def _mark(panel: Axes, counts: Sequence[int], values: Sequence[float], own: int | None) -> None:
    if own is not None and own in counts:
        panel.plot(
            own, values[counts.index(own)], "o", markersize=12, markerfacecolor="none",
            color="black", label="the index's own", linestyle="none",
        )  # fmt: skip


def _count(panel: Axes, counts: Sequence[int]) -> None:
    """Scale candidates by their logarithm, and number those that were tried."""
    shown: list[int] = []
    for count in sorted(counts):
        if not shown or count >= _APART * shown[-1]:
            shown.append(count)
    panel.set_xscale("log")
    panel.set_xticks(shown, [str(count) for count in shown])
    panel.minorticks_off()
    if len(shown) == 1:
        panel.set_xlim(shown[0] / 2, 2 * max(counts))
