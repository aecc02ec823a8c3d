"""Figure of recall over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidInputError
from .figures import drawing, name_panel, new_figure, plain, save_figure, scale_recall, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..recall_history import HistoryPoint

__all__ = ["draw_history", "save_history"]

_MOST_LINES = 8
_MOST_CHANGES = 8


def save_history(name: str, points: Sequence[HistoryPoint], path: Path) -> None:
    """Draw recall over time into a file; its name says in which format.

    Parameters
    ----------
    name : str
        Of the index.
    points : sequence of HistoryPoint
    path : Path

    Raises
    ------
    InvalidInputError
        As `draw_history`; if matplotlib does not write files of this name, or may not write there.
    OSError
        If the file cannot be written.
    """
    save_figure(lambda: draw_history(points, name), path)


@drawing()
def draw_history(points: Sequence[HistoryPoint], name: str = "") -> Figure:
    """Draw recall over time, a line for each set of queries, candidates and k.

    Of more than eight lines, those with the most points are drawn. Where the index got another
    model there is a mark.

    Parameters
    ----------
    points : sequence of HistoryPoint
        The latest last.
    name : str
        Of the index.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, or there is nothing to draw.
    """
    if not points:
        raise InvalidInputError("there is nothing to draw: no recall is recorded")
    figure: Figure = new_figure((11, 3.8))
    panel = figure.subplots()
    sizes = Counter(map(_line, points))
    kept = {line for line, _ in sizes.most_common(_MOST_LINES)}
    lines = [line for line in sizes if line in kept]
    for line, style in zip(lines, styles(), strict=False):
        of_line = [point for point in points if _line(point) == line]
        panel.plot(
            [_day(point.measured_at) for point in of_line],
            [point.recall for point in of_line],
            label=_label(*line),
            **style,
        )
    _mark_models(panel, points)
    moments = [point.measured_at for point in points]
    _scale_days(panel, min(moments), max(moments))
    scale_recall(panel, [point.recall for point in points])
    ks = sorted({point.k for point in points})
    name_panel(panel, plain(name), "", f"recall@{ks[0]}" if len(ks) == 1 else "recall@k")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _line(point: HistoryPoint) -> tuple[str | None, int, int]:
    return point.query_set, point.candidates, point.k


def _label(query_set: str | None, candidates: int, k: int) -> str:
    words = "drawn queries" if query_set is None else f"set {plain(query_set)}"
    return f"{words}, {candidates} candidates, k {k}"


def _mark_models(panel: Axes, points: Sequence[HistoryPoint]) -> None:
    changes = [later for earlier, later in pairwise(points) if earlier.model != later.model]
    for point in changes[-_MOST_CHANGES:]:
        day = _day(point.measured_at)
        panel.axvline(day, color="grey", linewidth=0.8, linestyle=":")
        panel.annotate(
            plain(point.model),
            (day, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 4),
            textcoords="offset points",
            fontsize=8,
        )


def _scale_days(panel: Axes, first: datetime, last: datetime) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if first == last:
        # Of one moment matplotlib would show four years.
        panel.set_xlim(_day(first) - 1, _day(last) + 1)
    zone = first.tzinfo
    locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=zone)  # type: ignore[no-untyped-call]
    )


def _day(moment: datetime) -> float:
    from matplotlib.dates import date2num

    return float(date2num(moment))  # type: ignore[no-untyped-call]
