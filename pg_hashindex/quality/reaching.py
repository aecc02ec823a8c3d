"""Reach a recall: measure an index with more candidates and more probes, and see what helps."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..db.progress import Progress
from ..index.catalog import HasRow
from .measuring import Measured, Measuring
from .queries import draw

CANDIDATES = (20, 50, 100, 200, 400, 800)
_MOST_CANDIDATES = 6400
_MOST_PROBES = 1000
# Recalls that differ by less count as equal.
_GAIN = 0.005
# A search that takes so long, and longer than the exact one, helps nobody.
_SLOW_MS = 10.0


@dataclass(frozen=True)
class Reached:
    """The settings that were measured, and the best of them.

    Parameters
    ----------
    points
        In their order.
    own, best
        With the index's settings of now; and with the fewest candidates and probes that reach the
        recall, or else find the most.
    cause
        What keeps the index from the recall; None if it is reached.
    exact_p50_ms, exact_p95_ms
        Times of exact search.
    """

    points: list[Measured]
    own: Measured
    best: Measured
    cause: str | None
    exact_p50_ms: float
    exact_p95_ms: float


def reach(index: HasRow, recall: float, *, queries: int = 100, k: int = 10) -> Reached:
    """Find out with how many candidates and probes an index reaches a recall; change nothing.

    Tries more candidates first. Where these are not enough, it doubles either number, or both,
    whatever finds the most, until the recall is reached or neither helps.

    Parameters
    ----------
    queries
        Rows of the table to search for.
    k
        Answers compared.
    """
    row = index.row
    measuring = Measuring([row], draw(row, queries, 0), k)
    counts = sorted({*CANDIDATES, row.candidates})
    measured: dict[tuple[int | None, int], Measured] = {}
    steps = len(measuring.asked) * (1 + len(counts))
    with Progress(f"measuring {row.name}", steps, "query") as bar:
        exact = measuring.find_truth(bar.update)

        def at(probes: int | None, candidates: int) -> Measured:
            place = probes, candidates
            if place not in measured:
                bar.total = max(bar.total, bar.n + len(measuring.asked))
                measured[place] = measuring.measure(row, candidates, bar.update, probes=probes)
            return measured[place]

        own = [at(row.probes, candidates) for candidates in counts]
        best, cause = _enough(own, recall), None
        if best is None:
            top = own[-1]
            while top.recall < recall and cause is None:
                choices = _more(top, row.access == "landmarks")
                tried = [at(*choice) for choice in choices]
                top, cause = _step(top, tried, row.model_name, exact[0])
            if cause is None:
                best = _enough([at(top.probes, count) for count in counts], recall) or top
            else:
                best = _cheapest([*measured.values()])
    of_now = measured[row.probes, row.candidates]
    return Reached([*measured.values()], of_now, best, cause, *exact)


def _enough(points: Sequence[Measured], recall: float) -> Measured | None:
    return next((point for point in points if point.recall >= recall), None)


def _more(top: Measured, has_probes: bool) -> list[tuple[int | None, int]]:
    """Return what to try next: twice the candidates, twice the probes, and both."""
    more = 2 * top.candidates
    found: list[tuple[int | None, int]] = []
    if more <= _MOST_CANDIDATES:
        found.append((top.probes, more))
    if has_probes and top.probes is not None and 2 * top.probes <= _MOST_PROBES:
        found += [(2 * top.probes, c) for c in (top.candidates, more) if c <= _MOST_CANDIDATES]
    return found


def _step(
    top: Measured, tried: Sequence[Measured], model: str, exact_ms: float
) -> tuple[Measured, str | None]:
    """Return the next settings; or those of before, and why no other ones are better."""
    found = f"{_settings(top)} find {top.recall:.3g}"
    if not tried:
        return top, f"{found}, and more are not tried"
    best = max(tried, key=lambda point: point.recall)
    # Among equal recalls, prefer the point with one number doubled to that with both.
    best = _cheapest([point for point in tried if point.recall >= best.recall - _GAIN])
    if best.recall < top.recall + _GAIN:
        others = "; ".join(f"{_settings(point)} find {point.recall:.3g}" for point in tried)
        return top, (
            f"{found}, and more do not help ({others}): by the codes of model {model} the missing "
            "rows are not near"
        )
    if best.p50_ms > max(exact_ms, _SLOW_MS):
        return top, f"{found}, and with more of them an exact search is faster"
    return best, None


def _cheapest(points: Sequence[Measured]) -> Measured:
    """Return the fewest probes and candidates that find as much as any."""
    most = max(point.recall for point in points)
    equal = [point for point in points if point.recall > most - _GAIN]
    return min(equal, key=lambda point: (point.probes or 0, point.candidates))


def _settings(point: Measured) -> str:
    probes = "" if point.access != "landmarks" else f" of {point.probes} probes"
    return f"{point.candidates} candidates{probes}"
