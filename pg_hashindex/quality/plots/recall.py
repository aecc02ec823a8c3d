"""Figures of recall and time: against candidates, over time, and of tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from ...errors import InvalidInputError
from .figures import (
    COLOURS,
    drawing,
    name_panel,
    new_figure,
    plain,
    scale_recall,
    styles,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..doctor_findings import Diagnosis
    from ..evaluate import Evaluation
    from ..recall_history import HistoryPoint
    from ..tuning import Tuned

_INCHES = (5.4, 3.4)
# Labels of numbers of candidates that are closer than this would overlap.
_APART = 1.2


@drawing()
def draw_evaluation(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw recall and times of searches against candidates, side by side.

    Parameters
    ----------
    own
        Candidates that searches of the index keep; they are marked.
    """
    figure = _draw(evaluation, own, _draw_recall, _draw_times)
    figure.suptitle(f"{plain(evaluation.index)}, {evaluation.queries} queries", fontsize=10)
    return figure


@drawing()
def draw_recall(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw recall alone; as `draw_evaluation`."""
    return _draw(evaluation, own, _draw_recall)


@drawing()
def draw_times(evaluation: Evaluation, *, own: int | None = None) -> Figure:
    """Draw times alone; as `draw_evaluation`."""
    return _draw(evaluation, own, _draw_times)


def _draw(
    evaluation: Evaluation, own: int | None, *parts: Callable[[Axes, Evaluation, int | None], None]
) -> Figure:
    figure: Figure = new_figure((len(parts) * _INCHES[0], _INCHES[1]))
    for part, panel in zip(parts, figure.subplots(1, len(parts), squeeze=False)[0], strict=True):
        part(panel, evaluation, own)
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


_MOST_LINES = 8
_MOST_CHANGES = 8


@drawing()
def draw_history(points: Sequence[HistoryPoint], name: str = "") -> Figure:
    """Draw recall over time, a line for each set of queries, candidates and k.

    At most eight lines are drawn, those with the most points. A mark shows where the index got
    another model.

    Parameters
    ----------
    points
        The latest last.
    name
        The name of the index.

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
        # For a single moment, matplotlib would show four years.
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


@drawing()
def draw_indexes(found: Diagnosis) -> Figure:
    """Draw recall against the time of the median query of a table's indexes, without a filter.

    Rings are the settings that sessions have; a grey line is exact search.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    figure: Figure = new_figure((7.5, 4.5))
    panel = figure.subplots()
    points = [point for point in found.points if point.filter is None]
    for name, style in zip(dict.fromkeys(p.index for p in points), styles(), strict=False):
        line = sorted((p.recall, p.p50_ms) for p in points if p.index == name)
        panel.plot(*zip(*line, strict=True), label=plain(name), **style)
    for point in points:
        if point.current:
            panel.plot(
                point.recall, point.p50_ms, "o", markersize=12, markerfacecolor="none",
                color="black",
            )  # fmt: skip
    for scope in found.scopes:
        if scope.filter is None and scope.condition is None:
            panel.axhline(scope.p50_ms, color="grey", linewidth=0.8)
    panel.set_yscale("log")
    _label_milliseconds(panel)
    title = f"{plain(found.table.name)}, {found.table.rows} rows"
    name_panel(panel, title, f"recall@{found.k}", "p50 ms")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


@drawing()
def draw_sizes(found: Diagnosis) -> Figure:
    """Draw the sizes of rows and indexes as bars, beside the memory that the server counts on.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    sizes = found.sizes
    figure: Figure = new_figure((7.5, 0.9 + 0.4 * len(sizes)))
    panel = figure.subplots()
    panel.barh(
        [plain(name) for name in sizes], [size / 1e6 for size in sizes.values()], color=COLOURS[0]
    )
    panel.invert_yaxis()
    for name, style in (("shared_buffers", "--"), ("effective_cache_size", ":")):
        panel.axvline(getattr(found.memory, name) / 1e6, color="black", linestyle=style, label=name)
    panel.set_xscale("symlog", linthresh=1)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlim(left=0)
    name_panel(panel, "", "MB", "")
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    return figure


def _label_milliseconds(panel: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())


@drawing()
def draw_frontier(tuned: Tuned) -> Figure:
    """Draw recall against the time of the median query: what was measured, and its frontier.

    The recommended settings have a ring; a grey line is exact search.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    figure: Figure = new_figure((7.5, 4.5))
    panel = figure.subplots()
    for points, style, label in ((tuned.points, ".", "measured"), (tuned.frontier, "o-", "best")):
        line = [(point.recall, point.p50_ms) for point in points]
        colour = COLOURS[int(points is not tuned.points)]
        panel.plot(*zip(*line, strict=True), style, color=colour, label=label)
    if tuned.cause is None:
        panel.plot(
            tuned.best.recall, tuned.best.p50_ms, "o", markersize=12, markerfacecolor="none",
            color="black", label="recommended", linestyle="none",
        )  # fmt: skip
    panel.axvline(tuned.recall, color="grey", linewidth=0.8)
    panel.axhline(tuned.exact_p50_ms, color="grey", linestyle=":", label="exact search")
    panel.set_yscale("log")
    _label_milliseconds(panel)
    name_panel(panel, plain(tuned.index), f"recall@{tuned.k}", "p50 ms")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure
