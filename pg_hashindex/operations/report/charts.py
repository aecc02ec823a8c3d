"""The charts of the page, each with its numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

import numpy as np

from ...index.catalog import long_list
from ...quality.plots import (
    draw_correlation,
    draw_frontier,
    draw_history,
    draw_list_lengths,
    draw_ones,
    draw_query_times,
    draw_recall,
    draw_times,
)
from ...quality.plots.histograms import bins_of
from ...quality.recall_history import HistoryPoint
from ...quality.tuning import Advice, Trial, frontier
from .bits import Bits
from .gathering import Lists, Measurement
from .markup import Markup, element, table
from .svg import embedded

__all__ = ["Chart", "of_advice", "of_bits", "of_history", "of_lists", "of_measurement"]

# Of thousands of pairs of bits.
_PAIRS = 20


@dataclass(frozen=True)
class Chart:
    """A figure, what it says in a sentence, and its numbers.

    Attributes
    ----------
    key : str
        Its id in the page.
    title, description : str
    figure : matplotlib.figure.Figure
    headings, rows
        Of the table.
    wide : bool
        Whether it takes the whole width.
    """

    key: str
    title: str
    description: str
    figure: Any
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    wide: bool = False

    def as_html(self) -> Markup:
        """Return the element."""
        return element(
            "figure",
            element("h3", self.title),
            embedded(self.figure, self.key, self.title, self.description),
            element(
                "figcaption",
                element("p", self.description),
                element("details", element("summary", "Numbers"), table(self.headings, self.rows)),
            ),
            id=self.key,
            class_="wide" if self.wide else None,
        )


def of_measurement(measured: Measurement) -> Iterator[Chart]:
    """Yield recall and time against candidates, and how times are spread."""
    found, own = measured.evaluation, measured.own
    low, high = found.points[0], found.points[-1]
    yield Chart(
        "recall",
        "Recall against candidates",
        f"Part of the true {found.k} nearest rows that searches find: {low.recall:.3f} with "
        f"{low.candidates} candidates, {high.recall:.3f} with {high.candidates}. "
        f"{found.queries} queries.",
        draw_recall(found, own=own),
        ["candidates", f"recall@{found.k}"],
        [[point.candidates, point.recall] for point in found.points],
    )
    yield Chart(
        "times",
        "Time against candidates",
        f"Milliseconds of a search as the client sees them; exact search takes "
        f"{found.exact_p50_ms:.3g} (median) and {found.exact_p95_ms:.3g} (95th percentile).",
        draw_times(found, own=own),
        ["candidates", "p50 ms", "p95 ms"],
        [
            *([point.candidates, point.p50_ms, point.p95_ms] for point in found.points),
            ["exact search", found.exact_p50_ms, found.exact_p95_ms],
        ],
    )
    counts, edges = bins_of(measured.milliseconds)
    yield Chart(
        "query-times",
        "Times of the queries",
        f"How long each of {found.queries} queries took with {own} candidates: "
        f"p50 {measured.point.p50_ms:.3g} ms, p95 {measured.point.p95_ms:.3g} ms.",
        draw_query_times(measured.milliseconds),
        ["from ms", "to ms", "queries"],
        [
            [float(low_ms), float(high_ms), int(count)]
            for low_ms, high_ms, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
    )


def of_advice(advice: Advice) -> Iterator[Chart]:
    """Yield the frontier."""
    shown = frontier(advice.trials)
    yield Chart(
        "frontier",
        "Frontier",
        f"Recall against the time of the median query, predicted for {advice.rows} rows of "
        f"{advice.table}; the grey line is the recall that was asked for, "
        f"{advice.goal.recall:g}.",
        draw_frontier(advice),
        [
            "system", "setting", f"recall@{advice.goal.k}", "p50 ms", "p95 ms", "MB", "build s",
            "frontier", "recommended",
        ],
        [
            [*_figures(trial), trial in shown, trial == advice.recommended]
            for trial in sorted(advice.trials, key=lambda trial: -trial.recall)
        ],
        wide=True,
    )  # fmt: skip


def _figures(trial: Trial) -> list[Any]:
    return [
        trial.system,
        trial.setting,
        trial.recall,
        trial.p50_ms,
        trial.p95_ms,
        trial.bytes / 1e6,
        trial.build_s,
    ]


def of_bits(bits: Bits) -> Iterator[Chart]:
    """Yield the share of ones of each bit, and how bits correlate."""
    worst = int(np.abs(bits.ones - 0.5).argmax())
    yield Chart(
        "ones",
        "Share of ones",
        f"Part of {bits.codes} codes in which a bit is one; a half tells the most. Bit {worst} is "
        f"the farthest from it, with {bits.ones[worst]:.3f}.",
        draw_ones(bits.ones),
        ["bit", "share of ones", "entropy"],
        [[bit, float(share), _entropy(float(share))] for bit, share in enumerate(bits.ones)],
    )
    pairs = list(_pairs(bits))
    some = len(bits.numbers) < len(bits.ones)
    said = "No two bits vary."
    if pairs:
        first, second, most = pairs[0]
        said = f"Bits {first} and {second} are the most alike or opposite, with {most:.3f}."
    yield Chart(
        "correlation",
        "Correlation of bits",
        f"Of {bits.codes} codes; 0 is best, grey is a bit with itself, or one that never changes. "
        f"{said}"
        + (f" {len(bits.numbers)} of {len(bits.ones)} bits are shown." if some else "")
        + f" The numbers are the {_PAIRS} pairs farthest from 0.",
        draw_correlation(bits.correlation),
        ["bit", "and bit", "correlation"],
        pairs,
    )


def _entropy(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    return float(-(share * np.log2(share) + (1 - share) * np.log2(1 - share)))


def _pairs(bits: Bits) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs of bits that are the most alike, or opposite."""
    rows, columns = np.triu_indices(len(bits.numbers), k=1)
    size = np.nan_to_num(np.abs(bits.correlation[rows, columns]), nan=-1.0)
    for place in np.argsort(-size, kind="stable")[:_PAIRS]:
        if size[place] >= 0:
            row, column = rows[place], columns[place]
            yield (
                int(bits.numbers[row]),
                int(bits.numbers[column]),
                float(bits.correlation[row, column]),
            )


def of_lists(lists: Lists) -> Iterator[Chart]:
    """Yield how long lists are; nothing where there are none."""
    if not len(lists.lengths):
        return
    mean = float(lists.lengths.mean())
    counts, edges = bins_of(lists.lengths, whole=True)
    yield Chart(
        "list-lengths",
        "Lengths of lists",
        f"Codes in the lists of {lists.summary.landmarks} landmarks: {mean:.3g} on average, "
        f"{int(lists.lengths.min())} at least, {int(lists.lengths.max())} at most.",
        draw_list_lengths(lists.lengths, long_list(mean)),
        ["from", "to", "lists"],
        [
            [int(low), int(high) - 1, int(count)]
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
    )


def of_history(points: Sequence[HistoryPoint]) -> Iterator[Chart]:
    """Yield recall over time; nothing where none is recorded."""
    if not points:
        return
    points = [replace(point, measured_at=point.measured_at.astimezone(UTC)) for point in points]
    yield Chart(
        "history",
        "Recall of the same queries",
        f"{len(points)} measurements, the last of {points[-1].measured_at:%Y-%m-%d} with recall "
        f"{points[-1].recall:.3f}. Each line is a set of queries and a number of candidates; "
        "where the index got another model there is a mark.",
        draw_history(points),
        [
            "measured (UTC)", "set", "queries", "model", "access", "ranking", "candidates",
            "probes", "k", "recall", "p50 ms", "p95 ms",
        ],
        [
            [
                point.measured_at, point.query_set, point.queries, point.model, point.access,
                point.ranking, point.candidates, point.probes, point.k, point.recall,
                point.p50_ms, point.p95_ms,
            ]
            for point in reversed(points)
        ],
        wide=True,
    )  # fmt: skip
