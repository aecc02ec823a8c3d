"""Find the candidates and effort with which an index reaches a recall the fastest.

Both are arguments of a search, so the index itself is measured, as it is, and nothing is written.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..db.progress import Progress
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute
from ..errors import DatabaseStateError, InvalidInputError, MissingRightsError
from ..index.catalog import HasRow, IndexRow
from ..index.handle import HashIndex
from ..index.search import as_count
from .advice import RECALL, ModelFacts, remedy
from .measuring import Measured, Measuring
from .queries import Query, as_queries, draw
from .tenant_recall import tenants

#: Numbers of candidates that are tried first.
CANDIDATES = (20, 50, 100, 200, 400, 800)
# And those that are tried one after the other, each about twice the one before.
_COUNTS = (*CANDIDATES, 1600, 3200, 6400)
_MOST_PROBES = 1000
#: Accesses whose effort is a number of lists.
BY_LISTS = ("lists", "ivfflat")
# Recalls that differ by less count as equal.
_GAIN = 0.005
# Medians that differ by less count as equal.
_SAME_TIME, _SAME_MS = 1.1, 0.05
# A search that takes so long, and longer than the exact one, is of no use.
_SLOW_MS = 10.0

# The exact queries after a build take no longer, if there are 30.
_BUILT_SECONDS = 1.0
_MODEL = query("measuring.model")

# Measures a search with some effort and candidates, once.
_At = Callable[[int | None, int], Measured]


@dataclass(frozen=True)
class Tuned:
    """The settings that were measured, and the best of them.

    Attributes
    ----------
    recall, k, max_ms
        The goal.
    points
        By effort and candidates.
    own, best
        With the index's current settings; and with the fastest that reach the goal, or else those
        of the highest recall.
    cause, remedy
        What keeps the index from the goal, and what to do then; None if it is reached.
    exact_p50_ms, exact_p95_ms
        Times of exact search.
    """

    index: str
    recall: float
    k: int
    max_ms: float | None
    points: list[Measured]
    own: Measured
    best: Measured
    cause: str | None
    remedy: str | None
    exact_p50_ms: float
    exact_p95_ms: float

    @property
    def frontier(self) -> list[Measured]:
        """The points that no other one beats in recall and median time, by recall."""
        found: list[Measured] = []
        for point in sorted(self.points, key=lambda point: (point.p50_ms, -point.recall)):
            if not found or point.recall > found[-1].recall:
                found.append(point)
        return found

    @property
    def goal(self) -> str:
        """The goal in words."""
        return f"recall {self.recall:g}" + (f" within {self.max_ms:g} ms" if self.max_ms else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``recommended`` is None if nothing reaches the goal."""
        frontier = self.frontier
        values = asdict(self)
        del values["best"]
        return values | {
            "points": [asdict(point) | {"frontier": point in frontier} for point in self.points],
            "recommended": asdict(self.best) if self.cause is None else None,
        }


def tune(
    index: HasRow,
    recall: float,
    *,
    k: int = 10,
    max_ms: float | None = None,
    queries: int | ArrayLike = 100,
    random_state: int = 0,
    most_seconds: float | None = None,
    candidates: Sequence[int] = CANDIDATES,
) -> Tuned:
    """Find the candidates and effort with which an index reaches a recall the fastest.

    The measured recall has to reach it, and the lower bound of its interval to be at most .01 less
    (`Measured.reaches`). Of settings that do, the cheapest in time is the best, and of equal times
    that with the fewest candidates and the least effort.
    Tries ``candidates`` first, and those of the index. If these are not enough, it takes the next
    of its counts or doubles the effort, whatever finds more, or both if neither does, until the
    recall is reached or nothing helps. Then it tries less and more effort, each with the fewest
    candidates that are enough.
    Works in a read-only session.

    Parameters
    ----------
    recall
        The part of the true k nearest to find, above 0 and at most 1.
    k
        Answers compared.
    max_ms
        The most milliseconds that the median query may take.
    queries : int or array-like (n, dimension)
        Rows to draw from the table, each left out of its own answers; or other queries. If the
        index has tenants, the rows are those of the largest, and searched for within it: recall is
        lowest there, and settings are to reach the goal for all tenants.
    random_state
        Seed of the draw.
    most_seconds
        After this time of exact searches, queries are left out, except the first 30.

    Raises
    ------
    InvalidInputError
        If a number is out of range, or there is nothing to search.
    DatabaseStateError
        If the index is not yet encoded, so that its searches are exact.
    """
    if not 0 < recall <= 1:
        raise InvalidInputError(f"recall must be above 0 and at most 1, got {recall:g}")
    if max_ms is not None and not max_ms > 0:
        raise InvalidInputError(f"max_ms must be above 0, got {max_ms:g}")
    as_count("k", k)
    row = index.row
    measuring = Measuring(row, _drawn(row, queries, random_state), k)
    if not row.encoded:
        raise DatabaseStateError(
            f"index {row.name!r} is not complete, and exact searches cannot be tuned; pg-hashindex "
            f"index check {row.name} names what completes it"
        )
    usual = row.candidates_for(k)
    counts = sorted({max(count, k) for count in (*candidates, usual)})
    measured: dict[tuple[int | None, int], Measured] = {}
    steps = len(measuring.asked) * (1 + len(counts))
    with Progress(f"measuring {row.name}", steps, "query") as bar:
        exact_ms = measuring.find_truth(bar.update, most_seconds=most_seconds)

        def at(effort: int | None, candidates: int) -> Measured:
            place = effort, candidates
            if place not in measured:
                bar.total = max(bar.total, bar.n + len(measuring.asked))
                measured[place] = measuring.measure(candidates, bar.update, effort=effort)
            return measured[place]

        # The most first, since the first searches read from disk.
        top, *_ = [at(row.effort, count) for count in reversed(counts)]
        cause = None
        if not any(point.reaches(recall) for point in measured.values()):
            top, cause = _climb(at, top, recall, row, exact_ms[0])
        if cause is None and row.access in BY_LISTS:
            _try_effort(at, top.effort or 1, sorted({count for _, count in measured}), recall)
    points = sorted(measured.values(), key=_size)
    best, cause = _best(points, recall, max_ms, cause)
    return Tuned(
        row.name,
        recall,
        k,
        max_ms,
        points,
        measured[row.effort, usual],
        best,
        cause,
        None
        if cause is None
        else remedy(row, _model_facts(row), points, recall, max_ms, exact_ms[0]),
        *exact_ms,
    )


def _drawn(row: IndexRow, queries: int | ArrayLike, random_state: int) -> list[Query]:
    """Draw rows of the largest tenant, if there are tenants and this session may count them."""
    if isinstance(queries, int | np.integer) and row.tenant_column is not None:
        try:
            with row.connection.transaction():
                named = [one.tenant for one in tenants(row) if one.tenant is not None]
        except MissingRightsError:
            named = []
        if named and (found := draw(row, int(queries), random_state, tenant=named[0])):
            return found
    return as_queries(row, queries, random_state)


def tune_built(
    index: HashIndex,
    recall: float = RECALL,
    *,
    queries: int = 100,
    complete: bool = False,
) -> tuple[Tuned, bool]:
    """Tune an index whose build has ended; return what was measured, and whether it was stored.

    An index that was ``complete`` before keeps its effort, and takes the fewest candidates that
    are enough with it, if any are: times differ from run to run, and with them the best effort.
    """
    usual = index.row.candidates
    # Lists have an effort for each.
    fewer_candidates = [n for n in CANDIDATES if n < usual] if not index.row.is_lists else []
    tuned = tune(
        index,
        recall,
        queries=queries,
        most_seconds=_BUILT_SECONDS,
        candidates=fewer_candidates or (max(CANDIDATES[0], usual // 2),),
    )
    if complete and tuned.own.reaches(recall):
        enough = [p for p in tuned.points if p.effort == tuned.own.effort and p.reaches(recall)]
        tuned = replace(tuned, best=min(enough, key=_size))
    stored = tuned.best != tuned.own
    if stored:
        apply(index, tuned)
    return tuned, stored


def _model_facts(row: IndexRow) -> ModelFacts:
    with translated_errors(table=row.qualified_table):
        found = execute(row.connection, _MODEL, [row.name], names=row.names).fetchone()
    return ModelFacts(*found) if found else ModelFacts()


def apply(index: HashIndex, tuned: Tuned) -> HashIndex:
    """Store the best candidates and effort as the defaults of the index's searches."""
    best = tuned.best
    return index.configure(
        # Searches for more than ten rows keep more in proportion.
        candidates=-(-10 * best.candidates // max(tuned.k, 10)),
        effort=best.effort if best.access in BY_LISTS else None,
    )


def describe(point: Measured) -> str:
    """Return the settings of a measurement in words."""
    effort = ""
    if point.access in BY_LISTS:
        effort = f" of {point.effort} list{'s' * (point.effort != 1)}"
    return f"{point.candidates} candidates{effort}"


def _climb(
    at: _At, top: Measured, recall: float, row: IndexRow, exact_ms: float
) -> tuple[Measured, str | None]:
    """Take more candidates or effort until the recall is reached, or return why it is not."""
    while not top.reaches(recall):
        found = f"{describe(top)} find {top.recall:.3g}"
        tried = [*_raised(at, top, row)]
        if reaching := [point for point in tried if point.reaches(recall)]:
            return _cheapest(reaching), None
        if not any(point.recall >= top.recall + _GAIN for point in tried):
            if top.candidates < CANDIDATES[-1]:
                # Codes that put the true rows late need far more.
                top = at(top.effort, CANDIDATES[-1])
                continue
            if len(tried) == 2:
                tried.append(at(tried[1].effort, tried[0].candidates))
        if not tried:
            return top, f"{found}, and more are not tried"
        best = max(tried, key=lambda point: point.recall)
        # Among equal recalls, prefer the point with one number doubled to that with both.
        best = _cheapest([point for point in tried if point.recall >= best.recall - _GAIN])
        if best.recall < top.recall + _GAIN:
            others = "; ".join(f"{describe(point)} find {point.recall:.3g}" for point in tried)
            why = f": by the codes of model {row.model_name} the missing rows are not near"
            return top, f"{found}, and more do not help ({others}){why if row.model_id else ''}"
        if best.p50_ms > max(exact_ms, _SLOW_MS):
            return top, f"{found}, and with more of them an exact search is faster"
        top = best
    return top, None


def _raised(at: _At, top: Measured, row: IndexRow) -> Iterator[Measured]:
    """Measure with more candidates, then with more effort, unless these are too many."""
    # A count between two of them leads to the next, which a later run tries too.
    candidates = next((count for count in _COUNTS if count >= 1.25 * top.candidates), None)
    if candidates is not None:
        yield at(top.effort, candidates)
    effort = 2 * (top.effort or 0)
    if row.access in BY_LISTS and 0 < effort <= _MOST_PROBES:
        yield at(effort, top.candidates)


def _try_effort(at: _At, start: int, counts: Sequence[int], recall: float) -> None:
    """Measure less and more effort than ``start``, as long as searches do not become slower.

    Each with the fewest candidates that reach the recall, and the others that the way there takes.
    """

    def least(effort: int) -> Measured | None:
        place = bisect_left(counts, True, key=lambda count: at(effort, count).reaches(recall))
        return at(effort, counts[place]) if place < len(counts) else None

    first = fastest = least(start)
    for factor in (0.5, 2.0):
        last, effort = first, int(factor * start)
        while last is not None and 1 <= effort <= _MOST_PROBES:
            point = least(effort)
            slower = point is not None and point.p50_ms > last.p50_ms * _SAME_TIME + _SAME_MS
            last = None if slower else point
            fastest = last or fastest
            effort = int(factor * effort)
    if fastest is not None and (fastest.effort or 0) > 1:
        # Half as many find too little; something between may be enough.
        least(int(0.7 * (fastest.effort or 0)))


def _best(
    points: Sequence[Measured], recall: float, max_ms: float | None, cause: str | None
) -> tuple[Measured, str | None]:
    """Return the fastest settings that reach the goal, or else the nearest, and why not."""
    allowed = [point for point in points if max_ms is None or point.p50_ms <= max_ms]
    reaching = [point for point in points if point.reaches(recall)]
    if not reaching:
        return _cheapest(allowed or points), cause
    # Fewer candidates or effort are never slower: if they were measured so, it was chance.
    times = {
        point: min(other.p50_ms for other in points if _within(point, other)) for point in reaching
    }
    needed = [
        point
        for point in reaching
        if not any(other != point and _within(other, point) for other in reaching)
    ]
    if within := [point for point in needed if point in allowed]:
        return _fastest(within, times), None
    fastest = _fastest(needed, times)
    why = f"{describe(fastest)} find {fastest.recall:.3g} in {fastest.p50_ms:.3g} ms"
    return (_cheapest(allowed) if allowed else fastest), why


def _fastest(points: Sequence[Measured], times: Mapping[Measured, float]) -> Measured:
    """Return the fastest point; of equal times, that with the fewest candidates and effort."""
    most = min(times[point] for point in points) * _SAME_TIME + _SAME_MS
    return min((point for point in points if times[point] <= most), key=lambda p: sum(_size(p)))


def _cheapest(points: Iterable[Measured]) -> Measured:
    """Return the least effort and the fewest candidates that find as much as any."""
    points = list(points)
    most = max(point.recall for point in points)
    return min((point for point in points if point.recall > most - _GAIN), key=_size)


def _size(point: Measured) -> tuple[int, int]:
    return point.effort or 0, point.candidates


def _within(one: Measured, other: Measured) -> bool:
    return all(a <= b for a, b in zip(_size(one), _size(other), strict=True))
