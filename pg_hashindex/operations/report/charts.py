"""The charts of the page, each with its numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

# It parses only what matplotlib has just written.
from xml.etree import ElementTree

import numpy as np
from scipy.special import entr

from ...index.catalog import long_list
from ...quality import plots
from ...quality.doctor_findings import Diagnosis
from ...quality.evaluate import Evaluation
from ...quality.plots.distributions import bins_of
from ...quality.plots.figures import drawing
from ...quality.recall_history import HEADINGS, HistoryPoint
from .gathering import Bits, Lists

if TYPE_CHECKING:
    from markupsafe import Markup

# Pairs of bits in the table; there are thousands.
_PAIRS = 20

# Colours that cannot be seen on a dark page, and the page's colours that replace them.
_COLOURS = {"#000000": "currentColor", "#0072b2": "var(--blue)"}
_FONT = re.compile(r"font-family:[^;]*;?\s*")
_REFERENCE = re.compile(r"(?<=url\(#)|(?<=^#)")
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Chart:
    """A figure, a sentence about it, and its numbers as a table; ``key`` is its id in the page."""

    key: str
    title: str
    description: str
    figure: Any
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    wide: bool = False

    def svg(self) -> Markup:
        """Return the figure as an element of HTML, which loads nothing and has no background.

        Text stays text, in the page's font and colours. Ids begin with the chart's key.
        """
        import matplotlib
        from markupsafe import Markup

        out = io.StringIO()
        # A fixed salt gives the same figure the same ids.
        with drawing(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.key}):
            self.figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
        written = out.getvalue()
        root = ElementTree.fromstring(written)  # noqa: S314
        for parent in list(root.iter()):
            # HTML takes SVG without namespaces; a style element would apply to the whole page.
            parent.tag = parent.tag.rpartition("}")[2]
            parent.attrib = {
                name.rpartition("}")[2]: self._attribute(name, value)
                for name, value in parent.attrib.items()
                if name != "id" or f"#{value}" in written
            }
            for child in parent.findall("{*}style"):
                parent.remove(child)
        box = root.attrib["viewBox"]
        width, height = (round(float(word) * 96 / 72) for word in box.split()[2:])
        root.attrib = {
            "viewBox": box,
            "width": str(width),
            "height": str(height),
            "role": "img",
            "aria-labelledby": f"{self.key}-title {self.key}-description",
        }
        return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704

    def _attribute(self, name: str, value: str) -> str:
        if name == "id":
            return f"{self.key}-{value}"
        if name == "style":
            value = _FONT.sub("", value)
            for colour, own in _COLOURS.items():
                value = value.replace(colour, own)
        return _REFERENCE.sub(f"{self.key}-", value)


def of_measurement(found: Evaluation, own: int) -> Iterator[Chart]:
    """Yield recall and time against candidates, and the distribution of times with the own ones."""
    milliseconds = found.milliseconds[own]
    p50, p95 = np.percentile(milliseconds, [50, 95])
    low, high = found.points[0], found.points[-1]
    yield Chart(
        "recall",
        "Recall against candidates",
        f"Part of the true {found.k} nearest rows that searches find: {low.recall:.3f} with "
        f"{low.candidates} candidates, {high.recall:.3f} with {high.candidates}. "
        f"{found.queries} queries.",
        plots.draw_recall(found, own=own),
        ["candidates", f"recall@{found.k}"],
        [[point.candidates, point.recall] for point in found.points],
    )
    yield Chart(
        "times",
        "Time against candidates",
        f"Milliseconds of a search as the client sees them; exact search takes "
        f"{found.exact_p50_ms:.3g} (median) and {found.exact_p95_ms:.3g} (95th percentile).",
        plots.draw_times(found, own=own),
        ["candidates", "p50 ms", "p95 ms"],
        [
            *([point.candidates, point.p50_ms, point.p95_ms] for point in found.points),
            ["exact search", found.exact_p50_ms, found.exact_p95_ms],
        ],
    )
    counts, edges = bins_of(milliseconds)
    yield Chart(
        "query-times",
        "Times of the queries",
        f"How long each of {found.queries} queries took with {own} candidates: "
        f"p50 {p50:.3g} ms, p95 {p95:.3g} ms.",
        plots.draw_query_times(milliseconds),
        ["from ms", "to ms", "queries"],
        list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)),
    )


def of_indexes(found: Diagnosis) -> Iterator[Chart]:
    """Yield recall against time of the indexes of a table, without a filter."""
    points = [point for point in found.points if point.filter is None]
    exact = next(scope for scope in found.scopes if scope.filter is None)
    settings = {index.name: index for index in found.indexes}
    best = max(points, key=lambda point: (point.recall, -point.p50_ms))
    yield Chart(
        "indexes",
        "Recall against time",
        f"A line for each index, a point for each setting; rings are the settings of today, the "
        f"grey line is exact search, {exact.p50_ms:.3g} ms. The most is found by {best.index}: "
        f"{best.recall:.3f} in {best.p50_ms:.3g} ms.",
        plots.draw_indexes(found),
        ["index", "setting", f"recall@{found.k}", "p50 ms", "p95 ms"],
        [[p.index, p.setting_of(settings[p.index]), p.recall, p.p50_ms, p.p95_ms] for p in points],
        wide=True,
    )


def of_memory(found: Diagnosis) -> Iterator[Chart]:
    """Yield what rows and indexes take, beside the memory of the server."""
    memory, sizes = found.memory, found.sizes
    beyond = [name for name, size in sizes.items() if size > memory.effective_cache_size]
    said = "Each fits by itself into what the server takes for its cache."
    if beyond:
        said = (
            f"Larger than the cache, and so searched at the speed of the disk: {', '.join(beyond)}."
        )
    yield Chart(
        "sizes",
        "What must be in memory",
        f"Rows and indexes beside shared_buffers and effective_cache_size. {said}",
        plots.draw_sizes(found),
        ["what", "MB"],
        [
            *([name, size / 1e6] for name, size in sizes.items()),
            ["shared_buffers", memory.shared_buffers / 1e6],
            ["effective_cache_size", memory.effective_cache_size / 1e6],
        ],
        wide=True,
    )


def of_bits(bits: Bits) -> Iterator[Chart]:
    """Yield the share of ones of each bit, and how bits correlate."""
    worst = int(np.abs(bits.ones - 0.5).argmax())
    entropy = entr([bits.ones, 1 - bits.ones]).sum(axis=0) / np.log(2)
    yield Chart(
        "ones",
        "Share of ones",
        f"Part of {bits.codes} codes in which a bit is one; a half tells the most. Bit {worst} is "
        f"the farthest from it, with {bits.ones[worst]:.3f}.",
        plots.draw_ones(bits.ones),
        ["bit", "share of ones", "entropy"],
        list(zip(range(len(entropy)), bits.ones.tolist(), entropy.tolist(), strict=True)),
    )
    rows, columns = np.triu_indices(len(bits.numbers), k=1)
    values = bits.correlation[rows, columns]
    order = np.argsort(-np.abs(values), kind="stable")[:_PAIRS]
    order = order[~np.isnan(values[order])]
    pairs = list(
        zip(
            bits.numbers[rows[order]].tolist(),
            bits.numbers[columns[order]].tolist(),
            values[order].tolist(),
            strict=True,
        )
    )
    said = "No two bits vary."
    if pairs:
        said = "Bits {} and {} are the most alike or opposite, with {:.3f}.".format(*pairs[0])
    if len(bits.numbers) < len(bits.ones):
        said += f" {len(bits.numbers)} of {len(bits.ones)} bits are shown."
    yield Chart(
        "correlation",
        "Correlation of bits",
        f"Of {bits.codes} codes; 0 is best, grey is a bit with itself, or one that never changes. "
        f"{said} The numbers are the {_PAIRS} pairs farthest from 0.",
        plots.draw_correlation(bits.correlation),
        ["bit", "and bit", "correlation"],
        pairs,
    )


def of_lists(lists: Lists) -> Iterator[Chart]:
    """Yield the lengths of lists; nothing if there are none."""
    if not len(lists.lengths):
        return
    mean = float(lists.lengths.mean())
    counts, edges = bins_of(lists.lengths, whole=True)
    yield Chart(
        "list-lengths",
        "Lengths of lists",
        f"Codes in the lists of {lists.summary.landmarks} landmarks: {mean:.3g} on average, "
        f"{lists.lengths.min()} at least, {lists.lengths.max()} at most.",
        plots.draw_list_lengths(lists.lengths, long_list(mean)),
        ["from", "to", "lists"],
        [
            [int(low), int(high) - 1, int(count)]
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
    )


def of_history(points: Sequence[HistoryPoint]) -> Iterator[Chart]:
    """Yield recall over time; nothing if none is recorded."""
    if not points:
        return
    points = [replace(point, measured_at=point.measured_at.astimezone(UTC)) for point in points]
    yield Chart(
        "history",
        "Recall of the same queries",
        f"{len(points)} measurements, the last of {points[-1].measured_at:%Y-%m-%d} with recall "
        f"{points[-1].recall:.3f}. Each line is a set of queries and a number of candidates; "
        "where the index got another model there is a mark.",
        plots.draw_history(points),
        [f"{HEADINGS[0]} (UTC)", *HEADINGS[1:]],
        [astuple(point) for point in reversed(points)],
        wide=True,
    )
