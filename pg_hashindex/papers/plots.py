"""Figures of a comparison of methods, as the papers draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInputError
from ..quality.plots.figures import drawing, name_panel, new_figure, styles
from . import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = (3.6, 3.0)
_LEGEND_COLUMNS = 6
_LEAST_COLUMNS = 4
_TIME = "training, CPU s"
# The papers draw precision over the first 1,000 rows, and recall over all.
_FIRST_ROWS = 1_000


@drawing()
def draw(outcomes: Sequence[Outcome]) -> Figure:
    """Draw a comparison: for each ground truth, scores against bits and the curves at each.

    The curves are precision over recall, recall over the number of rows retrieved, and precision
    over the first 1,000 of these. The last panel against bits is the time of training. Bars are
    standard deviations over seeds.

    Parameters
    ----------
    outcomes
        Those that failed are left out.

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
    looks = dict(zip(dict.fromkeys(map(_label, scored)), styles(), strict=False))
    measures = {truth: _measures(scored, truth) for truth in truths}
    measures[truths[-1]].append(_TIME)
    columns = max(_LEAST_COLUMNS, len(bits))
    panels: list[Callable[[Axes], None] | None] = []
    for truth in truths:
        panels += [
            partial(_draw_against_bits, scored, truth, measure, bits, looks)
            for measure in measures[truth]
        ]
        # A curve of one point says no more than the measures.
        if all(len(outcome.scores[truth].curve.at) < 2 for outcome in scored):
            continue
        curves: list[Callable[..., None]] = [
            partial(_draw_curves, "recall", "precision", None),
            partial(_draw_curves, "at", "recall", None),
            partial(_draw_curves, "at", "precision", _FIRST_ROWS),
        ]
        for draw_curves in curves:
            # Each kind of curve begins a row.
            panels += [None] * (-len(panels) % columns)
            panels += [partial(draw_curves, scored, truth, n, looks) for n in bits]
    n_rows = -(-len(panels) // columns)
    n_legend_rows = -(-len(looks) // _LEGEND_COLUMNS)
    width, height = _PANEL_INCHES
    figure: Figure = new_figure((width * columns, height * n_rows + 0.3 * n_legend_rows))
    axes = figure.subplots(n_rows, columns, squeeze=False)
    for axis, draw_panel in zip(axes.flat, panels, strict=False):
        if draw_panel is not None:
            draw_panel(axis)
    for panel in axes.flat:
        if not panel.has_data():
            panel.set_axis_off()
    handles = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    figure.legend(
        [handles[name] for name in looks],
        list(looks),
        loc="outside lower center",
        ncols=min(_LEGEND_COLUMNS, len(looks)),
        frameon=False,
    )
    return figure


def _label(outcome: Outcome) -> str:
    name = outcome.method if outcome.codes == "hashed" else f"{outcome.method}, learned codes"
    return f"{name}, spherical distance" if outcome.distance == "spherical" else name


def _measures(scored: Sequence[Outcome], truth: str) -> list[str]:
    """Name the measures to draw against bits; a share found says little that its curve does not."""
    names = dict.fromkeys(name for outcome in scored for name in outcome.scores[truth].values)
    return [name for name in names if not name.startswith("found@")]


def _draw_against_bits(
    scored: Sequence[Outcome],
    truth: str,
    measure: str,
    bits: Sequence[int],
    looks: dict[str, dict[str, Any]],
    panel: Axes,
) -> None:
    for name, style in looks.items():
        points = sorted(
            (outcome.n_bits, *_with_deviation(outcome, truth, measure))
            for outcome in scored
            if _label(outcome) == name
            and (measure == _TIME or measure in outcome.scores[truth].values)
        )
        if points:
            x, y, deviation = zip(*points, strict=True)
            panel.plot(x, y, label=name, **style)
            if any(deviation):
                panel.errorbar(x, y, deviation, fmt="none", ecolor=style["color"], elinewidth=1)
    panel.set_xscale("log", base=2)
    panel.set_xticks(bits, [str(n_bits) for n_bits in bits])
    panel.minorticks_off()
    if measure == _TIME:
        from matplotlib.ticker import LogLocator, NullLocator

        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_locator(NullLocator())
        name_panel(panel, _TIME, "bits", _TIME)
    else:
        name_panel(panel, f"{measure}, truth: {truth}", "bits", measure)


def _with_deviation(outcome: Outcome, truth: str, measure: str) -> tuple[float, float]:
    deviation = outcome.standard_deviation
    if measure == _TIME:
        # A logarithm needs a time; the clock may not have moved.
        return max(outcome.train_cpu_s, 1e-3), deviation.get("train_cpu_s", 0.0)
    spread = deviation["scores"][truth][measure] if deviation else 0.0
    return outcome.scores[truth].values[measure], spread


def _draw_curves(
    x: str,
    y: str,
    most: int | None,
    scored: Sequence[Outcome],
    truth: str,
    n_bits: int,
    looks: dict[str, dict[str, Any]],
    panel: Axes,
) -> None:
    """Draw one part of the curves over another, of all rows or the first ones."""
    for outcome in scored:
        if outcome.n_bits == n_bits:
            curve, label = outcome.scores[truth].curve, _label(outcome)
            shown = slice(None) if most is None else curve.at <= most
            over, values = getattr(curve, x)[shown], getattr(curve, y)[shown]
            panel.plot(over, values, label=label, markevery=0.15, **looks[label])
    panel.set_ylim(0, 1.02)
    if x == "at":
        panel.ticklabel_format(axis="x", style="plain")
        panel.locator_params(axis="x", nbins=5)
    else:
        panel.set_xlim(0, 1)
    title = f"{n_bits} bits, truth: {truth}"
    over_what = "rows retrieved" if x == "at" else x
    name_panel(panel, title, over_what, y if most is None else f"{y}@N")
