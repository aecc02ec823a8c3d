"""The tables of one file of `retrieval.py`, as text."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

Whole = Mapping[str, Any]


def lines(whole: Whole) -> Iterator[str]:
    """Format a data set: its systems, then its bars."""
    yield f"{whole['data']}: {whole['rows']:,} rows of {whole['dimension']} dimensions"
    yield from aligned([list(COLUMNS), *([row[c] for c in COLUMNS] for row in systems(whole))])
    for name, rounds in _rounds(whole).items():
        yield f"{name}: p50 of all builds {', '.join(f'{p50:.2f}' for p50 in rounds)} ms"
    yield from aligned([["", "HNSW", "ours", "ratio", "bar", "beyond", ""], *bars(whole)])


#: The columns of `systems`.
COLUMNS = (
    "system", "build s", "MB", "recall", "ms", "setting",
    "10 % ms", "50 % ms", "inserts/s", "by 100/s",
)  # fmt: skip


def systems(whole: Whole) -> Iterator[dict[str, str]]:
    """Return a line of text for each system, with p50 / p95 of the last build."""
    parts = whole["parts"]
    build = {
        **parts.get("build", {}).get("systems", {}),
        **parts.get("filters", {}).get("build", {}),
    }
    last = (parts.get("search", {}).get("rounds") or [{}])[-1]
    for name, built in build.items():
        point = last.get(name, {})
        shares = parts.get("filters", {}).get("shares", {})
        rates = parts.get("inserts", {}).get("systems", {}).get(name, {})
        yield {
            "system": name,
            "build s": f"{median(b['seconds'] for b in built):.1f}",
            "MB": f"{median(b['bytes'] for b in built) / 1e6:.1f}",
            "recall": f"{point['recall']:.3f}" if point else "",
            "ms": pair(point),
            "setting": point.get("setting", ""),
            **{f"{share} % ms": _filtered(found.get(name)) for share, found in shares.items()},
            **{f"{s} % ms": "" for s in ("10", "50") if s not in shares},
            "inserts/s": f"{rates['single']:.0f}" if rates else "",
            "by 100/s": f"{rates['batches']:.0f}" if rates else "",
        }


def bars(whole: Whole) -> Iterator[list[str]]:
    """Return a line of text for each bar: name, HNSW, ours, ratio, bar, goal, result."""
    for bar in whole["bars"]:
        sign = "≥" if bar["at_least"] else "≤"
        shown = [
            "" if bar[which] is None else f"{sign} {bar[which]:g}" for which in ("bar", "beyond")
        ]
        yield [
            bar["what"],
            *("not reached" if bar[who] is None else figure(bar[who]) for who in ("hnsw", "ours")),
            "" if bar["ratio"] is None else f"{bar['ratio']:.2f}",
            *shown,
            bar["result"] or "",
        ]


def _rounds(whole: Whole) -> dict[str, list[float]]:
    rounds = whole["parts"].get("search", {}).get("rounds", [])
    names = rounds[0] if len(rounds) > 1 else ()
    return {name: [found[name]["p50_ms"] for found in rounds] for name in names}


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


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align the columns of a table: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *others]).rstrip()
