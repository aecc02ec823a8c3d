"""The tables of one file of `retrieval.py`, as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from common import aligned

Whole = Mapping[str, Any]
Parts = Mapping[str, Any]
HNSW, OURS = "hnsw", "ours"

#: The columns of `systems`.
COLUMNS = (
    "system", "build s", "MB", "recall", "ms", "setting",
    "10 % ms", "50 % ms", "inserts/s", "by 100/s",
)  # fmt: skip


def lines(whole: Whole) -> Iterator[str]:
    """Format a data set: its systems, then ours beside HNSW."""
    yield f"{whole['data']}: {whole['rows']:,} rows of {whole['dimension']} dimensions"
    yield from aligned([list(COLUMNS), *([row[c] for c in COLUMNS] for row in systems(whole))])
    rounds = whole["parts"].get("search", {}).get("rounds", [])
    for name in rounds[0] if len(rounds) > 1 else ():
        p50 = ", ".join(f"{found[name]['p50_ms']:.2f}" for found in rounds)
        yield f"{name}: p50 of all builds {p50} ms"
    yield from aligned([["", "HNSW", "ours", "ratio"], *comparison(whole)])


def systems(whole: Whole) -> Iterator[dict[str, str]]:
    """Return a line of text for each system, with p50 / p95 of the last build."""
    parts = whole["parts"]
    last = (parts.get("search", {}).get("rounds") or [{}])[-1]
    shares = parts.get("filters", {}).get("shares", {})
    for name, built in parts.get("build", {}).get("systems", {}).items():
        point = last.get(name, {})
        rates = parts.get("inserts", {}).get("systems", {}).get(name, {})
        yield {
            "system": name,
            "build s": f"{median(b['seconds'] for b in built):.1f}",
            "MB": f"{median(b['bytes'] for b in built) / 1e6:.1f}",
            "recall": f"{point['recall']:.3f}" if point else "",
            "ms": pair(point),
            "setting": point.get("setting", ""),
            **{f"{share} % ms": _filtered(shares.get(share, {}).get(name)) for share in _SHARES},
            "inserts/s": f"{rates['single']:.0f}" if rates else "",
            "by 100/s": f"{rates['batches']:.0f}" if rates else "",
        }


_SHARES = ("10", "50")
#: The figures of a system, one for each build, from the parts of a data set.
Figures = Callable[[Parts, str], Sequence[float]]


def _searched(parts: Parts, system: str) -> list[float]:
    return [found[system]["p50_ms"] for found in parts["search"]["rounds"]]


def _within(share: str) -> Figures:
    def figures(parts: Parts, system: str) -> list[float]:
        point = parts["filters"]["shares"][share][system]
        # If HNSW does not reach the recall, its best one counts.
        return [point["p50_ms"]] if point["reached"] or system == HNSW else []

    return figures


def _built(name: str) -> Figures:
    return lambda parts, system: [built[name] for built in parts["build"]["systems"][system]]


def _inserted(name: str) -> Figures:
    return lambda parts, system: [parts["inserts"]["systems"][system][name]]


# Figures, and whether the ratio is HNSW's over pg_hashindex's.
_COMPARED: dict[str, tuple[Figures, bool]] = {
    "p50 at .95 in memory, ms": (_searched, False),
    "p50, filter of 10 %, ms": (_within("10"), False),
    "p50, filter of 50 %, ms": (_within("50"), False),
    "build, s": (_built("seconds"), True),
    "bytes": (_built("bytes"), True),
    "single inserts a second": (_inserted("single"), False),
    "rows by 100 a second": (_inserted("batches"), False),
}


def compare(parts: Parts) -> Iterator[tuple[str, float, float | None, float | None]]:
    """Yield what was measured of HNSW and ours: medians of all builds, and of their ratios."""
    for what, (figures, inverse) in _COMPARED.items():
        try:
            theirs, ours = figures(parts, HNSW), figures(parts, OURS)
        except KeyError:
            # It was not measured, or skipped.
            continue
        if not theirs:
            continue
        # HNSW may be built fewer times than ours.
        pairs = [(mine, theirs[min(n, len(theirs) - 1)]) for n, mine in enumerate(ours)]
        ratios = [round(b / a if inverse else a / b, 3) for a, b in pairs]
        yield (what, median(theirs), *(median(x) if x else None for x in (ours, ratios)))


def comparison(whole: Whole) -> Iterator[list[str]]:
    """Return a line of text for each figure: name, HNSW, ours, ratio."""
    for what, theirs, ours, ratio in compare(whole["parts"]):
        shown = "not reached" if ours is None else figure(ours)
        yield [what, figure(theirs), shown, "" if ratio is None else f"{ratio:.2f}"]


def pair(point: Mapping[str, Any], kind: str = "") -> str:
    """Format p50 and p95, if there are any."""
    return f"{point[f'{kind}p50_ms']:.2f} / {point[f'{kind}p95_ms']:.2f}" if point else ""


def _filtered(point: Mapping[str, Any] | None) -> str:
    if point is None:
        return ""
    # Mark a recall that was not reached.
    return pair(point) + ("" if point["reached"] else f" ({point['recall']:.3f})")


def figure(value: float) -> str:
    """Format a figure for people."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
