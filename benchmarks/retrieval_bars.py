"""The bars of `retrieval.py`: ours relative to pgvector's HNSW in the same run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

HNSW, OURS, FILTER_COLUMNS = "hnsw", "ours", "ours-filter-columns"

Parts = Mapping[str, Any]
#: A figure of a system, one for each build.
Figures = Sequence[float]
#: By data set: the bar, and the goal beyond it.
Bounds = Mapping[str, tuple[float, float]]


def _large(bar: float, beyond: float) -> Bounds:
    return dict.fromkeys(("synthetic-300k", "synthetic-1m"), (bar, beyond))


@dataclass(frozen=True)
class Bar:
    """One line of the table.

    Attributes
    ----------
    words : str
        The figure that is compared, with its unit.
    figures : callable
        Takes the parts of a data set and a system; returns its figures.
    bounds : mapping
        Data sets that are not in it are reported without a bar.
    ours : str
        The system.
    inverse : bool
        Whether the ratio is HNSW's over ours.
    at_least : bool
        Whether the ratio is to be large.
    """

    words: str
    figures: Callable[[Parts, str], Figures]
    bounds: Bounds
    ours: str = OURS
    inverse: bool = False
    at_least: bool = False


def _search(parts: Parts, system: str) -> Figures:
    return [found[system]["p50_ms"] for found in parts["search"]["rounds"]]


def _filter(share: str) -> Callable[[Parts, str], Figures]:
    def figures(parts: Parts, system: str) -> Figures:
        point = parts["filters"]["shares"][share][system]
        # If HNSW does not reach the recall, its best one counts.
        return [point["p50_ms"]] if point["reached"] or system == HNSW else []

    return figures


def _build(name: str) -> Callable[[Parts, str], Figures]:
    return lambda parts, system: [built[name] for built in parts["build"]["systems"][system]]


def _inserts(name: str) -> Callable[[Parts, str], Figures]:
    return lambda parts, system: [parts["inserts"]["systems"][system][name]]


BARS = (
    Bar(
        "p50 at .95 in memory, ms",
        _search,
        {
            "synthetic-300k": (1.0, 0.75),
            "synthetic-1m": (0.8, 0.6),
            "dims-512": (1.5, 1.0),
            "dims-1536": (1.25, 1.0),
        },
    ),
    Bar("p50, filter of 10 %, columns, ms", _filter("10"), _large(0.5, 0.25), FILTER_COLUMNS),
    Bar("p50, filter of 50 %, columns, ms", _filter("50"), _large(1.0, 0.5), FILTER_COLUMNS),
    Bar("p50, filter of 10 %, ms", _filter("10"), _large(1.0, 0.5)),
    Bar("p50, filter of 50 %, ms", _filter("50"), _large(1.5, 1.0)),
    Bar("build, s", _build("seconds"), _large(6, 12), inverse=True, at_least=True),
    Bar("bytes", _build("bytes"), _large(12, 20), inverse=True, at_least=True),
    Bar("single inserts a second", _inserts("single"), _large(5, 10), at_least=True),
    Bar("rows by 100 a second", _inserts("batches"), _large(5, 10), at_least=True),
)


def check_bars(data: str, parts: Parts) -> list[dict[str, Any]]:
    """Check a data set against every bar that it has figures for.

    Parameters
    ----------
    data : str
    parts : dict
        As `retrieval.py` writes them.

    Returns
    -------
    list of dict
        Each with ``what``, the medians ``hnsw`` and ``ours``, the ``ratios`` of all builds and
        their median ``ratio``, the ``bar``, what is ``beyond`` it, and the ``result``: "beyond",
        "met" or "missed"; None where the data set has no bar.
    """
    found = []
    for bar in BARS:
        try:
            theirs, ours = bar.figures(parts, HNSW), bar.figures(parts, bar.ours)
        except KeyError:
            # It was not measured, or skipped.
            continue
        if not theirs:
            continue
        # HNSW may be built fewer times than ours.
        pairs = [(mine, theirs[min(n, len(theirs) - 1)]) for n, mine in enumerate(ours)]
        ratios = [
            round(theirs / mine if bar.inverse else mine / theirs, 3) for mine, theirs in pairs
        ]
        ratio = median(ratios) if ratios else None
        bounds = bar.bounds.get(data)
        found.append(
            {
                "what": bar.words,
                "hnsw": median(theirs),
                "ours": median(ours) if ours else None,
                "ratio": ratio,
                "ratios": ratios,
                "bar": bounds and bounds[0],
                "beyond": bounds and bounds[1],
                "at_least": bar.at_least,
                "result": bounds and _result(ratio, bounds, at_least=bar.at_least),
            }
        )
    return found


def _result(ratio: float | None, bounds: tuple[float, float], *, at_least: bool) -> str:
    sign = -1 if at_least else 1
    if ratio is None or sign * ratio > sign * bounds[0]:
        return "missed"
    return "beyond" if sign * ratio <= sign * bounds[1] else "met"
