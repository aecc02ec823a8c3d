"""Figures of a comparison, as the papers draw them, and of a frontier; needs the extra ``plot``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .comparison import Outcome
from .errors import InvalidInputError
from .tuning import Advice, frontier

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot", "draw", "draw_frontier", "save_frontier", "save_plot"]

_INSTALL = "pip install 'pg_hashindex[plot]'"

# Okabe and Ito's colours, which readers who are blind to some colours tell apart; yellow, too
# light for a line on white, left out. Line styles and markers tell the second round of them from
# the first, also in print without colour.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")

_PANEL_INCHES = (3.6, 3.0)
_LEGEND_COLUMNS = 6
_DPI = 150


def check_plot(path: Path) -> None:
    """Find out before the work whether a figure can be written.

    Parameters
    ----------
    path : Path

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, does not write files of this name, or may not write there.
    """
    figure = _figure()((1, 1))
    known = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in known:
        raise InvalidInputError(
            f"{path} does not end in the name of a format of figures; use one of "
            + ", ".join(f".{name}" for name in known)
        )
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInputError(f"{path} cannot be written: it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInputError(f"{path} cannot be written: you may not write there")


def save_plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw a comparison into a file; its name says in which format.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Those that failed are left out.
    path : Path

    Raises
    ------
    InvalidInputError
        As `check_plot`, and if no outcome has scores.
    OSError
        If the file cannot be written.
    """
    check_plot(path)
    draw(outcomes).savefig(path, dpi=_DPI)


def draw(outcomes: Sequence[Outcome]) -> Figure:
    """Draw a comparison: for each ground truth, scores against bits and the curves at each.

    The curves are precision over recall, and recall over the number of rows retrieved.

    Parameters
    ----------
    outcomes : sequence of Outcome

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, or no outcome has scores.
    """
    scored = [outcome for outcome in outcomes if outcome.error is None]
    if not scored:
        raise InvalidInputError("there is nothing to draw: no method has scores")
    truths = list(scored[0].scores)
    bits = sorted({outcome.n_bits for outcome in scored})
    styles = dict(zip(dict.fromkeys(map(_label, scored)), _styles(), strict=False))
    measures = {truth: _measures(scored, truth) for truth in truths}
    columns = max(len(bits), *(len(names) for names in measures.values()))
    n_legend_rows = -(-len(styles) // _LEGEND_COLUMNS)
    width, height = _PANEL_INCHES
    figure: Figure = _figure()((width * columns, height * 3 * len(truths) + 0.3 * n_legend_rows))
    axes = figure.subplots(3 * len(truths), columns, squeeze=False)
    for row, truth in enumerate(truths):
        against_bits, over_recall, over_rows = axes[3 * row : 3 * row + 3]
        for panel, measure in zip(against_bits, measures[truth], strict=False):
            _draw_against_bits(panel, scored, truth, measure, bits, styles)
        for panel, n_bits in zip(over_recall, bits, strict=False):
            _draw_precision_recall(panel, scored, truth, n_bits, styles)
        for panel, n_bits in zip(over_rows, bits, strict=False):
            _draw_recall(panel, scored, truth, n_bits, styles)
    for panel in axes.flat:
        if not panel.has_data():
            panel.set_axis_off()
    handles = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    figure.legend(
        [handles[name] for name in styles],
        list(styles),
        loc="outside lower center",
        ncols=min(_LEGEND_COLUMNS, len(styles)),
        frameon=False,
    )
    return figure


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
    check_plot(path)
    draw_frontier(advice).savefig(path, dpi=_DPI)


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
    figure: Figure = _figure()((7.5, 4.5))
    panel = figure.subplots()
    systems = dict.fromkeys(trial.system for trial in advice.trials)
    for system, style in zip(systems, _styles(), strict=False):
        shown = frontier([trial for trial in advice.trials if trial.system == system])
        points = [(trial.recall, trial.p50_ms) for trial in shown]
        panel.plot(*zip(*points, strict=True), label=system, **style)
    if advice.recommended is not None:
        chosen = advice.recommended
        panel.plot(
            chosen.recall, chosen.p50_ms, "o", markersize=12, markerfacecolor="none",
            color="black", label="recommended",
        )  # fmt: skip
    panel.axvline(advice.goal.recall, color="grey", linewidth=0.8)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("{x:g}")
    _name(panel, f"{advice.table}, {advice.rows} rows", f"recall@{advice.goal.k}", "p50 ms")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _figure() -> Any:
    """Return what makes a figure of a size: without pyplot, so without a window or shared state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInputError(f"figures need the extra plot: {_INSTALL}") from error
    return lambda size: Figure(figsize=size, layout="constrained")


def _styles() -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        yield {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": _LINES[number // len(_COLOURS) % len(_LINES)],
            "marker": _MARKERS[number % len(_MARKERS)],
            "markersize": 4,
            "linewidth": 1.4,
        }
        number += 1


def _label(outcome: Outcome) -> str:
    return outcome.method if outcome.codes == "hashed" else f"{outcome.method}, learned codes"


def _measures(scored: Sequence[Outcome], truth: str) -> list[str]:
    """Name the measures to draw against bits; a share found says little that its curve does not."""
    names = dict.fromkeys(name for outcome in scored for name in outcome.scores[truth].values)
    return [name for name in names if not name.startswith("found@")]


def _draw_against_bits(
    panel: Axes,
    scored: Sequence[Outcome],
    truth: str,
    measure: str,
    bits: Sequence[int],
    styles: dict[str, dict[str, Any]],
) -> None:
    for name, style in styles.items():
        points = sorted(
            (outcome.n_bits, outcome.scores[truth].values[measure])
            for outcome in scored
            if _label(outcome) == name and measure in outcome.scores[truth].values
        )
        if points:
            panel.plot(*zip(*points, strict=True), label=name, **style)
    panel.set_xscale("log", base=2)
    panel.set_xticks(bits, [str(n_bits) for n_bits in bits])
    panel.minorticks_off()
    _name(panel, f"{measure}, truth: {truth}", "bits", measure)


def _draw_precision_recall(
    panel: Axes,
    scored: Sequence[Outcome],
    truth: str,
    n_bits: int,
    styles: dict[str, dict[str, Any]],
) -> None:
    for outcome, curve in _curves(scored, truth, n_bits):
        style = styles[_label(outcome)]
        panel.plot(curve.recall, curve.precision, label=_label(outcome), markevery=0.15, **style)
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1.02)
    _name(panel, f"{n_bits} bits, truth: {truth}", "recall", "precision")


def _draw_recall(
    panel: Axes,
    scored: Sequence[Outcome],
    truth: str,
    n_bits: int,
    styles: dict[str, dict[str, Any]],
) -> None:
    for outcome, curve in _curves(scored, truth, n_bits):
        style = styles[_label(outcome)]
        panel.plot(curve.at, curve.recall, label=_label(outcome), markevery=0.15, **style)
    panel.set_ylim(0, 1.02)
    panel.ticklabel_format(axis="x", style="plain")
    panel.locator_params(axis="x", nbins=5)
    _name(panel, f"{n_bits} bits, truth: {truth}", "rows retrieved", "recall")


def _curves(scored: Sequence[Outcome], truth: str, n_bits: int) -> Iterator[tuple[Outcome, Any]]:
    for outcome in scored:
        if outcome.n_bits == n_bits:
            yield outcome, outcome.scores[truth].curve


def _name(panel: Axes, title: str, x: str, y: str) -> None:
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.grid(alpha=0.3)
