"""Figures of indexes: recall and time, over time and of tuning; sizes, and bits of codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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
    from ..recall_history import HistoryPoint
    from ..tuning import Tuned

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
        raise InvalidInputError("there is nothing to draw: no recall is saved")
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


def _line(point: HistoryPoint) -> tuple[int | None, int, int, int]:
    return point.seed, point.queries, point.candidates, point.k


def _label(seed: int | None, queries: int, candidates: int, k: int) -> str:
    words = f"{queries} other queries" if seed is None else f"{queries} rows of seed {seed}"
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


class SearchPoint(NamedTuple):
    """Recall and times of an index with one setting; ``current`` is the index's own."""

    name: str
    setting: str
    recall: float
    p50_ms: float
    p95_ms: float
    current: bool


@drawing()
def draw_indexes(points: Sequence[SearchPoint], exact_ms: float, k: int, title: str = "") -> Figure:
    """Draw recall against the time of the median query, a line for each index.

    Rings are current settings; a grey line is exact search.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    figure: Figure = new_figure((7.5, 4.5))
    panel = figure.subplots()
    for name, style in zip(dict.fromkeys(point.name for point in points), styles(), strict=False):
        line = sorted((p.recall, p.p50_ms) for p in points if p.name == name)
        panel.plot(*zip(*line, strict=True), label=plain(name), **style)
    for point in points:
        if point.current:
            panel.plot(
                point.recall, point.p50_ms, "o", markersize=12, markerfacecolor="none",
                color="black",
            )  # fmt: skip
    panel.axhline(exact_ms, color="grey", linewidth=0.8)
    panel.set_yscale("log")
    _label_milliseconds(panel)
    name_panel(panel, plain(title), f"recall@{k}", "p50 ms")
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
